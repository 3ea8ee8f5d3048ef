"""READMEs show what is recorded: generated parts are filled, and the real ones are fresh."""
import json
import os
import subprocess
import sys
import unittest

import synthetic
from support import ROOT, Sandbox
from tools import readme
from tools.lib import setup


class Generated(Sandbox):
    def setUp(self):
        super().setUp()
        self.page = self.root / "steps" / "02_coalesced" / "README.md"
        self.page.write_text("# 02\n<!-- diff:begin -->\nold\n<!-- diff:end -->\n"
                             "<!-- measured:begin -->\n<!-- measured:end -->\nend\n")
        (self.root / "README.md").write_text(
            "<!-- ladder-figure:begin -->\n<!-- ladder-figure:end -->\n"
            "<!-- ladder-table:begin -->\n<!-- ladder-table:end -->\n")

    def test_without_a_recorded_run(self):
        self.assertEqual(self.ladder("readme").returncode, 0)
        text = self.page.read_text()
        self.assertIn("Not recorded yet: `./ladder record 02`", text)
        self.assertIn("2 lines added, 2 removed", text)  # of the stand-in kernels: id and base
        self.assertNotIn("old", text)
        self.assertTrue(text.endswith("end\n"))
        self.assertEqual(self.ladder("readme", "--check").returncode, 0)

    @unittest.skipUnless(setup.plot_python(), "no matplotlib")
    def test_tables_figures_and_staleness(self):
        file = self.root / "plots" / "results" / "gpu.json"
        file.write_text(json.dumps(synthetic.make(6, (4096, 8192))))
        done = self.ladder("readme", "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("stale: README.md", done.stdout)
        self.assertIn("stale: plots/ladder-gpu.svg", done.stdout)
        done = self.ladder("readme")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.ladder("readme", "--check").returncode, 0)
        text = self.page.read_text()
        self.assertIn("| 4096x4096x4096 | burst |", text)
        self.assertIn("| 8192x8192x8192 | sustained |", text)
        self.assertIn("Synthetic GPU", text)
        page = (self.root / "README.md").read_text()
        self.assertIn("](plots/ladder-gpu.svg)", page)
        self.assertIn("| [02_coalesced](steps/02_coalesced/README.md) |", page)
        # Another recorded number makes all of it stale again.
        file.write_text(file.read_text().replace('"tflops": 6.', '"tflops": 5.'))
        self.assertEqual(self.ladder("readme", "--check").returncode, 1)


class Real(unittest.TestCase):
    NAMES = ("measured", "diff", "sweep", "suite", "without", "trap", "ladder-table",
             "ladder-figure")

    def test_real_pages_are_fresh(self):
        done = subprocess.run([sys.executable, str(ROOT / "ladder"), "readme", "--check"],
                              text=True, capture_output=True, cwd=ROOT,
                              env={**os.environ, "NO_COLOR": "1"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_markers_come_in_pairs(self):
        seen = set()
        for page in [ROOT / "README.md", *ROOT.glob("steps/*/README.md"), *ROOT.glob("notes/*.md"),
                     *ROOT.glob("traps/*/text.md")]:
            text = page.read_text()
            for name in self.NAMES:
                seen |= {name} if f"{name}:begin -->" in text else set()
                with self.subTest(page=page.relative_to(ROOT), name=name):
                    self.assertEqual(text.count(f"<!-- {name}:begin -->"),
                                     text.count(f"<!-- {name}:end -->"))
                    self.assertIn("\nX\n" if f"{name}:begin -->" in text else "",
                                  readme.fill(text, name, "X"))
        self.assertEqual(seen, set(self.NAMES))


if __name__ == "__main__":
    unittest.main()
