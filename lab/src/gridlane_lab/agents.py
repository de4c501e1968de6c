"""The other end of `agent`: orders to a place where commands run, several at a time, and their answers.

Of the standard library only: `bench/` uses it as well.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gridlane_lab import processes

# How long an agent may take for what is no run.
PATIENCE_S = 30.0


@dataclass
class Order:
    """Something that an agent was told to do, and its answers so far."""

    number: int
    begun: Mapping[str, Any] | None = None
    ended: Mapping[str, Any] | None = None
    more: dict[str, Any] = field(default_factory=dict)


class AgentError(Exception):
    """The agent is gone, or could not do it."""


class RemoteAgent:
    """An agent at a place. `at` makes the command that runs there of a command."""

    def __init__(
        self, at: Callable[[Sequence[str]], list[str]], name: str = "this host", directory: Path | None = None
    ) -> None:
        self.name = name
        self._orders: dict[int, Order] = {}
        self._count = 0
        self._buffer = b""
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.set_inheritable(True)
            program = Path(__file__).with_name("agent.py")
            environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
            self.process = processes.start(
                at([sys.executable, "-I", "-S", str(program), str(theirs.fileno())]),
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd=directory,
            )
        self.channel = ours

    def order(self, op: str, **fields: Any) -> Order:
        """Tells it to do something, and returns at once."""
        self._count += 1
        order = Order(self._count)
        self._orders[order.number] = order
        line = json.dumps({"id": order.number, "op": op, **fields}) + "\n"
        try:
            self.channel.sendall(line.encode())
        except OSError as error:
            raise AgentError(f"the agent at {self.name} is gone: {error}") from None
        return order

    def ask(self, op: str, patience_s: float = PATIENCE_S, **fields: Any) -> Mapping[str, Any]:
        """Tells it to do something, and waits for the answer."""
        return self.end_of(self.order(op, **fields), patience_s)

    def begin_of(self, order: Order, patience_s: float = PATIENCE_S) -> Mapping[str, Any]:
        """The first answer."""
        self._wait(lambda: order.begun is not None or order.ended is not None, patience_s)
        if order.begun is None:
            assert order.ended is not None
            raise AgentError(str(order.ended.get("error", "ended before it began")))
        return order.begun

    def end_of(self, order: Order, patience_s: float = PATIENCE_S) -> Mapping[str, Any]:
        """The last answer."""
        self._wait(lambda: order.ended is not None, patience_s)
        assert order.ended is not None
        return order.ended

    def pump(self) -> None:
        """Takes what has been answered; does not wait."""
        while select.select([self.channel], [], [], 0)[0]:
            try:
                got = self.channel.recv(1 << 16)
            except OSError:
                got = b""
            if not got:
                raise AgentError(f"the agent at {self.name} has ended")
            self._buffer += got
            *lines, self._buffer = self._buffer.split(b"\n")
            for line in lines:
                answer = json.loads(line)
                order = self._orders.get(answer.pop("id"))
                if order is None:
                    continue
                if answer.pop("event") == "begun":
                    order.begun = answer
                else:
                    order.ended = answer
                    del self._orders[order.number]

    def close(self) -> None:
        """Ends it with everything that it has started."""
        self.channel.close()
        processes.end(self.process)

    def _wait(self, is_there: Callable[[], bool], patience_s: float) -> None:
        limit = time.monotonic() + patience_s
        while not is_there():
            left = limit - time.monotonic()
            if left <= 0:
                raise AgentError(f"the agent at {self.name} does not answer")
            select.select([self.channel], [], [], left)
            self.pump()


def pump_any(agents: Iterable[RemoteAgent], wait_s: float | None) -> None:
    """Waits until one of them answers, or for so long, and takes what there is."""
    by_channel = {agent.channel: agent for agent in agents}
    for channel in select.select(list(by_channel), [], [], wait_s)[0]:
        by_channel[channel].pump()
