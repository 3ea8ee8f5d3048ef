"""Child processes: each in its own process group, with a time limit, and never left behind."""
import concurrent.futures
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
_running = set()  # processes of this and other threads, for `end_all`
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Result:
    code: int  # as the shell has it: 128 + signal for a child that was killed
    out: str
    err: str
    timed_out: bool = False
    seconds: float = 0.0

    @property
    def ok(self):
        return self.code == 0 and not self.timed_out


def _die_with_parent():
    """Runs in the child before exec: if ./ladder is killed outright, the kernel ends the child."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(command, limit=None, cwd=None, env=None, tick=None, on_line=None):
    """Runs `command` to its end or to `limit` seconds. `tick(seconds)` is called about ten times
    a second, `on_line(text)` for each line of its output as it comes."""
    started = time.monotonic()
    # Files, not pipes: a grandchild that lives on can't keep us waiting for the end of the output.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out,
                                   stderr=err, cwd=cwd, env={**os.environ, **(env or {})},
                                   start_new_session=True, preexec_fn=_die_with_parent)
        _running.add(process)
        timed_out, seen = False, 0
        try:
            while True:
                try:
                    process.wait(0.1)
                    break
                except subprocess.TimeoutExpired:
                    seconds = time.monotonic() - started
                if on_line:
                    seen = _new_lines(out, seen, on_line)
                if tick:
                    tick(seconds)
                if limit and seconds > limit:
                    timed_out = True
                    kill(process)
                    break
        except BaseException:  # Ctrl-C too: nothing may outlive this call
            kill(process)
            raise
        finally:
            kill_group(process)  # grandchildren that it left
            _running.discard(process)
        if on_line:
            _new_lines(out, seen, on_line)
        code = process.returncode if process.returncode is not None else -signal.SIGKILL
        return Result(128 - code if code < 0 else code, _text(out), _text(err), timed_out,
                      time.monotonic() - started)


def _text(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def _new_lines(file, seen, on_line):
    """Hands on the whole lines after byte `seen`; where the rest begins."""
    whole, newline, _ = os.pread(file.fileno(), 1 << 20, seen).rpartition(b"\n")
    if newline:
        for line in whole.decode(errors="replace").splitlines():
            on_line(line)
    return seen + len(whole) + len(newline)


def find(name, variable, folder, pattern):
    """A program of NVIDIA's: where `variable` says, in PATH, with the toolkit, or the newest in
    `folder`; None where it is not."""
    candidates = [os.environ.get(variable), shutil.which(name), f"/usr/local/cuda/bin/{name}",
                  *sorted(map(str, Path(folder).glob(pattern)), reverse=True)]
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def side_by_side(jobs, work, cost=None, more=0):
    """(job, work(job)) for each, in order, as many at once as there are cores, and `more` where
    jobs wait a lot. What costs most, by cost(job), is begun first: a long one at the end would
    leave the other cores idle."""
    jobs = list(jobs)
    begin = sorted(range(len(jobs)), key=lambda i: cost(jobs[i]), reverse=True) if cost else \
        range(len(jobs))
    with concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + more) as pool:
        try:
            begun = {i: pool.submit(work, jobs[i]) for i in begin}
            for i, job in enumerate(jobs):
                yield job, begun[i].result()
        except BaseException:  # Ctrl-C, or the reader of a pipe has gone
            pool.shutdown(wait=False, cancel_futures=True)
            end_all()
            raise


def end_all():
    """Ends what other threads have started; they then see a killed child."""
    for process in list(_running):
        kill_group(process)


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def kill(process):
    kill_group(process)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        pass  # stuck in the driver; it ends when the driver lets go


def why(result, limit=None):
    """One line for a child that did not end well."""
    if result.timed_out:
        return f"no result after {limit:.0f} s (a hang?), ended"
    if result.code > 128:
        try:
            name = signal.Signals(result.code - 128).name
        except ValueError:
            name = f"signal {result.code - 128}"
        words = {"SIGSEGV": "crashed", "SIGABRT": "aborted",
                 "SIGKILL": "was killed (out of memory?)"}
        return f"{words.get(name, 'ended')} ({name})" + _tail(result.err, ": ")
    return _tail(result.err) or _tail(result.out) or f"exit code {result.code} without a word"


def _tail(text, before=""):
    """The line that tells: the first with 'error:', else the last that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if "error: " in line:
            return before + line.split("error: ", 1)[1]
    return before + lines[-1] if lines else ""
