"""Stands in for build/gpu/bin/3X_name: same command line, same files, invented numbers. The
variable FAKE_<id> makes it fail."""
import json
import os
import sys

from fake_program import fail, option


def rows(name, workload, variants):
    """Three rounds of {variant: µs}; the first is what the others are compared to."""
    first = next(iter(variants.values()))
    for variant, time in variants.items():
        for sample in (0.99, 1.0, 1.01):
            row = {"name": f"{name}/{workload}/{variant}/iterations:1/manual_time",
                   "run_type": "iteration", "iterations": 1, "time_unit": "us",
                   "real_time": time * sample, "time_us": time * sample,
                   "vs_first": first / time / sample, "host_us": 4.0, "latency_us": time + 9}
            if variant.startswith("streams"):
                row |= {"pct_floor": 80.0, "streams": 8.0}
            yield row


def timelines(name):
    spans = [{"lane": "host", "name": "0", "begin_us": 0, "end_us": 4},
             {"lane": "stream 10", "name": "1", "begin_us": 6, "end_us": 40},
             {"lane": "stream 2", "name": "0", "begin_us": 5, "end_us": 30},
             {"lane": "stream 2", "name": "join", "begin_us": 41, "end_us": 45}]
    return {"context": {"gpu": "Fake GPU", "driver": "580.00", "method": 1, "other": "x"},
            "experiment": name,
            "timelines": [{"workload": "small", "variant": "streams_8", "time_us": 45.0,
                           "spans": spans}]}


def main(name, words):
    how = os.environ.get(f"FAKE_{name}", "")
    if how == "wrong":
        fail(f"{name}: wrong at small, streams_8: 3 of 4096 elements are wrong", 1)
    if how == "left out":
        print("left out: large: needs 40.0 GiB of GPU memory, 2.0 GiB are free")
    variants = {"plain": 100.0, "streams_8": 50.0, "streams_10": 40.0}
    if how == "fewer":
        del variants["streams_8"]
    found = [*rows(name, "small", variants), *rows(name, "64x64x4096", {"plain": 7000.0})]
    if how == "nothing":
        print("left out: small: needs 2 GPUs or more, here is 1")
        found = []
    if words[0] == "check":
        found = [{"name": f"{name}/small/{v}", "run_type": "iteration", "right": 1}
                 for v in variants]
    context = {"gpu": "Fake GPU", "driver": "580.00", "cuda": "13.0", "cublas": "13.1",
               "power_limit_w": 700, "commit": option(words, "--commit"),
               "dirty": option(words, "--dirty") == "1", "method": 1,
               "date": "2026-11-29T12:00:00", "peak_tflops": 900.0}
    with open(option(words, "--json"), "w") as file:
        json.dump({"context": context, "benchmarks": found}, file)
    if "--timelines" in words:
        with open(option(words, "--timelines"), "w") as file:
            json.dump(timelines(name), file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
