"""Which displayed rows are stale: what their variant is made of, or the version of their library, is not what they were
measured with; and whether benches/stale.txt says what their variants wait for."""

from fnmatch import fnmatchcase

from results import name

EXCUSES = "benches/stale.txt"


def stale(lines):
    """Every displayed row that is stale: its variant, and which it is and why."""
    for line in lines:
        for row in line.displayed():
            if why := line.why_stale(row):
                yield row["variant"], f"{line.suite} {line.layer} {line.problem} {name(row)}: {why}"


def unexcused(rows, excuses):
    """What is wrong with these stale rows, and with the lines of the file that excuses their variants."""
    left = {}
    for number, line in enumerate(excuses.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            pattern, *why = line.split(maxsplit=1)
            left[pattern] = number
            if not why:
                yield f"{EXCUSES}:{number}: a line is a variant or a pattern, and what its rows wait for"
    used = set()
    for variant, text in rows:
        fitting = {pattern for pattern in left if fnmatchcase(variant, pattern)}
        used |= fitting
        if not fitting:
            yield f"{text}; it is stale: measure it again, or say in {EXCUSES} what {variant} waits for"
    for pattern in left.keys() - used:
        yield f"{EXCUSES}:{left[pattern]}: no displayed row of {pattern} is stale"
