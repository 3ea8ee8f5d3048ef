"""Measuring a list of steps: build, lock, one child per step and size, table, merged results."""
from . import build, lock, measure, options, results, source, tables, term


def offer_emulated(unfit):
    """One line about the steps this GPU can't run."""
    if unfit:
        names = options.ranges([s for s, _ in unfit])
        reason = unfit[0][1] if len({why for _, why in unfit}) == 1 else "need another GPU"
        term.say(f"{names}: {reason}; emulated: ./ladder run {names} --device emulated",
                 term.YELLOW)


class Session:
    """Collects outcomes. `failures` counts red rows; `children` are the results so far."""

    def __init__(self, setup, chosen, size_list, regimes, limit=None, extra=(),
                 commit=None, after_each=None, extra_steps=None, names=None):
        self.setup, self.chosen, self.sizes, self.regimes = setup, chosen, size_list, regimes
        self.limit, self.extra = limit, list(extra)
        self.extra_steps, self.names = extra_steps, names  # a sweep's copies, and their names
        self.commit, self.dirty = commit if commit else source.state()
        self.after_each = after_each  # called with the session after every child
        self.units = {step.id: step.unit for step in chosen}
        self.children, self.failures = [], []

    def merged(self):
        return results.merge(self.children)

    def run(self, skip=lambda step, size: False):
        """Builds and measures everything; returns the exit code."""
        failed = build.build(self.setup, "gpu", [s.id for s in self.chosen],
                             extra=self.extra_steps)
        with lock.gpu(self.setup.gpu.uuid):
            for size in self.sizes:
                table = tables.Measured(size, self.setup.gpu.name, self.names)
                for step in self.chosen:
                    if not skip(step, size):
                        self._one(step, size, failed.get(step.id), table)
                if self.children:
                    table.end(self.merged(), size, set(self.units.values()))
        return 1 if self.failures else 0

    def _one(self, step, size, unbuilt, table):
        if unbuilt:
            self._red(step, size, unbuilt, table)
            return
        progress = term.Progress()
        # In a log, where no line overwrites itself, what comes before the first row is said too.
        first_words = term.note if not progress.live and not self.children else None
        outcome = measure.bench(step, [size], self.regimes, self.commit, self.dirty, self.extra,
                                progress, self.limit, first_words)
        if not outcome.ok:
            self._red(step, size, outcome.reason, table)
            return
        if self.extra and outcome.ran.out.strip():
            term.say(outcome.ran.out.rstrip())
        for line in outcome.left_out:
            table.note(step.id, "left out: " + line)
        outcome.results.context["left_out"] = [f"{step.id}: {line}" for line in outcome.left_out]
        self.children.append(outcome.results)
        for row in outcome.results.rows.values():
            row.words.setdefault("commit", self.commit)
            if row.subject == step.id:
                row.words["unit"] = step.unit
            if outcome.results.context.get("date"):
                row.words.setdefault("date", str(outcome.results.context["date"])[:10])
            if row.subject == step.id:
                table.row(row)
        if self.after_each:
            self.after_each(self)

    def _red(self, step, size, reason, table):
        self.failures.append((step.id, size, reason))
        table.failed(step.id, reason)


def tell_failures(session):
    if session.failures:
        names = ", ".join(dict.fromkeys(name for name, _, _ in session.failures))
        term.error(f"{len(session.failures)} of "
                   f"{len(session.chosen) * len(session.sizes)} not measured: {names}")
