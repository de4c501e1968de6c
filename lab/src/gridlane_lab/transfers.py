"""Transfers of one run: started, timed and limited, alone or many at once, with what happens beside them.

A run has lanes. Each makes one transfer after the other; lanes work at the same time.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridlane_lab import agents
from gridlane_lab.agents import AgentError, Order, RemoteAgent
from gridlane_lab.driver import Command, Output, Task, ToolDriver
from gridlane_lab.errors import LabError
from gridlane_lab.scenario import Scenario
from gridlane_lab.shelf import Made

# Commands get these and what their drivers add: nothing of what a user has set.
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Job:
    """One transfer that is to be made."""

    number: int
    driver: ToolDriver
    scenario: Scenario
    task: Task
    agent: RemoteAgent
    source_sites: tuple[str, ...]
    target_site: str
    # What the target has to be afterwards, and where it is on this machine.
    original: Made
    local_target: Path | None
    # The directory of its own that the target is in.
    directory: Path | None
    raw: Path
    rate_bytes_per_s: float | None = None


@dataclass
class Attempt:
    """A transfer as it went."""

    job: Job
    queued_ns: int
    command: Command | None = None
    order: Order | None = None
    # Why it did not begin.
    error: str = ""
    answer: Mapping[str, Any] = field(default_factory=dict)

    @property
    def started_ns(self) -> int | None:
        """When its process was started."""
        if "started_ns" in self.answer:
            return int(self.answer["started_ns"])
        return int(self.order.begun["started_ns"]) if self.order and self.order.begun else None

    @property
    def closed_ns(self) -> int | None:
        """When its process had ended."""
        return int(self.answer["closed_ns"]) if "closed_ns" in self.answer else None

    @property
    def is_cut_off(self) -> bool:
        """Whether its limit ended it."""
        return bool(self.answer.get("cut_off"))

    def output(self) -> Output:
        """For the driver, after the end."""
        begun, closed = self.started_ns, self.closed_ns
        events = []
        for at, line in self.answer.get("events", []):
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                events.append((at, event))
        wall_s = (closed - begun) / 1e9 if begun is not None and closed is not None else 0.0
        return Output(
            int(self.answer.get("code", -1)), wall_s, self.job.raw / "stdout", self.job.raw / "stderr", events
        )

    def command_text(self) -> str:
        """As a shell takes it, without the token."""
        if self.command is None:
            return ""
        words = [f"{name}={value}" for name, value in sorted(self.command.environment.items())]
        text = shlex.join([*(["env", *words] if words else []), *self.command.argv])
        # Some tools take a token nowhere else.
        token = self.job.task.token
        return text.replace(token, "…") if token else text


@dataclass
class Lane:
    """Jobs one after the other, from `begins_s` on."""

    jobs: Iterator[Callable[[], Job]]
    begins_s: float = 0.0
    current: Attempt | None = None
    is_done: bool = False


@dataclass(order=True)
class Due:
    """Something to do at a moment of the run, besides the transfers."""

    at_s: float
    act: Callable[[float], None] = field(compare=False)
    # Again after so many seconds; 0: once.
    every_s: float = field(default=0.0, compare=False)


@dataclass
class Batch:
    """Runs lanes to their end."""

    lanes: Sequence[Lane]
    dues: list[Due]
    limit_s: float
    # No transfer begins later than this; 0: lanes come to their end.
    duration_s: float = 0.0
    # Called when a transfer has ended, while others run.
    ended: Callable[[Attempt], None] = lambda attempt: None
    # A lane waits so long after a failure.
    pause_s: float = 0.0
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def active(self) -> int:
        """Transfers that run now."""
        return sum(lane.current is not None for lane in self.lanes)

    def run(self) -> None:
        """Returns when all have ended."""
        began = time.monotonic()
        try:
            while not all(lane.is_done for lane in self.lanes):
                elapsed = time.monotonic() - began
                self._act(elapsed)
                for lane in self.lanes:
                    self._advance(lane, elapsed)
                self._wait(began)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends what runs."""
        for lane in self.lanes:
            attempt = lane.current
            if attempt is not None and attempt.order is not None and attempt.order.ended is None:
                try:
                    attempt.job.agent.order("kill", what=attempt.order.number)
                except AgentError:
                    pass

    def _act(self, elapsed_s: float) -> None:
        for due in sorted(self.dues):
            if due.at_s <= elapsed_s:
                due.act(elapsed_s)
                if due.every_s:
                    due.at_s += due.every_s
                else:
                    self.dues.remove(due)

    def _advance(self, lane: Lane, elapsed_s: float) -> None:
        if lane.is_done or elapsed_s < lane.begins_s:
            return
        if lane.current is not None:
            order = lane.current.order
            if order is None or order.ended is None:
                return
            lane.current.answer = order.ended
            if "error" in order.ended:
                lane.current.error = str(order.ended["error"])
            has_failed = bool(lane.current.error) or lane.current.answer.get("code") != 0
            self.ended(lane.current)
            lane.current = None
            if self._pauses(lane, has_failed, elapsed_s):
                return
        while lane.current is None:
            make = None if self.duration_s and elapsed_s >= self.duration_s else next(lane.jobs, None)
            if make is None:
                lane.is_done = True
                return
            lane.current = self._begin(make)
            if self._pauses(lane, lane.current is None, elapsed_s):
                return

    def _pauses(self, lane: Lane, has_failed: bool, elapsed_s: float) -> bool:
        """Whether the lane waits now: after a failure, and not beyond the time of the run."""
        if not has_failed or not self.pause_s:
            return False
        until_s = elapsed_s + self.pause_s
        lane.begins_s = min(until_s, self.duration_s) if self.duration_s else until_s
        return lane.begins_s > elapsed_s

    def _begin(self, make: Callable[[], Job]) -> Attempt | None:
        queued_ns = time.monotonic_ns()
        attempt = Attempt(make(), queued_ns)
        self.attempts.append(attempt)
        job = attempt.job
        try:
            attempt.command = job.driver.command(job.task)
        except LabError as error:
            attempt.error = str(error)
            self.ended(attempt)
            return None
        environment = {
            "PATH": _PATH,
            "HOME": str(job.task.scratch),
            "TMPDIR": str(job.task.scratch),
            "LANG": "C.UTF-8",
            **attempt.command.environment,
        }
        (job.raw / "command").write_text(attempt.command_text() + "\n")
        attempt.order = job.agent.order(
            "run",
            command=list(attempt.command.argv),
            environment=environment,
            limit_s=self.limit_s,
            stdout=str(job.raw / "stdout"),
            stderr=str(job.raw / "stderr"),
            json_lines=attempt.command.is_json_lines,
            watch=None if job.directory is None else str(job.directory),
            rate_bytes_per_s=job.rate_bytes_per_s,
        )
        return attempt

    def _wait(self, began: float) -> None:
        running = {
            id(lane.current.job.agent): lane.current.job.agent for lane in self.lanes if lane.current is not None
        }
        elapsed = time.monotonic() - began
        times = [due.at_s for due in self.dues]
        times += [lane.begins_s for lane in self.lanes if not lane.is_done and lane.begins_s > elapsed]
        if not running and not times:
            return
        wait_s = max(0.0, min(times) - elapsed) if times else None
        if all(lane.is_done for lane in self.lanes):
            return
        agents.pump_any(running.values(), wait_s)
