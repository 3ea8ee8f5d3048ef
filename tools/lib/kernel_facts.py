"""What a step's kernel.cu says about itself: its constants, its shared memory, how it is built.
Read from the text, so a changed constant changes the prediction."""
import re
from dataclasses import dataclass, field

from .term import UserError

SIZES = {"half": 2, "float": 4, "uint64_t": 8, "uint32_t": 4, "int": 4, "int2": 8, "uint4": 16,
         "unsigned char": 1, "uint16_t": 2, "int64_t": 8}


@dataclass
class Facts:
    constants: dict = field(default_factory=dict)  # those that could be worked out
    dynamic_smem: int | None = 0  # bytes; None where its struct could not be read
    static_smem: int | None = 0
    copies: str = "registers"  # to shared memory: none, registers, cp_async, tma
    stages: int = 1
    fragments_ahead: bool = False  # operands of the next k are read while this one multiplies
    wgmma_in_flight: int = 0
    producer: bool = False  # warps that only copy
    persistent: bool = False
    tma_store: bool = False
    stream_k: bool = False
    multicast: bool = False

    def get(self, name, default=None):
        return self.constants.get(name, default)

    @property
    def threads(self):
        if "NUM_THREADS" in self.constants:
            return self.constants["NUM_THREADS"]
        return self.get("BLOCK_M", 0) * self.get("BLOCK_N", 0)

    @property
    def acc_registers(self):
        """Of a thread that multiplies."""
        threads = self.get("NUM_CONSUMERS", 0) * 128 or self.threads
        return self.get("BLOCK_M", 0) * self.get("BLOCK_N", 0) // max(1, threads)

    @property
    def cluster(self):
        return self.get("CLUSTER_M", 1) * self.get("CLUSTER_N", 1)


def code(text):
    """Without comments."""
    return re.sub(r"/\*.*?\*/", "", re.sub(r"//[^\n]*", "", text), flags=re.S)


def tile_of(config):
    """(rows, columns, CTAs of a cluster that share B, clusters of a column) of a configuration of
    29, or None."""
    found = re.match(r"(\d+)x(\d+)/c(\d+)x\d+/s\d+/g(\d+)/", config or "")
    return tuple(map(int, found.groups())) if found else None


def read(step, values=None, config=None):
    """Facts of a step; `values` replaces constants (a sweep's or an occupancy table's), `config`
    is what a step chose that has several tiles."""
    text = code(step.kernel.read_text(encoding="utf-8"))
    for header in sorted(step.folder.glob("*.h")):
        text = code(header.read_text(encoding="utf-8")) + text
    return parse(text, values, step.id, tile_of(config))


def instance(text, tile=None):
    """A kernel for several tiles, `template <int BLOCK_M_, ...> struct Tile`: as for the first of
    them, `using X = Tile<128, ...>`, or the first with the columns of `tile` and room for its
    rows."""
    parameter = r"(?:int|bool) (\w+_)(?: = (\w+))?"
    found = re.search(rf"template <((?:{parameter}(?:, )?)+)>\s*struct (\w+) \{{", text)
    uses = re.findall(rf"using \w+ = {found[4]}<([^>]+)>;", text) if found else []
    fit = [use for use in uses if tile and use.split(",")[1].strip() == str(tile[1])
           and int(use.split(",")[0]) >= tile[0]]
    if not uses:
        return text
    names, defaults = zip(*re.findall(parameter, found[1]))
    given = min(fit, key=lambda use: int(use.split(",")[0]), default=uses[0]).split(",")
    values = [{"true": "1", "false": "0"}.get(v.strip(), v)
              for v in given + list(defaults[len(given):])]
    constants = [f"constexpr int {name} = {value};\n" for name, value in zip(names, values)]
    return "".join(constants) + text.replace(found[4] + "::", "")


def parse(text, values=None, name="the kernel", tile=None):
    text, facts = instance(code(text), tile), Facts()
    structs = dict(re.findall(r"struct (\w+)(?:\s*:\s*\w+)? \{(.*?)\n\};", text, re.S))
    for type_, list_ in re.findall(r"^\s*(?:static )?constexpr (int|unsigned|uint16_t|uint32_t|"
                                  r"int64_t|size_t|bool) ([^;]+);", text, re.M):
        for item in split_commas(list_):
            constant, _, expression = item.partition("=")
            constant = constant.strip()
            if values and constant in values:
                facts.constants[constant] = int(values[constant])
            else:
                value = evaluate(expression, facts.constants, structs)
                if value is not None:
                    facts.constants[constant] = value
    for unknown in set(values or {}) - set(facts.constants):
        raise UserError(f"{name} has no constant '{unknown}'; it has "
                        f"{', '.join(facts.constants) or 'none'}")
    template = r"template <int NUM_STAGES>\s*struct SharedStorage \{(.*?)\n\};"
    if found := re.search(template, text, re.S):
        structs["SharedStorage"] = found[1]
        facts.constants.setdefault("NUM_STAGES", max(
            [int(n) for n in re.findall(r"(?:gemm_kernel|SharedStorage|\w+)<(\d)>", text)
             if 1 < int(n) < 9] or [2]))
    array = r"__shared__ (?:__align__\(\d+\) )?(\w+) \w+((?:\[[^\]]+\])+);"
    for type_, dims in re.findall(array, text):
        total = SIZES.get(type_, 4)
        for dim in re.findall(r"\[([^\]]+)\]", dims):
            count = evaluate(dim, facts.constants, structs)
            total = total * count if count is not None and total is not None else None
        facts.static_smem = (None if total is None or facts.static_smem is None else
                             facts.static_smem + total)
    if "dynamic_smem()" in text:
        body = structs.get("SharedStorage")
        facts.dynamic_smem = struct_bytes(body, facts.constants, structs) if body else None
    has = lambda pattern: re.search(pattern, text) is not None  # noqa: E731
    facts.copies = ("tma" if has(r"tma_load_[23]d") else "cp_async" if has(r"cp_async_(cg|ca)") else
                    "registers" if has(r"__shared__|dynamic_smem") else "none")
    doubled = has(r"smem_a\[2\]|\ba\[2\]\[BLOCK")
    facts.stages = facts.constants.get("NUM_STAGES", 2 if doubled else 1)
    facts.fragments_ahead = has(r"frag_a\[2\]")
    waits = [int(n) for n in re.findall(r"wgmma_wait_group<(\d)>", text)]
    facts.wgmma_in_flight = max(waits, default=0)
    facts.producer = has(r"empty_bar|empty\[")
    facts.persistent = has(r"tile \+= |gridDim\.x")
    facts.tma_store = has(r"tma_store_[23]d")
    facts.stream_k = has(r"red_add_release")
    facts.multicast = has(r"tma_load_[23]d_multicast")
    if tile:
        facts.constants.update(zip(("BLOCK_M", "BLOCK_N", "CLUSTER_M", "GROUP_M"), tile))
    return facts


def split_commas(text):
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([{<"
        depth -= c in ")]}>"
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def evaluate(expression, constants, structs):
    """The integer value of a C++ constant expression of the kind that steps have, or None."""
    text = re.sub(r"\b(int|unsigned|size_t|uint32_t|int64_t)\(", "(", expression)
    text = re.sub(r"uint\d+_t\{(\d+)\}", r"\1", text)

    def size(match):
        type_ = match[1].strip()
        if type_ in SIZES:
            return str(SIZES[type_])
        struct, _, member = type_.partition("::")
        member, *indices = re.findall(r"\w+", member) or [""]
        if struct in structs and member:
            found = re.search(rf"(\w+) {member}((?:\[[^\]]+\])+)", structs[struct])
            if found:
                dims = re.findall(r"\[([^\]]+)\]", found[2])[len(indices):]
                return "*".join([f"({SIZES.get(found[1], 1)})", *(f"({d})" for d in dims)])
        if struct in structs:
            value = struct_bytes(structs[struct], constants, structs)
            return str(value) if value is not None else "?"
        return "?"

    text = re.sub(r"sizeof\(([^()]+)\)", size, text)
    text = re.sub(r"\bceil_div\(([^(),]+),([^(),]+)\)", r"(-(-(\1)//(\2)))", text)
    text = re.sub(r"(?<![/])/(?![/])", "//", text)
    if found := re.fullmatch(r"(.+?)\?(.+?):(.+)", text.strip(), re.S):
        test = evaluate(found[1], constants, structs)
        return None if test is None else evaluate(found[2 if test else 3], constants, structs)
    words = set(re.findall(r"[A-Za-z_]\w*", text))
    if not words <= constants.keys() or not re.fullmatch(r"[\w\s()+\-*/%<>=&|!^]+", text):
        return None
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text).replace("&&", " and ").replace("||", " or ")
    try:
        return int(eval(text, {"__builtins__": {}}, dict(constants)))  # digits, names, operators
    except (ArithmeticError, SyntaxError, TypeError, NameError, ValueError):
        return None


def struct_bytes(body, constants, structs):
    """sizeof of a struct of arrays, or None. Members of types unknown here make it None."""
    offset, widest = 0, 1
    body = re.sub(r"__device__.*?\n  \}", "", body, flags=re.S)  # member functions
    for member in re.findall(r"([^;{}]+);", body):
        found = re.fullmatch(r"(?:alignas\((\w+)\) )?([\w ]*?\w) (\w[^()]*)",
                             " ".join(member.split()))
        if not found:
            return None
        align, type_, names = found.groups()
        if type_ in SIZES:
            size, natural = SIZES[type_], min(SIZES[type_], 16)
        elif type_ in structs:
            size, natural = struct_bytes(structs[type_], constants, structs), 4
        else:
            size = None
        if size is None:
            return None
        natural = max(natural, (evaluate(align, constants, structs) or 1) if align else 1)
        for name in split_commas(names):
            total = size
            for dim in re.findall(r"\[([^\]]+)\]", name):
                count = evaluate(dim, constants, structs)
                if count is None:
                    return None
                total *= count
            offset = -(-offset // natural) * natural + total
        widest = max(widest, natural)
    return -(-offset // widest) * widest
