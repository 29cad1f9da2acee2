"""Tests of what is drawn of the committed results, and of whether two runs agree."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import agree
import tenth

ROOT = Path(__file__).resolve().parents[2]


def row(problem, variant, us, spread=0.01, **more):
    return {"problem": problem, "variant": variant, "config": None, "status": "passed", "median_us": us,
            "p10_us": us * (1 - spread), "p90_us": us * (1 + spread), **more}


class Agreement(unittest.TestCase):
    def run_it(self, first, second):
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder) / name for name in ("first.json", "second.json")]
            for path, rows in zip(paths, (first, second)):
                path.write_text(json.dumps({"rows": rows}), encoding="utf-8")
            return self.main(*paths)

    def main(self, *paths):
        out = io.StringIO()
        argv = ["agree.py", *map(str, paths)]
        with mock.patch.object(sys, "argv", argv), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return agree.main(), out.getvalue()

    def test_a_slower_machine_is_no_disagreement(self):
        first = [row("a", "cudnn", 100), row("a", "wide", 50)]
        second = [row("a", "cudnn", 120), row("a", "wide", 61)]
        self.assertEqual(self.run_it(first, second)[0], 0)

    def test_a_ratio_that_moved_is_told(self):
        first = [row("a", "cudnn", 100), row("a", "wide", 50)]
        second = [row("a", "cudnn", 100), row("a", "wide", 55)]
        status, said = self.run_it(first, second)
        self.assertEqual(status, 1)
        self.assertIn("APART", said)
        self.assertIn("-9.1%", said)

    def test_a_spread_excuses_it(self):
        first = [row("a", "cudnn", 100), row("a", "wide", 50)]
        second = [row("a", "cudnn", 100), row("a", "wide", 55, spread=0.15)]
        status, said = self.run_it(first, second)
        self.assertEqual(status, 0)
        self.assertIn("1 by more as their spreads say, 0 by more", said)

    def test_short_rows_and_those_of_one_run_are_left_out(self):
        first = [row("a", "cudnn", 100), row("a", "wide", 19), row("b", "cudnn", 90), row("b", "wide", 50),
                 row("c", "wide", 50), row("d", "cudnn", 90), row("d", "wide", 50, status="failed")]
        second = [row("a", "cudnn", 100), row("a", "wide", 30), row("c", "wide", 50), row("d", "wide", 50)]
        status, said = self.run_it(first, second)
        self.assertEqual(status, 2)
        self.assertIn("no row over 20 us", said)

    def test_of_committed_results_the_latest_of_the_same_gpu_and_code_counts(self):
        def run(gpu, day, source, us):
            rows = [row("a", "cudnn", 100, source=None), row("a", "wide", us, source=source)]
            return {"environment": {"gpu": gpu, "date": day}, "rows": rows}

        runs = [run("H200", "2026-01-02", "new", 50), run("H200", "2026-01-01", "new", 60),
                run("H200", "2026-01-03", "old", 70), run("H100", "2026-01-04", "new", 80)]
        second = run("H200", "2026-01-05", "new", 55)
        with tempfile.TemporaryDirectory() as folder:
            # Of the second run itself nothing counts.
            for number, one in enumerate([*runs, second]):
                lines = [{"environment": one["environment"]}, {"section": "rows", "usual": {"passed": {}}}, *one["rows"]]
                text = "\n".join(map(json.dumps, lines))
                (Path(folder) / f"{number}.jsonl").write_text(text, encoding="utf-8")
            found = agree.committed(Path(folder), second)
            report = Path(folder) / "second.json"
            report.write_text(json.dumps(second), encoding="utf-8")
            status, said = self.main(folder, report)
        self.assertEqual({key: value[0] for key, value in found.items()}, {("a", "wide"): 2})
        self.assertEqual(status, 1, said)
        self.assertIn("-9.1%", said)

    def test_what_is_no_report_is_told(self):
        status, said = self.main("missing.json", "missing.json")
        self.assertEqual(status, 2)
        self.assertIn("no report", said)

    def test_the_faster_of_cudnns_rows_counts(self):
        first = [row("a", "cudnn", 100), row("a", "cudnn_transform", 80), row("a", "wide", 40)]
        self.assertEqual(agree.ratios(first)["a", "wide"][0], 2)


class Draws(unittest.TestCase):
    def test_a_seed_draws_a_tenth_of_every_kind(self):
        known = tenth.problems(ROOT / "benches/results")
        for seed in (1, 2):
            drawn = [problem for _, problem in known if tenth.is_drawn(seed, problem, 10)]
            self.assertTrue(len(known) / 15 < len(drawn) < len(known) / 6, (seed, len(drawn), len(known)))
            for word in ("+f16", "+bf16", "math=tf32", "+nhwc", "mb1ic", "mb64"):
                self.assertTrue(any(word in problem for problem in drawn), (seed, word))

    def test_another_problem_changes_no_draw(self):
        self.assertEqual(tenth.is_drawn(1, "mb1ic3ih9oc4kh3", 1), True)
        drawn = [number for number in range(1000) if tenth.is_drawn(1, f"mb{number}", 10)]
        self.assertEqual(drawn[:10], [0, 10, 13, 18, 29, 38, 47, 56, 74, 99])
        self.assertNotEqual(drawn, [number for number in range(1000) if tenth.is_drawn(2, f"mb{number}", 10)])


if __name__ == "__main__":
    unittest.main()
