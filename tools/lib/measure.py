"""Runs the programs of steps as children, one per step, and gathers what they report."""
import json
import re
import tempfile
from pathlib import Path

from . import build, child, results, sizes, term

REFUSED = 2  # exit codes of a program: 0 right, 1 wrong result, 2 refused, 3 CUDA error
KIND = {1: "wrong result", 3: "error"}


class Outcome:
    """What one child came to: data (its JSON) or a reason."""

    def __init__(self, step, data=None, reason="", refused=False, ran=None):
        self.step, self.data, self.reason, self.refused = step, data, reason, refused
        self.ran = ran

    @property
    def ok(self):
        return not self.reason


def time_limit(size_list, regimes=("burst", "sustained")):
    """Seconds a child may take: far above what a sound one needs, near enough to end a hang."""
    work = sum(sizes.flops(s) for s in size_list)
    return 45 + 30 * len(size_list) * len(regimes) + work / 2e10


def call(step, device, command, limit, progress=None, words="", on_word=None, env=None):
    """One child; its JSON goes through a file of its own."""
    said = words

    def on_line(line):
        # What the program has come to, without the name that the row already has.
        nonlocal said
        said = line.removeprefix(step.id + " ")
        if on_word:
            on_word(line)

    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        file = Path(folder) / "child.json"
        line = [build.program(device, step.id), *command, "--json", file]
        # CUDA counts GPUs by speed unless told otherwise; nvidia-smi counts by slot.
        env = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **(env or {})}
        tick = (lambda s: progress.show(f"{step.id}: {said}, {s:.0f} s")) if progress else None
        try:
            ran = child.run(line, limit=limit, env=env, tick=tick, on_line=on_line)
        except FileNotFoundError:
            return Outcome(step, reason=f"its program is missing: {line[0]}")
        except OSError as error:
            return Outcome(step, reason=f"its program does not start: {error.strerror}")
        finally:
            if progress:
                progress.clear()
        data = None
        try:
            data = json.loads(file.read_text())
        except (OSError, ValueError):
            pass
    if not ran.ok:
        reason = child.why(ran, limit).removeprefix(step.id + ": ")
        if kind := KIND.get(ran.code):
            reason = reason if reason.startswith(kind) else f"{kind}: {reason}"
        return Outcome(step, data, reason, ran.code == REFUSED and not ran.timed_out, ran)
    if data is None:
        return Outcome(step, reason="ended well but wrote no result", ran=ran)
    return Outcome(step, data, ran=ran)


def bench(step, size_list, regimes, commit="", dirty=True, extra=(), progress=None, limit=None,
          on_word=None):
    """Checks, then times one step: an Outcome with .results, and .left_out, one line for each
    contender that takes too long to be timed in a regime."""
    command = ["bench", "--sizes", ",".join(map(sizes.text, size_list)),
               "--regimes", ",".join(regimes), "--commit", commit or "unknown",
               "--dirty", int(bool(dirty)), *extra]
    words = f"checking and timing {', '.join(map(sizes.short, size_list))}"
    outcome = call(step, "gpu", command, limit or time_limit(size_list, regimes), progress,
                   words, on_word)
    outcome.results, outcome.left_out = None, []
    if outcome.ok:
        try:
            outcome.results = results.parse(outcome.data, "what its program wrote")
        except term.UserError as error:
            outcome.reason = str(error)
        else:
            outcome.left_out = re.findall(r"^left out: (.*)$", outcome.ran.out, re.M)
            measured = any(row.is_step for row in outcome.results.rows.values())
            if not measured and not outcome.left_out:
                outcome.reason = "measured nothing" + (
                    f": {child.why(outcome.ran)}" if outcome.ran.err.strip() else "")
    return outcome


def check(step, device, size_list=(), seed=None, progress=None, limit=None, random=None,
          env=None):
    command = ["check"]
    if random:
        command += ["--random", random]
    if size_list:
        command += ["--sizes", ",".join(map(sizes.text, size_list))]
    if seed is not None:
        command += ["--seed", seed]
    work = sum(sizes.flops(s) for s in size_list) + (random or 0) * 1e8
    # The emulated device does some 30 MFLOP/s in the slowest steps.
    limit = limit or (120 + work / 1e10 if device == "gpu" else 300 + work / 1e7)
    return call(step, device, command, limit, progress, "checking", env=env)


def shapes(outcome):
    """What a check says of each shape: (size, right, reason, counters)."""
    found = []
    for row in (outcome.data or {}).get("benchmarks", []):
        counters = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k != "right"}
        found.append(("/".join(row["name"].split("/")[1:-1]), bool(row.get("right")),
                      row.get("reason", ""), counters))
    return found


def ceilings(step, regimes, commit="", dirty=True, progress=None, limit=None):
    """The ceilings of this GPU, measured by any step's program."""
    command = ["ceilings", "--regimes", ",".join(regimes), "--commit", commit or "unknown",
               "--dirty", int(bool(dirty))]
    return call(step, "gpu", command, limit or 240, progress, "measuring the ceilings")


def nearest_legal(reason):
    """The size that a refusal proposes, or None."""
    found = re.search(r"nearest legal size is (\d+x\d+x\d+)", reason)
    return sizes.parse_one(found[1]) if found else None
