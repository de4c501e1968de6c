"""Credentials for real endpoints, from where the programs of the field look for them. Nothing is copied or shown."""

from __future__ import annotations

import os
from pathlib import Path

from gridlane_lab.scenario import Scenario


def find(scenario: Scenario) -> dict[str, Path]:
    """Files with what `[work] auth` asks for; none where it asks for nothing, or where nothing is found."""
    kind = scenario.work.auth
    if kind == "none" or scenario.topology is not None:
        return {}
    found = [path for path in _places(kind) if path.is_file() and os.access(path, os.R_OK)]
    return {kind: found[-1]} if found else {}


def missing(scenario: Scenario) -> str:
    """Why a run has no credentials; empty when it has, or needs none."""
    kind = scenario.work.auth
    if kind == "none" or find(scenario):
        return ""
    if scenario.topology is not None:
        return f"servers that the lab starts ask for no {kind}; use [[endpoint]] with a server that does"
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
