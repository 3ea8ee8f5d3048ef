"""The suite: shapes of many kinds (tools/suite.txt), a step beside cuBLAS at each. A few child
processes, one per group; a shape that fails is one red row, and the others are measured again."""
import math
import re
from dataclasses import dataclass
from pathlib import Path

from . import build, files, lock, measure, paths, results, sizes, source, term

FILE = Path(__file__).resolve().parents[1] / "suite.txt"
KEPT = paths.RECORDED / "suite"
# Only cuBLAS runs beside the step: no base takes these problems, and three contenders take less
# time than five.
AGAINST = ("--against", "cublas")


@dataclass(frozen=True)
class Problem:
    group: str
    size: tuple
    sustained: bool
    says: str


def problems(file=FILE):
    found = []
    for number, line in enumerate(Path(file).read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:
            raise term.UserError(f"{paths.shown(file)}:{number}: needs a group and a size")
        sustained = words[2:3] == ["sustained"]
        found.append(Problem(words[0], sizes.parse_one(words[1]), sustained,
                             " ".join(words[3 if sustained else 2:])))
    return found


def select(words):
    """Those of the groups named, "cubes,llm"; all where none is."""
    found = problems()
    known = groups(found)
    for word in words.split(",") if words else []:
        if word not in known:
            raise term.UserError(f"the suite has no group '{word}': {', '.join(known)}")
    return [p for p in found if not words or p.group in words.split(",")]


def groups(chosen):
    """{group: its problems}, in the order of the file."""
    found = {}
    for problem in chosen:
        found.setdefault(problem.group, []).append(problem)
    return found


def of_group(size):
    """The group of a size, "" for one that is not in the suite."""
    return next((p.group for p in problems() if p.size == size), "")


def time_limit(size_list, regimes):
    """Seconds: far above what a sound child needs, near enough to end a hang."""
    work = sum(map(sizes.flops, size_list))
    return 30 + 8 * len(size_list) * len(regimes) + work / 2e11


def better(row):
    """How many times as fast as the better of default and best cuBLAS; None where neither is."""
    found = [row.get(c) for c in ("vs_cublas_default", "vs_cublas_best") if row.get(c)]
    return min(found) if found else None


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


@dataclass
class Summary:
    regime: str
    count: int
    geomean: float  # of the ratio to the better of the two
    geomean_default: float
    least: float
    where: tuple  # its size
    slow: int  # below .90


def summary(data, regime, subject, group=None):
    """Of a file's rows in one regime; None where there are none."""
    rows = [row for row in data.rows.values() if row.subject == subject and row.regime == regime
            and better(row) and (group is None or of_group(row.size) == group)]
    if not rows:
        return None
    least = min(rows, key=better)
    against_default = [row.get("vs_cublas_default") for row in rows if row.get("vs_cublas_default")]
    return Summary(regime, len(rows), geomean([better(row) for row in rows]),
                   geomean(against_default) if against_default else float("nan"), better(least),
                   least.size, sum(better(row) < 0.9 for row in rows))


class Session:
    """Measures the suite. `children` and `failures` as session.Session has them."""

    def __init__(self, setup, step, chosen, regimes, limit=None, commit=None, after_each=None):
        self.setup, self.step, self.chosen, self.regimes = setup, step, chosen, regimes
        self.limit, self.after_each = limit, after_each
        self.commit, self.dirty = commit if commit else source.state()
        self.children, self.failures = [], []

    def merged(self):
        return results.merge(self.children)

    def run(self, skip=lambda size, regime: False):
        """Builds, measures, shows; returns the exit code."""
        failed = build.build(self.setup, "gpu", [self.step.id]).get(self.step.id)
        if failed:
            raise term.UserError(f"{self.step.id}: {failed}", 1)
        term.say(f"\n{self.step.id}, {len(self.chosen)} problems, C[M][N] = A[M][K] * B[K][N]\n"
                 f"{self.setup.gpu.name}", term.BOLD)
        self.table = term.Table([("problem", 30), ("regime", 9), ("time", 8), ("TFLOPS", 7),
                                 ("x default", 9), ("x best", 7)])
        self.table.header()
        with lock.gpu(self.setup.gpu.uuid):
            for group in groups(self.chosen).values():
                for regime in self.regimes:
                    size_list = [p.size for p in group if regime == "burst" or p.sustained]
                    size_list = [size for size in size_list if not skip(size, regime)]
                    while size_list:
                        size_list = self._child(size_list, regime)
        if self.children:
            self.tell(self.merged())
        if self.failures:
            term.error(f"{len(self.failures)} problems not measured: "
                       + ", ".join(sizes.short(size) for size, _ in self.failures))
        return 1 if self.failures else 0

    def _child(self, size_list, regime):
        """One process; what is still to be measured after it."""
        limit = self.limit or time_limit(size_list, [regime])
        outcome = measure.bench(self.step, size_list, [regime], self.commit, self.dirty, AGAINST,
                                term.Progress(), limit)
        if not outcome.ok:
            size = culprit(outcome, size_list)
            self.failures.append((size, outcome.reason))
            self.table.failed(sizes.text(size), f"{regime}: {outcome.reason}")
            return [other for other in size_list if other != size]
        for line in outcome.left_out:
            self.table.failed(line.split("/")[0], "left out: " + line, term.DIM)
        found = outcome.results
        found.context["left_out"] = [f"{self.step.id}: {line}" for line in outcome.left_out]
        for size in size_list:
            row = found.find(self.step.id, size, regime)
            if not row:
                continue
            row.words.update(unit=self.step.unit)
            row.words.setdefault("commit", self.commit)
            row.words.setdefault("date", str(found.context.get("date", ""))[:10])
            self.table.row(cells(row))
        self.children.append(found)
        if self.after_each:
            self.after_each(self)
        return []

    def tell(self, data):
        term.say()
        table = term.Table([("group", 8), ("regime", 9), ("n", 3), ("x default", 9),
                            ("x better", 8), ("least", 6), ("where", 29)])
        table.header()
        for regime in self.regimes:
            for group in [*groups(self.chosen), None]:
                found = summary(data, regime, self.step.id, group)
                if found:
                    table.row([group or "all", regime, found.count,
                               term.number(found.geomean_default, 3),
                               term.number(found.geomean, 3), term.number(found.least, 3),
                               sizes.short(found.where)], None if group else term.BOLD)
        term.say("x: times as fast as cuBLAS (geometric means): its default algorithm, the best\n"
                 "of 16, and the better of these two.", term.DIM)


def cells(row):
    return [sizes.short(row.size), row.regime, term.duration(row.seconds).replace(" ", ""),
            term.tflops(row.get("tflops")), term.number(row.get("vs_cublas_default"), 3),
            term.number(row.get("vs_cublas_best"), 3)]


def culprit(outcome, size_list):
    """At which size a child failed: as it says, else the first of which it has not told a rate."""
    said = re.search(r"(?:wrong )?at (\d+x\d+x\d+(?:/[\w.-]+)?),", outcome.reason)
    if said:
        for size in size_list:
            if sizes.text(size) == said[1]:
                return size
    told = outcome.ran.out if outcome.ran else ""
    for size in size_list:
        if not re.search(rf"(^| ){re.escape(sizes.text(size))}/(burst|sustained)[: ]", told, re.M):
            return size
    return size_list[-1]


def bench(setup, step, chosen, regimes, limit, folder):
    """`./ladder bench STEP --suite`."""
    target = files.writable_folder(folder) / "suite.json"
    run = Session(setup, step, chosen, regimes, limit,
                  after_each=lambda s: results.save(s.merged(), target))
    return run.run(), target if run.children else None


# ---- for a page --------------------------------------------------------------------------------

def markdown(data, subject):
    """A table of a file's rows, a line per problem."""
    lines = ["| problem | burst: TFLOPS | × default | × best | sustained: TFLOPS | × default "
             "| × best |", "|---|---|---|---|---|---|---|"]
    done = []
    for problem in problems():
        rows = [data.find(subject, problem.size, regime) for regime in results.REGIMES]
        if not any(rows):
            continue
        done.append(problem.size)
        cell = [sizes.short(problem.size) + (f" ({problem.says})" if problem.says else "")]
        for row in rows:
            cell += [term.tflops(row.get("tflops")), term.number(row.get("vs_cublas_default"), 3),
                     term.number(row.get("vs_cublas_best"), 3)] if row else ["", "", ""]
        lines.append("| " + " | ".join(cell) + " |")
    for regime in results.REGIMES:
        if found := summary(data, regime, subject):
            lines += ["", f"{regime}: {found.count} problems, geometric mean of the ratio to "
                      f"cuBLAS' default {found.geomean_default:.3f}, to the better of default and "
                      f"best **{found.geomean:.3f}**; least {found.least:.3f} at "
                      f"{sizes.short(found.where)}; {found.slow} below .90."]
    return "\n".join(lines)
