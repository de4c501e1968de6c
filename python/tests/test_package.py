"""The package as it is installed: what it has, what it needs, and the oldest Python that can read it."""

import ast
import importlib.metadata
import inspect
import pathlib
import subprocess
import sys

import pytest

import gridlane

MODULES = pathlib.Path(gridlane.__file__).parent


def test_everything_is_described_and_has_a_twin():
    for name in gridlane.__all__:
        assert getattr(gridlane, name) is not None
    for name in gridlane.aio.__all__:
        plain, twin = getattr(gridlane, name), getattr(gridlane.aio, name)
        assert plain.__doc__ and twin.__doc__ and inspect.iscoroutinefunction(twin), name
    methods = {
        name
        for name, _ in inspect.getmembers(gridlane.Client, inspect.isfunction)
        if not name.startswith("_")
    }
    assert methods == set(gridlane.aio.__all__)


def test_the_version_is_one():
    assert importlib.metadata.version("gridlane") == gridlane.__version__


@pytest.mark.parametrize("module", sorted(MODULES.glob("*.py*")), ids=lambda path: path.name)
def test_the_oldest_python_reads_it(module):
    if module.suffix in (".py", ".pyi"):
        ast.parse(module.read_text(), feature_version=(3, 9))
    else:
        assert module.name == "py.typed"


def test_it_needs_nothing_else():
    # Of other people's packages none is imported before it is asked for.
    script = """
import sys
import gridlane
others = {"fsspec", "uproot", "pyarrow", "numpy"} & set(sys.modules)
assert not others, others
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_errors_are_also_those_that_others_expect():
    expected = {
        "NotFound": FileNotFoundError,
        "Denied": PermissionError,
        "Exists": FileExistsError,
        "IsADirectory": IsADirectoryError,
        "NotADirectory": NotADirectoryError,
        "TimedOut": TimeoutError,
        "Disconnected": ConnectionError,
        "Usage": ValueError,
    }
    for name, builtin in expected.items():
        found = getattr(gridlane.errors, name)
        assert issubclass(found, builtin) and issubclass(found, gridlane.Error), name


def test_the_stubs_have_all_functions():
    for module in (gridlane, gridlane.aio):
        stub = MODULES / ("aio.pyi" if module is gridlane.aio else "__init__.pyi")
        tree = ast.parse(stub.read_text())
        described = {
            node.name: node.args
            for node in tree.body
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        }
        assert set(described) == set(gridlane.aio.__all__)
        (names,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
        assert set(names) == set(module.__all__)
        for name, arguments in described.items():
            method = inspect.signature(getattr(gridlane.Client, name))
            keywords = {key for key, of in method.parameters.items() if of.kind is of.KEYWORD_ONLY} - {
                "progress"
            }
            assert keywords == {argument.arg for argument in arguments.kwonlyargs}, name


def test_the_stubs_have_all_options():
    tree = ast.parse((MODULES / "__init__.pyi").read_text())
    described = {
        node.name: {line.target.id for line in node.body}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }

    def keywords(function) -> set:
        parameters = inspect.signature(function).parameters.items()
        return {key for key, of in parameters if of.kind is of.KEYWORD_ONLY}

    assert described["_Credentials"] == keywords(gridlane.Client) | {"client"}
    assert described["_Copying"] == keywords(gridlane.Client._copying) | {"progress"}
    assert described["_Opening"] == {*gridlane.file.OPENING, "timeout"}
