"""What documents and comments name exists: links, paths and files in backticks, documents, committed results and
headers that sources point to. The maps name every folder, the index of csrc every header, the chapters every row.
"""

import fnmatch
import re
import subprocess
import unittest
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.(?:md|html|svg)")
# A file's name by itself: what sources, scripts and results end with.
FILE = re.compile(r"[\w.-]+\.(?:c|cu|cuh|def|h|html|js|jsonl?|csv|md|py|rs|safetensors|sh|svg|toml|txt)")
# A committed file of results.
RESULTS = re.compile(r"(?:\bevidence/|\bh200-)[\w-]+\.(?:jsonl?|txt|csv)\b")
COMMENT = re.compile(r"(?://|^\s*/?\*)(.*)", re.MULTILINE)
HEADER = re.compile(r"[\w./-]*\w\.(?:cuh|h)\b")
# Those of the toolkit that comments name.
FOREIGN = {"cuda.h", "cudaProfiler.h", "stddef.h"}
SOURCES = (".rs", ".cu", ".cuh", ".h", ".def", ".py", ".sh", ".toml")


def tracked():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )
    return [line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]


FILES = tracked()
FOLDERS = {str(folder) for name in FILES for folder in PurePosixPath(name).parents} - {"."}
NAMES = {PurePosixPath(name).name for name in FILES}
RESULT_NAMES = {PurePosixPath(name).name for name in FILES if name.startswith("benches/results/")}
TOP = {name.split("/")[0] for name in FILES}
DOCUMENTS = [name for name in FILES if name.endswith(".md")]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def exists(path):
    """Whether it is a tracked file or folder; with a star, whether any fits."""
    path = path.removeprefix("./").rstrip("/")
    return path in FOLDERS or bool(fnmatch.filter(FILES, path))


def names_a_header(path):
    """Whether a tracked header ends so, or the toolkit has it."""
    return path in FOREIGN or any(f"/{name}".endswith(f"/{path}") for name in FILES)


def spans(name):
    """What stands in backticks, outside of blocks."""
    return CODE.findall(FENCE.sub("", text(name)))


# What csrc/README.md has in backticks before the chapter of rows, and in it.
SHARED, OF_ROWS = (CODE.findall(part) for part in text("csrc/README.md").split("\n## kernels\n"))


def indexed(name):
    """Whether csrc/README.md has the header's name; of a row's, a pattern that fits it."""
    header = PurePosixPath(name).name
    if name.startswith("csrc/kernels/"):
        return any(fnmatch.fnmatchcase(header, pattern) for pattern in OF_ROWS)
    return header in SHARED


def is_dead_path(word):
    return "/" in word and "<" not in word and word.split("/")[0] in TOP and not exists(word)


def missing(name):
    """What a document names and nobody finds."""
    folder = PurePosixPath(name).parent
    for target in LINK.findall(FENCE.sub("", text(name))):
        if re.match(r"[a-z]+:|#", target):
            continue
        resolved = (ROOT / folder / target.split("#")[0]).resolve()
        if not resolved.exists():
            yield f"{name}: link to {target}"
    for block in FENCE.findall(text(name)):
        for word in re.findall(r"[\w./*-]+\b/?", block):
            if is_dead_path(word):
                yield f"{name}: path {word} in a block"
    for span in spans(name):
        for word in span.split():
            if is_dead_path(word):
                yield f"{name}: path {word}"
            elif FILE.fullmatch(word) and word not in NAMES:
                yield f"{name}: file {word}"


class Documents(unittest.TestCase):
    def test_what_they_name_exists(self):
        self.assertGreater(len(DOCUMENTS), 10)
        found = [line for name in DOCUMENTS for line in missing(name)]
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_what_sources_point_to_exists(self):
        found = [
            f"{name}: {document}"
            for name in FILES
            if name.endswith(SOURCES) and name != "scripts/tests/docs_test.py"
            for document in DOCUMENT.findall(text(name))
            if not exists(document)
        ]
        self.assertEqual([], found)


    def test_results_that_sources_name_exist(self):
        found = [
            f"{name}: {result}"
            for name in FILES
            if name.endswith((*SOURCES, ".md")) and name != "scripts/tests/tables_test.py"
            for result in RESULTS.findall(text(name))
            if PurePosixPath(result).name not in RESULT_NAMES
        ]
        self.assertEqual([], found, "\n" + "\n".join(found))

    def test_every_piece_of_evidence_is_named_by_a_document(self):
        evidence = [name for name in FILES if name.startswith("benches/results/evidence/")]
        self.assertGreater(len(evidence), 20)
        cited = {PurePosixPath(result).name for name in DOCUMENTS for result in RESULTS.findall(text(name))}
        cited |= {PurePosixPath(target).name for name in DOCUMENTS for target in LINK.findall(text(name))}
        found = [name for name in evidence if PurePosixPath(name).name not in cited]
        self.assertEqual([], found, "a chapter or a note cites each file there, or it goes")

    def test_headers_that_comments_name_exist(self):
        self.assertTrue(names_a_header("core/launch.cuh") and names_a_header("launch.cuh"))
        self.assertFalse(names_a_header("ptx/launch.cuh") or names_a_header("lunch.cuh"))
        found = [
            f"{name}: {header}"
            for name in FILES
            if name.endswith((".cu", ".cuh", ".h", ".def", ".rs")) and not name.startswith("tests/")
            for comment in COMMENT.findall(text(name))
            for header in HEADER.findall(comment)
            if not names_a_header(header)
        ]
        self.assertEqual([], found, "\n" + "\n".join(found))


class Maps(unittest.TestCase):
    def folders(self, parent):
        """The folders right in this one."""
        depth = len(PurePosixPath(parent).parts) + 1
        return sorted(
            folder for folder in FOLDERS
            if len(PurePosixPath(folder).parts) == depth and folder.startswith(parent)
        )

    def test_they_show_every_folder(self):
        top, deeper = self.folders(""), self.folders("csrc/") + self.folders("crates/")
        for document, folders in (("README.md", top), ("docs/design.md", top + deeper)):
            blocks = "\n".join(FENCE.findall(text(document)))
            shown = [folder for folder in folders if re.search(rf"(?m)^{re.escape(folder)}/", blocks)]
            missing = sorted(set(folders) - set(shown))
            hidden = [folder for folder in missing if folder.startswith(".")]
            self.assertEqual(hidden, missing, f"the map of {document} has a line for each folder")

    def test_the_index_of_scripts_has_every_program(self):
        indexed = set(CODE.findall(text("scripts/README.md")))
        found = {PurePosixPath(name).name for name in FILES
                 if str(PurePosixPath(name).parent) == "scripts" and not name.endswith("README.md")}
        self.assertGreater(len(found), 30)
        self.assertEqual(set(), found - indexed, "scripts/README.md has each")
        self.assertEqual(set(), {name for name in indexed if "." in name and " " not in name} - found, "and no other")

    def test_the_index_of_csrc_has_every_header(self):
        headers = [name for name in FILES if name.startswith("csrc/") and name.endswith((".h", ".cuh", ".def"))]
        self.assertGreater(len(headers), 100)
        missing = [name for name in headers if not indexed(name)]
        self.assertEqual([], missing, "csrc/README.md has a line for each header, of rows for each kind")
        self.assertTrue(indexed("csrc/kernels/new/row_plan.cuh") and indexed("csrc/kernels/direct/halo.cuh"))
        self.assertFalse(indexed("csrc/kernels/new/row_magic.cuh") or indexed("csrc/kernels/new/plan.cuh"))
        self.assertFalse(indexed("csrc/core/row_plan.cuh") or indexed("csrc/kernels/new/ring.cuh"))

    def test_patterns_of_the_index_of_csrc_fit_a_header(self):
        names = {PurePosixPath(name).name for name in FILES if name.startswith("csrc/kernels/")}
        patterns = [span for span in OF_ROWS if span.endswith(".cuh")]
        self.assertGreater(len(patterns), 20)
        self.assertEqual([], [pattern for pattern in patterns if not fnmatch.filter(names, pattern)])

    def test_the_two_descriptions_of_a_problem_agree(self):
        rows = [line for line in text("docs/problem.md").splitlines() if line.startswith("|")]
        self.assertGreater(len(rows), 15)
        documented = text("src/problem.rs").splitlines()
        self.assertEqual([], [row for row in rows if f"/// {row}" not in documented])

    def test_the_guide_has_every_error(self):
        errors = text("src/error.rs").split("pub enum Error {")[1].split("\n}")[0]
        names = re.findall(r"^    ([A-Z]\w+)", errors, re.MULTILINE)
        self.assertGreater(len(names), 20)
        table = text("docs/guide.md").split("| error |")[1]
        named = [name for row in table.splitlines()[2:] for name in CODE.findall(row.split("|")[1])]
        self.assertEqual(sorted(names), sorted(named))

    def rows(self):
        found = re.findall(r"^(?:ROW|UNRANKED)\((\w+), *(\w+)\)", text("csrc/kernels.def"), re.MULTILINE)
        self.assertGreater(len(found), 20)
        return list(map("_".join, found))

    def test_the_table_of_rows_has_each_with_its_base(self):
        lines = [line.split(" | ") for line in text("docs/kernels/README.md").splitlines() if line.startswith("| `")]
        bases = {CODE.search(line[0])[1]: CODE.findall(line[1]) for line in lines}
        self.assertEqual(sorted(self.rows()), sorted(CODE.search(line[0])[1] for line in lines))
        self.assertEqual([], [row for row, line in zip(bases, lines) if len(line) != 4 or not line[2]])
        order = list(bases)
        below = [(row, base) for row, named in bases.items() for base in named
                 if base not in order[: order.index(row)]]
        self.assertEqual([], below, "a base is a row, and stands above")
        steps = re.findall(r'\n    step\(\s*"(\w+)",\s*"(\w+)"', text("crates/tools/src/page/steps.rs"))
        self.assertGreater(len(steps), 10)
        self.assertEqual([], [step for step in steps if step[0] not in bases[step[1]]], "the page and the table agree")

    def test_every_row_has_a_place_in_a_chapter(self):
        chapters = "".join(text(name) for name in DOCUMENTS
                           if name.startswith("docs/kernels/") and not name.endswith("README.md"))
        missing = [row for row in self.rows() if not re.search(rf"\b{row}\b", chapters)]
        self.assertEqual([], missing, "each row has a section in the chapter of its family under docs/kernels")


if __name__ == "__main__":
    unittest.main()
