"""Arguments that several commands share."""
from . import device, kinds, results, sizes
from .term import UserError


def add_steps(parser, default=("all",)):
    parser.add_argument("steps", nargs="*", default=list(default), metavar="STEP",
                        help="10, 07-12, an id, or all")


def add_sizes(parser, default):
    parser.add_argument("--sizes", "--size", default=default, metavar="SIZE[,SIZE]",
                        help="4096 or 4096x4096x512" + (f" (default {default})" if default else ""))


def add_suite(parser):
    parser.add_argument("--suite", action="store_true",
                        help="the problems of tools/suite.txt; --sizes and --kinds do not count")
    parser.add_argument("--groups", metavar="GROUP[,..]", help="of the suite, only these")


def wants_suite(args):
    if args.groups and not args.suite:
        raise UserError("--groups needs --suite")
    return args.suite


def add_kinds(parser):
    parser.add_argument("--kinds", metavar="KIND[,KIND]",
                        help="the sizes in these layouts and types: NT, NT-bf16, TN-f16-f32-batch4 "
                        "(A's and B's layout, N row-major, T column-major; also --sizes 4096/NT)")


def add_device(parser):
    parser.add_argument("--device", choices=("gpu", "emulated"),
                        help="default: gpu where there is one and a toolkit")


def add_regimes(parser):
    parser.add_argument("--regimes", "--regime", default="burst,sustained", metavar="REGIME[,..]",
                        help="burst, sustained or both (default)")


def add_out(parser, default="out"):
    parser.add_argument("-o", "--out", default=default, metavar="FOLDER",
                        help=f"where results and plots go (default {default})")


def add_limit(parser):
    parser.add_argument("--time-limit", type=seconds, metavar="SECONDS",
                        help="for each step's process (default: by size)")


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"'{text}' is no whole number above 0")
    return int(text)


def seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not value > 0:
        raise UserError(f"--time-limit takes seconds, not '{text}'")
    return value


def regimes(text):
    chosen = [r for r in text.split(",") if r]
    for regime in chosen:
        if regime not in results.REGIMES:
            raise UserError(f"there is no regime '{regime}': burst or sustained")
    if not chosen:
        raise UserError("no regime named: burst or sustained")
    return [r for r in results.REGIMES if r in chosen]


def size_list(text, kind_list=None):
    """Sizes; those without a kind of their own in each of the kinds."""
    if not kind_list:
        return sizes.parse(text)
    found = []
    for size in sizes.parse(text):
        found += [size] if sizes.kind_of(size) else [
            sizes.with_kind(size, kind) for kind in kinds.split(kind_list)]
    return list(dict.fromkeys(found))


def need_gpu():
    """The GPU, or the error for a command that is nothing without one."""
    found, problem = device.gpus()
    if not found:
        raise device.no_gpu_error(problem)
    return found[0]


def need_fit(step, gpu):
    """The error for a command that takes one step, where this GPU can't run it."""
    if not step.runs_on(gpu.sm):
        raise UserError(f"{step.id} {step.why_not(gpu.sm)}; {gpu.name} can't run it")


def choose_device(asked, setup):
    """gpu or emulated: what was asked for, else what this machine has."""
    if asked == "emulated":
        return "emulated"
    if asked == "gpu":
        need_gpu()
        if not setup.nvcc:
            raise UserError(setup.why_no_nvcc)
        return "gpu"
    return "gpu" if setup.gpu and setup.nvcc else "emulated"


def supported(chosen, gpu):
    """(steps this GPU runs, [(step, why not)])."""
    fit = [s for s in chosen if s.runs_on(gpu.sm)]
    return fit, [(s, s.why_not(gpu.sm)) for s in chosen if not s.runs_on(gpu.sm)]


def ranges(chosen):
    """07-12 14 for a list of steps: what the user can type."""
    numbers = sorted({s.number for s in chosen})
    parts, i = [], 0
    while i < len(numbers):
        j = i
        while j + 1 < len(numbers) and numbers[j + 1] == numbers[j] + 1:
            j += 1
        parts.append(f"{numbers[i]:02}" + (f"-{numbers[j]:02}" if j > i else ""))
        i = j + 1
    return " ".join(parts)
