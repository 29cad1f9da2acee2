"""Tests of what is profiled: one layer of each filter size, the largest."""

import unittest

import largest


class Largest(unittest.TestCase):
    def test_the_committed_list_is_what_would_be_written(self):
        text = "".join(f"{line}\n" for line in largest.lines())
        self.assertEqual(largest.LISTED.read_text(encoding="utf-8"), text, "scripts/largest.py writes it")

    def test_the_largest_of_each_filter_is_taken(self):
        found = largest.largest("dense", ["mb1ic8ih9oc8oh9kh3ph1", "mb2ic8ih9oc8oh9kh3ph1", "mb1ic64ih9oc64oh9kh1",
                                          "mb1ic8ih9oc8oh9kh1kw7pw3", "mb1ic8ih9oc8oh9kh7kw1ph3"])
        self.assertEqual(found, ["mb1ic64ih9oc64oh9kh1", "mb1ic8ih9oc8oh9kh1kw7pw3", "mb1ic8ih9oc8oh9kh7kw1ph3",
                                 "mb2ic8ih9oc8oh9kh3ph1"])

    def test_who_does_not_take_the_largest_has_one_of_its_own(self):
        self.assertTrue(largest.takes("grouped_nchw", "g32mb64ic256ih56oc256oh28kh3sh2ph1"))
        self.assertFalse(largest.takes("grouped_planar", "g32mb64ic256ih56oc256oh28kh3sh2ph1"))
        own = [line.split()[1] for line in largest.lines() if line.startswith("grouped_planar")]
        self.assertEqual(len(own), 2)
        self.assertTrue(all(largest.takes("grouped_planar", problem) for problem in own))

    def test_bytes_count_where_memory_bounds(self):
        small, large = "g8mb1ic8ih99oc8oh99kh3ph1", "g512mb1ic512ih9oc512oh9kh3ph1"
        self.assertLess(largest.weight("depthwise", large), largest.weight("depthwise", small))


if __name__ == "__main__":
    unittest.main()
