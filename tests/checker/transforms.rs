//! What declaring a transform lets a variant off: exact whole numbers, and nothing else; and that
//! nothing but the declaration does.

use convforge::variant::{Arithmetic, Info, Kind};
use convforge_check::{Data, Outcome};
use libtest_mimic::{Failed, Trial};

use crate::{
    faults::{self, Fault, caught, outcome},
    info, parse,
};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        Trial::test("transform: only the declaration matters", only_declared),
        Trial::test("transform: whole numbers have a bound", bounded),
    ];
    // What is wrong as a sum of products is as wrong as a transform.
    // Nor is it fed with the exponents that one of them shows on.
    let unseen = [Fault::SumOfThirds, Fault::PartsAreF16];
    let wrong = faults::all().filter(move |(fault, _)| !unseen.contains(fault));
    trials.extend(wrong.map(|(fault, problem)| {
        Trial::test(format!("transform: {fault:?} {problem}"), move || {
            caught(fault, problem, &transform())
        })
    }));
    trials
}

/// Loops that claim to be a transform.
fn transform() -> Info {
    let mut info = info("loops");
    info.arithmetic = Arithmetic::Transform;
    info
}

/// The problems on which sums of thirds are not whole.
fn thirds() -> impl Iterator<Item = &'static str> {
    faults::all()
        .filter(|(fault, _)| *fault == Fault::SumOfThirds)
        .map(|(_, problem)| problem)
}

/// Sums that are inexact as a transform's are pass where one is declared. By name, family and words
/// alone they do not.
fn only_declared() -> Result<(), Failed> {
    for problem in thirds() {
        let problem = parse(problem);
        match outcome(Fault::SumOfThirds, &problem, &transform()) {
            Outcome::Passed(measured) if measured.len() == 4 => {}
            other => return Err(format!("declared: {other:?}").into()),
        }
        let disguised = Info::new(
            "cudnn_transform",
            "cudnn",
            "a Winograd transform",
            "NVIDIA cuDNN",
            Kind::Cpu,
        );
        match outcome(Fault::SumOfThirds, &problem, &disguised) {
            Outcome::Failed(why) if why.contains("integer data") && why.contains("exactly") => {}
            other => return Err(format!("not declared: {other:?}").into()),
        }
    }
    Ok(())
}

/// On whole numbers a transform is still measured, element by element, and has no limit of the RMS;
/// on real data it has the limit of everyone.
fn bounded() -> Result<(), Failed> {
    for problem in thirds() {
        let problem = parse(problem);
        let limits = |info: &Info| match outcome(Fault::Nothing, &problem, info) {
            Outcome::Passed(measured) => Ok(measured),
            other => Err(Failed::from(format!("{other:?}"))),
        };
        let (exact, transform) = (limits(&info("loops"))?, limits(&transform())?);
        for (exact, transform) in exact.iter().zip(&transform) {
            let same = exact.rms_limit == transform.rms_limit;
            let whole = exact.rms_limit == 0.0 && transform.rms_limit == f64::INFINITY;
            let right = match exact.data {
                Data::Integer => whole && transform.to_string().contains("worst"),
                Data::Extreme => return Err("extreme data for a transform".into()),
                _ => same && exact.rms_limit.is_finite(),
            };
            if !right {
                return Err(format!("{exact:?}, {transform:?}").into());
            }
        }
    }
    Ok(())
}
