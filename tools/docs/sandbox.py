"""Runs a page's session: as root in namespaces of its own, otherwise directly.

As root, the session has its own network with only a loopback interface, and its own processes, mounts and control
group: processes, attachments and pins end with the session. Host names in the documents resolve to loopback.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

HOSTS = ("monitor.example", "base.example", "edge.example", "ground.example", "server.example", "example.org", "backup")

# $1 is the name of the control group, $2 the file of hosts; the session's command follows.
ENTER = """
set -e
group=$1 hosts=$2
shift 2
ip link set lo up
for folder in /run /var/lib /var/log; do mount -t tmpfs docs-check $folder; done
mount --bind "$hosts" /etc/hosts
umount -R -l /sys
mount -t sysfs sysfs /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/$group
echo $$ >/sys/fs/cgroup/$group/cgroup.procs
exec unshare --cgroup --mount sh -c '
    umount /sys/fs/cgroup
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t bpf bpf /sys/fs/bpf
    exec "$@"' sh "$@"
"""
LEAVE = 'mount -t cgroup2 cgroup2 /mnt && for try in $(seq 25); do rmdir "/mnt/$1" && exit; sleep 0.2; done; exit 1'


# The running sessions; end_all() ends them.
RUNNING: list[subprocess.Popen] = []


def end_all() -> None:
    for process in list(RUNNING):
        process.kill()


def is_root() -> bool:
    return os.geteuid() == 0


def run(command: list[str], hosts: dict[str, str], timeout: float) -> tuple[int | None, str]:
    """The exit code, None past the time limit, and the output."""
    with tempfile.TemporaryDirectory(prefix="docs-check-") as folder:
        if not is_root():
            return finish(subprocess.Popen(command, **PIPES, start_new_session=True), timeout)
        table = Path(folder, "hosts")
        names = {name: "127.0.0.1" for name in ("localhost", *HOSTS)} | hosts
        table.write_text("".join(f"{address} {name}\n" for name, address in names.items()), encoding="utf-8")
        group = f"docs-check-{os.getpid()}-{time.monotonic_ns()}"
        enter = ["unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--mount-proc"]
        enter += ["sh", "-c", ENTER, "docs-check", group, str(table)]
        try:
            return finish(subprocess.Popen([*enter, *command], **PIPES, start_new_session=True), timeout)
        finally:
            subprocess.run(["unshare", "--mount", "sh", "-c", LEAVE, "docs-check", group], check=False, **PIPES)


PIPES: dict = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def finish(process: subprocess.Popen, timeout: float) -> tuple[int | None, str]:
    RUNNING.append(process)
    try:
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        # The first process of the namespace ends with `unshare`, and ends all others.
        process.kill()
        output, _ = process.communicate()
        return None, output
    finally:
        RUNNING.remove(process)
