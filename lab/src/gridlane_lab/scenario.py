"""Scenario files: what is compared, where, how often, and what is claimed of it. TOML, checked before anything starts.

One file holds an experiment in all its sizes. What stands at the top is common; `[size.smoke]`, `[size.quick]` and
`[size.paper]`, or `[size.full]` where no paper has it, are overlays of it, of which a run takes one. `extends` names
files whose content comes before, for sites, links and tools that several experiments share. Overlays and extensions
merge in one way (`merged`): tables key by key; arrays of tables with a `name` by that name; anything else replaces what
was there.

Values that differ from cell to cell are factors of `[matrix]`. A factor acts in one of three ways, and one that acts in
none is an error: `tool` chooses a `[[tool]]`; the name of a key of `[work]` sets this key; and any value in `[work]`,
`[topology]`, `[data]`, `[host]`, `[[server]]` or the options of a tool may be `{ factor = "NAME" }`.
`Scenario.resolve` gives the scenario of one cell, with no factor left in it: drivers and runners see only that.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator, model_validator

from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.units import parse_bytes, parse_rate

SCHEMA = 1
SIZES = ("smoke", "quick", "paper", "full")

Level = str | int | float | bool
Levels = dict[str, Level]
# Factor → level, or any of several levels. An empty pattern matches every cell.
Pattern = dict[str, Level | list[Level]]


class _Model(BaseModel):
    """Unknown keys are errors; values do not change after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def document(self, **options: Any) -> dict[str, Any]:
        """The model as a document; references to factors are no mistake in it."""
        return self.model_dump(by_alias=True, warnings=False, **options)


class FactorRef(_Model):
    """`{ factor = "NAME" }`: the level of this factor in the cell that runs."""

    factor: str


def _allow_reference(value: Any, validate: Any) -> Any:
    if isinstance(value, FactorRef):
        return value
    if isinstance(value, dict) and set(value) == {"factor"}:
        return FactorRef.model_validate(value)
    return validate(value)


_Reference = WrapValidator(_allow_reference)

# Types of values that a factor may give. In a resolved scenario they are what the annotation says.
Str = Annotated[str, _Reference]
Int = Annotated[int, Field(ge=0), _Reference]
Count = Annotated[int, Field(ge=1), _Reference]
Number = Annotated[float, Field(ge=0), _Reference]
Ratio = Annotated[float, Field(ge=0, le=1), _Reference]
Bytes = Annotated[int, Field(ge=0), BeforeValidator(lambda v: parse_bytes(v) if isinstance(v, str) else v), _Reference]
Rate = Annotated[float, Field(gt=0), BeforeValidator(lambda v: parse_rate(v) if isinstance(v, str) else v), _Reference]
Flag = Annotated[bool, _Reference]
Option = Annotated[str | int | float | bool | list[str], _Reference]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+/-]*$", max_length=60)]
HostName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=40)]

Kind = Literal[
    "copy", "upload", "tpc_pull", "tpc_push", "memory_copy", "remote_read", "copy_then_read", "raw_network", "job"
]
"""What a transfer does:

copy            from `sources` of the source sites to the target site, by a client there
upload          from the target site (where the client is) to the first source site
tpc_pull        between two servers, executed by the server at the target site
tpc_push        between two servers, executed by the server at the source site
memory_copy     `cp` or the like within the target site: what memory and file system allow
remote_read     reads a part of the file where it is, by `[work.read]`
copy_then_read  copies the whole file, then reads the same part of the copy
raw_network     no files: what the path carries, as iperf3 measures it
job             handed to a transfer service, which makes the transfers
"""


class Site(_Model):
    """A place with its own network: a namespace of the emulator, or a machine."""

    name: HostName
    role: Literal["origin", "client", "cache", "redirector", "transfer"] = "origin"
    # So many hosts behind one link, called NAME-1, NAME-2, … [work] names one of them, or the site: its transfers are
    # then spread over the hosts in turn, the first of a source to the first of the target.
    count: Count = 1
    # Where its files are. A slow disk is emulated by a rate.
    storage: Literal["tmpfs", "disk"] = "tmpfs"
    storage_rate_bytes_per_s: Number | None = None

    def hosts(self) -> list[str]:
        """The names of its hosts, as far as their number is known."""
        count = self.count if isinstance(self.count, int) else 1
        return [self.name] if count == 1 else [f"{self.name}-{number}" for number in range(1, count + 1)]


class Link(_Model):
    """A path between two nodes, as in docs/reference/wan-scenario.md, with units in the names."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    name: str | None = None
    # On the wire, framing included. None: unlimited.
    rate_bits_per_s: Rate | None = None
    # One way. Either this or the round trip, of which it is half.
    delay_ms: Number | None = None
    round_trip_ms: Number | None = None
    jitter_ms: Number = 0.0
    loss_ratio: Ratio = 0.0
    # Bytes on the wire that may wait, or one bandwidth-delay product.
    queue: Annotated[Literal["bdp"] | int, _Reference] = "bdp"
    # Other figures for what one end sends: {node: {key: value}}.
    sending: dict[str, dict[str, Annotated[float, _Reference]]] = {}

    @model_validator(mode="after")
    def _one_delay(self) -> Self:
        if self.delay_ms is not None and self.round_trip_ms is not None:
            raise ValueError("has both delay_ms and round_trip_ms; give one of them")
        return self

    @property
    def label(self) -> str:
        """The name, or the nodes joined by a hyphen."""
        return self.name or "-".join(self.between)

    @property
    def one_way_ms(self) -> float:
        """The delay in each direction."""
        if self.round_trip_ms is not None:
            return self.round_trip_ms / 2
        return self.delay_ms or 0.0


class Event(_Model):
    """A change of a link, or of a server of the run, so many seconds after the transfers of a cell began."""

    at_s: Number
    link: str | None = None
    sent_by: str | None = None
    rate_bits_per_s: Rate | None = None
    delay_ms: Number | None = None
    loss_ratio: Ratio | None = None
    down: bool | None = None
    restore: bool = False
    # The server of `[work]` at `site` is killed as a crash would, or started again.
    site: HostName | None = None
    server: Literal["kill", "start"] | None = None

    @model_validator(mode="after")
    def _one_thing(self) -> Self:
        if (self.link is None) == (self.site is None):
            raise ValueError("an event changes either a link or the server at a site; give one of `link` and `site`")
        if (self.site is None) != (self.server is None):
            raise ValueError('an event at a site needs server = "kill" or "start", and that needs a site')
        return self


def _host_names(sites: list[Site]) -> set[str]:
    """The names of all hosts, as far as their number is known."""
    return {name for site in sites for name in (site.name, *site.hosts())}


class Topology(_Model):
    """Emulated sites and the links between them."""

    backend: Literal["tun", "netem", "loopback"] = "tun"
    site: list[Site] = []
    link: list[Link] = []
    routers: list[HostName] = []
    event: list[Event] = []
    mtu_bytes: Count = 1500

    def site_of(self, place: str) -> Site | None:
        """The site that a place is, or of which it is a host."""
        return next((site for site in self.site if place in (site.name, *site.hosts())), None)

    @model_validator(mode="after")
    def _nodes_exist(self) -> Self:
        nodes = [*(site.name for site in self.site), *self.routers]
        for name in nodes:
            if nodes.count(name) > 1:
                raise ValueError(f"has two nodes called {name!r}; rename one")
        for link in self.link:
            for node in link.between:
                if node not in nodes:
                    raise ValueError(f"link {link.label!r} ends at {node!r}, which is no site and no router")
            if link.between[0] == link.between[1]:
                raise ValueError(f"link {link.label!r} begins and ends at the same node")
        labels = [link.label for link in self.link]
        for event in self.event:
            if event.site is not None and event.site not in _host_names(self.site):
                raise ValueError(f"an event at {event.site!r}, which is no site")
            if event.link is not None and event.link not in labels:
                raise ValueError(
                    f"an event changes link {event.link!r}, which is not there; links: {', '.join(labels)}"
                )
        return self


class Endpoint(_Model):
    """A real endpoint, in the place of an emulated site: `gridlane-lab init` puts files there, `clean` removes them."""

    name: HostName
    # One for each protocol that it speaks.
    urls: Annotated[list[str], Field(min_length=1)]
    # Of the path from there, as measured: for the bound and for the plan. None: no bound is drawn.
    rate_bits_per_s: Rate | None = None
    round_trip_ms: Number | None = None

    @model_validator(mode="after")
    def _urls(self) -> Self:
        for url in self.urls:
            if not re.match(r"^[a-z]+://[^/\s]+(/\S*)?$", url):
                raise ValueError(f"{url!r} is no URL of an endpoint; write scheme://host:port/prefix")
        return self

    def url(self, protocol: str) -> str | None:
        """The URL that speaks a protocol."""
        return next((url for url in self.urls if url.startswith(f"{protocol}://")), None)


class Host(_Model):
    """Settings of the hosts that take part."""

    congestion_control: Str | None = None
    # `bdp`: socket buffers that a path fills; `host`: those that users have.
    buffers: Annotated[Literal["bdp", "host"], _Reference] = "bdp"
    # Of servers' files, before each run.
    cache: Annotated[Literal["cold", "warm"], _Reference] = "warm"
    # A network for each run, instead of one for all runs with the same links.
    fresh_namespaces: bool = False


class File(_Model):
    """Files of one size. Content is incompressible and follows from the seed, the name and the number."""

    name: Name
    size_bytes: Bytes
    count: Count = 1
    # `random`: made here; `root`: a ROOT file that the lab merges to at least this size; `path`: the file at `path`.
    content: Literal["random", "root", "path"] = "random"
    path: str | None = None


class Data(_Model):
    """The files that transfers move."""

    seed: int = 1
    checksum: Literal["adler32", "md5", "sha256"] = "adler32"
    file: Annotated[list[File], Field(min_length=1)]


class Server(_Model):
    """A server that the lab starts at sites."""

    name: Name
    driver: str
    # None: at every site of the role `origin`.
    sites: list[HostName] | None = None
    flags: list[str] = []
    options: dict[str, Option] = {}


class Tool(_Model):
    """A way to make the transfers."""

    name: Name
    driver: str
    flags: list[str] = []
    options: dict[str, Option] = {}
    environment: dict[str, str] = {}
    # Cells with this tool exist only for these levels, beyond what the driver says that it can.
    only: Pattern = {}


class Read(_Model):
    """Which part of a file is read, and how."""

    fraction: Ratio = 1.0
    event_bytes: Bytes = 1_000_000
    pattern: Annotated[Literal["sequential", "random", "trace", "branches"], _Reference] = "sequential"
    # One read after the other; many ranges in a request; a read-ahead cache; whole segments on first touch.
    mode: Annotated[Literal["single", "vector", "ahead", "lazy"], _Reference] = "single"
    vector_width: Count = 1024
    segment_bytes: Bytes = 128_000_000
    # Of a tree: the part of the branches (by bytes), and every how many events all branches are read (0: never).
    branch_fraction: Ratio = 1.0
    trigger_factor: Int = 0
    trace: Str | None = None


class Work(_Model):
    """What one run of a cell does."""

    kind: Annotated[Kind, _Reference]
    protocol: Str = "https"
    # The name of a `[[server]]`, or `endpoint` where endpoints are real.
    server: Str = "endpoint"
    # The name of a `[[data.file]]`.
    file: Str
    # Where the bytes are, the nearest first, of which a run uses the first `sources`; or exactly one.
    source_sites: list[str] = []
    source_site: Str | None = None
    target_site: Str = "client"
    sources: Count = 1
    streams: Count = 1
    # Transfers at the same time, and how much later each begins.
    concurrency: Count = 1
    stagger_s: Number = 0.0
    # `both`: as many transfers again in the opposite direction, at the same time.
    direction: Annotated[Literal["one", "both"], _Reference] = "one"
    # Clients that do the same at the same time.
    clients: Count = 1
    # Where the bytes go.
    target: Annotated[Literal["null", "memory", "disk"], _Reference] = "memory"
    target_rate_bytes_per_s: Number | None = None
    # Transfers follow one another for this time. 0: each file once.
    duration_s: Number = 0.0
    # Other traffic on the same path, of this rate.
    competing_rate_bits_per_s: Number = 0.0
    # A failed transfer of a lane is followed by the next one so much later, as by the rules of transfer services.
    pause_after_failure_s: Number = 0.0
    # What clients show, and servers of emulated sites want.
    auth: Annotated[Literal["none", "token", "proxy"], _Reference] = "none"
    # At emulated sites: how long after the beginning of the transfers it ends (0: not before they have ended), and
    # whether it is replaced in time, as by a cron job of a site. Only with `duration_s`.
    credential_lifetime_s: Number = 0.0
    credential_renewed: Flag = True
    read: Read | None = None
    # A label for what differs in ways that no other key says.
    mode: Str = ""

    def expires(self) -> bool:
        """Whether the credential ends while transfers go on: some of them have to fail."""
        is_short = 0 < self.credential_lifetime_s < self.duration_s
        return self.auth != "none" and is_short and not self.credential_renewed

    def chosen_sources(self) -> list[str]:
        """The sites that a run takes bytes from."""
        return [self.source_site] if self.source_site is not None else self.source_sites[: self.sources]


class Limits(_Model):
    """When something is cut off or refused."""

    transfer_s: Annotated[float, Field(gt=0)] = 120.0
    total_s: Annotated[float, Field(gt=0)] = 3600.0
    memory_bytes: Bytes | None = None
    disk_bytes: Bytes | None = None


class Fewer(_Model):
    """Cells that run in the first blocks only, because nothing is claimed of them."""

    match: Pattern
    blocks: Annotated[int, Field(ge=1)]


class Matrix(_Model):
    """Factors with their levels, and the order of runs."""

    factors: dict[str, list[Level]] = {}
    exclude: list[Pattern] = []
    # Only cells that match one of these.
    only: list[Pattern] = []
    blocks: Annotated[int, Field(ge=1)] = 6
    warmup_blocks: Annotated[int, Field(ge=0)] = 0
    fewer: list[Fewer] = []
    # Factors that are dear to change: within a block, cells with the same levels of these follow one another.
    slow_factors: list[str] = []
    seed: int = 1


Response = Literal[
    "goodput_bits_per_s",
    "total_rate_bits_per_s",
    "wall_s",
    "transfer_s",
    "rate_variation",
    "connections",
    "wire_bytes_ratio",
    "events_per_s",
    "cpu_s_per_gb",
    "client_cpu_s_per_gb",
    "server_cpu_s_per_gb",
    "cpu_efficiency",
    "bound_fraction",
    "bytes_moved_ratio",
    "bytes_sent_ratio",
]
FigureKind = Literal[
    "box",
    "heat_map",
    "failures",
    "rate_rtt",
    "time_rtt",
    "time_fraction",
    "forest",
    "ratio_rtt",
    "qq",
    "hourly_area",
    "cumulative",
    "activity",
    "ecdf",
    "histogram",
    "phases",
    "errors",
    "sources",
]


class Figure(_Model):
    """A figure of the report. Which of x, series and panel a kind takes is written in `figures`."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    kind: FigureKind
    title: str
    response: Response | None = None
    x: str | None = None
    y: str | None = None
    series: str | list[str] | None = None
    panel: str | list[str] | None = None
    where: Pattern = {}
    log_x: bool | None = None
    log_y: bool = False
    # Lines drawn in beside bound and capacity: {text: value in the unit of the response}.
    lines: dict[str, float] = {}


class Claim(_Model):
    """A statement about rows that a run confirms or not. `claims` says how each kind is judged."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    statement: str
    kind: Literal["ratio", "difference", "median", "equivalent", "success", "bound_fraction", "never_above_capacity"]
    variant: Pattern = {}
    baseline: Pattern | None = None
    response: Response | None = None
    least: float | None = None
    most: float | None = None
    # What the paper has, as lowest and highest, for the page that puts both side by side.
    published: Annotated[list[float], Field(min_length=2, max_length=2)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind in ("ratio", "difference", "equivalent") and self.baseline is None:
            raise ValueError(f"a claim of the kind {self.kind!r} needs a baseline")
        if self.kind not in ("equivalent", "never_above_capacity") and self.least is None and self.most is None:
            raise ValueError("needs least or most: without them nothing is claimed")
        if self.kind == "equivalent" and not (self.most is not None and self.most > 1 and self.least is None):
            raise ValueError("an equivalence needs `most`: the largest ratio, above 1, that makes no difference")
        return self


class Analysis(_Model):
    """What is computed of the rows."""

    response: Response = "goodput_bits_per_s"
    # The variant that others are compared with.
    baseline: Pattern | None = None
    smallest_ratio_of_interest: Annotated[float, Field(gt=1)] = 1.05
    # Runs of which some transfers failed count with the bytes that were verified; otherwise they have no figure.
    count_partial: bool = False
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    bootstrap_seed: int = 1
    figure: list[Figure] = []
    claim: list[Claim] = []


class Scenario(_Model):
    """A scenario in one of its sizes."""

    schema_: Annotated[Literal[1], Field(alias="schema")]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    question: str
    published_figure: str | None = None
    tags: list[str] = []
    topology: Topology | None = None
    endpoint: list[Endpoint] = []
    host: Host = Host()
    data: Data
    server: list[Server] = []
    tool: Annotated[list[Tool], Field(min_length=1)]
    work: Work
    matrix: Matrix = Matrix()
    limits: Limits = Limits()
    analysis: Analysis = Analysis()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.topology is None) == (not self.endpoint):
            raise ValueError("needs either [topology] with emulated sites or [[endpoint]] with real ones")
        for what, things in (
            ("tool", self.tool),
            ("server", self.server),
            ("data.file", self.data.file),
            ("endpoint", self.endpoint),
            ("analysis.figure", self.analysis.figure),
            ("analysis.claim", self.analysis.claim),
        ):
            names = [thing.name for thing in things]
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"has two [[{what}]] called {name!r}; rename one")
        return self

    # --- Cells ------------------------------------------------------------------------------------------

    def places(self) -> list[str]:
        """The names of emulated sites, those of several hosts by host; or of endpoints."""
        if self.topology is None:
            return [endpoint.name for endpoint in self.endpoint]
        return [host for site in self.topology.site for host in site.hosts()]

    def hosts(self, place: str) -> list[str]:
        """The hosts that a place stands for: those of a site, or the one that it is."""
        sites = self.topology.site if self.topology is not None else []
        return next((site.hosts() for site in sites if site.name == place), [place])

    def references(self) -> set[str]:
        """The factors that some value of the scenario refers to."""
        found: set[str] = set()
        _collect_references(self.document(exclude={"matrix", "analysis"}), found)
        return found

    def resolve(self, levels: Mapping[str, Level]) -> Scenario:
        """The scenario of one cell: no references are left, and one tool. Levels that do not fit are errors."""
        document = self.document(exclude_unset=True)
        matrix, analysis = document.pop("matrix", {}), document.pop("analysis", {})
        document = _replace_references(document, levels)
        document["work"] |= {name: level for name, level in levels.items() if name in Work.model_fields}
        document["tool"] = [tool for tool in document["tool"] if tool["name"] == levels.get("tool", tool["name"])]
        try:
            return Scenario.model_validate(document | {"matrix": matrix, "analysis": analysis})
        except ValidationError as error:
            cell = ", ".join(f"{name}={level}" for name, level in levels.items())
            place, message = _first_error(error)
            raise LabError(
                f"{place}: {message}",
                where=f"scenario {self.name}, cell {cell}",
                hint="correct the levels in [matrix.factors]",
                code=ExitCode.USAGE,
            ) from None

    def file_of(self, name: str | None = None) -> File:
        """A `[[data.file]]` by name; without one, that of `[work]`."""
        wanted = self.work.file if name is None else name
        for file in self.data.file:
            if file.name == wanted:
                return file
        known = ", ".join(file.name for file in self.data.file)
        raise LabError(
            f"[work] file = {wanted!r} is no [[data.file]]",
            where=f"scenario {self.name}",
            hint=f"there are: {known}",
            code=ExitCode.USAGE,
        )

    def server_of(self) -> Server | None:
        """The `[[server]]` of `[work]`; none where endpoints are real, or where nothing serves."""
        return next((server for server in self.server if server.name == self.work.server), None)

    def server_sites(self, server: Server) -> list[str]:
        """The hosts where a server runs."""
        if self.topology is None:
            return []
        wanted = server.sites
        if wanted is None:
            wanted = [site.name for site in self.topology.site if site.role == "origin"]
        return [place for place in self.places() if place in wanted or place.rpartition("-")[0] in wanted]

    def network_key(self) -> str:
        """Equal for cells that can run one after the other in the same emulated network."""
        parts = {
            "topology": self.topology.document() if self.topology else None,
            "host": self.host.document(),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:12]

    def sha256(self) -> str:
        """Of the scenario in this size, whatever the layout of its files."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The scenario as a run directory keeps it."""
        return json.dumps(self.document(mode="json"), sort_keys=True, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """A scenario as `to_json` wrote it."""
        return cls.model_validate(json.loads(text))


# --- Reading --------------------------------------------------------------------------------------------


def load(path: Path | str, size: str = "quick") -> Scenario:
    """Reads a scenario file in one size. Errors name the file, the line where it can be told, the key and the cause."""
    path = Path(path)
    document, sources = _read(path, ())
    sizes = document.pop("size", {})
    if not isinstance(sizes, dict) or set(sizes) - set(SIZES):
        unknown = ", ".join(sorted(set(sizes) - set(SIZES))) if isinstance(sizes, dict) else repr(sizes)
        raise LabError(
            f"unknown size {unknown}",
            where=_place(sources, ("size",)),
            hint=f"sizes are {', '.join(SIZES)}",
            code=ExitCode.USAGE,
        )
    if size not in SIZES or (sizes and size not in sizes):
        raise LabError(
            f"has no size {size!r}",
            where=str(path),
            hint=f"it has: {', '.join(sizes) or ', '.join(SIZES)}",
            code=ExitCode.USAGE,
        )
    document = merged(document, sizes.get(size, {}))
    try:
        return Scenario.model_validate(document)
    except ValidationError as error:
        raise _reading_error(error, sources, size) from None


def merged(base: Any, over: Any) -> Any:
    """`over` laid over `base`: tables key by key, arrays of tables with names by name, anything else replaced."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: merged(base[key], value) if key in base else value for key, value in over.items()}
    if _is_named(base) and _is_named(over):
        by_name = {entry["name"]: entry for entry in base}
        for entry in over:
            by_name[entry["name"]] = merged(by_name.get(entry["name"], {}), entry)
        return list(by_name.values())
    return over


def _is_named(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "name" in entry for entry in value)
    )


def _read(path: Path, above: tuple[Path, ...]) -> tuple[dict[str, Any], list[tuple[Path, str]]]:
    """The document with all that it extends, and the texts that it was made of, the nearest first."""
    try:
        text = path.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except FileNotFoundError:
        raise LabError(
            "no such scenario file",
            where=str(path),
            hint="`gridlane-lab list` shows those that come along",
            code=ExitCode.NOT_FOUND,
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"cannot be read: {error}", where=str(path), code=ExitCode.NO_SPACE) from None
    except tomllib.TOMLDecodeError as error:
        raise LabError(f"is no TOML: {error}", where=str(path), code=ExitCode.USAGE) from None
    bases = document.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise LabError("extends is neither a file nor a list of files", where=str(path), code=ExitCode.USAGE)
    whole: dict[str, Any] = {}
    sources = [(path, text)]
    for base in bases:
        other = (path.parent / base).resolve()
        if other == path.resolve() or other in above:
            raise LabError(f"extends itself by way of {base}", where=str(path), code=ExitCode.USAGE)
        content, its_sources = _read(other, (*above, path.resolve()))
        whole = merged(whole, content)
        sources += its_sources
    return merged(whole, document), sources


def _reading_error(error: ValidationError, sources: list[tuple[Path, str]], size: str) -> LabError:
    first = error.errors()[0]
    location = tuple(part for part in first["loc"] if not _is_type_tag(part))
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    place, message = _first_error(error)
    hint = ""
    if first["type"] == "extra_forbidden":
        known = _known_keys(location[:-1])
        message, hint = f"unknown key {place}", f"known are: {', '.join(known)}" if known else ""
    elif first["type"] == "missing":
        message = f"the key {place} is missing"
    elif place:
        message = f"{place}: {message}"
    return LabError(message + more, where=_place(sources, location, size), hint=hint, code=ExitCode.USAGE)


def _first_error(error: ValidationError) -> tuple[str, str]:
    first = error.errors()[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] not in ("value_error", "missing", "extra_forbidden"):
        message = f"{message[:1].lower()}{message[1:]}, not {first['input']!r}"
    place = ""
    for part in first["loc"]:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not _is_type_tag(part):
            place += f".{part}" if place else str(part)
    return place, message


def _is_type_tag(part: Any) -> bool:
    """Pydantic names the member of a union in the location of an error; keys of scenarios never look like that."""
    return isinstance(part, str) and (part in ("str", "int", "float", "bool", "constrained-int") or "[" in part)


def _known_keys(location: tuple[Any, ...]) -> list[str]:
    """The keys of the table at this place."""
    model: Any = Scenario
    for part in location:
        if isinstance(part, int):
            continue
        field = next((f for name, f in model.model_fields.items() if (f.alias or name) == part), None)
        found = _model_within(field.annotation) if field else None
        if found is None:
            return []
        model = found
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _model_within(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in getattr(annotation, "__args__", ()):
        found = _model_within(inner)
        if found is not None:
            return found
    return None


def _place(sources: list[tuple[Path, str]], location: tuple[Any, ...], size: str = "") -> str:
    """The file, and the line where one of the files has this key."""
    for prefix in ((("size", size),) if size else ()) + ((),):
        for path, text in sources:
            line = line_of(text, (*prefix, *location))
            if line:
                return f"{path}:{line}"
    # A key that is missing has no line, but its table may have one.
    return _place(sources, location[:-1], size) if location else str(sources[0][0])


def line_of(text: str, location: Iterable[Any]) -> int | None:
    """The line of a key in a TOML text, from 1; keys within inline tables have the line of the outer key."""
    wanted = [str(part) for part in location]
    counts: dict[tuple[str, ...], int] = {}
    table: list[str] = []
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(#.*)?$", line)
        if header:
            table = _key_parts(header[2])
            expanded: list[str] = []
            for depth, part in enumerate(table):
                expanded.append(part)
                path = tuple(table[: depth + 1])
                if header[1] == "[[" and depth == len(table) - 1:
                    counts[path] = counts.get(path, -1) + 1
                if path in counts:
                    expanded.append(str(counts[path]))
            table = expanded
            here = table
        else:
            key = re.match(r"""\s*((?:"[^"]*"|'[^']*'|[A-Za-z0-9_.-])+)\s*=""", line)
            if not key:
                continue
            here = table + _key_parts(key[1])
        if here == wanted[: len(here)] and (best is None or len(here) > best[0]):
            best = (len(here), number)
    # Only a key that is there itself, or the key around its inline table.
    if best and best[0] >= min(len(wanted), max(1, len(wanted) - 3)) and best[0] > 0:
        return best[1]
    return None


def _key_parts(key: str) -> list[str]:
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", key)]


def _collect_references(value: Any, found: set[str]) -> None:
    if isinstance(value, dict):
        if set(value) == {"factor"} and isinstance(value["factor"], str):
            found.add(value["factor"])
        for inner in value.values():
            _collect_references(inner, found)
    elif isinstance(value, list):
        for inner in value:
            _collect_references(inner, found)


def _replace_references(value: Any, levels: Mapping[str, Level]) -> Any:
    if isinstance(value, dict):
        if set(value) == {"factor"} and value["factor"] in levels:
            return levels[value["factor"]]
        return {key: _replace_references(inner, levels) for key, inner in value.items()}
    if isinstance(value, list):
        return [_replace_references(inner, levels) for inner in value]
    return value
