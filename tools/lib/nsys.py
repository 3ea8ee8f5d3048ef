"""What Nsight Systems saw of an experiment: what the GPU did, and the host, and when nothing."""
import csv
import io
from statistics import median

from . import child
from .term import UserError

NO_TOOL = ("Nsight Systems (nsys) is not installed: it is in the CUDA toolkit and in "
           "apt-get install nsight-systems-cli; ./ladder run draws the timeline without it")
# Reports, by the names of nsys since 2023.1 and of those before.
REPORTS = (("cuda_gpu_trace", "cuda_api_sum"), ("gputrace", "cudaapisum"))


def program():
    """nsys, or the error that says where to get it."""
    if path := child.find("nsys", "LADDER_NSYS", "/opt/nvidia/nsight-systems", "*/bin/nsys"):
        return path
    raise UserError(NO_TOOL)


def profile_arguments(report):
    """Up to the program: CUDA calls and kernels, those inside graphs one by one, and no sampling,
    which needs permissions. Only what lies between cudaProfilerStart and Stop."""
    return ["profile", "--trace=cuda", "--cuda-graph-trace=node", "--sample=none",
            "--cpuctxsw=none", "--capture-range=cudaProfilerApi", "--force-overwrite=true",
            f"--output={report}"]


def stats_arguments(report, names):
    return ["stats", *[f"--report={name}" for name in names], "--format=csv",
            "--force-export=true", str(report)]


def tables(text):
    """Every CSV table in what `nsys stats` wrote, as lists of {column: cell}."""
    found, block = [], []
    for line in [*text.splitlines(), ""]:
        if line.strip() and (block or line.startswith(("Start (ns),", "Time (%),", "Time(%),"))):
            block.append(line)
        elif block:
            found.append(list(csv.DictReader(io.StringIO("\n".join(block)))))
            block = []
    return found


def parse(text):
    """(activities, calls): [(begin, end, what, stream)] in microseconds on the GPU in the order of
    their begin, and [(call, times, microseconds)] on the host. UserError if there is nothing."""
    activities, calls = [], []
    for rows in tables(text):
        for row in rows:
            try:
                if "Start (ns)" in row:
                    begin = float(row["Start (ns)"]) * 1e-3
                    activities.append((begin, begin + float(row["Duration (ns)"]) * 1e-3,
                                       short(row["Name"]), row.get("Strm", "")))
                elif "Num Calls" in row:
                    calls.append((row["Name"], int(row["Num Calls"]),
                                  float(row["Total Time (ns)"]) * 1e-3))
            except (KeyError, TypeError, ValueError):
                raise UserError("nsys wrote a table that is not understood here; open its report "
                                "in the GUI", 3) from None
    if not activities:
        raise UserError("nsys saw nothing on the GPU", 3)
    return sorted(activities), calls


def short(name):
    """block::small_gemm<...>(...) -> small_gemm; [CUDA memcpy HtoD] -> memcpy HtoD."""
    if name.startswith("["):
        return name.strip("[]").removeprefix("CUDA ")
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    name = name.removeprefix("void ")
    return name.split("(")[0].split("<")[0].split("::")[-1]


def busy_and_idle(activities):
    """Microseconds in which the GPU did anything, and in which it did nothing in between."""
    busy = idle = 0.0
    end = activities[0][0]
    for begin, until, *_ in activities:
        idle += max(0.0, begin - end)
        busy += max(0.0, until - max(begin, end))
        end = max(end, until)
    return busy, idle


def by_name(activities):
    """[(what, times, median microseconds, all microseconds)], the longest in all first."""
    found = {}
    for begin, end, name, _ in activities:
        found.setdefault(name, []).append(end - begin)
    return sorted(((name, len(each), median(each), sum(each)) for name, each in found.items()),
                  key=lambda row: -row[3])
