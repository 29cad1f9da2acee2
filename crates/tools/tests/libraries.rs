//! Libraries that are missing, broken or too old: the command says which, where and what would mend
//! it, and goes on with the rest.

mod common;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
};

use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() -> ExitCode {
    let case = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok(())
        })
    };
    let mut trials = vec![
        case(
            "an_empty_folder",
            an_empty_folder_is_named_with_what_was_looked_for,
        ),
        case(
            "no_functions",
            a_library_without_its_functions_is_named_with_the_first_of_them,
        ),
        case("no_library", a_file_that_is_no_library_is_named),
        case("the_cpu_goes_on", without_any_library_the_cpu_goes_on),
        Trial::ignorable_test(
            "the_rule_goes_on",
            on_a_gpu_the_rule_passes_over_what_is_missing,
        ),
    ];
    if cfg!(feature = "cudnn") {
        trials.push(case("an_old_cudnn", an_old_cudnn_is_too_old));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The command with one library's variable set.
fn convforge(variable: &str, place: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    command.args(args).env(variable, place);
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&output.stderr);
    assert!(!errors.contains("panicked"), "{errors}");
    text(&output.stdout)
}

/// `devices` with a library at `place` ends well, and its line on that library has every part.
#[track_caller]
fn devices_says(variable: &str, place: &Path, parts: &[&str]) {
    let output = convforge(variable, place, &["devices"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}");
    let found = text
        .lines()
        .any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line with {parts:?} in:\n{text}");
}

/// A shared library made of a line of C.
fn compile(folder: &Path, name: &str, source: &str) -> PathBuf {
    let (file, library) = (folder.join("fake.c"), folder.join(name));
    fs::write(&file, source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]);
    assert!(compiler.args([&library, &file]).status().unwrap().success());
    library
}

fn an_empty_folder_is_named_with_what_was_looked_for() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let variable = "CONVFORGE_CUBLAS_LIB";
    let parts = ["cuBLAS cannot be used", "libcublas.so", place, variable];
    devices_says(variable, folder.path(), &parts);
    if cfg!(feature = "cudnn") {
        let variable = "CONVFORGE_CUDNN_LIB";
        let parts = ["cuDNN cannot be used", "libcudnn.so.9", place, variable];
        devices_says(variable, folder.path(), &parts);
        let variable = "CONVFORGE_NVRTC_LIB";
        let parts = ["NVRTC cannot be used", "libnvrtc.so.13", place, variable];
        devices_says(variable, folder.path(), &parts);
    }
}

fn a_library_without_its_functions_is_named_with_the_first_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let library = compile(
        folder.path(),
        "libfake.so",
        "int answer(void) { return 42; }",
    );
    let place = library.to_str().unwrap();
    let parts = ["cuBLAS cannot be used", place, "has no function `cublas"];
    devices_says("CONVFORGE_CUBLAS_LIB", &library, &parts);
    if cfg!(feature = "cudnn") {
        let parts = ["cuDNN cannot be used", place, "`cudnnGetVersion`"];
        devices_says("CONVFORGE_CUDNN_LIB", &library, &parts);
    }
}

fn a_file_that_is_no_library_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("libcublas.txt");
    fs::write(&file, "not a library").unwrap();
    let parts = ["cuBLAS cannot be used", file.to_str().unwrap()];
    devices_says("CONVFORGE_CUBLAS_LIB", &file, &parts);
}

fn an_old_cudnn_is_too_old() {
    let folder = tempfile::tempdir().unwrap();
    let source = "unsigned long cudnnGetVersion(void) { return 8000; }";
    let library = compile(folder.path(), "libcudnn.so.9", source);
    let place = library.to_str().unwrap();
    // The folder serves as well as the file.
    for named in [folder.path(), &library] {
        let parts = [place, "8.0.0", "too old", "9.0.0 or newer"];
        devices_says("CONVFORGE_CUDNN_LIB", named, &parts);
    }

    // Programs get the same words.
    let output = convforge("CONVFORGE_CUDNN_LIB", &library, &["devices", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let libraries = report["libraries"].as_array().unwrap();
    let cudnn = libraries.iter().find(|l| l["name"] == "cuDNN").unwrap();
    assert!(cudnn["version"].is_null());
    assert!(cudnn["error"].as_str().unwrap().contains("too old"));
}

fn without_any_library_the_cpu_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let problem = "mb1ic3ih8oc4kh3";
    for args in [
        ["check", "--device", "cpu", "--problem", problem],
        ["list", "--device", "cpu", "--problem", problem],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
        command.args(args);
        for variable in ["CONVFORGE_CUBLAS_LIB", "CONVFORGE_CUDNN_LIB"] {
            command.env(variable, folder.path());
        }
        let output = command.output().unwrap();
        let text = stdout(&output);
        assert!(output.status.success(), "{text}");
        assert!(
            text.contains("passed") || text.contains("rule picks cpu_"),
            "{text}"
        );
    }
}

/// On a GPU the libraries' own rows fail with the reason, and the rule goes on to what there is.
fn on_a_gpu_the_rule_passes_over_what_is_missing() -> Result<Completion, Failed> {
    let devices = convforge("CONVFORGE_NONE", Path::new(""), &["devices", "--json"]);
    let devices: serde_json::Value = serde_json::from_str(&stdout(&devices)).unwrap();
    if let Some(why) = devices["no_gpu"].as_str() {
        return match common::gpu_is_required() {
            true => Err(why.into()),
            false => Ok(Completion::ignored_with(why)),
        };
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
        command
            .args(args)
            .env("CONVFORGE_CUBLAS_LIB", folder.path());
        command.env("CONVFORGE_CUDNN_LIB", folder.path());
        command.output().unwrap()
    };
    let problem = ["--problem", "mb4ic16ih16oc32kh3ph1"];
    let list = stdout(&run(&[&["list"], &problem[..]].concat()));
    assert!(
        list.lines()
            .any(|l| l.starts_with("rule picks ") && !l.contains("cu")),
        "{list}"
    );
    let infer = run(&["infer", "--count", "4", "--json"]);
    assert!(infer.status.success(), "{}", stdout(&infer));
    for (name, library) in [("cublas_gemm", "cuBLAS"), ("cudnn", "cuDNN")] {
        if name == "cudnn" && !cfg!(feature = "cudnn") {
            continue;
        }
        let output = run(&["infer", "--count", "4", "--variant", name]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        assert!(
            errors.contains(&format!("error: {library} could not be used")),
            "{errors}"
        );
    }
    Ok(Completion::Completed)
}
