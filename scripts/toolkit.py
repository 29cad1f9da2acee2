#!/usr/bin/env python3
"""Install what building convforge needs: the CUDA toolkit, cuBLAS, cuDNN, libclang.

They come from PyPI as wheels, pinned with their hashes in toolkit.lock, and are unpacked into one
folder per user outside the checkout,

    ${CONVFORGE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/convforge}/cuda-13.0

which is then a CUDA_HOME of its own (bin/nvcc, include, lib, nvvm); the build finds it by itself.
Nothing else is touched: no system folder, no Python environment, no shell profile. To undo it,
delete the folder. NVIDIA's licences apply to what it holds; they lie in its folder `licenses`.

There are three sets: `toolkit` (nvcc, headers, cuBLAS), `cudnn` (cuDNN and the NVRTC that it
opens) and `libclang` (libclang for bindgen, clang-format). The rule without --need: all three; but
where a toolkit of your own is found (CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda), that
one is used as it is and only `libclang` is installed. A fourth, `disassembly` (cuobjdump, nvdisasm),
is installed only when it is named, as scripts/sass.py does.
"""

import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

LOCK = Path(__file__).resolve().with_name("toolkit.lock")
LOCK_HEADER = "# Written by `python3 scripts/toolkit.py --lock` from the pins in that script.\n"

# What `--lock` writes down, by set. The cuBLAS and cuDNN are those that PyTorch 2.11 ships.
PINS = {
    "toolkit": [
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cuda-cccl==13.0.85",
        "nvidia-cublas==13.1.0.3",
    ],
    "cudnn": ["nvidia-cudnn-cu13==9.19.0.56", "nvidia-cuda-nvrtc==13.0.88"],
    "libclang": ["libclang==18.1.1", "clang-format==18.1.8"],
    # The oldest that PyPI has are newer than the compiler, whose code they know.
    "disassembly": ["nvidia-cuda-cuobjdump==13.2.51", "nvidia-cuda-nvdisasm==13.2.51"],
}

# What nothing but a script of its own asks for.
EXTRA = ["disassembly"]

# Where a wheel's files go; the first prefix that fits wins, what fits none stays in the wheel.
# All libraries lie in one folder because they look for each other beside themselves ($ORIGIN).
PLACES = [
    ("nvidia/cu13/.metadata/", None),
    ("nvidia/cu13/", ""),
    ("nvidia/cudnn/", ""),
    ("clang/native/libclang.so", "lib/libclang.so"),
    ("clang_format/data/bin/clang-format", "bin/clang-format"),
]

# What must be there after unpacking, before the folder gets its name; programs must run as well.
PROOFS = {
    "toolkit": ["bin/nvcc", "include/cuda.h", "lib/libcudart_static.a", "lib/libcublas.so.13"],
    "cudnn": ["include/cudnn_graph.h", "lib/libcudnn.so.9", "lib/libnvrtc.so.13"],
    "libclang": ["bin/clang-format", "lib/libclang.so"],
    "disassembly": ["bin/cuobjdump", "bin/nvdisasm"],
}


class Failure(Exception):
    """Told to the user as it is, without a traceback."""


class Pin(NamedTuple):
    """One line of the lock."""

    requirement: str
    sha256: str
    set: str
    download: int
    unpacked: int

    def line(self):
        return (
            f"{self.requirement} --hash=sha256:{self.sha256}"
            f"  # {self.set}: {self.download} bytes, {self.unpacked} unpacked\n"
        )

    def wheel(self, folder):
        """This pin's wheel in `folder`, if it is there and whole."""
        name, version = self.requirement.split("==")
        for path in folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"):
            if sha256(path) == self.sha256:
                return path
        return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--need", metavar="SET,...", help=f"the sets wanted: {','.join(PINS)}")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--print", action="store_true", help="print the folder's path, do nothing")
    action.add_argument("--check", action="store_true", help="fail if something is not installed")
    action.add_argument("--lock", action="store_true", help="write toolkit.lock anew")
    options = parser.parse_args()

    place = cache_folder() / "cuda-13.0"
    if options.print:
        print(place)
        return
    if not (sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")):
        raise Failure(
            f"this is {platform.system()} on {platform.machine()}; the wheels are for Linux on "
            "x86-64. Install a CUDA toolkit by hand and set CUDA_HOME."
        )
    if options.lock:
        write_lock()
        return

    wanted = wanted_sets(parser, options.need)
    pins = read_lock()
    missing = [name for name in wanted if not is_installed(place, name, pins)]
    if options.check:
        if missing:
            raise Failure(f"{', '.join(missing)}: not installed in {place}")
    elif missing:
        with only_one(cache_folder()):
            # Another process may have installed them while this one waited.
            missing = [name for name in wanted if not is_installed(place, name, pins)]
            if missing:
                install(place, missing, pins)


def wanted_sets(parser, need):
    if need is not None:
        wanted = need.split(",")
        for name in wanted:
            if name not in PINS:
                parser.error(f"no set `{name}`; there are: {', '.join(PINS)}")
        return wanted
    own = (
        os.environ.get("CUDA_HOME")
        or os.environ.get("CUDA_PATH")
        or shutil.which("nvcc")
        or (os.path.exists("/usr/local/cuda/bin/nvcc") and "/usr/local/cuda")
    )
    if own and cache_folder() not in Path(own).parents:
        tell(f"Using your own CUDA toolkit ({own}); `--need toolkit,cudnn` installs another.")
        return ["libclang"]
    return [name for name in PINS if name not in EXTRA]


# Installing ------------------------------------------------------------------------------------


def install(place, sets, pins):
    """Put `sets` into `place`, beside the sets that are up to date there."""
    kept = [name for name in PINS if name not in sets and is_installed(place, name, pins)]
    pins_wanted = [pin for pin in pins if pin.set in sets]
    wheels = place.parent / "wheels"
    absent = [pin for pin in pins_wanted if not pin.wheel(wheels)]
    tell(f"Installing {', '.join(sets)} into {place}")
    tell(f"  {mib(sum(pin.download for pin in absent))} to download from PyPI, "
         f"{mib(sum(pin.unpacked for pin in pins_wanted))} unpacked.")
    tell("  NVIDIA's licences apply to the toolkit and its libraries (folder `licenses`).")
    room = sum(pin.download for pin in absent) + sum(pin.unpacked for pin in pins_wanted)
    free = shutil.disk_usage(place.parent).free
    if free < room:
        raise Failure(
            f"the disk is too full: {mib(room)} are needed and {mib(free)} are free in "
            f"{place.parent}; set CONVFORGE_CACHE to a folder with more room"
        )

    for number, pin in enumerate(absent, 1):
        tell(f"[{number}/{len(absent)}] downloading {pin.requirement}, {mib(pin.download)}")
        pip_download([pin.line()], wheels, "--require-hashes")

    # The folder gets its name only when it is complete, so a half-made one is never found.
    new = place.with_name(place.name + ".new")
    old = place.with_name(place.name + ".old")
    for leftover in (new, old):
        shutil.rmtree(leftover, ignore_errors=True)
    if kept:  # As links, which cost nothing.
        shutil.copytree(place, new, symlinks=True, copy_function=os.link)
        (new / ".sets").unlink()
    else:
        new.mkdir()
    for pin in pins_wanted:
        tell(f"unpacking {pin.requirement}")
        unpack(pin.wheel(wheels), new)
    if not (new / "lib64").is_symlink():  # nvcc.profile says lib64.
        (new / "lib64").symlink_to("lib")
    for name in sets:
        for file in PROOFS[name]:
            prove(new, file)
    (new / ".sets").write_text("".join(stamp(name, pins) for name in sets + kept))
    if place.exists():
        place.rename(old)
    new.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    shutil.rmtree(wheels, ignore_errors=True)
    tell("Done. The build finds it by itself.")


def unpack(wheel, into):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = destination(member.filename, wheel)
            if path is None or member.is_dir():
                continue
            path = into / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # It may be a hard link into the folder in use.
            with archive.open(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            executable = (member.external_attr >> 16) & 0o100
            path.chmod(0o755 if executable else 0o644)


def destination(name, wheel):
    """Where a wheel's member goes below CUDA_HOME, or None."""
    name = re.sub(r"^[^/]+\.data/(platlib|purelib)/", "", name)
    for prefix, target in PLACES:
        if name.startswith(prefix):
            return None if target is None else target + name[len(prefix):]
    if ".dist-info/" in name and "licen" in name.lower():
        return f"licenses/{wheel.name.split('-')[0]}/{Path(name).name}"
    return None


def prove(folder, file):
    if not (folder / file).is_file():
        raise Failure(f"the wheels hold no {file}: their layout has changed")
    if file.startswith("bin/"):
        answer = subprocess.run([folder / file, "--version"], capture_output=True, text=True)
        if answer.returncode:
            raise Failure(f"{file} was unpacked but does not run: {answer.stderr.strip()}")
        tell("  " + answer.stdout.strip().splitlines()[-1])


# The lock file and the stamp -------------------------------------------------------------------


def read_lock():
    pattern = re.compile(
        r"(\S+==\S+) --hash=sha256:(\w+)  # (\w+): (\d+) bytes, (\d+) unpacked"
    )
    found = pattern.findall(LOCK.read_text())
    return [Pin(name, sha, set, int(size), int(full)) for name, sha, set, size, full in found]


def write_lock():
    with tempfile.TemporaryDirectory() as scratch:
        lines = [LOCK_HEADER]
        for name, requirements in PINS.items():
            for requirement in requirements:
                tell(f"downloading {requirement}")
                folder = Path(scratch) / requirement
                pip_download([requirement], folder)
                (wheel,) = folder.glob("*.whl")
                with zipfile.ZipFile(wheel) as archive:
                    unpacked = sum(member.file_size for member in archive.infolist())
                pin = Pin(requirement, sha256(wheel), name, wheel.stat().st_size, unpacked)
                lines.append(pin.line())
                wheel.unlink()
    LOCK.write_text("".join(lines))


def stamp(name, pins):
    """One line that changes whenever a pin of the set does."""
    lines = "".join(pin.line() for pin in pins if pin.set == name)
    return f"{name} {hashlib.sha256(lines.encode()).hexdigest()}\n"


def is_installed(place, name, pins):
    try:
        return stamp(name, pins) in (place / ".sets").read_text()
    except FileNotFoundError:
        return False


# Helpers ---------------------------------------------------------------------------------------


def pip_download(requirements, folder, *flags):
    """Download wheels with pip, whose failures become one sentence and a remedy."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(requirements))
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-cache-dir", "--dest", str(folder), "--requirement", str(listed), *flags]
    if not sys.stderr.isatty():
        command.append("--quiet")  # No progress bar in a log.
    environment = dict(
        os.environ, PIP_REQUIRE_VIRTUALENV="0", PIP_DISABLE_PIP_VERSION_CHECK="1"
    )
    pip = subprocess.run(
        command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, env=environment
    )
    if pip.returncode == 0:
        return
    for symptom, meaning in [
        ("No module named pip",
         f"{sys.executable} has no pip; mend it with `{sys.executable} -m ensurepip`, or install "
         "your system's package python3-pip"),
        ("DO NOT MATCH THE HASHES",
         "what was downloaded is not what toolkit.lock pins; try again, and if it stays so, do "
         "not use it: the file was changed on the way or at its source"),
        ("No space left", f"the disk is full; free some room in {folder}, or set CONVFORGE_CACHE"),
        ("No matching distribution|NewConnectionError|Max retries|timed out|ConnectionError",
         "PyPI could not be reached, or this pip is too old to know the wheel (20.3 is the least); "
         "check the network and pip's settings. What was downloaded so far is kept"),
    ]:
        if re.search(symptom, pip.stderr):
            raise Failure(f"{meaning}.\npip said:\n{pip.stderr.strip()}")
    raise Failure(f"pip failed:\n{pip.stderr.strip()}")


@contextmanager
def only_one(folder):
    """Hold the folder's lock: two installs at once would undo each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("Waiting for another install to finish ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cache_folder():
    cache = os.environ.get("CONVFORGE_CACHE")
    if cache:
        return Path(cache).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "convforge"


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def mib(size):
    return f"{size / (1 << 20):.0f} MiB"


def tell(text):
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        sys.exit(f"toolkit.py: {failure}")
    except OSError as error:
        sys.exit(f"toolkit.py: {error}")
    except KeyboardInterrupt:
        sys.exit("\ntoolkit.py: stopped; what was downloaded is kept, run it again to go on")
