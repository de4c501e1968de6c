"""Test files: made once for a run, kept until its end, and put without a second copy at all sites that serve them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from gridlane_lab import data, processes, record
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.scenario import File, Scenario

# Files that are dear to make are kept for the next run.
CACHE_VARIABLE = "XDG_CACHE_HOME"


class MissingProgramError(LabError):
    """A file cannot be made here for want of a program: its cells are `not available`."""


@dataclass(frozen=True)
class Made:
    """One file of `[[data.file]]`."""

    name: str
    path: Path
    size_bytes: int
    # By the algorithm of the scenario, as `ALGORITHM:HEX`.
    checksum: str
    # The lab compares by this one.
    sha256: str


class Shelf:
    """The files of one run, in memory and on disk as sites have them."""

    def __init__(self, memory: Path, disk: Path, digests: Path) -> None:
        self._directories = {"tmpfs": memory / "data", "disk": disk / "data"}
        for directory in self._directories.values():
            directory.mkdir(mode=0o755)
            directory.chmod(0o755)
        self._digests_path = digests
        self._made: dict[tuple[str, str], Made] = {}

    def need(self, scenario: Scenario, file: File, storage: str) -> list[Made]:
        """All files of a `[[data.file]]`, written if they are not there yet."""
        return [self._one(scenario, file, number, storage) for number in range(file.count)]

    def place(self, made: Made, export: Path) -> None:
        """Makes a file appear in what a site serves: the same bytes in memory, under one more name."""
        path = export / made.name
        if not path.exists():
            os.link(made.path, path)

    def _one(self, scenario: Scenario, file: File, number: int, storage: str) -> Made:
        size = file.size_bytes
        name = data.file_name(file.name, size, number)
        key = (storage, name)
        if key in self._made:
            return self._made[key]
        path = self._directories[storage] / name
        algorithm = scenario.data.checksum
        if file.content == "random":
            checksum = data.write(path, scenario.data.seed, file.name, number, size, algorithm).checksum
        else:
            shutil.copyfile(_source(file), path)
            checksum, size = data.checksum_of(path, algorithm), path.stat().st_size
        path.chmod(0o644)
        _make_old(path)
        made = Made(name, path, size, checksum, sha256_of(path))
        self._remember(made)
        self._made[key] = made
        return made

    def _remember(self, made: Made) -> None:
        """Keeps the digest with the run. A run that goes on has to make the same bytes."""
        known = json.loads(self._digests_path.read_text()) if self._digests_path.exists() else {}
        entry = {key: value for key, value in asdict(made).items() if key not in ("name", "path")}
        if known.setdefault(made.name, entry)["sha256"] != made.sha256:
            raise LabError(
                "is not what it was when the run began",
                where=made.name,
                hint="begin a new run",
                code=ExitCode.CHECKSUM,
            )
        record.write_whole(self._digests_path, (json.dumps(known, indent=1) + "\n").encode())


def sha256_of(path: Path) -> str:
    """As hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_old(path: Path) -> None:
    """Sets its time as if it had not changed for an hour, like most served files: `gridlane serve` copies a file that
    was changed within a minute before it sends it."""
    before = path.stat().st_mtime - 3600
    os.utime(path, (before, before))


def _source(file: File) -> Path:
    """The file that content which is not random comes from."""
    if file.path is None:
        raise LabError(
            f"content = {file.content!r} needs a path",
            where=f"[[data.file]] {file.name}",
            hint="name the file, or for `root` the file that is merged with itself",
            code=ExitCode.USAGE,
        )
    path = Path(file.path).expanduser()
    if not path.is_file():
        raise LabError("is no file", where=str(path), hint="correct [[data.file]] path", code=ExitCode.NOT_FOUND)
    return path if file.content == "path" else _merged(path, file.size_bytes)


def _merged(seed: Path, size_bytes: int) -> Path:
    """A ROOT file merged with itself until it has at least this size; kept in the user's cache."""
    hadd = processes.find("hadd")
    times = -(-size_bytes // seed.stat().st_size)
    cache = Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache") / "gridlane-lab" / "root"
    path = cache / f"{sha256_of(seed)[:16]}-{times}.root"
    if path.is_file():
        return path
    if hadd is None:
        raise MissingProgramError(
            "ROOT files are merged by hadd, which is not installed", hint="install ROOT's programs"
        )
    cache.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.root")
    done = subprocess.run(
        [hadd, "-f", str(temporary), *[str(seed)] * times],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode or not temporary.is_file():
        raise LabError(f"hadd failed: {done.stderr.strip()[-300:]}", where=str(seed))
    os.replace(temporary, path)
    return path
