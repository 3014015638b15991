"""How tasks of asyncio wait for states and events: without threads, and without work while nothing arrives."""

from __future__ import annotations

import asyncio
import itertools
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast
from weakref import WeakKeyDictionary, ref

from freshline._native import Reactor, Waiter

if TYPE_CHECKING:
    from freshline._native import Event, State
    from freshline._types import Awaited


class _Loop:
    """The waiters of one event loop: a thread of the network makes one descriptor readable, and the loop polls them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.reactor = Reactor()
        self.numbers = itertools.count(1)
        self.futures: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self.reactor.fileno(), self._wake)

    def _wake(self) -> None:
        for number in self.reactor.take():
            future = self.futures.get(number)
            if future is not None and not future.done():
                future.set_result(None)


# By event loop. The loop holds its own entry as long as it reads the descriptor. A reference from here would keep the
# event loop alive, through the futures of tasks that never ended.
_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, ref[_Loop]] = WeakKeyDictionary()


def _loop_of(running: asyncio.AbstractEventLoop) -> _Loop:
    known = _loops.get(running)
    loop = known() if known is not None else None
    if loop is None:
        loop = _Loop(running)
        _loops[running] = ref(loop)
    return loop


async def receive(awaited: Awaited) -> State | Event | None:
    """The next state or event, or None at the end. It is safe to cancel: nothing is lost."""
    running = asyncio.get_running_loop()
    loop = _loop_of(running)
    number = next(loop.numbers)
    waiter = Waiter(awaited, loop.reactor, number)
    try:
        while True:
            is_done, item = waiter.poll()
            if is_done:
                return item
            # Only a signal: the item itself is taken above, without a pause in which a task could be cancelled.
            future = running.create_future()
            loop.futures[number] = future
            await future
    finally:
        loop.futures.pop(number, None)
        waiter.close()


class Pace:
    """Lets the other tasks of a loop run, although a reader always finds the next state: every millisecond."""

    EVERY = 0.001

    def __init__(self) -> None:
        self._ran_at = 0.0

    async def pause(self) -> None:
        """Gives way if that has not happened for a while. Nothing is taken yet, so a task that is cancelled here loses nothing."""
        time = asyncio.get_running_loop().time
        if time() - self._ran_at > self.EVERY:
            await asyncio.sleep(0)
            self._ran_at = time()


Item = TypeVar("Item")
"""A state or an event."""


class Reader(Generic[Item]):
    """The asynchronous half of a subscription or a queue of events."""

    if TYPE_CHECKING:

        def try_next(self) -> Item | None: ...

    @cached_property
    def _pace(self) -> Pace:
        return Pace()

    async def recv(self) -> Item | None:
        """Waits for the next one; None at the end. Any number of tasks may wait. It is safe to cancel: nothing is lost."""
        await self._pace.pause()
        item = self.try_next()
        if item is not None:
            return item
        return cast("Item | None", await receive(cast("Awaited", self)))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        item = await self.recv()
        if item is None:
            raise StopAsyncIteration
        return item


async def until(awaited: Awaited, timeout: float | None) -> bool:
    """Whether the end came within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await receive(awaited)
    except TimeoutError:
        return False
    return True
