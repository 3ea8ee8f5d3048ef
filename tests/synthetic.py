"""Synthetic results: invented numbers of the shape of real ones, to try plots and tables with 6 and
with 30 steps. Made anew for each test; never to be put under plots/results."""
import random

PEAK = 989.4
# id, unit, TFLOPS in burst
STEPS = """01_naive ffma 0.6|02_coalesced ffma 6.1|03_smem_tile ffma 9.0|04_thread_tile ffma 27
05_vectorized ffma 39|06_warp_tile ffma 53|07_mma_sync mma_sync 120|08_ldmatrix mma_sync 165
09_cp_async mma_sync 171|10_double_buffer mma_sync 255|11_swizzle mma_sync 395
12_multistage mma_sync 455|13_register_pipeline mma_sync 520|14_rasterization mma_sync 540
15_warp_specialized_cp_async mma_sync 525|16_tma mma_sync 548|17_wgmma wgmma 430
18_wgmma_pipeline wgmma 560|19_warp_specialized wgmma 610|20_two_consumers wgmma 665
21_persistent wgmma 690|22_cluster_multicast wgmma 730|23_tma_store wgmma 745
24_pingpong wgmma 735|25_stream_k wgmma 748|26_locality wgmma 753|27_pace_sync wgmma 754
28_wide_tile wgmma 720|29_any_shape wgmma 755|40_mine wgmma 741"""


def make(count, size_list=(4096, 8192)):
    rng = random.Random(count)
    rows = []

    def add(name, tflops, flops, **counters):
        for kind, noise in (("median", None), ("cv", 0.002), ("min", 0.997), ("max", 1.003)):
            values = {"real_time": flops / tflops / 1e6, "tflops": tflops, **counters}
            if kind == "cv":
                values = {k: noise for k in values}
            elif noise:
                values = {k: v * noise for k, v in values.items()}
            rows.append({"name": f"{name}_{kind}", "run_name": name, "run_type": "aggregate",
                         "aggregate_name": kind, **values, "time_unit": "us"})

    steps = [line.split() for line in STEPS.replace("\n", "|").split("|")][:count]
    for n in size_list:
        for regime in ("burst", "sustained"):
            ceilings = {"ffma": 65.0, "mma_sync": 622.0, "wgmma": 892.0}
            if regime == "sustained":
                ceilings["wgmma"] = 822.0
            best = (763 if regime == "burst" else 633) * (1.01 if n == 8192 else 1)
            before = None
            for step, unit, tflops in steps:
                tflops = float(tflops) * rng.uniform(0.99, 1.01)
                if regime == "sustained":
                    tflops *= 1 - 0.17 * tflops / 755
                counters = {"pct_peak": tflops / PEAK * 100,
                            "pct_ceiling": tflops / ceilings[unit] * 100,
                            "vs_cublas_default": tflops / best * 1.01,
                            "vs_cublas_best": tflops / best, "sm_clock_nvml_mhz": 1755.0}
                if before:
                    counters["vs_previous"] = tflops / before
                add(f"{step}/{n}x{n}x{n}/{regime}", tflops, 2.0 * n**3, **counters)
                before = tflops
            for name, value in [("cublas_default", best / 1.01), ("cublas_best", best)] + [
                    (f"ceiling_{u}", v) for u, v in ceilings.items()]:
                add(f"{name}/{n}x{n}x{n}/{regime}", value, 2.0 * n**3, pct_peak=value / PEAK * 100)
    context = {"gpu": "Synthetic GPU (invented numbers)", "driver": "000.00", "cuda": "0.0",
               "cublas": "0", "power_limit_w": 700, "commit": "0" * 12, "dirty": False,
               "method": 0, "date": "2000-01-01T00:00:00", "peak_tflops": PEAK}
    return {"context": context, "benchmarks": rows}

