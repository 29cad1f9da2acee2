"""Opens the page of `convforge page` in a real browser, a Chromium without a window, and looks: at its
errors, at its layout on a phone and on a desk, and whether its numbers are those of the results.

The page is target/page.html, which `convforge page --out target/page.html` makes of the committed
results. CONVFORGE_PAGE names another one.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import results

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(os.environ.get("CONVFORGE_PAGE", ROOT / "target/page.html"))
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
# A phone and a desk.
WIDTHS = (390, 1280)
# What the page keeps of a number is more than seven digits' worth.
CLOSE = 1e-6


def browse(width, dark):
    """What the page says of itself at a width, and what the browser wrote about it."""
    errors = (
        "<script>const errors = [];"
        "addEventListener('error', (e) => errors.push(String(e.message || e.target)), true);"
        "addEventListener('securitypolicyviolation', (e) => errors.push(e.violatedDirective));"
        "</script>"
    )
    questions = (ROOT / "scripts/tests/page_test.js").read_text(encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    page = page.replace("<head>", f"<head>{errors}", 1)
    page = page.replace("</body>", f"<script>{{{questions}}}</script></body>", 1)
    with tempfile.TemporaryDirectory() as folder:
        # A window has a least width, a frame has none.
        frame = Path(folder) / "frame.html"
        style = f"border:0;width:{width}px;height:2000px"
        frame.write_text(f'<body><iframe src="page.html" style="{style}"></iframe>', encoding="utf-8")
        (Path(folder) / "page.html").write_text(page, encoding="utf-8")
        command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--window-size=1400,2100"]
        command += ["--enable-logging=stderr", "--dump-dom", "--allow-file-access-from-files"]
        # Blink's numbers: 0 is dark, 1 is light.
        command += [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
        command += [frame.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    found = re.search(r"findings:([A-Za-z0-9+/=]+):", done.stdout)
    if not found:
        raise AssertionError(f"the page said nothing: {done.stderr[-2000:]}")
    findings = json.loads(base64.b64decode(found[1]))
    findings["console"] = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return findings


def stamp(result):
    environment = result["environment"]
    return (environment["date"], environment["csrc"], environment["options"])


def name(row):
    return row["variant"] + (f":{row['config']}" if row["config"] else "")


def label(row):
    """What a row is called in a table of variants."""
    chose = f" ({row['chose']})" if row.get("chose") else ""
    return name(row) + chose + (" (transform)" if row.get("arithmetic") == "transform" else "")


@unittest.skipUnless(PAGE.exists(), f"{PAGE.name}: make it with `convforge page --out target/page.html`")
@unittest.skipUnless(BROWSER, "there is no Chromium on this machine")
class InABrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.results = [results.read(path) for path in results.files(ROOT / results.FOLDER)]
        # Light on the phone and dark on the desk; the button shows both in either.
        cls.seen = {width: browse(width, dark=width > 1000) for width in WIDTHS}
        cls.tables = cls.seen[WIDTHS[0]]["tables"]

    def test_nothing_goes_wrong_and_nothing_is_fetched(self):
        for found in self.seen.values():
            self.assertEqual(found["errors"] + found["console"], [])
            self.assertEqual(found["outside"], [])
            self.assertEqual(found["twice"], [])
            self.assertEqual(found["dangling"], [])

    def test_it_fits_its_window(self):
        for width, found in self.seen.items():
            self.assertEqual(found["width"], width)
            self.assertEqual(found["tooWide"], [])
            self.assertLessEqual(found["scrollWidth"], width)

    def test_no_label_lies_on_another(self):
        for found in self.seen.values():
            self.assertGreater(found["drawings"], 0)
            self.assertEqual(found["unnamed"], 0)
            self.assertEqual(found["misplaced"], [])

    def test_before_printing_what_is_closed_is_opened(self):
        for found in self.seen.values():
            self.assertGreater(found["closed"], 0)
            self.assertEqual(found["stillClosed"], 0)

    def test_light_and_dark_can_be_read(self):
        for width, found in self.seen.items():
            self.assertEqual(found["prefersDark"], width > 1000)
            light, dark = found["themes"]["light"], found["themes"]["dark"]
            self.assertGreater(light["ground"], 0.8)
            self.assertLess(dark["ground"], 0.05)
            for theme in (light, dark):
                self.assertGreaterEqual(theme["least"], 4.5)

    def test_a_click_sorts(self):
        for found in self.seen.values():
            self.assertTrue(found["sorts"])
            for sort in found["sorts"]:
                right = sort["inOrder"] and sort["focused"] and sort["others"] == 1
                self.assertTrue(right and sort["said"] == sort["order"], sort)

    def assert_same(self, shown, expected):
        """Rows of words and numbers, in any order."""
        key = lambda row: [str(cell) for cell in row if isinstance(cell, str)]
        shown, expected = sorted(shown, key=key), sorted(expected, key=key)
        self.assertEqual([key(row) for row in shown], [key(row) for row in expected])
        for ours, theirs in zip(shown, expected):
            for a, b in zip(ours, theirs):
                if not isinstance(b, str):
                    self.assertAlmostEqual(a, b, delta=abs(b) * CLOSE, msg=ours)

    def shown(self, columns, *, of=None):
        """The cells of some columns, after the table's keys, of tables of variants or of a kind."""
        for table in self.tables:
            if table["keys"].get("of") == of:
                places = [table["columns"].index(column) for column in columns]
                keys = [table["keys"][k] for k in ("suite", "layer", "problem") if k in table["keys"]]
                for row in table["rows"]:
                    yield keys + [row[place] for place in places]

    def latest(self):
        """The rows with a time of every problem, each of the problem's latest run."""
        latest = {}
        for result in self.results:
            if "environment" not in result or result.get("view") == "sweep":
                continue
            rows = result["layers"] if "layers" in result else result["rows"]
            for row in rows:
                device = result["environment"]["device"]
                at = (device, row["cold"], row["suite"], row["layer"], row["problem"])
                known = latest.get(at)
                if known is None or known[0] < stamp(result):
                    latest[at] = known = (stamp(result), [])
                if known[0] == stamp(result) and row["median_us"] is not None:
                    known[1].append(row)
        return [rows for _, rows in latest.values()]

    def test_every_median_of_a_comparison_is_on_the_page(self):
        keys = ("suite", "layer", "problem")
        expected = [
            [*(row[key] for key in keys), label(row), row["median_us"]]
            for rows in self.latest()
            for row in rows
        ]
        self.assertTrue(expected)
        self.assert_same(self.shown(["variant", "time"]), expected)

    def test_the_headline_has_the_best_of_each_layer(self):
        baselines = ("cublas", "cudnn", "cpu")
        expected = []
        for rows in self.latest():
            own = [r for r in rows if not r.get("chose") and not r["variant"].startswith(baselines)]
            if own and own[0]["suite"] in ("report-86", "report-70") and "+" not in own[0]["problem"]:
                best = min(own, key=lambda row: row["median_us"])
                batch = re.match(r"mb(\d+)", best["problem"])[1]
                where = [best["suite"], best["layer"], batch]
                expected.append([*where, name(best), best["median_us"], best["floor_us"]])
        columns = ["suite", "layer", "batch", "best handwritten", "time", "floor"]
        shown = [
            [suite, layer.split()[0], str(int(batch)), *numbers]
            for suite, layer, batch, *numbers in self.shown(columns, of="headline")
        ]
        self.assert_same(shown, expected)

    def test_every_median_of_a_sweep_is_on_the_page(self):
        expected = [
            [row["suite"], row["problem"], row["variant"], row["config"] or "–", row["median_us"]]
            for result in self.results
            if result.get("view") == "sweep"
            for row in result["rows"]
            if row["median_us"] is not None
        ]
        columns = ["variant", "configuration", "time"]
        self.assert_same(self.shown(columns, of="sweep"), expected)

    def study(self, part):
        """The rows of the latest study that has any."""
        studies = [result for result in self.results if result.get(part)]
        return max(studies, key=stamp)[part] if studies else []

    def test_the_network_is_on_the_page(self):
        expected = []
        for row in self.study("network"):
            if row["status"] == "passed" and row["total"]:
                ops = [layer["op"]["median_us"] for layer in row["layers"]]
                layers = [layer["layer"]["median_us"] for layer in row["layers"]]
                whole = row["total"]["median_us"]
                expected.append([row["variant"], row["math"], str(row["images"]), *ops, *layers, whole])
        times = ["Op Time 1", "Op Time 2", "Layer Time 1", "Layer Time 2", "whole"]
        shown = []
        for table in self.tables:
            if table["keys"].get("of") == "network":
                places = [table["columns"].index(c) for c in ["variant", "math", *times]]
                for row in table["rows"]:
                    cells = [row[place] for place in places]
                    shown.append(cells[:2] + [table["keys"]["images"]] + cells[2:])
        self.assert_same(shown, expected)

    def test_the_streams_are_on_the_page(self):
        expected = [
            [row["suite"], row["layer"], row["problem"], row["variant"], row["memory"]]
            + [row["streams"], row["chunk"], row["time"]["median_us"]]
            for row in self.study("overlap")
            if row["status"] == "passed" and row["time"]
        ]
        columns = ["variant", "memory", "streams", "chunk", "time"]
        # Numbers order rows as well: streams and chunks are part of a row's name.
        words = lambda row: row[:5] + [str(int(cell)) for cell in row[5:7]] + row[7:]
        shown = [words(row) for row in self.shown(columns, of="streams")]
        self.assert_same(shown, [words(row) for row in expected])

    def test_the_errors_are_on_the_page(self):
        expected = [
            [errors["data"], name(row), row["math"], f"{row['suite']} {row['layer']}".strip()]
            + [errors["stored"][key] for key in ("rms", "largest")]
            + [(errors["rounded"] or {}).get(key, "–") for key in ("rms", "largest")]
            for row in self.study("errors")
            for errors in row["data"]
        ]
        columns = ["variant", "math", "layer", "RMS", "largest", "RMS of sums", "largest of sums"]
        shown = []
        for table in self.tables:
            if table["keys"].get("of") == "errors":
                places = [table["columns"].index(column) for column in columns]
                for row in table["rows"]:
                    shown.append([table["keys"]["data"]] + [row[place] for place in places])
        self.assert_same(shown, expected)

    def test_the_counters_are_on_the_page(self):
        expected = [
            [row["problem"], row["variant"], row["counters"]["duration_us"]]
            for result in self.results
            if "tool" in result
            for row in result["rows"]
            if row["counters"].get("duration_us") is not None
        ]
        shown = [r for r in self.shown(["variant", "duration"], of="counters") if r[2] != "–"]
        order = lambda row: row[:2] + [f"{row[2]:.4e}"]
        self.assert_same(sorted(shown, key=order), sorted(expected, key=order))


if __name__ == "__main__":
    unittest.main()
