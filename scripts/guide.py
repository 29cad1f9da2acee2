#!/usr/bin/env python3
"""Makes a Cargo project of the guide's programs, outside of the workspace as a user's would be: one binary that runs
them in turn, for machines without Rust. `guide --gpu` fails where no GPU is found; `guide --cpu` leaves out what
needs one.

  scripts/guide.py DIR [--features F,F]      and then cargo build --release in DIR
"""

import argparse
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^## (?P<title>[^\n]+)$|^```rust(?P<how>,[\w,]*)?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)

MANIFEST = """[package]
name = "guide"
version = "0.0.0"
edition = "2024"

[features]
default = ["cuda"]
cuda = []

[dependencies]
convforge = {{ path = "{root}", features = [{features}] }}

[profile.release]
strip = true

[workspace]
"""
MAIN = """//! The programs of docs/guide.md, by their sections. Written by scripts/guide.py.

use std::process::ExitCode;

struct Program {{
    title: &'static str,
    needs_gpu: bool,
    run: fn() -> Result<(), convforge::Error>,
}}

const PROGRAMS: [Program; {count}] = [
{table}];

fn main() -> ExitCode {{
    let on_gpu = match std::env::args().nth(1).as_deref() {{
        Some("--gpu") => true,
        Some("--cpu") => false,
        _ => {{
            eprintln!("usage: guide --gpu|--cpu");
            return ExitCode::from(2);
        }}
    }};
    if on_gpu && let Err(why) = convforge::Device::gpu(0) {{
        eprintln!("guide: {{why}}");
        return ExitCode::FAILURE;
    }}
    let (mut ran, mut failed) = (0, 0);
    for program in PROGRAMS.iter().filter(|program| on_gpu || !program.needs_gpu) {{
        ran += 1;
        match (program.run)() {{
            Ok(()) => println!("ok      {{}}", program.title),
            Err(why) => {{
                failed += 1;
                println!("FAILED  {{}}: {{why}}", program.title);
            }}
        }}
    }}
    println!("{{}} programs passed, {{failed}} failed", ran - failed);
    if failed == 0 {{ ExitCode::SUCCESS }} else {{ ExitCode::FAILURE }}
}}
{functions}"""


def programs(guide):
    """The title of each program's section, whether it runs without a GPU, and its lines with those that are hidden."""
    title, found = "", []
    for match in BLOCK.finditer(guide):
        if match["title"]:
            title = match["title"]
            continue
        lines = [re.sub(r"^# ?", "", line) if re.match(r"# |#$", line) else line
                 for line in match["body"].splitlines()]
        found.append((title, "no_run" not in (match["how"] or ""), lines))
    return found


def source(found):
    table, functions = "", ""
    for number, (title, anywhere, lines) in enumerate(found, 1):
        table += (f'    Program {{ title: "{title} ({number})", needs_gpu: {str(not anywhere).lower()}, '
                  f"run: program_{number} }},\n")
        body = "".join(f"    {line}".rstrip() + "\n" for line in lines)
        functions += f"\nfn program_{number}() -> Result<(), convforge::Error> {{\n{body}}}\n"
    return MAIN.format(count=len(found), table=table, functions=functions)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--features", default="", help="of convforge, beside its default ones")
    args = parser.parse_args()
    found = programs((ROOT / "docs/guide.md").read_text(encoding="utf-8"))
    features = ", ".join(f'"{name}"' for name in args.features.split(",") if name)
    (args.folder / "src").mkdir(parents=True, exist_ok=True)
    (args.folder / "src/main.rs").write_text(source(found), encoding="utf-8")
    (args.folder / "Cargo.toml").write_text(MANIFEST.format(root=ROOT, features=features), encoding="utf-8")
    # The versions that the library is tested with.
    shutil.copy(ROOT / "Cargo.lock", args.folder / "Cargo.lock")


if __name__ == "__main__":
    main()
