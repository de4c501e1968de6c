"""Tasks for tests of drivers: a small scenario with one tool, and what the runner would hand over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gridlane_lab.driver import Output, Task
from gridlane_lab.scenario import Scenario


def scenario(driver: str, work: dict[str, Any], tool: dict[str, Any] | None = None) -> Scenario:
    """A resolved one."""
    return Scenario.model_validate(
        {
            "schema": 1,
            "name": "driver-test",
            "question": "What does the driver do?",
            "topology": {"backend": "loopback", "site": [{"name": "origin"}, {"name": "client", "role": "client"}]},
            "data": {"seed": 7, "file": [{"name": "file", "size_bytes": 1_000_000}]},
            "server": [{"name": "server", "driver": "gridlane"}],
            "tool": [{"name": "tool", "driver": driver} | (tool or {})],
            "work": {"kind": "copy", "file": "file", "server": "server", "source_sites": ["origin"]} | work,
        }
    )


def task(
    driver: str,
    work: dict[str, Any],
    sources: list[str],
    target: str,
    scratch: Path,
    *,
    tool: dict[str, Any] | None = None,
    size_bytes: int = 1_000_000,
    **more: Any,
) -> Task:
    """One transfer."""
    return Task(
        scenario=scenario(driver, work, tool),
        sources=tuple(sources),
        target=target,
        size_bytes=size_bytes,
        checksum="adler32:00000001",
        scratch=scratch,
        **more,
    )


def output(directory: Path, recorded: dict[str, Any]) -> Output:
    """A recorded output as the runner hands it over."""
    (directory / "stdout").write_text(recorded["stdout"])
    (directory / "stderr").write_text(recorded["stderr"])
    return Output(
        exit_code=recorded["exit_code"],
        wall_s=recorded["wall_s"],
        stdout=directory / "stdout",
        stderr=directory / "stderr",
        events=[(at, event) for at, event in recorded["events"]],
    )
