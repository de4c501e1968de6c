"""Credentials: for real endpoints from where the programs of the field look for them, and at emulated sites those that
the lab makes. None of them is copied or shown."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

from gridlane_lab.identity import User
from gridlane_lab.scenario import Scenario, Work

# Of a credential that does not end during the transfers: so long after their time.
_SPARE_S = 43_200.0
# It is replaced after this part of its life, so that no transfer begins with one that is about to end.
_RENEWED_AFTER = 1 / 3


@dataclass(frozen=True)
class Term:
    """One credential of a run, in seconds from the beginning of the transfers."""

    begin_s: float
    end_s: float


def terms(work: Work) -> list[Term]:
    """Which credential a run has when, if the lab makes them. Pure."""
    if work.auth == "none":
        return []
    lifetime_s = work.credential_lifetime_s
    if not lifetime_s:
        return [Term(0.0, work.duration_s + _SPARE_S)]
    if not work.credential_renewed:
        return [Term(0.0, lifetime_s)]
    every_s = lifetime_s * _RENEWED_AFTER
    count = max(1, math.ceil(work.duration_s / every_s))
    return [Term(number * every_s, number * every_s + lifetime_s) for number in range(count)]


class Wallet:
    """The credentials of one run at emulated sites: a file with the one that counts, and those that replace it."""

    def __init__(self, user: User, work: Work, directory: Path) -> None:
        self._kind, self._directory = work.auth, directory
        self.terms = terms(work)
        directory.mkdir(mode=0o700)
        now_s = time.time()
        # Proxies end at whole seconds.
        self.ends_unix_s = math.ceil(now_s + self.terms[0].end_s)
        # The first one last: the transfers begin at once.
        for number, term in reversed(list(enumerate(self.terms))):
            user.write_proxy(self._later(number), math.ceil(now_s + term.end_s))
        self.use(0)

    def use(self, number: int) -> None:
        """Puts a credential in the place of the one before."""
        os.replace(self._later(number), self.files()[self._kind])

    def files(self) -> dict[str, Path]:
        """By kind, as drivers take them."""
        return {self._kind: self._directory / self._kind}

    def _later(self, number: int) -> Path:
        return self._directory / f"{self._kind}-{number}"


def find(scenario: Scenario) -> dict[str, Path]:
    """Files with what `[work] auth` asks for at real endpoints; none where it asks for nothing, or nothing is found."""
    kind = scenario.work.auth
    if kind == "none" or scenario.topology is not None:
        return {}
    found = [path for path in _places(kind) if path.is_file() and os.access(path, os.R_OK)]
    return {kind: found[-1]} if found else {}


def missing(scenario: Scenario) -> str:
    """Why a run has no credentials; empty when it has, needs none, or the lab makes them."""
    kind = scenario.work.auth
    if kind == "none" or scenario.topology is not None or find(scenario):
        return ""
    names = {"token": "BEARER_TOKEN_FILE", "proxy": "X509_USER_PROXY"}
    return f"no {kind} is there; name its file with {names[kind]}"


def _places(kind: str) -> list[Path]:
    """The most important last."""
    if kind == "token":
        named = os.environ.get("BEARER_TOKEN_FILE")
        usual = [Path(os.environ.get("XDG_RUNTIME_DIR", "/tmp")), Path("/tmp")]
        places = [directory / f"bt_u{os.getuid()}" for directory in reversed(usual)]
    else:
        named = os.environ.get("X509_USER_PROXY")
        places = [Path(f"/tmp/x509up_u{os.getuid()}")]
    return [*places, Path(named)] if named else places
