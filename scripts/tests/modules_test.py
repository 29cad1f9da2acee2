"""Modules import downwards only, in every crate of the workspace, and those of the library as docs/design.md has
them. Circles that are planted in a crate of a few lines are found."""

import re
import tempfile
import unittest
from pathlib import Path

import modules

ROOT = modules.ROOT
CRATES = [modules.Crate(root) for root in modules.roots()]
TABLE = re.compile(r"^\| module of `src/` \|.*?\n\n", re.MULTILINE | re.DOTALL)
# What build scripts put in the place of bindings is no module.
STUB = "stub.rs"


class Workspace(unittest.TestCase):
    def test_modules_and_files_import_downwards_only(self):
        found = [circle for crate in CRATES for circle in modules.circles(crate)]
        self.assertEqual(found, [])

    def test_all_files_but_tests_are_read(self):
        read = {file for crate in CRATES for file in crate.files.values()}
        folders = {ROOT / "src", *ROOT.glob("crates/*/src"), *ROOT.glob("sys/*/src")}
        there = {file for folder in folders for file in folder.rglob("*.rs")}
        self.assertEqual({file.name for file in there - read}, {"tests.rs", STUB})
        self.assertEqual(read - there, set())
        self.assertLessEqual(folders, {crate.root.parent for crate in CRATES})

    def test_the_table_of_the_library_has_its_modules_in_order(self):
        document = (ROOT / "docs/design.md").read_text(encoding="utf-8")
        rows = [line.split("|")[1] for line in TABLE.search(document)[0].splitlines()[2:] if line]
        names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
        (library,) = [crate for crate in CRATES if crate.root == ROOT / "src/lib.rs"]
        self.assertEqual(sorted(names), sorted(at[0] for at in library.modules if len(at) == 1))
        place = {name: i for i, name in enumerate(names)}
        imports = {pair for pair in modules.below(library.edges(), ()) if "" not in pair}
        self.assertEqual({pair for pair in imports if place[pair[0]] >= place[pair[1]]}, set())
        self.assertIn(("kernels", "sources"), imports)


class Planted(unittest.TestCase):
    FILES = {
        "lib.rs": 'mod a;\nmod b;\n#[cfg(feature = "c")]\npub mod c;\npub use b::B;\n',
        "a.rs": "use crate::B;\npub struct A(B);\n",
        "b/mod.rs": "mod inner;\npub use inner::B;\n",
        "b/inner.rs": "/* crate::a::A */\npub struct B(&'static str, char);\nconst S: B = B(\"crate::a::A\", '\"');\n",
        "c.rs": "pub fn c() {}\n",
    }

    def circles(self, **changed):
        """The circles of a crate whose files are those above, but for what is changed: a name has _ for / and .rs."""
        with tempfile.TemporaryDirectory() as folder:
            names = {name.removesuffix(".rs").replace("/", "_"): name for name in self.FILES}
            for short, name in names.items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_text(self.FILES[name] + changed.get(short, ""), encoding="utf-8")
            return [found for _, found in modules.circles(modules.Crate(Path(folder, "lib.rs")))]

    def test_none_where_there_is_none(self):
        self.assertEqual(self.circles(), [])

    def test_a_use(self):
        self.assertEqual(self.circles(b_inner="use crate::{c, a::{self, A}};\n"), ["a -> b -> a"])

    def test_a_path_within_code_behind_a_name_that_is_passed_on(self):
        self.assertEqual(self.circles(c="fn d() -> crate::B { todo!() }\n", b_inner="fn f() { crate::c::c() }\n"),
                         ["b -> c -> b"])

    def test_through_an_imported_module(self):
        circle = self.circles(c="use crate::a;\nfn d() -> a::A { todo!() }\n", b_inner="fn f() { super::super::c::c() }\n")
        self.assertEqual(circle, ["a -> b -> c -> a"])

    def test_files_of_a_module(self):
        self.assertEqual(self.circles(b_mod="struct Own(B);\n", b_inner="fn f(_: super::Own) {}\n"),
                         ["itself -> inner -> itself"])

    def test_what_only_tests_import_makes_none(self):
        tests = (
            "#[cfg(test)]\nuse crate::{a::A, c};\n#[cfg(all(test, feature = \"c\"))]\n#[expect(unused)]\nmod tests {\n"
            "    fn f() { crate::a::A; }\n}\n"
        )
        self.assertEqual(self.circles(b_inner=tests), [])
        self.assertEqual(self.circles(b_inner=tests + "use crate::a::A;\n"), ["a -> b -> a"])


if __name__ == "__main__":
    unittest.main()
