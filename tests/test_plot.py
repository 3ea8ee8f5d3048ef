"""plots/plot.py draws what the files hold. Needs matplotlib; skipped by name without."""
import json
import os
import re
import subprocess
import unittest

import synthetic
from support import ROOT, Sandbox
from tools.lib import setup

PYTHON = os.environ.get("LADDER_PLOT_PYTHON") or setup.plot_python()


@unittest.skipUnless(PYTHON, "no matplotlib")
class Plot(Sandbox):
    def file(self, count, size_list=(4096,), change=lambda data: None):
        data = synthetic.make(count, size_list)
        change(data)
        path = self.root / f"synthetic-{count}.json"
        path.write_text(json.dumps(data))
        return path

    def plot(self, *arguments):
        return subprocess.run([PYTHON, ROOT / "plots" / "plot.py", *arguments], cwd=self.root,
                              env=self.env, text=True, capture_output=True)

    def drawn(self, *arguments):
        """The text of the SVG."""
        done = self.plot(*arguments, "-o", "out")
        self.assertEqual(done.returncode, 0, done.stderr)
        png, svg = [self.root / line for line in done.stdout.split()]
        self.assertEqual(png.read_bytes()[:4], b"\x89PNG")
        return svg.read_text()

    def test_ladder_with_6_and_30_steps(self):
        for count, last in ((6, "06 warp_tile"), (30, "40 mine")):
            svg = self.drawn("ladder", self.file(count), "--recorded")
            for word in ("Synthetic GPU", "recorded 2000-01-01", "driver 000.00", "01 naive", last,
                         "datasheet 989", "cuBLAS best", "wgmma ceiling", "mma.sync ceiling",
                         "FFMA ceiling", "burst", "sustained", "square-root scale", "4096"):
                self.assertIn(word, svg)
            self.assertEqual(len(re.findall(r"×\d", svg)), count - 1)  # all but the first step

    def test_measured_is_not_called_recorded(self):
        svg = self.drawn("ladder", self.file(6))
        self.assertIn("measured 2000-01-01", svg)
        self.assertNotIn("recorded", svg)

    def test_background_is_white_on_any_page(self):
        svg = self.drawn("ladder", self.file(6))
        self.assertRegex(svg, r'id="patch_1">\s*<path [^>]*fill: #ffffff')

    def test_the_same_results_give_the_same_picture(self):
        file = self.file(6)
        self.assertEqual(self.drawn("ladder", file), self.drawn("ladder", file))

    def test_panels_and_choice_of_size(self):
        file = self.file(6, (4096, 8192))
        both, one = self.drawn("ladder", file), self.drawn("ladder", file, "--sizes", "8192")
        self.assertIn("4096 × 4096 × 4096", both)
        self.assertIn("8192 × 8192 × 8192", both)
        self.assertNotIn("4096 × 4096 × 4096", one)

    def test_sizes(self):
        svg = self.drawn("sizes", self.file(6, (1024, 2048, 4096)))
        for word in ("1024", "06_warp_tile", "cuBLAS best", "TFLOPS"):
            self.assertIn(word, svg)
        done = self.plot("sizes", self.file(6), "-o", "out")  # one size is no curve: no picture
        self.assertEqual((done.returncode, done.stdout), (0, ""))

    def test_sweep(self):
        def copies(data):
            for row in data["benchmarks"]:
                for key in ("name", "run_name"):
                    row[key] = re.sub(r"^(\d\d)_\w+?/", r"06_warp_tile-BLOCK_K-\1/", row[key])
        svg = self.drawn("sweep", self.file(6, change=copies))
        self.assertIn(">BLOCK_K<", svg)
        self.assertEqual(self.plot("sweep", self.file(6)).returncode, 2)

    def test_only_a_step_or_nothing(self):
        def no_steps(data):
            data["benchmarks"] = [r for r in data["benchmarks"] if r["name"].startswith("cublas")]
        done = self.plot("ladder", self.file(6, change=no_steps))
        self.assertEqual(done.returncode, 2)
        self.assertIn("no rows of a step", done.stderr)

    def test_gaps_are_left_out(self):
        def gaps(data):
            data["benchmarks"] = [r for r in data["benchmarks"] if "03_smem_tile" not in r["name"]
                                  and "ceiling_wgmma" not in r["name"]]
            del data["context"]["peak_tflops"], data["context"]["power_limit_w"]
        svg = self.drawn("ladder", self.file(6, change=gaps))
        self.assertNotIn("wgmma", svg)

    def test_front_door(self):
        recorded = self.root / "plots" / "results" / "synthetic.json"
        recorded.write_text(self.file(6, (4096, 8192)).read_text())
        done = self.ladder("plot")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("out/ladder-synthetic-gpu-invented-numbers.png", done.stdout)
        self.assertIn("recorded", (self.root / "out" /
                                   "ladder-synthetic-gpu-invented-numbers.svg").read_text())
        self.assert_one_line_error(self.ladder("plot", "--sizes", "512"), "4096, 8192")
        (self.root / "file").write_text("")
        self.assert_one_line_error(self.ladder("plot", "-o", "file/x"), "cannot write")
        # Without a GPU, run ends with the recorded plots, named as such.
        self.fake_gpu()
        done = self.ladder("run", "01", "--device", "emulated")
        self.assertIn("recorded on Synthetic GPU", done.stdout)
        self.assertIn("not measured here", done.stdout)


if __name__ == "__main__":
    unittest.main()
