//! The committed page is the one that the committed results make.

use std::{fs, path::Path, process::ExitCode};

use convforge_tools::page::{self, Source};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

const PAGE: &str = "docs/study.html";
const COMMAND: &str = "convforge page benches/results/*.json --out docs/study.html";

fn main() -> ExitCode {
    let trials = vec![Trial::ignorable_test(PAGE, the_page_is_of_the_results)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn the_page_is_of_the_results() -> Result<Completion, Failed> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let Ok(committed) = fs::read_to_string(root.join(PAGE)) else {
        return Ok(Completion::ignored_with(format!(
            "{PAGE} is not there: {COMMAND}"
        )));
    };
    let mut sources = Vec::new();
    for entry in fs::read_dir(root.join("benches/results"))? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            sources.push(Source::read(&path)?);
        }
    }
    match page::page(&sources)? == committed {
        true => Ok(Completion::Completed),
        false => Err(format!("{PAGE} does not agree with benches/results: {COMMAND}").into()),
    }
}
