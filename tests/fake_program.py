"""Stands in for build/*/bin/NN_idea: same command line, same JSON, invented numbers. The variable
FAKE_<step> makes it fail in one of the ways that real ones do."""
import json
import os
import re
import signal
import subprocess
import sys
import time


def option(words, name, default=""):
    return words[words.index(name) + 1] if name in words else default


def fail(words, code):
    print(f"error: {words}", file=sys.stderr)
    sys.exit(code)


def bench_rows(step, size, regime):
    shape, _, kind = size.partition("/")
    m, n, k = (int(x) for x in shape.split("x"))
    if batch := re.search(r"-batch(\d+)", kind):
        m *= int(batch[1])  # as many operations
    tflops = 1.0 + int(step[:2]) * (1.0 if regime == "burst" else 0.9)
    for sample in (0.99, 1.0, 1.01):
        row = {"name": f"{step}/{size}/{regime}/iterations:1/manual_time",
               "run_type": "iteration", "iterations": 1, "time_unit": "ms",
               "real_time": 2e-9 * m * n * k / (tflops * sample),
               "tflops": tflops * sample, "pct_peak": tflops * sample / 9.0,
               "pct_ceiling": 50.0, "vs_cublas_default": 0.5, "vs_cublas_best": 0.4,
               "cublas_default_tflops": 600.0, "cublas_best_tflops": 700.0 + int(step[:2]),
               "ceiling_tflops": 65.0, "sm_clock_nvml_mhz": 1800.0}
        if step[:2] != "01":
            row["vs_previous"] = 1.5 * sample
        yield row


def tune(step, words, how, size):
    rows, skip = [], option(words, "--skip").split(",")
    for i, config in enumerate(("128x256/c2", "128x128/c2", "256x192/c2")):
        if config in skip:
            continue
        print(f"trying {size} {config}", flush=True)
        if how == "stuck at a candidate" and i == 1:
            time.sleep(600)
        if how == "crashes at all":
            os.kill(os.getpid(), signal.SIGSEGV)
        rows.append({"name": size, "config": config, "us": 100.0 - 10 * i, "built_in": int(i == 0)})
    with open(option(words, "--json"), "w") as file:
        json.dump({"context": {}, "benchmarks": rows}, file)


def main(step, words):
    how = os.environ.get(f"FAKE_{step}", "")
    if log := os.environ.get("FAKE_STARTS"):
        with open(log, "a") as file:
            file.write(" ".join(words) + "\n")
    if how == "hang with child":  # of its own, which has to go too
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if how.startswith("hang"):
        if os.environ.get("FAKE_HANGS"):
            open(os.environ["FAKE_HANGS"], "w").close()
        time.sleep(600)
    if how == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "wrong":
        fail(f"{step}: wrong at 128x96x64, C[3][5] is 7, should be 8", 1)
    if how == "error":
        fail(f"{step}: cudaMalloc(&p, n): out of memory (cudaErrorMemoryAllocation)", 3)
    size_list = option(words, "--sizes", "64x96x32").split(",")
    for size in size_list:
        if how == "refuse" and any(int(x) % 64 for x in size.split("x")):
            fail(f"{step}: needs M, N, K to be multiples of 64, 64, 64; the nearest legal size is "
                 "128x128x64", 2)
    if how == "slow":
        time.sleep(2)
    regimes = option(words, "--regimes", "burst,sustained").split(",")
    bad = os.environ.get("FAKE_BAD_SIZE", "")  # one that fails, in the way that `how` says
    if bad and bad in size_list and words[0] == "bench":
        for size in size_list[:size_list.index(bad)]:
            print(f"{step} {size}/{regimes[0]} 1.000 ms 5.0 TFLOPS", flush=True)
        if how == "bad hang":
            time.sleep(600)
        if how == "bad crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        fail(f"{step}: wrong at {bad}, C[3][5] is 7, should be 8", 1)
    if words[0] == "tune":
        return tune(step, words, how, size_list[0])
    if words[0] == "check":
        if how == "kinds" and "--sizes" not in words:
            size_list += ["64x96x32/NT-bf16", "64x96x32/TN-batch3"]
        rows = [{"name": f"{step}/{size}/check", "run_type": "iteration", "right": 1, "reason": ""}
                for size in size_list]
    elif words[0] == "ceilings":
        rows = [{"name": f"ceiling_{what}/{regime}", "run_type": "iteration", "real_time": 1.0,
                 "time_unit": "ms", "tflops": 100.0}
                for what in ("ffma", "hbm") for regime in regimes]
    else:
        rows = [row for size in size_list for regime in regimes
                for row in bench_rows(step, size, regime)]
    if how == "too slow":
        print(f"left out: {size_list[0]}/burst: {step}, one launch takes 900 ms, the limit is 500")
        rows = []
    context = {"gpu": "Fake GPU", "driver": "580.00", "cuda": "13.0", "cublas": "13.1",
               "power_limit_w": 700, "commit": option(words, "--commit"),
               "dirty": option(words, "--dirty") == "1", "method": 1,
               "date": "2026-11-29T12:00:00", "peak_tflops": 900.0}
    text = json.dumps({"context": context, "benchmarks": rows})
    if how == "garbage":
        text = text[:len(text) // 2]
    with open(option(words, "--json"), "w") as file:
        file.write(text)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
