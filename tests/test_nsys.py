"""profile of experiments: a stand-in for Nsight Systems, and what is made of its tables."""
import sys
import unittest

from support import ROOT, Sandbox

from tools.lib import nsys  # noqa: E402
from tools.lib.term import UserError  # noqa: E402

TRACE = """\
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),\
Bytes (MB),Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,Strm,Name
1000,2000,1,8,1,1,128,1,1,32,0.0,0.0,,,,,NVIDIA H200 (0),1,13,"void block::small_gemm<(block::\
Right)0, 32>(block::Matrices, block::Matrices, int)"
2500,1500,2,8,1,1,128,1,1,32,0.0,0.0,,,,,NVIDIA H200 (0),1,14,\
"(anonymous namespace)::gemm_kernel(CUtensorMap, int)"
9000,1000,3,,,,,,,,,,1.0,55.0,Pinned,Device,NVIDIA H200 (0),1,13,[CUDA memcpy Host-to-Device]
"""
CALLS = """\
Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
80.0,9600,2,4800.0,4800.0,4700,4900,100.0,cudaLaunchKernelExC_v11060
20.0,2400,1,2400.0,2400.0,2400,2400,0.0,cudaStreamSynchronize
"""
WORDS = "Processing [x.sqlite] with [cuda_gpu_trace.py]... \n\n"
PROGRAM = "// {id}: what graphs are for.\n// arch: 90a\n"


class Tables(unittest.TestCase):
    def setUp(self):
        self.activities, self.calls = nsys.parse(WORDS + TRACE + "\n" + WORDS + CALLS)

    def test_what_the_gpu_did(self):
        self.assertEqual([a[2] for a in self.activities],
                         ["small_gemm", "gemm_kernel", "memcpy Host-to-Device"])
        self.assertEqual(self.activities[0][:2], (1.0, 3.0))
        self.assertEqual(self.calls, [("cudaLaunchKernelExC_v11060", 2, 9.6),
                                      ("cudaStreamSynchronize", 1, 2.4)])

    def test_overlap_counts_once(self):
        busy, idle = nsys.busy_and_idle(self.activities)
        self.assertAlmostEqual(busy, 4.0)  # 1 to 4, and 9 to 10
        self.assertAlmostEqual(idle, 5.0)

    def test_sums(self):
        twice = [*self.activities, (20.0, 24.0, "small_gemm", "13")]
        self.assertEqual(nsys.by_name(twice)[0], ("small_gemm", 2, 3.0, 6.0))

    def test_nothing_and_nonsense(self):
        with self.assertRaisesRegex(UserError, "saw nothing"):
            nsys.parse(WORDS)
        with self.assertRaisesRegex(UserError, "not understood"):
            nsys.parse(TRACE.replace(",2000,", ",soon,"))


class Route(Sandbox):
    def setUp(self):
        super().setUp()
        self.fake_gpu()
        folder = self.root / "steps" / "31_graphs"
        folder.mkdir()
        (folder / "program.cu").write_text(PROGRAM.format(id="31_graphs"))
        program = self.root / "bin" / "31_graphs"
        program.write_text("#!/bin/sh\necho \"31_graphs/batch1/graph: 10 iterations\"\n"
                           f"echo \"$@\" > {self.root}/asked\n")
        program.chmod(0o755)
        (self.root / "tables").write_text(WORDS + TRACE + "\n" + WORDS + CALLS)

    def nsys(self, on_stats, on_profile="\"$@\"; touch $report.nsys-rep"):
        """`profile` runs the program and leaves a report, `stats` prints."""
        self.env["LADDER_NSYS"] = str(self.script("nsys", f"""#!/bin/sh
verb=$1; shift
case $verb in
stats) {on_stats};;
profile)
  while :; do
    case $1 in --output=*) report=${{1#--output=}};; --*) ;; *) break;; esac
    shift
  done
  {on_profile};;
esac
"""))

    def test_table(self):
        self.nsys(f"cat {self.root}/tables")
        done = self.ladder("profile", "31", "--workload", "batch1", "--variant", "graph")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for words in ("31_graphs/batch1/graph", "small_gemm", "nothing", "5.0", "56",
                      "cudaLaunchKernelExC_v11060 2 times, 4.80 us", "waits for the host",
                      "out/nsys-31_graphs-batch1-graph.nsys-rep"):
            self.assertIn(words, done.stdout)
        self.assertTrue(all(len(line) <= 80 for line in done.stdout.splitlines()), done.stdout)
        self.assertEqual((self.root / "asked").read_text().split(),
                         ["once", "--iterations", "10", "--workloads", "batch1", "--variants",
                          "graph"])

    def test_reports_by_their_old_names(self):
        self.nsys("case \"$*\" in *gputrace*) cat " + f"{self.root}/tables;; *) echo 'ERROR: "
                  "Report could not be found' >&2; exit 1;; esac")
        done = self.ladder("profile", "31")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("gemm_kernel", done.stdout)

    def test_what_can_go_wrong(self):
        self.nsys("true")
        self.assert_one_line_error(self.ladder("profile", "31"), "saw nothing")
        self.nsys("true", "true")
        self.assert_one_line_error(self.ladder("profile", "31"), "left no report")
        self.nsys("true", "echo 'error: 31_graphs: no GPU memory' >&2; exit 3")
        self.assert_one_line_error(self.ladder("profile", "31"), "no GPU memory")
        self.assert_one_line_error(self.ladder("profile", "31,10"), "apart")
        self.assert_one_line_error(self.ladder("profile", "31", "--record"), "./ladder record")
        self.assert_one_line_error(self.ladder("profile", "03", "--variant", "x"), "experiments")

    def test_without_the_tool(self):
        if nsys_is_here():
            self.skipTest("nsys is installed here")
        self.env["LADDER_NSYS"] = ""
        self.assert_one_line_error(self.ladder("profile", "31"), "Nsight Systems",
                                   "nsight-systems-cli")

    def test_without_a_gpu(self):
        self.no_gpu()
        self.assert_one_line_error(self.ladder("profile", "31"), "needs a GPU")


def nsys_is_here():
    try:
        return bool(nsys.program())
    except UserError:
        return False


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    unittest.main()
