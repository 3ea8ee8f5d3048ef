"""Reading, merging and writing result files."""
import json
import unittest

import synthetic
from support import Sandbox
from tools.lib import results


def sample(name, tflops, **more):
    return {"name": name + "/iterations:1/manual_time", "run_type": "iteration",
            "real_time": 1e6 / tflops, "time_unit": "us", "tflops": tflops, **more}


CONTEXT = {"gpu": "G", "method": "1", "driver": "d", "cuda": "c", "date": "2026-11-29"}


class Files(Sandbox):
    def test_medians_and_spread_of_samples(self):
        rows = [sample("01_a/8x8x8/burst", t, vs_previous=t / 2) for t in (3.0, 1.0, 2.0)]
        row = results.parse({"context": CONTEXT, "benchmarks": rows}).rows["01_a/8x8x8/burst"]
        self.assertEqual(row.get("tflops"), 2.0)
        self.assertEqual(row.seconds, 0.5)
        self.assertEqual(row.half_range("vs_previous"), 0.5)
        self.assertEqual((row.subject, row.size, row.regime), ("01_a", (8, 8, 8), "burst"))

    def test_aggregates_of_google_benchmark(self):
        # As its JSON has it: samples, then mean, median, stddev and cv; cv of the time is a ratio.
        rows = [sample("01_a/8x8x8/burst", t) for t in (1.0, 2.0, 9.0)]
        for kind, value in (("mean", 4.0), ("median", 2.0), ("stddev", 4.3), ("cv", 1.1)):
            rows.append({"name": f"01_a/8x8x8/burst_{kind}", "run_name": "01_a/8x8x8/burst",
                         "run_type": "aggregate", "aggregate_name": kind, "real_time": value,
                         "time_unit": "us", "tflops": value})
        found = results.parse({"context": CONTEXT, "benchmarks": rows}).rows
        self.assertEqual(list(found), ["01_a/8x8x8/burst"])
        row = found["01_a/8x8x8/burst"]
        self.assertEqual((row.get("tflops"), row.seconds), (2.0, 2e-6))
        self.assertEqual(row.spread["seconds"]["cv"], 1.1)
        self.assertEqual((row.spread["tflops"]["min"], row.spread["tflops"]["max"]), (1.0, 9.0))

    def test_round_trip(self):
        one = results.parse(synthetic.make(6, (4096, 8192)))
        results.save(one, self.root / "a.json")
        two = results.load(self.root / "a.json")
        results.save(two, self.root / "b.json")
        self.assertEqual((self.root / "a.json").read_text(), (self.root / "b.json").read_text())
        self.assertEqual(one.rows.keys(), two.rows.keys())
        self.assertAlmostEqual(one.rows["06_warp_tile/8192x8192x8192/burst"].seconds,
                               two.rows["06_warp_tile/8192x8192x8192/burst"].seconds, places=7)

    def test_baselines_are_medians_over_children(self):
        children = []
        for step, best in (("01_a", 700.0), ("02_b", 710.0), ("03_c", 900.0)):
            child = results.parse({"context": CONTEXT, "benchmarks": [sample(
                f"{step}/8x8x8/burst", 1.0, pct_peak=0.1, cublas_best_tflops=best,
                ceiling_tflops=65.0, unit="ffma")]})
            children.append(child)
        merged = results.merge(children)
        best = merged.rows["cublas_best/8x8x8/burst"]
        self.assertEqual(best.get("tflops"), 710.0)
        self.assertEqual(best.spread["tflops"], {"min": 700.0, "max": 900.0,
                                                 "cv": best.spread["tflops"]["cv"]})
        self.assertAlmostEqual(best.get("pct_peak"), 71.0)
        self.assertEqual(merged.value("ceiling_ffma", (8, 8, 8), "burst"), 65.0)

    def test_order(self):
        names = ["cublas_best/8x8x8/burst", "02_b/8x8x8/sustained", "02_b/8x8x8/burst",
                 "01_a/16x16x16/burst", "01_a/8x8x8/burst"]
        self.assertEqual(sorted(names, key=results.order),
                         ["01_a/8x8x8/burst", "02_b/8x8x8/burst", "02_b/8x8x8/sustained",
                          "cublas_best/8x8x8/burst", "01_a/16x16x16/burst"])

    def test_file_name(self):
        self.assertEqual(results.file_of("NVIDIA H200"), "nvidia-h200.json")
        self.assertEqual(results.file_of("NVIDIA GeForce RTX 4090"), "nvidia-geforce-rtx-4090.json")


class Recorded(unittest.TestCase):
    def test_every_recorded_file_is_valid(self):
        from support import ROOT
        for file in (ROOT / "plots" / "results").glob("*.json"):
            with self.subTest(file.name):
                data = results.load(file)
                self.assertEqual(results.problems(data), [])
                self.assertEqual(file.name, results.file_of(data.context["gpu"]))
                kinds = {row.get("aggregate_name") for row in
                         json.loads(file.read_text())["benchmarks"]}
                self.assertLessEqual(kinds, set(results.AGGREGATES))


if __name__ == "__main__":
    unittest.main()
