//! How far results are from f64, for people to compare.
//!
//! A verdict takes the operands as the math rounds them: a variant is not to blame for that. Who
//! chooses between kinds of math wants the other number, the distance from the convolution of the
//! operands as they are stored. It is judged as the same problem in fp32, whose reference rounds no
//! operand.

use std::ops::Range;

use convforge::{Device, Math, Problem, Storage};
use serde::{Deserialize, Serialize};

#[cfg(feature = "cuda")]
use crate::oracle;
use crate::{Data, Expected, Options, Recipe, Reference, Result, Verdict};

/// |y - f64| / mag over all outputs whose mag is not zero; see [`Expected::mag`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// The largest.
    pub largest: f64,
    /// The root mean square.
    pub rms: f64,
}

impl Deviation {
    /// What a comparison found; the RMS is without the rounding of a 16-bit output.
    pub fn of(verdict: &Verdict) -> Self {
        Deviation {
            largest: verdict.worst,
            rms: verdict.rms(),
        }
    }
}

/// The problem whose reference takes the operands as they are stored.
pub(crate) fn as_stored(problem: &Problem) -> Result<Problem> {
    match rounds(problem) {
        true => Ok(problem.with(|shape| shape.math = Math::Fp32)?),
        false => Ok(problem.clone()),
    }
}

/// Whether the math rounds the operands before it multiplies. Operands of 16 bits need no rounding, and
/// in tf32 a variant may cut, round or leave them as they are.
pub fn rounds(problem: &Problem) -> bool {
    let to_16_bits = matches!(problem.math(), Math::F16 | Math::Bf16 | Math::F16Acc);
    problem.storage() == Storage::F32 && to_16_bits
}

/// Outputs that are looked at together.
const PART: usize = 1 << 21;

/// How far a sequential loop of fp32 multiply-adds is from f64, on the data that a check with this
/// seed feeds to the problem, operands as they are stored. Of a 16-bit output its rounding is a part.
///
/// # Errors
/// On a GPU no memory for the operands, or what a launch answers.
pub fn sequential(
    device: &Device,
    problem: &Problem,
    data: Data,
    seed: u64,
    options: &Options,
) -> Result<Deviation> {
    let recipe = Recipe::new(problem, data, seed);
    let stored = as_stored(problem)?;
    let stream = device.stream()?;
    #[cfg(feature = "cuda")]
    if oracle::judges(&stored, &stream, options) {
        let oracle = oracle::Oracle::new(&stored, &recipe, &stream)?;
        return over_parts(stored.y_len(), |part| Ok(oracle.expected(part)?));
    }
    let _ = (stream, options);
    let tensors = recipe.tensors();
    let reference = Reference::new(&stored, &tensors)?;
    over_parts(stored.y_len(), |part| Ok(reference.outputs(part)))
}

/// The deviation of the sequential loop over all outputs, added up in their order.
fn over_parts(
    count: usize,
    expected: impl Fn(Range<usize>) -> Result<Vec<Expected>>,
) -> Result<Deviation> {
    let (mut largest, mut sum, mut counted) = (0f64, 0.0, 0usize);
    for first in (0..count).step_by(PART) {
        for Expected {
            value,
            mag,
            sequential,
        } in expected(first..(first + PART).min(count))?
        {
            if mag > 0.0 {
                let error = (f64::from(sequential) - value).abs() / mag;
                largest = largest.max(error);
                sum += error * error;
                counted += 1;
            }
        }
    }
    Ok(Deviation {
        largest,
        rms: (sum / counted.max(1) as f64).sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use convforge::variants;

    use super::*;
    use crate::{Measured, Outcome, case};

    fn problem(text: &str) -> Problem {
        text.parse().unwrap()
    }

    fn options() -> Options {
        Options {
            stored: true,
            ..Options::default()
        }
    }

    fn measured(problem: &Problem, data: Data) -> Measured {
        let plain = variants::find("cpu_direct").unwrap().into();
        let options = Options {
            data: vec![data],
            ..options()
        };
        match case(&Device::cpu(), &plain, problem, 3, &options) {
            Outcome::Passed(measured) => measured[0],
            outcome => panic!("{problem}: {outcome:?}"),
        }
    }

    #[test]
    fn a_math_that_rounds_no_operand_has_one_deviation() {
        for text in ["mb2ic5ih9oc4kh3", "mb2ic5ih9oc4kh3+math=tf32"] {
            let measured = measured(&problem(text), Data::Normal);
            let found = Some(Deviation::of(&measured.verdict));
            assert_eq!(measured.stored, found, "{text}");
        }
    }

    /// Each operand loses up to half a unit of the math; in the RMS its rounding is a third of that
    /// squared, twice, over terms whose signs are as random.
    #[test]
    fn rounded_operands_are_far_from_the_stored_ones_and_near_the_rounded_ones() {
        for (math, unit) in [("f16", 1.0 / 1024.0), ("bf16", 1.0 / 128.0)] {
            let problem = problem(&format!("mb2ic5ih16oc8kh3+math={math}"));
            for data in [Data::Normal, Data::Positive] {
                let measured = measured(&problem, data);
                let stored = measured.stored.unwrap();
                assert!(measured.verdict.rms() < 2e-7, "{math} {data}: {measured:?}");
                let expected = unit / 4.0 / 45f64.sqrt();
                let share = stored.rms / expected;
                assert!((0.3..3.0).contains(&share), "{math} {data}: {share}");
                assert!(stored.largest > stored.rms && stored.largest < unit);
            }
        }
    }

    #[test]
    fn the_loop_is_what_a_verdict_says_of_it() {
        for text in ["mb2ic5ih9oc4kh3", "mb2ic5ih9oc4kh3+math=f16"] {
            let problem = problem(text);
            for data in [Data::Normal, Data::Positive, Data::Wide] {
                let found = sequential(&Device::cpu(), &problem, data, 3, &options()).unwrap();
                assert!(found.largest > found.rms && found.rms > 0.0);
                if problem.math() == Math::Fp32 {
                    let rms = measured(&problem, data).verdict.rms_sequential();
                    assert!((found.rms / rms - 1.0).abs() < 1e-12, "{found:?}, {rms}");
                }
                // Not of the rounded operands' kind: 2^-12 would stand here.
                assert!(found.rms < 1e-6, "{text} {data}: {found:?}");
            }
        }
    }
}
