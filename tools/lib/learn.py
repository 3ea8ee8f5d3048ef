"""Exercises and bug hunts: their texts live beside the steps, what a learner gets in work/.

steps/NN_idea/exercise.md: front matter (`moves:` what must move, `size:` at which, `shapes: plain`
if only those in FP16, row by row, are asked for), the task, `## Hint 1` to `## Hint 3`.
steps/NN_idea/hunts: blocks of `hunt:`, `hint:`, and lines `- old` / `+ new` that plant a mistake;
`size:` where it shows at none of the shapes that are checked anyway.
"""
import re
import shutil
from dataclasses import dataclass, field

from . import files, paths, sizes, steps
from .term import UserError

WORK = paths.ROOT / "work"
SIZE = (256, 512, 256)  # of the counters: whole tiles for every step, some in both directions


# ---- exercises -----------------------------------------------------------------------------------

@dataclass
class Exercise:
    step: steps.Step
    base: steps.Step
    task: str
    hints: list
    moves: list  # of Rule
    size: tuple = SIZE
    plain: bool = False  # other layouts, types and batches are not asked for

    @property
    def id(self):
        return f"{self.step.id[:2]}_exercise"


@dataclass
class Rule:
    """`a + b / c <= 0.5 x start`: what a counter must come to, by itself or against the start."""
    expression: str
    op: str
    limit: float
    of_start: bool
    meaning: str

    def value(self, counters):
        """None where it divides by a counter that is zero."""
        total = [sum(counters.get(name.strip(), 0) for name in part.split("+"))
                 for part in self.expression.split("/")]
        if len(total) == 1:
            return total[0]
        return total[0] / total[1] if total[1] else None

    def judge(self, counters, start):
        """(whether it holds, in words)."""
        mine, before = self.value(counters), self.value(start)
        if mine is None or (self.of_start and before is None):
            return False, f"{self.meaning}: none counted"
        limit = self.limit * (before if self.of_start else 1)
        held = {"<=": mine <= limit, ">=": mine >= limit, ">": mine > limit,
                "==": mine == limit}[self.op]
        words = f"{self.meaning}: {short(mine)}"
        if self.of_start or before:
            words += f", in the start {short(before or 0)}"
        return held, words + ("" if held else f"; must be {self.op} {short(limit)}")


def short(value):
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:.2f}"


def rule(text, where):
    found = re.fullmatch(r"([a-z_ +/]+?)\s*(<=|>=|==|>)\s*([\d.]+)( x start)?\s*#\s*(.+)", text)
    if not found or found[1].count("/") > 1:
        raise UserError(f"{where}: '{text}' is no rule like 'a + b <= 0.5 x start  # meaning'")
    return Rule(found[1].strip(), found[2], float(found[3]), bool(found[4]), found[5].strip())


def exercises():
    """Of every step that has one, in order."""
    known = {step.id: step for step in steps.everything()}
    return [read_exercise(step, known) for step in known.values()
            if (step.folder / "exercise.md").is_file()]


def exercise(word):
    step = steps.one(word)
    if not (step.folder / "exercise.md").is_file():
        have = " ".join(e.step.id[:2] for e in exercises())
        raise UserError(f"{step.id} has no exercise; these have one: {have}")
    return read_exercise(step, {s.id: s for s in steps.everything()})


def read_exercise(step, known):
    where = paths.shown(step.folder / "exercise.md")
    text = (step.folder / "exercise.md").read_text(encoding="utf-8")
    found = re.fullmatch(r"---\n(.*?)\n---\n(.*)", text, re.S)
    if not found:
        raise UserError(f"{where}: must begin with lines between --- and ---")
    if step.base not in known:
        raise UserError(f"{step.id} has no base to start from")
    task, *hints = re.split(r"^## Hint \d\n", found[2], flags=re.M)
    made = Exercise(step, known[step.base], task.strip(), [h.strip() for h in hints], [])
    for line in found[1].splitlines():
        key, _, value = line.partition(":")
        if key == "moves":
            made.moves.append(rule(value.strip(), where))
        elif key == "size":
            made.size = sizes.parse_one(value)
        elif (key, value.strip()) == ("shapes", "plain"):
            made.plain = True
        else:
            raise UserError(f"{where}: '{line}': moves, size or 'shapes: plain'")
    if len(made.hints) != 3 or not made.moves:
        raise UserError(f"{where}: needs three hints and at least one 'moves:'")
    return made


def start_text(ex):
    """The base's kernel under the exercise's own head."""
    shapes = re.search(r"^// Shapes: .*$", ex.step.kernel.read_text(encoding="utf-8"), re.M)
    head = [f"// {ex.id}: the kernel of {ex.base.id}, to be taken further. The task: TASK.md",
            f"// base: {ex.base.id}", f"// arch: {ex.step.arch}", f"// unit: {ex.step.unit}"]
    if shapes:
        head.append(shapes[0].replace("// Shapes:", "// In the end for these shapes:"))
    return "\n".join(head) + "\n" + body(ex.base.kernel.read_text(encoding="utf-8"))


def body(text):
    """A kernel from its first #include on."""
    return text[text.index("#include"):]


def put_exercise(ex, again=False):
    number = ex.step.id[:2]
    task = (f"{ex.task}\n\nStuck? `./ladder learn exercise {number} --hint 1`, then 2 and 3.\n"
            f"Done? `./ladder learn grade {number}`\n")
    return put(ex.id, ex.base.folder, {"kernel.cu": start_text(ex), "TASK.md": task}, again)


def put(name, headers_of, texts, again):
    target = WORK / name
    if (target / "kernel.cu").exists():
        if not again:
            raise UserError(f"{paths.shown(target)}/kernel.cu is there already: go on with it, or "
                            "start over with --again (it is kept as kernel.cu.before)")
        for file in texts.keys() - {"TASK.md"}:
            (target / file).replace(target / f"{file}.before")
    copy_included(headers_of, target)
    for file, text in texts.items():
        files.write_text(target / file, text)
    return target


def copy_included(folder, target):
    """What a kernel.cu in `folder` may include from beside it: headers, and parts it names."""
    kernel = (folder / "kernel.cu").read_text(encoding="utf-8")
    for file in [*folder.glob("*.h"), *folder.glob("*.cu")]:
        if file.suffix == ".h" or f'#include "{file.name}"' in kernel:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)


# ---- bug hunts -----------------------------------------------------------------------------------

@dataclass
class Hunt:
    step: steps.Step
    seed: int  # 1 for the first of its step
    name: str
    hints: list = field(default_factory=list)
    edits: list = field(default_factory=list)  # (old, new)
    sizes: list = field(default_factory=list)  # to be right at, beside what is checked anyway

    @property
    def id(self):
        return f"{self.step.id[:2]}_hunt{self.seed}"

    def plant(self, texts):
        """Puts the mistake into the files. Each `old` must be in one of them, exactly once."""
        for old, new in self.edits:
            times = sum(text.count(old) for text in texts.values())
            if times != 1:
                raise UserError(f"{self.step.id}, hunt {self.seed}: '{old}' is in its kernel "
                                f"{times} times, not once")
            file, text = next((f, t) for f, t in texts.items() if old in t)
            # Where a statement goes, its comment goes too.
            at, end = text.index(old), text.index(old) + len(old)
            texts[file] = text[:at] + (new + text[end:] if new else text[text.index("\n", end):])

    def start_texts(self):
        """{file: text}: kernel.cu and the headers beside it."""
        texts = {file.name: file.read_text(encoding="utf-8")
                 for file in [self.step.kernel, *sorted(self.step.folder.glob("*.h"))]}
        texts["kernel.cu"] = (
            f"// {self.id}: the kernel of {self.step.id} with one mistake planted. The task: "
            f"TASK.md\n// base: {self.step.id}\n// arch: {self.step.arch}\n"
            f"// unit: {self.step.unit}\n" + body(texts["kernel.cu"]))
        self.plant(texts)
        return texts


def hunts(step=None):
    """All, or those of one step."""
    found = []
    for one in [step] if step else steps.everything():
        if (one.folder / "hunts").is_file():
            found += read_hunts(one)
    return found


def read_hunts(step):
    where = paths.shown(step.folder / "hunts")
    found = []
    for line in (step.folder / "hunts").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(" ")
        if not line.strip() or line.startswith("#"):
            continue
        if key == "hunt:":
            found.append(Hunt(step, len(found) + 1, value.strip()))
        elif not found:
            raise UserError(f"{where}: must begin with 'hunt: NAME'")
        elif key == "hint:":
            found[-1].hints.append(value.strip())
        elif key == "size:":
            found[-1].sizes.append(sizes.parse_one(value.strip()))
        elif key == "-":
            found[-1].edits.append((value.strip(), ""))
        elif key == "+" and found[-1].edits:
            old, new = found[-1].edits[-1]
            found[-1].edits[-1] = (old, (new + "\n" if new else "") + value.strip())
        else:
            raise UserError(f"{where}: '{line}': hunt:, hint:, size:, - or +")
    for hunt in found:
        if not hunt.edits or len(hunt.hints) != 3:
            raise UserError(f"{where}: '{hunt.name}' needs three hints and an edit")
    return found


def hunt(word, seed):
    step = steps.one(word)
    mine = hunts(step)
    if not mine:
        have = " ".join(dict.fromkeys(h.step.id[:2] for h in hunts()))
        raise UserError(f"{step.id} has no hunt; these have: {have}")
    if seed is None:  # the first that is not in work/ yet
        free = [h for h in mine if not (WORK / h.id / "kernel.cu").exists()]
        return (free or mine)[0]
    return mine[(seed - 1) % len(mine)]


HUNT_TASK = """\
# Bug hunt {id}

This is the kernel of {step} with one mistake in how it waits, signals, counts or addresses{where}.
Most of such mistakes give the right product on most runs, or hang a GPU. Find it and mend it,
without making the kernel wait more than it must (and without looking at the original).

1. `./ladder learn grade {id}` runs your copy on the emulated device and shows what it finds:
   where, which thread, which buffer and stage, and what the access should have waited for.
2. With `--trace-report` the first report tells what happened to that buffer before.
3. Stuck? `./ladder learn hunt {number} --seed {seed} --hint 1`, then 2 and 3.
"""


def put_hunt(one, again=False):
    texts = one.start_texts()
    where = " (perhaps in a header beside it)" if len(texts) > 1 else ""
    task = HUNT_TASK.format(id=one.id, step=one.step.id, number=one.step.id[:2], seed=one.seed,
                            where=where)
    return put(one.id, one.step.folder, {**texts, "TASK.md": task}, again)


# ---- what is in work/ ----------------------------------------------------------------------------

def find(word):
    """The Exercise or Hunt that a learner means by 11, 12_hunt1 or work/11_exercise."""
    name = word.rstrip("/").rsplit("/", 1)[-1]
    found = re.fullmatch(r"(\d\d?)(?:_?(exercise|hunt)(\d*))?", name)
    if not found:
        raise UserError(f"'{word}': grade takes 11 (or 11_exercise) or 12_hunt1")
    number, kind = f"{int(found[1]):02}", found[2] or ""
    there = sorted(p.parent.name for p in WORK.glob(f"{number}_{kind}{found[3] or ''}*/kernel.cu")
                   if re.fullmatch(r"\d\d_(exercise|hunt\d+)", p.parent.name))
    if not there:
        raise UserError(f"nothing of {number} is in {paths.shown(WORK)}/ yet: ./ladder learn "
                        f"exercise {number} or ./ladder learn hunt {number}")
    if len(there) > 1:
        raise UserError(f"which one? {' '.join(there)}")
    name = there[0]
    if name.endswith("_exercise"):
        return exercise(number)
    return hunt(number, int(name.partition("_hunt")[2]))
