"""run, check, bench, record, sweep with stand-ins for the GPU and the programs."""
import json
import subprocess
import time
import unittest

from support import Sandbox
from tools.lib import results


class Run(Sandbox):
    def setUp(self):
        super().setUp()
        self.fake_gpu()

    def loaded(self, file="out/results.json"):
        return results.load(self.root / file)

    def test_table_results_and_exit_code(self):
        done = self.ladder("run", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout)
        for word in ("01_naive", "17_wgmma", "burst", "sustained", "1.50 ±", "cublas_best",
                     "ceiling_wgmma", "out/results.json"):
            self.assertIn(word, done.stdout)
        self.assertNotIn("\033", done.stdout)
        data = self.loaded()
        self.assertEqual(data.subjects(), ["01_naive", "02_coalesced", "03_smem_tile",
                                           "10_double_buffer", "17_wgmma"])
        # The baseline is the median over the children: 701, 702, 703, 710, 717.
        self.assertEqual(data.value("cublas_best", (4096,) * 3, "burst"), 703)
        self.assertEqual(data.peak(), 900)
        kinds = {row["aggregate_name"] for row in json.loads(
            (self.root / "out/results.json").read_text())["benchmarks"]}
        self.assertEqual(kinds, {"median", "cv", "min", "max"})

    def test_one_bad_child_is_one_red_row(self):
        for how, words in (("crash", "crashed (SIGSEGV)"), ("wrong", "wrong at 128x96x64"),
                           ("error", "out of memory"), ("hang with child", "no result after 2 s"),
                           ("garbage", "wrote no result")):
            with self.subTest(how):
                self.behave("02_coalesced", how)
                done = self.ladder("run", "01-03", "--no-plots", "--time-limit", "2")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, " ".join(done.stdout.split()))
                self.assertEqual(self.loaded().subjects(), ["01_naive", "03_smem_tile"])
                self.assertIn("02_coalesced", done.stderr)

    def test_too_slow_to_be_timed_is_said_and_no_failure(self):
        self.behave("01_naive", "too slow")
        done = self.ladder("run", "01-02", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("left out: 4096x4096x4096/burst: 01_naive, one launch takes 900 ms",
                      " ".join(done.stdout.split()))
        self.assertIn("01_naive", self.loaded().context["left_out"][0])

    def test_missing_program(self):
        (self.root / "bin" / "02_coalesced").unlink()
        done = self.ladder("run", "01-02", "--no-plots")
        self.assertEqual(done.returncode, 1)
        self.assertIn("program is missing", " ".join(done.stdout.split()))

    def test_step_for_another_gpu_is_offered_emulated(self):
        self.fake_gpu("8.9")
        done = self.ladder("run", "all", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("17: needs compute capability 9.0 exactly", done.stdout)
        self.assertIn("./ladder run 17 --device emulated", done.stdout)
        self.assertNotIn("17_wgmma", self.loaded().subjects())

    def test_second_run_waits_and_says_for_whom(self):
        self.behave("01_naive", "slow")
        first = subprocess.Popen(self.command("bench", "01"), cwd=self.root, env=self.env,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        first.stdout.readline()
        first.stdout.readline()  # its table has begun: it holds the lock
        started = time.monotonic()
        second = self.ladder("bench", "02")
        self.assertGreater(time.monotonic() - started, 0.8)
        self.assertIn("waiting for the GPU: in use by './ladder bench 01'", second.stderr)
        self.assertIn(f"process {first.pid}", second.stderr)
        self.assertEqual((second.returncode, first.wait(10)), (0, 0))
        first.stdout.close()

    def test_without_a_toolkit_it_runs_emulated(self):
        self.env["CUDA_HOME"] = str(self.root)
        self.env["PATH"] = self.path_without_nvcc()
        self.env["LADDER_USR_LOCAL"] = str(self.root / "nothing")
        done = self.ladder("run", "01", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("running emulated", done.stdout)
        self.assertNotIn("TFLOPS", done.stdout)
        self.assert_one_line_error(self.ladder("bench", "01"), "toolkit")

    def path_without_nvcc(self):
        """A PATH of links to the few programs that set-up looks for."""
        import shutil
        folder = self.root / "path"
        folder.mkdir()
        for name in ("sh", "cmake", "ninja", "g++", "python3", "env"):
            if found := shutil.which(name):
                (folder / name).symlink_to(found)
        return str(folder)

    def test_emulated_shows_no_times(self):
        done = self.ladder("run", "--device", "emulated", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("256x256x256", done.stdout)
        for word in ("TFLOPS", "burst", "% of peak"):
            self.assertNotIn(word, done.stdout)

    def test_emulated_takes_the_nearest_legal_size(self):
        self.behave("03_smem_tile", "refuse")
        done = self.ladder("run", "03", "--device", "emulated", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stdout)
        done = self.ladder("check", "03", "--device", "emulated", "--sizes", "100")
        self.assertEqual(done.returncode, 1)
        self.assertIn("nearest legal size is 128x128x64", " ".join(done.stdout.split()))

    def test_check_on_the_gpu(self):
        self.behave("02_coalesced", "wrong")
        done = self.ladder("check", "01-02", "--sizes", "64,128x64x32")
        self.assertEqual(done.returncode, 1)
        self.assertIn("wrong at 128x96x64", " ".join(done.stdout.split()))
        self.assertIn("64x64x64 ... 128x64x32", done.stdout)

    def test_sweep(self):
        done = self.ladder("sweep", "03", "BLOCK_M=32..128*2", "BLOCK_K=8,16")
        self.assertEqual(done.returncode, 1)  # the stand-ins have no programs for the copies
        copies = sorted(p.name for p in (self.root / "build/sweep").iterdir())
        self.assertEqual(len(copies), 6)
        text = (self.root / "build/sweep/03_smem_tile-BLOCK_M-32-BLOCK_K-8/kernel.cu").read_text()
        self.assertIn("constexpr int BLOCK_M = 32;", text)
        self.assertIn("constexpr int BLOCK_K = 8;  // K of a tile", text)
        self.assertIn("// base: 03_smem_tile", text)
        self.assertIn("BLOCK_M=64,BLOCK_K=16", done.stdout)
        self.assert_one_line_error(self.ladder("sweep", "03", "NUM=1"), "BLOCK_M")
        for wrong in ("BLOCK_M", "BLOCK_M=", "BLOCK_M=a..b", "BLOCK_M=3..1", "BLOCK_M=1..9*1"):
            self.assert_one_line_error(self.ladder("sweep", "03", wrong), "BLOCK_M=2..6")
        self.assert_one_line_error(self.ladder("sweep", "03", "BLOCK_M=1..99"), "too many")

    def test_a_recorded_sweep(self):
        copy = "03_smem_tile-BLOCK_M-32"
        program = self.root / "bin" / copy
        program.write_text((self.root / "bin/03_smem_tile").read_text().replace(
            "03_smem_tile", copy))
        program.chmod(0o755)
        words = ("sweep", "03", "BLOCK_M=32", "--sizes", "4096", "--record", "--commit", "abc")
        done = self.ladder(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        kept = self.root / "plots/results/sweeps/fake-gpu/03_smem_tile-BLOCK_M.json"
        self.assertTrue(results.load(kept).find(copy, (4096,) * 3, "burst"))
        kept.unlink()
        self.assert_one_line_error(self.ladder(*words, "--device", "emulated"), "times of a GPU")
        self.no_gpu()
        self.assert_one_line_error(self.ladder(*words), "no GPU")
        self.assertFalse(kept.exists())


class Record(Sandbox):
    FILE = "plots/results/fake-gpu.json"

    def setUp(self):
        super().setUp()
        self.fake_gpu()

    def git(self, *arguments):
        return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *arguments],
                              cwd=self.root, check=True, capture_output=True, text=True).stdout

    def commit(self):
        if not (self.root / ".git").exists():
            self.git("init", "-q")
        self.git("add", "steps")
        self.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.git("rev-parse", "--short=12", "HEAD").strip()

    def test_without_git_it_needs_the_id(self):
        self.assert_one_line_error(self.ladder("record", "01"), "--commit")
        done = self.ladder("record", "01", "--commit", "0123456789abcdef")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = results.load(self.root / self.FILE)
        row = data.rows["01_naive/8192x8192x8192/burst"]
        self.assertEqual(row.words["commit"], "0123456789ab")
        self.assertIn("ceiling_hbm/burst", data.rows)

    def test_dirty_tree_is_refused(self):
        self.commit()
        kernel = self.root / "steps/01_naive/kernel.cu"
        kernel.write_text(kernel.read_text() + "\n// changed\n")
        self.assert_one_line_error(self.ladder("record", "01"), "commit")
        self.assertFalse((self.root / self.FILE).exists())

    def test_adds_replaces_and_resumes(self):
        commit = self.commit()
        self.assertEqual(self.ladder("record", "01-02", "--sizes", "4096").returncode, 0)
        before = (self.root / self.FILE).read_text()
        self.behave("01_naive", "crash")  # with --resume it is not even started
        done = self.ladder("record", "01-03", "--sizes", "4096", "--resume")
        self.assertEqual(done.returncode, 0, done.stdout)
        data = results.load(self.root / self.FILE)
        self.assertEqual(data.subjects(), ["01_naive", "02_coalesced", "03_smem_tile"])
        self.assertEqual(data.rows["03_smem_tile/4096x4096x4096/burst"].words["commit"], commit)
        self.assertEqual(data.value("cublas_best", (4096,) * 3, "burst"), 702)
        self.assertNotEqual(before, (self.root / self.FILE).read_text())

    def test_partial_run_is_kept(self):
        self.commit()
        self.behave("02_coalesced", "wrong")
        done = self.ladder("record", "01-03", "--sizes", "4096")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(results.load(self.root / self.FILE).subjects(),
                         ["01_naive", "03_smem_tile"])

    def test_other_method_is_refused(self):
        self.commit()
        self.ladder("record", "01", "--sizes", "4096")
        file = self.root / self.FILE
        data = json.loads(file.read_text())
        data["context"]["method"] = 7
        file.write_text(json.dumps(data))
        done = self.ladder("record", "02", "--sizes", "4096")
        self.assertIn("method is 1, the recorded rows have 7", done.stderr)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(self.ladder("record", "02", "--sizes", "4096", "--fresh").returncode, 0)
        self.assertEqual(results.load(file).subjects(), ["02_coalesced"])

    def test_merge_validates(self):
        self.ladder("record", "01", "--sizes", "4096", "--commit", "abc", "-o", "other.json")
        done = self.ladder("record", "--merge", "other.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue((self.root / self.FILE).exists())
        whole = json.loads((self.root / "other.json").read_text())

        def refused(change, *words):
            data = json.loads(json.dumps(whole))
            change(data)
            (self.root / "bad.json").write_text(json.dumps(data))
            self.assert_one_line_error(self.ladder("record", "--merge", "bad.json"), *words)

        def each_median(change):
            return lambda data: [change(row) for row in data["benchmarks"]
                                 if row["aggregate_name"] == "median"]

        refused(lambda data: data["context"].pop("driver"), "driver")
        refused(lambda data: data["context"].update(dirty="1"), "dirty")
        refused(lambda data: data["context"].update(gpu="Synthetic GPU"), "synthetic")
        refused(each_median(lambda row: row.pop("commit", 0)), "commit")
        refused(each_median(lambda row: row.update(tflops=5000.0)), "not possible")
        refused(each_median(lambda row: row.update(tflops=row["tflops"] * 1.1)), "its time says")


if __name__ == "__main__":
    unittest.main()
