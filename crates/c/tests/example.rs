//! The example in C, compiled as C and as C++, with the shared and the static library, and run on the CPU.

mod common;

use std::process::Command;

use common::{compiler, libraries, output, package};

/// What the static library needs of the system; C++ for the kernels' side on the host.
const SYSTEM: [&str; 6] = ["-lstdc++", "-lgcc_s", "-lpthread", "-ldl", "-lrt", "-lm"];

fn example() -> std::path::PathBuf {
    package().join("examples/convolve.c")
}

fn runs(cxx: bool, link: impl FnOnce(&mut Command)) {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("convolve");
    let mut build = compiler(cxx);
    build
        .arg(example())
        .args(["-x", "none", "-o"])
        .arg(&program);
    link(&mut build);
    output(&mut build);
    let said = output(&mut Command::new(&program));
    assert!(said.contains(": 0 of 512 outputs are wrong"), "{said}");
    let refused = Command::new(&program).arg("--gpu").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn with_the_shared_library() {
    for cxx in [false, true] {
        runs(cxx, |build| {
            let folder = libraries();
            build.arg("-L").arg(&folder).arg("-lconvforge_c");
            build.arg(format!("-Wl,-rpath,{}", folder.display()));
        });
    }
}

#[test]
fn with_the_static_library() {
    runs(false, |build| {
        build.arg(libraries().join("libconvforge_c.a")).args(SYSTEM);
    });
}

/// Its part for GPUs is compiled where there is the toolkit's header; a machine with one runs it.
#[cfg(feature = "cuda")]
#[test]
fn the_part_for_gpus_compiles() {
    let toolkit = Command::new("python3")
        .arg(package().join("../../scripts/toolkit.py"))
        .arg("--print")
        .output()
        .unwrap();
    let toolkit = String::from_utf8(toolkit.stdout).unwrap();
    for cxx in [false, true] {
        output(
            compiler(cxx)
                .args(["-fsyntax-only", "-DCONVOLVE_CUDA", "-isystem"])
                .arg(format!("{}/include", toolkit.trim()))
                .arg(example()),
        );
    }
}
