"""The tables of results, of made-up reports: every row says which run it is of."""

import json
import tempfile
import unittest
from pathlib import Path

import tables


def report(date, csrc, layers):
    """A file of results with one handwritten variant and cuDNN per layer: (suite, layer, microseconds)."""
    environment = {"gpu": "GPU", "driver": "1", "libraries": {}, "date": date, "csrc": csrc}
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
            return tables.read(Path(folder))

    def test_a_row_says_which_run_it_is_of(self):
        text = tables.document(self.lines())
        self.assertRegex(text, r"\| l1 \|.* 8\.00 us .*\| 2026-01-02 `bbbbbbbb` \|\n")
        self.assertRegex(text, r"\| x \|.* 3\.00 us .*\| 2026-01-01 `aaaaaaaa` \|\n")
        self.assertNotIn("10.0 us", text, "superseded")

    def test_a_mean_says_which_runs_it_is_of(self):
        lines = self.lines()
        both = "2026-01-01 `aaaaaaaa`, 2026-01-02 `bbbbbbbb`"
        summary = tables.summary(lines).splitlines()
        self.assertTrue(any("| first |" in line and line.endswith(f"| 2.00 | {both} |") for line in summary))
        headline = tables.headline(lines)
        self.assertRegex(headline, r"\| l1 \|.*\| 2026-01-02 `bbbbbbbb` \|\n")
        self.assertIn(f"csrc `{'a' * 16}`", headline)


if __name__ == "__main__":
    unittest.main()
