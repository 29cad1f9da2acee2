#!/usr/bin/env python3
"""What the kernels compiled to: per row and configuration the registers, the memory and the mix of
instructions, counted in the disassembly; and which of them compiled to the same code.

It reads the objects that the build left behind (convforge-objects in Cargo's target folder, each with
ptxas's report beside it), for one architecture. Kernels that need nothing of sm_90a are compiled for
sm_90, to the same code, and count as sm_90a's. Counts are static: an instruction counts once, whether
or not it is in a loop. Of a kernel's instances the table has one per configuration:
f32, fp32 math, NCHW, or what is nearest to that; --all has every one.

It fails where a register of rows is written while products may still read it: wgmma reads rows in
registers until it was waited for, and ptxas takes them to be free as soon as it was asked for. And where an arrival on
a barrier overtakes loads from shared memory (overtaken.py).

cuobjdump and nvdisasm are taken from PATH or a CUDA toolkit; where there are none, toolkit.py
installs them (5 MB).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import objects
import overtaken
import sources
from objects import Failure
from markdown import put, table

ROOT = Path(__file__).resolve().parent.parent
MARKERS = "<!-- disassembly: begin -->", "<!-- disassembly: end -->"

# The columns of the mix, in order. What fits none of them is `other`.
MIX = ["FFMA", "FADD, FMUL", "HFMA2", "HMMA", "HGMMA", "IMAD", "integer", "MOV", "LDC", "LDS",
       "LDSM", "LDG", "async", "STS", "STG", "local", "generic", "BAR", "BRA", "other"]
ALONE = {"FFMA", "HFMA2", "HMMA", "HGMMA", "IMAD", "LDS", "LDSM", "LDG", "STS", "STG", "BAR"}
FAMILIES = {
    "FADD, FMUL": {"FADD", "FMUL"},
    "integer": {"BMSK", "FLO", "IABS", "IADD", "IADD3", "IMNMX", "ISETP", "LEA", "LOP3", "POPC",
                "PRMT", "SGXT", "SHF", "VIADD", "VIADDMNMX", "VIMNMX"},
    "MOV": {"CS2R", "MOV", "R2UR", "S2R", "S2UR", "SEL"},
    "LDC": {"LDC", "LDCU"},
    "async": {"LDGSTS", "UBLKCP", "UTMALDG", "UTMASTG"},
    "local": {"LDL", "STL"},
    "generic": {"LD", "ST"},
    "BRA": {"BRA", "BRX"},
}
COLUMN = {name: name for name in ALONE}
COLUMN.update((opcode, column) for column, opcodes in FAMILIES.items() for opcode in opcodes)
# Loads and stores that are counted by their width.
BY_WIDTH = {"LDS", "LDG", "STS", "STG"}

# Kernels in which so many arrivals may overtake loads, by the beginnings of their instances. Others, as of filters that stay
# in registers, may not.
MAY_OVERTAKE = {
    # Threads write over what those read, and their stores are queued behind the loads.
    "implicit_gemm_f32_nhwc_kernel": 2,
    "implicit_gemm_f32_nchw_kernel": 2,
    # The last warp by a count asks for the copies, and the count is queued behind the loads.
    "depthwise_nchw_kernel": 1,
    # A row of x that meets no row of sums is loaded and not used: below a strip's last row of y, as boxes have whole steps;
    # with a stride of 2 the second one of the last step.
    "depthwise_nhwc_kernel<float, 5, 1, 0>": 1,
    "depthwise_nhwc_kernel<float, 5, 2, 0>": 1,
    "depthwise_nhwc_kernel<float, 7, 1, 0>": 1,
    "depthwise_rows_kernel": 1,
}

# What template parameters say that are no configuration, the one to show first.
ELEMENTS = ["float", "unsigned int", "__half", "__nv_bfloat16", "unsigned short"]
MATHS = ["0", "2", "1", "3", "4"]  # fp32, f16, tf32, bf16, f16acc
KINDS = {"Math": MATHS, "SumMath": MATHS, "Storage": ["0", "1", "2"], "Layout": ["0", "1"],
         "Nchw": ["true", "false"]}


# Instructions ----------------------------------------------------------------------------------


class Instruction(NamedTuple):
    """One line of the disassembly: `@!P4 IADD3 R2, R2, -R5, RZ`."""

    predicate: str
    opcode: str
    operands: str

    def column(self):
        """Its place in the mix."""
        name, *modifiers = self.opcode.split(".")
        if self.predicate in ("@!PT", "@!UPT"):  # never executed
            return "other"
        if name == "IMAD" and modifiers[:1] == ["MOV"]:
            return "MOV"
        # A constant by way of the half unit: 0 * 0 plus it.
        if name == "HFMA2" and re.match(r"\w+, -?RZ, RZ,", self.operands):
            return "MOV"
        if name not in COLUMN and name.startswith("U"):  # on the uniform datapath
            name = name[1:]
        return COLUMN.get(name, "other")

    def width(self):
        """Bits that a load or store moves per thread."""
        for modifier in self.opcode.split(".")[1:]:
            if match := re.fullmatch(r"[US]?(8|16|64|128)", modifier):
                return int(match[1])
        return 32

    def shape(self):
        """The instruction without what differs from one register allocation, or place, to the next."""
        operands = re.sub(r"\(\*.*?\*\)", "", self.operands)
        if re.match(r"BRA|BRX|BSSY|CALL|JMP|WARPSYNC", self.opcode):
            operands = re.sub(r"0x[0-9a-f]+", "there", operands)
        text = f"{self.predicate} {self.opcode} {operands}"
        return re.sub(r"\b(U?[RP]|B)\d+\b", r"\1", text).strip()


def lines_of(text):
    """The lines of each function, by its mangled name."""
    functions, current = {}, []
    for line in text.splitlines():
        if match := re.match(r"\s*Function : (\S+)", line):
            current = functions.setdefault(match[1], [])
        else:
            current.append(line)
    return functions


def parse_sass(lines):
    """The instructions of a function."""
    instructions = []
    for line in lines:
        if match := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@\S+ )?\s*(\S+?)(?: +([^;]*?))?\s*;", line):
            predicate, opcode, operands = match.groups(default="")
            instructions.append(Instruction(predicate.strip(), opcode, operands))
    while instructions and instructions[-1].opcode == "NOP":  # up to the alignment
        instructions.pop()
    return instructions


def parse_constants(text):
    """Bytes of constant memory of each function, over all banks."""
    pairs = re.findall(r"Function (\S+):\n\s*(.*)", text)
    return {
        name: sum(int(size) for size in re.findall(r"CONSTANT\[\d+\]:(\d+)", usage))
        for name, usage in pairs
    }


def parse_ptxas(text, arch):
    """What ptxas said of each function for an architecture."""
    said = {}
    for part in re.split(r"(?=Compiling entry function ')", text)[1:]:
        name, compiled_for = re.match(r"Compiling entry function '(\S+)' for '(\w+)'", part).groups()
        if compiled_for != arch:
            continue
        number = lambda pattern: int((re.search(pattern, part) or [0, 0])[1])
        said[name] = {
            "registers": number(r"Used (\d+) registers"),
            "shared_bytes": number(r"(\d+) bytes smem"),
            "stack_bytes": number(r"(\d+) bytes stack frame"),
            "spill_store_bytes": number(r"(\d+) bytes spill stores"),
            "spill_load_bytes": number(r"(\d+) bytes spill loads"),
        }
    return said


def mix(instructions):
    """How many instructions there are of each kind, and of loads and stores by their width."""
    counts, widths = Counter(), {}
    for instruction in instructions:
        column = instruction.column()
        counts[column] += 1
        if column in BY_WIDTH:
            widths.setdefault(column, Counter())[instruction.width()] += 1
    return {
        name: dict(sorted(widths[name].items())) if name in widths else counts[name] for name in MIX
    }


def written(instruction):
    """The registers that an instruction writes."""
    match = re.match(r"R(\d+)\b", instruction.operands)
    if not match or re.match(r"ST|RED|HGMMA|SYNCS", instruction.opcode):
        return set()
    first = int(match[1])
    bits = 64 if ".WIDE" in instruction.opcode else instruction.width()
    return set(range(first, first + max(bits // 32, 1)))


def overwritten(instructions):
    """Those that write rows of products which were not waited for, in the order in which they stand."""
    found, groups, asked = [], [], set()  # rows of groups under way, and of products that are no group yet
    for instruction in instructions:
        if instruction.opcode.startswith("HGMMA"):
            if match := re.match(r"R\d+, R(\d+), gdesc", instruction.operands):
                asked |= set(range(int(match[1]), int(match[1]) + 4))
            if "gsb0" in instruction.operands:
                groups.append(asked)
                asked = set()
        elif match := re.match(r"gsb0, (\w+)", instruction.operands):  # WARPGROUP.DEPBAR.LE: so many may be left
            del groups[: max(len(groups) - int(match[1], 0), 0)]
        elif written(instruction) & asked.union(*groups):
            found.append(instruction)
    return found


# Names -----------------------------------------------------------------------------------------


def split(text):
    """The parts between commas that stand in no bracket."""
    parts, depth = [""], 0
    for letter in text:
        depth += letter in "<([{"
        depth -= letter in ">)]}"
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parse_name(demangled):
    """`fused` and `float`, `0`, `true` of `void (anonymous namespace)::fused<float, 0, true>(...)`."""
    text = demangled.replace("(anonymous namespace)::", "").removeprefix("void ")
    name = re.match(r"[\w:]+", text)[0]
    depth, end = 0, len(name)
    for end in range(len(name), len(text)):
        depth += text[end] == "<"
        depth -= text[end] == ">"
        if depth == 0:
            break
    arguments = text[len(name) + 1 : end] if text[len(name) :].startswith("<") else ""
    return name.split("::")[-1], split(arguments)


def parse_parameters(source):
    """Names of the template parameters of each kernel in a source file, and of its Shape."""
    nested = r"[^()]*"
    for _ in range(4):
        nested = rf"(?:[^()]|\({nested}\))*"
    bounds = rf"(?:__(?:launch_bounds|maxnreg)__\s*\({nested}\)\s*)?"
    kernel = rf"template\s*<([^{{}};]*?)>\s*__global__\s+{bounds}void\s+{bounds}(\w+)\s*\("
    shape = r"template\s*<([^{};]*?)>\s*struct\s+(Shape)\b"
    space = re.search(r"^namespace ([\w:]+) \{", source, re.M)
    found = {}
    for parameters, name in re.findall(kernel, source) + re.findall(shape, source):
        declared = [part.split("=")[0] for part in split(parameters)]
        names = [re.findall(r"\w+", part)[-1] for part in declared]
        if name == "Shape":
            name = f"{space[1]}::Shape" if space else name
            names = [name.removesuffix("Of") for name in names]
        found[name] = names
    return found


def flat(names, arguments, parameters):
    """Parameters of a kernel with their names, if these are known: its Shape's in place of it."""
    if len(names) != len(arguments):  # a pack, or a kernel that the source spells otherwise
        names = [""] * len(arguments)
    for name, argument in zip(names, arguments):
        shape = re.fullmatch(r"([\w:]*\bShape)<(.*)>", argument)
        if shape:
            yield from flat(parameters.get(shape[1], []), split(shape[2]), parameters)
        else:
            yield name, argument


def short(text):
    """`Shape<float, 1>` of `cf::family::Shape<float, (cf::family::Product)1>`."""
    return re.sub(r"\b(?:\w+::)+", "", re.sub(r"\([\w:]+\)(?=-?\d)", "", text))


class Kernel:
    """One instance of a kernel."""

    def __init__(self, row, mangled, demangled, parameters, instructions, numbers, overtaken_at=()):
        self.row, self.mangled = row, mangled
        self.name, arguments = parse_name(demangled)
        self.instance = self.name + (f"<{short(', '.join(arguments))}>" if arguments else "")
        kinds, settings = [], []
        for name, argument in flat(parameters.get(self.name, []), arguments, parameters):
            order = self.order(name, argument)
            if order:
                kinds.append(order.index(argument) if argument in order else len(order))
            else:
                settings.append((name, short(argument)))
        self.preference = tuple(kinds)
        self.settings = tuple(settings)
        self.configuration = ""
        self.instructions = instructions
        self.numbers = numbers
        self.overtaken_at = overtaken_at  # addresses

    @staticmethod
    def order(name, argument):
        """The values of a template parameter that is no configuration, the one to show first."""
        if argument in ELEMENTS:
            return ELEMENTS
        if re.fullmatch(r"cf::Sum<\d>", argument):
            return [f"cf::Sum<{math}>" for math in MATHS]
        return KINDS.get(name)

    def label(self):
        return f"`{self.row}` `{self.instance}`"

    def json(self):
        code = 16 * len(self.instructions)
        return {
            "row": self.row,
            "kernel": self.instance,
            "symbol": self.mangled,
            "configuration": self.configuration or None,
            **self.numbers,
            "code_bytes": code,
            "mix": mix(self.instructions),
        }


def configure(kernels):
    """Names the configurations of one row's kernels by the parameters in which they differ."""
    for kernel in kernels:
        others = [other.settings for other in kernels if other.name == kernel.name]
        kernel.configuration = ",".join(
            f"{name.lower()}={value}" if name else value
            for i, (name, value) in enumerate(kernel.settings)
            if any(other[i][1] != value for other in others)
        )
    return sorted(kernels, key=lambda k: (k.name, natural(k.configuration), k.preference))


def representatives(kernels):
    """One kernel of each row, name and configuration, in the order in which they come."""
    chosen = {}
    for kernel in kernels:
        key = (kernel.row, kernel.name, kernel.settings)
        if key not in chosen or kernel.preference < chosen[key].preference:
            chosen[key] = kernel
    return list(chosen.values())


def alike(kernels):
    """Groups of kernels with the same code: `instructions` where all is equal but for registers and
    addresses, `opcodes` where operands differ too."""
    found = []
    for kind, part in ("instructions", Instruction.shape), ("opcodes", lambda i: i.opcode):
        groups = {}
        for kernel in kernels:
            groups.setdefault(tuple(map(part, kernel.instructions)), []).append(kernel)
        for group in groups.values():
            if len(group) > 1 and group not in [known for _, known in found]:
                found.append((kind, group))
    return found


# Reading the build -----------------------------------------------------------------------------


def natural(text):
    """A key that sorts tile=8 before tile=16."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


def sources_of(root):
    """Each row of the table with its source and, behind it, those in the row's folder."""
    listed = re.findall(r"^(?:ROW|UNRANKED)\((\w+), *(\w+)\)", (root / "csrc/kernels.def").read_text(), re.M)
    for family, file in listed:
        source = Path(f"csrc/kernels/{family}/{file}.cu")
        further = sorted((root / source.with_suffix("")).glob("*.cu"))
        for path in [source, *(path.relative_to(root) for path in further)]:
            yield f"{family}_{file}", path


def find_tools():
    """The environment in which cuobjdump finds nvdisasm, and both are found."""
    here = Path(__file__).resolve().with_name("toolkit.py")
    cache = subprocess.run([sys.executable, here, "--print"], capture_output=True, text=True)
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), cache.stdout.strip(),
             "/usr/local/cuda"]
    places = [os.environ.get("PATH", ""), *(f"{home}/bin" for home in homes if home)]
    path = os.pathsep.join(places)
    have = lambda: all(shutil.which(tool, path=path) for tool in ("cuobjdump", "nvdisasm"))
    if not have():
        installed = subprocess.run([sys.executable, here, "--need", "disassembly"])
        if installed.returncode or not have():
            raise Failure("there is no cuobjdump with nvdisasm on PATH or in CUDA_HOME")
    return dict(os.environ, PATH=path)


def output(command, environment, text=None):
    program = shutil.which(command[0], path=environment["PATH"])
    if program is None:
        raise Failure(f"there is no {command[0]} on PATH; it comes with binutils")
    command = [program, *map(str, command[1:])]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, env=environment)
    if answer.returncode:
        raise Failure(f"{' '.join(command)} failed: {answer.stderr.strip()}")
    return answer.stdout


def compiled_for(record, arch):
    """What an object has for an architecture: its own machine code, or the plain one's."""
    codes = re.findall(r"\bsm_\w+", record.flags)
    return next((name for name in (arch, arch.rstrip("a")) if name in codes), None)


def read_object(root, path, row, source, parameters, arch, environment):
    """The kernels of one object."""
    if not path.exists():
        raise Failure(f"{path} is missing: build first")
    record = objects.Record(path.with_suffix(".made").read_text(encoding="utf-8"))
    if not record.is_of(root):
        raise Failure(f"what {path} was made from has changed: build first")
    arch = compiled_for(record, arch)
    if arch is None:
        return []
    functions = lines_of(output(["cuobjdump", "-sass", "-arch", arch, path], environment))
    usage = output(["cuobjdump", "-res-usage", "-arch", arch, path], environment)
    constants = parse_constants(usage)
    said = parse_ptxas(path.with_suffix(".ptxas").read_text(), arch)
    names = output(["c++filt"], environment, "\n".join(functions)).splitlines()
    kernels = []
    for (mangled, lines), demangled in zip(functions.items(), names):
        if mangled in said:  # a kernel, no function that one calls
            numbers = {**said[mangled], "constant_bytes": constants.get(mangled, 0)}
            at = overtaken.overtaken(overtaken.steps(lines))
            kernels.append(Kernel(row, mangled, demangled, parameters, parse_sass(lines), numbers, at))
    return kernels


def read_build(root, folder, arch):
    environment = find_tools()
    shared = {}
    for header in sorted((root / "csrc").glob("**/*.cuh")):
        shared.update(parse_parameters(header.read_text(encoding="utf-8")))
    rows = {}
    for row, source in sources_of(root):
        own = parse_parameters((root / source).read_text(encoding="utf-8"))
        path = objects.object_path(folder, source)
        found = read_object(root, path, row, source, {**shared, **own}, arch, environment)
        rows.setdefault(row, []).extend(found)
    kernels = [kernel for found in rows.values() for kernel in configure(found)]
    if not kernels:
        raise Failure(f"no kernel in {folder} is compiled for {arch}; CONVFORGE_ARCHS=90a cargo build makes it")
    return kernels


# Writing ---------------------------------------------------------------------------------------


def cell(value):
    """A number, or numbers by width as in `8x32 2x128`; nothing for none."""
    if isinstance(value, dict):
        return " ".join(f"{count}x{width}" for width, count in value.items())
    return str(value) if value else ""


def markdown(kernels, same, arch, csrc):
    entries = [kernel.json() for kernel in kernels]
    shown = [name for name in MIX if any(entry["mix"][name] for entry in entries)]
    header = ["row", "kernel", "configuration", "registers", "shared", "constant", "spilled", "code"]
    lines = [
        [
            f"`{entry['row']}`",
            f"`{entry['kernel']}`",
            entry["configuration"] or "",
            str(entry["registers"]),
            cell(entry["shared_bytes"]),
            cell(entry["constant_bytes"]),
            cell(entry["spill_store_bytes"] + entry["spill_load_bytes"]),
            str(entry["code_bytes"]),
            *(cell(entry["mix"][name]) for name in shown),
        ]
        for entry in entries
    ]
    parts = [
        f"Compiled for {arch} from csrc `{csrc}`.",
        "Memory and code in bytes, shared without what a launch adds; instructions as\n"
        "they stand in the code, loads and stores as number x bits. MOV has "
        "selections and IMAD.MOV with it,\ninteger what else is reckoned with whole numbers, LDC "
        "all reads of constants, async the copies that\npass registers by, local LDL and STL, "
        "generic loads and stores whose kind of memory is not known.\nThe uniform datapath's "
        "instructions count with the others.",
        table(header + shown, lines, 3),
    ]
    how = {"instructions": "but for registers and addresses", "opcodes": "in its opcodes"}
    equal = [
        f"- The same code {how[kind]}: {', '.join(kernel.label() for kernel in group)}."
        for kind, group in same
    ]
    parts.append("\n".join(equal) or "No two of them compiled to the same code.")
    return "\n\n".join(parts)


def check(kernel):
    """Fails where products may read what is written over, or loads what a copy may write over."""
    if lines := overwritten(kernel.instructions):
        line = f"{lines[0].opcode} {lines[0].operands}"
        raise Failure(f"{kernel.label()} writes rows that products may still read: {line}, and {len(lines) - 1} more")
    harmless = next((count for name, count in MAY_OVERTAKE.items() if kernel.instance.startswith(name)), 0)
    if len(kernel.overtaken_at) > harmless:
        at = ", ".join(f"{address:#x}" for address in kernel.overtaken_at)
        raise Failure(f"{kernel.label()} arrives on a barrier while loads may be queued: at {at}; {harmless} may be")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_90a", help="the architecture (sm_90a)")
    parser.add_argument("--objects", type=Path, metavar="DIR", help="folder of the objects (the newest)")
    parser.add_argument("--all", action="store_true", help="every instance of every kernel")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object instead of Markdown")
    form.add_argument("--into", type=Path, metavar="FILE", help="write between FILE's two markers")
    args = parser.parse_args()
    kernels = read_build(ROOT, args.objects or objects.newest(ROOT), args.arch)
    for kernel in kernels:
        check(kernel)
    if not args.all:
        kernels = representatives(kernels)
    same = alike(kernels)
    text = markdown(kernels, same, args.arch, sources.csrc(ROOT))
    if args.json:
        groups = [{"equal": kind, "symbols": [k.mangled for k in group]} for kind, group in same]
        answer = {"arch": args.arch, "kernels": [k.json() for k in kernels], "same": groups}
        print(json.dumps(answer, indent=2))
    elif args.into:
        empty = "# Disassembly\n\n{}\n{}\n".format(*MARKERS)
        old = args.into.read_text(encoding="utf-8") if args.into.exists() else empty
        new = put(args.into.name, old, MARKERS, text)
        args.into.write_text(new, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"sass.py: {failure}")
    except BrokenPipeError:
        sys.exit(0)
