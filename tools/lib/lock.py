"""One run at a time on a GPU: a second waits and says for whom. The kernel drops the lock when its
holder ends, however it ends."""
import contextlib
import fcntl
import getpass
import os
import sys
import tempfile
import time
from pathlib import Path

from . import term


@contextlib.contextmanager
def gpu(uuid):
    # In the shared temporary folder, not a per-user one: another user's run counts too.
    path = Path(tempfile.gettempdir()) / f"gemm-ladder-{uuid}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        try:
            mask = os.umask(0)
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            finally:
                os.umask(mask)
        except OSError as error:
            term.note(f"no lock, {path} cannot be opened ({error.strerror}): "
                      "a second run at the same time would spoil the numbers")
            yield
            return
    try:
        _take(handle)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{_who()} since {time.strftime('%H:%M:%S')}".encode(), 0)
        yield
    finally:
        os.close(handle)


def _take(handle):
    told = ""
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = os.pread(handle, 500, 0).decode(errors="replace") or "another run"
            if holder != told:
                term.note(f"waiting for the GPU: in use by {holder}")
                told = holder
            time.sleep(0.5)


def _who():
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"'./ladder {' '.join(sys.argv[1:])}' of {user}, process {os.getpid()}"
