"""Tools that scenarios name and that do not exist yet. Their cells have the status `not available`."""

from __future__ import annotations

from gridlane_lab.driver import Capabilities
from gridlane_lab.registry import declare_tool

_ALL = frozenset({"http", "https", "root", "roots"})

declare_tool(
    "gridlane-read",
    Capabilities(
        protocols=_ALL,
        kinds=frozenset({"remote_read"}),
        sources_max=32,
        streams_max=64,
        read_modes=frozenset({"single", "vector", "ahead", "lazy"}),
    ),
    "gridlane has no remote reader yet",
)
declare_tool(
    "gridlane-broker",
    Capabilities(
        protocols=_ALL,
        kinds=frozenset({"job"}),
        sources_max=32,
        streams_max=64,
        auth=frozenset({"none", "token", "proxy"}),
    ),
    "gridlane has no transfer service yet",
)
declare_tool(
    "gridlane-federation",
    Capabilities(
        protocols=_ALL,
        kinds=frozenset({"copy", "remote_read"}),
        sources_max=32,
        streams_max=64,
        read_modes=frozenset({"single", "vector", "ahead", "lazy"}),
    ),
    "gridlane has no redirector yet",
)
declare_tool(
    "gridlane-cache",
    Capabilities(
        protocols=_ALL,
        kinds=frozenset({"copy", "remote_read"}),
        streams_max=64,
        read_modes=frozenset({"single", "vector", "ahead", "lazy"}),
    ),
    "gridlane has no read cache yet",
)
