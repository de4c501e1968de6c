"""Test files at real endpoints: `gridlane-lab init` puts them there, `clean` removes them.

They are below a directory of their own, `gridlane-lab-SCENARIO/`, of which `clean` removes nothing but what `init` of
the same scenario made. Copies are made by the `gridlane` under test, with the credentials that it finds.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gridlane_lab import data
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.matrix import Cell
from gridlane_lab.scenario import Endpoint, File, Scenario

Say = Callable[[str], None]

# One file up or down; a larger limit than any that people wait for.
COMMAND_LIMIT_S = 3600


def url_of(scenario: Scenario, endpoint: Endpoint, protocol: str, file: File, number: int) -> str:
    """Where a file is at an endpoint, over one of its protocols."""
    base = endpoint.url(protocol)
    if base is None:
        raise LabError(f"does not speak {protocol}", where=f"endpoint {endpoint.name}", code=ExitCode.USAGE)
    name = data.file_name(file.name, file.size_bytes, number)
    return f"{base.rstrip('/')}/gridlane-lab-{scenario.name}/{name}"


def files_of(cells: Sequence[Cell]) -> list[File]:
    """The files that the cells need, each size once."""
    found: dict[tuple[str, int], File] = {}
    for cell in cells:
        file = cell.scenario.file_of()
        known = found.get((file.name, file.size_bytes))
        if known is None or file.count > known.count:
            found[file.name, file.size_bytes] = file
    return list(found.values())


def place(scenario: Scenario, cells: Sequence[Cell], gridlane: Path, say: Say) -> int:
    """Uploads all files to all endpoints; the number that were uploaded. What is there already stays as it is."""
    _only_endpoints(scenario)
    uploaded = 0
    for endpoint in scenario.endpoint:
        url = f"{str(endpoint.url(_protocol(endpoint))).rstrip('/')}/gridlane-lab-{scenario.name}"
        code, words = run_gridlane(gridlane, "mkdir", url)
        if code not in (0, ExitCode.EXISTS):
            raise _failed(url, code, words)
    with tempfile.TemporaryDirectory(prefix="gridlane-lab-") as directory:
        for file in files_of(cells):
            for number in range(file.count):
                local = Path(directory) / data.file_name(file.name, file.size_bytes, number)
                data.write(local, scenario.data.seed, file.name, number, file.size_bytes, scenario.data.checksum)
                for endpoint in scenario.endpoint:
                    url = url_of(scenario, endpoint, _protocol(endpoint), file, number)
                    code, words = run_gridlane(gridlane, "cp", str(local), url)
                    if code == ExitCode.EXISTS:
                        say(f"{url}: is there")
                    elif code:
                        raise _failed(url, code, words)
                    else:
                        uploaded += 1
                        say(f"{url}: uploaded")
                local.unlink()
    return uploaded


def remove(scenario: Scenario, cells: Sequence[Cell], gridlane: Path, say: Say) -> int:
    """Removes what `place` made; the number of files. One that is not there is no failure."""
    _only_endpoints(scenario)
    removed = 0
    failures: list[LabError] = []
    for file in files_of(cells):
        for number in range(file.count):
            for endpoint in scenario.endpoint:
                url = url_of(scenario, endpoint, _protocol(endpoint), file, number)
                code, words = run_gridlane(gridlane, "rm", url)
                if code and code != ExitCode.NOT_FOUND:
                    # The others are removed all the same.
                    failures.append(_failed(url, code, words))
                    say(str(failures[-1]))
                elif not code:
                    removed += 1
                    say(f"{url}: removed")
    if failures:
        raise LabError(
            f"{len(failures)} files could not be removed", where=f"scenario {scenario.name}",
            hint="see above, and run clean again", code=ExitCode.SOME_FAILED,
        )  # fmt: skip
    return removed


def _only_endpoints(scenario: Scenario) -> None:
    if not scenario.endpoint:
        raise LabError(
            "has emulated sites, where `run` makes and removes the files itself", where=f"scenario {scenario.name}",
            hint="init and clean are for scenarios with [[endpoint]]", code=ExitCode.USAGE,
        )  # fmt: skip


def _protocol(endpoint: Endpoint) -> str:
    """The protocol for uploads: https where there is one."""
    protocols = [url.partition("://")[0] for url in endpoint.urls]
    return next((protocol for protocol in ("https", "roots", "root", "http") if protocol in protocols), protocols[0])


def run_gridlane(gridlane: Path | str, *arguments: str) -> tuple[int, str]:
    """One command of the binary at an endpoint: its exit code, and the end of what it said. Raises `LabError` if there
    is no such program."""
    try:
        done = subprocess.run(
            [str(gridlane), *arguments, "--quiet"],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise LabError(
            "is not there", where=str(gridlane), hint="build it, or give --gridlane", code=ExitCode.NOT_FOUND
        ) from None
    except subprocess.TimeoutExpired:
        return ExitCode.TIMEOUT, f"not done after {COMMAND_LIMIT_S} s"
    return done.returncode, " ".join(done.stderr.split())[-400:]


def _failed(url: str, code: int, words: str) -> LabError:
    known = ExitCode(code) if code in set(ExitCode) else ExitCode.OTHER
    return LabError(words or f"gridlane ended with exit code {code}", where=url, code=known)
