"""Tests of the project that is made of the guide's programs; that they compile and run is for the doc tests."""

import re
import unittest

import guide

GUIDE = (guide.ROOT / "docs/guide.md").read_text(encoding="utf-8")


class Guide(unittest.TestCase):
    def test_every_program_is_there(self):
        found = guide.programs(GUIDE)
        self.assertEqual(len(found), GUIDE.count("```rust"))
        self.assertEqual(found[0][0], "The first convolution")
        self.assertEqual([title for title, anywhere, _ in found if not anywhere], ["In a graph"])

    def test_hidden_lines_are_part_of_it_and_attributes_stay(self):
        ((_, _, lines),) = guide.programs("## One\n\n```rust\n# let a = 1;\n#[cfg(any())]\nlet b = 2;\n# Ok(())\n```\n")
        self.assertEqual(lines, ["let a = 1;", "#[cfg(any())]", "let b = 2;", "Ok(())"])

    def test_the_source_has_a_function_and_an_entry_for_each(self):
        text = guide.source(guide.programs(GUIDE))
        count = GUIDE.count("```rust")
        self.assertEqual(len(re.findall(r"^fn program_\d+\(", text, re.MULTILINE)), count)
        self.assertIn(f"const PROGRAMS: [Program; {count}]", text)
        self.assertIn('title: "In a graph (7)", needs_gpu: true, run: program_7', text)
        self.assertEqual(text.count("{"), text.count("}"))


if __name__ == "__main__":
    unittest.main()
