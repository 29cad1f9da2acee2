"""What documents name exists: links, paths and files in backticks, documents that sources point to. The maps
name every folder, the index of csrc every header, the chapters every row.
"""

import fnmatch
import re
import subprocess
import unittest
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
DOCUMENT = re.compile(r"\bdocs/[\w/.-]+\.(?:md|html|svg)")
# A file's name by itself: what sources, scripts and results end with.
FILE = re.compile(r"[\w.-]+\.(?:c|cu|cuh|def|h|html|js|json|md|py|rs|safetensors|sh|svg|toml|txt)")
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
TOP = {name.split("/")[0] for name in FILES}
DOCUMENTS = [name for name in FILES if name.endswith(".md")]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def exists(path):
    """Whether it is a tracked file or folder; with a star, whether any fits."""
    path = path.removeprefix("./").rstrip("/")
    return path in FOLDERS or bool(fnmatch.filter(FILES, path))


def spans(name):
    """What stands in backticks, outside of blocks."""
    return CODE.findall(FENCE.sub("", text(name)))


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
            if name.endswith(SOURCES) and name != "scripts/docs_test.py"
            for document in DOCUMENT.findall(text(name))
            if not exists(document)
        ]
        self.assertEqual([], found)


class Maps(unittest.TestCase):
    def folders(self, parent):
        """The folders right in this one."""
        depth = len(PurePosixPath(parent).parts) + 1
        return sorted(
            folder for folder in FOLDERS
            if len(PurePosixPath(folder).parts) == depth and folder.startswith(parent)
        )

    def test_they_show_every_folder(self):
        for document in ("README.md", "docs/design.md"):
            blocks = "\n".join(FENCE.findall(text(document)))
            for folder in self.folders("") + self.folders("csrc/") + self.folders("crates/"):
                if not folder.startswith("."):
                    self.assertRegex(blocks, rf"(?m)^{re.escape(folder)}/", f"{document} has no {folder}/")

    def test_the_index_of_csrc_has_every_header(self):
        index = spans("csrc/README.md")
        for name in FILES:
            path = PurePosixPath(name)
            if name.startswith("csrc/") and path.suffix in (".h", ".cuh", ".def") and "kernels" not in path.parts:
                self.assertIn(path.name, index, f"csrc/README.md has no line for {name}")

    def test_every_row_has_a_place_in_a_chapter(self):
        chapters = "".join(text(name) for name in DOCUMENTS if name.startswith("docs/kernels/"))
        rows = re.findall(r"^ROW\((\w+), *(\w+)\)", text("csrc/kernels.def"), re.MULTILINE)
        self.assertGreater(len(rows), 20)
        for family, file in rows:
            self.assertRegex(chapters, rf"\b{family}_{file}\b", f"no chapter names {family}_{file}")


if __name__ == "__main__":
    unittest.main()
