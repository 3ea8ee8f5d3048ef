"""Kinds of problem, the suite and tune, with stand-ins for the GPU and the programs."""
import json
import os
import re
import subprocess
import unittest

from support import ROOT, Sandbox
from tools.lib import kinds, results, setup, sizes, suite
from tools.lib.term import UserError

STEP = "17_wgmma"
PYTHON = os.environ.get("LADDER_PLOT_PYTHON") or setup.plot_python()


class Kinds(unittest.TestCase):
    def test_written_as_the_programs_write_them(self):
        for given, want in (("NN", ""), ("NN-f16", ""), ("NT", "NT"), ("NT-f16", "NT"),
                            ("TN-bf16", "TN-bf16"), ("NN-f16-f32", "NN-f16-f32"),
                            ("TT-bf16-bf16", "TT-bf16"), ("NN-batch1-alpha1.0", ""),
                            ("NN-beta-1-alpha0.50-batch4", "NN-alpha0.5-beta-1-batch4"),
                            ("NT-gap1048575-pada03", "NT-pada3-gap1048575"),
                            ("NT-bf16-pada3-sharedb-batch2", "NT-bf16-sharedb-batch2-pada3")):
            self.assertEqual(kinds.parse(given), want)
        for wrong in ("", "N", "nt", "NT-", "NT-f64", "NT-f32", "NT-batch", "NT-fast", "NT/NT",
                      "NT-pada-1", "4096"):
            with self.assertRaises(UserError, msg=wrong):
                kinds.parse(wrong)

    def test_a_size_with_a_kind_is_another_size(self):
        plain, other = sizes.parse("64x32x16,64x32x16/NT-bf16-batch4")
        self.assertNotEqual(plain, other)
        self.assertNotEqual(other, plain)
        self.assertEqual(other, sizes.parse_one("64x32x16/NT-bf16-batch4"))
        self.assertEqual(len({plain, other, sizes.parse_one("64x32x16/NN")}), 2)
        self.assertEqual(sizes.text(other), "64x32x16/NT-bf16-batch4")
        self.assertEqual(sizes.short(sizes.parse_one("64/TN")), "64/TN")
        self.assertEqual(sizes.flops(other), 4 * sizes.flops(plain))

    def test_rows_keep_it(self):
        row = results.Row("29_a/64x32x16/NT-bf16/burst")
        self.assertEqual((row.size, row.regime), (sizes.parse_one("64x32x16/NT-bf16"), "burst"))
        self.assertEqual(results.Row("29_a/64x32x16/burst").size, (64, 32, 16))
        data = results.Results({}, {row.name: row})
        self.assertIs(data.find("29_a", row.size, "burst"), row)
        self.assertIsNone(data.find("29_a", (64, 32, 16), "burst"))


class Suite(Sandbox):
    def setUp(self):
        super().setUp()
        self.fake_gpu()

    def loaded(self):
        return results.load(self.root / "out" / "suite.json")

    def test_the_list(self):
        found = suite.problems()
        self.assertEqual(len({p.size for p in found}), len(found))
        self.assertGreaterEqual(len(found), 50)
        self.assertTrue(8 <= sum(p.sustained for p in found) <= 20)
        sized = [p.size for p in found]
        for wanted in ("512", "4096", "8192", "16384", "4095x4097x4099", "8192/NT-bf16"):
            self.assertIn(sizes.parse_one(wanted), sized)
        self.assertTrue(any(size[0] == 1 for size in sized))
        (self.root / "list").write_text("cubes\n")
        with self.assertRaises(UserError):
            suite.problems(self.root / "list")

    def test_all_in_few_children(self):
        self.env["FAKE_STARTS"] = str(self.root / "starts")
        done = self.ladder("bench", "17", "--suite")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout)
        data, problems = self.loaded(), suite.problems()
        for p in problems:
            self.assertEqual(data.value(STEP, p.size, "burst"), 18.0, p.size)
            self.assertEqual(data.find(STEP, p.size, "sustained") is not None, p.sustained)
        found = suite.summary(data, "burst", STEP)
        self.assertEqual((found.count, found.slow), (len(problems), len(problems)))
        self.assertAlmostEqual(found.geomean, 0.4)
        self.assertAlmostEqual(found.geomean_default, 0.5)
        for word in ("16x4096x4096", "llm", "all", "x better"):
            self.assertIn(word, done.stdout)
        starts = (self.root / "starts").read_text().splitlines()
        self.assertLessEqual(len(starts), 2 * len(suite.groups(problems)))
        self.assertTrue(all("--against cublas" in line for line in starts))
        self.assertEqual([line for line in results.problems(data)
                          if "commit" not in line and "dirty" not in line], [])

    def test_a_bad_shape_is_one_red_row(self):
        bad = "8192x57344x8192/NT-bf16"
        self.env["FAKE_BAD_SIZE"] = bad
        for how, words in (("bad wrong", "wrong at"), ("bad crash", "crashed (SIGSEGV)"),
                           ("bad hang", "no result after 2 s")):
            with self.subTest(how):
                self.behave(STEP, how)
                done = self.ladder("bench", "17", "--suite", "--regimes", "burst", "--time-limit",
                                   "2")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, " ".join(done.stdout.split()))
                self.assertIn("1 problems not measured: " + bad, done.stderr)
                data = self.loaded()
                missing = [p.size for p in suite.problems()
                           if not data.find(STEP, p.size, "burst")]
                self.assertEqual(missing, [sizes.parse_one(bad)])

    def test_record(self):
        subprocess.run("git init -q && git add steps && git -c user.name=t -c user.email=t@t "
                       "commit -q -m x", shell=True, cwd=self.root, check=True)
        done = self.ladder("record", "17", "--suite", "--regimes", "burst")
        self.assertEqual(done.returncode, 0, done.stderr)
        file = self.root / "plots/results/suite/fake-gpu.json"
        data = results.load(file)
        self.assertEqual(results.problems(data), [])
        self.assertFalse((self.root / "plots/results/fake-gpu.json").exists())
        # In two halves, of two GPUs, and put together.
        for half in ("cubes,layouts,skinny,long_k", "llm,ugly,batched"):
            self.ladder("record", "17", "--suite", "--regimes", "burst", "--groups", half, "-o",
                        f"half-{half[:3]}.json")
        for half in ("cub", "llm"):
            done = self.ladder("record", "--merge", f"half-{half}.json", "-o", "whole.json")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(results.load(self.root / "whole.json").rows.keys(), data.rows.keys())
        file.unlink()  # and to its place, which is not that of the steps
        done = self.ladder("record", "--suite", "--merge", "whole.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(results.load(file).rows.keys(), data.rows.keys())
        self.assertFalse((self.root / "plots/results/fake-gpu.json").exists())
        self.behave(STEP, "crash")  # with --resume it is not even started
        done = self.ladder("record", "17", "--suite", "--regimes", "burst", "--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        page = suite.markdown(data, STEP)
        self.assertIn("| 4095x4097x4099 | 18.0 | 0.500 | 0.400 |  |  |  |", page)
        self.assertIn("geometric mean", page)

    def test_refusals(self):
        for arguments, word in ((["bench", "01-03", "--suite"], "takes one"),
                                (["record", "all", "--suite"], "'all' names"),
                                (["bench", "17", "--groups", "llm"], "--suite"),
                                (["record", "17", "--groups", "llm"], "--suite"),
                                (["bench", "01", "--kinds", "nt"], "kind"),
                                (["bench", "01", "--sizes", "64/XX"], "kind"),
                                (["check", "01", "--kinds", "NT"], "--sizes")):
            self.assert_one_line_error(self.ladder(*arguments), word)
        self.assert_one_line_error(self.ladder("bench", "17", "--suite", "--groups", "cubes,x"),
                                   "no group 'x'")
        self.env["LADDER_GEMM_TUNED"] = "x"
        self.assert_one_line_error(self.ladder("record", "17", "--suite"), "LADDER_GEMM_TUNED")
        del self.env["LADDER_GEMM_TUNED"]
        self.no_gpu()
        for command in ("bench", "record"):
            self.assert_one_line_error(self.ladder(command, "17", "--suite"), "no GPU")

    def test_kinds_cross_the_sizes(self):
        done = self.ladder("bench", "17", "--sizes", "64,32/TT", "--kinds", "NN,NT-bf16")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = results.load(self.root / "out" / "bench.json").rows
        self.assertEqual({row.size for row in rows.values() if row.subject == STEP},
                         set(sizes.parse("64,64/NT-bf16,32/TT")))
        self.assertIn("BF16 in, FP32 accumulate, BF16 out, column-major B", done.stdout)

    def test_check_tells_kinds_in_one_line(self):
        self.behave(STEP, "kinds")
        done = self.ladder("check", "17", "--device", "emulated")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"17_wgmma +64x96x32 +yes(.|\n)*"
                         r"17_wgmma +2 more +yes +of other")
        self.assertNotIn("TN-batch3", done.stdout)
        done = self.ladder("check", "17", "--device", "emulated", "--sizes", "64/TN-batch3,32")
        self.assertIn("64x64x64/TN-batch3", done.stdout)
        done = self.ladder("check", "17")
        self.assertIn("64x96x32 ... 64x96x32/TN-batch3", done.stdout)

    @unittest.skipUnless(PYTHON, "no matplotlib")
    def test_heat_map(self):
        self.ladder("bench", "17", "--suite")
        command = [PYTHON, ROOT / "plots/plot.py", "suite", "out/suite.json", "-o", "out"]
        done = subprocess.run(command, cwd=self.root, env=self.env, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = (self.root / "out" / "suite.svg").read_text()
        for word in ("17_wgmma", "4095x4097x4099", "8192/NT-bf16", "long k", "burst", "sustained",
                     "0.50", "0.40", "Geometric mean", "Fake GPU"):
            self.assertIn(word, svg)
        self.assertEqual(len(re.findall(r"<!-- 0\.40 -->|>0\.40<", svg)),
                         len(suite.problems()) + sum(p.sustained for p in suite.problems()))

    @unittest.skipUnless(PYTHON, "no matplotlib")
    def test_the_ladder_shows_its_own_convention(self):
        self.ladder("bench", "17", "--sizes", "64,64/NT-bf16")
        command = [PYTHON, ROOT / "plots/plot.py", "ladder", "out/bench.json", "-o", "out"]
        done = subprocess.run(command, cwd=self.root, env=self.env, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("NT-bf16", (self.root / "out" / "ladder.svg").read_text())


class Tune(Sandbox):
    FILE = "out/tuned-fake-gpu.txt"

    def setUp(self):
        super().setUp()
        self.fake_gpu()

    def lines(self):
        return [line for line in (self.root / self.FILE).read_text().splitlines()
                if not line.startswith("#")]

    def test_writes_the_fastest_of_those_that_are_right(self):
        done = self.ladder("tune", "17", "--sizes", "64,64x32x16/TN-bf16-f32-batch4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lines(), ["gpu Fake GPU",
                                        "64 64 64 row row f16 f16 1 256x192/c2",
                                        "64 32 16 col row bf16 f32 4 256x192/c2"])
        self.assertIn("25.0%", done.stdout)
        kept = json.loads((self.root / self.FILE).with_suffix(".json").read_text())
        self.assertEqual(len(kept["rows"]), 6)
        self.assertIn(f"export LADDER_GEMM_TUNED={(self.root / self.FILE).resolve()}", done.stdout)
        # Another run adds and replaces.
        self.ladder("tune", "17", "--sizes", "64,128")
        self.assertEqual(len(self.lines()), 4)
        self.ladder("tune", "17", "--sizes", "64", "--fresh")
        self.assertEqual(len(self.lines()), 2)

    def test_a_candidate_that_hangs_is_left_out(self):
        self.behave(STEP, "stuck at a candidate")
        done = self.ladder("tune", "17", "--sizes", "64", "--shape-limit", "4")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("128x128/c2", done.stderr)
        self.assertEqual(self.lines()[1], "64 64 64 row row f16 f16 1 256x192/c2")

    def test_nothing_is_written_where_nothing_was_right(self):
        for how, words in (("crashes at all", "SIGSEGV"), ("refuse", "nearest legal")):
            self.behave(STEP, how)
            done = self.ladder("tune", "17", "--sizes", "33", "--time-limit", "9")
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, " ".join(done.stdout.split()))
            self.assertFalse((self.root / self.FILE).exists())

    def test_the_time_is_for_all(self):
        self.behave(STEP, "slow")
        done = self.ladder("tune", "17", "--sizes", "64,128,256", "--time-limit", "3")
        self.assertEqual(done.returncode, 0, done.stderr)  # 128 is cut, and that is no failure
        self.assertIn("not reached in the time: 128, 256;", done.stdout)
        self.assertNotIn("not tuned", done.stderr)
        self.assertEqual(len(self.lines()), 2)
        done = self.ladder("tune", "17", "--sizes", "64", "--time-limit", "1", "--fresh")
        self.assertEqual(done.returncode, 1, done.stdout)  # nothing at all
        self.assertIn("not reached in the time: 64;", done.stdout)

    def test_refusals(self):
        (self.root / "other.txt").write_text("gpu Another GPU\n")
        (self.root / "foreign.txt").write_text("hello\n")
        for arguments, words in ((["-o", "other.txt"], "Another GPU"),
                                 (["-o", "foreign.txt"], "not a file of tune"),
                                 (["--sizes", "64/NX"], "kind"), (["--kinds", "NT"], "--sizes"),
                                 (["--regime", "hot"], "hot")):
            self.assert_one_line_error(self.ladder("tune", "17", *arguments), words)
        done = self.ladder("tune", "17", "--sizes", "64/NN-alpha2")
        self.assertIn("left out", done.stdout)
        self.fake_gpu("8.0")
        self.assert_one_line_error(self.ladder("tune", "17"), "9.0 exactly")
        self.no_gpu()
        self.assert_one_line_error(self.ladder("tune", "17"), "no GPU")


if __name__ == "__main__":
    unittest.main()
