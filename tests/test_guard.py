"""tools/ptxas_guard.py: what ptxas says must fail the build, and what must not."""
import subprocess
import sys
import unittest

from support import ROOT
from tools import ptxas_guard

CLEAN = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN12_GLOBAL__N_111gemm_kernelEPK6__half' for 'sm_90a'
ptxas info    : Function properties for _ZN12_GLOBAL__N_111gemm_kernelEPK6__half
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers
"""
SPILL = CLEAN.replace("0 bytes spill stores, 0", "100 bytes spill stores, 120")
SPILL_LOADS = CLEAN.replace("0 bytes spill loads", "10 bytes spill loads")
SERIAL = """\
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized \
due to non wgmma instructions defining accumulator registers of a wgmma in function 'gemm_kernel'
"""
OTHER_C75 = "ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored to maintain \
minimum register requirements\n"
SETMAXNREG = "ptxas info    : setmaxnreg ignored; unable to determine register count at entry\n"


class Guard(unittest.TestCase):
    def guarded(self, words, code=0):
        program = f"import sys; sys.stderr.write({words!r}); sys.exit({code})"
        return subprocess.run([sys.executable, str(ROOT / "tools" / "ptxas_guard.py"),
                               sys.executable, "-c", program], text=True, capture_output=True)

    def test_clean_output_passes_through(self):
        done = self.guarded(CLEAN)
        self.assertEqual((done.returncode, done.stderr), (0, CLEAN))

    def test_complaints_fail_with_one_line(self):
        for words, meaning in ((SPILL, "spill"), (SPILL_LOADS, "spill"), (SERIAL, "not pipelined"),
                               (OTHER_C75, "not pipelined"), (SETMAXNREG, "setmaxnreg")):
            with self.subTest(meaning=meaning):
                done = self.guarded(words)
                self.assertEqual(done.returncode, 1)
                self.assertTrue(done.stderr.startswith(words))
                last = done.stderr[len(words):]
                self.assertEqual(last.count("\n"), 1)
                self.assertIn("error: ptxas: ", last)
                self.assertIn(meaning, last)

    def test_names_the_kernel(self):
        self.assertIn("gemm_kernel: ", ptxas_guard.complaints(SPILL)[0])

    def test_the_compilers_own_failure_wins(self):
        self.assertEqual(self.guarded(SPILL, 2).returncode, 2)

    def test_missing_compiler(self):
        done = subprocess.run([sys.executable, str(ROOT / "tools" / "ptxas_guard.py"), "/no/nvcc"],
                              text=True, capture_output=True)
        self.assertEqual(done.returncode, 127)
        self.assertIn("/no/nvcc", done.stderr)


if __name__ == "__main__":
    unittest.main()
