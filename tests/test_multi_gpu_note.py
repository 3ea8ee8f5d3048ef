"""The computed tables of notes/multi-gpu.md are what the formulas in it give."""
import math
import unittest

from support import ROOT

NVLINK = 450e9   # bytes/s of a GPU, each way
NIC = 50e9       # 400 Gb/s for each GPU, each way
NODE = 8
RATE = 640e12    # FLOP/s of a GPU under load
HOP = 10e-6      # from node to node, assumed


def sum_seconds(size, gpus):
    """(inside the node, between nodes) for the sum of `size` bytes over all GPUs."""
    inside = min(gpus, NODE)
    nodes = gpus // inside
    return (2 * (inside - 1) / inside * size / NVLINK,
            2 * (nodes - 1) / nodes * size / inside / NIC)


def ms(seconds):
    return f"{seconds * 1e3:.0f}" if seconds >= 0.01 else f"{seconds * 1e3:.2g}"


def data_parallel():
    """8e9 weights, 16 GB of gradients; 4 Mi tokens a step over all GPUs."""
    for gpus in (8, 16, 64, 256, 1024):
        inside, between = sum_seconds(16e9, gpus)
        tokens = (4 << 20) // gpus
        backward = 4 * 8e9 * tokens / RATE
        least, most = max(inside, between), inside + between
        hides = [f"{t * RATE / (4 * 8e9):,.0f}" for t in (least, most)]
        yield (f"| {gpus} | {ms(inside)} | {ms(between)} | {ms(least)} to {ms(most)} | "
               f"{hides[0]} to {hides[1]} | {tokens:,} | {ms(backward)} | "
               f"{100 * least / backward:.0f} to {100 * most / backward:.0f} % |")


def latency():
    """One call of a bucket: steps against bytes."""
    for gpus in (16, 64, 256, 1024):
        nodes = gpus // NODE
        ring, tree = 2 * (nodes - 1) * HOP, 2 * math.ceil(math.log2(nodes)) * HOP
        cells = [ms(sum(sum_seconds(mib * 2 ** 20, gpus))) for mib in (4, 25, 100, 400)]
        yield f"| {gpus} | {ms(ring)} | {ms(tree)} | " + " | ".join(cells) + " |"


def seventy():
    """70e9 weights, 80 layers of 8192, 4096 tokens in a micro-batch, a layer on 8 GPUs."""
    activation = 4096 * 8192 * 2
    layer = 6 * 70e9 / 80 * 4096 / NODE / RATE
    tensor = 4 * sum_seconds(activation, NODE)[0]
    yield (f"| tensor parallel, in a node | 4 sums of {activation / 1e6:.0f} MB a layer | "
           f"{ms(tensor)} ms | the layer's products, {ms(layer)} ms: needed at once; only other "
           "halves of the batch hide them |")
    own = 70e9 * 2 / NODE
    backward = 4 * 70e9 * 4096 / NODE / RATE
    for nodes in (2, 128):
        seconds = 2 * (nodes - 1) / nodes * own / NIC
        yield (f"| data parallel over {nodes} nodes | {own / 1e9:.1f} GB of gradients a step | "
               f"{ms(seconds)} ms | the backward pass of the last micro-batch, {ms(backward)} ms; "
               "the rest shows |")
    between, inside = own / NIC, 70e9 * 2 * 7 / 8 / NVLINK
    yield (f"| sharded weights (ZeRO-3) | 3 × 140 GB a micro-batch: gather, gather, scatter | "
           f"3 × {ms(max(between, inside))} ms | the next layer's weights come while this one "
           f"computes; {ms(6 * 70e9 * 4096 / RATE)} ms in all |")
    yield (f"| pipeline, from node to node | {activation / NODE / 1e6:.1f} MB a GPU and "
           f"micro-batch, each way | {ms(activation / NODE / NIC)} ms | the next micro-batch; what "
           "shows is the bubble at both ends |")


class Note(unittest.TestCase):
    def test_tables(self):
        text = (ROOT / "notes" / "multi-gpu.md").read_text(encoding="utf-8")
        for make in (data_parallel, latency, seventy):
            for line in make():
                with self.subTest(line=line):
                    self.assertIn(line + "\n", text)


if __name__ == "__main__":
    for make in (data_parallel, latency, seventy):
        print("\n".join(make()) + "\n")
