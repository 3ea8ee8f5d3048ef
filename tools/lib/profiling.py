"""What `profile` asks Nsight Compute for, and what each number means for a GEMM."""
import csv
import io
import re

from .term import UserError

FORMAT = 1  # of plots/results/profile-*.json
STALLS = {  # ncu's name: (short, what a warp waits for)
    "long_scoreboard": ("global", "data from global memory or L2"),
    "short_scoreboard": ("shared", "data from shared memory (ldmatrix, ld.shared)"),
    "barrier": ("barrier", "other warps at __syncthreads"),
    "wait": ("fixed", "the fixed latency of its last instruction"),
    "math_pipe_throttle": ("math", "a math pipe that is busy: the good one"),
    "mio_throttle": ("mio", "the queue to shared memory, which is full"),
    "lg_throttle": ("lg", "the queue to global memory, which is full"),
    "not_selected": ("not selected", "its turn: another warp was ready too"),
    "gmma": ("wgmma", "its own wgmma to finish: the good one on Hopper"),
    "membar": ("fence", "a memory fence"),
    "branch_resolve": ("branch", "a jump"),
    "sleeping": ("sleep", "nanosleep"),
}
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

METRICS = {  # key: (ncu's name, what the table calls it, unit)
    "time_us": ("gpu__time_duration.sum", "time", "us"),
    "tensor_pct": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
                   "tensor pipe busy", "%"),
    "hgmma_ops": ("sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum", "wgmma operations", ""),
    "hmma_ops": ("sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum",
                 "mma.sync operations", ""),
    "fma_pct": ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "FMA pipe busy",
                "%"),
    "issue_pct": ("sm__inst_issued.avg.pct_of_peak_sustained_active", "issue slots used", "%"),
    "dram_pct": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", "DRAM busy", "%"),
    "dram_bytes": ("dram__bytes_read.sum", "read from DRAM", "bytes"),
    "l2_hit_pct": ("lts__t_sector_hit_rate.pct", "L2 hits", "%"),
    "l2_pct": ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed", "L2 busy", "%"),
    "l2_read_sectors": ("lts__t_sectors_op_read.sum", "sectors read from L2", ""),
    "tma_bytes": ("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum", "read by TMA",
                  "bytes"),
    "sectors_per_request": ("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio",
                            "sectors per request", ""),
    "smem_pct": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
                 "shared memory busy", "%"),
    "smem_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "shared wavefronts", ""),
    "smem_asked": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared.sum",
                   "shared wavefronts, by instruction", ""),
    "smem_ideal": ("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_ideal.sum",
                   "of them without conflicts", ""),
    "conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts", ""),
    "conflicts_ld": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
                     "bank conflicts, ld", ""),
    "conflicts_st": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
                     "bank conflicts, st", ""),
    "conflicts_ldsm": ("smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum",
                       "bank conflicts, ldmatrix", ""),
    "occupancy_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active", "warps resident", "%"),
    "cycles": ("sm__cycles_elapsed.max", "cycles", ""),
    **{f"stall_{name}": (_STALL.format(name), name, "") for name in STALLS},
}
SCALE = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def ncu_arguments(log, without=()):
    """Up to the program: one launch of the kernel after a warm-up, clocks left alone. `without`
    are metrics that this version of ncu does not know."""
    names = [m[0] for m in METRICS.values() if m[0].split(".")[0] not in without]
    return ["--clock-control", "none", "--kernel-name", "regex:gemm_kernel", "--launch-skip", "1",
            "--launch-count", "1", "--csv", "--page", "raw", "--print-units", "base",
            "--log-file", str(log), "--metrics", ",".join(names)]


def unknown(text):
    """Metrics of which ncu says that it does not know them; it measures nothing then."""
    return set(re.findall(r"Failed to find metric (?:regex:\^)?(\w+)", text))


def parse(text):
    """{key: number or None} of what ncu wrote with --csv --page raw; UserError with the cause."""
    if "ERR_NVGPUCTRPERM" in text:
        raise UserError(FORBIDDEN)
    table = "\n".join(line for line in text.splitlines() if not line.startswith("=="))
    rows = list(csv.reader(io.StringIO(table.strip())))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        said = [line.strip("= ") for line in text.splitlines() if "ERROR" in line or "WARN" in line]
        raise UserError("ncu measured nothing" + (f": {said[0]}" if said else
                                                  ": no kernel named gemm_kernel was launched"), 3)
    head, units, values = rows[0], rows[1], rows[2]
    found = {}
    for key, (name, _, unit) in METRICS.items():
        found[key] = None
        if name in head and head.index(name) < len(values):
            at = head.index(name)
            found[key] = number(values[at], units[at], unit)
    if all(value is None for value in found.values()):
        raise UserError("ncu wrote no metric that is known here; is it older than 2022?", 3)
    return found


def excess(v):
    """Share of the shared-memory wavefronts that bank conflicts cost, or None."""
    if v.get("smem_asked") and v.get("smem_ideal") is not None:
        return max(0.0, 1 - v["smem_ideal"] / v["smem_asked"])
    if v.get("smem_wavefronts") and v.get("conflicts") is not None:
        return min(1.0, v["conflicts"] / v["smem_wavefronts"])
    return None


def number(text, have, want):
    """A cell of ncu, in the unit wanted."""
    text = text.replace(",", "")
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        return None
    value = float(text)
    if want == "us":
        unit = re.fullmatch(r"([num]?)s(?:econd)?|(nsecond|usecond|msecond|second)", have)
        prefix = {"nsecond": "n", "usecond": "u", "msecond": "m"}.get(have,
                                                                      unit[1] if unit else "n")
        return value * SCALE[prefix or ""] * 1e6
    if want == "bytes":
        prefix = have[:-4] if have.endswith("byte") else ""
        return value * SCALE.get(prefix, 1.0)
    return value


FORBIDDEN = ("the driver lets only administrators read the GPU's counters (ERR_NVGPUCTRPERM): run "
             "it with sudo, or as root set 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' "
             "in /etc/modprobe.d/ and reboot; in a container start it with --cap-add SYS_ADMIN; "
             "rented GPUs often forbid it: ./ladder trace needs no permission")
NO_TOOL = ("ncu (Nsight Compute) is not there: it comes with the CUDA toolkit, or apt-get install "
           "nsight-compute; ./ladder trace needs none of it")


def top_stalls(values, count=3):
    """[(short name, share of all waiting)], the greatest first. 'selected' is no stall."""
    found = {name: values.get(f"stall_{name}") or 0.0 for name in STALLS}
    total = sum(found.values())
    if not total:
        return []
    ranked = sorted(found.items(), key=lambda pair: -pair[1])[:count]
    return [(STALLS[name][0], value / total) for name, value in ranked if value > 0]


def advice(v, unit):
    """Sentences: what is the matter, which step of the ladder answers it."""
    lines = []
    get = lambda key: v.get(key) or 0.0  # noqa: E731
    top = top_stalls(v, 1)
    reason = top[0][0] if top else ""
    conflicts = excess(v) or 0.0
    if get("sectors_per_request") > 16.5 or (get("sectors_per_request") > 4.5 and unit == "ffma"
                                             and not get("smem_wavefronts")):
        lines.append("a request touches many sectors: neighbouring lanes should read neighbouring "
                     "addresses (02_coalesced)")
    if conflicts > 0.1:
        lines.append(f"{100 * conflicts:.0f} % of the shared-memory traffic is bank conflicts: "
                     "swizzle the tile (11_swizzle)")
    if unit != "ffma" and get("tensor_pct") >= 85:
        lines.append("the tensor pipe hardly rests: what is left is power and the ends of tiles")
    elif reason == "global":
        lines.append("warps wait for global memory: copy ahead of time (09_cp_async to "
                     "12_multistage)")
    elif reason == "barrier":
        lines.append("warps wait for each other: fewer barriers, or roles "
                     "(15_warp_specialized_cp_async, 19_warp_specialized)")
    elif reason in ("shared", "mio"):
        lines.append("warps wait for shared memory: larger tiles per warp (06_warp_tile), ldmatrix "
                     "(08), or operands read by wgmma itself (17_wgmma)")
    elif reason in ("math", "wgmma"):
        lines.append("warps wait for the math pipe, as they should")
    if get("l2_pct") > 80:
        lines.append("L2 is the limit: larger output tiles or multicast (22_cluster_multicast)")
    if get("dram_pct") > 80:
        lines.append("DRAM is the limit: let blocks that run together share rows and columns "
                     "(14_rasterization)")
    return lines or ["nothing stands out: compare with the step before"]
