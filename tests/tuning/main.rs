//! Results of tuning: what is kept comes back, and what is damaged, foreign or cannot be written is a note.

use std::{
    env, fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant, SystemTime},
};

use convforge::{
    Conv, Device, Error, Pick, Problem, Tuner,
    tuning::{Conditions, Line, NEAR, Outcome, Record, Store, shipped::Shipped},
    variant, variants,
};
use proptest::prelude::*;

mod choosing;
mod store;
mod tuner;

const MODEL: &str = "NVIDIA H200";

fn problem(text: &str) -> Problem {
    text.parse().unwrap()
}

fn images(n: usize) -> Problem {
    problem(&format!("mb{n}ic3ih8oc4kh3"))
}

fn line(name: &str, us: f64, source: &str) -> Line {
    Line::new(name, Outcome::took(us, 0.01), source)
}

fn late(budget: Duration) -> Outcome {
    Outcome::Late { budget }
}

fn record(problem: &Problem) -> Record {
    let mut record = Record::new(problem, MODEL, Conditions::default());
    record.lines = vec![
        line("small_fma:weights=shared", 4.6, "aa2647d7"),
        line("cublas_gemm:auto", 25.1, "cuBLAS-13.1.0/0f3a"),
        Line::new("gemv_warp", Outcome::Wrong, "51aa"),
        Line::new("direct_naive", late(Duration::from_millis(1500)), "27e4"),
    ];
    record
}

/// A store in a folder of its own, and the only file in it, once there is one.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("tuning"));
    (folder, store)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let deep = paths.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    });
    deep.collect()
}

/// What the CPU's plain loops are made of.
fn source(name: &str) -> String {
    variant::source(&*variants::find(name).unwrap()).unwrap()
}

/// A record of the CPU.
fn on_cpu(problem: &Problem, lines: Vec<Line>) -> Record {
    let conditions = Conditions::default().on(false);
    let mut record = Record::new(problem, &Device::cpu().model(), conditions);
    record.lines = lines;
    record
}
