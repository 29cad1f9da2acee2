"""Tables in Markdown, and documents that a script writes in part, between two markers."""

import sys


def table(header, rows, left):
    """Markdown; the first `left` columns and the last one are text, the rest numbers."""
    last = len(header) - 1
    ruler = ["---" if i < left or i == last else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, ruler, *rows])


def filled(header, rows):
    """Without the columns in which no row has anything."""
    kept = [i for i in range(len(header)) if any(row[i] != "-" for row in rows)]
    return [header[i] for i in kept], [[row[i] for i in kept] for row in rows]


def put(name, old, markers, text):
    """The text of a file with what stands between its two markers replaced."""
    begin, end = markers
    if old.count(begin) != 1 or old.count(end) != 1:
        sys.exit(f"{name} must have {begin} and {end} once each")
    before, rest = old.split(begin)
    after = rest.split(end)[1]
    return f"{before}{begin}\n{text}\n{end}{after}"
