"""The fastest times of cuDNN's, and the check of the tables against them, of made-up reports."""

import json
import tempfile
import unittest
from pathlib import Path

import cudnn_best

GPU = "GPU"
L1 = "mb1000ic1ih86oc4oh80kh7"


def report(date, cudnn, plan="engine 1, cuDNN 9.19.0, 0 bytes", **more):
    """A report with one row of cuDNN's for each problem of `cudnn`: its time."""
    environment = {"gpu": GPU, "driver": "1", "libraries": {"cuDNN": "9.19.0"}}
    environment |= {"date": date, "csrc": "a" * 16}
    common = {"status": "passed", "cold": True, "floor_us": 1.0, "config": None, "how": "graph"}
    common["math"] = "fp32"
    rows = [
        {"suite": "first", "layer": problem, "problem": problem, "variant": "cudnn", "median_us": us}
        | {**common, "plan": plan, **more}
        for problem, us in cudnn.items()
    ]
    return {"environment": environment, "view": "compare", "rows": rows}


def times(lines):
    return {line["problem"]: line["us"] for line in lines}


def line(problem, us, source="old", **more):
    more = {"plan": "engine 2", "device": GPU, "date": "1", **more}
    return {"problem": problem, "us": us, "source": source, **more}


class Best(unittest.TestCase):
    def add(self, *contents):
        """What is kept of these files, added one after the other."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "best.jsonl"
            for i, content in enumerate(contents):
                file = Path(folder) / f"{i}.json"
                file.write_text(json.dumps(content), encoding="utf-8")
                cudnn_best.add(path, [file])
            return cudnn_best.load(path)

    def test_the_fastest_is_kept_and_nothing_slower_replaces_it(self):
        old, new = report("1", {L1: 100.0, "mb1": 5.0}), report("2", {L1: 120.0, "mb1": 4.0})
        best = self.add(old, new)
        self.assertEqual(times(best), {L1: 100.0, "mb1": 4.0})
        self.assertEqual([(b["plan"], b["date"], b["cudnn"]) for b in best][1], ("engine 1", "1", "9.19.0"))

    def test_a_faster_transform_of_a_note_counts(self):
        note = "engine 1, cuDNN 9.19.0; 9 timed; the fastest transform is algorithm fft at 60.5 us; more"
        best = self.add(report("1", {L1: 100.0}, note))
        self.assertEqual([(b["plan"], b["us"]) for b in best], [("algorithm fft", 60.5)])

    def test_what_a_later_report_found_wrong_does_not_count(self):
        fast = report("2", {L1: 50.0}, "engine 7, cuDNN 9.19.0")
        wrong = "engine 1, cuDNN 9.19.0; 9 timed; dropped engine 7 at 50.0 us: coarse"
        best = self.add(fast, report("3", {L1: 100.0}, wrong))
        self.assertEqual([(b["plan"], b["us"]) for b in best], [("engine 1", 100.0)])
        # Judged wrong once, right since.
        self.assertEqual(times(self.add(report("1", {L1: 100.0}, wrong), fast)), {L1: 50.0})

    def test_what_did_not_pass_or_is_no_graph_does_not_count(self):
        for row in ({"status": "failed"}, {"how": "launches"}, {"cold": False}, {"variant": "own"}):
            self.assertEqual(self.add(report("1", {L1: 50.0}, **row)), [], row)


class Check(unittest.TestCase):
    def check(self, row, lines, known=(), **more):
        """The errors of committed results with this row of cuDNN's: problem and time."""
        with tempfile.TemporaryDirectory() as folder:
            content = report("2", dict([row]), **more)
            rows = content.pop("rows")
            head = [content, {"section": "rows", "usual": {"passed": {}}}, {"of": {}}]
            text = "\n".join(map(json.dumps, head + rows))
            (Path(folder) / "new.jsonl").write_text(text, encoding="utf-8")
            # The file has the row's time, unless a test says which times it has of its problem.
            has = any(line["problem"] == row[0] and line["source"] != "anchors" for line in lines)
            if not has:
                lines = cudnn_best.merged(lines, [Path(folder) / "new.jsonl"])
            return cudnn_best.check(Path(folder), lines, list(known))

    def fails(self, why, *arguments, **more):
        errors = self.check(*arguments, **more)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(why, errors[0])

    def test_a_planted_slow_baseline_fails(self):
        best = [line(L1, 100.0)]
        self.assertEqual(self.check((L1, 109.0), best), [])
        self.fails("111.0 us, and 100.0 in a report", (L1, 111.0), best)
        self.assertEqual(self.check((L1, 19.0), [line(L1, 10.0)]), [], "noise decides")
        other = [line(L1, 100.0, device="other"), line(L1, 111.0)]
        self.assertEqual(self.check((L1, 111.0), sorted(other, key=cudnn_best.key)), [])

    def test_a_planted_incomplete_search_fails(self):
        self.fails("not complete: 4 plans", (L1, 5.0), [], cudnn_search="4 plans left out")
        self.assertEqual(self.check((L1, 5.0), [], cudnn_search="complete"), [])
        note = "engine 1, cuDNN 9.19.0; 9 found, 4 excluded (no time left to run them), 5 timed"
        self.fails("not complete: 4 excluded", (L1, 5.0), [], plan=note)

    def test_a_batch_is_no_slower_than_a_smaller_one_scaled(self):
        ten = "mb10000ic1ih86oc4oh80kh7"
        self.fails("100.0 scaled from 1000 images", (ten, 120.0), [line(L1, 10.0)])
        self.assertEqual(self.check((ten, 109.0), [line(L1, 10.0)]), [])
        # Too few to tell, another layer, or more images.
        for other in (L1.replace("1000", "500"), L1 + "+f16", L1.replace("1000", "20000")):
            self.assertEqual(self.check((ten, 120.0), [line(other, 1.0)]), [])

    def test_tf32_is_no_slower_than_fp32(self):
        self.fails("100.0 with its fp32 plan", (L1 + "+math=tf32", 120.0), [line(L1, 100.0)])
        self.assertEqual(self.check((L1, 120.0), [line(L1 + "+math=tf32", 100.0)]), [])

    def test_anchors_count_but_for_those_that_a_wrong_plan_explains(self):
        anchor = line(L1, 100.0, "anchors")
        self.fails("100.0 in the anchors", (L1, 120.0), [anchor])
        self.assertEqual(self.check((L1, 120.0), [{**anchor, "not_comparable": "one image"}]), [])
        wrong = {"cudnn_any_us": 99.0, "cudnn_any_plan": "engine 7", "cudnn_any_why": "coarse"}
        self.assertEqual(self.check((L1, 120.0), [anchor], **wrong), [])
        self.fails("in the anchors", (L1, 120.0), [anchor], **{**wrong, "cudnn_any_us": 115.0})

    def test_a_report_that_is_faster_than_the_file_must_be_added(self):
        self.fails("lacks times of the reports", (L1, 99.0), [line(L1, 100.0)])

    def test_the_list_excuses_what_fails_and_nothing_else(self):
        known = [f"{GPU}: {L1}"]
        self.assertEqual(self.check((L1, 120.0), [line(L1, 100.0)], known), [])
        self.fails("no longer fails", (L1, 100.0), [line(L1, 100.0)], known)


class KeptSearches(unittest.TestCase):
    def test_a_winner_that_is_slower_than_it_may_be_is_told(self):
        lines = [{"device": "a b", "problem": "p", "us": 100.0, "source": "r"}]

        def told(us, transform=None, problem="p"):
            search = {"key": f"{problem} on a b by cuDNN 9", "exact": {"us": us}}
            if transform:
                search["transform"] = {"us": transform}
            return list(cudnn_best.weak_searches([search], lines))

        self.assertEqual(told(109.0), [])
        self.assertIn("111.0 us in cudnn-plans.jsonl, over 110.0", told(111.0)[0])
        self.assertEqual(told(500.0, transform=100.0), [])
        self.assertEqual(told(500.0, problem="q"), [])


if __name__ == "__main__":
    unittest.main()
