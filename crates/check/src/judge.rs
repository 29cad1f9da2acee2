//! Comparing an output with the oracle.

use std::ops::Range;

use convforge::Problem;
use rayon::prelude::*;

use crate::{
    Bounds, Expected, Reference, Result, Verdict, error::same_length, recipe::widen_one,
    reference::round_stored,
};

impl Verdict {
    /// Adds one output.
    fn see(&mut self, index: usize, y: f32, expected: &Expected, bounds: &Bounds, rounded: f32) {
        let y = f64::from(y);
        let Expected {
            value,
            mag,
            sequential,
        } = *expected;
        let error = (y - value).abs();
        // Zeros compare equal whatever their sign: it depends on the order of additions, and no
        // layer downstream can tell. A NaN compares false, which is the point of the form.
        let good = match bounds.exact {
            true => y == f64::from(rounded),
            false => error <= bounds.allowed(value, mag),
        };
        if !good {
            self.bad += 1;
            self.first_bad.get_or_insert(index as u64);
        }
        self.nan += u64::from(y.is_nan());
        self.nonzero += u64::from(value != 0.0);
        if mag > 0.0 {
            self.counted += 1;
            if !y.is_nan() {
                let unfair = (bounds.rounding * value.abs()).max(bounds.floor);
                let of_loop = (f64::from(sequential) - value).abs();
                self.sum_sq += ((error - unfair).max(0.0) / mag).powi(2);
                self.sum_sq_sequential += ((of_loop - unfair).max(0.0) / mag).powi(2);
                self.worst = self.worst.max(error / mag);
            }
        }
    }

    /// Adds what was found in outputs that come later.
    pub(crate) fn then(mut self, later: &Verdict) -> Self {
        self.bad += later.bad;
        self.nan += later.nan;
        self.first_bad = self.first_bad.or(later.first_bad);
        self.nonzero += later.nonzero;
        self.counted += later.counted;
        self.sum_sq += later.sum_sq;
        self.sum_sq_sequential += later.sum_sq_sequential;
        self.worst = self.worst.max(later.worst);
        self
    }
}

/// Judges an output: `y` holds it as it is stored.
///
/// # Errors
/// [`Error::Length`](crate::Error::Length) where `y` is not as long as the reference's problem says.
pub fn judge(reference: &Reference, y: &[u8], bounds: &Bounds) -> Result<Verdict> {
    let problem = reference.problem();
    let expected = |index| reference.expected(index);
    judge_part(problem, expected, 0..problem.y_len(), y, bounds)
}

/// Judges some outputs: `y` holds them, and nothing else.
///
/// # Errors
/// As [`judge`].
pub(crate) fn judge_part(
    problem: &Problem,
    expected: impl Fn(usize) -> Expected + Sync,
    part: Range<usize>,
    y: &[u8],
    bounds: &Bounds,
) -> Result<Verdict> {
    let storage = problem.storage();
    let len = part.len() * storage.bytes();
    same_length(problem, "bytes of the output", y.len(), len)?;
    const CHUNK: usize = 1024;
    let chunks = (0..part.len().div_ceil(CHUNK))
        .into_par_iter()
        .map(|chunk| {
            let mut verdict = Verdict::NONE;
            for at in chunk * CHUNK..((chunk + 1) * CHUNK).min(part.len()) {
                let expected = expected(part.start + at);
                let rounded = round_stored(storage, expected.value as f32);
                let y = widen_one(storage, y, at);
                verdict.see(part.start + at, y, &expected, bounds, rounded);
            }
            verdict
        });
    // Added up in order, so that the same output always gives the same sums.
    let chunks: Vec<Verdict> = chunks.collect();
    let none = Verdict::NONE;
    Ok(chunks.iter().fold(none, |all, chunk| all.then(chunk)))
}

#[cfg(test)]
mod tests {
    use convforge::{Problem, variant::Arithmetic};
    use half::f16;

    use super::*;
    use crate::{Data, Recipe};

    /// A product of small numbers is subnormal in f16, where rounding costs more than a part in 2048.
    #[test]
    fn one_product_rounded_to_f16_is_right() {
        let problem: Problem = "mb4ic1ih1iw63oc24oh1ow32kh1sh1sw2+math=f16acc"
            .parse()
            .unwrap();
        let tensors = Recipe::new(&problem, Data::Normal, 22).tensors();
        let reference = Reference::new(&problem, &tensors).unwrap();
        let bounds = Bounds::new(&problem, Data::Normal, Arithmetic::Exact);
        let judged = |sum: fn(f64) -> f32| {
            let sums = (0..problem.y_len()).map(|index| sum(reference.expected(index).value));
            let y: Vec<u8> = sums.flat_map(f32::to_ne_bytes).collect();
            let verdict = judge(&reference, &y, &bounds).unwrap();
            verdict.bad == 0 && verdict.rms() <= bounds.rms_limit(&verdict)
        };
        assert!(judged(|sum| f16::from_f64(sum).to_f32()));
        assert!(!judged(|sum| f16::from_f64(sum * 1.003).to_f32()));
    }

    /// On positive data a loop loses the products that are below half a unit of its sum.
    #[test]
    fn a_loop_of_a_million_positive_products_is_right() {
        for channels in [300_000, 1_250_000, 2_500_000] {
            let text = format!("mb1ic{channels}ih1oc2oh1kh1");
            let problem: Problem = text.parse().unwrap();
            let tensors = Recipe::new(&problem, Data::Positive, 23).tensors();
            let reference = Reference::new(&problem, &tensors).unwrap();
            let bounds = Bounds::new(&problem, Data::Positive, Arithmetic::Exact);
            for expected in reference.outputs(0..problem.y_len()) {
                let error = (f64::from(expected.sequential) - expected.value).abs();
                let allowed = bounds.allowed(expected.value, expected.mag);
                assert!(error <= allowed, "{text}: {error} of {allowed}");
                // Nor is the bound so wide that it says nothing.
                assert!(error * 40.0 > allowed, "{text}: {error} of {allowed}");
            }
        }
    }

    /// What no element shows and all of them do.
    #[test]
    fn sums_that_are_all_a_little_wrong_fail_by_the_rms() {
        let problem: Problem = "mb4ic64ih8oc16oh8kh1+math=f16acc".parse().unwrap();
        let tensors = Recipe::new(&problem, Data::Normal, 1).tensors();
        let reference = Reference::new(&problem, &tensors).unwrap();
        let bounds = Bounds::new(&problem, Data::Normal, Arithmetic::Exact);
        let off_by = |share: f64| {
            let wrong = |index| {
                let expected = reference.expected(index);
                (expected.value + share * expected.mag) as f32
            };
            let y: Vec<u8> = (0..problem.y_len())
                .map(wrong)
                .flat_map(f32::to_ne_bytes)
                .collect();
            let verdict = judge(&reference, &y, &bounds).unwrap();
            assert_eq!(verdict.bad, 0);
            verdict.rms() <= bounds.rms_limit(&verdict)
        };
        assert!(off_by(4.0 / 2048.0));
        assert!(!off_by(12.0 / 2048.0));
    }
}
