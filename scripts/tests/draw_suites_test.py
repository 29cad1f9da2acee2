"""Tests of how draw_suites.py draws, and that the program knows every suite."""

import tempfile
import unittest
from pathlib import Path
from unittest import mock

import draw_suites
import networks
from layers import Conv


def layers(count, r=3):
    return [(f"l{number}.{r}", Conv(number + 1, 8, 8, 8, r, r)) for number in range(count)]


class Draws(unittest.TestCase):
    def test_few_are_all_taken_in_their_order(self):
        self.assertEqual(draw_suites.draw("a", layers(5), 5), layers(5))

    def test_many_are_drawn_by_suite_and_seed(self):
        drawn = draw_suites.draw("a", layers(40), 12)
        self.assertEqual(len(drawn), 12)
        self.assertEqual(drawn, [layer for layer in layers(40) if layer in drawn])
        self.assertEqual(drawn, draw_suites.draw("a", layers(40)[::-1], 12)[::-1])
        self.assertNotEqual(drawn, draw_suites.draw("b", layers(40), 12))
        with mock.patch.object(draw_suites, "SEED", 18):
            self.assertNotEqual(drawn, draw_suites.draw("a", layers(40), 12))

    def test_each_filter_is_there(self):
        everything = layers(90) + layers(1, 5) + layers(1, 7)
        for suite in "abc":
            drawn = draw_suites.draw(suite, everything, 3)
            self.assertEqual([conv.r for _, conv in drawn], [3, 5, 7])

    def test_a_tenth_has_some_of_each_kind(self):
        suites = list(draw_suites.suites_of_networks())
        drawn = draw_suites.tenth(suites)
        whole = sum(len(suite.layers) for suite in suites)
        self.assertTrue(whole / 10 <= len(drawn) < whole / 10 + 3)
        self.assertEqual({conv.kind for _, conv in drawn}, set(draw_suites.NETS))

    def test_suites_have_what_they_say(self):
        for suite in draw_suites.suites_of_networks():
            self.assertEqual(len(suite.layers), min(suite.distinct, draw_suites.MOST), suite.name)
            self.assertEqual({conv.kind for _, conv in suite.layers}, {suite.kind}, suite.name)
            self.assertEqual(suite.about.startswith("All"), suite.distinct <= draw_suites.MOST)


class HeldOut(unittest.TestCase):
    def random(self):
        for number in range(500):
            kind = list(draw_suites.NETS)[number % 3]
            yield kind, *draw_suites.random_problem(draw_suites.Dice(number), kind)

    def test_nothing_of_another_network_is_held_out(self):
        """ResNet-34 has the layers of ResNet-18, whether drawn or not."""
        known = [("resnet34", "resnet18", "ResNet-34")]
        with mock.patch.object(draw_suites, "HELD_OUT", known):
            names = [name for name, _ in draw_suites.held_out()]
        self.assertEqual(len(names), draw_suites.HELD_OUT_RANDOM)

    def test_nothing_of_another_suite_is_held_out(self):
        names, problems = zip(*draw_suites.held_out())
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(draw_suites, "SUITES", Path(folder)):
            other = problems[-1].replace("mb", "mb9", 1) + "+f16"
            Path(folder, "mine.txt").write_text(f"# mine\nlayer {other}\n", encoding="utf-8")
            again = dict(draw_suites.held_out())
        changed = [name for name, problem in zip(names, problems) if again.get(name) != problem]
        # The older suites are not there now, so that layers of networks differ too.
        self.assertEqual([name for name in changed if name.startswith("random/")], [names[-1]])

    def test_none_is_twice(self):
        shapes = [draw_suites.shape(problem) for _, problem in draw_suites.held_out()]
        self.assertEqual(len(shapes), len(set(shapes)))
        self.assertFalse(set(shapes) & draw_suites.taken())

    def test_random_problems_can_be_done(self):
        for kind, conv, images in self.random():
            self.assertEqual(conv.kind, "depthwise" if conv.groups == conv.c > 1 else kind)
            self.assertGreaterEqual(min(conv.out), 1)
            self.assertEqual((conv.c % conv.groups, conv.k % conv.groups), (0, 0))
            self.assertTrue(images == 1 or images * conv.macs <= draw_suites.MOST_MACS)

    def test_random_problems_differ_in_everything(self):
        found = [(conv, images) for _, conv, images in self.random()]
        for kind in draw_suites.NETS:
            channels = {conv.c % 8 for conv, _ in found if conv.kind == kind}
            self.assertGreater(len(channels), 3, kind)
        for words in ("stride", "dilation", "pad", "r", "groups"):
            self.assertGreaterEqual(len({getattr(conv, words) for conv, _ in found}), 3, words)
        self.assertTrue(any(conv.h != conv.w for conv, _ in found))
        self.assertEqual({images for _, images in found}, {1, 2, 4, 8, 16, 32, 64, 128})


class Files(unittest.TestCase):
    def test_they_are_as_drawn(self):
        self.assertEqual(list(draw_suites.differing(draw_suites.drawn())), [])

    def test_what_is_not_is_told(self):
        files = {"nets/dense/a.txt": "# a\n", "heldout.txt": "# h\n"}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(draw_suites, "SUITES", Path(folder)):
            for name in (*files, "nets/dense/old.txt", "mine.txt"):
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, name).write_text(files.get(name, ""), encoding="utf-8")
            Path(folder, "heldout.txt").write_text("# h\nmore\n", encoding="utf-8")
            faults = list(draw_suites.differing(files))
        differs, left = "heldout.txt is not what draw_suites.py draws", "nets/dense/old.txt is drawn no more: delete it"
        self.assertEqual(faults, [differs, left])

    def test_the_program_has_them(self):
        source = (draw_suites.ROOT / "crates/tools/src/suite.rs").read_text(encoding="utf-8")
        for name in draw_suites.drawn():
            self.assertIn(f'"{Path(name).stem}"\n', source)

    def test_the_document_has_them(self):
        document = (draw_suites.ROOT / "docs/suites.md").read_text(encoding="utf-8")
        for suite in draw_suites.suites_of_networks():
            self.assertIn(f"| `{suite.name}` | {len(suite.layers)} of {suite.distinct} | {suite.network} |\n", document)

    def test_the_document_has_every_other_suite(self):
        document = (draw_suites.ROOT / "docs/suites.md").read_text(encoding="utf-8")
        for path in draw_suites.SUITES.glob("*.txt"):
            self.assertIn(f"| `{path.stem}` | {len(draw_suites.read(path))} | ", document)

    def test_every_network_is_in_a_suite(self):
        nets = [*draw_suites.NETS.values(), draw_suites.HELD_OUT]
        used = {function for several in nets for _, function, _ in several}
        functions = {name: f for name, f in vars(networks).items() if getattr(f, "__module__", "") == "networks"}
        self.assertEqual(used, {name for name, f in functions.items() if not f.__code__.co_argcount})


if __name__ == "__main__":
    unittest.main()
