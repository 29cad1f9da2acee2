//! What variants are made of: the build says of each what scripts/sources.py reckons without a build.
#![cfg(feature = "cuda")]

use std::{collections::BTreeMap, path::Path, process::Command};

use convforge_tools::Contenders;

#[test]
fn the_build_and_the_script_agree() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sources.py");
    let output = Command::new("python3").arg(script).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let mut told: BTreeMap<&str, &str> = lines.collect();
    assert_eq!(told.remove("csrc"), Some(convforge::CSRC_HASH));
    if !cfg!(feature = "cudnn") {
        told.retain(|name, _| !name.starts_with("cudnn"));
    }
    let all = Contenders::new();
    let infos = all.on(true).map(|variant| variant.info());
    let built: BTreeMap<&str, &str> = infos
        .filter_map(|info| Some((&*info.name, info.hash.as_deref()?)))
        .collect();
    assert_eq!(built, told);
    assert!(built.len() > 20, "{built:?}");
}
