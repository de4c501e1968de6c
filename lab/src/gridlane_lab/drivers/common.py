"""What the drivers share: finding programs, checking options, credentials, and copies that are read afterwards."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from gridlane_lab import processes
from gridlane_lab.driver import Availability, Command, Output, Task
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.reading import trace_file, trace_names
from gridlane_lab.scenario import Option

HELPERS = Path(__file__).resolve().parent.parent / "helpers"

# Asking a program for its version takes no longer, or something is wrong with it.
VERSION_S = 20

# A message of a tool that is kept in a row has at most so many characters.
_MESSAGE_MAX = 300


# --- Programs ---------------------------------------------------------------------------------------------


def find(name: str, package: str, version: Sequence[str] = ("--version",), variable: str | None = None) -> Availability:
    """A program of the path, or that the environment `variable` names. `package` is Debian's."""
    named = os.environ.get(variable) if variable else None
    path = processes.find(named or name)
    if path is None:
        if named:
            return Availability(None, None, reason=f"{variable} names {named}, which is no program")
        hint = f"; or name it with {variable}" if variable else ""
        return Availability(None, None, reason=f"{name} is not installed; apt-get install {package}{hint}")
    return Availability(path, version_of([path, *version]), file_sha256(path))


def version_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """The first line that says something, of what a program prints about its version."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_S,
            env=dict(os.environ, **(environment or {})),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in done.stdout.decode(errors="replace").splitlines()]
    return next((line for line in lines if line), None)


@functools.cache
def file_sha256(path: str) -> str | None:
    """The digest of a program's file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def gridlane_binary() -> Availability:
    """The binary under test, with its version."""
    path = gridlane_path()
    if path is None:
        named = os.environ.get("GRIDLANE_LAB_BINARY")
        named_wrong = f"GRIDLANE_LAB_BINARY names {named}, which is no program"
        return Availability(None, None, reason=named_wrong if named else "gridlane is not built; make build")
    return Availability(path, version_of([path, "--version"]), file_sha256(path))


def gridlane_path() -> str | None:
    """The binary under test: `GRIDLANE_LAB_BINARY`, else the release build of the checkout, else that of the path."""
    root = Path(__file__).resolve().parents[4]
    built = root / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "gridlane"
    named = os.environ.get("GRIDLANE_LAB_BINARY")
    return shutil.which(named or (str(built) if os.access(built, os.X_OK) else "gridlane"))


def program(driver: str, name: str, variable: str | None = None) -> str:
    """The path of a program that a command begins with. It asks for no version: that takes time before a transfer."""
    named = os.environ.get(variable) if variable else None
    path = gridlane_path() if name == "gridlane" else processes.find(named or name)
    if path is None:
        raise LabError(f"{name} is not installed", where=f"driver {driver}", code=ExitCode.UNSUPPORTED)
    return path


@functools.cache
def python_with(*modules: str) -> str | None:
    """An interpreter that has these modules: `GRIDLANE_LAB_PYTHON`, this one, or Debian's."""
    code = "; ".join(f"import {module}" for module in modules) or "pass"
    for python in (os.environ.get("GRIDLANE_LAB_PYTHON"), sys.executable, "/usr/bin/python3"):
        if not python:
            continue
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, timeout=VERSION_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return python
    return None


# --- Options ----------------------------------------------------------------------------------------------


def options_of(driver: str, task: Task, known: Mapping[str, type]) -> dict[str, Option]:
    """The options of the tool, all of which the driver must know, with values of the right type."""
    tool = task.scenario.tool[0]
    for name, value in tool.options.items():
        if name not in known:
            there = f"it has: {', '.join(sorted(known))}" if known else "it has none"
            raise LabError(
                f"the driver {driver} has no option {name!r}",
                where=f"tool {tool.name}",
                hint=there,
                code=ExitCode.USAGE,
            )
        wanted = known[name]
        if not isinstance(value, wanted) or (wanted is not bool and isinstance(value, bool)):
            raise LabError(
                f"the option {name!r} of the driver {driver} takes a {wanted.__name__}, not {value!r}",
                where=f"tool {tool.name}",
                code=ExitCode.USAGE,
            )
    return dict(tool.options)


def flags_of(task: Task) -> list[str]:
    """Flags of the tool, as the scenario has them."""
    return list(task.scenario.tool[0].flags)


def environment_of(task: Task, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables that a tool of the field finds authorities and credentials by, and those of the scenario."""
    environment: dict[str, str] = {}
    if task.authority_directory is not None:
        environment["X509_CERT_DIR"] = str(task.authority_directory)
    if "proxy" in task.credentials:
        environment["X509_USER_PROXY"] = str(task.credentials["proxy"])
    if "token" in task.credentials:
        environment["BEARER_TOKEN_FILE"] = str(task.credentials["token"])
    return environment | dict(more or {}) | dict(task.scenario.tool[0].environment)


def authorization_file(task: Task) -> Path | None:
    """A file with the header field of the token, for tools that take fields from files: no token is in a command."""
    if (token := task.token) is None:
        return None
    path = task.scratch / f"authorization-{task.number}"
    path.touch(mode=0o600)
    path.write_text(f"Authorization: Bearer {token}\n")
    return path


def need_one_source(driver: str, task: Task) -> str:
    """The source of a tool that takes one."""
    if len(task.sources) != 1:
        raise LabError(f"takes one source, not {len(task.sources)}", where=f"driver {driver}", code=ExitCode.USAGE)
    return task.sources[0]


def is_url(place: str) -> bool:
    """Whether a source or target is no path of the host."""
    return re.match(r"^[a-z][a-z0-9+]*://", place) is not None


# --- Copies that are read afterwards ------------------------------------------------------------------------


def copied_then_read(task: Task, copy: Command) -> Command:
    """The command that copies with `copy`, then reads the part of the scenario from the copy. It prints JSON lines as
    the readers do, with the time of the copy in `copy_s`."""
    if task.scenario.work.kind != "copy_then_read":
        return copy
    argv = [sys.executable, str(HELPERS / "copy_then_read.py"), *read_options(task)]
    rate = task.scenario.work.target_rate_bytes_per_s
    if rate:
        argv += ["--disk-bytes-per-s", f"{rate:.0f}"]
    return Command((*argv, task.target, "--", *copy.argv), copy.environment, is_json_lines=True)


def read_options(task: Task) -> list[str]:
    """`[work.read]` as the options of the helpers."""
    read = task.scenario.work.read
    if read is None:
        raise LabError("has no [work.read]", where=f"scenario {task.scenario.name}", code=ExitCode.USAGE)
    options = [
        f"--pattern={read.pattern}",
        f"--fraction={read.fraction}",
        f"--event-bytes={read.event_bytes}",
        f"--mode={read.mode}",
        f"--vector-width={read.vector_width}",
        f"--segment-bytes={read.segment_bytes}",
        f"--size-bytes={task.size_bytes}",
        f"--seed={task.scenario.data.seed}/{task.number}",
    ]
    if read.trace is not None:
        options.append(f"--trace={trace_file(read.trace)}")
    elif read.pattern == "trace":
        raise LabError(
            "pattern = 'trace' needs [work.read] trace",
            where=f"scenario {task.scenario.name}",
            hint=f"there are: {', '.join(trace_names())}",
            code=ExitCode.USAGE,
        )
    if read.pattern == "branches":
        options += [f"--branch-fraction={read.branch_fraction}", f"--trigger-factor={read.trigger_factor}"]
    return options


# --- Output -------------------------------------------------------------------------------------------------


def text_of(path: Path, limit: int = 1_000_000) -> str:
    """The end of what a tool said; nothing where it said nothing."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - limit))
            return file.read().decode(errors="replace").replace("\0", "")
    except OSError:
        return ""


def message(text: str, pattern: str = r"error|fail|refused|denied|timed? ?out|unable|no such|not found") -> str | None:
    """The line of an output that tells why it failed: the last one that looks so, else the last one."""
    lines = [" ".join(line.split()) for line in text.replace("\r", "\n").splitlines()]
    lines = [line for line in lines if line]
    telling = [line for line in lines if re.search(pattern, line, re.I)]
    return (telling or lines)[-1][:_MESSAGE_MAX] if lines else None


# Fragments of messages, the more telling ones first, with whose fault it is and in which phase.
_CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"no space left|disk quota|file too large", "destination", "write"),
    (r"checksum|digest|integrity|adler32|crc32c", "source", "verify"),
    (r"(credential|proxy|certificate|token)\b.*\bexpired", "client", "authorise"),
    (r"certificate|ssl|tls|handshake", "network", "connect"),
    (r"could(n't| not) resolve|name or service not known|unknown host|getaddrinfo|resolution", "network", "resolve"),
    (
        r"connection refused|no route|network is unreachable|failed to connect|could not connect|connect error",
        "network",
        "connect",
    ),
    (r"timed? ?out|operation expired|timeout", "network", "transfer"),
    (
        r"reset by peer|broken pipe|connection closed|stream error|closed connection|eof|invalid session",
        "network",
        "transfer",
    ),
    (
        r"\b40[13]\b|not authori[sz]ed|unauthorized|permission denied|forbidden|auth failed|authentication",
        "source",
        "authorise",
    ),
    (r"\b404\b|no such file|file not found|does not exist|not found", "source", "open"),
    (r"already exists|\b412\b", "destination", "open"),
    (r"\b50[0-9]\b|internal server error|overloaded", "source", "transfer"),
)


def cause(text: str | None) -> tuple[str | None, str | None]:
    """Whose fault a failure is and in which phase, as far as words tell."""
    for pattern, scope, phase in _CAUSES:
        if text and re.search(pattern, text, re.I):
            return scope, phase
    return None, None


class Failure(TypedDict, total=False):
    """The fields of a `Reading` that tell of a failure, to be handed over as they are; none after a success."""

    error: str | None
    error_scope: str | None
    error_phase: str | None


def failure(output: Output, *texts: str) -> Failure:
    """What a tool said of its failure, in the first text that says something."""
    if output.exit_code == 0:
        return {}
    said = next((found for found in (message(text) for text in texts) if found), None)
    scope, phase = cause(said)
    return {"error": said or f"exit {output.exit_code}", "error_scope": scope, "error_phase": phase}
