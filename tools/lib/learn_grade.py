"""Grading what a learner made: builds, right, no report, the counter has moved, fast enough."""
import re
import shutil

from . import build, files, learn, lock, measure, paths, sizes, steps, term

FOLDER = paths.BUILD / "learn"  # copies that are built; their base is the step to compare with
SEEDS = (1, 2, 3)               # schedules of the emulated device
FAST_ENOUGH = 0.9
OK, FAIL, SKIP = "ok", "FAIL", "skip"
FINDING = re.compile(r"(?:; )?(\d+ findings? of the emulated device, first: .*)", re.S)

# What a mended hunt must not have more, or less, of than the original: else it waits too much, or
# works around the mistake.
NOT_MORE = [("barriers", "threads at barriers"), ("mbarrier_waits", "waits at mbarriers"),
            ("shared_load_wavefronts + shared_store_wavefronts + ldmatrix_wavefronts + "
             "stmatrix_wavefronts + cp_async_wavefronts", "wavefronts of shared memory")]
NOT_LESS = [("cp_async_ahead", "groups of cp.async in flight after a wait"),
            ("wgmma_ahead", "groups of wgmma in flight after a wait")]


def copy(subject, text, name=None):
    """Puts the learner's kernel where it is built; returns it as a Step whose base is the step
    that it is compared with."""
    folder = FOLDER / (name or subject.id)
    shutil.rmtree(folder, ignore_errors=True)
    text = re.sub(r"^// base:.*$", f"// base: {subject.step.id}", text, count=1, flags=re.M)
    if (learn.WORK / subject.id).is_dir():
        learn.copy_included(learn.WORK / subject.id, folder)
    files.write_text(folder / "kernel.cu", text)
    return steps.read(folder / "kernel.cu")


def clear():
    shutil.rmtree(FOLDER, ignore_errors=True)


def grade(subject, text, ready, device=None):
    """Yields (stage, OK, FAIL or SKIP, words, report). Ends at the first FAIL."""
    if untouched(subject, text):
        yield "changed", FAIL, f"nothing yet: work/{subject.id}/kernel.cu is as it was put", ""
        return
    mine = copy(subject, text)
    needed = [mine.id, subject.step.id]
    if isinstance(subject, learn.Exercise):
        needed.append(subject.base.id)
    gpu = ready.gpu if device != "emulated" and ready.gpu and ready.nvcc else None
    gpu_runs = gpu and mine.runs_on(gpu.sm)
    # A GPU alone can tell right and fast, but not what a hunt asks for.
    no_emulator = ("Boost.Context" in ready.missing and gpu_runs
                   and isinstance(subject, learn.Exercise))
    if no_emulator:
        yield "builds", SKIP, "for the emulated device: Boost.Context is missing", ""
    else:
        failed = build.build(ready, "emulated", needed, extra=FOLDER)
        for name in needed:
            if name in failed:
                whose = "" if name == mine.id else f"{name} "
                yield "builds", FAIL, whose + failed[name].removeprefix("does not build: "), ""
                return
        yield "builds", OK, "for the emulated device", ""
    if gpu_runs:
        failed = build.build(ready, "gpu", [mine.id, subject.step.id], extra=FOLDER)
        if mine.id in failed:
            yield "builds", FAIL, "for the GPU: " + failed[mine.id], ""
            return
        yield "builds", OK, f"for {gpu.name}", ""
    for row in () if no_emulator else emulated(subject, mine):
        yield row
        if row[1] == FAIL:
            return
    yield from on_gpu(subject, mine, gpu, ready)


def untouched(subject, text):
    if isinstance(subject, learn.Exercise):
        return text == learn.start_text(subject)
    start = subject.start_texts()
    return text == start.pop("kernel.cu") and all(
        (learn.WORK / subject.id / file).read_text(encoding="utf-8") == was
        for file, was in start.items())


def emulated(subject, mine):
    """Right, no report, counters; everything is built."""
    reference = measure.check(subject.step, "emulated", limit=300)
    if not reference.ok:
        words = f"{subject.step.id} itself is not right here: {reference.reason}"
        yield "right", FAIL, words, ""
        return
    shapes = [sizes.parse_one(name) for name, *_ in measure.shapes(reference)]
    if getattr(subject, "plain", False):
        shapes = [size for size in shapes if not sizes.kind_of(size)]
    shapes += getattr(subject, "sizes", [])
    findings = None
    for seed in SEEDS:
        found = measure.check(mine, "emulated", shapes, seed, limit=120)
        wrong, finding = split(found)
        report = told(found)
        if wrong:
            wrong += "; the emulated device says why:" if report else ""
            yield "right", FAIL, wrong, report
            return
        findings = findings or (finding and (f"seed {seed}: {finding}", report))
        if findings:
            break
    yield "right", OK, f"at {len(shapes)} shapes that {subject.step.id} takes", ""
    if findings:
        yield "no report", FAIL, *findings
        return
    yield "no report", OK, f"of the emulated device, {len(SEEDS)} schedules", ""
    yield from counters(subject, mine)


def split(outcome):
    """(what is wrong with the product, what the emulated device found), of a check."""
    if outcome.ok:
        return "", ""
    if not outcome.ran or outcome.ran.code != 1 or not measure.shapes(outcome):
        return outcome.reason, ""
    reason = next(f"{size}: {why}" for size, right, why, _ in measure.shapes(outcome) if not right)
    found = FINDING.search(reason)
    if not found:
        return reason, ""
    rest = FINDING.sub("", reason).strip()
    # What remains is the shape and the kind of inputs, and perhaps a wrong element.
    product = re.sub(r"^\S+: \S.*?: ?", "", rest + " ").strip()
    size = reason.partition(":")[0]
    return (rest if product else ""), term.clip(f"{size}: {found[1]}", 200)


def told(outcome):
    """The emulated device's own reports, for under the row: each once, with the story under it."""
    lines, seen, kept = [], set(), True
    for line in outcome.ran.err.splitlines() if outcome.ran else ():
        if line.startswith("emulated device: "):
            line = line.removeprefix("emulated device: ")
            kept = not re.match(r"\d+ times ", line) and line not in seen
            seen.add(line)
        elif line.startswith("error:"):
            continue
        if kept and line.strip():
            lines.append(line)
    return "\n".join(lines)


def counted(step, size):
    outcome = measure.check(step, "emulated", [size], limit=120)
    return measure.shapes(outcome)[0][3] if outcome.ok else None


def counters(subject, mine):
    size = subject.size if isinstance(subject, learn.Exercise) else learn.SIZE
    got = counted(mine, size)
    stage = "counter" if isinstance(subject, learn.Exercise) else "cost"
    compared = subject.base if isinstance(subject, learn.Exercise) else subject.step
    before = counted(compared, size)
    if got is None or before is None:
        yield stage, FAIL, f"not right at {sizes.text(size)}", ""
        return
    if isinstance(subject, learn.Exercise):
        judged = [rule.judge(got, before) for rule in subject.moves]
    else:
        judged = [kept(expression, meaning, got, before, 1.1) for expression, meaning in NOT_MORE]
        judged += [kept(expression, meaning, got, before, -1) for expression, meaning in NOT_LESS]
    bad = [words for held, words in judged if not held]
    if bad:
        yield stage, FAIL, f"at {sizes.text(size)}, {'; '.join(bad)}", ""
        return
    good = "; ".join(words for _, words in judged)
    if stage == "cost":
        good = f"waits, conflicts and groups in flight as in {subject.step.id}"
    yield stage, OK, f"at {sizes.text(size)}, {good}", ""


def kept(expression, meaning, got, before, factor):
    """For a hunt: not more than `factor` of the original, or (factor -1) not less."""
    op = "<=" if factor > 0 else ">="
    held, words = learn.Rule(expression, op, abs(factor), True, meaning).judge(got, before)
    return held, words.replace("in the start", "in the original")


def on_gpu(subject, mine, gpu, ready):
    if not gpu:
        yield "speed", SKIP, "no GPU here" if not ready.gpu else "not asked for", ""
        return
    if not mine.runs_on(gpu.sm):
        yield "speed", SKIP, f"{gpu.name}: {mine.why_not(gpu.sm)}", ""
        return
    with lock.gpu(gpu.uuid):
        found = measure.check(mine, "gpu", limit=180)
        if not found.ok:
            yield "right", FAIL, f"on {gpu.name}: {found.reason}", ""
            return
        yield "right", OK, f"on {gpu.name}, {len(measure.shapes(found))} shapes", ""
        timed = measure.bench(mine, [(4096,) * 3], ["burst"])
    row = next((r for r in timed.results.rows.values() if r.subject == mine.id), None) \
        if timed.results else None
    ratio = row.counters.get("vs_previous") if row else None
    if not ratio:
        state = SKIP if timed.ok else FAIL
        yield "speed", state, f"not measured: {timed.reason or '; '.join(timed.left_out)}", ""
        return
    words = f"{100 * ratio:.0f} % of {subject.step.id} at 4096, burst, side by side"
    yield "speed", OK if ratio >= FAST_ENOUGH else FAIL, words + (
        "" if ratio >= FAST_ENOUGH else f"; must be {100 * FAST_ENOUGH:.0f} %"), ""
