"""learn trap: texts, the rule that tells wrong from right, builds, and what is recorded."""
import json
import re
import shutil
import sys
import unittest

from support import ROOT, Sandbox
from tools.lib import child, setup, traps

TEXT = """\
---
detect: gap >= 10  # us between kernels
---
# Too slow

**What people write.** This.

<!-- trap:begin -->
<!-- trap:end -->
"""
# Stands for nvcc: makes a program that prints the number that the test has set for the variant.
NVCC = """#!{python}
import os, sys
if "--version" in sys.argv:
    print("Cuda compilation tools, release 13.0, V13.0.1")
    sys.exit()
if os.environ.get("FAKE_NVCC"):
    print("trap.cu(3): error: " + os.environ["FAKE_NVCC"], file=sys.stderr)
    sys.exit(1)
program = sys.argv[sys.argv.index("-o") + 1]
with open(program, "w") as file:
    file.write("#!/bin/sh\\n" + 'eval "$(printenv TRAP_$1)"\\n')
os.chmod(program, 0o755)
"""


class Command(Sandbox):
    def setUp(self):
        super().setUp()
        folder = self.root / "traps" / "too_slow"
        folder.mkdir(parents=True)
        (folder / "trap.cu").write_text("// too_slow: x\n// nvcc -arch=native -o trap x.cu\n")
        (folder / "text.md").write_text(TEXT)
        self.page = folder / "text.md"
        self.env.pop("LADDER_COMMIT", None)
        self.env.update(TRAP_wrong="echo gap: 12.5 us", TRAP_right="echo gap: 1 us")

        self.nvcc()

    def nvcc(self):
        self.script("nvcc", NVCC.format(python=sys.executable))
        home = self.root / "cuda" / "bin"
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / "fake" / "nvcc", home / "nvcc")
        self.env["CUDA_HOME"] = str(self.root / "cuda")

    def gpu(self):
        self.fake_gpu()
        self.nvcc()

    def test_detected(self):
        self.gpu()
        done = self.ladder("learn", "trap", "too-slow")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("**What people write.** This.", done.stdout)
        self.assertNotIn("<!--", done.stdout)
        self.assertRegex(done.stdout, r"gap +12\.5 +1 +us")
        self.assertIn("detected by gap >= 10: us between kernels", done.stdout)

    def test_not_detected(self):
        self.gpu()
        self.env["TRAP_wrong"] = "echo gap: 9 us"
        done = self.ladder("learn", "trap", "all")
        self.assertEqual(done.returncode, 1)
        self.assertIn("too_slow: on Fake GPU, wrong was not detected", done.stderr)
        self.assertNotIn("detected by", done.stdout)

    def test_right_accused(self):
        self.gpu()
        self.env["TRAP_right"] = "echo gap: 10 us"
        done = self.ladder("learn", "trap", "too_slow")
        self.assertEqual(done.returncode, 1)
        self.assertIn("right was taken for wrong", done.stderr)

    def test_number_missing_or_crash(self):
        self.gpu()
        for says, words in [("echo other: 1 us", "wrong was not detected"),
                            ("echo error: no memory >&2; exit 3", "wrong: no memory")]:
            with self.subTest(says):
                self.env["TRAP_wrong"] = says
                done = self.ladder("learn", "trap", "all")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_does_not_build(self):
        self.gpu()
        self.env["FAKE_NVCC"] = "no such thing"
        done = self.ladder("learn", "trap", "all")
        self.assertEqual(done.returncode, 1)
        self.assertIn("too_slow does not build: trap.cu(3): no such thing", done.stderr)

    def test_without_a_gpu(self):
        done = self.ladder("learn", "trap", "too_slow")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("# Too slow", done.stdout)
        self.assertIn("not run: its numbers are times of a GPU, and there is none here",
                      done.stdout)
        self.assertNotIn("detected by", done.stdout)
        self.assertIn("builds: nvcc", done.stdout)
        self.assert_one_line_error(self.ladder("learn", "trap", "all", "--record"), "no GPU")
        self.assert_one_line_error(self.ladder("learn", "trap", "all", "--device", "gpu"), "no GPU")

    def test_listed(self):
        for command in (("learn", "trap"), ("learn", "list")):
            self.assertRegex(self.ladder(*command).stdout, r"trap too_slow +Too slow\n")
        self.assert_one_line_error(self.ladder("learn", "trap", "too_slo"),
                                   "did you mean too_slow?")

    def test_recorded(self):
        self.gpu()
        self.assert_one_line_error(self.ladder("learn", "trap", "all", "--record"), "clean commit")
        self.assert_one_line_error(self.ladder("learn", "grade", "11", "--record"), "traps alone")
        self.env["LADDER_COMMIT"] = "0123456789abcdef"
        done = self.ladder("learn", "trap", "all", "--record")
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.root / "plots" / "results" / "traps" / "fake-gpu.json"
        kept = json.loads(file.read_text())
        self.assertEqual(kept["context"]["driver"], "580.00")
        self.assertEqual(kept["traps"]["too_slow"], {
            "commit": "0123456789ab",
            "variants": {"wrong": {"gap": [12.5, "us"]}, "right": {"gap": [1.0, "us"]}}})
        self.assertEqual(self.ladder("readme").returncode, 0)
        self.assertIn("| gap | 12.5 | 1 | us |", self.page.read_text())
        self.assertIn("commit 0123456789ab", self.page.read_text())
        # What is not detected is not kept.
        self.env["TRAP_wrong"] = "echo gap: 0 us"
        self.ladder("learn", "trap", "all", "--record")
        self.assertEqual(json.loads(file.read_text()), kept)
        file.write_text("{")
        self.assert_one_line_error(self.ladder("readme"), "no record of traps")

    def test_broken_texts(self):
        for text, words in [("# no front matter\n", "between ---"),
                            (TEXT.replace(">= 10", "grows"), "is no rule"),
                            (TEXT.replace("detect:", "detects:"), "detects"),
                            (TEXT.replace("detect: gap >= 10  # us between kernels", "x: 1"),
                             "'x'")]:
            with self.subTest(words):
                self.page.write_text(text)
                self.assert_one_line_error(self.ladder("learn", "trap"), words)


class Texts(unittest.TestCase):
    def test_all_there(self):
        names = {trap.name for trap in traps.everything()}
        self.assertEqual(names, {
            "sync_in_loop", "blocking_copy", "missing_event", "bank_conflicts", "smem_limit",
            "no_sync_timing", "zeros", "warm_l2", "first_launch", "debug_build"})

    def test_texts(self):
        for trap in traps.everything():
            with self.subTest(trap.name):
                for part in ("What people write", "What happens", "How to see it", "Right",
                             "Prediction"):
                    self.assertEqual(trap.text.count(f"**{part}.**"), 1, part)
                self.assertRegex(trap.text, r"<!-- trap:begin -->\n(?s:.*)<!-- trap:end -->\n")
                for link in re.findall(r"\]\(([^)]+)\)", trap.text):
                    self.assertTrue((trap.page.parent / link).exists(), link)

    def test_sources(self):
        """The number that detects is one that the program prints; the head has the command."""
        for trap in traps.everything():
            with self.subTest(trap.name):
                source = trap.source.read_text()
                self.assertTrue(source.startswith(f"// {trap.name}: "))
                self.assertLessEqual(len(source.splitlines()), 80)
                printed = set(re.findall(r'report\("(\w+)"', source))
                for rule in filter(None, [trap.detect, trap.emulated]):
                    self.assertIn(rule.expression, printed)
                for variant in trap.variants:
                    self.assertIn(f"traps/{trap.name}/trap.cu", trap.line(variant))

    def test_recorded_numbers_are_detected(self):
        files = list(traps.RECORDED.glob("*.json"))
        self.assertTrue(files)
        for file in files:
            data = traps.load(file)
            for name, kept in data["traps"].items():
                with self.subTest(file=file.name, trap=name):
                    ran = traps.Ran("gpu", kept["variants"])
                    self.assertEqual(ran.problem(traps.one(name)), "")
                    self.assertRegex(kept["commit"], r"^[0-9a-f]{12}$")


class Built(unittest.TestCase):
    def setUp(self):
        self.ready = setup.ready()
        if not self.ready.nvcc:
            self.skipTest(self.ready.why_no_nvcc)

    def test_every_trap_compiles(self):
        for trap, made in child.side_by_side(
                traps.everything(), lambda t: traps.compile_all(t, self.ready.nvcc, "sm_75")):
            with self.subTest(trap.name):
                self.assertEqual(list(made), trap.variants)

    def test_debug_build_shows_without_a_gpu(self):
        cuobjdump = shutil.which("cuobjdump") or shutil.which(
            "cuobjdump", path=str(ROOT / self.ready.nvcc).rsplit("/", 1)[0])
        if not cuobjdump:
            self.skipTest("no cuobjdump")
        made = traps.compile_all(traps.one("debug_build"), self.ready.nvcc, "sm_75")
        stack = {}
        for variant, program in made.items():
            out = child.run([cuobjdump, "--dump-resource-usage", program], limit=60).out
            stack[variant] = int(re.search(r"fma_kernel.*\n.*STACK:(\d+)", out)[1])
        self.assertGreater(stack["wrong"], 0)
        self.assertEqual(stack["right"], 0)


class Emulated(unittest.TestCase):
    def test_bank_conflicts(self):
        ready = setup.ready()
        if "Boost.Context" in ready.missing:
            self.skipTest("no Boost.Context")
        trap = traps.one("bank_conflicts")
        ran = traps.run_emulated(trap, ready)
        self.assertEqual(ran.problem(trap), "")
        self.assertEqual(ran.numbers["wrong"]["wavefronts"][0], 32)
        self.assertEqual(ran.numbers["right"]["wavefronts"][0], 1)
        ran.numbers = {"wrong": ran.numbers["right"], "right": ran.numbers["wrong"]}
        self.assertIn("not detected", ran.problem(trap))


if __name__ == "__main__":
    unittest.main()
