"""How many blocks an SM holds: NVIDIA's rules, for a GPU that need not be here.
The program of a step asks the driver instead (cudaOccupancyMaxActiveBlocksPerMultiprocessor)."""
import json

from . import paths
from .term import UserError

REGISTERS = 65536  # of an SM, on everything from sm_75 to sm_90
_FILE = paths.Path(__file__).resolve().parents[1] / "gpus.json"


def gpus():
    return json.loads(_FILE.read_text(encoding="utf-8"))


def gpu(name):
    """One of tools/gpus.json by its key, or by the name that the driver gives it."""
    known = gpus()
    if name in known:
        return {"key": name, **known[name]}
    for key, entry in known.items():
        if entry["match"].lower() in name.lower():
            return {"key": key, **entry}
    raise UserError(f"nothing is known of the GPU '{name}': {', '.join(known)}")


def blocks(gpu, threads, registers, smem):
    """(blocks of an SM, what limits them). `smem` is static and dynamic together."""
    warps = -(-threads // 32)
    limits = {"threads": gpu["warps_sm"] // warps, "blocks": gpu["blocks_sm"]}
    if registers:
        of_warp = -(-registers * 32 // 256) * 256
        limits["registers"] = REGISTERS // 4 // of_warp * 4 // warps  # each quarter has its own
    if smem > gpu["smem_block"]:
        limits["shared memory"] = 0
    else:
        taken = -(-(smem + gpu["smem_reserved"]) // gpu["smem_unit"]) * gpu["smem_unit"]
        limits["shared memory"] = gpu["smem_sm"] // taken if taken else gpu["blocks_sm"]
    least = min(limits.values())
    return least, next(name for name in ("shared memory", "registers", "threads", "blocks")
                       if limits.get(name) == least)
