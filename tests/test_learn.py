"""learn: texts, hunts that apply, counters that move, and whole grades.

In the default run: what needs no compiler, then every hunt (the planted copy must fail) and every
exercise's counters (the step moves them, its base does not), and three exercises graded from start
to end. With LADDER_FULL=1, all exercises are graded from start to end, in some ten minutes.
"""
import collections
import importlib
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from unittest import mock

from support import ROOT, Sandbox
from tools.lib import build, child, device, front, learn, learn_grade, measure, setup, steps

FULL = bool(os.environ.get("LADDER_FULL"))
GRADED = ("02", "10", "18")  # without LADDER_FULL
# These go round every ring and give a persistent block several tiles.
HUNTED = [(128, 256, 768), (640, 512, 128)]

EXERCISE = """\
---
size: 64
moves: mma_flops > 0  # FLOP on the Tensor Cores
---
# Exercise 10: double buffering

Do it.

## Hint 1
one

## Hint 2
two

## Hint 3
three
"""
HUNT = """\
# a comment
hunt: too small
hint: one
hint: two
hint: three
- BLOCK_M = 64;
+ BLOCK_M = 32;

hunt: no constant
hint: one
hint: two
hint: three
- constexpr int BLOCK_K
"""


class Command(Sandbox):
    def setUp(self):
        super().setUp()
        self.folder = self.root / "steps" / "10_double_buffer"
        (self.folder / "exercise.md").write_text(EXERCISE)
        (self.folder / "hunts").write_text(HUNT)
        (self.root / "steps" / "03_smem_tile" / "tile.h").write_text("// of the base\n")

    def test_exercise(self):
        done = self.ladder("learn", "exercise", "10")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Do it.", done.stdout)
        self.assertNotIn("three", done.stdout)
        mine = self.root / "work" / "10_exercise"
        head = (mine / "kernel.cu").read_text().splitlines()
        self.assertTrue(head[0].startswith("// 10_exercise: the kernel of 03_smem_tile"))
        self.assertEqual(head[1:4], ["// base: 03_smem_tile", "// arch: 80+", "// unit: mma_sync"])
        self.assertNotIn("three", (mine / "TASK.md").read_text())
        self.assertTrue((mine / "tile.h").exists())
        self.assertEqual(self.ladder("learn", "exercise", "10", "--hint", "3").stdout, "three\n")
        self.assert_one_line_error(self.ladder("learn", "exercise", "10"), "--again")
        (mine / "kernel.cu").write_text("my work")
        self.assertEqual(self.ladder("learn", "exercise", "10", "--again").returncode, 0)
        self.assertEqual((mine / "kernel.cu.before").read_text(), "my work")

    def test_hunt(self):
        self.assertEqual(self.ladder("learn", "hunt", "10").returncode, 0)
        self.assertIn("BLOCK_M = 32;", (self.root / "work/10_hunt1/kernel.cu").read_text())
        self.assertEqual(self.ladder("learn", "hunt", "10").returncode, 0)  # the next one
        text = (self.root / "work/10_hunt2/kernel.cu").read_text()
        self.assertNotIn("BLOCK_K", text)
        self.assertNotIn("K of a tile", text)  # nor its comment
        self.assertEqual(self.ladder("learn", "hunt", "10", "--hint", "2").stdout, "two\n")
        listed = self.ladder("learn", "list").stdout
        self.assertIn("2 mistakes  (in work/: 10_hunt1 10_hunt2)", listed)
        self.assertIn("exercise 10  double buffering\n", listed)

    def test_hunt_in_a_header(self):
        (self.folder / "tile.h").write_text("int tile();  // here\n")
        (self.folder / "hunts").write_text(HUNT.replace("constexpr int BLOCK_K", "int tile();"))
        self.assertEqual(self.ladder("learn", "hunt", "10", "--seed", "2").returncode, 0)
        mine = self.root / "work" / "10_hunt2"
        self.assertEqual((mine / "tile.h").read_text(), "\n")
        self.assertIn("a header beside it", (mine / "TASK.md").read_text())
        self.assertIn("changed: nothing yet", self.ladder("learn", "grade", "10_hunt2").stdout)
        (mine / "tile.h").write_text("int tile();\n")
        self.assertNotIn("nothing yet", self.ladder("learn", "grade", "10_hunt2").stdout)
        again = self.ladder("learn", "hunt", "10", "--seed", "2", "--again")
        self.assertEqual(again.returncode, 0)
        self.assertEqual((mine / "tile.h.before").read_text(), "int tile();\n")

    def test_untouched(self):
        self.ladder("learn", "exercise", "10")
        self.ladder("learn", "hunt", "10")
        for what in ("10_exercise", "10_hunt1", "work/10_hunt1/"):
            done = self.ladder("learn", "grade", what)
            self.assertEqual(done.returncode, 1)
            self.assertIn("FAIL  changed: nothing yet", done.stdout)
            self.assertIn("does not pass yet: changed", done.stderr)

    def graded(self, **environment):
        """Grades 10_exercise on a machine with a GPU, all of stand-ins."""
        (self.folder / "exercise.md").write_text(EXERCISE.replace("> 0  #", "== 0  #"))
        self.ladder("learn", "exercise", "10", "--again")
        kernel = self.root / "work" / "10_exercise" / "kernel.cu"
        kernel.write_text(kernel.read_text() + "// mine\n")
        self.fake_gpu()
        program = Path(self.env["LADDER_BIN"]) / "10_exercise"
        program.write_text(f"#!{sys.executable}\nimport os, sys\n"
                           f"sys.path.insert(0, {str(ROOT / 'tests')!r})\nimport fake_program\n"
                           "rows = fake_program.bench_rows\n"
                           "ratio = float(os.environ.get('RATIO', '1'))\n"
                           "if sys.argv[1] == 'bench' and 'ONLY_BENCH' in os.environ:\n"
                           "    os.environ['FAKE_10_exercise'] = os.environ['ONLY_BENCH']\n"
                           "fake_program.bench_rows = lambda *a: ({**r, 'vs_previous': ratio}\n"
                           "                                      for r in rows(*a))\n"
                           "fake_program.main('10_exercise', sys.argv[1:])\n")
        program.chmod(0o755)
        self.env.update(environment)
        return self.ladder("learn", "grade", "10")

    def test_speed(self):
        done = self.graded(RATIO="0.93")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        stages = re.findall(r"^  (\w+) +(\w[\w ]*):", done.stdout, re.M)
        self.assertEqual(stages, [("ok", s) for s in (
            "builds", "builds", "right", "no report", "counter", "right", "speed")])
        self.assertIn("93 % of 10_double_buffer at 4096, burst", done.stdout)

    def test_too_slow(self):
        done = self.graded(RATIO="0.89")
        self.assertEqual(done.returncode, 1)
        self.assertIn("89 % of 10_double_buffer at 4096, burst, side by side; must be 90 %",
                      done.stdout)
        self.assertIn("does not pass yet: speed", done.stderr)

    def test_not_timed(self):
        done = self.graded(ONLY_BENCH="too slow")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("skip  speed: not measured: 4096x4096x4096/burst", done.stdout)

    def test_wrong(self):
        done = self.graded(FAKE_10_exercise="wrong")
        self.assertEqual(done.returncode, 1)
        self.assertIn("FAIL  right: wrong result: wrong at 128x96x64", done.stdout)

    def test_errors(self):
        for arguments, words in [
                (("grade", "10"), "nothing of 10"), (("exercise", "03"), "have one: 10"),
                (("hunt", "03"), "these have: 10"), (("grade", "x"), "12_hunt1"),
                (("exercise",), "which one?"), (("hunt", "10", "--seed", "0"), "--seed"),
                (("exercise", "99"), "99"), (("play", "10"), "invalid choice")]:
            with self.subTest(arguments):
                self.assert_one_line_error(self.ladder("learn", *arguments), words)
        self.ladder("learn", "exercise", "10")
        self.ladder("learn", "hunt", "10")
        self.assert_one_line_error(self.ladder("learn", "grade", "10"), "10_exercise 10_hunt1")

    def test_broken_files(self):
        for file, text, words in [
                ("exercise.md", "no front matter", "between ---"),
                ("exercise.md", EXERCISE.replace("> 0  #", "grows  #"), "is no rule"),
                ("exercise.md", EXERCISE.replace("## Hint 3", "## Hin 3"), "three hints"),
                ("hunts", "- what", "begin with 'hunt: NAME'"),
                ("hunts", HUNT.replace("hint: two\n", ""), "three hints"),
                ("hunts", HUNT.replace("BLOCK_M = 64", "int"), "times, not once")]:
            with self.subTest(words):
                kept = (self.folder / file).read_text()
                (self.folder / file).write_text(text)
                action = "hunt" if file == "hunts" else "exercise"
                self.assert_one_line_error(self.ladder("learn", action, "10"), words)
                self.assertFalse((self.root / "work").exists())
                (self.folder / file).write_text(kept)


class Rules(unittest.TestCase):
    def judge(self, text, counters, start):
        return learn.rule(text, "here").judge(counters, start)

    def test_against_the_start(self):
        text = "a + b / c <= 0.5 x start  # so many"
        self.assertTrue(self.judge(text, {"a": 1, "b": 1, "c": 2}, {"a": 4, "c": 2})[0])
        held, words = self.judge(text, {"a": 3, "b": 1, "c": 2}, {"a": 4, "c": 2})
        self.assertFalse(held)
        self.assertEqual(words, "so many: 2, in the start 2; must be <= 1")
        self.assertFalse(self.judge(text, {"a": 1}, {"a": 4, "c": 2})[0])  # nothing to divide by

    def test_alone(self):
        self.assertTrue(self.judge("a == 0  # none", {}, {"a": 3})[0])
        self.assertFalse(self.judge("a > 0  # some", {}, {})[0])

    def test_split(self):
        """What a check says is told apart: a wrong product, a finding, or both."""
        finding = "1 finding of the emulated device, first: deadlock: here"
        for reason, wrong, found in [
                ("integers: 3 of 8 elements are wrong", True, False),
                (f"integers: {finding}", False, True),
                (f"random normal, the same launch again: {finding}", False, True),
                (f"integers: 3 of 8 elements are wrong; {finding}", True, True)]:
            rows = [{"name": "x/8x8x8/check", "right": 0, "reason": reason}]
            ran = child.Result(1, "", "")
            got = learn_grade.split(measure.Outcome(None, {"benchmarks": rows}, reason, ran=ran))
            self.assertEqual((bool(got[0]), bool(got[1])), (wrong, found), (reason, got))


class Texts(unittest.TestCase):
    def test_every_step_has_an_exercise(self):
        have = {e.step.number for e in learn.exercises()}
        there = {s.number for s in steps.everything() if 2 <= s.number <= 29}
        self.assertEqual(there - have, set())

    def test_tasks(self):
        for one in learn.exercises():
            with self.subTest(one.step.id):
                self.assertRegex(one.task, rf"^# Exercise {one.step.id[:2]}: \S")
                self.assertNotIn("```", one.task)  # the idea, not the code
                self.assertIn(f"// arch: {one.step.arch}\n", learn.start_text(one))

    def test_hunts_apply(self):
        found = learn.hunts()
        self.assertGreaterEqual(len(found), 12)
        for one in found:
            with self.subTest(one.id):
                self.assertIn(one.id, one.start_texts()["kernel.cu"])
        numbers = {h.step.number for h in found}
        there = {s.number for s in steps.everything()}
        self.assertEqual(({10, 12, 15, 18, 19} | set(range(21, 30))) & there - numbers, set())


PAGES = ["*.md", "notes/*.md", "steps/*/README.md", "steps/*/exercise.md", ".devcontainer/*.json",
         "notebooks/*.ipynb"]
# Quick, and without a GPU: these are run as they stand there.
RUN = re.compile(r"list$|diff \d\d|learn list$|learn (exercise|hunt) .*--hint|\w+ --help")


def commands_in(text):
    """The `./ladder ...` of a page, without remarks; placeholders filled in."""
    text = re.sub(r"\\n|\\\"", "\n", text)  # of a notebook's strings
    for match in re.finditer(r"(`?)(?:\w+=\S+ )?\./ladder((?:[^`\n#&,;|]|\n(?=[^`\n]*`))*)", text):
        words = match[2]
        if not match[1]:  # a line of a block: ends at a remark behind two spaces, or with the line
            words = re.split(r"\s{2,}|\n|[\"“。，：（）]", words.lstrip(" "))[0]
        words = re.sub(r"\bNN(_idea)?\b|\bSTEP\b", "10", " ".join(words.split()))
        words = words.replace("`", "").rstrip(" .:")
        if words and "..." not in words and "COMMAND" not in words and "…" not in words:
            yield words


class Documentation(unittest.TestCase):
    """Every command that a page shows is one that the front door takes."""

    @classmethod
    def setUpClass(cls):
        cls.found = {}
        for page in sorted(itertools.chain(*(ROOT.glob(pattern) for pattern in PAGES))):
            for words in commands_in(page.read_text(encoding="utf-8")):
                cls.found.setdefault(words, str(page.relative_to(ROOT)))

    def test_some_are_found(self):
        self.assertGreater(len(self.found), 60)
        for words in ("run", "learn grade 11", "check 01-06 --device emulated", "doctor",
                      "export 23 --shared"):
            self.assertIn(words, self.found)

    def test_known(self):
        known = front.commands()
        for words, page in self.found.items():
            with self.subTest(f"{page}: ./ladder {words}"):
                name, *rest = shlex.split(words)
                if name in ("--help", "help"):
                    continue
                self.assertIn(name, known)
                if not rest or "--help" in rest:
                    continue  # a command's name
                module = importlib.import_module(f"tools.{name}")
                parser = front.parser(name)
                module.arguments(parser)
                passed_on = getattr(module, "PASS_ON", None)
                args = parser.parse_args([w for w in rest
                                          if not (passed_on and w.startswith(passed_on))])
                self.assert_steps(args)

    def assert_steps(self, args):
        chosen = getattr(args, "steps", None) or getattr(args, "step", None) or []
        for word in [chosen] if isinstance(chosen, str) else chosen:
            numbers = [int(n) for n in re.findall(r"\d+", str(word))]
            if not any(26 <= n for n in numbers) and "/" not in str(word) and "=" not in str(word):
                steps.select([str(word)])

    def test_run(self):
        """Those that are quick, as they stand."""
        jobs = [words for words in self.found if RUN.match(words)
                and not re.search(r"\b(2[6-9]|[34]\d)\b", words)]  # forks, and steps to come
        self.assertGreater(len(jobs), 5)

        def run(words):
            return child.run([sys.executable, ROOT / "ladder", *shlex.split(words)], limit=60,
                             cwd=ROOT, env={"LADDER_NO_INSTALL": "1", "NO_COLOR": "1"})

        for words, done in child.side_by_side(jobs, run):
            with self.subTest(words):
                self.assertEqual(done.code, 0, done.err)

    def test_notebook(self):
        book = json.loads((ROOT / "notebooks/t4.ipynb").read_text(encoding="utf-8"))
        self.assertEqual(book["nbformat"], 4)
        for cell in book["cells"]:
            self.assertEqual(cell.get("outputs", []), [])  # no number that nobody can trace

    def test_links(self):
        """What these pages point to is there."""
        for page in [*ROOT.glob("*.md"), *(ROOT / "notes" / n for n in (
                "workshop.md", "troubleshooting.md", "article.md"))]:
            for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
                with self.subTest(f"{page.name}: {target}"):
                    self.assertTrue((page.parent / target).exists())


class SharedExport(Sandbox):
    def test_name(self):
        self.assert_one_line_error(self.ladder("export", "03", "--shared", "-o", "0.cu"), "-o 0.cu")

    def test_library(self):
        """Compiled, loaded, and refusing what it must, all without a GPU and without torch."""
        tool, why = device.toolkit()
        if not tool:
            self.skipTest(why)
        step = steps.one("23") if any(s.number == 23 for s in steps.everything()) else None
        if not step:
            self.skipTest("there is no step 23")
        with tempfile.TemporaryDirectory(prefix="ladder-test-") as folder:
            command = [sys.executable, ROOT / "ladder", "export", "23", "--shared", "-o", "mine.cu"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout.strip(), "mine.cu, mine.py, libmine.so")
            self.assertLess(len((Path(folder) / "mine.py").read_text().splitlines()), 50)
            done = subprocess.run([sys.executable, "-c", CALLER], cwd=folder, capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("nearest legal size is 1x8x8", done.stdout)
            self.assertIn("contiguous FP16", done.stdout)


CALLER = """
import mine
class Tensor:
    def __init__(self, kind, *shape):
        self.shape = shape
        self.__cuda_array_interface__ = {"typestr": kind, "shape": shape, "data": (0, False)}
for kind, n in (("<f2", 3), ("<f4", 8)):
    try:
        mine.Gemm(Tensor("<f2", 1, 8), Tensor("<f2", 8, n), Tensor(kind, 1, n))
    except ValueError as error:
        print(error)
"""


def wrong(text):
    """A reference step that leaves out the last row: faster, and wrong."""
    head, last, rest = text.rpartition("REGISTER_STEP(")
    return head + """\
static Launch prepare_less(const Problem& p) {
  Problem less = p;
  less.M = std::max<int64_t>(1, p.M - 1);
  return prepare(less);
}
""" + last + rest.replace(" prepare", " prepare_less", 1)


def unchanged(text):
    return text.replace("#include", "// my solution\n#include", 1)


class Remembered:
    """measure.check, which asks a program once for the same: a step that many are compared with."""

    def __init__(self, check):
        self.check, self.known, self.locks = check, {}, collections.defaultdict(threading.Lock)

    def __call__(self, step, device, size_list=(), seed=None, limit=None):
        key = step.id, tuple(size_list), seed
        with self.locks[key]:
            if key not in self.known:
                self.known[key] = self.check(step, device, size_list, seed, limit=limit)
        return self.known[key]


class OnTheEmulatedDevice(unittest.TestCase):
    """Real builds, in build/emulated; copies go to build/learn, as those of `learn grade`."""

    @classmethod
    def setUpClass(cls):
        with mock.patch.dict(os.environ, {"LADDER_NO_INSTALL": "1"}):
            cls.ready = setup.ready()
        if gone := {"cmake", "ninja", "g++", "Boost.Context"} & cls.ready.missing.keys():
            raise unittest.SkipTest(f"{', '.join(sorted(gone))} missing")
        remembered = mock.patch.object(measure, "check", Remembered(measure.check))
        remembered.start()
        cls.addClassCleanup(remembered.stop)
        learn_grade.clear()
        cls.hunts = learn.hunts()
        cls.exercises = learn.exercises()
        cls.graded = [e for e in cls.exercises if FULL or e.step.id[:2] in GRADED]
        cls.copies = {}
        for one in cls.hunts:
            texts = one.start_texts()
            copy = cls.copies[one.id] = learn_grade.copy(one, texts["kernel.cu"])
            learn.copy_included(one.step.folder, copy.folder)
            for file in texts.keys() - {"kernel.cu"}:
                (copy.folder / file).write_text(texts[file], encoding="utf-8")
        for one in cls.graded:
            reference = one.step.kernel.read_text(encoding="utf-8")
            for name, text in [("wrong", wrong(reference)), ("reference", reference),
                               ("unchanged", unchanged(learn.start_text(one)))]:
                copy = learn_grade.copy(one, text, f"{one.step.id[:2]}_{name}")
                learn.copy_included((one.base if name == "unchanged" else one.step).folder,
                                    copy.folder)
                cls.copies[copy.id] = copy
        needed = {s.id for e in cls.exercises for s in (e.step, e.base)}
        cls.failed = build.build(cls.ready, "emulated", [*cls.copies, *sorted(needed)],
                                 extra=learn_grade.FOLDER, quiet=True)

    @classmethod
    def tearDownClass(cls):
        learn_grade.clear()

    def test_builds(self):
        self.assertEqual(self.failed, {})

    def test_hunts(self):
        """The planted copy fails where the original passes."""
        jobs = [(one, step) for one in self.hunts for step in (self.copies[one.id], one.step)]
        for (one, step), why in child.side_by_side(jobs, lambda job: self.why_not(*job)):
            with self.subTest(f"{one.id}, {one.name}", step=step.id):
                if step is one.step:
                    self.assertEqual(why, "")
                else:
                    self.assertNotEqual(why, "")

    def why_not(self, one, step):
        """What grade has against it, at few shapes instead of the step's list; "" if nothing."""
        for size in [*one.sizes, *HUNTED]:  # where the mistake shows, first
            if why := measure.check(step, "emulated", [size], 1, limit=100).reason:
                return why
        row = next(learn_grade.counters(one, step))
        return row[2] if row[1] == learn_grade.FAIL else ""

    def test_counters(self):
        """Each exercise's counters tell the step from its base."""
        def judged(one):
            got, start = (learn_grade.counted(s, one.size) for s in (one.step, one.base))
            return ([r.judge(got, start) for r in one.moves],
                    [r.judge(start, start)[0] for r in one.moves])

        for one, (step, base) in child.side_by_side(self.exercises, judged):
            with self.subTest(one.step.id):
                self.assertEqual([words for held, words in step if not held], [])
                self.assertFalse(all(base), "the start itself passes")

    def test_grades(self):
        """The step passes; a fast but wrong and a right but unchanged one fail, for that reason."""
        jobs = [(e, name) for e in self.graded for name in ("reference", "wrong", "unchanged")]

        def grade(job):
            one, name = job
            return list(learn_grade.emulated(one, self.copies[f"{one.step.id[:2]}_{name}"]))

        for (one, name), rows in child.side_by_side(jobs, grade):
            with self.subTest(f"{one.step.id}, {name}"):
                stage, state, words, _ = rows[-1]
                expected = {"reference": ("counter", "ok"), "wrong": ("right", "FAIL"),
                            "unchanged": ("counter", "FAIL")}[name]
                # A base may take fewer shapes than the step: then it is not right at all of them.
                if name == "unchanged" and stage == "right":
                    expected = ("right", "FAIL")
                    self.assertIn("multiple", words)
                self.assertEqual((stage, state), expected, words)


if __name__ == "__main__":
    unittest.main()
