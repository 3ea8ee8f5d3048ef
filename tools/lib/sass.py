"""Machine code against source: does every instruction that a step asks for by a call of ptx:: stand
in its SASS, does none of the large ones stand there that it did not ask for, and do wgmma's
descriptors stay in the uniform registers that it reads them from?"""
import collections
import re
import tempfile
from pathlib import Path

from . import child, paths, term

# PTX, as the wrappers have it -> SASS as ptxas makes it for compute capability `least` and newer.
# Groups of the one fill {} of the other.
RULES = [(re.compile(ptx), sass, least) for ptx, sass, least in (
    (r"cp\.async\.c[ag]\.shared", r"LDGSTS\b", 80),
    (r"cp\.async\.commit_group", r"LDGDEPBAR\b", 80),
    (r"cp\.async\.(?:bulk\.)?wait_group", r"DEPBAR\.LE\b", 80),
    (r"cp\.async\.mbarrier\.arrive", r"ARRIVES\.LDGSTSBAR\b", 90),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x\d\.shared", r"LDSM\.16\.M88\b", 75),
    (r"ldmatrix\.sync\.aligned\.m8n8\.x\d\.trans", r"LDSM\.16\.MT88\b", 75),
    (r"stmatrix\.sync", r"STSM\b", 90),
    (r"mma\.sync\.aligned\.m16n8k16\.\w+\.\w+\.f32\.f16", r"HMMA\.16816\.F32(?!\.BF16)", 80),
    (r"mma\.sync\.aligned\.m16n8k16\.\w+\.\w+\.f32\.bf16", r"HMMA\.16816\.F32\.BF16\b", 80),
    (r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.f16",
     r"HGMMA\.64x{}x16\.F32(?!\.BF16)", 90),
    (r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.bf16",
     r"HGMMA\.64x{}x16\.F32\.BF16\b", 90),
    (r"wgmma\.fence", r"WARPGROUP\.ARRIVE\b", 90),
    (r"wgmma\.wait_group", r"WARPGROUP\.DEPBAR\b", 90),
    (r"setmaxnreg\.dec", r"USETMAXREG\.DEALLOC\b", 90),
    (r"setmaxnreg\.inc", r"USETMAXREG\.TRY_ALLOC\b", 90),
    (r"cp\.async\.bulk\.tensor\.(\d)d\.shared::cluster\.global(?!\S*\.multicast)",
     r"UTMALDG\.{}D(?!\.MULTICAST)", 90),
    (r"cp\.async\.bulk\.tensor\.(\d)d\.shared::cluster\.global\S*\.multicast",
     r"UTMALDG\.{}D\.MULTICAST\b", 90),
    (r"cp\.async\.bulk\.tensor\.(\d)d\.global\.shared", r"UTMASTG\.{}D\b", 90),
    (r"cp\.async\.bulk\.commit_group", r"UTMACMDFLUSH\b", 90),
    (r"mbarrier\.init", r"SYNCS\.EXCH\b", 90),
    (r"mbarrier\.(?:arrive|expect_tx)", r"SYNCS\.ARRIVE\b", 90),
    (r"mbarrier\.try_wait", r"SYNCS\.PHASECHK\b", 90),
    (r"barrier\.cluster\.arrive", r"UCGABAR_ARV\b", 90),
    (r"barrier\.cluster\.wait", r"UCGABAR_WAIT\b", 90),
    (r"bar\.sync", r"BAR\.SYNC\b", 75),
    (r"bar\.arrive", r"BAR\.ARV\b", 75),
    (r"red\.(?:relaxed|release)", r"REDG?\b", 75),
    (r"atom\.", r"ATOMG?\b", 75),
    (r"discard\.global\.L2", r"CCTL\.E\.RML2\b", 80),
    (r"ld\.acquire", r"LDG?\.E\.STRONG\.GPU\b", 75),
    (r"ld\.volatile\.global", r"LDG?\.E\.STRONG\.SYS\b", 75),
)]
WORD = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
# Instructions from one wgmma to the next of the same loop, at most.
NEAR = 80
# Never there unless asked for.
LARGE = ("HMMA", "HGMMA", "LDSM", "STSM", "LDGSTS", "UTMALDG", "UTMASTG", "USETMAXREG")


def expanded(header):
    """The text of a header, its macros replaced: the functions that they make are in it."""
    text = re.sub(r"^ *# *(?:include|pragma).*", "", header.read_text(), flags=re.M)
    with tempfile.TemporaryDirectory(prefix="ladder-") as folder:
        alone = Path(folder) / header.name
        alone.write_text(text)
        done = child.run(["g++", "-E", "-P", "-x", "c++", alone], limit=60)
    if not done.ok:
        raise term.UserError(f"{header.name}: {child.why(done, 60)}")
    return done.out


def wrappers():
    """{function of namespace ptx: its body, those of its overloads too}, comments left out."""
    folder = paths.ROOT / "common" / "ptx"
    text = re.sub(r"//.*", "", (folder / "cuda.h").read_text()) + expanded(folder / "cuda_wgmma.h")
    heads = list(re.finditer(r"PTX_FN[^;{}(]*?\b(\w+)\(", text))
    ends = [h.start() for h in heads[1:]] + [len(text)]
    bodies = {}
    for head, end in zip(heads, ends):
        bodies[head[1]] = bodies.get(head[1], "") + text[head.end():end]
    return bodies


def source(file, seen=None):
    """The text of a kernel and of the files beside it that it includes, comments left out."""
    seen = seen if seen is not None else set()
    if file in seen or not file.is_file():
        return ""
    seen.add(file)
    text = re.sub(r"//.*", "", file.read_text(encoding="utf-8"))
    for name in re.findall(r'#include "([\w./]+)"', text):
        for beside in (file.parent / name, paths.ROOT / name):
            if beside.is_file() and "common" not in Path(name).parts:
                text += source(beside, seen)
    return text


def asked_for(text, bodies, sm):
    """{pattern of SASS: the ptx:: call that asks for it} for code built for `sm`."""
    calls, todo, patterns = set(), sorted(set(re.findall(r"\bptx::(\w+)", text))), {}
    while todo:
        call = todo.pop()
        if call in calls or call not in bodies:
            continue
        calls.add(call)
        body = bodies[call]
        todo += [n for n in bodies if re.search(rf"\b{n}\s*(?:<[^;]*>)?\(", body)]
        asm = re.sub(r'"\s*"', "", re.sub(r"\\n", " ", body)).replace('" ', '"')
        for ptx, sass, least in RULES:
            for found in ptx.finditer(asm) if sm >= least else ():
                patterns.setdefault(sass.format(*found.groups()), f"ptx::{call}")
    return patterns


def complaints(dump, patterns, only_ptx=True):
    """What is wrong with this dump of cuobjdump -sass, a line each. A kernel on CUDA's own
    headers may hold more than its calls of ptx:: ask for."""
    code = collections.Counter(WORD.findall(dump))
    if not code:
        return ["no machine code in it"]
    wrong = [f"{call} left no {_plain(sass)}" for sass, call in sorted(patterns.items())
             if not any(re.match(sass, word) for word in code)]
    for name in LARGE if only_ptx else ():
        if not any(p.startswith(name) for p in patterns):
            if found := [word for word in code if re.match(rf"{name}\b", word)]:
                times = sum(code[word] for word in found)
                wrong.append(f"{found[0]}, {times} times, without a call that asks for it")
    for kernel in dump.split("Function : "):
        words = WORD.findall(kernel)
        at = [i for i, word in enumerate(words) if word.startswith("HGMMA")]
        moves = sum(words[i:j].count("R2UR") for i, j in zip(at, at[1:]) if j - i < NEAR)
        if moves > len(at):
            wrong.append(f"descriptors are kept in vector registers: {moves} R2UR between "
                         f"{len(at)} wgmma")
            break
    return wrong


def _plain(pattern):
    """A pattern as one would say it."""
    return re.sub(r"\(\?![^)]*\)|\\b|\?", "", pattern).replace("\\", "")


def check(cuobjdump, objects, step, target, bodies):
    """Complaints about one step as built for one target ("80", "90a")."""
    done = child.run([cuobjdump, "-sass", "-arch", f"sm_{target}", objects], limit=120)
    if not done.ok:
        return [f"cuobjdump: {child.why(done, 120)}"]
    return complaints(done.out, asked_for(source(step.kernel), bodies, int(target[:2])),
                      only_ptx=not step.gpu_only)
