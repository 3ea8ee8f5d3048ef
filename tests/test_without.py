"""without: what it takes, and that every part of every step can be left out and still builds."""
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import ROOT
from tools import without
from tools.lib import steps, term

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


if __name__ == "__main__":
    unittest.main()
