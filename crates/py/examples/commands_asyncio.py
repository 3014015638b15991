"""Both directions in one event loop: a robot sends its pose, and receives speeds that must not be older than 200 ms.

python commands_asyncio.py [SECONDS]
"""

import asyncio
import sys

import freshline


async def operate(base: freshline.Monitor, seconds: float) -> None:
    """Sends a speed every 50 ms, and then falls silent, as after a failure."""
    for step in range(int(seconds / 0.05)):
        base.topic("speed").put_json(1.0 + 0.1 * step)
        await asyncio.sleep(0.05)
    print("base: falls silent")


async def watch(base: freshline.Monitor) -> None:
    """Prints every twentieth pose that arrives."""
    count = 0
    async for state in base.subscribe("*/pose"):
        count += 1
        if count % 20 == 1:
            print(f"base: {state.source} is at {state.json()}")


async def drive(robot: freshline.Source) -> None:
    """Integrates the speed."""
    position = 0.0
    while True:
        command = robot.latest("base/speed")  # None if the newest one may be older than 200 ms
        speed = command.json() if command is not None else 0.0
        position += 0.01 * speed
        robot.topic("pose").put_json({"x": round(position, 3)})
        await asyncio.sleep(0.01)


async def stop(robot: freshline.Source) -> None:
    """Returns when all commands are too old."""
    async for event in robot.received_events:
        if event.kind == "stale":
            print(f"robot: stops, no {event.source}/{event.topic} is younger than {event.max_age} s")
            return


async def main(seconds: float) -> None:
    async with freshline.Monitor("udp://127.0.0.1:0", name="base", topics=["speed"]) as base:
        limits = {"base/speed": "200ms"}
        async with freshline.Source(base.url, name="robot-7", topics=["pose"], max_ages=limits) as robot:
            tasks = [asyncio.create_task(work) for work in (operate(base, seconds), watch(base), drive(robot))]
            await stop(robot)
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]) if len(sys.argv) > 1 else 3.0))
