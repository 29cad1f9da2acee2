"""Which modules of a crate import which, and the circles among them. By itself it prints the circles of all crates.

It reads `use` lines and paths that begin with `crate`, `self`, `super`, a child module or an imported module, outside
of unit tests, and follows names that a module only passes on (`pub use`) to the file that has them. It does not see
methods and traits of a value whose type was not named, macros that are in scope without a path, what macros make of
their arguments, and glob imports. A module that is written inside of a file counts as that file.
"""

import argparse
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What is no code. A lifetime is no character: 'a has no second quote behind one letter.
BLANK = re.compile(
    r"""//[^\n]*|/\*.*?\*/|\b[bc]?r(#*)".*?"\1|"(?:\\.|[^"\\])*"|'(?:\\[^\n]{1,9}?|[^'\\\n])'""", re.DOTALL
)
TEST = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
ATTRIBUTE = re.compile(r"\s*#\[[^\]]*\]")
MODULE = re.compile(r"\bmod (\w+);")
USE = re.compile(r"\s*(?:\b(pub)(?:\([^)]*\))? )?\buse ([^;]+);")
MACRO = re.compile(r"\bmacro_rules! (\w+)")
PATH = re.compile(r"(?<![:\w])\w+(?:\s*::\s*\w+)+")
VISIBLE = re.compile(r"\bpub\(in [^)]*\)")


def without_tests(code):
    """Leaves out the items that only tests have."""
    kept, at = "", 0
    while found := TEST.search(code, at):
        kept += code[at : found.start()]
        at = found.end()
        while attribute := ATTRIBUTE.match(code, at):
            at = attribute.end()
        at = end_of_item(code, at)
    return kept + code[at:]


def end_of_item(code, at):
    """Behind the semicolon or the last brace of the item that begins here."""
    if use := USE.match(code, at):
        return use.end()
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "{([") - (code[i] in "})]")
        if depth == 0 and code[i] in ";}":
            return i + 1
    return len(code)


def used(tree, prefix=()):
    """The paths of a `use`, each with the name it has here: `a::{self, b as c}` has a and a::b."""
    tree = tree.strip()
    group = re.fullmatch(r"(?:(.*?)::\s*)?\{(.*)\}", tree, re.DOTALL)
    if group:
        prefix += tuple(part.strip() for part in group[1].split("::")) if group[1] else ()
        for part in parts(group[2]):
            yield from used(part, prefix)
        return
    path, _, alias = tree.partition(" as ")
    path = prefix + tuple(part.strip() for part in path.split("::"))
    if path[-1] == "self" and len(path) > 1:
        path = path[:-1]
    if path != ("",):
        yield path, alias.strip() or path[-1]


def parts(group):
    """What commas part, but for those within braces."""
    depth, begin = 0, 0
    for i, letter in enumerate(group + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if group[begin:i].strip():
                yield group[begin:i]
            begin = i + 1


class Module:
    """A file: names that it imports, those that it passes on, and the rest of its code."""

    def __init__(self, code):
        self.children = MODULE.findall(code)
        self.names, self.public = {}, set()
        for public, tree in USE.findall(code):
            for path, name in used(tree):
                self.names[name] = path
                if public:
                    self.public.add(name)
        self.macros = set(MACRO.findall(code))
        self.body = VISIBLE.sub("", MODULE.sub("", USE.sub("", code)))


class Crate:
    """All modules of a crate, by their paths; that of the root is ()."""

    def __init__(self, root):
        self.root, self.modules, self.files = root, {}, {}
        self.read((), root, root.parent)

    def read(self, at, file, folder):
        """A module, and its children, which lie in the folder."""
        code = BLANK.sub('""', file.read_text(encoding="utf-8"))
        module = Module(without_tests(code))
        self.modules[at], self.files[at] = module, file
        for name in module.children:
            plain, inner = folder / f"{name}.rs", folder / name / "mod.rs"
            self.read((*at, name), plain if plain.exists() else inner, folder / name)

    def resolve(self, at, path, depth=0):
        """The module with the file that has what a path in the module `at` names; None if no module of this crate."""
        if depth > 20:
            return None
        first, rest = path[0], path[1:]
        if first == "crate":
            return self.item((), rest, depth)
        if first == "self":
            return self.item(at, rest, depth)
        if first == "super":
            return self.resolve(at[:-1], rest if rest[:1] == ("super",) else ("self", *rest), depth)
        if (*at, first) in self.modules:
            return self.item(at, path, depth)
        if first in self.modules[at].macros:
            return at
        name = self.modules[at].names.get(first)
        return self.resolve(at, (*name, *rest), depth + 1) if name and name != (first,) else None

    def item(self, at, path, depth):
        """As `resolve`, of a path below the module `at`."""
        if not path:
            return at
        if (*at, path[0]) in self.modules:
            return self.item((*at, path[0]), path[1:], depth)
        if path[0] in self.modules[at].names:
            return self.resolve(at, path, depth + 1)
        return at

    def imports(self, at):
        """The modules whose items the file of the module `at` uses itself, not only passes on."""
        module = self.modules[at]
        words = set(re.findall(r"\w+", module.body))
        paths = [path for name, path in module.names.items() if name not in module.public or name in words]
        paths += [tuple(re.split(r"\s*::\s*", path)) for path in PATH.findall(module.body)]
        return {self.resolve(at, path) for path in paths} - {None, at}

    def edges(self):
        """Pairs of modules: one that imports, and what it imports."""
        return {(at, other) for at in self.modules for other in self.imports(at)}


def below(edges, parent):
    """The imports among the children of a module and its own file, which has no name here."""
    def child(at):
        return at[len(parent)] if len(at) > len(parent) else ""

    inside = [pair for pair in edges if all(at[: len(parent)] == parent for at in pair)]
    return {(child(one), child(other)) for one, other in inside if child(one) != child(other)}


def circle(edges):
    """A circle of these edges, as a list that ends as it begins, or None."""
    graph = {}
    for one, other in sorted(edges):
        graph.setdefault(one, []).append(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return None


def circles(crate):
    """The file of each module with a circle of its children and itself, and that circle in words."""
    edges = crate.edges()
    for parent in sorted({at[:-1] for at in crate.modules if at}):
        if found := circle(below(edges, parent)):
            yield crate.files[parent], " -> ".join(name or "itself" for name in found)


def roots():
    """The first files of all crates of the workspace."""
    folders = [ROOT / "src", *ROOT.glob("crates/*/src"), *ROOT.glob("sys/*/src")]
    found = [folder / name for folder in folders for name in ("lib.rs", "main.rs")]
    found += [main for folder in folders for main in folder.glob("bin/*/main.rs")]
    return sorted(file for file in found if file.exists())


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n\n")[0]).parse_args()
    for root in roots():
        for file, found in circles(Crate(root)):
            print(f"{file.relative_to(ROOT)}: {found}")
