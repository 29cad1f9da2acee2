"""The fit of the libraries' estimates, and what it is fitted to."""

import math
import tempfile
import unittest
from pathlib import Path

import estimate_model as model
import fit_estimates

ROOT = Path(__file__).resolve().parents[2]


def timed(problem, us, variant="cudnn", config=None, suite="s"):
    return fit_estimates.Timed(suite, problem, variant, config, us, "2026-11-23")


class Reading(unittest.TestCase):
    def test_a_problem_is_read_with_what_is_left_out(self):
        p = model.Problem("g2mb3ic8ih9iw7oc6kh3kw1sh2ph1pw0+f16+nhwc")
        self.assertEqual((p.groups, p.n, p.c, p.k, p.h, p.w, p.r, p.s), (2, 3, 8, 6, 9, 7, 3, 1))
        self.assertEqual((p.p, p.q, p.reduction, p.math, p.nhwc), (5, 4, 12, "f16", True))
        self.assertTrue(p.padded and p.plain)
        whole = model.Problem("mb1ic512ih7oc4096kh7+math=tf32")
        self.assertEqual((whole.p, whole.q, whole.whole, whole.storage, whole.math), (1, 1, True, "f32", "tf32"))
        self.assertFalse(model.Problem("ic4ih8oc4kh3+bias").plain)

    def test_of_an_input_counts_what_a_tap_falls_on(self):
        every, second = (model.Problem(f"mb1ic4ih8oc4oh{out}kh1{step}") for out, step in ((8, ""), (4, "sh2")))
        self.assertEqual((every.read, second.read), (4 * 64 * 4, 4 * 32 * 4))

    def test_columns_of_many_channels_are_left_out(self):
        few, many = (model.Problem(f"mb1ic{channels}ih8oc4oh4kh1sh2+nhwc") for channels in (2, 8))
        self.assertEqual((few.read, many.read), (2 * 32 * 4, 8 * 16 * 4))
        self.assertEqual(many.all_bytes - many.bytes, 8 * 48 * 4)

    def test_what_is_held_out_is_left_out(self):
        left_out = fit_estimates.held_out(ROOT)
        self.assertGreater(len(left_out), 80)
        rows = fit_estimates.timed(ROOT)
        self.assertGreater(len({row.problem for row in rows}), 700)
        self.assertNotIn(fit_estimates.HELD_OUT, {row.suite for row in rows})
        found = {row.problem for row in rows if fit_estimates.shape(row.problem) in left_out}
        self.assertEqual(found, set())

    def test_the_latest_time_counts(self):
        rows = fit_estimates.timed(ROOT)
        keys = [(row.problem, row.name) for row in rows]
        self.assertEqual(len(keys), len(set(keys)))

    def test_passes_of_an_earlier_time_do_not_count(self):
        row = {"stages": [{"name": "unroll"}]}
        self.assertTrue(fit_estimates.is_old(row, "2026-11-21T10:00:00Z"))
        self.assertFalse(fit_estimates.is_old(row, "2026-11-22T10:00:00Z"))
        self.assertFalse(fit_estimates.is_old({"stages": None}, "2026-11-21T10:00:00Z"))


class Fitting(unittest.TestCase):
    def test_constants_that_made_the_times_are_found_again(self):
        """From a start that is up to half as much again."""
        source = fit_estimates.sources(ROOT)["cudnn"]
        problems = sorted({row.problem for row in fit_estimates.timed(ROOT) if row.variant == "cudnn"})[::2]
        made = [(text, model.cudnn(model.Problem(text), model.H200, source)) for text in problems]
        rows = [timed(text, us) for text, us in made]
        start = {name: value * (1.4 if i % 2 else 0.8) for i, (name, value) in enumerate(source.items())}
        fit = fit_estimates.Fit("cudnn", rows, start).run()
        self.assertLess(fit.cost(fit.asked), 1e-2)
        for name in ("HALF", "LAUNCH_US", "FEW_HALF", "DEPTHWISE_NCHW"):
            self.assertAlmostEqual(fit.constants[name] / source[name], 1, delta=0.05, msg=name)

    def test_the_source_has_what_the_fit_says(self):
        rows, sources = fit_estimates.timed(ROOT), fit_estimates.sources(ROOT)
        for variant, source in sources.items():
            fit = fit_estimates.Fit(variant, rows, source).run()
            far = [f"{n}: the source has {s}, the fit {f:.3g}" for n, f, s in fit_estimates.far(fit, source)]
            self.assertEqual(far, [], f"{variant}: scripts/fit_estimates.py --write")
            self.assertLess(fit_estimates.spread(fit.errors(fit.asked)), 1.3)

    def test_every_constant_is_fitted_to_something(self):
        rows = fit_estimates.timed(ROOT)
        for variant, source in fit_estimates.sources(ROOT).items():
            fit = fit_estimates.Fit(variant, rows, source)
            few = [name for name in source if len(fit.touched(name)) < 10]
            self.assertEqual(few, [], variant)

    def test_constants_are_written_where_they_stand(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rank.rs"
            path.write_text("const A: f64 = 1.0;\nconst AB: f64 = 2.5;\nconst N: usize = 3;\n", encoding="utf-8")
            fit_estimates.write(path, {"A": 0.123456, "AB": 12.0})
            self.assertEqual(path.read_text(encoding="utf-8").split("\n")[:2], ["const A: f64 = 0.123;", "const AB: f64 = 12.0;"])
            self.assertEqual(model.constants(path.read_text(encoding="utf-8")), {"A": 0.123, "AB": 12.0})


class Judging(unittest.TestCase):
    ROWS = [timed("ic4ih8oc4kh3", 10.0, "a"), timed("ic4ih8oc4kh3", 4.0, "b"), timed("ic4ih8oc4kh1", 3.0, "a")]

    def test_the_loss_is_of_what_the_rule_takes(self):
        estimated = {("ic4ih8oc4kh3", "a"): (5.0, 5.0, True), ("ic4ih8oc4kh3", "b"): (8.0, 8.0, True)}
        ((loss, chosen, us, fastest, its_us),) = fit_estimates.losses(self.ROWS, estimated)
        self.assertEqual((loss, chosen.name, us, fastest.name, its_us), (2.5, "a", 5.0, "b", 8.0))
        for others in ((5.0, 5.0, False), (5.0, 10.0, True)):
            estimated["ic4ih8oc4kh3", "a"] = others
            self.assertEqual(fit_estimates.losses(self.ROWS, estimated)[0][0], 1)

    def test_ratios_are_by_variant_and_by_suite_and_type(self):
        estimated = {("ic4ih8oc4kh3", "a"): (5.0, 5.0, True), ("ic4ih8oc4kh1", "a"): (None, None, True)}
        variants, kinds = fit_estimates.ratios(self.ROWS, estimated)
        self.assertEqual(dict(variants), {"a": [(2.0, "ic4ih8oc4kh3")]})
        self.assertEqual(list(kinds), ["a s f32"])

    def test_a_program_that_reckons_otherwise_is_named(self):
        problem, constants = "mb64ic64ih56oc64oh56kh3ph1+f16+nhwc", fit_estimates.sources(ROOT)
        us = model.cudnn(model.Problem(problem), model.H200, constants["cudnn"])
        for factor, wrong in ((1, False), (1.01, True)):
            said = fit_estimates.apart([timed(problem, 30.0)], {(problem, "cudnn"): (us * factor, us * factor, True)}, constants)
            self.assertEqual(bool(said), wrong)

    def test_a_spread_is_a_factor(self):
        self.assertAlmostEqual(fit_estimates.spread([0.0, math.log(4)]), 2)


if __name__ == "__main__":
    unittest.main()
