//! What ships with the library, of the committed results.
//!
//! A problem ships where the fastest row of all that were measured of it, but for stale numbers of plans, which
//! are other plans now, is fresh and one that the library may choose: not a plan that cuDNN was searched for, not
//! a filter in constant memory. So nobody is
//! said to be the fastest who only beats what was not measured again. Beside it stand the other fresh rows,
//! and cuDNN at its best: whoever is faster is faster than the library's `cudnn`, which does not search.

use std::{collections::BTreeMap, path::Path};

use convforge::{
    CSRC_HASH, Limits,
    tuning::{Conditions, Line, Record, shipped::Shipped},
    variant::{self, Configured, Space},
    variants,
};

use super::took;
use crate::{
    Result,
    contender::TRANSFORM,
    measure::{How, Row, Status, View},
    results::{Source, files},
};

/// The library's variant of cuDNN, whose plans were searched where it was compared.
const CUDNN: &str = "cudnn";
/// A variant that has the hash of the passes that baselines run, in every build with kernels.
const PASSES_OF: &str = "cublas_gemm";

/// A row, and what is known of it beside the numbers.
struct Measured {
    row: Row,
    /// What it was made of, as a line of tuning has it; none where that is another now.
    source: Option<String>,
}

/// The records of a model of GPU in a folder of committed results.
///
/// # Errors
/// [`Error::File`](crate::Error::File) where the folder or a file in it cannot be read.
pub fn shipped(folder: &Path, of: &Shipped) -> Result<Vec<Record>> {
    let limits = Limits::of_chip(of.chip).unwrap_or_default();
    // By problem, then by name: the latest row of each.
    let mut problems: BTreeMap<String, BTreeMap<String, (String, Measured)>> = BTreeMap::new();
    for file in files(folder)? {
        let Source::Report(report) = Source::read(&file)? else {
            continue;
        };
        let environment = &report.environment;
        if report.view != View::Compare || environment.device != of.model {
            continue;
        }
        for row in report
            .rows
            .iter()
            .filter(|row| is_time(row) && !is_constant(row, &limits))
        {
            let source = source(row, &environment.csrc, |library| {
                Some(environment.libraries.get(library)?.as_str())
            });
            let rows = problems.entry(row.problem.to_string()).or_default();
            let known = rows.get(&row.name());
            if known.is_none_or(|(date, _)| *date <= environment.date) {
                let row = row.clone();
                let measured = (environment.date.clone(), Measured { row, source });
                rows.insert(measured.1.row.name(), measured);
            }
        }
    }
    let records = problems.into_values().filter_map(|rows| {
        let rows: Vec<Measured> = rows.into_values().map(|(_, row)| row).collect();
        record(&rows, of)
    });
    Ok(records.collect())
}

/// Whether a row is a variant's time in a graph, cold.
fn is_time(row: &Row) -> bool {
    let is_timed = row.status == Status::Passed && row.median_us.is_some() && row.is_whole();
    let is_usual = row.cold && row.how == Some(How::Graph) && row.chose.is_none();
    is_timed && is_usual && (is_cudnn(row) || variants::find(&row.variant).is_ok())
}

fn is_cudnn(row: &Row) -> bool {
    [CUDNN, TRANSFORM].contains(&&*row.variant)
}

/// Whether its configuration is a number of a plan.
fn is_numbered(row: &Row) -> bool {
    configured(row).is_some_and(|one| one.info().is_numbered(one.config))
}

/// Whether it keeps its filter in constant memory, which nobody is given who does not ask for it.
fn is_constant(row: &Row, limits: &Limits) -> bool {
    let plan = configured(row).and_then(|one| one.plan(limits, &row.problem).ok());
    let packing = plan.and_then(|plan| plan.packing);
    packing.is_some_and(|packing| packing.space == Space::Constant)
}

/// The library's variant in the configuration of a row, if there is one.
fn configured(row: &Row) -> Option<Configured> {
    let variant = variants::find(&row.variant).ok()?;
    Configured::named(variant, row.config.as_deref()).ok()
}

/// What a row was made of; none where that is not what it would be made of now, or where its search was cut
/// short.
fn source<'a>(row: &Row, csrc: &str, version: impl Fn(&str) -> Option<&'a str>) -> Option<String> {
    let name = if is_cudnn(row) {
        PASSES_OF
    } else {
        &row.variant
    };
    let code = variant::code(variants::find(name).ok()?.info());
    let is_fresh = match &row.source {
        Some(source) => *source == code,
        None => csrc == CSRC_HASH,
    };
    if !is_fresh || row.is_search_incomplete() {
        return None;
    }
    let library = match row.family() {
        "cudnn" => "cuDNN",
        "cublas" => "cuBLAS",
        _ => return Some(code),
    };
    Some(format!("{library}-{}/{code}", version(library)?))
}

/// What ships of a problem's rows, if anything does.
fn record(rows: &[Measured], of: &Shipped) -> Option<Record> {
    let us = |measured: &&Measured| measured.row.median_us.unwrap_or(f64::INFINITY);
    // A stale number is another plan now.
    let named = |measured: &&Measured| measured.source.is_some() || !is_numbered(&measured.row);
    let rows = || rows.iter().filter(named);
    let fastest = rows().min_by(|a, b| us(a).total_cmp(&us(b)))?;
    if is_cudnn(&fastest.row) || fastest.source.is_none() {
        return None;
    }
    let mut record = Record::new(&fastest.row.problem, of.model, Conditions::default());
    let mut fresh: Vec<&Measured> = rows().filter(|row| row.source.is_some()).collect();
    // Of cuDNN's two the faster comes last, and stays.
    fresh.sort_by(|a, b| us(b).total_cmp(&us(a)));
    for Measured { row, source } in fresh {
        let name = match is_cudnn(row) {
            true => CUDNN.to_owned(),
            false => row.name(),
        };
        record.put(Line::new(name, took(row)?, source.clone()?));
    }
    Some(record)
}
