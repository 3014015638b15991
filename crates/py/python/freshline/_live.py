"""Sources, monitors, and how their states reach a program: by a loop, a task, or a function."""

from __future__ import annotations

import atexit
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

from freshline import _native
from freshline._errors import ClosedError, UndeliveredError
from freshline._native import Event, State
from freshline._types import Report, Seconds
from freshline._waiting import Reader, receive, until

# Peers then need not wait for a timeout.
atexit.register(_native._close_all)


class Subscription(Reader[State], _native.Subscription):
    """Delivers the states of all topics that match a pattern, the current ones first.

    Use it as an iterator, as an asynchronous one, by `next` and `recv`, or by `try_next`. A slow reader receives the
    newest state of each topic and key, in turn; it slows down neither the network nor other readers. Records are never
    replaced: while a subscription has 1024 unread records, further ones stay at their sources, for other readers too.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()


class Events(Reader[Event], _native.Events):
    """The events of a source or a monitor, the oldest first.

    Use it as an iterator, as an asynchronous one, by `next` and `recv`, or by `try_next`.
    """


class Listener:
    """Calls a function with each state of a subscription, on a thread of its own, until it is closed.

    An exception of the function goes to `threading.excepthook`, and the next state is delivered.
    """

    def __init__(self, subscription: Subscription, callback: Callable[[State], object]) -> None:
        self.subscription = subscription
        self._callback = callback
        self._thread = threading.Thread(target=self._run, name="freshline listener", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while (state := self.subscription.next()) is not None:
                try:
                    self._callback(state)
                except Exception:
                    threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), self._thread)))
                # A record is acknowledged when it is no longer referenced.
                del state
        finally:
            # Also if the function ended this thread, by SystemExit.
            self.subscription.close()

    def close(self) -> None:
        """Stops the calls, and waits for the function to return, unless the function itself calls `close`."""
        self.subscription.close()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Endpoint:
    """The common part of sources and monitors."""

    if TYPE_CHECKING:

        @property
        def has_ended(self) -> bool: ...
        def stop(self) -> None: ...
        def close(self) -> Report | None: ...
        def subscribe(self, pattern: str) -> Subscription: ...

    @property
    def events(self) -> Events:
        """Its events; each goes to one reader."""
        return Events(cast("Source | Monitor", self))

    def listen(self, pattern: str, callback: Callable[[State], object]) -> Listener:
        """Calls `callback` with each state of the topics that match, on a thread of its own."""
        return Listener(self.subscribe(pattern), callback)

    async def aclose(self) -> Report | None:
        """`close` without blocking the event loop."""
        if not self.has_ended:
            self.stop()
            await receive(cast("Source | Monitor", self))
        return self.close()

    def __enter__(self) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self


class Monitor(_Endpoint, _native.Monitor):
    """A running monitor. It holds the freshest states of many sources until it is closed.

    It listens at `url`, such as "quic://0.0.0.0:3774", or "udp://127.0.0.1:0" for a free port.

    - `name`, `topics`, `law`: of the states that it sends to its sources; the name is "monitor" by default.
    - `max_ages`: maximum ages of topics by patterns, such as `{"robot/cmd": "200ms"}`; the first match applies. Older
      states are not delivered, and the events "stale" and "recovered" report topics without a younger one.
    - `max_sources` (10,000), `max_state` (8 MiB), `idle` (60 s): limits of sources, of the length of a state, and of silence.
    - `state_dir`, `identity`: where its self-signed certificate is kept, or the files of another one and of its key.
    - `credentials_file`, `tokens`, `client_ca_file`, `certified_names`: which sources it accepts (`quic://`).
    - `insecure`: allow `udp://` on addresses that other hosts can reach.
    """

    def subscribe(self, pattern: str) -> Subscription:
        """Subscribes to all topics whose full names match; `*` matches any characters."""
        return Subscription(self, pattern)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Source(_Endpoint, _native.Source):
    """A running source. It keeps the monitor at `url` fresh until it is closed.

    `topics` has names or `TopicParams`; without topics the source has one state, without a name. `law` decides when to
    send: "acp+d" (the default), "acp+", "acp", "tenth", "lazy", or a dictionary with settings. An unreachable monitor is
    not an error: the source tries again, and `events` reports it.

    - `max_rate`, `max_bandwidth`: maximum rate of states, and of bits with all headers from IP on.
    - `max_state`: maximum length of a state in bytes; 8 MiB by default.
    - `keep_alive`: interval of updates while no new state is put; 20 s by default.
    - `on_change`: skip states that are equal to the monitor's.
    - `pins`, `ca_file`: trust monitors with these fingerprints, or with certificates of this authority (`quic://`).
    - `identity`, `token`: the files of the certificate and of its key, and the token, to show to the monitor (`quic://`).
    - `via`, `scheduler`: interfaces or local addresses, each a path, and which path an update takes.
    - `receive`, `max_ages`: receive topics that the monitor sends, with maximum ages by patterns. The session opens with
      the first state that is put.
    """

    linger: Seconds = 1.0
    """How long leaving a `with` block waits for the last states and records to arrive, in s."""

    def subscribe(self, pattern: str) -> Subscription:
        """Subscribes to topics that the monitor sends, such as "monitor/cmd"; needs `receive` or `max_ages`.

        The session opens with the first state that the source puts.
        """
        return Subscription(self, pattern)

    @property
    def received_events(self) -> Events:
        """Events of the received topics, such as that all states of a topic are too old."""
        return Events(self, received=True)

    async def afinish(self, patience: Seconds) -> Report | None:
        """`finish` without blocking the event loop."""
        seconds = _native._seconds(patience)
        self.drain()
        is_over = await until(self, seconds)
        report = await self.aclose()
        if not is_over:
            raise UndeliveredError("the monitor did not acknowledge all states and records in time")
        return report

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self.has_ended:
                self.finish(self.linger)
        except (UndeliveredError, ClosedError):
            pass
        finally:
            self.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self.has_ended:
                self.drain()
                await until(self, _native._seconds(self.linger))
        finally:
            await self.aclose()
