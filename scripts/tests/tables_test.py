"""The tables of results, of made-up reports: every row says which run it is of."""

import contextlib
import copy
import io
import json
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import comparisons
import slower
import sources
import stale
import summaries
import tables


class Checkout(comparisons.Checkout):
    """One with two rows."""

    open_problems = []

    def __init__(self):
        self.csrc = "b" * 16
        self.hashes = {"own": "1", "own_mma": "2", "cudnn": "3"}
        self.rows = ["own", "own_mma"]
        self.on_tensor_cores = {"own_mma"}
        self.open = set(self.open_problems)
        self.best_of_cudnn = {}
        self.versions = {"nvidia-cudnn-cu13": "9.1.2", "nvidia-cublas": "1.2.3"}


LIBRARIES = {"cuDNN": "9.1.2", "cuBLAS": "1.2.3"}


def report(date, csrc, layers):
    """A file of results with one handwritten variant and cuDNN per layer: (suite, layer, microseconds)."""
    environment = {"gpu": "GPU", "driver": "1", "libraries": LIBRARIES, "date": date, "csrc": csrc}
    lines = [{"environment": environment, "view": "compare"}, {"section": "rows", "usual": {"passed": {}}}]
    for suite, layer, us in layers:
        problem = {"suite": suite, "layer": layer, "problem": f"mb1ic1ih9oc{len(layer)}kh3", "math": "fp32"}
        lines.append({"of": {**problem, "status": "passed", "cold": True, "floor_us": 1.0, "config": None}})
        lines += [{"variant": "own", "median_us": us}, {"variant": "cudnn", "median_us": 2 * us}]
    return lines


class Tables(unittest.TestCase):
    def lines(self):
        files = {
            "old": report("2026-01-01T00:00:00Z", "a" * 16, [("report-86", "l1", 10.0), ("first", "x", 3.0)]),
            "new": report("2026-01-02T00:00:00Z", "b" * 16, [("report-86", "l1", 8.0), ("first", "yy", 6.0)]),
        }
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                text = "\n".join(map(json.dumps, content))
                (Path(folder) / f"{name}.jsonl").write_text(text, encoding="utf-8")
            return comparisons.read(Path(folder), Checkout())

    def test_a_row_says_which_run_it_is_of(self):
        text = tables.document(self.lines())
        self.assertRegex(text, r"\| l1 \|.* 8\.00 us .*\| 2026-01-02 `bbbbbbbb` \|\n")
        self.assertRegex(text, r"\| x \|.* 3\.00 us .*\| 2026-01-01 `aaaaaaaa` \|\n")
        self.assertNotIn("10.0 us", text, "superseded")

    def test_compared_with_is_cudnns_fastest_time_of_any_run_where_its_own_does_not_stand_up(self):
        best = {line.layer: line.speedup(line.cudnn) for line in self.lines()}
        self.assertEqual(best["l1"], 2)
        with unittest.mock.patch.object(Checkout, "open_problems", ["GPU: mb1ic1ih9oc2kh3"]):
            lines = self.lines()
        line = next(line for line in lines if line.layer == "l1")
        at = f"GPU: {line.problem}"
        for known, speedup in (({}, None), ({at: 12.0}, 1.5), ({at: 17.0}, None)):
            with self.subTest(known), unittest.mock.patch.object(line.checkout, "best_of_cudnn", known):
                self.assertEqual(line.speedup(line.cudnn), speedup)
                self.assertEqual(summaries.gain(line), speedup)
                self.assertEqual(line.latest("own"), speedup)
        self.assertRegex(line.time(line.cudnn), r"16\.0 us.* §")
        self.assertEqual(line.speedup(line.best, line.cudnn), 0.5)

    def test_the_readme_compares_with_the_faster_library_what_was_measured_with_the_code_of_now(self):
        line = next(line for line in self.lines() if line.layer == "l1")  # twice as fast as cuDNN, of now
        slower, older, colours, many, beside = (copy.copy(line) for _ in range(5))
        slower.best = {**line.best, "median_us": 20.0}
        older.report = {"environment": {**line.report["environment"], "csrc": "a" * 16}}
        colours.suite, colours.channels = "vgg16", 3
        many.images = 100
        beside.cublas = {**line.cudnn, "variant": "cublas_gemm", "median_us": 4.0}

        def cell(lines):
            return summaries.against_libraries(lines).splitlines()[2:]

        few = "| report-86, 1 and 16 images |"
        self.assertEqual(cell([line]), [f"{few} 2.00 |"])
        self.assertEqual(cell([line, slower]), [f"{few} 1.26 (0.80 to 2.00) |"])
        self.assertEqual(cell([line, line, line, line, older]), [f"{few} 2.00 (2.00 to 2.00), 4 of 5 |"])
        self.assertEqual(cell([line, line, line, older]), [f"{few} ‡ |"], "a mean of those that were measured again")
        self.assertEqual(cell([older]), [f"{few} ‡ |"])
        self.assertEqual(cell([line, many]), [f"{few} 2.00 |", "| report-86, 100 images and more | 2.00 |"])
        self.assertEqual(cell([beside]), [f"{few} 0.50 |"])
        self.assertEqual(cell([colours]), [], "layers of three channels are another suite's")
        with unittest.mock.patch.object(line.checkout, "open", {f"GPU: {line.problem}"}):
            self.assertEqual(cell([line]), [f"{few} § |"])
        self.assertEqual(summaries.behind([line, older]), "A library is faster in 0 of these 1 comparisons.")
        told = summaries.behind([line, slower, beside])
        self.assertIn("in 2 of these 3 comparisons, cuDNN in 1 and cuBLAS in 1, by most at\n"
                      "0.50 (report-86 l1, one image, fp32 NCHW),\n0.80 (", told)

    def test_a_faster_plan_of_cudnn_that_fails_stands_beside_it_with_the_reason(self):
        def of(us, why, cudnn=None):
            row = {"cudnn_any_us": us, "cudnn_any_plan": "engine 7", "cudnn_any_why": why}
            return tables.failing(comparisons.failing_plan(row, cudnn))

        told = "9.00 us, engine 7: wrong on wide data"
        self.assertEqual(of(9.0, "wide data: 11 of 18 outputs are wrong"), told)
        self.assertEqual(of(9.0, "wide data: 11 of 18 outputs are wrong", {"median_us": 10.0}), told)
        self.assertEqual(of(9.0, "was not captured in a graph: NO"), "9.00 us, engine 7: no graph")
        self.assertEqual(of(9.0, "normal data: the error is 1e-7 rms"), "9.00 us, engine 7: rounds too far")
        self.assertEqual(of(9.0, "coarse", {"median_us": 8.0}), "-", "one that is no faster")
        self.assertEqual(of(None, None), "-")
        line = self.lines()[0]
        row = {**line.cudnn, "cudnn_any_plan": "engine 7", "cudnn_any_why": "coarse"}
        rows = [{**row, "cudnn_any_us": us} for us in (12.0, 9.0, 14.0)]
        self.assertEqual(comparisons.Line(line.report, rows, line.checkout).failing_plan[0], 9.0)

    def test_a_chapter_has_each_row_of_its_family_beside_cudnn(self):
        line = next(line for line in self.lines() if line.layer == "l1")
        line.suite, line.layer = "report-vgg", "7.c512"
        other = copy.copy(line)
        other.layer, other.variants = "c5a", [{**line.best, "median_us": 32.0}]
        with unittest.mock.patch.dict(summaries.FAMILIES, {"own": ("report-vgg",)}, clear=True):
            of = lambda lines, rows=("own_mma", "own_x"): summaries.family_table(lines, "own", rows).splitlines()[2:]
            for each in line, other:
                each.variants[0] = {**each.variants[0], "variant": "own_x"}
                each.checkout.hashes["own_x"] = "1"
            self.assertEqual(of([line]), ["| report-vgg | fp32 NCHW | 2.00 (7) |"])
            self.assertEqual(of([line, other]), ["| report-vgg | fp32 NCHW | 1.00, 0.50 (c5a) to 2.00 (7) |"])
            twice = [copy.copy(line), line]
            twice[0].images, twice[0].variants = 16, [{**line.best, "variant": "own_x", "median_us": 4.0}]
            self.assertIn("2.00 (7, N = 1) to 4.00 (7, N = 16)", of(twice)[0])
            other.report = {"environment": {**line.report["environment"], "csrc": "a" * 16}}
            self.assertEqual(of([line, other]), ["| report-vgg | fp32 NCHW | ‡ |"], "it was measured on both")
            other.variants = []
            self.assertEqual(of([line, other]), ["| report-vgg | fp32 NCHW | 2.00 (7); 1 of 2 |"])
            line.suite = other.suite = "first"
            self.assertEqual(of([line, other]), [], "no suite of the chapter")

    def test_a_chapter_has_what_a_row_took_when_it_was_measured_last(self):
        line = next(line for line in self.lines() if line.layer == "l1")
        line.suite = "report-vgg"
        slow = {**line.best, "variant": "own_slow", "median_us": 32.0, "cudnn_us": 16.0}
        line.checkout.hashes["own_slow"] = "1"
        earlier = copy.copy(line)
        # A later comparison left it out, and took cuDNN's row with it.
        earlier.variants, earlier.cudnn, line.earlier = [slow], None, [earlier]
        with unittest.mock.patch.dict(summaries.FAMILIES, {"own": ("report-vgg",)}, clear=True):
            of = lambda: summaries.family_table([line], "own", ("own_slow",)).splitlines()[2:]
            self.assertEqual(of(), ["| report-vgg | fp32 NCHW | 0.50 (l1) |"])
            slow["source"] = "0"
            self.assertEqual(of(), ["| report-vgg | fp32 NCHW | ‡ |"], "of other code")

    def test_the_chapter_of_few_channels_has_layers_by_images(self):
        line = next(line for line in self.lines() if line.layer == "l1")
        many = copy.copy(line)
        many.images, many.best = 16, {**line.best, "median_us": 12.0}
        text = summaries.small([line, many])
        self.assertIn("| layer | N = 1 | N = 16 |", text)
        self.assertIn("| `ic1ih9oc2kh3` | 8.00 us / 16.0 us | 12.0 us / 16.0 us |", text)

    def test_fp32_stands_beside_three_products_of_f16(self):
        line = next(line for line in self.lines() if line.layer == "l1")  # 8 us, cuDNN 16
        line.suite, line.kind, line.channels = "vgg16", "f32 NHWC", 64
        half, transform = copy.copy(line), copy.copy(line)
        half.kind, half.problem, half.best = "f16 NHWC", f"{line.problem}+f16", {**line.best, "median_us": 2.0}
        transform.cudnn = {**line.cudnn, "variant": "cudnn_transform", "median_us": 12.0}
        of = lambda *lines: summaries.three_products(lines).splitlines()[2:]
        self.assertEqual(of(line, half), ["| vgg16 | NHWC | 1 | 2.67 | 2.00 | 2.00 | 1.33 |"])
        self.assertEqual(of(transform, half), ["| vgg16 | NHWC | 1 | 2.00 | 1.50 | 2.00 | 1.33 |"])
        self.assertEqual(of(line), [])
        half.report = {"environment": {**line.report["environment"], "csrc": "a" * 16}}
        self.assertEqual(of(line, half), [], "f16 of other code")

    def test_a_mean_says_which_runs_it_is_of(self):
        lines = self.lines()
        both = "2026-01-01 `aaaaaaaa`, 2026-01-02 `bbbbbbbb`"
        summary = tables.summary(lines).splitlines()
        self.assertTrue(any("| first |" in line and line.endswith(f"| 2.00 | {both}, 1 ‡ |") for line in summary))
        headline = tables.headline(lines)
        self.assertRegex(headline, r"\| l1 \|.*\| 2026-01-02 `bbbbbbbb` \|\n")
        self.assertIn(f"csrc `{'a' * 16}`", headline)

    def test_what_another_gpu_measured_is_on_a_page_of_its_own(self):
        lines = self.lines()
        first = next(line for line in lines if line.suite == "first")
        first.gpu, first.chip = "NVIDIA OTHER", "OTHER"
        here = [line for line in lines if line is not first]
        self.assertEqual(comparisons.main_gpu(lines), here[0].gpu)
        self.assertEqual(tables.by_chip(lines, here), {"OTHER": [first]})
        self.assertRegex(tables.document([first]), r"^# Results on an OTHER\n")
        self.assertEqual(tables.by_chip(here, here), {})

    def test_a_row_of_other_code_is_stale(self):
        found = list(stale.stale(self.lines()))
        # The older report's, both of them: own and cudnn of one layer.
        self.assertEqual(len(found), 2, found)
        self.assertIn(("own", f"first x mb1ic1ih9oc1kh3 own: csrc {'a' * 16}, now {'b' * 16}"), found)
        text = tables.document(self.lines())
        self.assertRegex(text, r"\| x \|.* 3\.00 us ‡ \|.* 6\.00 us ‡ \|")
        self.assertRegex(text, r"\| l1 \|.* 8\.00 us \|.* 16\.0 us \|")

    def test_a_planted_stale_row_fails_unless_a_file_says_what_it_waits_for(self):
        rows = list(stale.stale(self.lines()))
        of = lambda excuses, rows=rows: list(stale.unexcused(rows, excuses))
        self.assertEqual(len(of("")), 2)
        self.assertRegex(of("# why\ncudnn another library")[0], r"^first x .*it is stale: .* what own waits for$")
        self.assertEqual(of("own a machine\ncudnn another library"), [])
        self.assertEqual(of("own", rows[:1]), ["benches/stale.txt:1: a line is a variant or a pattern, and what its rows wait for"])
        self.assertEqual(of("own a machine", []), ["benches/stale.txt:1: no displayed row of own is stale"])

    def test_a_row_is_stale_by_what_it_is_made_of(self):
        now = Checkout()
        environment = {"libraries": LIBRARIES, "csrc": "any"}
        self.assertIsNone(now.why_stale({"variant": "own", "source": "1"}, environment))
        self.assertEqual(now.why_stale({"variant": "own", "source": "2"}, environment), "source 2, now 1")
        self.assertIsNone(now.why_stale({"variant": "rule", "chose": "own_mma:tile=8", "source": "2"}, environment))
        self.assertIn("now 1", now.why_stale({"variant": "rule", "chose": "own", "source": "2"}, environment))
        old = {"libraries": {**LIBRARIES, "cuDNN": "9.0.0"}, "csrc": now.csrc}
        self.assertEqual(now.why_stale({"variant": "cudnn", "source": "3"}, old), "cuDNN 9.0.0, now 9.1.2")
        self.assertIsNone(now.why_stale({"variant": "own"}, old), "of the same csrc")

    def test_a_row_that_became_slower_is_told_unless_a_file_says_why(self):
        lines = report("2026-01-01T00:00:00Z", "a", [("report-86", "l1", 31.0)])
        lines[-2]["before_us"] = 30.0
        cases = [
            ("", 1),
            ("# a remark\nmb1ic1ih9oc2kh3 own because of the driver\n", 0),
            ("mb1ic1ih9oc2kh3 own\n", 2),  # no reason
            ("mb1ic1ih9oc2kh3 own so\nmb1ic1ih9oc2kh3 cudnn so\n", 1),  # it has not
        ]
        with tempfile.TemporaryDirectory() as folder:
            def told(excuses):
                text = "\n".join(map(json.dumps, lines))
                (Path(folder) / "a.jsonl").write_text(text, encoding="utf-8")
                return list(slower.slower(Path(folder), excuses))

            for excuses, count in cases:
                self.assertEqual(len(told(excuses)), count, excuses)
            self.assertIn("own takes 31.0 us, 1.03 times as long", told("")[0])
            lines[-2]["before_us"] = 30.2
            self.assertEqual(told(""), [], "within 1.03")
            lines[-2].update(before_us=10.0, median_us=19.0)
            self.assertEqual(told(""), [], "short")

    def test_the_check_fails_of_a_stale_row_and_of_text_that_is_not_written(self):
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            for folder in ("benches/results", "docs"):
                (root / folder).mkdir(parents=True)
            files = {"README.md": tables.MARKERS, "docs/accuracy.md": tables.ERROR_MARKERS}
            for path, markers in files.items():
                (root / path).write_text("\n".join(markers) + "\n", encoding="utf-8")
            lines = report("2026-01-01T00:00:00Z", "a" * 16, [("report-86", "l1", 30.0)])
            (root / "benches/results/old.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

            def run_it(*more):
                out, argv = io.StringIO(), ["tables.py", "--root", name, *more]
                with unittest.mock.patch.object(tables, "Checkout", Checkout), \
                        unittest.mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), \
                        self.assertRaises(SystemExit) as end:
                    tables.main()
                return bool(end.exception.code), out.getvalue()

            self.assertTrue(run_it("--check")[0], "nothing is written yet")
            self.assertFalse(run_it()[0])
            failed, said = run_it("--check")
            self.assertTrue(failed)
            self.assertIn("l1 mb1ic1ih9oc2kh3 own: csrc", said)
            (root / stale.EXCUSES).write_text("own a machine\ncu* a library\n", encoding="utf-8")
            self.assertEqual(run_it("--check"), (False, said.splitlines()[0] + "\n"))

    def test_a_disassembly_of_other_code_is_stale(self):
        document = "{}\n{}\nCompiled for sm_90a from csrc `{}`.\n"
        of = lambda csrc: tables.disassembly(document.format(*tables.STATE_MARKERS, csrc), "b" * 16)
        self.assertIn("Stale: csrc is `bbbbbbbbbbbbbbbb` now", of("a" * 16))
        self.assertNotIn("Stale", of("b" * 16))

    def test_times_say_what_they_leave_out(self):
        lines = report("2026-01-01T00:00:00Z", "b" * 16, [("report-86", "l1", 30.0)])
        lines[-2].update(pack_us=2.0, with_pack_us=31.5, serial_us=30.5, source="1", samples=5, p10_us=29.7, p90_us=33)
        lines[2]["of"].update(floor_by="FMA", floor_split_us=3.0)
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
            headline = tables.headline(comparisons.read(Path(folder), Checkout()))
        self.assertIn("| `own` | 30.0 us (-1 +10 %) of 5 | 31.5 us | 30.5 us | 30.00 | 2.00 |", headline)
        self.assertIn("| 1.00 us, FMA | 3.00 us |", headline)

    def test_a_row_depends_on_its_files_and_what_they_include(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            files = {
                "csrc/kernels.def": "ROW(a, one)\nUNRANKED(a, two)\n",
                "csrc/kernels/a/one.cu": '#include "core/x.cuh"\n',
                "csrc/kernels/a/one/more.cu": "",
                "csrc/kernels/a/two.cu": "",
                "csrc/core/x.cuh": '#include "passes.h"\n',
                "csrc/passes.h": "",
                "csrc/passes/p.cu": "",
            }
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")

            def changed(name, by="int changed;\n"):
                before = sources.hashes(root)
                (root / name).write_text((root / name).read_text(encoding="utf-8") + by, encoding="utf-8")
                after = sources.hashes(root)
                return sorted(row for row in after if after[row] != before[row])

            libraries = sorted(sources.BASELINES)
            self.assertEqual(changed("csrc/kernels/a/one/more.cu"), ["a_one"])
            self.assertEqual(changed("csrc/core/x.cuh"), ["a_one"])
            self.assertEqual(changed("csrc/kernels/a/two.cu"), ["a_two"])
            self.assertEqual(changed("csrc/passes/p.cu"), ["a_one", *libraries])
            self.assertEqual(changed("csrc/kernels/a/two.cu", "// a comment\n\n/* and\nanother */\n"), [])
            self.assertEqual(changed("csrc/kernels/a/two.cu", 'auto s = "// no comment";\n'), ["a_two"])
            self.assertEqual(changed("csrc/kernels/a/two.cu", 'auto t = "a\\"//";\n'), ["a_two"])


if __name__ == "__main__":
    unittest.main()
