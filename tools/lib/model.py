"""Predicts the rate of a step on a GPU. notes/prediction.md says how and why, on one page.

Inputs: the step's constants and structure (kernel_facts), what the emulated device counted and
ptxas gave (counts), the measured ceilings and latencies of the GPU (tools/gpus.json, and recorded
ceilings where there are some). Nothing in here is fitted to a step.
"""
import math
from dataclasses import dataclass, field

from . import counts, kernel_facts, occupancy, sizes
from .term import UserError

REGIMES = ("burst", "sustained")
DEFAULT_LATENCY = {"l2": 280, "hbm": 650, "l1": 40, "cp_async_l2": 300, "tma_l2": 480,
                   "tma_hbm": 1100, "ldmatrix": 35, "ld_shared": 28, "mma": 25, "wgmma": 60,
                   "barrier": 28, "mbarrier": 130}


@dataclass
class Prediction:
    step: str
    gpu: str
    size: tuple
    regime: str
    tflops: float = 0.0
    seconds: float = 0.0
    bound: str = ""  # what is busiest, or waited for
    blocks_sm: int = 1
    duty: float = 0.0  # of the unit's cycles
    cycles: dict = field(default_factory=dict)  # of an SM for one tile step, by resource
    bytes: dict = field(default_factory=dict)  # l2, hbm, smem: of the whole problem
    lead: float = 0.0  # cycles that copies have to arrive
    latency: float = 0.0  # cycles that they need
    exposed: float = 0.0  # cycles of a tile step that nothing covers
    waves: float = 0.0  # share of the SMs' time that has tiles
    mhz: float = 0.0


def closed_network(stations, think, customers):
    """Cycles between two completions of `customers` that each need every station in turn and
    `think` cycles of nothing (mean value analysis, Reiser and Lavenberg 1980)."""
    queue = [0.0] * len(stations)
    period = sum(stations) + think
    for n in range(1, customers + 1):
        waits = [d * (1 + q) for d, q in zip(stations, queue)]
        rate = n / (sum(waits) + think)
        queue = [rate * w for w in waits]
        period = 1 / rate
    return period


def predict(step, gpu, size, regime="burst", values=None, kept=None, ceilings=None):
    """A Prediction; UserError where something about the step is unknown. `gpu` is an entry of
    gpus.json; `values` replaces constants; `ceilings` {unit: TFLOPS} replaces gpu's."""
    kept = counts.load() if kept is None else kept
    facts = kernel_facts.read(step, values, counts.choice(step, kept, size))
    counted = counts.of(step, kept, size)
    if not counted:
        raise UserError(f"{step.id} was never counted: ./ladder predict --refresh")
    if step.unit not in gpu["flop_clk_sm"]:
        raise UserError(f"{gpu['name']} has no {step.unit}")
    p = Prediction(step.id, gpu["key"], tuple(size), regime)
    registers, static = counts.resources(step, gpu["sm"], kept) or (0, 0)
    p.blocks_sm, limit = occupancy.blocks(gpu, facts.threads, registers,
                                          static + (facts.dynamic_smem or 0))
    if not p.blocks_sm:
        raise UserError(f"{step.id} does not fit an SM of {gpu['name']}: {limit}")
    tile = Tile(facts, counted, counts.shape(step, kept, size), size, gpu, step.unit)
    _traffic(p, tile)
    ceiling = (ceilings or gpu.get("ceiling_tflops", {}).get(regime, {})).get(step.unit)
    cost = gpu.get("traffic_cost", {}).get(regime, {})
    peak = gpu["flop_clk_sm"][step.unit] * gpu["sms"]  # a clock
    top = gpu["max_mhz"] * 1e6
    full = min(top, ceiling * 1e12 / peak) if ceiling else top  # with the unit always busy
    # The clock depends on how busy the unit is and on the traffic, and both on the clock.
    clock = full
    for _ in range(30):
        _tile_step(p, tile, clock)
        busy = p.duty * _share(p, tile, clock)
        p.seconds = sizes.flops(p.size) / (peak * busy * p.waves * clock)
        lost = sum(cost.get(level, 0) * p.bytes[level] / p.seconds * 1e-12
                   for level in ("l2", "hbm"))
        wanted = (top - (top - full) * busy) * (1 - min(0.5, lost * busy * (step.unit != "ffma")))
        clock += (wanted - clock) / 2
    p.mhz = clock * 1e-6
    p.tflops = sizes.flops(p.size) / p.seconds * 1e-12
    return p


class Tile:
    """One block's work, for one step of its K loop, in cycles of an SM that has it alone."""

    def __init__(self, facts, counted, shape, size, gpu, unit):
        self.facts, self.gpu, self.unit, self.size = facts, gpu, unit, size
        self.m, self.n = facts.get("BLOCK_M"), facts.get("BLOCK_N")
        self.k = facts.get("BLOCK_K") or 1
        if not self.m or not self.n:
            raise UserError("the kernel has no BLOCK_M and BLOCK_N")
        self.latency = {**DEFAULT_LATENCY, **gpu.get("latency", {})}
        blocks = shape[0] * shape[1] / (self.m * self.n)
        # Counted with the kernel as it is; other tile sizes scale where bytes are counted anyway.
        self.per_k = {name: slope * self.k / blocks for name, (_, slope) in counted.items()}
        self.once = {name: base / blocks for name, (base, _) in counted.items()}
        self.flop = 2.0 * self.m * self.n * self.k
        self.tiles = -(-size[0] // self.m) * -(-size[1] // self.n)
        self.steps = -(-size[2] // self.k)
        self.loaded = (self.m + self.n) * self.k * 2.0  # bytes of A and B that a tile step needs
        c = lambda name: self.per_k.get(name, 0.0)  # noqa: E731
        self.math = self.flop / gpu["flop_clk_sm"][unit]
        if unit == "ffma":  # FMAs and everything else share the four issue slots
            self.math += (c("shared_load_requests") + c("shared_store_requests") +
                          2 * c("global_load_requests")) / 4
        self.wavefronts = (c("ldmatrix_wavefronts") + c("shared_load_wavefronts") +
                           c("shared_store_wavefronts"))
        if facts.copies == "cp_async":  # by the tile: it may not be the one that was counted
            self.wavefronts += self.loaded / 128
        self.l1 = _l1_wavefronts(c("global_load_requests"), c("global_load_sectors"),
                                 c("global_load_bytes"))
        scale = 128 / gpu["smem_bytes_clk_sm"]
        self.smem = (self.wavefronts + self.l1) * scale
        self.barriers = c("barriers") / facts.threads


def _l1_wavefronts(requests, sectors, used):
    """Four sectors of a line pass at once; sectors of which little is used lie in lines of their
    own."""
    if not requests:
        return 0.0
    return max(requests, sectors / 4 if used >= sectors * 16 else sectors)


def _traffic(p, tile):
    """Bytes from L2 and from HBM over the whole problem."""
    facts, gpu = tile.facts, tile.gpu
    m, n, k = p.size
    loaded = tile.loaded
    if facts.multicast:  # each CTA of the cluster fetches its part of B for all
        loaded = (tile.m + tile.n / facts.cluster) * tile.k * 2.0
    p.bytes["smem"] = tile.loaded * tile.tiles * tile.steps
    p.bytes["l2"] = loaded * tile.tiles * tile.steps
    # The tiles that run at one time form a block of rows x columns; its A and B come from HBM once.
    together = min(tile.tiles, gpu["sms"] * p.blocks_sm)
    tiles_m, tiles_n = -(-m // tile.m), -(-n // tile.n)
    if group := facts.get("GROUP_M"):
        rows = min(group * (facts.cluster if facts.cluster > 1 else 1), tiles_m)
    else:
        rows = min(tiles_m, max(1.0, together / tiles_n))
    columns = min(tiles_n, max(1.0, together / rows))
    waves = tile.tiles / together
    p.bytes["hbm"] = max((m * k + k * n) * 2.0,
                         waves * (rows * tile.m + columns * tile.n) * k * 2.0)
    if (m * k + k * n) * 2.0 < 0.8 * gpu["l2_bytes"]:  # everything stays in L2
        p.bytes["hbm"] = (m * k + k * n) * 2.0
    p.bytes["store"] = m * n * 2.0


def _tile_step(p, tile, clock):
    """Cycles between two tile steps of an SM, all its blocks together: p.cycles and p.exposed."""
    facts, gpu, late = tile.facts, tile.gpu, tile.latency
    steps = tile.tiles * tile.steps  # of the whole problem
    # Tiles of neighbours: requests for the same line are joined before they reach L2.
    l2_tbs = gpu.get("l2_tiles_tbs", gpu["l2_tbs"])
    l2 = p.bytes["l2"] / steps / (l2_tbs * 1e12 / clock / gpu["sms"])
    hbm = p.bytes["hbm"] / steps / (gpu["hbm_tbs"] * 1e12 / clock / gpu["sms"])
    p.cycles = {"math": tile.math, "shared memory": tile.smem, "L2": l2, "HBM": hbm}
    miss = min(1.0, p.bytes["hbm"] / p.bytes["l2"])
    near, far = {"registers": (late["l2"], late["hbm"]), "none": (late["l1"], late["l1"]),
                 "cp_async": (late["cp_async_l2"], late["hbm"] + late["cp_async_l2"] - late["l2"]),
                 "tma": (late["tma_l2"], late["tma_hbm"])}[facts.copies]
    p.latency = near + (far - near) * miss
    warps, customers = -(-facts.threads // 32), p.blocks_sm
    think = tile.barriers * late["barrier"]
    scale = 1  # tile steps per round of all customers
    if tile.unit == "wgmma":
        # A group ends some cycles after its last instruction could have: the next hides that.
        think += late["wgmma"] * (facts.wgmma_in_flight == 0)
        stations = [tile.math]
    elif facts.copies == "none":  # no barriers: every warp goes its own way
        stations, scale = [tile.math / warps, tile.smem / warps], warps
        think, customers = late["l1"], p.blocks_sm * warps
    elif facts.fragments_ahead:  # reads and products of a warp are under way at once
        each = 2 * warps
        stations = [each * closed_network([tile.math / each, tile.smem / each], 0, each)]
    elif inner := facts.get("MMA_K"):
        # Between barriers all warps of a block read, then all multiply; other blocks fill in.
        stations = [tile.math, tile.smem]
        think += tile.k // inner * (late["ldmatrix"] + late["mma"])
    else:  # CUDA cores: a thread alternates for each k, so the warps of a block drift apart
        each = min(warps, max(1, tile.k // 2))
        stations = [each * closed_network([tile.math / each, tile.smem / each],
                                          late["ld_shared"], each)]
    lead_steps = facts.stages - 1
    # How long a copy may take depends on how long a step takes: a few rounds settle it.
    p.exposed = p.latency if lead_steps == 0 and facts.copies != "none" else 0.0
    for _ in range(20):
        period = max(scale * closed_network(stations, think + p.exposed, customers), l2, hbm)
        p.lead = lead_steps * period * p.blocks_sm
        if lead_steps:
            p.exposed = (p.exposed + max(0.0, p.latency - p.lead)) / 2
    p.cycles["step"] = period
    p.duty = tile.flop / gpu["flop_clk_sm"][tile.unit] / period
    busiest = max(("math", "shared memory", "L2", "HBM"), key=lambda r: p.cycles[r])
    if period < 1.1 * p.cycles[busiest]:
        p.bound = "L1" if busiest == "shared memory" and not tile.wavefronts else busiest
    elif (think + p.exposed) > period / 2:
        p.bound = "waiting"
    else:
        p.bound = "taking turns"
    slots = gpu["sms"] // facts.cluster * facts.cluster
    rounds = tile.tiles / slots
    p.waves = (1.0 if facts.stream_k and rounds > 1 else rounds / math.ceil(rounds)) * (
        slots / gpu["sms"])


def _share(p, tile, clock):
    """Of a tile's time, what its K loop has: filling the ring and writing C take the rest, where
    no other block and no other role covers them."""
    facts, gpu, late = tile.facts, tile.gpu, tile.latency
    l2 = gpu["l2_tbs"] * 1e12 / clock / gpu["sms"]  # bytes a clock and SM
    sectors, used = (tile.once.get(f"global_store_{what}", 0) for what in ("sectors", "bytes"))
    written = max(sectors * 32, tile.m * tile.n * 2.0)
    # Sectors that a request fills in part only are merged in L2, far slower.
    whole = used > 24 * sectors
    rate = l2 if whole else gpu.get("partial_store_tbs", 1) * 1e12 / clock / gpu["sms"]
    store = (written if whole else used) / rate + late["l2"]
    start = late["tma_hbm"] if facts.copies == "tma" else late["hbm"]
    if facts.persistent or facts.stream_k:  # the next tile's copies fly already
        start = 0.0
    if facts.tma_store:  # only the way to shared memory and into TMA is in the way
        store = 2 * written / gpu["smem_bytes_clk_sm"]
    body = tile.steps * p.cycles["step"]
    return body / (body + (start + store) / p.blocks_sm)
