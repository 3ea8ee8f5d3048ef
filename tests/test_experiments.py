"""Experiments: their names and rows, the commands that take them, their tables and pictures, with
stand-ins for the programs; and the real programs, as far as they go without a GPU."""
import json
import os
import re
import subprocess
import sys
import unittest

from support import ROOT, Sandbox
from tools import readme
from tools.lib import experiments, results
from tools.lib.term import UserError

PROGRAM = """// {id}: what streams are for.
// arch: {arch}
// uses: 01_naive, 17_wgmma
#include "common/harness/experiment.h"
"""
STEP_ROW = "03_smem_tile/4096x4096x4096/burst"
python = os.environ.get("LADDER_PLOT_PYTHON") or sys.executable
can_draw = subprocess.run([python, "-c", "import matplotlib"], capture_output=True).returncode == 0


class Experiments(Sandbox):
    def setUp(self):
        super().setUp()
        self.fake_gpu()
        self.add_experiment("30_streams")

    def add_experiment(self, name, arch="90a"):
        folder = self.root / "steps" / name
        folder.mkdir()
        (folder / "program.cu").write_text(PROGRAM.format(id=name, arch=arch))
        program = self.root / "bin" / name
        program.write_text(f"#!/bin/sh\nexec {sys.executable} "
                           f"{ROOT / 'tests' / 'fake_experiment.py'} {name} \"$@\"\n")
        program.chmod(0o755)

    def loaded(self, file="out/results.json"):
        return results.load(self.root / file)

    def names(self, data):
        return [row.name for row in data.rows.values() if row.is_experiment]


class Commands(Experiments):
    def test_run(self):
        done = self.ladder("run", "30", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout)
        for words in ("30_streams, small, Fake GPU", "streams_8", "50us", "2.00 ±0.02", "7ms",
                      "out/results.json"):
            self.assertIn(words, done.stdout)
        data = self.loaded()
        # As they were measured: 8 before 10, whatever the alphabet says.
        self.assertEqual(self.names(data), [
            "30_streams/small/plain", "30_streams/small/streams_8", "30_streams/small/streams_10",
            "30_streams/64x64x4096/plain"])
        row = data.rows["30_streams/small/streams_8"]
        self.assertAlmostEqual(row.seconds, 50e-6)
        self.assertEqual(row.get("vs_first"), 2.0)
        self.assertAlmostEqual(row.half_range("vs_first"), 0.02, places=3)
        self.assertEqual(results.problems(data)[:1], ["it was measured from a tree with changes "
                                                      "(dirty)"])

    def test_all_means_the_steps(self):
        done = self.ladder("run", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.names(self.loaded()), [])

    def test_beside_steps(self):
        done = self.ladder("run", "03,30", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = self.loaded()
        self.assertIn(STEP_ROW, data.rows)
        self.assertEqual(len(self.names(data)), 4)
        self.assertEqual(data.subjects(), ["03_smem_tile"])  # the ladder's plot has the steps alone
        self.assertEqual(data.sizes(), [(4096, 4096, 4096)])

    def test_a_copied_folder_is_an_experiment(self):
        self.add_experiment("41_mine")
        done = self.ladder("run", "30-41", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("41_mine/small/plain", self.names(self.loaded()))
        done = self.ladder("run", "experiments", "--no-plots")
        self.assertIn("41_mine", done.stdout)

    def test_wrong_is_red_and_not_kept(self):
        self.add_experiment("31_graph")
        self.behave("30_streams", "wrong")
        done = self.ladder("run", "30,31", "--no-plots")
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong at small, streams_8: 3 of 4096", done.stdout)
        self.assertIn("1 of 2 not measured: 30_streams", done.stderr)
        self.assertEqual({n[:2] for n in self.names(self.loaded())}, {"31"})

    def test_left_out_is_said(self):
        self.behave("30_streams", "left out")
        done = self.ladder("run", "30", "--no-plots")
        self.assertEqual(done.returncode, 0)
        self.assertIn("left out: 30_streams: large: needs 40.0 GiB", done.stdout)

    def test_list(self):
        done = self.ladder("list")
        self.assertRegex(done.stdout, r"30_streams +90a +what streams are for")
        self.assertNotIn("30_streams", self.ladder("list", "01-10").stdout)

    def test_check(self):
        done = self.ladder("check", "30")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "30_streams: 3 variants of its workloads right\n"))
        self.behave("30_streams", "wrong")
        self.assertEqual(self.ladder("check", "30").returncode, 1)

    def test_bench(self):
        done = self.ladder("bench", "30")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.names(self.loaded("out/bench.json"))), 4)

    def test_another_gpu(self):
        self.fake_gpu("8.9")
        done = self.ladder("run", "30")
        self.assertEqual(done.returncode, 2)
        self.assertIn("30_streams: needs compute capability 9.0 exactly", done.stdout)

    def test_without_a_gpu(self):
        self.no_gpu()
        for command in ("run", "check", "bench", "record"):
            self.assert_one_line_error(self.ladder(command, "30"), "30_streams", "needs a GPU",
                                       "No devices")
        self.assert_one_line_error(self.ladder("run", "30", "--device", "emulated"),
                                   "no emulated form")

    def test_commands_for_steps_alone(self):
        for command in ("diff", "trace", "export"):
            self.assert_one_line_error(self.ladder(command, "30"), "30_streams: an experiment")
        self.assert_one_line_error(self.ladder("run", "77"), "there is no step '77'")

    def test_bad_header(self):
        (self.root / "steps/30_streams/program.cu").write_text("// 30: x\n// arch: new\n")
        self.assert_one_line_error(self.ladder("list"), "program.cu", "// arch: ...")


class Record(Experiments):
    FILE = "plots/results/fake-gpu.json"

    def test_replaces_the_whole_experiment(self):
        self.ladder("record", "03", "--sizes", "4096", "--commit", "aaa", "--no-ceilings")
        done = self.ladder("record", "30", "--commit", "aaa")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.names(self.loaded(self.FILE))), 4)
        self.behave("30_streams", "fewer")
        self.assertEqual(self.ladder("record", "30", "--commit", "bbb").returncode, 0)
        data = self.loaded(self.FILE)
        self.assertNotIn("30_streams/small/streams_8", data.rows)
        self.assertEqual(data.rows["30_streams/small/plain"].words["commit"], "bbb")
        self.assertEqual(data.rows[STEP_ROW].words["commit"], "aaa")
        self.assertEqual(results.problems(data), [])
        timelines = experiments.load_timelines(
            self.root / "plots/results/timelines/fake-gpu/30_streams.json")
        self.assertNotIn("other", timelines["context"])
        self.assertEqual(timelines["context"]["date"][:10], "2026-11-29")
        self.behave("30_streams", "wrong")  # with --resume it is not even started
        self.assertEqual(self.ladder("record", "30", "--commit", "bbb", "--resume").returncode, 0)
        self.assertEqual(self.ladder("record", "30", "--commit", "ccc").returncode, 1)
        self.assertEqual(self.loaded(self.FILE).rows["30_streams/small/plain"].words["commit"],
                         "bbb")

    def test_what_cannot_be_measured_here_stays(self):
        """On a machine with one GPU, the rows that two have made are kept."""
        self.ladder("record", "30", "--commit", "aaa")
        kept = (self.root / self.FILE).read_text()
        self.behave("30_streams", "nothing")
        done = self.ladder("record", "30", "--commit", "bbb")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("needs 2 GPUs or more, here is 1", done.stdout)
        self.assertEqual((self.root / self.FILE).read_text(), kept)
        done = self.ladder("run", "30", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("needs 2 GPUs or more, here is 1", done.stdout)

    def test_merge_brings_the_timelines(self):
        self.ladder("record", "30", "--commit", "aaa", "-o", "other/b.json")
        done = self.ladder("record", "--merge", "other/b.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.names(self.loaded(self.FILE))), 4)
        self.assertTrue((self.root / "plots/results/timelines/fake-gpu/30_streams.json").is_file())

    def test_readme(self):
        page = self.root / "steps/30_streams/README.md"
        page.write_text("x\n<!-- measured:begin -->\n<!-- measured:end -->\n")
        recorded = {}
        text = readme.experiment_tables(experiments.read(page.with_name("program.cu")), recorded)
        self.assertIn("Not recorded yet: `./ladder record 30`", text)
        self.ladder("record", "30", "--commit", "aaa")
        self.assertEqual(self.ladder("readme", "--check").returncode, 1)
        self.ladder("readme")
        text = page.read_text()
        for words in ("commit aaa", "**small**",
                      "| variant | time | × first | host µs | alone µs | % of floor | streams |",
                      "| streams_8 | 50 µs | 2.00 ± 0.02 | 4.00 | 59.0 | 80.0 | 8.00 |",
                      "| plain | 7 ms | 1.00 ± 0.01 | 4.00 | 7009 |"):
            self.assertIn(words, text)

    def test_many_workloads_share_a_table(self):
        data = results.Results({"gpu": "g", "driver": "d", "cuda": "c", "method": 1, "date": "d"})
        for workload, variants in [("other", ["a"])] + [(f"batch{n}", ["a", "b"])
                                                        for n in (1, 4, 16, 64)]:
            for i, variant in enumerate(variants):
                row = results.Row(f"30_streams/{workload}/{variant}", 1e-4 / (1 + i),
                                  {"vs_first": 1.0 + i, "host_us": 3.0})
                data.rows[row.name] = row
        found = experiments.workloads(data, "30_streams")
        self.assertEqual(readme.alike(found), [["other"], ["batch1", "batch4", "batch16",
                                                           "batch64"]])
        experiment = experiments.read(self.root / "steps/30_streams/program.cu")
        text = readme.experiment_tables(experiment, {"x": data})
        for words in ("**other**", "**batch1**", "| time, × first | a | b |",
                      "| batch64 | 100 µs | 50 µs, 2.00 |"):
            self.assertIn(words, text)
        self.assertNotIn("**batch64**", text)

    def test_a_typing_error_in_a_regime_is_no_experiment(self):
        data = results.Results({"gpu": "g", "driver": "d", "cuda": "c", "method": 1, "date": "d"})
        row = results.Row("03_smem_tile/4096x4096x4096/brust", 1e-3, {"tflops": 100.0},
                          words={"commit": "aaa"})
        data.rows[row.name] = row
        self.assertIn("is neither NN_idea/MxNxK/burst", results.problems(data)[0])


class Timelines(Experiments):
    def data(self):
        sys.path.insert(0, str(ROOT / "tests"))
        import fake_experiment
        return fake_experiment.timelines("30_streams")

    def test_lanes(self):
        self.assertEqual(experiments.lanes(self.data()["timelines"][0]),
                         ["host", "stream 2", "stream 10"])

    def test_chrome(self):
        from tools.lib import tracing
        data = experiments.chrome(self.data())
        self.assertEqual(tracing.chrome_problem(data), "")
        spans = [e for e in data["traceEvents"] if e["ph"] == "X"]
        self.assertEqual([(e["name"], e["ts"], e["dur"]) for e in spans][1:3],
                         [("0", 5, 25), ("join", 41, 4)])

    def test_damaged(self):
        good = json.dumps(self.data())
        for bad in (good[:100], "[]", good.replace('"end_us": 30', '"end_us": 3'),
                    good.replace('"lane": "host"', '"lane": 3')):
            with self.assertRaises(UserError):
                experiments.parse_timelines(bad, "x")

    @unittest.skipUnless(can_draw, "matplotlib is not there")
    def test_pictures(self):
        done = self.ladder("run", "30")
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("30_streams.png", "30_streams.svg", "timeline-30_streams.png",
                     "timeline-30_streams.svg", "timeline-30_streams.perfetto.json"):
            self.assertIn(f"out/{name}", done.stdout)
            self.assertTrue((self.root / "out" / name).is_file(), name)
        bars = (self.root / "out/30_streams.svg").read_text()
        for words in ("small: µs of an iteration", "64x64x4096: ms", "50.0  (2.00×)  80 % of the"):
            self.assertIn(words, bars)
        drawn = (self.root / "out/timeline-30_streams.svg").read_text()
        for words in ("small, streams_8: 45 µs as timed", "stream 10", "host", "join"):
            self.assertIn(words, drawn)
        self.ladder("record", "30", "--commit", "aaa")
        (self.root / "out/results.json").unlink()
        done = self.ladder("plot", "30")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("recorded", (self.root / "out/30_streams.svg").read_text())
        self.assertEqual(self.ladder("figures").returncode, 0)
        for kind in ("experiment", "timeline"):
            self.assertTrue((self.root / f"plots/figures/{kind}-30_streams-fake-gpu.svg").is_file())
        self.assertEqual(self.ladder("figures", "--check").returncode, 0)

    @unittest.skipUnless(can_draw, "matplotlib is not there")
    def test_a_long_iteration_shows_its_beginning(self):
        data = self.data()
        line = data["timelines"][0]
        line["spans"] = [{"lane": lane, "name": str(i), "begin_us": 100 * i + 10 * j,
                          "end_us": 100 * i + 10 * j + 80}
                         for j, lane in enumerate(("copy in", "multiply", "copy out"))
                         for i in range(64)]
        data["timelines"].append({**line, "variant": "slow", "spans": [
            {**s, "begin_us": 9 * s["begin_us"], "end_us": 9 * s["end_us"]}
            for s in line["spans"]]})
        file = self.root / "t.json"
        file.write_text(json.dumps(data))
        done = subprocess.run([python, ROOT / "plots/experiment.py", "timeline", file, "-o",
                               self.root / "out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = (self.root / "out/timeline-30_streams.svg").read_text()
        self.assertEqual(len(re.findall("its beginning, it ends at", svg)), 2)

    @unittest.skipUnless(can_draw, "matplotlib is not there")
    def test_nothing_to_draw(self):
        self.ladder("run", "30", "--no-plots")
        for words in (["bars", "out/results.json", "31_graph"], ["bars", "out/results.json"],
                      ["timeline", "out/results.json"]):
            done = subprocess.run([python, ROOT / "plots/experiment.py", *words], text=True,
                                  capture_output=True, cwd=self.root)
            self.assertEqual(done.returncode, 2, words)
            self.assertTrue(done.stderr.startswith("error: "), done.stderr)


class Real(unittest.TestCase):
    def test_headers(self):
        found = experiments.everything(ROOT / "steps")
        self.assertIn("30_streams_split_k", [e.id for e in found])
        there = {p.parent.name for p in (ROOT / "steps").glob("*/kernel.cu")}
        for e in found:
            with self.subTest(e.id):
                self.assertEqual(set(e.uses) - there, set())
                self.assertTrue(e.idea)
                self.assertIn(e.needs, ("", "nccl"))
                text = e.program.read_text()
                self.assertIn("std::vector<harness::Workload> ", text)
                self.assertFalse((e.folder / "kernel.cu").exists())

    def test_pages(self):
        """Prediction before measured, a place for the numbers; of its own 120 lines at most."""
        for e in experiments.everything(ROOT / "steps"):
            with self.subTest(e.id):
                self.assertTrue((e.folder / "README.md").is_file())
                text = (e.folder / "README.md").read_text()
                parts = [text.index(f"\n## {part}") for part in (
                    "Prediction", "Measured", "Why the two differ", "Exercise")]
                self.assertEqual(parts, sorted(parts))
                self.assertEqual(text.count("<!-- measured:begin -->"), 1)
                own = re.sub(r"<!-- measured:begin -->.*?<!-- measured:end -->", "", text,
                             flags=re.S)
                self.assertLessEqual(len(own.splitlines()), 120)


if __name__ == "__main__":
    unittest.main()
