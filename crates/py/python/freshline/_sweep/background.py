"""Work on a thread that does not keep the process from ending.

Native calls cannot be interrupted. On a daemon thread they leave the main thread free for Ctrl-C,
and end with the process. (`concurrent.futures` waits for its threads at exit.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

TICK_SECONDS = 0.1
"""Maximum time between two checks of signals and of the progress bar by the main thread."""


class _End(Generic[Result]):
    """A thread took its last task."""


def results(
    tasks: Iterable[Task],
    run: Callable[[Task], Result],
    threads: int,
    ahead: int,
    tick: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Run `tasks` on `threads` daemon threads, and yield their results as they come.

    `ahead` is the number of results that may queue before the threads pause. `tick` is called
    while there is nothing to yield. An exception of `run` ends the iteration. No further task
    starts after the iteration ends or is abandoned.
    """
    source = iter(tasks)
    lock = threading.Lock()
    stop = threading.Event()
    queue: Queue[Result | _End[Result] | BaseException] = Queue(ahead)

    def serve() -> None:
        try:
            while not stop.is_set():
                with lock:
                    task = next(source)
                put(run(task))
        except StopIteration:
            put(_End())
        except BaseException as error:
            put(error)

    def put(item: Result | _End[Result] | BaseException) -> None:
        while not stop.is_set():
            try:
                return queue.put(item, timeout=TICK_SECONDS)
            except Full:
                continue

    for _ in range(threads):
        threading.Thread(target=serve, name="freshline-sweep", daemon=True).start()
    serving = threads
    try:
        while serving:
            try:
                item = queue.get(timeout=TICK_SECONDS)
            except Empty:
                tick()
                continue
            if isinstance(item, _End):
                serving -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item
    finally:
        stop.set()
