"""Bad input: one line that says what is wrong and what to do, exit code not 0, nothing left."""
import json
import os
import signal
import subprocess
import time
import unittest

import synthetic
from support import Sandbox


class BadInput(Sandbox):
    def test_no_command_shows_usage(self):
        done = self.ladder()
        self.assertEqual(done.returncode, 2)
        self.assertIn("./ladder run", done.stdout)

    def test_unknown_command(self):
        self.assert_one_line_error(self.ladder("rnu"), "rnu", "run")

    def test_unknown_flag(self):
        self.assert_one_line_error(self.ladder("run", "--fast"), "--fast")

    def test_unknown_step(self):
        for command in ("run", "check", "bench", "record", "list", "export"):
            self.assert_one_line_error(self.ladder(command, "77"), "77", "./ladder list")
        self.assert_one_line_error(self.ladder("list", "02_coalesed"), "did you mean 02_coalesced")

    def test_bad_sizes(self):
        for size in ("0", "-1", "1.5", "abc", "1000000000", "4096x4096", "4096x0x64", "", "1e4"):
            for command in ("run", "check", "bench"):
                with self.subTest(size=size, command=command):
                    done = self.ladder(command, "01", f"--sizes={size}")
                    if size or command == "bench":
                        self.assert_one_line_error(done, "size")

    def test_bad_regime_and_limit(self):
        self.assert_one_line_error(self.ladder("bench", "--regimes", "hot"), "hot", "burst")
        self.assert_one_line_error(self.ladder("bench", "--time-limit", "-3"), "--time-limit")

    def test_bad_count_of_random_shapes(self):
        for count in ("0", "-1", "1.5", "x"):
            self.assert_one_line_error(self.ladder("check", f"--random={count}"), "whole number")
        self.assert_one_line_error(self.ladder("check", "--random", "3", "--sizes", "128"),
                                   "exclude")

    def test_bench_without_gpu(self):
        for command in ("bench", "record"):
            self.assert_one_line_error(self.ladder(command, "01"), "no GPU", "--device emulated")
        for command in ("run", "check"):
            self.assert_one_line_error(self.ladder(command, "01", "--device", "gpu"), "no GPU")

    def test_shape_outside_the_contract(self):
        self.fake_gpu()
        self.behave("03_smem_tile", "refuse")
        for command in ("check", "bench", "run"):
            done = self.ladder(command, "03", "--sizes", "100x128x64")
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("nearest legal size is", " ".join(done.stdout.split()))

    def test_plot_of_damaged_files(self):
        whole = json.dumps(synthetic.make(6, (4096,)))
        for name, text, words in (
                ("cut.json", whole[:len(whole) // 2], "damaged or cut short"),
                ("empty.json", "", "damaged or cut short"),
                ("list.json", "[1, 2]", "not a result file"),
                ("foreign.json", '{"context": {"date": "x"}, "benchmarks": []}', "no gpu"),
                ("rows.json", '{"context": {"gpu": "g", "method": 1}, "benchmarks": [3]}', "row"),
        ):
            (self.root / name).write_text(text)
            self.assert_one_line_error(self.ladder("plot", name), name, words)
        (self.root / "binary.json").write_bytes(b"\xff\xfe\x00")
        self.assert_one_line_error(self.ladder("plot", "binary.json"), "not text")
        self.assert_one_line_error(self.ladder("plot", "gone.json"), "gone.json")
        self.assert_one_line_error(self.ladder("plot"), "./ladder run")
        self.assertFalse((self.root / "out").exists())

    def test_unwritable_output_folder(self):
        self.fake_gpu()
        (self.root / "file").write_text("not a folder")
        for command in ("run", "bench"):
            done = self.ladder(command, "01", "-o", "file/out")
            self.assert_one_line_error(done, "cannot write", "-o")

    def test_missing_header_line(self):
        (self.root / "steps" / "01_naive" / "kernel.cu").write_text("// 01_naive: idea\nint x;\n")
        self.assert_one_line_error(self.ladder("list"), "01_naive", "// base:")

    def test_closed_pipe(self):
        done = subprocess.run(f"{' '.join(self.command('list'))} | head -1", shell=True,
                              cwd=self.root, env=self.env, text=True, capture_output=True)
        self.assertEqual(done.stderr, "")
        self.assertIn("01_naive", done.stdout)
        # The reader is gone before the first word.
        process = subprocess.Popen(self.command("list"), cwd=self.root, env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.close()
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()
        self.assertNotEqual(process.wait(30), 0)


    def test_closed_streams_and_a_full_disk(self):
        self.fake_programs()
        command = " ".join(self.command("check", "01", "--device", "emulated"))
        for streams in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            done = subprocess.run(f"{command} {streams}", shell=True, cwd=self.root, env=self.env,
                                  text=True, capture_output=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = subprocess.run(f"{' '.join(self.command('list'))} >/dev/full", shell=True,
                              cwd=self.root, env=self.env, text=True, capture_output=True)
        self.assert_one_line_error(done, "No space left")


class Help(Sandbox):
    def test_every_command(self):
        from tools.lib import front
        for name, summary in front.commands().items():
            with self.subTest(name):
                done = self.ladder(name, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn(f"usage: ./ladder {name}", done.stdout)
                self.assertIn(f"./ladder {name}", done.stdout.split("\n\n", 1)[1])
                self.assertIn(name, self.ladder().stdout)


class Interrupt(Sandbox):
    def interrupted(self, number, *arguments, how="hang with child"):
        self.fake_gpu()
        mark = f"mark-{self.root.name}"
        self.env["FAKE_HANGS"] = str(self.root / mark)
        self.behave("02_coalesced", how)
        process = subprocess.Popen(self.command(*arguments), cwd=self.root, env=self.env,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   preexec_fn=heed_ctrl_c)
        self.wait_for((self.root / mark).exists)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        self.wait_for(lambda: not running(mark))
        self.assertNotIn("Traceback", out + err)
        left = [p.name for p in self.root.glob("out/.*")]
        self.assertEqual(left, [], "half-written file")
        return process.returncode, out, err

    def wait_for(self, condition):
        until = time.monotonic() + 20
        while not condition():
            self.assertLess(time.monotonic(), until, "waited too long")
            time.sleep(0.05)

    def test_ctrl_c_leaves_nothing(self):
        code, out, err = self.interrupted(signal.SIGINT, "run", "01-03", "--no-plots")
        self.assertEqual(code, 130)
        self.assertIn("01_naive", out)
        # What was measured before is there, whole.
        kept = json.loads((self.root / "out" / "results.json").read_text())
        self.assertTrue(any("01_naive" in row["name"] for row in kept["benchmarks"]))

    def test_terminated(self):
        code, _, _ = self.interrupted(signal.SIGTERM, "check", "02")
        self.assertEqual(code, 143)

    def test_killed_outright(self):
        code, _, _ = self.interrupted(signal.SIGKILL, "bench", "02", how="hang")
        self.assertEqual(code, -9)


def heed_ctrl_c():
    """Where the tests run in the background (`nohup ./ladder test &`), it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def running(mark):
    """How many processes have this word in their environment."""
    count = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                count += mark.encode() in file.read()
        except OSError:
            pass
    return count


if __name__ == "__main__":
    unittest.main()
