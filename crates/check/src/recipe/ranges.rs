//! How large numbers may be: nothing overflows, and where an activation saturates, sums are a few units.

use convforge::{Activation, Math, Problem, Storage};

use crate::{Data, rng::mix, whole::Whole};

/// Exponent of the least normal f16, without its sign.
const F16_LEAST: u32 = 14;

/// The least f16 above zero.
const F16_UNIT: f32 = 1.0 / 16_777_216.0;

/// What a problem leaves room for.
pub(super) struct Ranges<'a> {
    problem: &'a Problem,
    data: Data,
    /// Products of a sum.
    k: u64,
    /// What sums are multiplied by, without its sign.
    scale: f64,
    /// Outputs or sums are f16.
    narrow: bool,
    /// Operands are f16.
    f16: bool,
}

impl<'a> Ranges<'a> {
    pub(super) fn new(problem: &'a Problem, data: Data) -> Self {
        let narrow = problem.storage() == Storage::F16 || problem.math() == Math::F16Acc;
        Ranges {
            problem,
            data,
            k: problem.reduction() as u64,
            scale: f64::from(problem.epilogue().scale.abs()),
            narrow,
            f16: narrow || problem.math() == Math::F16,
        }
    }

    /// Those of whole numbers.
    pub(super) fn whole(&self, seed: u64) -> Whole {
        // What the accumulator counts exactly; outputs stay under the 65504 of an f16.
        let exact: f64 = if self.problem.math() == Math::F16Acc {
            2048.0
        } else {
            16_777_216.0
        };
        let outputs: f64 = if self.narrow { 60_000.0 } else { f64::INFINITY };
        Whole::new(self.problem, seed, exact, outputs)
    }

    /// Exponents of wide data lie in -e..e.
    pub(super) fn exponents(&self) -> i32 {
        let room = if self.narrow {
            32_768.0 / (self.k as f64 * self.scale.max(1.0))
        } else {
            f64::INFINITY
        };
        let widest = if self.f16 { 5 } else { 10 };
        (1..=widest)
            .rev()
            .find(|e| 4f64.powi(*e) <= room)
            .unwrap_or(1)
    }

    /// What each tensor is multiplied by at last, plus or minus a power of two.
    pub(super) fn factors(&self, seed: u64, whole: &Whole, exponents: i32) -> [f32; 4] {
        let problem = self.problem;
        let [x, w] = match (self.data, problem.storage()) {
            (Data::Subnormal, Storage::F32) => [F16_UNIT, F16_UNIT],
            // An f16 output cannot hold the square: input or filter, as seed and filter have it.
            (Data::Subnormal, _) if mix(seed ^ mix(problem.w_len() as u64)) & 1 == 0 => {
                [F16_UNIT, 1.0]
            }
            (Data::Subnormal, _) => [1.0, F16_UNIT],
            // The filter is divided so that sums lie where a saturating activation is not flat.
            _ => [1.0, 2f32.powi(-(self.down(whole, exponents) as i32))],
        };
        // Bias and residual in the unit of the sums; other data has them as they come.
        let added = match self.data {
            Data::Subnormal => x * w,
            _ => 1.0,
        };
        // A ReLU leaves what would be positive.
        let sign = problem.epilogue().scale.signum();
        [x, sign * w, added, added]
    }

    /// The power of two that brings sums down to where they are compared best.
    fn down(&self, whole: &Whole, exponents: i32) -> u32 {
        let (scale, typical) = (self.scale, self.typical(whole, exponents));
        let saturates = matches!(
            self.problem.epilogue().activation,
            Activation::Relu6 | Activation::Tanh | Activation::Sigmoid
        );
        let down = match self.data {
            _ if saturates => ((typical * scale / 3.0) as u64).max(1).ilog2(),
            // Below what f16 overflows at; other data has its ranges from `exponents`, or cancels.
            Data::Positive if self.narrow => {
                // Sums in f16 are not yet scaled.
                let most = if self.problem.math() == Math::F16Acc {
                    scale.max(1.0)
                } else {
                    scale
                };
                ((typical * most / 8192.0) as u64).max(1).ilog2()
            }
            _ => 0,
        };
        // Operands that are f16 stay normal: tensor cores seem to align a product by its operands'
        // exponents, and the bounds do not count the bits that a subnormal one would lose
        // (docs/notes/checking.md).
        down.min(if self.f16 {
            F16_LEAST - exponents as u32
        } else {
            20
        })
    }

    /// What |sum| is about.
    fn typical(&self, whole: &Whole, exponents: i32) -> f64 {
        let k = self.k as f64;
        match self.data {
            Data::Integer => whole.typical,
            // Far from where anything saturates; and exponents of its own.
            Data::Subnormal | Data::Extreme => 0.0,
            Data::Normal => 1.3 * k.sqrt(),
            Data::Positive => k / 4.0,
            Data::Wide => 0.3 * 4f64.powi(exponents) * k.sqrt(),
        }
    }
}
