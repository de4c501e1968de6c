"""The command `gridlane-lab`. Errors are one line; exit codes are those of `gridlane`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from gridlane_lab import __version__, analysis, claims, matrix, plan, record, registry, scenario, workspace
from gridlane_lab.driver import RunnerOptions
from gridlane_lab.drivers.common import gridlane_binary, gridlane_path
from gridlane_lab.errors import ExitCode, LabError
from gridlane_lab.matrix import Cell, Expansion
from gridlane_lab.progress import Meter
from gridlane_lab.record import Experiment, RunDirectory, Status
from gridlane_lab.scenario import Scenario
from gridlane_lab.units import bytes_text, seconds_text

# In a checkout, scenarios are beside the package's `src`.
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    if getattr(options, "gridlane", None) is not None:
        # Drivers of tools and servers look for the binary there.
        os.environ["GRIDLANE_LAB_BINARY"] = str(Path(options.gridlane).resolve())
    try:
        return command(options)
    except LabError as error:
        print(f"gridlane-lab: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("gridlane-lab: interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader has enough; Python would complain once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gridlane-lab",
        description="Runs the same transfer experiment for gridlane and its peers, keeps every result, and reports.",
        epilog="Exit codes are those of gridlane: 0 ok, 2 usage, 3 not found, 5 exists, 7 too long, 8 damaged, "
        "9 no space, 10 some failed, 11 in use, 130 interrupted, go on with --resume.",
    )
    parser.add_argument("--version", action="version", version=f"gridlane-lab {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], about: str) -> argparse.ArgumentParser:
        one = commands.add_parser(name, help=about, description=about[:1].upper() + about[1:] + ".")
        one.set_defaults(command=command)
        return one

    def takes_scenario(one: argparse.ArgumentParser, *, optional: bool = False) -> None:
        one.add_argument("file", type=Path, nargs="?" if optional else None, metavar="SCENARIO", help="a TOML file")
        one.add_argument("--size", choices=scenario.SIZES, default="quick", help="which size of it (default: quick)")
        one.add_argument(
            "--blocks", type=_positive, metavar="N", help="so many blocks at most, instead of those of the scenario"
        )
        one.add_argument(
            "--only", action="append", default=[], metavar="FACTOR=LEVEL[,LEVEL…]",
            help="only cells with these levels (repeatable: all have to be met)",
        )  # fmt: skip

    def takes_places(one: argparse.ArgumentParser) -> None:
        one.add_argument("--gridlane", type=Path, default=None, metavar="BINARY", help="the binary under test")
        one.add_argument(
            "--work", type=Path, default=Path("/dev/shm"), metavar="DIR",
            help="where files, targets and servers are (default: /dev/shm)",
        )  # fmt: skip

    one = add("list", _list, "the scenarios of a directory")
    one.add_argument("directory", type=Path, nargs="?", default=SCENARIOS)

    one = add("plan", _plan, "what a scenario would run: cells, time, bytes, memory; refuses what does not fit")
    takes_scenario(one)
    takes_places(one)
    one.add_argument("--json", action="store_true", help="one JSON object")
    one.add_argument("--cells", action="store_true", help="every cell, with its blocks and its bound")

    one = add("run", _run, "runs a scenario, keeps its rows in a directory, and makes the report")
    takes_scenario(one, optional=True)
    takes_places(one)
    # Tools and servers run in other directories.
    one.add_argument("--out", type=_absolute, required=True, metavar="DIR", help="the run directory")
    one.add_argument("--resume", action="store_true", help="go on with the run in --out after its last whole block")
    one.add_argument("--note", default="", help="kept with the results")
    one.add_argument("--anyway", action="store_true", help="run what the plan says does not fit, however long it takes")

    one = add("report", _report, "makes the report of a run again, from its tables alone")
    one.add_argument("directory", type=Path, metavar="DIR")
    one.add_argument("--markdown", action="store_true", help="print claims and cells as Markdown, and make no report")

    for name, command, about in (
        ("init", _init, "puts the files of a scenario at its real endpoints"),
        ("clean", _clean, "removes from real endpoints what init put there"),
    ):
        one = add(name, command, about)
        takes_scenario(one)
        one.add_argument("--gridlane", type=Path, default=None, metavar="BINARY", help="the binary that copies")

    one = add("query", _query, "asks the tables of a run in SQL: by DuckDB where it is installed, else by polars")
    one.add_argument("directory", type=Path, metavar="DIR")
    one.add_argument("sql", metavar="SQL", help="tables: " + ", ".join(record.TABLES))
    one.add_argument("--format", choices=("table", "csv", "json"), default="table")

    one = add("store", _store, "adds the tables of a complete run to a PostgreSQL database")
    one.add_argument("directory", type=Path, metavar="DIR")
    one.add_argument("--dsn", required=True, help="connection string, as psql takes it")
    return parser


# --- Commands -------------------------------------------------------------------------------------------


def _list(options: argparse.Namespace) -> int:
    # Those of papers first; below `own` are others.
    files = sorted(options.directory.glob("*.toml")) + sorted(options.directory.glob("own/*.toml"))
    if not files:
        raise LabError("holds no scenarios", where=str(options.directory), hint="give a directory with TOML files",
                       code=ExitCode.NOT_FOUND)  # fmt: skip
    for file in files:
        sizes = []
        shown: Scenario | None = None
        for size in scenario.SIZES:
            try:
                shown = scenario.load(file, size)
                sizes.append(size)
            except LabError as error:
                problem = error
        if shown is None:
            # Libraries that others extend are no scenarios.
            if "is missing" not in problem.what:
                print(f"{file.name}: {problem.what}", file=sys.stderr)
            continue
        print(f"{file.relative_to(options.directory)!s:28} {'/'.join(sizes):18} {shown.question}")
    return ExitCode.OK


def _plan(options: argparse.Namespace) -> int:
    whole, expansion = _expanded(options)
    estimate = plan.make(whole, expansion.cells)
    absent = _absent(whole)
    if options.json:
        facts = asdict(estimate) | {"scenario": whole.name, "size": options.size, "dropped": expansion.dropped,
                                    "not_available": absent}  # fmt: skip
        print(json.dumps(facts))
    else:
        _print_plan(whole, options.size, expansion, estimate, absent)
        if options.cells:
            for cell in expansion.cells:
                _print_cell(cell)
    plan.check(estimate, whole, workspace.disk_directory())
    return ExitCode.OK


def _run(options: argparse.Namespace) -> int:
    registry.load()
    directory: RunDirectory
    if options.resume:
        kept = record.RunDirectory.resume(
            options.out, None if options.file is None else _expanded(options)[0].to_json()
        )
        directory, whole = kept, Scenario.from_json(kept.scenario_json())
        cells: Sequence[Cell] = matrix.expand(whole, registry.capabilities(), is_part=True).cells
    else:
        if options.file is None:
            raise LabError("no scenario is given", where="run", hint="name a file, or go on with --resume",
                           code=ExitCode.USAGE)  # fmt: skip
        whole, expansion = _expanded(options)
        cells = expansion.cells
        estimate = plan.make(whole, cells)
        if not options.anyway:
            plan.check(estimate, whole, workspace.disk_directory())
        _print_plan(whole, options.size, expansion, estimate, _absent(whole))
        directory = RunDirectory.create(options.out, whole.to_json(), options.file.read_text())
    _exit_on_signals()
    with directory:
        failed, not_run = _run_blocks(options, whole, cells, directory)
    print(_write_report(options.out))
    _judge(options.out)
    if not_run:
        raise LabError(
            f"{not_run} runs did not begin: [limits] total_s = {whole.limits.total_s:g} was over",
            where=f"scenario {whole.name}",
            hint="they have the status `not run`; raise the limit, or run less",
            code=ExitCode.TIMEOUT,
        )
    return ExitCode.SOME_FAILED if failed else ExitCode.OK


def _run_blocks(
    options: argparse.Namespace, whole: Scenario, cells: Sequence[Cell], directory: RunDirectory
) -> tuple[bool, int]:
    """Runs the blocks that are missing, commits each, and writes the tables. Whether runs of gridlane failed, and how
    many runs did not begin for want of time."""
    experiment_id = _experiment_id(options, whole, directory)
    blocks = [turns for turns in matrix.schedule(whole, cells) if turns]
    # Of these it is the experiment that some transfers fail.
    expiring = {cell.key for cell in cells if cell.scenario.work.expires()}
    left = [turns for turns in blocks if turns[0].block not in directory.committed_blocks]
    meter = Meter(sys.stderr, left)
    total_s = None if options.anyway else whole.limits.total_s
    settings = RunnerOptions(gridlane=_gridlane(options), work=options.work, total_s=total_s)
    failed, not_run = False, 0
    try:
        with registry.runner()(whole, cells, directory, experiment_id, settings, meter.turn) as runner:
            for row in runner.environment():
                directory.append(row)
            directory.commit(None)
            for turns in left:
                for row in runner.run_block(turns):
                    directory.append(row)
                    if isinstance(row, record.Run):
                        meter.ended(is_success=row.status.is_success)
                        not_run += row.status is Status.NOT_RUN
                        bad = {Status.WRONG_BYTES, Status.VOID}
                        if row.cell_key not in expiring:
                            bad.add(Status.FAILED)
                        failed |= row.driver.startswith("gridlane") and row.status in bad
                directory.commit(turns[0].block)
                meter.block(turns[0].block)
    finally:
        meter.end()
    results = record.read_results(directory.path)
    for claim in claims.evaluate(whole, analysis.observations(results, whole), experiment_id):
        directory.append(claim)
    directory.commit(None)
    directory.finish()
    return failed, not_run


def _report(options: argparse.Namespace) -> int:
    if options.markdown:
        from gridlane_lab import markdown, report

        results = record.read_results(options.directory)
        print(markdown.tables(report.scenario_of(options.directory), results), end="")
    else:
        print(_write_report(options.directory))
    return ExitCode.OK


def _init(options: argparse.Namespace) -> int:
    from gridlane_lab import endpoint_files

    whole, expansion = _expanded(options)
    count = endpoint_files.place(whole, expansion.cells, _gridlane(options), print)
    print(f"{count} files uploaded")
    return ExitCode.OK


def _clean(options: argparse.Namespace) -> int:
    from gridlane_lab import endpoint_files

    whole, expansion = _expanded(options)
    count = endpoint_files.remove(whole, expansion.cells, _gridlane(options), print)
    print(f"{count} files removed")
    return ExitCode.OK


def _query(options: argparse.Namespace) -> int:
    from gridlane_lab import query

    print(query.run(options.directory, options.sql, options.format), end="")
    return ExitCode.OK


def _store(options: argparse.Namespace) -> int:
    from gridlane_lab import sink_postgres

    for table, rows in sink_postgres.store(record.read_results(options.directory), options.dsn).items():
        print(f"{table:14} {rows} rows added")
    return ExitCode.OK


# --- Parts ----------------------------------------------------------------------------------------------


def _expanded(options: argparse.Namespace) -> tuple[Scenario, Expansion]:
    """The scenario of the command line, and its cells."""
    registry.load()
    whole = scenario.load(options.file, options.size)
    changes: dict[str, Any] = {}
    if options.blocks:
        changes["blocks"] = options.blocks
    if options.only:
        factors = dict(whole.matrix.factors)
        factors.setdefault("tool", [tool.name for tool in whole.tool])
        for text in options.only:
            name, levels = _chosen_levels(text, factors)
            factors[name] = levels
        changes["factors"] = factors
    if changes:
        whole = whole.model_copy(update={"matrix": whole.matrix.model_copy(update=changes)})
    return whole, matrix.expand(whole, registry.capabilities(), is_part=bool(options.only))


def _chosen_levels(text: str, factors: dict[str, list[scenario.Level]]) -> tuple[str, list[scenario.Level]]:
    name, equals, wanted = text.partition("=")
    if not equals or name not in factors:
        raise LabError(f"--only {text} names no factor", hint=f"factors are: {', '.join(factors)}", code=ExitCode.USAGE)
    texts = {matrix.level_text(level): level for level in factors[name]}
    levels = []
    for level in wanted.split(","):
        if level not in texts:
            raise LabError(f"--only {text}: {name} has no level {level!r}", hint=f"levels are: {', '.join(texts)}",
                           code=ExitCode.USAGE)  # fmt: skip
        levels.append(texts[level])
    return name, levels


def _experiment_id(options: argparse.Namespace, whole: Scenario, directory: RunDirectory) -> str:
    """That of the run that is resumed, or a new one."""
    for row in record.read_rows(options.out / "rows.jsonl").rows:
        if isinstance(row, Experiment):
            return row.experiment_id
    commit, is_dirty = _git()
    row = Experiment(
        experiment_id=record.new_id(),
        scenario=whole.name,
        size=options.size,
        scenario_sha256=whole.sha256(),
        question=whole.question,
        seed=whole.matrix.seed,
        started_utc=record.utc_now(),
        lab_version=__version__,
        git_commit=commit,
        git_is_dirty=is_dirty,
        operator_note=options.note,
    )
    directory.append(row)
    directory.commit(None)
    return row.experiment_id


def _git() -> tuple[str | None, bool | None]:
    """The commit of the checkout that the lab runs from, and whether it was changed."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), None if status is None else bool(status)


def _gridlane(options: argparse.Namespace) -> Path:
    """The binary, absolute: as given, else as the drivers find it."""
    if options.gridlane is not None and not os.access(options.gridlane, os.X_OK):
        raise LabError("is no program", where=str(options.gridlane), hint="run `make build`, or give another",
                       code=ExitCode.NOT_FOUND)  # fmt: skip
    path = gridlane_path()
    if path is None:
        raise LabError(gridlane_binary().reason, hint="or give --gridlane", code=ExitCode.NOT_FOUND)
    return Path(path).resolve()


def _absent(whole: Scenario) -> dict[str, str]:
    """Tools and servers of a scenario that are not on this machine, and why."""
    known_servers = registry.servers()
    found = {tool.name: registry.tool(tool.driver).availability() for tool in whole.tool}
    found |= {
        server.name: known_servers[server.driver].availability()
        for server in whole.server
        if server.driver in known_servers
    }
    return {name: availability.reason for name, availability in found.items() if not availability.is_there}


def _print_plan(whole: Scenario, size: str, expansion: Expansion, estimate: plan.Plan, absent: dict[str, str]) -> None:
    blocks, warmup = whole.matrix.blocks, whole.matrix.warmup_blocks
    warming = f" after {warmup} of warm-up" if warmup else ""
    print(f"{whole.name} ({size}): {whole.question}")
    print(f"  {estimate.cells} cells, {blocks} blocks{warming}, {estimate.runs} runs"
          f" in {estimate.networks} networks, seed {whole.matrix.seed}")  # fmt: skip
    print(f"  about {seconds_text(estimate.time_s)}, {bytes_text(estimate.moved_bytes)} moved, "
          f"{bytes_text(estimate.memory_bytes)} of memory, {bytes_text(estimate.disk_bytes)} of disk")  # fmt: skip
    if estimate.assumed_cells:
        print(f"  of {estimate.assumed_cells} cells no bound is known: their time is assumed")
    if estimate.cut_cells:
        print(f"  {estimate.cut_cells} cells may be cut off after {seconds_text(whole.limits.transfer_s)}")
    for cause, count in sorted(expansion.dropped.items(), key=lambda item: -item[1]):
        print(f"  {count} combinations are no cells: {cause}")
    for name, reason in absent.items():
        print(f"  not available: {name}: {reason}")
    sys.stdout.flush()


def _print_cell(cell: Cell) -> None:
    seconds, is_assumed = plan.run_s(cell.scenario)
    print(f"  {cell.key}: {cell.blocks} blocks, about {seconds_text(seconds)}{' (assumed)' if is_assumed else ''}")


def _write_report(directory: Path) -> Path:
    # Drawing is the slow import; commands that draw nothing do without.
    from gridlane_lab import report

    return report.write(directory)


def _judge(directory: Path) -> None:
    """The claims, on the terminal."""
    for row in record.rows_of(record.read_results(directory)["claim"], record.ClaimRow):
        assert isinstance(row, record.ClaimRow)
        number = "" if row.estimate is None else f" {row.estimate:.4g}"
        interval = "" if row.low is None or row.high is None else f" [{row.low:.4g}, {row.high:.4g}]"
        because = f" ({row.reason})" if row.low is None and row.reason else ""
        print(f"{row.verdict:14} {row.claim}:{number}{interval} {row.statement}{because}")


def _exit_on_signals() -> None:
    """Makes termination an ordinary exit, so that whatever was made is removed."""

    def leave(number: int, _: object) -> NoReturn:
        raise LabError(f"ended by signal {number}", hint="go on with --resume", code=ExitCode.INTERRUPTED)

    # A shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
