//! How wrong a result may be: the one home of these constants.
//!
//! With u = 2^-24, the rounding of fp32, K products in a sum and mag = sum |x w| (see
//! [`Expected::mag`](crate::Expected)), two rules hold at once. Both are judged against
//! measurements on an H200: 131 072 dot products per type, data set and K from 25 to 4608.
//!
//! **Every element**: |y - ref| <= per_mag * mag + per_ref * |ref| + floor.
//!
//! | math | per_mag | why |
//! | --- | --- | --- |
//! | fp32 | min(K + 2, 8 + 4 sqrt(K) + (K / 2^14)^2) u | K + 2 is the proven bound of any order of additions; roundings to nearest partly cancel, and 8 + 4 sqrt(K) is 3 to 5 times the largest error of an FMA loop on the data worst for that K. From some 100 000 positive products on, those below half a unit of the sum vanish, and no others make up for them: measured, 0.7 to 0.8 of (K / 2^14)^2 u at K of 1.25 and 2.5 million |
//! | f16, bf16 | 2 (8 + K) u | tensor cores align the products of an instruction and its accumulator, and cut toward zero: on positive data every step errs the same way, so the error grows as K (3.6e-5 at K = 4608, a fifteenth of this) |
//! | tf32 | the same + 2.2 * 2^-10 | each operand may be cut to 10 bits, which loses up to 2^-10 of it |
//! | f16acc | (K + 2) 2^-11 | the proven bound, with the rounding of f16 |
//!
//! times the activation's steepest slope. per_ref is half a unit of the storage, plus 16 u where an
//! exponential is computed. floor is half the smallest number of the storage; under f16acc every
//! step may lose that much.
//!
//! **The whole tensor**: the root mean square of |y - ref| / mag. One element's bound must leave room
//! for the worst of a million; this one sees a kernel that is a little wrong everywhere.
//!
//! | math | limit | why |
//! | --- | --- | --- |
//! | fp32 | twice that of a sequential fp32 loop on the same data | an FMA loop is 1; tensor cores fed with three products and promoted into fp32 sums are 0.3 to 1.6 |
//! | f16, bf16 | 3e-7 + 1e-8 K | measured on positive data: 1.2e-7 at K = 25, 3.3e-5 at K = 4608 |
//! | tf32 | 1e-3 | measured with cut operands on positive data: 6.8e-4 at every K |
//! | f16acc | 2^-11 (2 + sqrt(K)), on positive data 2^-11 (2 + K / 4) | a random walk; but a positive sum stops growing once a term is under half its unit, from K of about 2000 on |
//!
//! For 16-bit storage the rounding of the output, no fault of a variant, is first taken off the
//! error, of the result and of the sequential loop alike; and so is the floor, which is nothing but
//! where the output or, under f16acc, the sums are f16: a small product is a subnormal one there.
//!
//! **On whole numbers** equality takes the place of both rules, for who adds up products. For a
//! variant that declares [`Arithmetic::Transform`] the bound of every element stands there; the RMS
//! is not asked, because the sequential loop, its yardstick, makes no error at all.
//!
//! **On extreme data** the bound of every element holds, in the same constants. The RMS is not asked:
//! where pixels have exponents of their own a few products outweigh the others, so that a loop hardly
//! rounds, and one product in three parts, wrong by 5 u at most, would already be too wrong.

use convforge::{Activation, Math, Problem, Storage, variant::Arithmetic};

#[cfg(feature = "cuda")]
use crate::ffi;
use crate::{Data, Verdict};

/// The rounding of fp32: half a unit in the last place of 1.
const U: f64 = 1.0 / 16_777_216.0;
/// The rounding of f16.
const U16: f64 = 1.0 / 2048.0;
/// Correct to 16 roundings: what a fast exponential and the division after it need.
const EXPONENTIAL: f64 = 16.0 * U;

/// What one result is held to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// The result must equal the reference, rounded to the storage; the rest is then unused.
    pub exact: bool,
    /// Allowed error per element, in units of mag.
    pub per_mag: f64,
    /// Allowed error per element, in units of the reference.
    pub per_ref: f64,
    /// Allowed error per element, absolute.
    pub floor: f64,
    /// What the RMS leaves out beside `floor`, in units of the reference: the rounding of a 16-bit
    /// output.
    pub rounding: f64,
    /// Limit of the RMS, and how many times that of the sequential loop is added to it.
    rms: f64,
    per_sequential: f64,
}

impl Bounds {
    /// As csrc/oracle.h has them.
    #[cfg(feature = "cuda")]
    pub(crate) fn in_c(&self) -> ffi::cf_bounds {
        ffi::cf_bounds {
            exact: self.exact.into(),
            per_mag: self.per_mag,
            per_ref: self.per_ref,
            floor: self.floor,
            rounding: self.rounding,
        }
    }

    /// For a variant of this arithmetic that did `problem` with data of this kind.
    pub fn new(problem: &Problem, data: Data, arithmetic: Arithmetic) -> Self {
        let (storage, math) = (problem.storage(), problem.math());
        let activation = problem.epilogue().activation;
        let k = problem.reduction() as f64;
        let exponential = activation.is_exponential();
        // SiLU is steepest near 2.4.
        let slope = if activation == Activation::Silu {
            1.1
        } else {
            1.0
        };

        let transform = arithmetic == Arithmetic::Transform;
        let integer = data.sums_are_exact(problem) && !transform;
        let cut = 2.0 * (8.0 + k) * U;
        let per_mag = match math {
            // The sum is exact: what is left is the activation's own.
            Math::F16Acc if integer => 4.0 * U16,
            _ if integer => EXPONENTIAL,
            Math::Fp32 => (k + 2.0).min(8.0 + 4.0 * k.sqrt() + (k / 16384.0).powi(2)) * U,
            Math::F16 | Math::Bf16 => cut,
            Math::Tf32 => 2.2 / 1024.0 + cut,
            Math::F16Acc => (k + 2.0) * U16,
        };
        // Relative to a value between 1 and 2, whose unit it is half of.
        let (half_unit, floor) = match storage {
            Storage::F32 => (U, 2f64.powi(-150)),
            Storage::F16 => (U16, 2f64.powi(-25)),
            Storage::Bf16 => (1.0 / 256.0, 2f64.powi(-134)),
        };
        let floor = match math {
            Math::F16Acc => {
                let scale = f64::from(problem.epilogue().scale.abs());
                floor.max((k + 2.0) * scale.max(1.0) * 2f64.powi(-25))
            }
            _ => floor,
        };
        let (rms, per_sequential) = match math {
            _ if transform && data.is_whole() => (f64::INFINITY, 0.0),
            _ if data == Data::Extreme => (f64::INFINITY, 0.0),
            Math::Fp32 => (0.0, 2.0),
            Math::F16 | Math::Bf16 => (3e-7 + 1e-8 * k, 0.0),
            Math::Tf32 => (1e-3, 0.0),
            Math::F16Acc if data == Data::Positive => (U16 * (2.0 + k / 4.0), 0.0),
            Math::F16Acc => (U16 * (2.0 + k.sqrt()), 0.0),
        };
        Bounds {
            exact: integer && !exponential,
            per_mag: per_mag * slope,
            per_ref: half_unit + if exponential { EXPONENTIAL } else { 0.0 },
            floor,
            rounding: if storage == Storage::F32 {
                0.0
            } else {
                half_unit
            },
            // The sequential loop's activation is computed in f64.
            rms: rms * slope + if exponential { EXPONENTIAL / 2.0 } else { 0.0 },
            per_sequential,
        }
    }

    /// How far an element may be from the reference.
    pub fn allowed(&self, value: f64, mag: f64) -> f64 {
        self.per_mag * mag + self.per_ref * value.abs() + self.floor
    }

    /// How large the RMS may be. Few outputs make no statistics: the loop may happen to be right
    /// about all of them. So a part of the allowed error of one element is added, which fades as
    /// outputs get more.
    pub fn rms_limit(&self, verdict: &Verdict) -> f64 {
        let slack = (self.per_mag / 4.0).max(4.0 * U) / (verdict.counted.max(1) as f64).sqrt();
        self.rms + self.per_sequential * verdict.rms_sequential() + slack
    }
}
