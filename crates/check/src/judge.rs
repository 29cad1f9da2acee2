//! Comparing an output with the oracle.

use rayon::prelude::*;

use crate::{
    Bounds, Expected, Reference, Result, data::widen_one, error::same_length,
    reference::round_stored,
};

/// What comparing a whole output found. csrc/oracle.cu fills the same fields.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Outputs that are out of bounds or NaN.
    pub bad: u64,
    /// Outputs that are NaN.
    pub nan: u64,
    /// Index of the first bad one.
    pub first_bad: Option<u64>,
    /// Outputs whose reference is not zero.
    pub nonzero: u64,
    /// Outputs whose mag is not zero; the sums and `worst` are over these.
    pub counted: u64,
    /// Sum of (|y - ref| / mag)^2, less the rounding of a 16-bit output and what is below the least
    /// number of the type that is stored or summed in.
    pub sum_sq: f64,
    /// The same for a sequential fp32 loop.
    pub sum_sq_sequential: f64,
    /// Largest |y - ref| / mag.
    pub worst: f64,
}

impl Verdict {
    const NONE: Verdict = Verdict {
        bad: 0,
        nan: 0,
        first_bad: None,
        nonzero: 0,
        counted: 0,
        sum_sq: 0.0,
        sum_sq_sequential: 0.0,
        worst: 0.0,
    };

    /// Root mean square of the error.
    pub fn rms(&self) -> f64 {
        (self.sum_sq / self.counted.max(1) as f64).sqrt()
    }

    /// Root mean square of the error of a sequential fp32 loop.
    pub fn rms_sequential(&self) -> f64 {
        (self.sum_sq_sequential / self.counted.max(1) as f64).sqrt()
    }

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
    fn then(mut self, later: &Verdict) -> Self {
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
    let storage = problem.storage();
    let len = problem.y_len();
    same_length(
        problem,
        "bytes of the output",
        y.len(),
        len * storage.bytes(),
    )?;
    const CHUNK: usize = 1024;
    let chunks = (0..len.div_ceil(CHUNK)).into_par_iter().map(|chunk| {
        let mut verdict = Verdict::NONE;
        for index in chunk * CHUNK..((chunk + 1) * CHUNK).min(len) {
            let expected = reference.expected(index);
            let rounded = round_stored(storage, expected.value as f32);
            verdict.see(
                index,
                widen_one(storage, y, index),
                &expected,
                bounds,
                rounded,
            );
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
}
