"""fork: a new step from an old one, whole or not at all."""
import unittest

from support import Sandbox


class Fork(Sandbox):
    def test_fork_runs_at_once(self):
        done = self.ladder("fork", "03", "mine")
        self.assertEqual(done.returncode, 0, done.stderr)
        folder = self.root / "steps" / "40_mine"
        text = (folder / "kernel.cu").read_text()
        self.assertTrue(text.startswith("// 40_mine: the idea"))
        self.assertIn("// base: 03_smem_tile", text)
        self.assertIn("./ladder run 40", (folder / "README.md").read_text())
        self.fake_gpu()
        done = self.ladder("run", "40", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 lines added, 2 removed", self.ladder("diff", "40").stdout)

    def test_numbers(self):
        self.ladder("fork", "03", "mine")
        self.ladder("fork", "03", "other")
        self.assertTrue((self.root / "steps" / "41_other").is_dir())
        self.assertEqual(self.ladder("fork", "03", "55_wide").returncode, 0)
        self.assert_one_line_error(self.ladder("fork", "03", "55_again"), "55")

    def test_bad_names(self):
        for name in ("My", "a-b", "../x", "4x", "_a", "a b"):
            self.assert_one_line_error(self.ladder("fork", "03", name), "small letters")
        self.assert_one_line_error(self.ladder("fork", "99", "mine"), "99")
        self.assertEqual(len(list((self.root / "steps").iterdir())), 5)

    def test_diff(self):
        self.assert_one_line_error(self.ladder("diff", "01"), "first")
        self.assert_one_line_error(self.ladder("diff", "01", "02", "03"), "one step, or two")
        self.assertIn("-// 01_naive", self.ladder("diff", "01", "10").stdout)

    def test_lines_that_only_move_to_the_right(self):
        self.ladder("fork", "03", "mine")
        kernel = self.root / "steps" / "40_mine" / "kernel.cu"
        lines = kernel.read_text().splitlines()
        kernel.write_text("\n".join(lines[:4] + ["  " + line for line in lines[4:]]) + "\n")
        all_of_it = 2 + sum(1 for line in lines[4:])
        self.assertIn(f"{all_of_it} lines added, {all_of_it} removed; {2 * all_of_it - 4} of these "
                      f"{2 * all_of_it} only move to the right", self.ladder("diff", "40").stdout)
        done = self.ladder("diff", "40", "-w").stdout
        self.assertIn("2 lines added, 2 removed, indentation aside", done)
        self.assertIn("+// base: 03_smem_tile", done)


if __name__ == "__main__":
    unittest.main()
