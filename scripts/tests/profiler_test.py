"""Tests of profile.sh and of what it reads, with an ncu, an nsys and a convforge that only talk."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import counters
import profiler
import profiler_text

SCRIPTS = Path(__file__).resolve().parents[1]
PEAK = "pct_of_peak_sustained"
STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
PROBLEM = "mb1ic3ih8oc4oh6kh3"

# Columns of the raw page: name, unit, then a launch each: unroll, two of a GEMM.
RAW = [
    ("ID", "", "0", "1", "2"),
    ("Kernel Name", "", "void (anonymous namespace)::unroll<float>(const float *, int)",
     "void gemm<16, 1>(int)", "void gemm<16, 1>(int)"),
    ("Grid Size", "", "(8, 1, 1)", "(1, 4, 1)", "(1, 4, 1)"),
    ("gpu__time_duration.sum", "ns", "1,000", "3,000", "1,000"),
    (f"sm__throughput.avg.{PEAK}_elapsed", "%", "50.5", "80", "40"),
    ("dram__bytes_read.sum", "byte", "1,000,000", "2000", "3000"),
    ("launch__registers_per_thread", "register/thread", "16", "40", "40"),
    ("launch__shared_mem_per_block_static", "byte/block", "0", "2048", "2048"),
    ("launch__shared_mem_per_block_dynamic", "byte/block", "0", "1024", "1024"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "sector", "0", "800", "800"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "request", "0", "200", "200"),
    (STALLED.format("long_scoreboard"), "inst", "n/a", "3", "3"),
    (STALLED.format("barrier"), "inst", "n/a", "1", "1"),
    (STALLED.format("selected"), "inst", "n/a", "9", "9"),
]  # fmt: skip

SOURCE = """"File Path","/somewhere/csrc/kernels/gemm.cu"
"Function Name","gemm"
"Line No","Source","Address","Source","Warp Stall Sampling (All Samples)","Instructions Executed","Thread Instructions Executed"
"7","float a = x[i];","-","-","30","10","320"
"","","0x10","LDG R1, [R2]","30","10","320"
"8","if (i < n)","-","-","10","30","640"
"","","0x20","ISETP","10","30","640"
"File Path","/somewhere/csrc/core/tile.cuh"
"Function Name","gemm"
"Line No","Source","Address","Source","Warp Stall Sampling (All Samples)","Instructions Executed","Thread Instructions Executed"
"3","sum += a;","-","-","60","0","0"
"""

CONVFORGE = """#!{python}
import json, os, sys
words = sys.argv[1:]
say = lambda value: print(json.dumps(value, indent=2))
if words[0] == "devices":
    name = os.environ.get("GPU_NAME", "NVIDIA H200")
    say({{"csrc": "12ab", "devices": [{{"device": "gpu:0", "name": name}}]}})
elif words[0] == "list":
    able = words[words.index("--problem") + 1].endswith("+math=f16")
    answer = lambda can: {{"supported": can, "reason": None if can else "sums in f32"}}
    say([
        {{"name": "one", "kind": "kernel", "answer": answer(True)}},
        {{"name": "half", "kind": "kernel", "answer": answer(able)}},
        {{"name": "never", "kind": "baseline", "answer": answer(False)}},
        {{"name": "cpu_gemm", "kind": "cpu", "answer": answer(True)}},
    ])
elif words[1] == "broken":
    sys.exit("error: broken is wrong")
else:
    if "--trace" in words:
        name = {{"ph": "M", "name": "thread_name", "tid": 0, "args": {{"name": "kernels"}}}}
        work = [{{"ph": "X", "name": "gemm", "tid": 0, "ts": 0, "dur": us}} for us in (10, 20)]
        with open(words[words.index("--trace") + 1], "w") as file:
            json.dump({{"traceEvents": [name, *work]}}, file)
    print("No GPU was found, or so", file=sys.stderr)
    say({{
        "environment": {{"device": "NVIDIA H200", "driver": "580.1", "date": "2026-11-21T10:00:00Z"}},
        "variant": words[1] + ":tile=16", "problem": words[3],
    }})
"""

# Refuses a metric, keeps what it was asked for, prints twice the time for the variant `two`, and takes
# its time for the variant that SLOW names.
NCU = """#!{python}
import os, subprocess, sys, time
words = sys.argv[1:]
value = lambda name: words[words.index(name) + 1]
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler\\nVersion 2025.3.1.0 (build 1)")
elif words[0] == "--import":
    with open(words[1]) as file:
        variant = file.read()
    if variant == "unreadable":
        print("==ERROR== Failed to open the report")
        sys.exit(1)
    with open({folder!r} + "/" + value("--page") + ".csv") as file:
        print(file.read().replace('"3,000"', '"7,000"' if variant == "two" else '"3,000"'))
else:
    with open({folder!r} + "/asked", "a") as file:
        print(*words, file=file)
    absent = "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active"
    with open(value("--log-file"), "w") as log:
        if absent in value("--metrics"):
            print("==ERROR== Failed to find metric " + absent, file=log)
            sys.exit(1)
        command = words[words.index(os.environ["CONVFORGE"]):]
        if command[2] == os.environ.get("SLOW"):
            with open({folder!r} + "/slow", "w") as file:
                file.write(str(os.getpid()))
            time.sleep(60)
        status = subprocess.run(command).returncode
        if status:
            print("==ERROR== The application returned an error code (1).", file=log)
            sys.exit(status)
    with open(value("--export") + ".ncu-rep", "w") as file:
        file.write(command[2])
"""

NSYS = """#!/bin/sh
echo 'error: no perf events here'
exit 1
"""


def until(holds):
    """Waits for something, half a minute at most."""
    end = time.monotonic() + 30
    while not holds():
        if time.monotonic() > end:
            raise AssertionError("it did not come to that")
        time.sleep(0.05)


def raw_csv():
    rows = zip(*RAW)
    return "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows) + "\n"


class Reading(unittest.TestCase):
    def test_launches_of_one_kernel_add_up(self):
        raw = f"==WARNING== Old report, maybe\n{raw_csv()}\n"
        unroll, gemm = counters.rows("v:tile=16", PROBLEM, raw, SOURCE)
        self.assertEqual([unroll["kernel"], unroll["launches"]], ["unroll", 1])
        self.assertEqual([gemm["kernel"], gemm["launches"]], ["gemm", 2])
        wanted = {"duration_us": 4.0, "sm_pct": 70.0, "dram_read_bytes": 5000.0, "registers": 40.0,
                  "shared_bytes": 3072.0, "load_sectors": 4.0, "stall": "long_scoreboard",
                  "stall_pct": 75.0}
        self.assertEqual(gemm["counters"], wanted)
        # No loads, and no reasons to wait, are nothing to show.
        wanted = {"duration_us": 1.0, "sm_pct": 50.5, "dram_read_bytes": 1e6, "registers": 16.0,
                  "shared_bytes": 0.0}
        self.assertEqual(unroll["counters"], wanted)

    def test_a_call_as_a_whole(self):
        found = counters.whole(counters.rows("v", PROBLEM, raw_csv()))
        wanted = {"duration_us": 5.0, "sm_pct": (50.5 + 4 * 70) / 5, "dram_read_bytes": 1005000.0}
        self.assertEqual(found, wanted)

    def test_lines_by_their_share(self):
        found = counters.lines(SOURCE)["gemm"]
        self.assertEqual(found["hot"], {"tile.cuh:3": 60.0, "gemm.cu:7": 30.0, "gemm.cu:8": 10.0})
        # 30 of 40 instructions ran with 640 of 960 threads.
        self.assertEqual(found["divergent"], {"gemm.cu:8": 25.0})
        self.assertEqual(counters.lines("==ERROR== no source\n"), {})

    def test_what_is_no_page_has_no_rows(self):
        for text in "", "==ERROR== Failed to open the report\n", raw_csv().splitlines()[0]:
            self.assertEqual(counters.rows("v", PROBLEM, text), [])

    def test_names_of_kernels(self):
        for name, short in [
            ("void cf::direct<float, (cf::Math)0>(cf_problem)", "direct"),
            ("cudnn::winograd_nonfused::f(int)", "f"),
            ("sm90_xmma_gemm_f32f32_tn_n", "sm90_xmma_gemm_f32f32_tn_n"),
        ]:
            self.assertEqual(counters.short_name(name), short)

    def test_numbers_for_people(self):
        told = [profiler_text.duration(us) for us in (0.5, 12.34, 999, 1234, 2.5e6)]
        self.assertEqual(told, ["0.5 us", "12.3 us", "999 us", "1.23 ms", "2.5 s"])
        self.assertEqual([profiler_text.size(n) for n in (0, 2048, 5e10)], ["0 B", "2.05 kB", "50 GB"])


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.out = self.folder / "out"
        (self.folder / "raw.csv").write_text(raw_csv())
        (self.folder / "source.csv").write_text(SOURCE)
        self.program("convforge", CONVFORGE)

    def program(self, name, text):
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(python=sys.executable, folder=str(self.folder)))
        path.chmod(0o755)
        return path

    def start_script(self, *words, **environment):
        path = os.pathsep.join([str(self.folder / "bin"), os.environ["PATH"]])
        convforge = str(self.folder / "bin/convforge")
        return subprocess.Popen(
            [SCRIPTS / "profile.sh", "--out", self.out, *words], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "PATH": path, "CONVFORGE": convforge, **environment},
        )  # fmt: skip

    def run_script(self, *words, **environment):
        process = self.start_script(*words, **environment)
        said = process.communicate()[0]
        return process.returncode, said

    def variants(self):
        rows = json.loads((self.out / "profile.json").read_text())["rows"]
        return {row["variant"] for row in rows}

    def runs_of_ncu(self):
        asked = self.folder / "asked"
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def test_two_variants_are_compared(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        status, said = self.run_script("one", "two", PROBLEM)
        self.assertEqual(status, 0, said)
        # One run too many, for the metric that the chip does not have.
        self.assertEqual(self.runs_of_ncu(), 3)
        lines = [line.split() for line in said.splitlines()]
        self.assertIn(["SM", "%", "66.1", "72.3", "+9.3", "%"], lines)
        self.assertIn(["duration", "5", "us", "9", "us", "+80.0", "%"], lines)
        self.assertIn(["memory", "%", "n/a", "n/a", "n/a"], lines)
        self.assertIn(["waits", "for", "n/a", "long_scoreboard", "75", "%"], lines)
        self.assertIn("tile.cuh:3 60.0 %", said)
        self.assertIn("(nsys failed: no perf events here)", said)
        self.assertIn("by the library's own events", said)
        self.assertIn(["kernels", "gemm", "2", "15", "us", "30", "us"], lines)

        profile = json.loads((self.out / "profile.json").read_text())
        self.assertEqual(profile["device"], "NVIDIA H200")
        self.assertEqual(profile["tool"], "ncu 2025.3.1")
        named = [(row["variant"], row["kernel"]) for row in profile["rows"]]
        kernels = ("unroll", "gemm")
        self.assertEqual(named, [(f"{v}:tile=16", k) for v in ("one", "two") for k in kernels])
        asked = (self.folder / "asked").read_text()
        self.assertIn("--clock-control none", asked)
        self.assertIn("--profile-from-start off", asked)

        # What is there is not counted again.
        self.assertEqual(self.run_script("two", PROBLEM)[0], 0)
        self.assertEqual(self.runs_of_ncu(), 3)
        self.assertEqual(self.run_script("--again", "two", PROBLEM)[0], 0)
        self.assertEqual(self.runs_of_ncu(), 5)

    def test_every_variant_and_one_that_is_wrong(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        status, said = self.run_script("--all")
        self.assertEqual(status, 0, said)
        self.assertIn("never cannot do mb1000ic1ih86oc4oh80kh7: sums in f32", said)
        rows = json.loads((self.out / "profile.json").read_text())["rows"]
        counted = {(row["variant"], row["problem"]) for row in rows}
        wanted = {("one:tile=16", layer) for layer in profiler.LAYERS}
        wanted |= {("half:tile=16", f"{layer}+math=f16") for layer in profiler.LAYERS}
        self.assertEqual(counted, wanted)

        status, said = self.run_script("broken", PROBLEM)
        self.assertEqual(status, 1)
        self.assertIn("not counted: broken is wrong", said)
        # Its failure loses nothing.
        self.assertEqual(json.loads((self.out / "profile.json").read_text())["rows"], rows)

        self.assertEqual(self.run_script("--all", "--minutes", "0")[0], 75)

    def test_minutes_end_what_runs(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        began = time.monotonic()
        status, said = self.run_script("--all", "--minutes", "0.2", SLOW="half")
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual(status, 75, said)
        self.assertIn("3 of 4 are left", said)
        self.assertEqual(self.variants(), {"one:tile=16"})
        # What was cut off is no failure: it is counted the next time.
        self.assertEqual(self.run_script("--all")[0], 0)
        self.assertEqual(self.variants(), {"one:tile=16", "half:tile=16"})

    def test_what_was_counted_outlives_an_interrupt(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        process = self.start_script("--all", SLOW="half")
        slow = self.folder / "slow"
        until(lambda: slow.exists() and slow.read_text())
        # As `timeout` does.
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=40)[0]
        self.assertEqual(process.returncode, 130, said)
        self.assertNotIn("Traceback", said)
        self.assertEqual(self.variants(), {"one:tile=16"})
        with self.assertRaises(ProcessLookupError):
            os.kill(int(slow.read_text()), 0)

        # Where it was ended before it put its results together, the next run does that.
        (self.out / "profile.json").unlink()
        self.assertEqual(self.run_script("--all", "--minutes", "0")[0], 75)
        self.assertEqual(self.variants(), {"one:tile=16"})

    def test_another_gpu_is_counted_anew(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        for name, runs in ("NVIDIA H200", 2), ("NVIDIA H200", 2), ("NVIDIA A100", 4):
            self.assertEqual(self.run_script("one", PROBLEM, GPU_NAME=name)[0], 0)
            self.assertEqual(self.runs_of_ncu(), runs, name)

    def test_a_report_that_cannot_be_read(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        status, said = self.run_script("unreadable", PROBLEM)
        self.assertEqual(status, 1)
        self.assertIn("ncu cannot read its report: Failed to open the report", said)

    def test_what_makes_no_sense(self):
        self.program("ncu", NCU)
        self.program("nsys", NSYS)
        for words in ["a", "b", "c"], [PROBLEM, PROBLEM], ["--all", "one"], ["--seconds", "x"]:
            self.assertEqual(self.run_script(*words)[0], 2, words)

    def test_without_tools_their_packages_are_named(self):
        arguments = ["profile.sh", "--out", str(self.out), "one", PROBLEM]
        environment = {"CONVFORGE": str(self.folder / "bin/convforge"), "PATH": "/nowhere"}
        said = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(profiler, "PLACES", {"ncu": [], "nsys": []}))
            stack.enter_context(mock.patch.object(sys, "argv", arguments))
            stack.enter_context(mock.patch.dict(os.environ, environment, clear=True))
            stack.enter_context(contextlib.redirect_stdout(said))
            status = profiler.main()
        self.assertEqual(status, 3)
        self.assertEqual(
            said.getvalue().splitlines()[:2],
            [
                "ncu was not found on PATH, in CUDA_HOME, /usr/local/cuda* or /opt/nvidia: nothing is "
                "counted. It comes with cuda-nsight-compute-13-0 of NVIDIA's repository.",
                "nsys was not found on PATH, in CUDA_HOME, /usr/local/cuda* or /opt/nvidia: the "
                "library's own events make the timeline. It comes with cuda-nsight-systems-13-0 of "
                "NVIDIA's repository.",
            ],
        )
        self.assertTrue(list(self.out.glob("*/timeline.json")))

    def test_a_program_that_takes_too_long_is_ended(self):
        status, said = profiler.run([sys.executable, "-c", "import time; print(1); time.sleep(60)"], 1)
        self.assertEqual(status, 124)
        self.assertEqual(profiler.reason(status, said), "took too long")


if __name__ == "__main__":
    unittest.main()
