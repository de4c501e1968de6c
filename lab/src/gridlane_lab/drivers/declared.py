"""Tools that scenarios name and that do not exist yet. Their cells have the status `not available`."""

from __future__ import annotations

from gridlane_lab.driver import Capabilities
from gridlane_lab.registry import declare_tool
from gridlane_lab.scenario import Kind

_COPY_AND_READ: frozenset[Kind] = frozenset({"copy", "remote_read"})

# Name, kinds of work, sources at most, and why it is not there.
_DECLARED: tuple[tuple[str, frozenset[Kind], int, str], ...] = (
    ("gridlane-broker", frozenset({"job"}), 32, "gridlane has no transfer service yet"),
    ("gridlane-federation", _COPY_AND_READ, 32, "gridlane has no redirector yet"),
    ("gridlane-cache", _COPY_AND_READ, 1, "gridlane has no read cache yet"),
)

for _name, _kinds, _sources_max, _reason in _DECLARED:
    declare_tool(
        _name,
        Capabilities(
            protocols=frozenset({"http", "https", "root", "roots"}),
            kinds=_kinds,
            sources_max=_sources_max,
            streams_max=64,
            read_modes=frozenset({"single", "vector", "ahead", "lazy"}) if "remote_read" in _kinds else frozenset(),
            auth=frozenset({"none", "token", "proxy"}) if "job" in _kinds else frozenset({"none"}),
        ),
        _reason,
    )
