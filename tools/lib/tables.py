"""The table of measured rows: 80 columns, readable by someone who has never seen it."""
import shutil
import textwrap

from . import kinds, results, sizes, term

LEGEND = """\
time: one product. TFLOPS: 2*M*N*K / time. peak%: of the datasheet's Tensor Core peak. ceil%: of
what the unit that the step uses ({units}) reaches with its operands at hand, measured. x before:
times as fast as the step it builds on, ± half the spread of the rounds. best%: of the best cuBLAS
algorithm. MHz: clock as NVML reads it. burst: the first ms after idle; sustained: after 1 s under
load, where the power limit rules. Inputs random normal, L2 cold."""


class Measured:
    """Rows of one size, printed as they come."""

    def __init__(self, size, gpu="", names=None):
        self.names = names or {}  # {step id: what to call it}
        spare = max(0, min(shutil.get_terminal_size((80, 24)).columns, 100) - 80)
        width = max([20 + min(spare, 8), *map(len, self.names.values())])
        self.table = term.Table([("step", width), ("regime", 9), ("time", 7),
                                 ("TFLOPS", 6), ("peak%", 5), ("ceil%", 5), ("x before", 10),
                                 ("best%", 5), ("MHz", 4)])
        term.say(f"\nC[M][N] = A[M][K] * B[K][N], {sizes.text(size)},"
                 + (" " if len(kinds.words(sizes.kind_of(size))) < 40 else "\n")
                 + kinds.words(sizes.kind_of(size)) + (f"\n{gpu}" if gpu else ""), term.BOLD)
        self.table.header()

    def row(self, row, colour=None):
        counter = row.get
        before = term.number(counter("vs_previous"), 2)
        if counter("vs_previous") is not None:
            spread = row.half_range("vs_previous")
            before += f" ±{spread:.2f}" if spread is not None else ""
        best = counter("vs_cublas_best")
        name = self.names.get(row.subject, row.subject)
        self.table.row([name, row.regime, term.duration(row.seconds).replace(" ", ""),
                        term.tflops(counter("tflops")), term.number(counter("pct_peak")),
                        term.number(counter("pct_ceiling")), before,
                        term.number(best * 100 if best is not None else None),
                        term.number(counter("sm_clock_nvml_mhz"), 0)], colour)

    def note(self, name, words):
        self.table.failed(self.names.get(name, name), words, term.DIM)

    def failed(self, name, reason):
        self.table.failed(self.names.get(name, name), reason)

    def end(self, merged, size, units):
        """The lines to compare with, then the legend."""
        for name in sorted(merged.rows, key=results.order):
            row = merged.rows[name]
            if not row.is_step and row.size in (None, size) and row.get("tflops"):
                self.row(row, term.DIM)
        names = {"ffma": "FP32 FFMA", "mma_sync": "mma.sync", "wgmma": "wgmma"}
        used = " or ".join(names[u] for u in ("ffma", "mma_sync", "wgmma") if u in units)
        term.say(textwrap.fill(LEGEND.format(units=used or "-"), 79), term.DIM)
