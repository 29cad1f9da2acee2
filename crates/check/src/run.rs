//! One variant on one problem.
//!
//! Per kind of data the variant runs from fresh poison: twice with the workspace it would like, and
//! once with the least it works with, where it may sum in another order. Afterwards
//!
//! - the fences around outputs, workspace, packed filter and inputs must be whole,
//! - the output must be right: poison that was left standing is NaN, and NaN is never right,
//! - the first two runs must agree in every bit,
//! - inputs and packed filter must be what they were.

use convforge::{
    Conv, Device, Error, Problem,
    variant::{Bytes, Configured},
};

use crate::{
    Answers, Data, Measured, Options, Outcome, Recipe,
    judged::Judged,
    outcome::{Trouble, wrong},
    trial::Trial,
};

/// Checks a variant with one of its configurations.
pub fn case(
    device: &Device,
    configured: &Configured,
    problem: &Problem,
    seed: u64,
    options: &Options,
) -> Outcome {
    match Conv::with_variant(device, problem, configured.clone()) {
        Ok(made) => conv(&made, seed, options),
        Err(Error::Unsupported { why, .. }) => Outcome::Unsupported(why),
        Err(error) => Trouble::from(error).outcome(configured.name(), problem, seed),
    }
}

/// Checks a convolution that was already made.
pub fn conv(conv: &Conv, seed: u64, options: &Options) -> Outcome {
    beside(conv, seed, options, &Answers::none(conv.device()))
}

/// Checks a convolution beside others of the same problem, which share what the oracle answers.
pub fn beside(conv: &Conv, seed: u64, options: &Options, answers: &Answers) -> Outcome {
    let arithmetic = conv.variant().info().arithmetic;
    let fits = |data: &&Data| data.fits(conv.problem()) && data.suits(arithmetic);
    let fitting = options.data.iter().filter(fits);
    let measured = fitting.map(|data| {
        if options.stopped() {
            return Err(Error::Interrupted.into());
        }
        let checked = check(conv, *data, seed, options, answers);
        checked.map_err(|trouble| trouble.about(format!("{data} data")))
    });
    match measured.collect::<Result<Vec<Measured>, Trouble>>() {
        Ok(measured) if measured.is_empty() => Outcome::Skipped(
            "none of the data asked for fits the problem and the variant".to_owned(),
        ),
        Ok(measured) => Outcome::Passed(measured),
        Err(trouble) => trouble.outcome(conv.name(), conv.problem(), seed),
    }
}

fn check(
    conv: &Conv,
    data: Data,
    seed: u64,
    options: &Options,
    answers: &Answers,
) -> Result<Measured, Trouble> {
    let stream = &conv.device().stream()?;
    let recipe = &Recipe::new(conv.problem(), data, seed);
    let trial = Trial::new(conv, recipe, stream)?;
    let Bytes { least, preferred } = conv.workspace_bytes();
    let (first, second) = (trial.run(preferred)?, trial.run(preferred)?);
    let frugal = match least < preferred {
        true => Some(trial.run(least)?),
        false => None,
    };
    trial.check_inputs()?;

    let judged = |y| Judged {
        problem: conv.problem(),
        data,
        arithmetic: conv.variant().info().arithmetic,
        recipe,
        answers,
        operands: trial.operands(),
        y,
        stream,
        options,
    };
    let measured = judged(&first).measure()?;
    match first.differences(&second, stream)? {
        0 => {}
        words => {
            return wrong(format!(
                "the second run differs from the first in {words} words"
            ));
        }
    }
    if let Some(frugal) = frugal
        && first.differences(&frugal, stream)? != 0
    {
        judged(&frugal)
            .measure()
            .map_err(|trouble| trouble.about(format!("with a workspace of {least} bytes")))?;
    }
    Ok(measured)
}
