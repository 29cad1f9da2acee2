"""Tests of gpu.sh with a program in convforge's place that writes down how it was called."""

import os
import shutil
import tarfile
import unittest
from pathlib import Path

from tests.packed_folder import PackedFolder

# It writes the file that it is told, a row more each time. Where $DIES names a file that is there, it dies the first
# time; where $STUCK does, each time, of which the first two leave a row. A folder's library has the version that lies
# in `version` beside it; the loader's are those of $CUBLAS and $CUDNN.
PROGRAM = """#!/bin/sh
library() {
    if [ -n "$2" ]; then version=$(cat "$2/version" 2>/dev/null); else version=$3; fi
    if [ -n "$version" ]; then version="\\"$version\\""; else version=null; fi
    printf '{"name": "%s", "version": %s, "error": null}' "$1" "$version"
}
if [ "$1" = devices ]; then
    printf '{"csrc": "0123456789abcdef", "libraries": [%s, %s]}' \
        "$(library cuBLAS "$CONVFORGE_CUBLAS_LIB" "$CUBLAS")" "$(library cuDNN "$CONVFORGE_CUDNN_LIB" "$CUDNN")"
    exit
fi
echo "$@" >>"$CALLS"
[ -e "$DIES" ] && rm "$DIES" && kill -9 $$
calls=$(wc -l <"$CALLS")
[ -e "$STUCK" ] && [ "$calls" -gt 2 ] && kill -9 $$
while [ $# -gt 0 ]; do
    [ "$1" = --out ] && printf '{"rows": [{"reason": "slow"}%s]}' \
        "$(yes ', {"reason": null}' | head -n "$calls" | tr -d '\n')" >"$2"
    shift
done
[ -e "$STUCK" ] && kill -9 $$
echo "     6 s for 1 problems, 0 are fresh"
"""
# It looks in the folder of a Python alone, whatever it is told.
FIND = """#!/bin/sh
while [ "${1#/}" != "$1" ]; do shift; done
exec "$FIND" "$VIRTUAL_ENV" "$@"
"""
RECORD = """# A remark.
small --suite a --batch 1
small --suite a --batch 16
large --suite b
*more-f16 --suite c --storage f16
*more-f32 --suite c
*smaller --suite d
"""


# In toolkit.lock's place.
LOCK = """nvidia-cublas==13.1.0.3 --hash=sha256:0
nvidia-cudnn-cu13==9.19.0.56 --hash=sha256:0
"""


class Records(PackedFolder):
    def setUp(self):
        super().setUp()
        self.program("bin/convforge", PROGRAM)
        self.program("tools/find", FIND)
        (self.folder / "python").mkdir()
        self.file("benches/record.txt", RECORD)
        self.file("toolkit.lock", LOCK)

    def run_it(self, *arguments, device="cpu", **variables):
        """The answer, and the options of each call of `compare` before the device."""
        place = ["--device", device] if device else []
        variables = {"CUBLAS": "13.1.0", "CUDNN": "9.19.0", "CONVFORGE_CUBLAS_LIB": "", "CONVFORGE_CUDNN_LIB": "",
                     "DIES": str(self.folder / "dies"), "STUCK": str(self.folder / "stuck"), "CONVFORGE_CUDNN_PLANS": "",
                     "VIRTUAL_ENV": str(self.folder / "python"), "FIND": shutil.which("find"),
                     "PATH": f"{self.folder / 'tools'}:{os.environ['PATH']}", **variables}
        answer, self.calls = self.run_gpu(*place, *arguments, **variables)
        compared = [line.removeprefix("compare ") for line in self.calls if line.startswith("compare ")]
        return answer, [line.split(" --device")[0].split(" --as")[0] for line in compared]

    def test_what_has_a_star_is_left_out_and_the_order_is_the_files(self):
        answer, options = self.run_it("plan")
        self.assertEqual(options, ["--suite a --batch 1", "--suite a --batch 16", "--suite b"])
        self.assertTrue(all(" --plan" in line and "--out" not in line for line in self.calls))
        self.assertIn("6 s for 1 problems, 0 are fresh\tlarge --suite b\n", answer.stdout)
        self.assertIn("0 minutes of one GPU", answer.stdout)

    def test_what_has_a_star_is_taken_by_its_name(self):
        self.assertEqual(self.run_it("plan", "smaller", "large")[1], ["--suite d", "--suite b"])
        several = ["--suite c --storage f16", "--suite c"]
        self.assertEqual(self.run_it("plan", "more-*")[1], several)

    def test_a_chip_that_is_not_here_is_planned_for(self):
        answer, options = self.run_it("--as", "h200", "plan", "large", device=None)
        self.assertEqual((answer.returncode, options), (0, ["--suite b"]), answer.stderr)
        self.assertIn("compare --suite b --as h200 --plan --fastest-configs --unless", self.calls[0])
        self.assertEqual(self.run_it("--as", "h200", "record")[0].returncode, 2)

    def test_what_cannot_be_planned_fails(self):
        self.program("bin/convforge", PROGRAM.replace('echo "     6 s', "exit 1 #"))
        self.assertEqual(self.run_it("plan")[0].returncode, 1)

    def test_it_is_recorded_under_its_name(self):
        answer, options = self.run_it("record", "smaller")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(options, ["--suite d"])
        self.assertIn("record-smaller-1-01234567", answer.stdout)
        # What is done is not done again.
        self.assertEqual(self.run_it("record", "smaller")[1], [])

    def test_what_is_fresh_and_what_is_known_is_told(self):
        self.file("benches/cudnn-plans.jsonl", "")
        self.run_it("record", "large")
        results, benches = self.results, self.folder / "benches"
        for words in (
            f"--unless {benches}/results --unless {results}/record",
            f"--cudnn-stored finalists --cudnn-seconds 120 --cudnn-known {benches}/cudnn-plans.jsonl",
        ):
            self.assertIn(words, self.calls[0])

    def test_gpus_share_comparisons_and_have_files_of_their_own(self):
        answer, options = self.run_it("record", device="gpu:0,gpu:1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(sorted(options), ["--suite a --batch 1", "--suite a --batch 16", "--suite b"])
        for line in self.calls:
            device = line.split("--device gpu:")[1][0]
            self.assertIn(f"-01234567-gpu{device}.json --resume", line)
        for file in (self.results / "record").iterdir():
            self.assertRegex(file.name, r"^\w+-(small|large)-01234567-gpu[01]\.json$")

    def test_gpus_share_the_problems_of_what_has_a_star(self):
        answer, options = self.run_it("record", "smaller", "large", device="gpu:0,gpu:1")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(sorted(options), ["--suite b", "--suite d --shard 1/2", "--suite d --shard 2/2"])
        self.assertIn("record-smaller-1-2-of-2-01234567", answer.stdout)

    def test_a_device_does_not_measure_beside_itself(self):
        answer, options = self.run_it("record", device="gpu:0,gpu:0")
        self.assertEqual((answer.returncode, options), (2, []))
        self.assertIn("a device is named twice", answer.stderr)

    def test_who_is_killed_goes_on(self):
        self.file("dies", "")
        answer, options = self.run_it("record", "large")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(options, ["--suite b"] * 2)
        steps = (self.results / "steps.tsv").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split("\t")[:2] for line in steps], [["record-large-1-01234567", "0"]])

    def test_who_does_not_get_on_is_given_up(self):
        self.file("stuck", "")
        answer, options = self.run_it("record", "large")
        self.assertEqual((answer.returncode, options), (75, ["--suite b"] * (2 + 3)), answer.stderr)

    def test_what_cannot_be_read_is_told(self):
        self.program("bin/convforge", PROGRAM.replace('"csrc": ', '"sources": '))
        answer, options = self.run_it("record", "large")
        self.assertEqual((answer.returncode, options), (1, []))
        self.assertIn("python3 could not read", answer.stderr)
        answer, options = self.run_it("record", "large", device="gpu", CUDNN='9"')
        self.assertEqual((answer.returncode, options), (1, []))
        self.assertIn("python3 could not read", answer.stderr)

    def test_searches_are_kept_after_each_comparison(self):
        plans = self.results / "cudnn-plans"
        self.assertNotIn("searches", " ".join(self.run_it("record", "large")[1]))
        plans.mkdir()
        self.run_it("record", "small")
        kept = f"searches {plans} --keep {plans}.jsonl"
        self.assertEqual([line for line in self.calls if "compare" not in line], [kept] * 2)

    def test_one_file_has_all_that_is_to_be_brought_back(self):
        self.run_it("record", device="gpu:0,gpu:1")
        self.file("results/cudnn-plans.jsonl", "{}")
        self.run_it("record", "smaller")
        with tarfile.open(self.results / "record.tgz") as bundle:
            names = {Path(name).name for name in bundle.getnames()}
        measured = {file.name for file in (self.results / "record").iterdir()}
        self.assertEqual(names, measured | {"record", "steps.tsv", "cudnn-plans.jsonl"})
        self.assertEqual([file.name for file in self.results.glob("record.tgz*")], ["record.tgz"])

    def test_an_unknown_name_is_told(self):
        for name in ("smal", "*.x"):
            answer, options = self.run_it("plan", "large", name)
            self.assertEqual((answer.returncode, options), (2, []))
            self.assertIn(f"no comparison named '{name}'", answer.stderr)

    def python_has(self, version):
        """Puts cuDNN of this version where pip does."""
        name = f"python/lib/python3.{len(version)}/site-packages/nvidia/cudnn/lib"
        self.file(f"{name}/libcudnn.so.9", "")
        return self.file(f"{name}/version", version).parent

    def test_another_version_of_a_library_is_refused(self):
        older = self.python_has("9.1.0")
        answer, options = self.run_it("record", "large", device="gpu", CUDNN="9.14.0")
        self.assertEqual((answer.returncode, options), (1, []))
        for words in ("cuDNN is 9.14.0, and results are kept of 9.19.0", f"  9.1.0: {older}\n",
                      "CONVFORGE_CUDNN_LIB=FOLDER", "nvidia-cudnn-cu13==9.19.0.56", "--any-libraries"):
            self.assertIn(words, answer.stderr)
        self.assertNotIn("cuBLAS is", answer.stderr)
        for other in (("plan", "large"), ("tenth",)):
            answer, _ = self.run_it(*other, device="gpu", CUDNN="9.14.0")
            self.assertEqual(answer.returncode, 1)
            self.assertIn("cuDNN is 9.14.0", answer.stderr)
        answer, options = self.run_it("--any-libraries", "record", "large", device="gpu", CUDNN="9.14.0")
        self.assertEqual((answer.returncode, options), (0, ["--suite b"]), answer.stderr)
        # What that measured is not what the right one would.
        self.assertEqual(self.run_it("record", "large", device="gpu", CUDNN="9.19.0")[1], ["--suite b"])

    def test_what_within_leaves_out_is_measured_without_it(self):
        self.run_it("--within", "4", "record", "large")
        self.assertTrue(self.calls[0].endswith("/benches/results/rows --within 4"), self.calls)
        self.assertEqual(self.run_it("record", "large")[1], ["--suite b"])
        self.assertNotIn("--within", self.calls[-1])

    def test_what_is_fresh_is_measured_again_where_that_is_asked_for(self):
        self.run_it("--again", "record", "large")
        self.assertTrue(self.calls[0].endswith(" --again"), self.calls)
        self.assertEqual(self.run_it("record", "large")[1], ["--suite b"])
        self.assertNotIn("--again", self.calls[-1])
        answer, options = self.run_it("--again", "check")
        self.assertEqual((answer.returncode, options), (2, []))
        self.assertIn("--again is for record and plan", answer.stderr)

    def test_every_library_that_is_wrong_or_missing_is_told(self):
        answer, _ = self.run_it("record", device="gpu", CUBLAS="12.9.1", CUDNN="")
        self.assertIn("cuBLAS is 12.9.1, and results are kept of 13.1.0", answer.stderr)
        self.assertIn("cuDNN is missing or cannot be opened, and", answer.stderr)

    def test_the_right_library_is_taken_from_where_it_lies(self):
        self.python_has("9.1.0")
        right = self.python_has("9.19.0")
        tells = PROGRAM.replace('echo "$@" >>', 'echo "$@" "$CONVFORGE_CUDNN_LIB," >>')
        self.program("bin/convforge", tells)
        answer, options = self.run_it("record", "large", device="gpu", CUDNN="9.14.0")
        self.assertEqual((answer.returncode, len(options)), (0, 1), answer.stderr)
        self.assertIn(f"cuDNN 9.19.0 of {right} is taken", answer.stderr)
        self.assertIn(f" {right},", self.calls[0])

    def test_a_folder_that_is_named_is_not_replaced(self):
        older, right = self.python_has("9.1.0"), self.python_has("9.19.0")
        answer, options = self.run_it("record", device="gpu", CONVFORGE_CUDNN_LIB=str(older))
        self.assertEqual((answer.returncode, options), (1, []))
        self.assertIn(f"cuDNN is 9.1.0 (by {older})", answer.stderr)
        self.assertIn(f"  9.19.0: {right}\n", answer.stderr)
        answer, options = self.run_it("record", "large", device="gpu", CUDNN="9.14.0", CONVFORGE_CUDNN_LIB=str(right))
        self.assertEqual((answer.returncode, options, answer.stderr), (0, ["--suite b"], ""))

    def test_the_lock_names_the_libraries(self):
        self.copy("toolkit.lock")
        answer, _ = self.run_it("record", device="gpu", CUBLAS="1.0.0", CUDNN="1.0.0")
        self.assertRegex(answer.stderr, r"(?s)cuBLAS is 1.0.0, and results are kept of \d+\.\d+\.\d+ .*"
                                        r"cuDNN is 1.0.0, and results are kept of \d+\.\d+\.\d+ ")


if __name__ == "__main__":
    unittest.main()
