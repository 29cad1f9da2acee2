//! About how many seconds a comparison takes, before it is made.
//!
//! What was measured before tells most: medians, numbers of samples, and how long making and checking took
//! (`Row::took_s`). Of what nobody measured the constants were fitted to those 1659 rows of an H200; summed
//! over the 34 problems of one of these files they give 530 seconds, and it took at most 525.

use convforge::{Limits, Problem, tuner::sampling::sets};

use crate::{
    Contender,
    measure::{Options, Row, Status, TRIAL_SAMPLES, sample_us},
};

/// Seconds that a check takes by itself, per element of the tensors, and per call.
const CHECK: (f64, f64, f64) = (0.012, 0.7e-9, 17.0);
/// Seconds that cuDNN's finalists take, and all its plans, with so many times a check beside that.
const FINALISTS: (f64, f64) = (1.0, 3.0);
const SEARCH: (f64, f64) = (5.0, 5.0);
/// Seconds until the first sample of a contender.
const LANE: f64 = 0.02;
/// Seconds that the GPU rests in each round of samples.
const REST: f64 = 0.1;
/// Bytes a second at which operands are made.
const FILL: f64 = 2e9;

/// What all contenders share.
pub(super) fn of_problem(problem: &Problem, limits: &Limits, options: &Options) -> f64 {
    let rests = if limits.is_gpu() { REST } else { 0.0 };
    let sets = sets(problem, limits, options.warm) as f64;
    rests * options.samples as f64 + problem.bytes() * sets / FILL
}

/// What a contender takes beside that, which was measured last as `row`, if it was. Of cuDNN it is said
/// whether its finalists are known.
pub(super) fn of_contender(
    row: Option<&Row>,
    (contender, is_known): (&Contender, bool),
    problem: &Problem,
    limits: &Limits,
    options: &Options,
) -> f64 {
    let median = row.and_then(|row| row.median_us);
    let us = median
        .or_else(|| contender.estimate_us(limits, problem))
        .unwrap_or_default();
    let elements = problem.bytes() / problem.storage().bytes() as f64;
    let check = CHECK.0 + CHECK.1 * elements + CHECK.2 * us / 1e6;
    let made = match (&*contender.variant(), row) {
        ("cudnn", _) if is_known => FINALISTS.0 + FINALISTS.1 * check,
        ("cudnn", _) => SEARCH.0 + SEARCH.1 * check,
        (_, Some(row)) if row.status == Status::Unsupported => 0.0,
        (_, row) => row.and_then(|row| row.took_s).unwrap_or(check),
    };
    if row.is_some_and(|row| row.median_us.is_none()) {
        return made;
    }
    let samples = row.map_or(options.samples, |row| row.samples.min(options.samples)) as f64;
    let variations = row.map_or(0, |row| {
        let timed = [row.pack_us, row.with_pack_us, row.serial_us];
        timed.iter().flatten().count()
    });
    let sample = sample_us(us, sets(problem, limits, options.warm)) / 1e6;
    made + LANE + sample * (samples + 2.0 + variations as f64 * (samples + 1.0))
}

/// What a configuration of so many microseconds takes that is tried, with the rests between its samples.
pub(super) fn of_trial(us: f64, problem: &Problem, limits: &Limits, options: &Options) -> f64 {
    let sample = sample_us(us, sets(problem, limits, options.warm)) / 1e6;
    LANE + TRIAL_SAMPLES as f64 * 4.0 * sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::Contenders;

    fn seconds(variant: &str, text: &str, is_known: bool) -> f64 {
        let limits = Limits::of_chip("h200").unwrap();
        let options = Options::on(true);
        let contender = Contenders::new().named(&variant.parse().unwrap()).unwrap();
        let problem = text.parse().unwrap();
        of_contender(None, (&contender, is_known), &problem, &limits, &options)
    }

    #[test]
    fn more_images_take_longer_and_short_calls_fill_their_samples() {
        let [one, many] =
            [1, 10000].map(|n| seconds("rule", &format!("mb{n}ic4ih40oc16oh34kh7"), false));
        assert!((0.1..1.0).contains(&one), "{one}");
        assert!((one..20.0).contains(&many), "{many}");
    }

    #[cfg(feature = "cudnn")]
    #[test]
    fn finalists_take_less_than_all_plans() {
        let text = "mb32ic64ih224oc64oh224kh3ph1";
        assert!(seconds("cudnn", text, true) < seconds("cudnn", text, false) - 4.0);
    }
}
