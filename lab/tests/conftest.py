"""What tests share: the binary, records of runs of their own, and nothing in the home directory."""

import os
import tempfile
from pathlib import Path

import pytest

from gridlane_lab import registry

ROOT = Path(__file__).resolve().parents[2]

# What matplotlib caches.
os.environ.setdefault("MPLCONFIGDIR", os.path.join(tempfile.gettempdir(), f"gridlane-lab-matplotlib-{os.getuid()}"))


registry.load()
TOOLS, SERVERS, RUNNER = dict(registry._tools), dict(registry._servers), registry._runner


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Drivers as they are installed, whatever the last test has registered."""
    monkeypatch.setattr(registry, "_tools", dict(TOOLS))
    monkeypatch.setattr(registry, "_servers", dict(SERVERS))
    monkeypatch.setattr(registry, "_runner", RUNNER)


@pytest.fixture(scope="session")
def gridlane():
    """The binary: a missing one is a failure."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = Path(os.environ.get("GRIDLANE_LAB_BINARY", target / "release/gridlane"))
    assert os.access(path, os.X_OK), f"{path} is not there: make build"
    return path


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """Records of runs in a directory of the test: nothing of other runs is touched."""
    state = tmp_path / "state"
    monkeypatch.setenv("GRIDLANE_LAB_STATE", str(state))
    monkeypatch.setenv("GRIDLANE_LAB_DISK", str(tmp_path))
    # What a command sets is forgotten after the test.
    binary = os.environ.get("GRIDLANE_LAB_BINARY")
    monkeypatch.setenv("GRIDLANE_LAB_BINARY", binary or "")
    if binary is None:
        monkeypatch.delenv("GRIDLANE_LAB_BINARY")
    return state
