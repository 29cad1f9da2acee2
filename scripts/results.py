"""Reads results: the committed ones, in the compact form that crates/tools/src/results/lines.rs describes, and
those that `--out` writes."""

import json

FOLDER = "benches/results"


def files(folder):
    """The files of a folder of results, by their names."""
    return sorted(folder.glob("*.jsonl"))


def read(path):
    """One file as one object: where and when, and its lists of rows."""
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    header, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if "section" in line:
            rows, usual, common = header.setdefault(line["section"], []), line["usual"], {}
        elif "of" in line:
            common = line["of"]
        else:
            status = line.get("status", "passed")
            rows.append({**usual.get(status, usual["passed"]), **common, **line})
    return header


def name(row):
    """A variant in its configuration, as the command takes it."""
    return row["variant"] + (f":{row['config']}" if row.get("config") else "")


def listed(path):
    """The problems of the list, with their devices."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line and not line.startswith("#")]
