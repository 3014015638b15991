"""Files that appear complete or not at all, on any file system with an atomic rename; and a lock."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from .errors import SweepError

STALE_SECONDS = 3600.0
"""Age from which on a temporary file is stale. Writing one takes seconds."""
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of `os.link` on file systems without hard links."""

LOCK = "lock"
"""Name of the lock file of a directory."""
_NO_FLOCK = {
    errno.ENOLCK,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.ENOSYS,
    errno.EINVAL,
    errno.EBADF,  # NFS: the lock file can only be read
}
"""Errors of `flock` on file systems without it."""

_numbers = itertools.count()


Content = str | Callable[[BinaryIO], None]
"""Text, or a function that writes to the file."""


def write(path: Path, content: Content) -> None:
    """Write a file under a temporary name in the same folder, fsync it, and rename it.

    Several writers of one path do not disturb each other: each has its own temporary name.
    """
    temporary = _filled(path, content)
    try:
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def create(path: Path, content: Content) -> bool:
    """Like `write`, but leave an existing file alone. Returns whether the file is new.

    On file systems without hard links another process may see the file empty for a moment.
    """
    temporary = _filled(path, content)
    try:
        _link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory. Raises `SweepError` if another call holds it.

    The lock file stays. On file systems without `flock` there is no lock.
    """
    descriptor = _lock_file(directory / LOCK)
    if descriptor is None:
        yield
        return
    try:
        is_locked = _flock(descriptor, directory)
        try:
            yield
        finally:
            if is_locked:  # a forked process may have the descriptor, too
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _lock_file(path: Path) -> int | None:
    """A descriptor of the lock file; None if it does not exist and cannot be created."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _flock(descriptor: int, directory: Path) -> bool:
    """Lock the file. Returns whether the file system has locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES):
            raise SweepError(
                f"another process works on {directory}: it plans or runs the sweep. Wait until it "
                "ends, and call freshline.sweep again; to look at the results so far, use "
                f"freshline.open_sweep({str(directory)!r})"
            ) from None
        if error.errno not in _NO_FLOCK:
            raise
        return False
    return True


def remove_stale(folder: Path) -> None:
    """Remove temporary files that are too old, unless their process is alive on this host.

    A process that is not found may be alive in another container, which can have the same host
    name; so the age counts for files of the own host name, too.
    """
    host = socket.gethostname()
    for path in folder.glob(".*.tmp"):
        parts = path.name.rsplit("~", 3)
        try:
            if len(parts) == 4 and parts[1] == host and _is_alive(int(parts[2])):
                continue
            is_old = time.time() - path.stat().st_mtime > STALE_SECONDS
        except (OSError, ValueError):
            continue
        if is_old:
            path.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    """Give a file a second name. Raises FileExistsError if that name exists."""
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        try:
            os.replace(temporary, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _filled(path: Path, content: Content) -> Path:
    own = f".{path.name}~{socket.gethostname()}~{os.getpid()}~{next(_numbers)}.tmp"
    temporary = path.with_name(own)
    try:
        with open(temporary, "wb") as file:
            if isinstance(content, str):
                file.write(content.encode())
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_folder(folder: Path) -> None:
    """Make a rename durable. Some network file systems refuse it, and do not need it."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
