"""Choosing steps and sizes, and the rule that a copied folder is a step with no other edit."""
import shutil
import unittest

from support import ROOT, Sandbox
from tools import test
from tools.lib import options, sizes, steps
from tools.lib.term import UserError


class Choosing(Sandbox):
    def ids(self, *words):
        known = steps.everything(self.root / "steps", variants=True)
        return [s.id for s in steps.select(list(words), known)]

    def test_words(self):
        everything = ["01_naive", "02_coalesced", "03_smem_tile", "10_double_buffer", "17_wgmma"]
        self.assertEqual(self.ids("all"), everything)
        self.assertEqual(self.ids("1"), ["01_naive"])
        self.assertEqual(self.ids("02-10"), everything[1:4])
        self.assertEqual(self.ids("17", "01"), ["01_naive", "17_wgmma"])
        self.assertEqual(self.ids("01,03"), ["01_naive", "03_smem_tile"])
        self.assertEqual(self.ids("03_smem_tile"), ["03_smem_tile"])
        self.assertEqual(self.ids("smem_tile"), ["03_smem_tile"])
        self.assertEqual(self.ids("steps/03_smem_tile/"), ["03_smem_tile"])
        for wrong in ("99", "04-09", "naive2", "..", "1.5", "-1"):
            with self.assertRaises(UserError):
                self.ids(wrong)

    def test_variant_by_its_own_name_only(self):
        kernel = self.root / "steps" / "10_double_buffer" / "kernel.cu"
        shutil.copy(kernel, kernel.with_name("variant_padding.cu"))
        self.assertEqual(self.ids("10"), ["10_double_buffer"])
        self.assertEqual(self.ids("10.padding"), ["10_double_buffer.padding"])
        self.assertEqual(self.ids("10_double_buffer.padding"), ["10_double_buffer.padding"])

    def test_a_copied_folder_is_a_step(self):
        shutil.copytree(self.root / "steps" / "03_smem_tile", self.root / "steps" / "41_mine")
        self.assertEqual(self.ids("41"), ["41_mine"])
        self.fake_gpu()
        done = self.ladder("run", "41", "--no-plots")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("41_mine", done.stdout)

    def test_architectures(self):
        naive, buffer, wgmma = (steps.one(n, steps.everything(self.root / "steps"))
                                for n in ("01", "10", "17"))
        self.assertEqual([naive.runs_on(sm) for sm in (70, 75, 90, 120)], [False, True, True, True])
        self.assertEqual([buffer.runs_on(sm) for sm in (75, 80, 89)], [False, True, True])
        self.assertEqual([wgmma.runs_on(sm) for sm in (89, 90, 100, 120)],
                         [False, True, False, False])
        self.assertEqual(naive.targets(), ["75", "80", "90a"])
        self.assertEqual(wgmma.targets(), ["90a"])

    def test_ranges(self):
        known = steps.everything(self.root / "steps")
        self.assertEqual(options.ranges(known), "01-03 10 17")


class Sizes(unittest.TestCase):
    def test_right(self):
        self.assertEqual(sizes.parse("4096"), [(4096, 4096, 4096)])
        self.assertEqual(sizes.parse("1x2x3,4096X8x16,1x2x3"), [(1, 2, 3), (4096, 8, 16)])
        self.assertEqual(sizes.short((8, 8, 8)), "8")

    def test_wrong(self):
        for text in ("0", "-1", "1.5", "abc", "", "1x2", "1x2x3x4", "1e3", "1000000000", "8x8x0",
                     "99999999999999999999"):
            with self.subTest(text), self.assertRaises(UserError) as caught:
                sizes.parse(text)
            self.assertNotIn("\n", str(caught.exception))


class RealSteps(unittest.TestCase):
    def test_further_mutants(self):
        one = next(s for s in steps.everything() if s.number == 29)
        runs = test._mutant_runs(one)
        self.assertEqual(runs[0], ([], {}))
        self.assertIn((["--sizes", "128x256x1024"],
                       {"LADDER_GEMM_CONFIG": "128x128/c1x1/s3/g16/p0"}), runs)
        for variant in (s for s in steps.everything(variants=True)
                        if s.id.startswith(one.id + ".")):
            self.assertEqual(test._mutant_runs(variant), [([], {})])
        self.assertEqual(test._verdicts(
            "caught           kernel.cu:12    bar_sync skip                     race: a test, at k\n"
            "caught, unnamed  kernel.cu:13    __syncthreads skip                no result\n"
            "SURVIVED         epilogue.h:589  atom_or_acq_rel skip              x = y;\n"
            "3 mutations: 2 caught (1 name a buffer or barrier and a line), 0 argued for\n"),
            [("caught", "kernel.cu:12    bar_sync skip"),
             ("caught", "kernel.cu:13    __syncthreads skip"),
             ("SURVIVED", "epilogue.h:589  atom_or_acq_rel skip")])

    def test_headers_of_all_steps(self):
        known = steps.everything(ROOT / "steps", variants=True)
        ids = {step.id for step in known}
        for step in known:
            with self.subTest(step.id):
                self.assertTrue(step.idea)
                self.assertTrue(step.targets(), "no GPU is built for")
                if step.base:
                    self.assertIn(step.base, ids)
                    self.assertLessEqual(step.base, step.id)
                self.assertTrue(step.kernel.read_text().startswith(f"// {step.id}: "))
                self.assertTrue(step.kernel.read_text().rstrip().endswith(");"))


if __name__ == "__main__":
    unittest.main()
