"""Run every test that this machine can run.

  ./ladder test                 all
  ./ladder test --only tools    one part: tools, cpp, build, emulated, exports, gpu

tools: the front door itself. cpp: the C++ tests. build: every step with nvcc for each of its
targets; a register spill or a wgmma that ptxas serialises fails it, and so does an instruction that
the source asks for and the machine code lacks; experiments too. emulated: every step on the
emulated device at its awkward shapes, then with each barrier, wait, arrival and fence left out.
exports: every step's single file compiled. gpu: on a GPU, the tests that need one. What cannot run
here is skipped by name. The last line counts.
"""
import collections
import json
import re
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from . import export as exporter
from .lib import build, child, experiments, lock, measure, paths, sass, setup, steps, term

PARTS = ("tools", "build", "cpp", "emulated", "exports", "gpu")


def arguments(parser):
    parser.add_argument("--only", choices=PARTS, action="append", metavar="PART",
                        help=", ".join(PARTS) + "; may be repeated")


def main(args):
    tally = Tally()
    ready = setup.ready()
    known = steps.everything(variants=True)
    for part in PARTS:
        if not args.only or part in args.only:
            started, before = time.monotonic(), _cpu()
            term.say(f"\n{part}", term.BOLD)
            globals()[f"test_{part}"](tally, ready, known)
            term.say(f"  {part}: {time.monotonic() - started:.0f} s, CPU {_cpu() - before:.0f} s",
                     term.DIM)
    return tally.end()


def _cpu():
    """Seconds of CPU that ended children have used: what a busy machine hardly changes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Tally:
    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []

    def ok(self, name, count=1):
        self.passed += count
        term.say(f"  ok    {name}")

    def fail(self, name, reason, details=""):
        self.failures.append(name)
        term.say(f"  FAIL  {name}: {term.one_line(reason)}", term.RED)
        for line in details.rstrip().splitlines()[-60:]:
            term.say("        " + line)

    def skip(self, name, reason, count=1):
        self.skips += [name] * count
        term.say(f"  skip  {name}: {term.one_line(reason)}", term.YELLOW)

    def end(self):
        if self.failures:
            term.say("\nfailed: " + ", ".join(self.failures), term.RED)
        term.say(f"\n{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped")
        return 1 if self.failures or not self.passed else 0


# ---- parts -------------------------------------------------------------------------------------

def test_tools(tally, ready, known):
    """tests/test_*.py, by unittest; a file at a time so that a failure names it."""
    environment = {"LADDER_PLOT_PYTHON": ready.plot_python, "PYTHONDONTWRITEBYTECODE": "1"}
    files = sorted((paths.ROOT / "tests").glob("test_*.py"))

    def work(file):
        return child.run([sys.executable, "-m", "unittest", "-v", file.stem], limit=900,
                         cwd=paths.ROOT / "tests", env=environment)

    for file, done in child.side_by_side(files, work, cost=lambda file: (
            "OnTheEmulatedDevice" in file.read_text(), file.stat().st_size), more=1):
        count = int((re.findall(r"^Ran (\d+) test", done.err, re.M) or ["0"])[-1])
        for name, reason in re.findall(r"^(\w+) .*\.\.\. skipped '(.*)'$", done.err, re.M):
            tally.skip(f"{file.stem}.{name}", reason)
            count -= 1
        failed = re.findall(r"^(?:FAIL|ERROR): (\S+)", done.err, re.M)
        for name in failed:
            tally.fail(f"{file.stem}.{name}", "see below")
        if failed or not done.ok:
            if not failed:
                tally.fail(file.stem, child.why(done, 900))
            for line in done.err.splitlines()[-80:]:
                term.say("        " + line)
        if count - len(failed) > 0:
            tally.ok(f"{file.stem}, {count - len(failed)} tests", count - len(failed))


def test_build(tally, ready, known):
    if not ready.nvcc:
        tally.skip("every step with nvcc", ready.why_no_nvcc, len(known))
        return
    archs = sorted({*steps.DEFAULT_ARCHS, *([str(ready.gpu.sm)] if ready.gpu else [])}, key=int)
    around = experiments.everything()
    failed = build.build(ready, "gpu", [s.id for s in [*known, *around]], archs=archs)
    for step in known:
        targets = ", ".join(f"sm_{t}" for t in step.targets(archs))
        if step.id in failed:
            tally.fail(f"{step.id} for {targets}", failed[step.id])
        else:
            tally.ok(f"{step.id} for {targets}, nothing spilled, nothing serialised")
    _machine_code(tally, ready, [s for s in known if s.id not in failed], archs)
    _experiments(tally, around, failed, archs)


def _experiments(tally, around, failed, archs):
    """They say what their workloads are, which needs no GPU."""
    for e in around:
        reason = failed.get(e.id)
        if reason and e.needs and experiments.why_not_built(e, reason) != reason:
            tally.skip(f"{e.id} with nvcc", experiments.why_not_built(e, reason))
            continue
        if not reason:
            done = child.run([build.folder("gpu", archs) / "bin" / e.id, "describe"], limit=60)
            try:
                names = json.loads(done.out)["workloads"]
            except (ValueError, KeyError):
                reason = f"describe: {child.why(done, 60)}"
        if reason:
            tally.fail(f"{e.id} with nvcc", reason)
        else:
            tally.ok(f"{e.id} with nvcc, {len(names)} workloads")


def _machine_code(tally, ready, chosen, archs):
    """Every instruction that a step's calls of ptx:: stand for, in what was just built."""
    beside = Path(ready.nvcc).with_name("cuobjdump")
    tool = beside if beside.is_file() else shutil.which("cuobjdump")
    if not tool:
        tally.skip("machine code of every step", "no cuobjdump beside nvcc or on the path",
                   len(chosen))
        return
    bodies = sass.wrappers()
    jobs = [(step, target) for step in chosen for target in step.targets(archs)]

    def work(job):
        step, target = job
        objects = (build.folder("gpu", archs) / "CMakeFiles" / f"step_{step.id}.dir"
                   / step.kernel.relative_to(paths.ROOT)).with_suffix(".cu.o")
        return sass.check(tool, objects, step, target, bodies)

    wrong = {}
    for (step, target), found in child.side_by_side(jobs, work, cost=lambda job: _grown(job[0])):
        wrong.setdefault(step.id, []).extend(f"sm_{target}: {words}" for words in found)
    for step_id, found in wrong.items():
        if found:
            tally.fail(f"{step_id}, machine code", "; ".join(found))
        else:
            tally.ok(f"{step_id}, machine code holds what the source asks for")


def test_cpp(tally, ready, known):
    if gone := {"Catch2", "Boost.Context"} & ready.missing.keys():
        tally.skip("C++ tests", f"{', '.join(gone)} missing")
        return
    names = ["harness_tests", "emulator_tests"]
    _catch(tally, ready, "emulated", [n for n in names if list(_sources(n))])


def _grown(step):
    """For side_by_side: steps grow from one to the next."""
    return step.id


def _sources(name):
    return (paths.ROOT / "tests").glob(name.split("_")[0] + "_*.c*")


def _catch(tally, ready, device, names):
    """Builds Catch2 programs and runs them, each file of tests by itself; counts test cases."""
    failed = build.build(ready, device, names)
    jobs, counts = [], {}
    for name in names:
        if name in failed:
            tally.fail(name, failed[name], _build_log(device))
            continue
        listed = child.run([build.program(device, name), "--list-tests"], limit=60).out
        counts[name] = int((re.findall(r"^(\d+) test cases?$", listed, re.M) or [0])[-1])
        jobs += [(name, file.stem) for file in sorted(_sources(name))]

    def work(job):
        return child.run([build.program(device, job[0]), "--filenames-as-tags", f"[#{job[1]}]"],
                         limit=600, cwd=paths.ROOT)

    ran = (child.side_by_side(jobs, work, cost=lambda job: _runs_a_step(job[1]))
           if device != "gpu" else ((job, work(job)) for job in jobs))
    for (name, stem), done in ran:
        summary = done.out.strip().splitlines()[-1] if done.out.strip() else ""
        if done.ok and (found := re.search(r"in (\d+) test case", summary)):
            tally.ok(f"{stem}: {summary}", int(found[1]))
            counts[name] -= int(found[1])
        elif done.ok and "No test" in done.out:
            tally.skip(stem, "no test in it runs here")
        else:
            tally.fail(stem, summary or child.why(done, 600), done.out + done.err)
            counts[name] = 0
    for name, left in counts.items():
        if left:
            tally.fail(name, f"{left} test cases are in no file of tests/")


def _runs_a_step(stem):
    """Such a file takes longest."""
    return any("\n// step: " in "\n" + file.read_text()
               for file in (paths.ROOT / "tests").glob(f"{stem}.c*"))


def _build_log(device):
    try:
        return (build.folder(device) / "ladder-build.log").read_text()
    except OSError:
        return ""


def test_emulated(tally, ready, known):
    if "Boost.Context" in ready.missing:
        tally.skip("every step emulated", "Boost.Context missing", len(known))
        return
    jobs, failed = [], build.build(ready, "emulated", [s.id for s in known if not s.gpu_only])
    for step in known:
        if step.gpu_only:
            tally.skip(f"{step.id} emulated", "includes CUDA's own headers")
        elif step.id in failed:
            tally.fail(f"{step.id} emulated", failed[step.id])
        else:
            jobs += [(step, seed) for seed in (1, 2, 3)]
    for (step, seed), outcome in child.side_by_side(jobs, lambda job: measure.check(
            job[0], "emulated", seed=job[1], limit=300), cost=lambda job: _grown(job[0])):
        name = f"{step.id} emulated, seed {seed}"
        if outcome.ok:
            shapes = measure.shapes(outcome)
            tally.ok(f"{name}: {len(shapes)} shapes right, {outcome.ran.seconds:.1f} s")
        else:
            words = outcome.ran.out + outcome.ran.err if outcome.ran else ""
            tally.fail(name, outcome.reason, words)
    _mutations(tally, [s for s in known if not s.gpu_only and s.id not in failed])
    _examples(tally, ready, "emulated")


def _examples(tally, ready, device):
    """steps/*/example_*.cu: programs that check themselves."""
    fit = []
    for file in sorted(paths.STEPS.glob("[0-9][0-9]_*/example_*.cu")):
        name, arch = f"{file.parent.name}.{file.stem}", re.search(r"^// arch: (\S+)",
                                                                  file.read_text(), re.M)[1]
        step = steps.Step(name, file.parent, "", "", arch, "")
        if device == "gpu" and not step.runs_on(ready.gpu.sm):
            tally.skip(f"{name} on the GPU", step.why_not(ready.gpu.sm))
        else:
            fit.append(name)
    failed = build.build(ready, device, fit)
    for name in fit:
        if name in failed:
            tally.fail(f"{name} ({device})", failed[name])
            continue
        done = child.run([build.program(device, name)], limit=300)
        right = done.out.count(" right\n")
        if done.ok and right:
            tally.ok(f"{name} ({device}): {right} shapes right")
        else:
            tally.fail(f"{name} ({device})", child.why(done, 300), done.out + done.err)


def _mutant_runs(step):
    """Arguments and environment of each run of a step's `mutate`: at its usual shapes, and as
    `mutants` beside the kernel says."""
    runs, file = [([], {})], step.folder / "mutants"
    if step.id != step.folder.name or not file.is_file():  # a variant has a kernel of its own
        return runs
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            size, *settings = line.split()
            runs.append((["--sizes", size], dict(s.split("=", 1) for s in settings)))
    return runs


def _verdicts(output):
    """(verdict, place and change) of each mutation that `mutate` lists."""
    return re.findall(r"^(caught|redundant|SURVIVED)(?:, unnamed)? +(\S+:\d+ +.*?)(?:  +|$)",
                      output, re.M)


def _mutations(tally, chosen):
    """Every barrier, wait, arrival and fence of every step left out in turn: is it missed?"""
    jobs = [(step, *run) for step in chosen for run in _mutant_runs(step)]
    verdicts, wrong = {step.id: {} for step in chosen}, {}
    for (step, arguments, env), done in child.side_by_side(jobs, lambda job: child.run(
            [build.program("emulated", job[0].id), "mutate", *job[1]], limit=600, env=job[2]),
            cost=lambda job: _grown(job[0])):
        found = _verdicts(done.out)
        nothing_to_skip = done.ok and done.out.rstrip().endswith("no call to skip or change")
        if not (nothing_to_skip or (found and done.code in (0, 1))):
            wrong[step.id] = child.why(done, 600) + "\n" + done.err
        for verdict, which in found:
            if verdicts[step.id].get(which) != "caught":
                verdicts[step.id][which] = verdict
    caught = total = 0
    for step in chosen:
        all_of = verdicts[step.id]
        count = collections.Counter(all_of.values())
        survivors = [which for which, verdict in all_of.items() if verdict == "SURVIVED"]
        total, caught = total + len(all_of), caught + count["caught"]
        if step.id in wrong:
            tally.fail(f"{step.id} mutated", wrong[step.id])
        elif survivors:
            tally.fail(f"{step.id} mutated", f"{len(survivors)} survived", "\n".join(survivors))
        else:
            tally.ok(f"{step.id}: {len(all_of)} mutations, {count['caught']} caught, "
                     f"{count['redundant']} argued for in 'survivors'")
    if total:
        term.say(f"  {caught} of {total} mutations caught ({100 * caught / total:.1f} %), the "
                 "others argued for in the steps' folders", term.DIM)


def test_exports(tally, ready, known):
    if not ready.nvcc:
        tally.skip("every step's export compiled", ready.why_no_nvcc, len(known))
        return
    with tempfile.TemporaryDirectory(prefix="ladder-export-") as folder:
        for step, (reason, details) in child.side_by_side(
                known, lambda step: _export(ready, step, Path(folder)), cost=_grown):
            name = f"{step.id} exported and compiled"
            if reason:
                tally.fail(name, reason, details)
            else:
                tally.ok(name)


def _export(ready, step, folder):
    """Builds the single file with the very line in its head; ("", "") or why not."""
    file = folder / f"{step.id}.cu"
    sm = ready.gpu.sm if ready.gpu and step.runs_on(ready.gpu.sm) else int(step.arch[:2])
    text = exporter.export(step, file.name, sm)
    file.write_text(text)
    line = exporter.build_line(text).split()
    done = child.run([ready.nvcc, *line[1:]], limit=300, cwd=folder)
    if not done.ok:
        return build.first_error(done.out + done.err), done.err
    return "", ""


def test_gpu(tally, ready, known):
    """What only a GPU can tell."""
    suites = [n for n in ["gpu_tests"] if list(_sources(n))]
    if not ready.gpu or not ready.nvcc:
        why = "no GPU here" if not ready.gpu else ready.why_no_nvcc
        for name in [*suites, "steps checked on a GPU", "exports run on a GPU",
                     "experiments checked on a GPU"]:
            tally.skip(name, why)
        return
    fit = [s for s in known if s.runs_on(ready.gpu.sm)]
    for step in known:
        if step not in fit:
            tally.skip(f"{step.id} on the GPU", step.why_not(ready.gpu.sm))
    with lock.gpu(ready.gpu.uuid):
        if suites:
            _catch(tally, ready, "gpu", suites)
        failed = build.build(ready, "gpu", [s.id for s in fit])
        for step in fit:
            if step.id in failed:
                tally.fail(f"{step.id} on the GPU", failed[step.id])
                continue
            outcome = measure.check(step, "gpu", limit=300)
            if outcome.ok:
                tally.ok(f"{step.id} on the GPU: {len(measure.shapes(outcome))} shapes right")
            else:
                tally.fail(f"{step.id} on the GPU", outcome.reason)
        _examples(tally, ready, "gpu")
        with tempfile.TemporaryDirectory(prefix="ladder-export-") as folder:
            for step, (reason, details) in child.side_by_side(
                    fit, lambda step: _export(ready, step, Path(folder)), cost=_grown):
                if not reason:
                    done = child.run([Path(folder) / step.id], limit=300)
                    reason = "" if done.ok else child.why(done, 300)
                if reason:
                    tally.fail(f"{step.id} exported, on the GPU", reason, details)
                else:
                    tally.ok(f"{step.id} exported, on the GPU: {done.out.splitlines()[-1]}")
    around = [e for e in experiments.everything() if e.runs_on(ready.gpu.sm)]
    for e, reason in zip(around, experiments.check(ready, around, quiet=True).values()):
        if reason and reason == experiments.why_not_built(e, "has no program for this device"):
            tally.skip(f"{e.id} on the GPU", reason)
        elif reason:
            tally.fail(f"{e.id} on the GPU", reason)
        else:
            tally.ok(f"{e.id} on the GPU: all variants right")
