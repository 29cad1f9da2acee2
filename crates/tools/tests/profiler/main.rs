//! What an NVTX tool sees of the command. The tool is half a page of C (`tool.c`).

use std::{fs, path::Path, process::Command};

/// The names of the ranges that a tool saw while the command ran, indented as they nested.
fn ranges(args: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let [source, tool, seen] = ["tool.c", "tool.so", "seen"].map(|name| folder.path().join(name));
    fs::write(&source, include_str!("tool.c")).unwrap();
    compile(&source, &tool);
    let output = Command::new(env!("CARGO_BIN_EXE_convforge"))
        .args(args)
        .env("NVTX_INJECTION64_PATH", &tool)
        .env("RANGES", &seen)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let seen = fs::read_to_string(seen).unwrap();
    seen.lines().map(str::to_owned).collect()
}

fn compile(source: &Path, library: &Path) {
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([library, source])
        .status()
        .unwrap();
    assert!(compiled.success());
}

#[test]
fn a_profile_is_named_after_variant_and_problem() {
    let problem = ["--device", "cpu", "--problem", "mb1ic3ih8oc4kh3"];
    let args = [&["profile", "cpu_direct"], &problem[..]].concat();
    assert_eq!(ranges(&args), ["cpu_direct mb1ic3ih8oc4oh6kh3"]);
}

#[test]
fn variants_stand_in_their_layer() {
    let problem = ["--device", "cpu", "--problem", "mb1ic3ih8oc4kh3"];
    let variants = ["--variant", "cpu_direct", "--variant", "cpu_gemm"];
    let args = [&["compare", "--samples", "5"], &problem[..], &variants].concat();
    let seen = ranges(&args);
    let (first, inside) = seen.split_first().unwrap();
    assert_eq!(first, "mb1ic3ih8oc4oh6kh3");
    assert!(inside.iter().all(|name| name.starts_with("  ")), "{seen:?}");
    let count = |name: &str| inside.iter().filter(|seen| *seen == name).count();
    let mut runs = Vec::new();
    for variant in ["cpu_direct", "cpu_gemm"] {
        assert_eq!(count(&format!("  checking {variant}")), 1, "{seen:?}");
        runs.push(count(&format!("  {variant}")));
    }
    // Once to get ready, for each sample, and to be judged; whoever is far from the best has three
    // samples at least.
    assert_eq!(runs.iter().max(), Some(&7), "{seen:?}");
    assert!(runs.iter().all(|count| *count >= 5), "{seen:?}");
}
