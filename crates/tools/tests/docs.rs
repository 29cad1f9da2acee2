//! What documents say that the command can do, it can: every subcommand and option that they name is in its help.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The README and everything under docs.
fn documents() -> Vec<PathBuf> {
    let mut found = vec![Path::new(ROOT).join("README.md")];
    let mut folders = vec![Path::new(ROOT).join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(end) if end == "md" => found.push(path),
                _ => {}
            }
        }
    }
    found
}

/// What calls the command in a document: lines of blocks, and code within a line.
fn calls(text: &str) -> Vec<&str> {
    let parts = text.split("```").enumerate();
    let code = parts.flat_map(|(i, part)| match i % 2 {
        0 => part.split('`').skip(1).step_by(2).collect::<Vec<_>>(),
        _ => part.lines().collect(),
    });
    code.filter_map(|code| {
        let code = code.split('#').next()?;
        let starts = ["convforge ", "bin/convforge ", "cargo run -- "];
        starts.iter().find_map(|start| code.strip_prefix(start))
    })
    .collect()
}

/// The help of a subcommand; none where there is no such.
fn help(subcommand: &str) -> Option<String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command.args([subcommand, "--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then_some(text)
}

/// What a help gives as examples, of its own subcommand.
fn examples<'a>(subcommand: &str, help: &'a str) -> Vec<&'a str> {
    let start = format!("  convforge {subcommand} ");
    let lines = help.lines();
    lines.filter_map(|line| line.strip_prefix(&start)).collect()
}

#[test]
fn each_help_has_an_example_of_what_it_has() {
    for subcommand in [
        "list", "check", "compare", "sweep", "tune", "study", "report", "profile", "page", "infer",
    ] {
        let help = help(subcommand).unwrap();
        let examples = examples(subcommand, &help);
        assert!(!examples.is_empty(), "{subcommand}:\n{help}");
        // Beside the example itself.
        let (before, _) = help.split_once("For example").unwrap();
        let words = examples.iter().flat_map(|call| call.split_whitespace());
        for option in words.filter(|word| word.starts_with("--")) {
            assert!(before.contains(option), "{subcommand}: {option}");
        }
    }
}

/// The answer that a document shows has the columns and the words that `list` has; its numbers are of their day.
#[test]
fn the_list_that_a_document_shows_is_one() {
    let text = fs::read_to_string(Path::new(ROOT).join("docs/contributing.md")).unwrap();
    let shown = text.split("```").find(|part| part.contains(" on h200\n"));
    let problem = "mb64ic64ih56oc64oh56kh3ph1+f16+nhwc";
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command
        .args(["list", "--as", "h200", "--problem", problem])
        .output();
    let told = String::from_utf8(output.unwrap().stdout).unwrap();
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let header = told.lines().nth(1).map(words).unwrap();
    assert!(
        shown.unwrap().lines().any(|line| words(line) == header),
        "{told}"
    );
    assert!(told.contains("\nrule picks "), "{told}");
}

#[test]
fn what_documents_call_is_there() {
    let mut helps = BTreeMap::new();
    let (mut count, mut missing) = (0, Vec::new());
    for path in documents() {
        for call in calls(&fs::read_to_string(&path).unwrap()) {
            let mut words = call.split_whitespace();
            // `convforge = {...}` is a line of a Cargo.toml.
            let Some(subcommand) = words.next().filter(|word| *word != "=") else {
                continue;
            };
            count += 1;
            let help = helps
                .entry(subcommand.to_owned())
                .or_insert_with_key(|name| help(name));
            let mut options = words.filter(|word| word.starts_with("--"));
            let fits = |help: &String| options.all(|option| help.contains(option));
            if !help.as_ref().is_some_and(fits) {
                missing.push(format!("{}: `{call}`", path.display()));
            }
        }
    }
    assert!(count > 30, "{count} calls were found");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
