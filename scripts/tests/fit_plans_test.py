"""The constants of the estimates of implicit_gemm_nhwc and implicit_gemm_nchw are those that their times were told by, and
choose well. That the formulas in scripts/fit_plans.py are the sources' is for who changes either."""

import unittest

import fit_plans


class OfRow:
    name, least_plans = "", 0

    def setUp(self):
        self.row = fit_plans.FITTED[self.name]
        self.plans, self.constants = self.row.plans(), self.row.constants()

    def wrong(self, constants):
        return list(fit_plans.wrong(self.row, self.plans, constants))

    def test_source_fit_and_times_agree(self):
        self.assertGreater(len(self.plans), self.least_plans)
        self.assertEqual(self.wrong(self.constants), [])

    def test_another_constant_is_noticed(self):
        for name in self.constants:
            self.assertTrue(self.wrong({**self.constants, name: 1.5 * self.constants[name]}), name)

    def test_a_bad_choice_is_noticed(self):
        for plan in self.plans:
            plan.us, plan.told_us = 100 / plan.us, self.row.estimate(plan, self.constants)
        found = self.wrong(self.constants)
        self.assertEqual(len(found), 1)
        self.assertIn("regret", found[0])

    def test_a_search_does_not_lose(self):
        some = [plan for plan in self.plans if plan.problem.startswith("mb1")]
        before = fit_plans.Fit(self.row, some, self.constants).score
        found = fit_plans.search(self.row, some, self.constants, 0.5, seed=1)
        self.assertLessEqual(fit_plans.Fit(self.row, some, found).score, before)


class Nhwc(OfRow, unittest.TestCase):
    name, least_plans = "nhwc", 900


class Nchw(OfRow, unittest.TestCase):
    name, least_plans = "nchw", 300


if __name__ == "__main__":
    unittest.main()
