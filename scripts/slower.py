"""Which rows became slower than when they were kept last, and whether benches/slower.txt says why."""

import results
from comparisons import family, time
from results import name

# A row may become so many times slower, where it takes longer than this.
SLOWER, LONG_US = 1.03, 20.0
EXCUSES = "benches/slower.txt"


def slower(folder, excuses):
    """What is wrong with rows that became slower than when they were kept last, cuDNN's apart, and with the
    lines of the file that says why they may."""
    left = {}
    for number, line in enumerate(excuses.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            words = line.split(maxsplit=2)
            if len(words) < 3:
                yield f"{EXCUSES}:{number}: a line is a problem, a variant, and why"
            else:
                left[tuple(words[:2])] = number
    found = set()
    for path in results.files(folder):
        report = results.read(path)
        for row in report.get("rows", []) if "tool" not in report else []:
            before, now = row.get("before_us"), row.get("median_us")
            if before and now and now > LONG_US and now > SLOWER * before and family(row) != "cudnn":
                key = (row["problem"], name(row))
                found.add(key)
                if key not in left:
                    yield (
                        f"{path.name}: {key[0]} {key[1]} takes {time(now)}, {now / before:.2f} times as long as"
                        f" when it was kept last; measure it again, or say why in {EXCUSES}"
                    )
    for key in left.keys() - found:
        yield f"{EXCUSES}:{left[key]}: {key[1]} has not become slower on {key[0]}"
