"""Tests of the steps in scripts/gpu, with programs in place of convforge and compute-sanitizer that write down how
they were called, and answer as these do."""

import json
import os
import shutil
import unittest
from pathlib import Path

from tests.packed_folder import PackedFolder

ROOT = Path(__file__).resolve().parents[2]
LIST = """[
  {
    "name": "wide",
    "family": "first",
    "kind": "kernel",
    "configs": [
      "tile=1",
      "tile=2",
      "tile=3"
    ],
    "ranked": true
  },
  {
    "name": "narrow",
    "family": "first",
    "kind": "kernel",
    "configs": [],
    "ranked": true
  },
  {
    "name": "implicit_gemm_nhwc",
    "family": "second",
    "kind": "kernel",
    "configs": [],
    "ranked": true
  },
  {
    "name": "library",
    "family": "third",
    "kind": "baseline",
    "configs": [],
    "ranked": true
  }
]
"""
# `narrow` fails one of its cases.
CONVFORGE = """#!/bin/sh
[ "$1" = list ] && cat "$LIST" && exit
echo "$@" >>"$CALLS"
case "$*" in
    *"--variant narrow"*) echo '8 passed, 1 failed, 0 skipped, 2 unsupported'; exit 1 ;;
    *) echo '9 passed, 0 failed, 1 skipped, 2 unsupported' ;;
esac
"""
# synccheck finds something in `implicit_gemm_nhwc`, racecheck in `wide`.
SANITIZER = """#!/bin/sh
tool=$2
shift 4
said=$("$@") || { echo "$said"; exit 1; }
errors=0
case "$tool $*" in
    synccheck*implicit_gemm_nhwc*)
        # It ends launches that it finds fault with, so that their cases fail.
        errors=120
        said=$(echo "$said" | sed 's/9 passed, 0 failed/0 passed, 9 failed/') ;;
    racecheck*"--variant wide"*) errors=2 ;;
esac
echo "$said"
if [ $errors != 0 ]; then
    echo '========= Barrier error detected. Divergent thread(s) in warp.'
    echo '=========     at void kernel(int)+0x90 in /somewhere/kernel.cuh:77'
    echo '=========     by thread (32,0,0) in block (0,0,0)'
fi
if [ "$tool" = racecheck ]; then
    echo "========= RACECHECK SUMMARY: $errors hazards displayed ($errors errors, 0 warnings)"
else
    echo "========= ERROR SUMMARY: $errors errors"
    [ $errors = 0 ] || echo '========= ERROR SUMMARY: 20 errors were not printed. Use --print-limit option'
fi
[ $errors = 0 ] || exit 9
"""
# One of candle's models.
MODELS = """#!/bin/sh
echo "$@" >>"$CALLS"
echo '{"cudnn": false, "difference": 1e-6, "from_f32": null, "convforge_ms": 2.0, "candle_ms": 5.0,' \\
    '"convforge_bytes": 1048576, "candle_bytes": 2097152, "layers": []}'
"""
HOST = """#!/bin/sh
echo "host $*" >>"$CALLS"
header='variant                        calls   bare us    run us     (p10 to p90)  ratio'
library='library:auto                       2      4.00      6.00 (  5.50 to   6.70)   1.50'
if [ -n "$LD_PRELOAD" ]; then
    echo "$header   library    others  ratio"
    echo "$library      3.00      2.00   LIBRARY"
else
    echo "$header"
    echo 'wide                               1      3.00      WIDE (  3.50 to   3.70)   WIDE'
    echo "$library"
    echo 'missing                        not measured: libmissing.so could not be used: (1 to 2) of 3'
fi
"""


class Steps(PackedFolder):
    def setUp(self):
        super().setUp()
        self.program("bin/convforge", CONVFORGE)
        self.program("tools/compute-sanitizer", SANITIZER)
        self.file("list.json", LIST)

    def run_it(self, *arguments):
        """The answer, and the calls of the command."""
        tools = f"{self.folder / 'tools'}:{os.environ['PATH']}"
        return self.run_gpu(*arguments, LIST=str(self.folder / "list.json"), PATH=tools)

    def steps_last(self, seconds):
        """At most so long."""
        gpu = (self.folder / "gpu.sh").read_text(encoding="utf-8")
        gpu = gpu.replace("STEP_SECONDS=480", f"STEP_SECONDS={seconds}")
        (self.folder / "gpu.sh").write_text(gpu, encoding="utf-8")

    def line(self, answer, begins):
        (found,) = [line for line in answer.stdout.splitlines() if line.startswith(begins)]
        return found.split()

    def test_a_familys_problems_are_shared_by_its_configurations(self):
        answer, calls = self.run_it("check", "--each", "10", "first", "implicit_gemm_nhwc")
        self.assertEqual([call.split("--configs all ")[1] for call in calls], [
            "--each 3 --seed 1 --judge gpu --jobs 8", "--each 3 --seed 1 --judge gpu --jobs 8",
            "--each 10 --seed 1 --judge gpu --jobs 8",
        ])
        self.assertIn("--variant wide", calls[0])
        self.assertEqual(self.line(answer, "each wide")[2:7], ["1", "9", "0", "1", "2"])
        self.assertEqual(self.line(answer, "each narrow")[2:5], ["1", "8", "1"])
        self.assertEqual(self.line(answer, "all ")[1:], ["3", "26", "1", "2", "6"])
        self.assertEqual(answer.returncode, 1)
        self.assertIn("each narrow", (self.results / "verdict.txt").read_text(encoding="utf-8"))

    def test_how_the_list_is_laid_out_does_not_matter(self):
        _, wanted = self.run_it("--out", str(self.folder / "indented"), "check", "--each", "10", "first")
        self.file("list.json", json.dumps(json.loads(LIST)))
        _, calls = self.run_it("check", "--each", "10", "first")
        self.assertEqual((len(calls), calls), (2, wanted))

    def test_a_list_that_cannot_be_read_is_told(self):
        self.program("bin/tests/variants", "#!/bin/sh\n")
        for text in ("", "no JSON", LIST.replace('"family"', '"group"')):
            self.file("list.json", text)
            for command in (("check", "--each", "10"), ("huge",), ("sanitize",), ("test",)):
                answer, calls = self.run_it(*command)
                self.assertEqual((answer.returncode, calls), (1, []), text)
                self.assertIn("python3 could not read", answer.stderr)

    def test_many_problems_are_steps_with_seeds_of_their_own(self):
        _, calls = self.run_it("--seed", "4", "check", "--each", "12000", "implicit_gemm_nhwc")
        self.assertEqual([call.split("--each ")[1].split(" --judge")[0] for call in calls],
                         ["5000 --seed 4", "5000 --seed 5", "2000 --seed 6"])
        _, again = self.run_it("--seed", "4", "check", "--each", "12000", "implicit_gemm_nhwc")
        self.assertEqual(again, [])

    def test_a_step_that_was_stopped_waits_for_the_others(self):
        self.file("results/stopped.txt", "each-wide-2-seed-1\n")
        answer, calls = self.run_it("check", "--each", "5", "wide", "implicit_gemm_nhwc")
        self.assertEqual([call.split("--variant ")[1].split()[0] for call in calls], ["implicit_gemm_nhwc", "wide"])
        self.assertEqual(answer.returncode, 0)

    def test_a_step_that_is_cut_off_is_noted(self):
        self.steps_last(1)
        self.program("bin/convforge", CONVFORGE.replace("case", "sleep 9; case", 1))
        answer, _ = self.run_it("check", "--each", "5", "implicit_gemm_nhwc")
        self.assertEqual(answer.returncode, 75)
        self.assertIn("stopped, not done: each-implicit_gemm_nhwc-5-seed-1", answer.stdout)
        stopped = (self.results / "stopped.txt").read_text(encoding="utf-8")
        self.assertEqual(stopped, "each-implicit_gemm_nhwc-5-seed-1\n")

    def test_minutes_have_fractions(self):
        # Three seconds are too few to begin with.
        answer, calls = self.run_it("--minutes", "0.05", "check", "--each", "5", "implicit_gemm_nhwc")
        self.assertEqual((answer.returncode, calls), (75, []))
        answer, calls = self.run_it("--minutes", "2.5", "check", "--each", "5", "implicit_gemm_nhwc")
        self.assertEqual((answer.returncode, len(calls)), (0, 1))

    def test_minutes_stop_what_runs(self):
        self.program("bin/convforge", CONVFORGE.replace("case", "sleep 20; case", 1))
        # Twelve seconds; with fewer than five left nothing begins, and a busy machine takes some before.
        answer, _ = self.run_it("--minutes", "0.2", "check", "--each", "5", "implicit_gemm_nhwc")
        self.assertEqual(answer.returncode, 75)
        self.assertIn("each-implicit_gemm_nhwc-5-seed-1: stopped after", answer.stdout)
        self.assertFalse((self.results / "stopped.txt").exists())

    def test_what_is_no_number_of_minutes_is_told(self):
        for minutes in ("soon", "0", "0.0", "-1", "2,5", ".5", "2.", "1e3", "2.5m"):
            answer, calls = self.run_it("--minutes", minutes, "check", "--each", "5", "first")
            self.assertEqual((answer.returncode, calls), (2, []))
            self.assertIn(f"--minutes takes a number of minutes, as 9 or 2.5, not '{minutes}'", answer.stderr)

    def test_workers_share_steps(self):
        # None ends before all three have begun, however late a worker comes.
        together = 'until [ "$(wc -l <"$CALLS")" = 3 ]; do sleep 0.05; done; case'
        self.program("bin/convforge", CONVFORGE.replace("case", together, 1))
        self.steps_last(60)
        answer, calls = self.run_it("--device", "gpu:0,gpu:1,gpu:2", "check", "--each", "10", "first", "second")
        self.assertEqual(sorted(call.split("--variant ")[1].split(" --judge")[0] for call in calls), [
            "implicit_gemm_nhwc --configs all --each 10 --seed 1", "narrow --configs all --each 3 --seed 1",
            "wide --configs all --each 3 --seed 1",
        ])
        self.assertEqual(sorted(call.split("--device ")[1].split()[0] for call in calls), ["gpu:0", "gpu:1", "gpu:2"])
        self.assertEqual(self.line(answer, "all ")[1:], ["3", "26", "1", "2", "6"])
        self.assertEqual(answer.returncode, 1)
        log = (self.results / "log.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.startswith("=== each-") for line in log], [True, False] * 3)

    def test_a_device_has_one_worker(self):
        for devices in ("gpu:0,gpu:1,gpu:0", "gpu,gpu:0"):
            for command in (("check", "--each", "10"), ("huge",), ("tails",), ("sanitize",)):
                answer, calls = self.run_it("--device", devices, *command, "first")
                self.assertEqual((answer.returncode, calls), (2, []))
                self.assertIn("a device is named twice", answer.stderr)

    def test_workers_tell_what_they_did_not_end(self):
        self.steps_last(1)
        self.program("bin/convforge", CONVFORGE.replace("case", "sleep 9; case", 1))
        answer, _ = self.run_it("--device", "gpu:0,gpu:1", "check", "--each", "5", "implicit_gemm_nhwc")
        self.assertEqual(answer.returncode, 75)
        self.assertIn("stopped, not done: each-implicit_gemm_nhwc-5-seed-1", answer.stdout)

    def test_other_commands_take_one_device(self):
        answer, calls = self.run_it("--device", "gpu:0,gpu:1", "host")
        self.assertEqual((answer.returncode, calls), (2, []))
        self.assertIn("host takes one device", answer.stderr)

    def test_libraries_and_unknown_names_are_refused(self):
        for name in ("library", "third", "narro"):
            for command in (("check", "--each", "10"), ("huge",), ("tails",), ("sanitize",)):
                answer, calls = self.run_it(*command, "first", name)
                self.assertEqual((answer.returncode, calls), (2, []))
                self.assertIn(f"named '{name}'", answer.stderr)

    def test_a_step_without_counts_is_told(self):
        self.program("bin/convforge", CONVFORGE.replace("echo '9 passed, 0 failed, 1 skipped, 2 unsupported'", "exit 1"))
        answer, _ = self.run_it("check", "--each", "10", "implicit_gemm_nhwc")
        self.assertIn("1 steps have no answer", answer.stdout)
        self.assertEqual(answer.returncode, 1)

    def test_every_huge_problem_meets_every_family(self):
        _, calls = self.run_it("huge", "first")
        self.assertEqual(len(calls), 7)
        self.assertIn("--shard 7/7 --variant wide --variant narrow --configs first", calls[6])
        suite = (ROOT / "crates/tools/src/suites/huge.txt").read_text(encoding="utf-8").splitlines()
        self.assertEqual(len([line for line in suite if not line.startswith("#")]), 7)

    def test_the_tails_of_each_configuration_are_shared_by_steps(self):
        # 6153 problems, at most 5000 cases a step and one step more.
        for name, configs, steps in (("implicit_gemm_nhwc", 1, 3), ("wide", 3, 5)):
            _, calls = self.run_it("tails", name)
            self.assertEqual(calls, [
                f"check --device gpu --tails --shard {part}/{steps} --variant {name} --configs all --data integer "
                "--data normal --seed 1 --judge gpu --jobs 8" for part in range(1, steps + 1)
            ])
            self.assertEqual(len(calls), 6153 * configs // 5000 + 2)
        _, again = self.run_it("tails", "implicit_gemm_nhwc", "wide")
        self.assertEqual(again, [])

    def test_errors_are_shown_with_their_places_and_fail(self):
        answer, calls = self.run_it("sanitize", "implicit_gemm_nhwc")
        self.assertEqual(len(calls), 4)
        self.assertEqual(self.line(answer, "implicit_gemm_nhwc ")[1:], ["0/9", "0/9", "120/0", "!", "0/9"])
        self.assertIn("120 errors", answer.stdout)
        self.assertIn("synccheck-implicit_gemm_nhwc kernel.cuh:77: 1 shown", answer.stdout)
        self.assertEqual(answer.returncode, 1, answer.stdout)

    def test_missing_answers_fail(self):
        answer, calls = self.run_it("sanitize", "first")
        # racecheck takes each of the configurations by itself.
        self.assertEqual(len([call for call in calls if "--data integer" in call]), 4)
        self.assertEqual(self.line(answer, "wide ")[1:], ["0/9", "0/9", "0/9", "6/27", "!"])
        self.assertEqual(self.line(answer, "narrow ")[1:], ["no", "answer"] * 4)
        self.assertEqual(answer.returncode, 1)

    def test_a_sanitizer_that_says_nothing_is_no_answer(self):
        self.program("tools/compute-sanitizer", '#!/bin/sh\nshift 4\nexec "$@"\n')
        answer, _ = self.run_it("sanitize", "wide")
        self.assertEqual(self.line(answer, "wide ")[1:], ["no", "answer"] * 4)
        self.assertEqual(answer.returncode, 1)

    def test_the_trials_of_all_variants_are_a_step_for_each(self):
        for name in ("conv", "variants"):
            self.program(f"bin/tests/{name}", f"#!/bin/sh\necho \"{name} [$*]\" >>\"$CALLS\"\n")
        answer, calls = self.run_it("test")
        self.assertEqual(calls, ["conv []", "variants [wide:]", "variants [narrow ]", "variants [implicit_gemm_nhwc ]",
                                 "variants [library ]"])
        self.assertIn("test-variants-library: status 0", answer.stdout)

    def hosts_time(self, wide="1.20", library="1.20", host=HOST):
        """The answer of `host`: a row's ratio to the bare calls, a library's to its own and the others."""
        shutil.rmtree(self.results, ignore_errors=True)
        # Nothing has to be there for the loader to go on without it.
        self.program("bin/inside.so", "")
        self.program("bin/host", host.replace("WIDE", wide).replace("LIBRARY", library))
        return self.run_it("host")

    def test_the_hosts_time_is_held_to_its_limit(self):
        answer, calls = self.hosts_time()
        self.assertEqual(calls, ["host ", "host cublas cudnn"])
        self.assertIn("1 rows, of which 0 take more than 1.3 times the bare calls; the most is 1.20", answer.stdout)
        self.assertIn("library:auto takes 1.50 times the bare calls, and 1.20 times its own and the other bare calls\n",
                      answer.stdout)
        self.assertEqual(answer.returncode, 0, answer.stdout)
        answer, _ = self.hosts_time(wide="1.40")
        self.assertIn("1 rows, of which 1 take more than 1.3 times the bare calls; the most is 1.40", answer.stdout)
        self.assertEqual(self.line(answer, "  wide")[-1], "1.40")
        self.assertEqual(answer.returncode, 1)

    def test_a_library_is_held_to_its_own_calls_and_the_others(self):
        answer, _ = self.hosts_time(library="1.31")
        self.assertIn("and 1.31 times its own and the other bare calls: more than 1.3\n", answer.stdout)
        self.assertEqual(answer.returncode, 1)
        # Where these are not known, as any other.
        answer, _ = self.hosts_time(library="inf")
        self.assertIn("2 rows, of which 1 take more than 1.3 times the bare calls; the most is 1.50", answer.stdout)
        self.assertEqual(answer.returncode, 1)

    def test_a_row_without_a_problem_fails_the_hosts_time(self):
        answer, _ = self.hosts_time(host=HOST + "echo 'error: without a problem: narrow' >&2; exit 1\n")
        self.assertIn("FAILED", answer.stdout)
        self.assertIn("without a problem: narrow", answer.stdout)
        self.assertEqual(answer.returncode, 1)

    def test_a_tenth_is_compared_in_steps_of_eight_problems(self):
        self.copy("tenth.py", "results.py")
        self.file("benches/record.txt", "")
        rows = [f'{{"problem": "mb{n}ic3ih9oc4kh3", "variant": "wide", "median_us": 9, "suite": "s", "layer": "l"}}'
                for n in range(100)]
        section = '{"section": "rows", "usual": {"passed": {"status": "passed"}}}'
        text = "\n".join(['{"environment": {}}', section, *rows]) + "\n"
        self.file("benches/results/gpu.jsonl", text)
        _, calls = self.run_it("--seed", "3", "--any-libraries", "--within", "2", "tenth")
        drawn = (self.results / "tenth-3.txt").read_text(encoding="utf-8").splitlines()
        self.assertTrue(3 < len(drawn) < 20, drawn)
        self.assertTrue(all(line.startswith("s.l mb") for line in drawn), drawn)
        self.assertEqual(len(calls), (len(drawn) + 7) // 8)
        self.assertTrue(all(call.startswith("compare --device gpu --suite ") for call in calls), calls)
        self.assertTrue(all(" --again --within 2 --unless " in call for call in calls), calls)

    def test_each_line_of_counters_is_profiled(self):
        self.program("profile.sh", '#!/bin/sh\necho "$@" >>"$CALLS"\n')
        self.file("benches/record.txt", "")
        shutil.copy(ROOT / "benches/counters.txt", self.folder / "benches")
        _, calls = self.run_it("counters")
        listed = [line for line in (ROOT / "benches/counters.txt").read_text(encoding="utf-8").splitlines()
                  if not line.startswith("#")]
        self.assertEqual([" ".join(call.split()[-2:]) for call in calls], listed)

    def test_candles_models_run_both_ways_and_end_in_a_table(self):
        self.copy("models.py")
        for build in ("candle", "candle-cudnn"):
            self.program(f"bin/{build}", MODELS)
        answer, calls = self.run_it("candle")
        self.assertEqual(len(calls), 20)
        self.assertEqual(calls[4], "--device cuda --dtype f32 --batch 1 --model vae --layers --json --seconds 0.5")
        self.assertEqual(len([line for line in answer.stdout.splitlines() if "| 2.00 | 5.00 | 2.50 |" in line]), 20)
        self.assertEqual(answer.returncode, 0)

    def test_what_was_not_packed_is_told(self):
        for command in ("test", "host", "guide", "candle"):
            answer, _ = self.run_it(command)
            self.assertEqual(answer.returncode, 1, command)
            self.assertIn("scripts/pack.sh", answer.stderr)


if __name__ == "__main__":
    unittest.main()
