"""The notebooks of the documentation run, from the first cell to the last."""

import sys

import nbclient
import nbformat
import pytest
from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(notebook, data, monkeypatch, tmp_path):
    monkeypatch.setenv("ROOT_URL", data.urls["root"])
    monkeypatch.setenv("HTTP_URL", data.urls["http"].rstrip("/"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    content = nbformat.read(notebook, as_version=4)
    assert all(not cell.get("outputs") for cell in content.cells), "outputs are made when it runs"
    client = nbclient.NotebookClient(
        content, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    # The interpreter of the tests, whatever kernels are installed.
    client.create_kernel_manager()
    client.km.kernel_spec.argv[0] = sys.executable
    client.execute()
    assert any(cell.get("outputs") for cell in content.cells)


def test_there_are_some():
    assert NOTEBOOKS
