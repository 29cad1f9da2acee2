//! The page of the committed results.

use std::{fs, path::Path, process::ExitCode};

use convforge_tools::{
    page,
    results::{Kept, Source},
};
use libtest_mimic::{Arguments, Failed, Trial};

const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results");

fn main() -> ExitCode {
    let trials = vec![
        Trial::test("the page has every report, in any order", every_report),
        Trial::test("no committed row is superseded", nothing_superseded),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn every_report() -> Result<(), Failed> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(RESULTS)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "jsonl") {
            sources.push(Source::read(&path)?);
        }
    }
    let text = page::page(&sources)?;
    for section in [
        "steps", "layers", "network", "streams", "accuracy", "sweeps", "profiles",
    ] {
        assert!(text.contains(&format!("id=\"{section}\"")), "{section}");
    }
    assert!(!text.contains("class=\"missing\""), "a section is empty");
    sources.reverse();
    assert!(page::page(&sources)? == text, "the order of files counts");
    Ok(())
}

fn nothing_superseded() -> Result<(), Failed> {
    match Kept::read(Path::new(RESULTS))?.prune() {
        0 => Ok(()),
        rows => Err(format!("{rows} rows are: convforge report --keep benches/results").into()),
    }
}
