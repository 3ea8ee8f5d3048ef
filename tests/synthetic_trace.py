"""Synthetic raw traces: invented times of the shape that NN_idea.trace writes, for the tests of
./ladder trace. Never to be put under plots/results."""

LABEL, COMMIT, COPY_WAIT, BARRIER, MBAR, TMA, WG_WAIT, TMA_STORE, STORE_WAIT = range(2, 11)


def event(begin, end, kind, n=0, line=50, address=0):
    return [begin % 2**32, end % 2**32, kind | n << 8 | line << 16, address]


def label(address, size, name, stage):
    letters = name.encode().ljust(8, b"\0")[:8]
    return [address, int.from_bytes(letters[:4], "little"),
            LABEL | stage + 1 << 8 | size // 8 << 16, int.from_bytes(letters[4:], "little")]


def all_do_both(tiles=24, warps=8, latency=900, math=700, double=False, start=2**32 - 5000):
    """A kernel like 09 (one buffer) or, with `double`, 10. The clock wraps in the middle."""
    found = []
    for warp in range(warps):
        t, events = start + warp * 7, []
        if double:
            events.append(event(t, t + 40, COMMIT, line=80))
            t += 60
        for _ in range(tiles):
            events.append(event(t + 5, t + 90, COMMIT, line=90))
            left = max(20, latency - math) if double else latency
            events.append(event(t + 100, t + 100 + left, COPY_WAIT, n=int(double), line=91))
            t += 100 + left
            events.append(event(t, t + 30 + (warps - warp) * 5, BARRIER, line=92))
            t += 30 + (warps - warp) * 5 + math
            events.append(event(t, t + 45, BARRIER, line=104))
            t += 45
        found.append({"cta": 0, "warp": warp, "full": False, "events": events})
    return found


def specialised(tiles=24, stages=4, step=1024, latency=1200, consumers=2, start=1000):
    """A kernel like 20: one producer warp, consumer warpgroups with wgmma."""
    labels = [label(0x400 + s * 0xC000, 0x4000, "A", s) for s in range(stages)]
    labels += [label(0x38000 + s * 8, 8, "full_bar", s) for s in range(stages)]
    labels += [label(0x38100 + s * 8, 8, "empty_bar", s) for s in range(stages)]
    producer, landed, freed = [], [], [start] * stages
    t = start
    ready = []
    for tile in range(tiles):
        s = tile % stages
        begin = max(t, freed[s] if tile < stages else ready[tile - stages] + step + 80)
        producer.append(event(t, begin + 20, MBAR, line=100, address=0x38100 + s * 8))
        t = begin + 20
        for i in range(3):
            producer.append(event(t + 10 * i, t + 10 * i, TMA, line=103,
                                  address=0x400 + s * 0xC000))
        t += 40
        landed.append(t + latency)
        ready.append(max(landed[-1], ready[-1] + step if ready else 0))
    warps = [{"cta": 0, "warp": consumers * 4, "full": False,
              "events": producer}]
    for g in range(consumers):
        events = list(labels) if g == 0 else []
        t = start + 300 + g * 30
        for tile in range(tiles):
            s = tile % stages
            begin = max(t + 15, landed[tile])
            events.append(event(t, begin + 15, MBAR, line=120, address=0x38000 + s * 8))
            t = begin + 60
            done = ready[tile] + 30 if tile else t + 10
            events.append(event(t + 5, max(t + 20, done), WG_WAIT, n=1, line=131))
            t = max(t + 20, done) + 5
        events.append(event(t, t + step, WG_WAIT, n=0, line=135))
        t += step + 400
        for box in range(4):
            events.append(event(t, t + 30, STORE_WAIT, n=1, line=150))
            events.append(event(t + 200, t + 200, TMA_STORE, line=160))
            t += 230
        warps.append({"cta": 0, "warp": g * 4, "full": False, "events": events})
    return warps


def make(step="20_two_consumers", unit="wgmma", warps=None, size=(512, 512, 1536), us=20.0,
         overhead=4.2):
    warps = specialised() if warps is None else warps
    return {"format": 2, "step": step, "unit": unit, "size": list(size),
            "gpu": "Synthetic GPU (invented numbers)", "sms": 4, "sm": 0, "device": None,
            "plain_us": us, "traced_us": us * (1 + overhead / 100), "last_traced_us": us,
            "overhead_pct": overhead, "warps": warps}
