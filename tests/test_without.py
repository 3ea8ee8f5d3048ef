"""without: what it takes, and that every part of every step can be left out and still builds."""
import json
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT, Sandbox
from tools import without
from tools.lib import results, steps, term

KERNEL = "load(a);\nload(b);\nstore(c);\n"
GOOD = """# words
without: a
says: loads of A
- load(a);
+ ;

without: both
says: all loads
- load(a);
+ ;
- load(b);
+ ;
"""


class Format(unittest.TestCase):
    def test_parts(self):
        found = without.parse(GOOD, KERNEL, "x")
        self.assertEqual([part.name for part in found], ["a", "both"])
        self.assertEqual(without.left_out(KERNEL, found[1]), ";\n;\nstore(c);\n")

    def test_what_it_refuses(self):
        for wrong, line in ((GOOD.replace("- load(b);", "- load(x);"), "x:11"),
                            (GOOD.replace("- load(b);", "- load("), "x:11"),
                            (GOOD.replace("says: all loads\n", ""), "says"),
                            (GOOD + "- store(c);\n", "every part"), ("- load(a);\n", "x:1"),
                            (GOOD + "words\n", "x:13"), ("# nothing\n", "every part")):
            with self.assertRaises(term.UserError) as raised:
                without.parse(wrong, KERNEL, "x")
            self.assertIn(line, str(raised.exception))


class Steps(unittest.TestCase):
    def test_every_part_builds(self):
        """With the emulated device's headers, for the syntax; nvcc sees them when they are run."""
        having = [s for s in steps.everything() if (s.folder / "without").is_file()]
        self.assertTrue(having)
        if not shutil.which("g++"):
            self.skipTest("no g++")
        for step in having:
            kernel = step.kernel.read_text(encoding="utf-8")
            for part in without.parts_of(step):
                with self.subTest(step.id, part=part.name), tempfile.TemporaryDirectory() as tmp:
                    file = Path(tmp) / "kernel.cpp"
                    file.write_text(without.left_out(kernel, part))
                    done = subprocess.run(
                        ["g++", "-std=c++20", "-fsyntax-only", "-DLADDER_EMULATED", f"-I{ROOT}",
                         file], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr[:2000])


class Command(Sandbox):
    COPY = "03_smem_tile-without-bounds"

    def setUp(self):
        super().setUp()
        self.fake_gpu()
        (self.root / "steps/03_smem_tile/without").write_text(
            "without: bounds\nsays: all bounds\n- BLOCK_M = 64\n+ BLOCK_M = 1\n")
        program = self.root / "bin" / self.COPY
        program.write_text((self.root / "bin/03_smem_tile").read_text().replace(
            "03_smem_tile", self.COPY))
        program.chmod(0o755)

    def test_record(self):
        for sizes in ("4096", "8192"):  # the second adds to what the first has kept
            done = self.ladder("without", "03", "--sizes", sizes, "--record", "--commit", "abc")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        text = (self.root / f"build/without/{self.COPY}/kernel.cu").read_text()
        self.assertIn("constexpr int BLOCK_M = 1;", text)
        self.assertIn("// base: 03_smem_tile", text)
        data = results.load(self.root / "plots/results/without/fake-gpu/03_smem_tile.json")
        for size in (4096, 8192):
            self.assertTrue(data.find(self.COPY, (size,) * 3, "burst"))

    def test_rows_of_another_driver_or_method_are_not_lost(self):
        record = ("without", "03", "--sizes", "4096", "--record", "--commit", "abc")
        self.ladder(*record)
        file = self.root / "plots/results/without/fake-gpu/03_smem_tile.json"
        for key, old, now in (("driver", "500.01", "580.00"), ("method", 7, 1)):
            data = json.loads(file.read_text())
            data["context"][key] = old
            file.write_text(json.dumps(data))
            kept = file.read_text()
            done = self.ladder(*record)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{key} is {now}, the recorded rows have {old}; --fresh", done.stderr)
            self.assertEqual(file.read_text(), kept)
            self.assertEqual(self.ladder(*record, "--fresh").returncode, 0)
            self.assertEqual(str(results.load(file).context[key]), str(now))

    def test_errors(self):
        self.assert_one_line_error(self.ladder("without", "01"), "01_naive", "03")
        self.assert_one_line_error(self.ladder("without", "03", "loads"), "it has bounds")
        self.assert_one_line_error(self.ladder("without"), "required: STEP (")


if __name__ == "__main__":
    unittest.main()
