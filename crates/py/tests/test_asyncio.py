"""Sources and monitors in tasks of asyncio: waiting, cancelling, ending, and leaks."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from support import GUARD, descriptors, pair, python, until

from freshline import Events, Monitor, Source, State, Subscription, TopicParams, UndeliveredError
from freshline import _native, _waiting

pytestmark = pytest.mark.real_time

EVERY = TopicParams("log", kind="every")


def run(task: Coroutine[Any, Any, None]) -> None:
    """`asyncio.run`, with a limit of time."""

    async def guarded() -> None:
        async with asyncio.timeout(2 * GUARD):
            await task

    asyncio.run(guarded())


def known_loops() -> list[_waiting._Loop]:
    """The loops that the package still knows."""
    gc.collect()
    return [loop for known in list(_waiting._loops.values()) if (loop := known()) is not None]


def objects() -> dict[str, int]:
    """The numbers of those objects of the package that tasks make."""
    gc.collect()
    kinds = (Subscription, Events, Monitor, Source, _waiting._Loop)
    return {kind.__name__: sum(type(one) is kind for one in gc.get_objects()) for kind in kinds}


def test_a_task_iterates_over_states_until_the_monitor_closes() -> None:
    async def main() -> None:
        async with Monitor("udp://127.0.0.1:0") as monitor:
            async with Source(monitor.url, name="robot", topics=[EVERY]) as source:
                for number in range(100):
                    source.topic("log").push(str(number))
                texts = []
                async for state in monitor.subscribe("*"):
                    texts.append(state.text())
                    if len(texts) == 100:
                        break
                assert texts == [str(number) for number in range(100)]
                del state
            asyncio.get_running_loop().call_later(0.05, monitor.stop)
            assert [state async for state in monitor.subscribe("*")] == []

    run(main())


def test_the_end_of_an_async_with_block_delivers_the_last_state() -> None:
    async def main() -> None:
        async with Monitor("udp://127.0.0.1:0") as monitor:
            async with Source(monitor.url, name="robot") as source:
                source.put("last")
            assert source.has_ended
            kinds = []
            async for event in monitor.events:
                kinds.append((event.kind, event.source, event.why))
                if event.kind == "gone":
                    break
            assert kinds == [("opened", "robot", None), ("gone", "robot", "closed")]

    run(main())


def test_recv_gives_none_after_the_end() -> None:
    async def main() -> None:
        monitor = Monitor("udp://127.0.0.1:0")
        states, events = monitor.subscribe("*"), monitor.events
        report = await monitor.aclose()
        assert report is not None and report["sources_open"] == 0
        assert await monitor.aclose() is None
        for _ in range(2):
            assert await states.recv() is None
            assert await events.recv() is None
        assert [state async for state in states] == []

    run(main())


def test_afinish_reports_or_raises() -> None:
    async def main() -> None:
        async with Monitor("udp://127.0.0.1:0") as monitor:
            source = Source(monitor.url, name="robot")
            source.put("x")
            report = await source.afinish(GUARD)
            assert report is not None and report["acked"] >= 1
        lost = Source("udp://127.0.0.1:9")
        lost.put("x")
        with pytest.raises(UndeliveredError):
            await lost.afinish(0.05)
        assert lost.has_ended

    run(main())


def test_a_timeout_ends_a_wait_and_loses_nothing() -> None:
    async def main() -> None:
        with pair() as (monitor, source):
            states = monitor.subscribe("*")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await states.recv()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(monitor.subscribe("none").recv(), 0.05)
            source.put("x")
            state = await states.recv()
            assert state is not None and state.text() == "x"

    run(main())


@pytest.mark.parametrize("seed", range(3))
def test_tasks_that_are_cancelled_at_any_moment_lose_no_record(seed: int) -> None:
    dice = random.Random(seed)
    count = 3000

    async def main() -> None:
        with pair([EVERY]) as (monitor, source):
            states = monitor.subscribe("robot/log")
            got: list[int] = []

            async def take() -> None:
                state = await states.recv()
                assert state is not None
                got.append(int(state.text()))

            def push() -> None:
                for number in range(count):
                    source.topic("log").push(str(number))
                    if number % 20 == 0:
                        time.sleep(dice.random() / 500)

            pushing = threading.Thread(target=push)
            pushing.start()
            while len(got) < count:
                tasks = [asyncio.ensure_future(take()) for _ in range(dice.randrange(1, 5))]
                await asyncio.sleep(dice.choice([0, 0, dice.random() / 1000]))
                for task in tasks:
                    if dice.random() < 0.7:
                        task.cancel()
                    else:
                        # The timeout falls at the moment at which it may just be done.
                        asyncio.get_running_loop().call_later(dice.random() / 1000, task.cancel)
                await asyncio.gather(*tasks, return_exceptions=True)
            pushing.join()
            assert sorted(got) == list(range(count)), "each once"
            report = await source.afinish(GUARD)
            assert report is not None and report["topics"][0]["records"]["done"] == count

    run(main())


def test_a_task_that_was_woken_and_cancelled_leaves_the_state_to_another() -> None:
    async def main() -> None:
        with pair([EVERY]) as (monitor, source):
            states = monitor.subscribe("*")
            for number in range(100):
                first = asyncio.ensure_future(states.recv())
                second = asyncio.ensure_future(states.recv())
                await asyncio.sleep(0)
                source.topic("log").push(str(number))
                # No turn of the loop happens between the arrival and this.
                until(lambda: monitor.sources())
                time.sleep(0.001)
                first.cancel()
                done = await asyncio.gather(first, second, return_exceptions=True)
                states_of = [one for one in done if isinstance(one, State)]
                assert [one.text() for one in states_of] == [str(number)]

    run(main())


def test_a_thousand_subscriptions_are_each_awaited_by_a_task() -> None:
    count = 1000

    async def main() -> None:
        topics: list[str | TopicParams] = [f"t{number}" for number in range(100)]
        with pair(topics) as (monitor, source):
            subscriptions = [monitor.subscribe(f"robot/t{number % 100}") for number in range(count)]
            before = descriptors()
            tasks = [asyncio.ensure_future(states.recv()) for states in subscriptions]
            await asyncio.sleep(0)
            assert descriptors() - before <= 1, "one descriptor for all tasks of a loop"
            for number in range(100):
                source.topic(f"t{number}").put(str(number))
            received = await asyncio.gather(*tasks)
            assert [state.text() for state in received] == [str(number % 100) for number in range(count)]
            assert not known_loops()[0].futures

    run(main())


def test_a_thousand_tasks_on_one_subscription_receive_a_record_each() -> None:
    count = 1000

    async def main() -> None:
        with pair([EVERY]) as (monitor, source):
            states = monitor.subscribe("*")
            tasks = [asyncio.ensure_future(states.recv()) for _ in range(count)]
            await asyncio.sleep(0)
            for number in range(count):
                source.topic("log").push(str(number))
            received = await asyncio.gather(*tasks)
            assert sorted(int(state.text()) for state in received if state) == list(range(count))

    run(main())


@pytest.mark.parametrize("closed", ["subscription", "monitor", "stop"])
def test_closing_ends_all_tasks_that_wait(closed: str) -> None:
    async def main() -> None:
        monitor = Monitor("udp://127.0.0.1:0")
        states, events = monitor.subscribe("*"), monitor.events
        tasks: list[Any] = [asyncio.ensure_future(states.recv()) for _ in range(20)]
        if closed != "subscription":
            tasks += [asyncio.ensure_future(events.recv()) for _ in range(20)]
            tasks += [asyncio.ensure_future(_waiting.until(monitor, None)) for _ in range(20)]
        await asyncio.sleep(0.01)
        {"subscription": states.close, "monitor": monitor.close, "stop": monitor.stop}[closed]()
        assert set(await asyncio.gather(*tasks)) <= {None, True}
        await monitor.aclose()

    run(main())


def test_closing_from_another_thread_ends_a_task() -> None:
    async def main() -> None:
        monitor = Monitor("udp://127.0.0.1:0")
        threading.Timer(0.05, monitor.close).start()
        assert await monitor.subscribe("*").recv() is None

    run(main())


def test_threads_and_tasks_share_a_subscription() -> None:
    count = 1000

    async def main() -> None:
        with pair([EVERY]) as (monitor, source):
            states = monitor.subscribe("*")
            got: list[str] = []

            def read() -> None:
                for state in states:
                    got.append(state.text())

            async def receive() -> None:
                async for state in states:
                    got.append(state.text())

            readers = [threading.Thread(target=read) for _ in range(2)]
            tasks = [asyncio.ensure_future(receive()) for _ in range(2)]
            for reader in readers:
                reader.start()
            for number in range(count):
                source.topic("log").push(str(number))
                if number % 10 == 0:
                    await asyncio.sleep(0)
            while len(got) < count:
                await asyncio.sleep(0.01)
            states.close()
            await asyncio.gather(*tasks)
            for reader in readers:
                reader.join(GUARD)
            assert sorted(got, key=int) == [str(number) for number in range(count)]

    run(main())


def test_loops_in_several_threads_work_at_the_same_time() -> None:
    with pair(["pose"]) as (monitor, source):
        seen: list[str] = []

        async def main() -> None:
            async with asyncio.timeout(GUARD):
                async for state in monitor.subscribe("*"):
                    if state.text() == "last":
                        seen.append("last")
                        return

        readers = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(5)]
        for reader in readers:
            reader.start()
        for number in range(50):
            source.topic("pose").put(str(number))
            time.sleep(0.001)
        source.topic("pose").put("last")
        for reader in readers:
            reader.join(GUARD)
        assert seen == ["last"] * 5


def test_a_subscription_outlives_the_loop_that_awaited_it() -> None:
    with pair(["pose"]) as (monitor, source):
        states = monitor.subscribe("*")
        for number in range(20):

            async def main() -> None:
                task = asyncio.ensure_future(states.recv())
                await asyncio.sleep(0)
                source.topic("pose").put(str(number))
                state = await task
                assert state is not None

            run(main())


def test_a_loop_that_ends_while_a_task_waits_leaves_nothing() -> None:
    with pair(["pose"]) as (monitor, source):
        states = monitor.subscribe("*")

        async def main() -> None:
            waiting = [asyncio.ensure_future(states.recv()) for _ in range(10)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)

        for _ in range(5):
            run(main())
        # Also a loop that never ran its tasks to their end.
        loop = asyncio.new_event_loop()
        task = loop.create_task(states.recv())
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        source.topic("pose").put("x")
        state = states.next(GUARD)
        assert state is not None and state.text() == "x"
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task, loop
        assert known_loops() == []


def test_nothing_is_left_after_many_loops() -> None:
    async def main() -> None:
        async with Monitor("udp://127.0.0.1:0") as monitor, Source(monitor.url, name="robot", topics=[EVERY]) as source:
            tasks = [asyncio.ensure_future(monitor.subscribe("*").recv()) for _ in range(20)]
            lost = [asyncio.ensure_future(monitor.events.recv()) for _ in range(20)]
            await asyncio.sleep(0)
            for task in lost:
                task.cancel()
            source.topic("log").push("x")
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # Otherwise the source waits for that at its end.
            [task.result().done() for task in done]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, *lost, return_exceptions=True)
            assert not _waiting._loop_of(asyncio.get_running_loop()).futures

    run(main())
    descriptors_before, objects_before = descriptors(), objects()
    assert known_loops() == []
    for _ in range(10):
        run(main())
    assert objects() == objects_before
    assert descriptors() == descriptors_before


def test_waiting_tasks_cost_nothing_while_nothing_arrives() -> None:
    async def main() -> None:
        with pair() as (monitor, _):
            tasks = [asyncio.ensure_future(monitor.subscribe("*").recv()) for _ in range(200)]
            await asyncio.sleep(0.05)
            before = time.process_time()
            await asyncio.sleep(0.5)
            assert time.process_time() - before < 0.1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(main())


def test_an_event_loop_goes_on_while_a_source_finishes() -> None:
    async def main() -> None:
        source = Source("udp://127.0.0.1:9")
        source.put("x")
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        turning = asyncio.ensure_future(turn())
        with pytest.raises(UndeliveredError):
            await source.afinish(0.3)
        turning.cancel()
        assert turns > 30

    run(main())


def test_a_cancelled_block_closes_the_source() -> None:
    async def main() -> None:
        source = Source("udp://127.0.0.1:9")

        async def work() -> None:
            async with source:
                source.linger = 1000.0
                source.put("x")

        task = asyncio.ensure_future(work())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.has_ended

    run(main())


def test_a_thousand_subscriptions_need_few_descriptors() -> None:
    done = python(
        """
        import asyncio, resource, freshline
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        async def main():
            with freshline.Monitor("udp://127.0.0.1:0") as monitor:
                source = freshline.Source(monitor.url, name="robot")
                tasks = [asyncio.ensure_future(monitor.subscribe("*").recv()) for _ in range(1000)]
                await asyncio.sleep(0)
                source.put("x")
                print({state.text() for state in await asyncio.gather(*tasks)})
                source.close()
        asyncio.run(main())
        """
    )
    assert (done.returncode, done.stdout) == (0, "{'x'}\n"), done.stderr


def test_ctrl_c_ends_an_event_loop_that_waits_for_a_state() -> None:
    done = python(
        """
        import asyncio, os, signal, threading, freshline
        async def main():
            async with freshline.Monitor("udp://127.0.0.1:0") as monitor:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                try:
                    await monitor.subscribe("*").recv()
                except asyncio.CancelledError:
                    print("cancelled")
                    raise
            print("never")
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    assert (done.returncode, done.stdout) == (0, "cancelled\ninterrupted\n"), done.stderr


def test_uvloop_waits_as_asyncio_does() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        with pair() as (monitor, source):
            task = asyncio.ensure_future(monitor.subscribe("*").recv())
            await asyncio.sleep(0)
            source.put("x")
            state = await task
            assert state is not None and state.text() == "x"

    uvloop.run(main())
    assert known_loops() == []


def test_a_reader_that_is_slower_than_its_source_lets_other_tasks_run() -> None:
    async def story(monitor: Monitor) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.02)
                ticks += 1

        async def read() -> None:
            async for _ in monitor.subscribe("*"):
                time.sleep(0.02)

        ticking = asyncio.create_task(tick())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await read()
        ticking.cancel()
        assert ticks > 0

    is_over = threading.Event()
    with pair(law={"law": "fixed", "params": {"rate": "500/s"}}) as (monitor, source):

        def feed() -> None:
            while not is_over.wait(0.002):
                source.put(str(time.monotonic()))

        feeding = threading.Thread(target=feed)
        feeding.start()
        try:
            run(story(monitor))
        finally:
            is_over.set()
            feeding.join()


def test_afinish_takes_every_kind_of_time_and_a_wrong_one_changes_nothing() -> None:
    async def story(source: Source) -> None:
        with pytest.raises(ValueError):
            await source.afinish("soon")
        source.put(b"x")
        await source.afinish("10s")

    with pair() as (_, source):
        run(story(source))
