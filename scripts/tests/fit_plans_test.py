"""The constants of implicit_gemm_nhwc's estimate are those that its times were told by, and choose well. That the
formula in scripts/fit_plans.py is the source's is for who changes either."""

import unittest

import fit_plans


class FitPlans(unittest.TestCase):
    def setUp(self):
        self.plans, self.constants = fit_plans.read_plans(), fit_plans.read_constants()

    def test_source_fit_and_times_agree(self):
        self.assertGreater(len(self.plans), 900)
        self.assertEqual(list(fit_plans.wrong(self.plans, self.constants)), [])

    def test_another_constant_is_noticed(self):
        for name in self.constants:
            found = list(fit_plans.wrong(self.plans, {**self.constants, name: 1.5 * self.constants[name]}))
            self.assertTrue(found, name)

    def test_a_bad_choice_is_noticed(self):
        for plan in self.plans:
            plan.us, plan.told_us = 100 / plan.us, fit_plans.estimate(plan, self.constants)
        found = list(fit_plans.wrong(self.plans, self.constants))
        self.assertEqual(len(found), 1)
        self.assertIn("regret", found[0])

    def test_a_search_does_not_lose(self):
        some = [plan for plan in self.plans if plan.problem.startswith("mb1")]
        before = fit_plans.Fit(some, self.constants).score
        after = fit_plans.Fit(some, fit_plans.search(some, self.constants, 0.5, seed=1)).score
        self.assertLessEqual(after, before)


if __name__ == "__main__":
    unittest.main()
