//! Rules choose among variants that were measured.
#![cfg(feature = "cuda")]

use std::{collections::BTreeSet, fs};

use convforge::{variant::Kind, variants};
use convforge_tools::{
    measure::{How, Status},
    results::Source,
};

/// The variants that passed and have a time on a GPU in the committed results.
fn measured() -> BTreeSet<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files = files.filter(|file| file.extension().is_some_and(|end| end == "jsonl"));
    let sources: Vec<Source> = files.map(|file| Source::read(&file).unwrap()).collect();
    let rows = sources.iter().flat_map(Source::rows);
    let timed = rows.map(|full| full.row).filter(|row| {
        row.status == Status::Passed && row.median_us.is_some() && row.how != Some(How::Cpu)
    });
    timed.map(|row| row.variant.clone()).collect()
}

#[test]
fn every_rank_has_a_measurement() {
    let measured = measured();
    let gpu = variants::all().iter().map(|variant| variant.info());
    let gpu: Vec<_> = gpu.filter(|info| info.kind != Kind::Cpu).collect();
    assert!(!gpu.is_empty());
    for info in gpu.iter().filter(|info| info.ranked) {
        assert!(
            measured.contains(&info.name),
            "no committed row of {} passed on a GPU: measure it (`convforge compare --variant {} --out \
             FILE`, `convforge report FILE --keep benches/results`), or write UNRANKED in \
             csrc/kernels.def",
            info.name,
            info.name
        );
    }
}
