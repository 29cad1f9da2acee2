"""Loads from shared memory that an arrival on a barrier overtakes, in the disassembly.

A warp that hands back a stage of a ring arrives on its barrier, and then a copy may write over what the warp read. The
arrival does not wait for loads that are still queued: the first instruction that uses what they bring does, or a fence.
So a kernel that keeps what it loaded for later, as filters in registers, and arrives at once, may be given parts of
what comes next: seen on an H200, where loads wait behind stores to a memory that is busy (docs/notes/depthwise.md).

The encoding of an instruction says on which of six scoreboards it counts, and for which it waits. Not followed are calls
and branches to where a register says, not seen generic loads, and stages that are handed back by other means than an arrival.
"""

import re
from typing import NamedTuple

LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?(.*?)\s*;\s*/\* 0x[0-9a-f]+ \*/")
HIGH = re.compile(r"/\* 0x([0-9a-f]+) \*/")
COPIES = ("UTMALDG", "UBLKCP")
NO_SCOREBOARD = 7


class Step(NamedTuple):
    """An instruction, the scoreboard it counts on, and those that it waits for, as bits."""

    address: int
    predicate: str
    text: str
    counts_on: int
    waits_for: int

    def is_a(self, *names):
        return self.text.startswith(names)

    def target(self):
        """Where a branch goes."""
        match = re.search(r"\b0x([0-9a-f]+)", self.text)
        return int(match[1], 16) if match and self.is_a("BRA") else None

    def always_leaves(self):
        """Whether what stands behind it is reached by others alone."""
        return self.is_a("EXIT", "RET", "BRA", "BRX") and not self.predicate and not re.search(r"\bU?P\d", self.text)


def steps(lines):
    """Those of a function's lines in the disassembly."""
    lines = list(lines)
    found = []
    for line, high in zip(lines, lines[1:]):
        if match := LINE.match(line):
            control = int(HIGH.search(high)[1], 16) >> 41
            address, predicate, text = match.groups(default="")
            found.append(Step(int(address, 16), predicate, text, control >> 5 & 7, control >> 11 & 63))
    return found


def overtaken(function):
    """The addresses of arrivals, of a function into whose shared memory copies go, before which a load may be queued."""
    if not any(step.is_a(*COPIES) for step in function):
        return []
    places = {step.address: i for i, step in enumerate(function)}
    queued = [None] * len(function)  # before each instruction, by scoreboard; none where nothing is known to lead
    found, todo = set(), [(0, 0)]
    while todo:
        i, loads = todo.pop()
        while i < len(function) and (queued[i] is None or loads & ~queued[i]):
            step = function[i]
            queued[i] = loads = loads | (queued[i] or 0)
            loads &= ~step.waits_for
            if step.is_a("MEMBAR") and not step.predicate:
                loads = 0
            elif not step.predicate and (match := re.match(r"DEPBAR\S* SB(\d), 0x0\b", step.text)):
                loads &= ~(1 << int(match[1]))
            elif loads and re.match(r"SYNCS\.ARRIVE\S*\.A1T0", step.text):
                found.add(step.address)
            elif step.is_a("LDS") and step.counts_on != NO_SCOREBOARD:
                loads |= 1 << step.counts_on
            if step.target() in places:
                todo.append((places[step.target()], loads))
            if step.always_leaves():
                break
            i += 1
    return sorted(found)
