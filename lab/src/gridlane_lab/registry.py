"""The drivers by name, and those that are declared only.

A driver of a tool that does not exist yet is declared: scenarios may name it, and its cells have the status
`not available` with the reason of the declaration.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from gridlane_lab.driver import (
    Availability,
    Capabilities,
    Command,
    Progress,
    Runner,
    RunnerOptions,
    ServerDriver,
    Task,
    ToolDriver,
)
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.matrix import Cell
from gridlane_lab.record import RunDirectory
from gridlane_lab.scenario import Scenario

# Scenario, cells, run directory, experiment id, options, progress.
RunnerFactory = Callable[[Scenario, Sequence[Cell], RunDirectory, str, RunnerOptions, Progress], Runner]

D = TypeVar("D", ToolDriver, ServerDriver)

_tools: dict[str, ToolDriver] = {}
_servers: dict[str, ServerDriver] = {}
_runner: RunnerFactory | None = None


def register_tool(driver: type[ToolDriver]) -> type[ToolDriver]:
    """Makes a driver known. A class decorator."""
    return _register(_tools, driver)


def register_server(driver: type[ServerDriver]) -> type[ServerDriver]:
    """Makes a driver known. A class decorator."""
    return _register(_servers, driver)


def register_runner(factory: RunnerFactory) -> None:
    """Makes the runner known that `gridlane-lab run` uses."""
    global _runner
    _runner = factory


def runner() -> RunnerFactory:
    """The runner of this installation."""
    if _runner is None:
        raise LabError(
            "no runner is installed", hint="install the whole package gridlane-lab", code=ExitCode.UNSUPPORTED
        )
    return _runner


def load() -> None:
    """Imports the modules that make all drivers and the runner known."""
    for module in ("drivers", "servers", "runner"):
        if importlib.util.find_spec(f"gridlane_lab.{module}"):
            importlib.import_module(f"gridlane_lab.{module}")


def declare_tool(name: str, capabilities: Capabilities, reason: str) -> None:
    """Makes the name of a tool known that cannot run yet."""
    _tools[name] = _Declared(name, capabilities, reason)


def tool(name: str) -> ToolDriver:
    """The driver of a tool."""
    return _find(_tools, name, "tool")


def server(name: str) -> ServerDriver:
    """The driver of a server."""
    return _find(_servers, name, "server")


def tools() -> Mapping[str, ToolDriver]:
    """All tool drivers by name."""
    return dict(_tools)


def servers() -> Mapping[str, ServerDriver]:
    """All server drivers by name."""
    return dict(_servers)


def capabilities() -> dict[str, Capabilities]:
    """What each tool driver can do."""
    return {name: driver.capabilities for name, driver in _tools.items()}


class _Declared(ToolDriver):
    def __init__(self, name: str, capabilities: Capabilities, reason: str) -> None:
        self.name = name  # type: ignore[misc]
        self.capabilities = capabilities  # type: ignore[misc]
        self._reason = reason

    def availability(self) -> Availability:
        return Availability(None, None, reason=self._reason)

    def command(self, task: Task) -> Command:
        del task
        raise LabError(self._reason, where=f"driver {self.name}", code=ExitCode.UNSUPPORTED)


def _register(known: dict[str, D], driver: type[D]) -> type[D]:
    known[driver.name] = driver()
    return driver


def _find(known: dict[str, D], name: str, what: str) -> D:
    if name not in known:
        raise LabError(
            f"there is no driver {name!r} for a {what}",
            hint=f"there are: {', '.join(sorted(known))}",
            code=ExitCode.USAGE,
        )
    return known[name]
