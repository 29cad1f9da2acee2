//! Rules choose among variants that were measured.
#![cfg(feature = "cuda")]

use std::{collections::BTreeSet, path::Path};

use convforge::{variant::Kind, variants};
use convforge_tools::{
    measure::{How, Status},
    results::{Source, files},
};

/// The variants that passed and have a time on a GPU in the committed results.
fn measured() -> BTreeSet<String> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results");
    let folders = [results.clone(), results.join("rows")];
    let files = folders.iter().flat_map(|folder| files(folder).unwrap());
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
             FILE`, `convforge report FILE --keep benches/results/rows`), or write UNRANKED in \
             csrc/kernels.def",
            info.name,
            info.name
        );
    }
}
