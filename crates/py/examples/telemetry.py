"""A robot puts its pose at 200/s, and a monitor prints the age of the pose.

python telemetry.py [SECONDS]
"""

import sys
import time

import numpy as np
from numpy.typing import NDArray

import freshline


def pose_at(seconds: float) -> NDArray[np.float64]:
    """Position in m and attitude as a quaternion, on a circle of 2 m."""
    angle = 0.5 * seconds
    position = [2 * np.cos(angle), 2 * np.sin(angle), 0.0]
    return np.array([*position, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])


def main(seconds: float) -> None:
    # On two hosts: quic://0.0.0.0:3774 here, and `pins=[monitor.fingerprint]` at the source.
    with freshline.Monitor("udp://127.0.0.1:0") as monitor:
        with freshline.Source(monitor.url, name="robot-7", topics=["pose"]) as robot:
            pose = robot.topic("pose")
            begin = shown = time.monotonic()
            while (now := time.monotonic()) < begin + seconds:
                pose.put_numpy(pose_at(now - begin))  # never blocks
                time.sleep(0.005)
                if now < shown + 0.25:
                    continue
                shown = now
                state = monitor.latest("robot-7/pose")
                if state is not None and state.age is not None:
                    x, y = state.numpy()[:2]
                    print(f"x={x:+.2f} m, y={y:+.2f} m, {1e3 * state.age:.1f} ms old, {robot.rate:.0f} updates/s permitted")
            print(f"{pose.replaced} poses were replaced before they were sent")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
