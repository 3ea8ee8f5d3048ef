"""trace, profile, occupancy, predict and the pictures, with synthetic data and no GPU."""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import synthetic
import synthetic_trace
from support import ROOT, Sandbox

from tools.lib import (banks, counts, kernel_facts, model, occupancy,  # noqa: E402
                       profiling, steps, tracing)
from tools.lib.term import UserError  # noqa: E402

PLOT_PYTHON = os.environ.get("LADDER_PLOT_PYTHON")
needs_matplotlib = unittest.skipUnless(PLOT_PYTHON, "matplotlib is not there")
needs_gxx = unittest.skipUnless(shutil.which("g++"), "g++ is not there")


class Traces(unittest.TestCase):
    def setUp(self):
        both = synthetic_trace.all_do_both
        self.one_buffer = tracing.parse(synthetic_trace.make("09_cp_async", "mma_sync", both()))
        self.two_buffers = tracing.parse(
            synthetic_trace.make("10_double_buffer", "mma_sync", both(double=True)))
        self.roles = tracing.parse(synthetic_trace.make())

    def test_times_survive_the_wrap_of_the_clock(self):
        for warp in self.one_buffer.warps:
            self.assertLess(warp.end, 100_000)
            self.assertGreaterEqual(warp.begin, 0)

    def test_spans_have_no_holes(self):
        for trace in (self.one_buffer, self.two_buffers, self.roles):
            for warp in trace.warps:
                for a, b in zip(warp.spans, warp.spans[1:]):
                    self.assertEqual(a.end, b.begin, f"{trace.step} warp {warp.warp}")

    def test_one_buffer_alternates_two_overlap(self):
        self.assertGreater(tracing.waiting(self.one_buffer), 0.4)
        self.assertLess(tracing.waiting(self.two_buffers), 0.35)
        self.assertGreater(tracing.fed(self.two_buffers), tracing.fed(self.one_buffer) + 0.2)
        activities = {s.activity for w in self.one_buffer.warps for s in w.spans}
        self.assertLessEqual({"math", "copy", "data", "sync"}, activities)

    def test_roles_and_stages(self):
        by_warp = {w.warp: w for w in self.roles.warps}
        self.assertEqual(by_warp[8].role, "producer")
        self.assertEqual(by_warp[0].role, by_warp[4].role, "consumer")
        stages = [s.stage for s in by_warp[8].spans if s.activity == "slot"]
        self.assertEqual(stages[4:8], [0, 1, 2, 3])
        self.assertLess(tracing.waiting(self.roles), 0.05)
        self.assertGreater(tracing.fed(self.roles), 0.85)

    def test_perfetto_format(self):
        for trace in (self.one_buffer, self.two_buffers, self.roles):
            data = json.loads(json.dumps(tracing.chrome(trace)))
            self.assertEqual(tracing.chrome_problem(data), "")
            names = {e["args"]["name"] for e in data["traceEvents"] if e["ph"] == "M" and
                     e["name"] == "thread_name"}
            self.assertTrue(any(n.startswith("warp 0") for n in names))

    def test_the_check_of_the_format_finds_faults(self):
        good = tracing.chrome(self.roles)
        for spoil in (lambda d: d.pop("traceEvents"), lambda d: d["traceEvents"][-1].pop("name"),
                      lambda d: d["traceEvents"][-1].update(ph="Z"),
                      lambda d: d["traceEvents"][-1].update(pid="x"),
                      lambda d: next(e for e in d["traceEvents"] if e["ph"] == "X").pop("dur"),
                      lambda d: next(e for e in d["traceEvents"] if e["ph"] == "i").pop("s")):
            bad = json.loads(json.dumps(good))
            spoil(bad)
            self.assertNotEqual(tracing.chrome_problem(bad), "")

    def test_reduced_keeps_the_shares(self):
        data = synthetic_trace.make()
        small = tracing.reduced(data, self.roles, 0, 4096, cycles=6000)
        self.assertLess(len(json.dumps(small)), len(json.dumps(data)))
        again = tracing.parse(json.loads(json.dumps(small)))
        self.assertAlmostEqual(tracing.fed(again), tracing.fed(self.roles), 3)
        self.assertEqual({w.role for w in again.warps}, {w.role for w in self.roles.warps})

    def test_bad_data(self):
        for bad in ({}, {"format": 1}, {"format": 2}, {"format": 9}, [],
                    {**synthetic_trace.make(), "warps": []},
                    {**synthetic_trace.make(), "warps": [{"cta": 0}]}):
            with self.assertRaises(UserError):
                tracing.parse(bad)


class Backend(unittest.TestCase):
    """common/ptx/trace.h beside cuda.h."""

    def functions(self, name):
        text = (ROOT / "common" / "ptx" / name).read_text()
        return {m[1]: " ".join(m[2].split()) for m in re.finditer(
            r"PTX_FN (?:void|bool|uint32_t|int) (\w+)\(([^)]*)\) \{", text)}

    def test_wrappers_have_the_signatures_of_the_real_ones(self):
        real, traced = self.functions("cuda.h"), self.functions("trace.h")
        own = {"state", "watched", "block", "now", "record",
               "now_after_barrier", "what", "instant", "interval", "copy_issued",
               "take_copies", "copies_committed", "letters", "syncthreads"}
        wrapped = set(traced) - own
        self.assertGreater(len(wrapped), 9)
        for name in wrapped - {"wgmma_wait_group"}:
            self.assertIn(name, real)
            types = lambda s: re.sub(r"\b(\w+)(,|$)", r"\2", s).replace(" ", "")  # noqa: E731
            kept = re.sub(r",? ?LINE$", "", traced[name])
            self.assertEqual(len([p for p in kept.split(",") if p.strip()]),
                             len([p for p in real[name].split(",") if p.strip()]), name)

    def test_everything_that_waits_is_stamped(self):
        traced = self.functions("trace.h")
        for name in self.functions("cuda.h"):
            if "wait" in name and name != "mbarrier_test_wait":
                self.assertIn(name, traced)

    def test_other_builds_have_none_of_it(self):
        text = (ROOT / "common" / "ptx" / "ptx.h").read_text()
        self.assertRegex(text, r"#elif defined\(LADDER_TRACE\)\n#include \"common/ptx/trace.h\"")
        for kernel in ROOT.glob("steps/*/*.cu"):
            self.assertNotIn("TRACE", kernel.read_text())

    @unittest.skipUnless(shutil.which("nvcc"), "nvcc is not there")
    def test_a_traced_kernel_compiles(self):
        step = steps.one("10")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                ["nvcc", "-std=c++17", "-I", ROOT, "-arch=sm_80", "-DLADDER_TRACE",
                 f'-DSTEP_ID="{step.id}.trace"', "-c", step.kernel, "-o", f"{folder}/k.o"],
                capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(shutil.which("cmake") and shutil.which("g++"), "cmake or g++ is not there")
    def test_a_step_may_stand_beside_its_traced_self(self):
        """What a step defines for others (29's gemm) stays inside of the traced object."""
        with tempfile.TemporaryDirectory() as folder:
            def run(*command):
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
                return done.returncode, done.stdout + done.stderr
            for name, number in (("plain", 1), ("traced", 2)):
                Path(folder, f"{name}.cpp").write_text(
                    "#include <string>\nint counter = 0;\nstd::string gemm() { return \"x\"; }\n"
                    f"int {name}() {{ return {number} + counter + int(gemm().size()); }}\n")
                self.assertEqual(run("g++", "-c", f"{name}.cpp")[0], 0)
            Path(folder, "main.cpp").write_text("int plain();\nint main() { return plain(); }\n")
            link = ("g++", "main.cpp", "plain.o")
            self.assertIn("multiple definition", run(*link, "traced.o")[1])
            code, said = run("cmake", "-DNM=nm", "-DOBJCOPY=objcopy", "-DFROM=traced.o",
                             "-DTO=local.o", "-P", ROOT / "cmake" / "localize.cmake")
            self.assertEqual(code, 0, said)
            self.assertEqual(run(*link, "local.o")[0], 0)


class Facts(unittest.TestCase):
    TEXT = """
constexpr int BLOCK_M = 128, BLOCK_N = 64;
constexpr int BLOCK_K = 32;  // of a tile
constexpr int NUM_STAGES = 3;
constexpr int NUM_THREADS = (BLOCK_M / 64) * (BLOCK_N / 32) * 32;
struct SharedStorage {
  alignas(128) half a[NUM_STAGES][BLOCK_M * BLOCK_K];  // [BLOCK_M][BLOCK_K]
  half b[NUM_STAGES][BLOCK_K * BLOCK_N];
  uint64_t full_bar[NUM_STAGES];

  __device__ void label() {
    for (int s = 0; s < NUM_STAGES; ++s) ptx::label(a[s], sizeof(a[s]), "A", s);
  }
};
constexpr int STAGE_BYTES = sizeof(SharedStorage::a[0]) + sizeof(SharedStorage::b[0]);
__global__ void gemm_kernel() { ptx::dynamic_smem(); ptx::cp_async_cg_16(a, b); }
"""

    def test_constants_and_shared_memory(self):
        facts = kernel_facts.parse(self.TEXT)
        self.assertEqual((facts.get("BLOCK_N"), facts.threads, facts.stages), (64, 128, 3))
        self.assertEqual(facts.get("STAGE_BYTES"), (128 + 64) * 32 * 2)
        self.assertEqual(facts.dynamic_smem, 3 * (128 + 64) * 32 * 2 + 128)  # 24, rounded up
        self.assertEqual(kernel_facts.parse(self.TEXT, {"NUM_STAGES": 2}).dynamic_smem,
                         2 * (128 + 64) * 32 * 2 + 128)

    def test_unknown_constant(self):
        with self.assertRaisesRegex(UserError, "STAGES"):
            kernel_facts.parse(self.TEXT, {"STAGES": 2})

    def test_every_step_can_be_read(self):
        for step in steps.everything():
            facts = kernel_facts.read(step)
            self.assertTrue(32 <= facts.threads <= 1024, step.id)
            self.assertIsNotNone(facts.dynamic_smem, step.id)
            self.assertIsNotNone(facts.static_smem, step.id)
            self.assertTrue(facts.get("BLOCK_M") and facts.get("BLOCK_N"), step.id)


class Occupancy(unittest.TestCase):
    def test_rules(self):
        blocks = lambda *a: occupancy.blocks(occupancy.gpu(a[0]), *a[1:])  # noqa: E731
        self.assertEqual(blocks("h200", 256, 128, 65536), (2, "registers"))
        self.assertEqual(blocks("h200", 256, 129, 65536)[0], 1)
        self.assertEqual(blocks("h200", 288, 168, 229440), (1, "shared memory"))
        self.assertEqual(blocks("h200", 256, 32, 232449)[0], 0)
        self.assertEqual(blocks("a100", 1024, 32, 0), (2, "registers"))
        self.assertEqual(blocks("t4", 1024, 32, 0), (1, "threads"))
        self.assertEqual(blocks("rtx3060", 256, 64, 50 * 1024), (1, "shared memory"))
        self.assertEqual(blocks("rtx3060", 128, 32, 0), (12, "threads"))
        self.assertEqual(blocks("h200", 32, 16, 0), (32, "blocks"))

    def test_names(self):
        self.assertEqual(occupancy.gpu("NVIDIA H200")["key"], "h200")
        with self.assertRaisesRegex(UserError, "h200"):
            occupancy.gpu("voodoo2")


class Predictions(unittest.TestCase):
    def setUp(self):
        self.gpu, self.kept = occupancy.gpu("h200"), counts.load()
        self.known = [s for s in steps.everything() if s.id in self.kept]

    def rate(self, number, size=(4096,) * 3, **more):
        return model.predict(steps.one(number), self.gpu, size, kept=self.kept, **more)

    def test_network(self):
        self.assertAlmostEqual(model.closed_network([3.0, 5.0], 2.0, 1), 10.0)
        self.assertAlmostEqual(model.closed_network([3.0, 5.0], 2.0, 200), 5.0, 1)
        self.assertAlmostEqual(model.closed_network([4.0, 4.0], 0.0, 2), 6.0)

    def test_every_counted_step(self):
        self.assertGreater(len(self.known), 20)
        for step in self.known:
            for size in ((2048,) * 3, (4096,) * 3, (8192,) * 3):
                for regime in model.REGIMES:
                    p = model.predict(step, self.gpu, size, regime, kept=self.kept)
                    top = self.gpu["ceiling_tflops"][regime][step.unit]
                    self.assertTrue(0 < p.tflops < 1.02 * top, f"{step.id} {p.tflops}")
                    self.assertTrue(p.bound)

    def test_what_the_ladder_teaches(self):
        self.assertGreater(self.rate("11").tflops, 2 * self.rate("10").tflops)  # bank conflicts
        self.assertGreater(self.rate("02").tflops, 5 * self.rate("01").tflops)  # coalescing
        self.assertGreater(self.rate("23").tflops, self.rate("17").tflops)
        self.assertGreater(self.rate("09").exposed, self.rate("10").exposed)  # lead

    def test_traffic_depends_on_m_and_n_not_on_k(self):
        step = steps.one("12")
        base = self.rate("12")
        for values, factor in (({"BLOCK_K": 64}, 1.0), ({"BLOCK_N": 256}, 0.75)):
            found = model.predict(step, self.gpu, (4096,) * 3, values=values, kept=self.kept)
            self.assertAlmostEqual(found.bytes["l2"] / base.bytes["l2"], factor)

    def test_a_step_that_chooses_moves_what_its_choice_moves(self):
        step = steps.one("29")
        for n in (2048, 4096, 8192):
            size = (n,) * 3
            config = counts.choice(step, self.kept, size)
            counted, (rows, columns) = (f(step, self.kept, size) for f in (counts.of, counts.shape))
            fetched = counted["tma_load_bytes"][1] - counted.get("tma_multicast_bytes", (0, 0))[1]
            found = model.predict(step, self.gpu, size, kept=self.kept).bytes["l2"] / n ** 3
            # Tiles at the edge count whole here.
            self.assertAlmostEqual(found / (fetched / (rows * columns)), 1, delta=0.04, msg=config)

    def test_counts_are_fresh(self):
        stale = [s.id for s in steps.everything() if not counts.is_fresh(s, self.kept)]
        if stale:
            self.skipTest(f"kernels changed since ./ladder predict --refresh: {', '.join(stale)}")


class Profiles(unittest.TestCase):
    def csv(self, values, units=None):
        names = {key: m[0] for key, m in profiling.METRICS.items()}
        keys = list(values)
        head = ["ID", "Kernel Name", *(names[k] for k in keys)]
        unit = ["", "", *((units or {}).get(k, "") for k in keys)]
        row = ["0", "gemm_kernel(...)", *(values[k] for k in keys)]
        quote = lambda cells: ",".join(f'"{c}"' for c in cells)  # noqa: E731
        return "\n".join(["==PROF== Connected", quote(head), quote(unit), quote(row)]) + "\n"

    def test_parse(self):
        found = profiling.parse(self.csv({"tensor_pct": "93.51", "dram_bytes": "1,234.5",
                                          "time_us": "182,300", "l2_hit_pct": "n/a"},
                                         {"dram_bytes": "Mbyte", "time_us": "nsecond"}))
        self.assertAlmostEqual(found["tensor_pct"], 93.51)
        self.assertAlmostEqual(found["dram_bytes"], 1234.5e6)
        self.assertAlmostEqual(found["time_us"], 182.3)
        self.assertIsNone(found["l2_hit_pct"])
        self.assertIsNone(found["fma_pct"])

    def test_causes(self):
        with self.assertRaisesRegex(UserError, "NVreg_RestrictProfilingToAdminUsers"):
            profiling.parse("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission")
        with self.assertRaisesRegex(UserError, "measured nothing"):
            profiling.parse("==WARNING== No kernels were profiled.\n")
        with self.assertRaisesRegex(UserError, "no metric"):
            profiling.parse('"ID","Kernel Name","x"\n"","",""\n"0","gemm_kernel","1"\n')

    def test_advice(self):
        conflict = {"smem_wavefronts": 100, "conflicts": 80, "stall_mio_throttle": 5.0}
        self.assertIn("11_swizzle", " ".join(profiling.advice(conflict, "mma_sync")))
        fed = {"tensor_pct": 95, "stall_gmma": 3.0}
        self.assertIn("hardly rests", " ".join(profiling.advice(fed, "wgmma")))
        self.assertEqual(profiling.top_stalls({"stall_gmma": 3.0, "stall_wait": 1.0})[0],
                         ("wgmma", 0.75))

    def test_metrics_of_the_issue(self):
        names = " ".join(m[0] for m in profiling.METRICS.values())
        for part in ("tensor_cycles_active", "dram__throughput", "lts__t_sector_hit_rate",
                     "wavefronts_mem_shared_ideal", "warps_active", "stalled_gmma",
                     "sectors_per_request"):
            self.assertIn(part, names)
        self.assertIn("none", profiling.ncu_arguments("x"))  # clocks left alone


class Banks(unittest.TestCase):
    @needs_gxx
    def test_conflicts_by_the_kernels_own_functions(self):
        for number, worst in (("09", 8), ("11", 1), ("23", 1)):
            found = [access.wavefronts(i) for access in banks.read(steps.one(number))
                     for i in range(4)]
            self.assertEqual(max(found), worst, number)

    @needs_gxx
    def test_agrees_with_the_emulated_device(self):
        kept = counts.load()
        for number in ("08", "11"):
            step = steps.one(number)
            counted = counts.of(step, kept)
            ratio = counted["ldmatrix_wavefronts"][1] / counted["ldmatrix_ideal_wavefronts"][1]
            facts = kernel_facts.read(step)
            of_a, of_b = (sum(a.wavefronts(i) for i in range(4)) for a in banks.read(step))
            reads_a = facts.get("WARP_M") // 16
            reads_b = facts.get("WARP_N") // 16
            self.assertAlmostEqual((reads_a * of_a + reads_b * of_b) / (4 * (reads_a + reads_b)),
                                   ratio, 3)

    def test_a_step_without(self):
        with self.assertRaisesRegex(UserError, "08"):
            banks.read(steps.one("02"))


class Figures(unittest.TestCase):
    @needs_gxx
    def test_figures_show_what_is_recorded(self):
        done = subprocess.run([sys.executable, ROOT / "ladder", "figures", "--check"], cwd=ROOT,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Commands(Sandbox):
    def write(self, name, data):
        path = self.root / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    def test_one_clear_line(self):
        self.write("bad.json", '{"format": 1')
        self.write("other.json", '{"a": 1}')
        for words, expected in (
                (("trace", "10"), "no GPU"), (("trace", "02"), "nothing asynchronous"),
                (("trace", "77"), "./ladder list"), (("trace", "bad.json"), "damaged"),
                (("trace", "other.json"), "not a trace"), (("trace", "gone.json"), "gone.json"),
                (("trace",), "name a step"), (("trace", "10", "--sizes", "1.5"), "size"),
                (("trace", "10", "--sizes", "64,128"), "one size"),
                (("trace", "10", "--sm", "-2"), "--sm"),
                (("profile", "10"), "no GPU"),
                (("profile", "10", "--recorded"), "nothing recorded"),
                (("profile", "77"), "./ladder list"),
                (("occupancy", "10", "--gpu", "voodoo2"), "h200"),
                (("occupancy", "17", "--gpu", "a100"), "9.0"),
                (("occupancy", "10", "WRONG=3"), "WRONG"),
                (("occupancy", "10", "BLOCK_K=x"), "BLOCK_K"),
                (("occupancy", "10", "--measure"), "no GPU"),
                (("predict", "--gpu", "voodoo2"), "h200"), (("predict", "77"), "./ladder list"),
                (("plot", "--kind", "banks"), "one step"),
                (("plot", "--kind", "banks", "77"), "./ladder list"),
                (("plot", "--kind", "waits"), "profile"), (("plot", "--kind", "stages"), "sweep"),
                (("plot", "--kind", "roofline"), "./ladder run")):
            with self.subTest(words=words):
                self.assert_one_line_error(self.ladder(*words), expected)

    def test_predict_without_counts(self):
        done = self.ladder("predict", "01")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("never counted", done.stdout)

    def test_trace_of_a_file(self):
        self.write("t.json", synthetic_trace.make())
        done = self.ladder("trace", "t.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tensor pipe fed", done.stdout)
        data = json.loads((self.root / "out" / "t.perfetto.json").read_text())
        self.assertEqual(tracing.chrome_problem(data), "")

    def test_a_trace_that_fails(self):
        self.fake_gpu()
        for how, code, expected in (("echo 'error: 10_double_buffer: no kernel image' >&2; exit 3",
                                     3, "no kernel image"), ("exit 0", 3, "wrote no trace")):
            program = self.root / "bin" / "10_double_buffer.trace"
            program.write_text(f"#!/bin/sh\n{how}\n")
            program.chmod(0o755)
            done = self.ladder("trace", "10")
            self.assert_one_line_error(done, expected)
            self.assertEqual(done.returncode, code)

    def test_traces_are_recorded(self):
        self.fake_gpu()
        self.env["LADDER_COMMIT"] = "0123456789abcdef"
        both = synthetic_trace.all_do_both
        for step, made in (("10_double_buffer", synthetic_trace.make(
                "10_double_buffer", "mma_sync", both())), ("17_wgmma", synthetic_trace.make())):
            raw = self.write(f"{step}.raw", made)
            program = self.root / "bin" / f"{step}.trace"
            program.write_text("#!/bin/sh\nwhile [ \"$1\" != --json ]; do shift; done\n"
                               f"cp {raw} \"$2\"\n")
            program.chmod(0o755)
        done = self.ladder("trace", "--compare", "10,17", "--record")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        kept = sorted((self.root / "plots" / "results" / "traces").glob("*/*.json"))
        self.assertEqual([file.stem for file in kept], ["10_double_buffer", "17_wgmma"])
        self.assertEqual(json.loads(kept[0].read_text())["commit"], "0123456789ab")
        self.assertGreater(tracing.waiting(tracing.load(kept[0])), 0.3)
        # And where there is no GPU they are what is drawn.
        self.no_gpu()
        again = self.ladder("trace", "10")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("recorded", again.stdout)

    def test_profiles_are_recorded(self):
        self.fake_gpu()
        self.env["LADDER_COMMIT"] = "0123456789abcdef"
        log = self.write("answer.csv", Profiles().csv({"tensor_pct": "41.5", "stall_wait": "1"}))
        self.env["LADDER_NCU"] = str(self.script(
            "ncu", "#!/bin/sh\nwhile [ \"$1\" != --log-file ]; do shift; done\n"
            f"cp {log} \"$2\"\n"))
        done = self.ladder("profile", "10,17", "--record")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.no_gpu()
        again = self.ladder("profile", "17", "--recorded")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn("41.5", again.stdout)
        self.assert_one_line_error(self.ladder("profile", "02", "--recorded"), "not recorded")

    def test_profile_with_counters_forbidden(self):
        self.fake_gpu()
        self.env["LADDER_NCU"] = str(self.script(
            "ncu", "#!/bin/sh\necho '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1\n"))
        self.assert_one_line_error(self.ladder("profile", "10"), "ERR_NVGPUCTRPERM", "cap-add",
                                   "./ladder trace")

    def test_profile_without_a_tool(self):
        self.fake_gpu()
        self.env["LADDER_NCU"] = ""
        self.env["PATH"] = os.pathsep.join(
            p for p in self.env["PATH"].split(os.pathsep) if not (Path(p) / "ncu").exists())
        if any(Path("/opt/nvidia").glob("*/*/ncu")) or Path("/usr/local/cuda/bin/ncu").exists():
            self.skipTest("ncu is installed here")
        self.assert_one_line_error(self.ladder("profile", "10"), "Nsight Compute")

    def test_profile_table(self):
        self.fake_gpu()
        csv = Profiles().csv({"tensor_pct": "41.5", "stall_barrier": "2.0", "stall_wait": "1.0",
                              "smem_asked": "1000", "smem_ideal": "400"})
        log = self.write("answer.csv", csv)
        # As a version of ncu that lacks one of the metrics: it says so and measures nothing.
        self.env["LADDER_NCU"] = str(self.script(
            "ncu", "#!/bin/sh\ncase \"$*\" in "
            "*l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum*)\n"
            "  echo '==ERROR== Failed to find metric "
            "regex:^l1tex__data_bank_conflicts_pipe_lsu_mem_shared[.](sum)$'; exit 9;; esac\n"
            "while [ \"$1\" != --log-file ]; do shift; done\n"
            f"cp {log} \"$2\"\n"))
        done = self.ladder("profile", "10")
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in ("41.5", "barrier 67", "60", "swizzle"):
            self.assertIn(words, done.stdout)

    @needs_matplotlib
    def test_pictures(self):
        results = synthetic.make(25, (4096,))
        results["context"]["gpu"] = "Synthetic H200 (invented numbers)"
        for row in results["benchmarks"]:
            row["gpu_util_nvml_pct"] = 99.0
        sweep = {"context": results["context"], "benchmarks": [
            {"name": f"12_multistage-NUM_STAGES-{n}/4096x4096x4096/burst", "run_type": "iteration",
             "real_time": 1.0, "time_unit": "ms", "tflops": 100.0 + n} for n in (2, 3, 4)]}
        tiles = {**sweep, "benchmarks": [
            {**row, "name": row["name"].replace("NUM_STAGES-", "BLOCK_K-1")}
            for row in sweep["benchmarks"]]}
        stalls = {f"stall_{name}": 0.5 for name in profiling.STALLS}
        profile = {"format": profiling.FORMAT, "gpu": "Synthetic GPU (invented numbers)",
                   "profiles": {"10_double_buffer/4096x4096x4096": stalls}}
        for kind, data in (("roofline", results), ("utilisation", results), ("bytes", results),
                           ("stages", sweep), ("tile", tiles), ("waits", profile)):
            with self.subTest(kind=kind):
                file = self.write(f"{kind}.json", data)
                self.draw("see.py", kind, file)
        both = synthetic_trace.all_do_both
        files = [self.write("a.json", synthetic_trace.make()),
                 self.write("b.json", synthetic_trace.make("09_cp_async", "mma_sync", both()))]
        self.draw("trace.py", "one", files[0])
        self.draw("trace.py", "compare", *files)
        if shutil.which("g++"):
            self.draw("see.py", "banks", "11")

    @needs_matplotlib
    def test_a_sweep_of_something_else(self):
        results = synthetic.make(12, (4096,))
        for kind, name, words in (("tile", "NUM_STAGES", "no sweep over sizes of tiles"),
                                  ("stages", "BLOCK_K", "no sweep over NUM_STAGES")):
            file = self.write("s.json", {"context": results["context"], "benchmarks": [
                {"name": f"12_multistage-{name}-3/4096x4096x4096/burst", "run_type": "iteration",
                 "real_time": 1.0, "time_unit": "ms", "tflops": 100.0}]})
            done = self.ladder("plot", file, "--kind", kind)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)

    def draw(self, script, *words):
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}  # the real steps, not the sandbox's
        done = subprocess.run([PLOT_PYTHON, ROOT / "plots" / script, *words, "-o", self.root / "o"],
                              capture_output=True, text=True, timeout=120, env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in done.stdout.split():
            self.assertGreater(os.stat(name)[stat.ST_SIZE], 5000, name)


if __name__ == "__main__":
    unittest.main()
