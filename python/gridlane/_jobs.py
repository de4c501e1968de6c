"""Jobs of the extension module in event loops.

A loop has a mailbox, whose descriptor it watches like a socket. When a job ends, the runtime leaves its number there; this
module, in the loop's own thread, makes the result. No other thread runs Python for it.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import Any, Callable, Optional

from . import _gridlane

Progress = Callable[[int, Optional[int]], Any]


class _Loop:
    """The jobs that one event loop waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.mailbox = _gridlane.Mailbox()
        self.waiting: dict[int, tuple[_gridlane.Job, asyncio.Future[Any], Optional[Progress]]] = {}
        self.next_number = 0
        loop.add_reader(self.mailbox.fileno(), self._take)

    def start(self, job: _gridlane.Job, future: asyncio.Future[Any], progress: Optional[Progress]) -> int:
        number = self.next_number
        self.next_number += 1
        self.waiting[number] = (job, future, progress)
        job.start(self.mailbox, number)
        return number

    def _take(self) -> None:
        for number in self.mailbox.take():
            if number not in self.waiting:
                continue
            job, future, progress = self.waiting[number]
            try:
                told = job.progress() if progress is not None else None
                if told is not None and progress is not None:
                    progress(*told)
                if not job.is_done():
                    continue
                del self.waiting[number]
                result = job.result()
            except BaseException as error:
                self.waiting.pop(number, None)
                job.cancel()
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()
# Loops do not survive a fork.
os.register_at_fork(after_in_child=_loops.clear)


async def finish(job: _gridlane.Job, progress: Optional[Progress] = None) -> Any:
    """Waits in the running event loop for the result of a job. One that is cancelled ends the job."""
    loop = asyncio.get_running_loop()
    waiting = _loops.get(loop)
    if waiting is None:
        try:
            waiting = _loops[loop] = _Loop(loop)
        except NotImplementedError:
            # A loop that watches no descriptors: a thread waits for it.
            return await loop.run_in_executor(None, job.wait, progress)
    future: asyncio.Future[Any] = loop.create_future()
    number = waiting.start(job, future, progress)
    try:
        return await future
    finally:
        waiting.waiting.pop(number, None)
        if future.cancelled():
            job.cancel()
