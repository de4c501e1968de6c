"""From the factors of a scenario to the cells that run, and their order. Pure.

A cell is a combination of levels that means something: what `exclude` names, what is outside of `only`, and what a tool
cannot do by its driver's own word or by the scenario's, is no cell. A matrix is refused if a part of it can never run:
that is a mistake in the file, and the refusal says which part and why.

A cell whose tool is not installed is a cell all the same. Its rows have the status `not available`.

Blocks: each runs every cell once, in an order drawn from the recorded seed. Cells that share the levels of
`slow_factors` follow one another (a split plot): the order of these groups is random, and the order within each.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gridlane_lab.driver import Capabilities
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.scenario import Level, Levels, Pattern, Scenario, Work

# A matrix with more combinations is a mistake, and would take long to look through.
COMBINATIONS_MAX = 200_000


@dataclass(frozen=True)
class Cell:
    """One combination of levels, and the scenario that it makes."""

    levels: Levels = field(hash=False)
    scenario: Scenario = field(hash=False, repr=False)
    # It runs in the blocks 0 … blocks - 1.
    blocks: int
    key: str

    @property
    def tool(self) -> str:
        """The name of its `[[tool]]`."""
        return self.scenario.tool[0].name


@dataclass(frozen=True)
class Expansion:
    """The cells, and how many combinations are none, by cause."""

    cells: tuple[Cell, ...]
    factors: dict[str, list[Level]]
    dropped: dict[str, int]


@dataclass(frozen=True)
class Turn:
    """One cell in one block. Blocks below 0 are warm-up: they run, are kept, and count for nothing."""

    block: int
    order_in_block: int
    cell: Cell


def level_text(level: Level) -> str:
    """A level as keys, patterns and reports show it."""
    return (
        ("true" if level else "false")
        if isinstance(level, bool)
        else f"{level:g}"
        if isinstance(level, float)
        else str(level)
    )


def cell_key(levels: Mapping[str, Level]) -> str:
    """`protocol=https sources=3 tool=aria2c`: the same for the same levels, in whatever order."""
    return " ".join(f"{name}={level_text(levels[name])}" for name in sorted(levels))


def matches(pattern: Pattern, levels: Mapping[str, Level]) -> bool:
    """Whether a cell has the levels of a pattern."""
    for name, wanted in pattern.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if name not in levels or not any(_same(levels[name], level) for level in allowed):
            return False
    return True


def expand(scenario: Scenario, capabilities: Mapping[str, Capabilities], *, is_part: bool = False) -> Expansion:
    """The cells of a scenario. `capabilities` are those of tool drivers, by name of the driver.

    `is_part`: levels were left out on purpose, so that patterns may name what is not there.
    """
    factors = _factors(scenario)
    _check_names(scenario, factors)
    _check_drivers(scenario, capabilities)
    combinations = 1
    for of_factor in factors.values():
        combinations *= len(of_factor)
    if combinations > COMBINATIONS_MAX:
        raise _refusal(
            scenario,
            f"{combinations} combinations of levels, at most {COMBINATIONS_MAX}",
            "leave levels out, or make two scenarios",
        )
    cells: list[Cell] = []
    dropped: Counter[str] = Counter()
    causes: dict[tuple[str, str], Counter[str]] = {}
    for combination in itertools.product(*factors.values()):
        levels: Levels = dict(zip(factors, combination, strict=True))
        cause, resolved = _cause_against(scenario, levels, capabilities)
        if cause or resolved is None:
            dropped[cause] += 1
            for name, level in levels.items():
                causes.setdefault((name, level_text(level)), Counter())[cause] += 1
            continue
        blocks = min([scenario.matrix.blocks, *(f.blocks for f in scenario.matrix.fewer if matches(f.match, levels))])
        cells.append(Cell(levels, resolved, blocks, cell_key(levels)))
    if not cells:
        worst = "; ".join(f"{count} × {cause}" for cause, count in dropped.most_common(3))
        raise _refusal(
            scenario,
            f"no valid cell is left of {combinations} combinations: {worst}",
            "relax [matrix] exclude and only, or change the levels",
        )
    for name, all_levels in factors.items():
        for level in [] if is_part else all_levels:
            if not any(_same(cell.levels[name], level) for cell in cells):
                why = causes[name, level_text(level)].most_common(1)[0][0]
                raise _refusal(
                    scenario,
                    f"no valid cell has {name} = {level_text(level)}: {why}",
                    "remove the level, or what excludes it",
                )
    if not is_part:
        _check_patterns(scenario, factors, cells)
    return Expansion(tuple(cells), factors, dict(dropped))


def schedule(scenario: Scenario, cells: Sequence[Cell]) -> Iterator[list[Turn]]:
    """The blocks in order, warm-up first, with the cells of each in an order that follows from the seed."""
    matrix = scenario.matrix
    for block in range(-matrix.warmup_blocks, matrix.blocks):
        # An own generator for each block: a resumed run has the order that it would have had.
        draw = random.Random(f"{matrix.seed}/{block}")
        taking = [cell for cell in cells if block < cell.blocks]
        groups: dict[tuple[str, ...], list[Cell]] = {}
        for cell in taking:
            groups.setdefault(tuple(level_text(cell.levels[name]) for name in matrix.slow_factors), []).append(cell)
        order = list(groups.values())
        draw.shuffle(order)
        turns = []
        for group in order:
            draw.shuffle(group)
            turns += group
        yield [Turn(block, number, cell) for number, cell in enumerate(turns)]


def _factors(scenario: Scenario) -> dict[str, list[Level]]:
    """The factors of the file; `tool` is always one."""
    factors = dict(scenario.matrix.factors)
    factors.setdefault("tool", [tool.name for tool in scenario.tool])
    for name, levels in factors.items():
        if not levels:
            raise _refusal(scenario, f"the factor {name!r} has no levels", "give it one, or remove it")
        for text, count in Counter(map(level_text, levels)).items():
            if count > 1:
                raise _refusal(scenario, f"the factor {name!r} has the level {text} twice", "remove one")
    return factors


def _check_names(scenario: Scenario, factors: dict[str, list[Level]]) -> None:
    """Factors that would change nothing, and references to what is no factor."""
    references = scenario.references()
    for name in references - set(factors):
        raise _refusal(scenario, f"{{ factor = {name!r} }} refers to no factor", f"factors are: {', '.join(factors)}")
    for name in factors:
        if name != "tool" and name not in references and name not in Work.model_fields:
            raise _refusal(
                scenario,
                f"the factor {name!r} changes nothing: it is no key of [work], and nothing refers to it",
                f'refer to it with {{ factor = "{name}" }}, or name it after a key of [work]',
            )
    for name in scenario.matrix.slow_factors:
        if name not in factors:
            raise _refusal(
                scenario, f"slow_factors names {name!r}, which is no factor", f"factors are: {', '.join(factors)}"
            )
    tools = [tool.name for tool in scenario.tool]
    for level in factors["tool"]:
        if level not in tools:
            raise _refusal(
                scenario, f"the factor 'tool' has {level!r}, which is no [[tool]]", f"there are: {', '.join(tools)}"
            )


def _check_drivers(scenario: Scenario, capabilities: Mapping[str, Capabilities]) -> None:
    for tool in scenario.tool:
        if tool.driver not in capabilities:
            raise _refusal(
                scenario,
                f"the tool {tool.name!r} has the driver {tool.driver!r}, which does not exist",
                f"drivers are: {', '.join(sorted(capabilities))}",
            )


def _check_patterns(scenario: Scenario, factors: dict[str, list[Level]], cells: Sequence[Cell]) -> None:
    """Patterns that can match nothing are misspelt."""
    matrix, analysis = scenario.matrix, scenario.analysis
    named: list[tuple[str, Pattern, bool]] = [("[matrix] exclude", pattern, False) for pattern in matrix.exclude]
    named += [("[matrix] only", pattern, True) for pattern in matrix.only]
    named += [("[matrix] fewer", fewer.match, True) for fewer in matrix.fewer]
    named += [(f"only of the tool {tool.name!r}", tool.only, False) for tool in scenario.tool]
    named += [("[analysis] baseline", analysis.baseline or {}, True)]
    named += [(f"figure {figure.name!r}", figure.where, True) for figure in analysis.figure]
    for claim in analysis.claim:
        named += [(f"claim {claim.name!r}", claim.variant, True), (f"claim {claim.name!r}", claim.baseline or {}, True)]
    for where, pattern, must_match in named:
        for name, wanted in pattern.items():
            if name not in factors:
                raise _refusal(
                    scenario, f"{where} names {name!r}, which is no factor", f"factors are: {', '.join(factors)}"
                )
            for level in wanted if isinstance(wanted, list) else [wanted]:
                if not any(_same(level, known) for known in factors[name]):
                    raise _refusal(
                        scenario,
                        f"{where} has {name} = {level_text(level)}, which is no level",
                        f"levels are: {', '.join(map(level_text, factors[name]))}",
                    )
        if must_match and not any(matches(pattern, cell.levels) for cell in cells):
            raise _refusal(scenario, f"{where} matches no valid cell: {json.dumps(pattern)}", "correct the pattern")
    known = {*factors, "block", "source", "target", "path_round_trip_ms"}
    for figure in analysis.figure:
        lists = [wish if isinstance(wish, list) else [wish] for wish in (figure.series, figure.panel)]
        for name in (figure.x, figure.y, *lists[0], *lists[1]):
            if name is not None and name not in known:
                raise _refusal(
                    scenario,
                    f"figure {figure.name!r} names {name!r}, which is no factor",
                    f"factors are: {', '.join(factors)}",
                )


def _cause_against(
    scenario: Scenario,
    levels: Levels,
    capabilities: Mapping[str, Capabilities],
) -> tuple[str, Scenario | None]:
    """Why a combination is no cell, or what it resolves to."""
    matrix = scenario.matrix
    for pattern in matrix.exclude:
        if matches(pattern, levels):
            return f"excluded by {cell_key_of(pattern)}", None
    if matrix.only and not any(matches(pattern, levels) for pattern in matrix.only):
        return "not among [matrix] only", None
    tool = next(tool for tool in scenario.tool if tool.name == levels["tool"])
    for name, wanted in tool.only.items():
        if not matches({name: wanted}, levels):
            return f"the tool {tool.name} takes only {cell_key_of({name: wanted})}", None
    resolved = scenario.resolve(levels)
    cause = _cause_against_work(resolved) or capabilities[tool.driver].refusal(resolved)
    return (f"{tool.name}: {cause}" if cause else "", resolved)


def cell_key_of(pattern: Pattern) -> str:
    """A pattern as text."""
    parts = []
    for name, wanted in pattern.items():
        levels = wanted if isinstance(wanted, list) else [wanted]
        parts.append(f"{name}={'|'.join(map(level_text, levels))}")
    return " ".join(parts) or "everything"


def _cause_against_work(scenario: Scenario) -> str:
    """What no tool can do, or what the scenario does not have."""
    work, places = scenario.work, scenario.places()
    scenario.file_of()
    if work.auth != "none" and work.credential_lifetime_s and (not work.duration_s or scenario.topology is None):
        raise _refusal(
            scenario,
            "[work] credential_lifetime_s is about emulated sites, and transfers that follow one another for a time",
            "give [work] duration_s and [topology], or leave it out",
        )
    if work.kind == "memory_copy":
        return ""
    sources = work.chosen_sources()
    for place in [*sources, *work.source_sites, *([work.target_site] if scenario.topology else [])]:
        if not set(scenario.hosts(place)) <= set(places):
            raise _refusal(
                scenario, f"[work] names {place!r}, which is no site and no endpoint", f"there are: {', '.join(places)}"
            )
    if not sources:
        raise _refusal(scenario, "[work] has neither source_sites nor source_site", "say where the bytes are")
    if len(sources) < work.sources and work.source_site is None:
        return f"{work.sources} sources, and there are {len(work.source_sites)} source sites"
    if work.target_site in sources and scenario.topology and scenario.topology.backend != "loopback":
        return "source and target are the same site"
    if work.kind in ("remote_read", "copy_then_read") and work.read is None:
        raise _refusal(scenario, f"kind = {work.kind!r} needs [work.read]", "say which part of the file is read")
    if scenario.topology is None:
        for endpoint in scenario.endpoint:
            if endpoint.name in sources and endpoint.url(work.protocol) is None:
                return f"the endpoint {endpoint.name} does not speak {work.protocol}"
    elif work.kind not in ("raw_network", "job"):
        server = scenario.server_of()
        if server is None:
            known = ", ".join(server.name for server in scenario.server) or "none"
            raise _refusal(scenario, f"[work] server = {work.server!r} is no [[server]]", f"there are: {known}")
        at = scenario.server_sites(server)
        missing = [host for place in sources for host in scenario.hosts(place) if host not in at]
        if missing:
            return f"no server {server.name} at {', '.join(missing)}"
    return ""


def _same(one: Level, other: Level) -> bool:
    """TOML's 1 and 1.0 are the same level, true and 1 are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _refusal(scenario: Scenario, what: str, hint: str) -> LabError:
    return LabError(what, where=f"scenario {scenario.name}", hint=hint, code=ExitCode.USAGE)
