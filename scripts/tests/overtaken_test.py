"""Tests of overtaken.py on lines as cuobjdump prints them."""

import unittest

import overtaken

ARRIVE = "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x80], RZ"
COPY = "UTMALDG.4D [UR8], [UR40]"
EXIT = "EXIT"


def found(*instructions):
    """Addresses of arrivals that overtake loads: each instruction is a text, or one with a scoreboard and waits."""
    lines = []
    for i, instruction in enumerate(instructions):
        text, counts_on, waits_for = instruction if isinstance(instruction, tuple) else (instruction, 7, 0)
        high = (counts_on << 5 | waits_for << 11) << 41
        lines += [f"        /*{i * 16:04x}*/                   {text} ;   /* 0x0000000002287984 */",
                  f"                                          /* 0x{high:016x} */"]  # fmt: skip
    return overtaken.overtaken(overtaken.steps(lines))


def load(board):
    return "LDS.64 R40, [R2]", board, 0


class Overtaken(unittest.TestCase):
    def test_an_arrival_behind_a_load_that_nobody_waited_for(self):
        self.assertEqual(found(COPY, load(0), ARRIVE, EXIT), [0x20])
        self.assertEqual(found(COPY, load(0), ("@!P0 " + ARRIVE, 7, 0), EXIT), [0x20])

    def test_what_waits(self):
        use = "FFMA R1, R40, R3, R1", 7, 0b000001
        self.assertEqual(found(COPY, load(0), use, ARRIVE, EXIT), [])
        self.assertEqual(found(COPY, load(0), (ARRIVE, 7, 0b000001), EXIT), [])
        self.assertEqual(found(COPY, load(0), "MEMBAR.ALL.CTA", ARRIVE, EXIT), [])
        self.assertEqual(found(COPY, load(2), "DEPBAR.LE SB2, 0x0", ARRIVE, EXIT), [])

    def test_what_does_not(self):
        other = "FFMA R1, R41, R3, R1", 7, 0b000010
        self.assertEqual(found(COPY, load(0), other, ARRIVE, EXIT), [0x30])
        self.assertEqual(found(COPY, load(0), load(1), (ARRIVE, 7, 0b000001), EXIT), [0x30])
        self.assertEqual(found(COPY, load(2), "DEPBAR.LE SB2, 0x1", ARRIVE, EXIT), [0x30])
        self.assertEqual(found(COPY, load(0), "@P0 MEMBAR.ALL.CTA", ARRIVE, EXIT), [0x30])

    def test_by_whatever_way_it_is_reached(self):
        use = "FFMA R1, R40, R3, R1", 7, 0b000001
        self.assertEqual(found(COPY, load(0), "@P0 BRA 0x40", use, ARRIVE, EXIT), [0x40], "around the use")
        self.assertEqual(found(COPY, load(0), "BRA 0x40", EXIT, use, ARRIVE, EXIT), [], "only through it")
        self.assertEqual(found(COPY, ARRIVE, load(0), "@P0 BRA 0x10", EXIT), [0x10], "round a loop")
        self.assertEqual(found(COPY, load(0), EXIT, ARRIVE, EXIT), [], "not at all")

    def test_other_kernels_and_other_arrivals(self):
        self.assertEqual(found(load(0), ARRIVE, EXIT), [], "no copies that write over it")
        self.assertEqual(found(COPY, load(0), "SYNCS.ARRIVE.TRANS64 RZ, [UR9], R2", EXIT), [], "of who asks for a copy")


if __name__ == "__main__":
    unittest.main()
