"""What is done and what is left, and for how long: one line on a terminal, elsewhere a line for each block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from gridlane_lab import plan
from gridlane_lab.matrix import Turn
from gridlane_lab.units import seconds_text


class Meter:
    """Counts turns by what the plan expects of them, so that long cells count as long ones."""

    def __init__(self, out: TextIO, blocks: list[list[Turn]], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._out, self._clock = out, clock
        self._is_terminal = out.isatty()
        self._weights: dict[str, float] = {}
        for turns in blocks:
            for turn in turns:
                if turn.cell.key not in self._weights:
                    self._weights[turn.cell.key] = plan.RUN_S + plan.limited_s(turn.cell.scenario)
        self._whole = sum(self._weights[turn.cell.key] for turns in blocks for turn in turns)
        self._blocks = len(blocks)
        self._done = self._current = 0.0
        self._block = 0
        self._failed = 0
        self._began = clock()

    @property
    def share(self) -> float:
        """The part that is done, 0 to 1."""
        return self._done / self._whole if self._whole else 1.0

    def eta_s(self) -> float | None:
        """Time until the end at the pace so far; None before anything is done."""
        return None if not self._done else (self._clock() - self._began) * (1 - self.share) / self.share

    def turn(self, turn: Turn, phase: str) -> None:
        """The runner says what it does now."""
        self._current = self._weights.get(turn.cell.key, plan.RUN_S)
        if self._is_terminal:
            self._line(f"{turn.cell.key}: {phase}")

    def ended(self, *, is_success: bool) -> None:
        """A run has its row."""
        self._done += self._current
        self._current = 0.0
        self._failed += not is_success

    def block(self, number: int) -> None:
        """A block was committed."""
        self._block += 1
        name = f"block {number}" if number >= 0 else "warm-up"
        if self._is_terminal:
            self._line(f"{name} done")
        else:
            self._out.write(f"{self._head()}  {name} done\n")
            self._out.flush()

    def end(self) -> None:
        """Leaves the terminal in order."""
        if self._is_terminal:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _head(self) -> str:
        eta = self.eta_s()
        left = "" if eta is None or self.share >= 1 else f", {seconds_text(eta)} left"
        failed = f", {self._failed} without a figure" if self._failed else ""
        return f"{100 * self.share:3.0f} %  {self._block} of {self._blocks} blocks{failed}{left}"

    def _line(self, text: str) -> None:
        line = f"{self._head()}  {text}"
        self._out.write(f"\r\x1b[K{line[:118]}")
        self._out.flush()
