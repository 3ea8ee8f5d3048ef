"""`./ladder learn trap`: shows a trap, builds and runs it wrong and right, says how it shows."""
import re
import time

from . import child, learn, lock, options, paths, results, setup, source, term, traps


def main(args):
    if not args.what:
        show()
        return 0
    chosen = traps.everything() if args.what == "all" else [traps.one(args.what)]
    gpu = options.need_gpu() if args.device == "gpu" or args.record else None
    commit, dirty = source.state()
    if args.record and (dirty or commit == "unknown"):
        raise term.UserError("traps are recorded from a clean commit only: commit traps/ first")
    ready = setup.ready()
    on_gpu = ready.gpu and ready.nvcc and args.device != "emulated"
    if gpu and not ready.nvcc:
        raise term.UserError(ready.why_no_nvcc)
    if len(chosen) == 1:
        term.say(plain(chosen[0].text) + "\n")
    built = compile_them(chosen, ready, "native" if on_gpu else "sm_75")
    found, failed = {}, []
    for trap in chosen:
        if problem := one(trap, built[trap.name], ready, on_gpu, found):
            failed.append(f"{trap.name}: {problem}")
    if args.record and found:
        file = traps.RECORDED / results.file_of(ready.gpu.name)
        traps.save(file, {"gpu": ready.gpu.name, "driver": ready.gpu.driver,
                          "cuda": ".".join(map(str, ready.cuda)), "commit": commit,
                          "date": time.strftime("%Y-%m-%d")}, found)
        term.say(f"{paths.shown(file)}; now ./ladder readme fills in the texts")
    for words in failed:
        term.error(words)
    return 1 if failed else 0


def show():
    for trap in traps.everything():
        term.say(f"trap {trap.name:<15} {trap.title}")


def plain(text):
    """A text for a terminal: without the markers of generated parts."""
    return re.sub(r"<!--.*?-->\n?", "", text).strip()


def compile_them(chosen, ready, arch):
    """{name: {variant: program}, or why there is none}."""
    def work(trap):
        try:
            return traps.compile_all(trap, ready.nvcc, arch)
        except term.UserError as error:
            return str(error)

    if not ready.nvcc:
        return {trap.name: "" for trap in chosen}
    return {trap.name: made for trap, made in child.side_by_side(chosen, work)}


def one(trap, programs, ready, on_gpu, found):
    """Runs a trap where it can run and tells; "" or what is not as it should be."""
    term.say(f"{trap.name}: {trap.title}", term.BOLD)
    if isinstance(programs, str) and programs:
        return programs
    if programs:
        term.say(f"  builds: nvcc {' '.join(trap.line(trap.variants[0]))}")
    else:
        term.say(f"  not built: {ready.why_no_nvcc}", term.YELLOW)
    problems = []
    if on_gpu:
        with lock.gpu(ready.gpu.uuid):
            ran = traps.run(trap, programs, "gpu")
        problems.append(tell(trap, ran, trap.detect, f"on {ready.gpu.name}"))
        if not problems[0]:
            found[trap.name] = ran
    elif trap.emulated and "Boost.Context" not in ready.missing:
        try:
            ran = traps.run_emulated(trap, ready)
            problems.append(tell(trap, ran, trap.emulated, "on the emulated device"))
        except term.UserError as error:
            term.say(f"  not run on the emulated device: {error}", term.YELLOW)
    if not on_gpu:
        term.say("  not run: its numbers are times of a GPU, and "
                 + ("one was not asked for" if ready.gpu else "there is none here"), term.YELLOW)
    return "; ".join(filter(None, problems))


def tell(trap, ran, rule, where):
    """The numbers of each variant, and whether the rule tells them apart."""
    if ran.reason:
        return f"{where}, {ran.reason}"
    numbers = next(iter(ran.numbers.values()))
    term.say(f"  {where}:")
    table = term.Table([("", 16)] + [(v, 10) for v in trap.variants] + [("", 1)])
    table.header()
    for name, (_, unit) in numbers.items():
        table.row(["  " + name] + traps.cells(ran.numbers, name) + ["  " + unit])
    problem = ran.problem(trap)
    if not problem:
        term.say(f"  detected by {rule.expression} {rule.op} {learn.short(rule.limit)}: "
                 f"{rule.meaning}", term.GREEN)
    return f"{where}, {problem}" if problem else ""
