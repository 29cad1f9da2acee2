#!/usr/bin/env python3
"""Profiles variants under Nsight Compute (ncu: speed of light, occupancy, memory, pipes, stalls,
divergence by line of source) and Nsight Systems (nsys: timeline, summaries of kernels, copies and
API calls), prints a summary, and compares two variants. Where nsys cannot run, the library's own
events make the timeline.

  profile.sh [VARIANT [VARIANT2]] [PROBLEM]   these; without any, a pair that differs much
  profile.sh --all [PROBLEM...]               the counters of every variant of the GPU; without a
                                              problem on the layers of report-86 with 1000 images

Reports lie in a folder for each variant and problem. The counters of all of them are kept in
profile.json beside these; what it has is not counted again, so the same command goes on where the
last one stopped.

Exit status: 0 all well, 1 something failed, 2 wrong usage, 3 no profiler, 75 not finished: call it
again, 130 interrupted.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import counters
from profiler_text import aligned, compared, shown, summary_of

HERE = Path(__file__).resolve().parent
PAIR = ["direct_naive", "direct_shared_unroll"]
LAYERS = ["mb1000ic1ih86oc4oh80kh7", "mb1000ic4ih40oc16oh34kh7"]
# A variant that cannot do a layer of LAYERS as it stands is tried with other math.
MATHS = ["", "+math=f16", "+math=f16acc"]
# Calls on a timeline; ncu repeats a single one as often as it needs.
CALLS = 5
FAILED, USAGE, NO_PROFILER, UNFINISHED, INTERRUPTED = 1, 2, 3, 75, 130
PACKAGES = {
    "ncu": "cuda-nsight-compute-13-0 of NVIDIA's repository",
    "nsys": "cuda-nsight-systems-13-0 of NVIDIA's repository",
}
PLACES = {
    "ncu": ["/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"],
    "nsys": ["/usr/local/cuda*/bin/nsys", "/opt/nvidia/nsight-systems*/**/bin/nsys"],
}
WITHOUT = {"ncu": "nothing is counted", "nsys": "the library's own events make the timeline"}


class Failure(Exception):
    """Told to the user as it is, without a traceback."""

    def __init__(self, text, status=FAILED):
        super().__init__(text)
        self.status = status


class OutOfTime(Exception):
    """The minutes are over."""


# Programs --------------------------------------------------------------------------------------


def find_convforge():
    places = [os.environ.get("CONVFORGE"), HERE / "bin/convforge",
              HERE.parent / "target/release/convforge", shutil.which("convforge")]
    for place in places:
        if place and os.access(place, os.X_OK):
            return str(place)
    raise Failure(f"no convforge in {HERE}/bin, in ../target/release or on PATH; CONVFORGE may name it")


def find_tool(name):
    """Nsight Compute or Systems: on PATH, in the toolkit or where their own packages put them."""
    homes = [os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH")]
    places = [shutil.which(name), *(f"{home}/bin/{name}" for home in homes if home)]
    for pattern in PLACES[name]:
        places += sorted(Path("/").glob(pattern.lstrip("/")), reverse=True)  # the newest first
    for place in places:
        if place and os.access(place, os.X_OK):
            return str(place)
    return None


def version(ncu):
    """`ncu 2025.3.1`."""
    said = run([ncu, "--version"], 60)[1]
    found = re.search(r"Version (\d+\.\d+\.\d+)", said)
    return f"ncu {found[1]}" if found else "ncu"


def run(command, seconds, output=None):
    """The exit status of a program and what it printed, which also goes to the file `output`; 124
    where it took too long."""
    process = subprocess.Popen(
        list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    try:
        said = process.communicate(timeout=seconds)[0]
        status = process.returncode
    except subprocess.TimeoutExpired:
        said, status = stop(process), 124
    except KeyboardInterrupt:
        stop(process)
        raise
    if output:
        output.write_text(said, encoding="utf-8")
    return status, said


def stop(process):
    """Ends a program and what it started, giving it time to write down what it has; answers what
    it printed."""
    for sign, seconds in (signal.SIGINT, 20), (signal.SIGKILL, None):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            pass
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            continue


def json_of(text):
    """The JSON in what a program printed, between whatever else is there; none where there is none."""
    start = re.search(r"^[\[{]$", text, re.MULTILINE)
    try:
        return json.JSONDecoder().raw_decode(text, start.start())[0] if start else None
    except ValueError:
        return None


def reason(status, said):
    """Why a program failed, by its own last words."""
    if status == 124:
        return "took too long"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # What ncu says of the program's failure comes after the program's own reason.
    for mark in ("error: ", "==ERROR== "):
        told = [line.split(mark, 1)[1] for line in lines if mark in line]
        if told:
            return told[-1]
    return lines[-1] if lines else f"exit status {status}"


def write(path, value):
    """Writes JSON so that the file is whole at any time."""
    beside = path.with_name(path.name + ".part")
    beside.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def read(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


# Profiling -------------------------------------------------------------------------------------


class Profiler:
    """What there is to profile with, and what it found."""

    def __init__(self, args):
        self.args, self.out = args, args.out
        minutes = float("inf") if args.minutes is None else args.minutes
        self.end = time.monotonic() + 60 * minutes
        self.convforge = find_convforge()
        self.tools = {name: find_tool(name) for name in PACKAGES}
        self.absent = set()  # metrics that this chip does not have
        self.failed = False
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise Failure(f"{self.out}: {why.strerror}")
        about = self.ask("devices")
        device = "gpu:0" if args.device == "gpu" else args.device
        names = {entry["device"]: entry["name"] for entry in about["devices"]}
        self.tool = version(self.tools["ncu"]) if self.tools["ncu"] else None
        # What results must have in common to stand in one file.
        self.stamp = {"device": names.get(device), "csrc": about["csrc"], "tool": self.tool}
        for name, path in self.tools.items():
            if not path:
                print(
                    f"{name} was not found on PATH, in CUDA_HOME, /usr/local/cuda* or /opt/nvidia: "
                    f"{WITHOUT[name]}. It comes with {PACKAGES[name]}."
                )

    def ask(self, *words):
        """The JSON that a subcommand of convforge prints."""
        status, said = run([self.convforge, *words, "--json"], 120)
        answer = json_of(said)
        if status or answer is None:
            raise Failure(f"convforge {words[0]}: {reason(status, said)}")
        return answer

    def supported(self, problem):
        """The names of the GPU's variants, each with why it cannot do the problem, if so."""
        known = self.ask("list", "--device", self.args.device, "--problem", problem)
        return {
            entry["name"]: None if entry["answer"]["supported"] else entry["answer"]["reason"]
            for entry in known
            if entry["kind"] != "cpu"
        }

    def folder(self, variant, problem):
        name = re.sub(r"[^\w.=+-]", "_", f"{variant}--{problem}")
        folder = self.out / name
        folder.mkdir(exist_ok=True)
        return folder

    def call(self, variant, problem, calls):
        return [self.convforge, "profile", variant, "--problem", problem, "--runs", calls,
                "--device", self.args.device, "--json"]

    def run(self, command, seconds, output=None):
        """As `run`, but no longer than --minutes allows."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise OutOfTime
        status, said = run(command, min(seconds, left), output)
        if status == 124 and left <= seconds:
            raise OutOfTime
        return status, said

    def is_alike(self, result):
        return all(result.get(key) == value for key, value in self.stamp.items())

    def known(self, variant, problem):
        """What was counted before, of the same sources by the same tool on such a device."""
        found = read(self.folder(variant, problem) / "result.json")
        return found if found and self.is_alike(found) and not self.args.again else None

    def count(self, variant, problem):
        """What ncu counts in one call, kept in the folder's result.json."""
        folder = self.folder(variant, problem)
        result = {"asked": variant, "problem": problem, **self.stamp, "environment": None, "why": None,
                  "rows": []}
        status, said = self.ncu(folder, variant, problem)
        ran = json_of(said)
        if status or not ran:
            result["why"] = reason(status, said)
        else:
            result["environment"] = ran["environment"]
            status, raw = self.page(folder, "raw")
            source = self.page(folder, "source", "--print-source", "cuda,sass")[1]
            result["rows"] = counters.rows(ran["variant"], ran["problem"], raw, source)
            if status:
                result["why"] = f"ncu cannot read its report: {reason(status, raw)}"
            elif not result["rows"]:
                result["why"] = "ncu saw no kernel"
        # What only took too long may fit another time.
        if status != 124:
            write(folder / "result.json", result)
        self.keep()
        return result

    def ncu(self, folder, variant, problem):
        """Runs ncu; a metric that it does not know for this chip is left out."""
        log, report = folder / "ncu.log", folder / "counters.ncu-rep"
        while True:
            report.unlink(missing_ok=True)
            wanted = [name for name in counters.metrics() if name not in self.absent]
            command = [
                self.tools["ncu"], "--profile-from-start", "off", "--clock-control", "none", "--nvtx",
                "--metrics", ",".join(wanted), "--log-file", log,
                "--export", report.with_suffix(""), "--force-overwrite",
            ]  # fmt: skip
            for section in counters.SECTIONS:
                command += ["--section", section]
            for sources in (HERE / "csrc", HERE.parent / "csrc"):
                if sources.is_dir():
                    command += ["--import-source", "yes", "--source-folders", sources]
                    break
            command += self.call(variant, problem, 1)
            status, said = self.run(command, self.args.seconds, folder / "program.txt")
            told = log.read_text(errors="replace") if log.exists() else ""
            about = [line for line in told.splitlines() if line.startswith("==") and "metric" in line]
            unknown = {name for name in wanted if any(name in line for line in about)}
            if report.exists() or not unknown:
                return status, f"{told}\n{said}"
            self.absent |= unknown

    def page(self, folder, name, *more):
        """How ncu ended, and a page of the report as CSV; without sources that page is empty."""
        command = [self.tools["ncu"], "--import", folder / "counters.ncu-rep", "--csv",
                   "--print-units", "base", "--page", name, *more]
        return self.run(command, 300, folder / f"{name}.csv")

    def keep(self):
        """Puts the results of this device, this build and this ncu into profile.json."""
        found = [read(path) for path in sorted(self.out.glob("*/result.json"))]
        found = [r for r in found if r and r["rows"] and self.is_alike(r)]
        found.sort(key=lambda r: r["environment"]["date"])
        if not found:
            return
        last = found[-1]["environment"]
        rows = {}
        for result in found:
            for row in result["rows"]:
                rows[row["variant"], row["problem"], row["kernel"]] = row
        profile = {"device": last["device"], "driver": last["driver"] or "", "tool": self.tool,
                   "csrc": self.stamp["csrc"], "date": last["date"], "rows": list(rows.values())}
        write(self.out / "profile.json", profile)

    def timeline(self, variant, problem):
        """A timeline by nsys, or by the library's own events; answers what to say of it."""
        folder = self.folder(variant, problem)
        instead = ""
        if self.tools["nsys"]:
            report = folder / "timeline"
            command = [
                self.tools["nsys"], "profile", "--trace=cuda,nvtx", "--capture-range=cudaProfilerApi",
                "--capture-range-end=stop", "--force-overwrite=true", "--output", report,
                *self.call(variant, problem, CALLS),
            ]  # fmt: skip
            status, said = self.run(command, self.args.seconds, folder / "nsys.log")
            if status == 0:
                reports = ["cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_api_sum", "nvtx_sum"]
                command = [self.tools["nsys"], "stats", "--force-export=true", "--report",
                           ",".join(reports), f"{report}.nsys-rep"]
                said = self.run(command, 300, folder / "nsys.txt")[1]
                return f"timeline: {report}.nsys-rep, its summaries: {folder / 'nsys.txt'}\n{said}"
            instead = f" (nsys failed: {reason(status, said)})"
        trace = folder / "timeline.json"
        command = [*self.call(variant, problem, CALLS), "--trace", trace]
        status, said = self.run(command, self.args.seconds, folder / "trace.log")
        if status:
            self.failed = True
            return f"timeline: none{instead}: {reason(status, said)}"
        events = json.loads(trace.read_text())["traceEvents"]
        return (
            f"timeline{instead}: {trace}, by the library's own events; Perfetto shows it\n"
            + aligned(summary_of(events), left=2)
        )


# The command -----------------------------------------------------------------------------------


def is_problem(word):
    return re.match(r"(g\d+)?(mb\d+)?ic\d", word) is not None


def jobs_of(profiler, args):
    """The variants and problems, and the remarks on those that cannot be."""
    problems = [word for word in args.words if is_problem(word)]
    variants = [word for word in args.words if not is_problem(word)]
    if not args.all:
        if len(problems) > 1 or len(variants) > 2:
            raise Failure("at most two variants and one problem; --all takes problems alone", USAGE)
        problem = problems[0] if problems else LAYERS[1]
        return [(variant, problem) for variant in variants or PAIR]
    if variants:
        raise Failure(f"--all takes problems, and '{variants[0]}' is none", USAGE)
    jobs = []
    for layer in problems or LAYERS:
        forms = [layer] if problems else [layer + math for math in MATHS]
        answers = [profiler.supported(form) for form in forms]
        for variant, why in answers[0].items():
            able = [form for form, answer in zip(forms, answers) if answer[variant] is None]
            if able:
                jobs.append((variant, able[0]))
            else:
                print(f"{variant} cannot do {layer}: {why}")
    return jobs


def profile(profiler, variant, problem):
    """Profiles a variant and prints what was found; answers what was counted, if there is an ncu."""
    if time.monotonic() >= profiler.end:
        raise OutOfTime
    print(f"\n{variant} on {problem}", flush=True)
    result = None
    if profiler.tool:
        known = profiler.known(variant, problem)
        result = known or profiler.count(variant, problem)
        if result["why"]:
            print(f"  not counted: {result['why']}")
            profiler.failed = True
        else:
            print(shown(result))
        if known:
            print("  from an earlier run; --again counts anew")
    if not profiler.args.all:
        print(profiler.timeline(variant, problem), flush=True)
    return result


def work(args):
    profiler = Profiler(args)
    if args.all and not profiler.tool:
        raise Failure("--all counts, and there is no ncu", NO_PROFILER)
    jobs = jobs_of(profiler, args)
    results = []
    try:
        for done, (variant, problem) in enumerate(jobs):
            result = profile(profiler, variant, problem)
            if result and not result["why"]:
                results.append(result)
    except OutOfTime:
        print(f"{len(jobs) - done} of {len(jobs)} are left: the same command goes on.")
        return UNFINISHED
    finally:
        # Also what an earlier run counted, that was ended before it could.
        profiler.keep()
    if len(results) == 2 and not args.all:
        print(f"\n{results[0]['asked']} and {results[1]['asked']} on {results[0]['problem']}")
        print(compared(*results))
    print(f"\nReports are in {args.out}.")
    if not any(profiler.tools.values()):
        return NO_PROFILER
    return FAILED if profiler.failed else 0


def main():
    parser = argparse.ArgumentParser(
        prog="profile.sh", description=__doc__, usage=argparse.SUPPRESS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("words", nargs="*", metavar="VARIANT|PROBLEM", help="as above")
    parser.add_argument("--all", action="store_true", help="every variant of the GPU")
    parser.add_argument("--out", type=Path, default=Path("profiles"), metavar="DIR",
                        help="where reports go (profiles)")
    parser.add_argument("--device", default="gpu", help="gpu, gpu:1, or cpu for a timeline (gpu)")
    parser.add_argument("--seconds", type=float, default=300, help="for one run of a tool (300)")
    parser.add_argument("--minutes", type=float,
                        help="after so many begin nothing new, and end what runs (no limit)")
    parser.add_argument("--again", action="store_true", help="count what is there already")
    return work(parser.parse_intermixed_args())


def interrupt(*_):
    """Ends the work once. `timeout` sends its signal twice, and the second one must not end what
    cleans up after the first."""
    for sign in signal.SIGINT, signal.SIGTERM:
        signal.signal(sign, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    for sign in signal.SIGINT, signal.SIGTERM:
        signal.signal(sign, interrupt)
    try:
        sys.exit(main())
    except Failure as failure:
        print(f"profile.sh: {failure}", file=sys.stderr)
        sys.exit(failure.status)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        print("interrupted; what was counted is kept", file=sys.stderr)
        sys.exit(INTERRUPTED)
