//! Exponents over most of a storage's range, of products that are all of one size.
//!
//! What a channel of the input is multiplied by, the same channel of the filter is divided by. So
//! every channel matters to every sum, however small its numbers are, and one that is flushed to
//! zero, overflows or loses its low bits shows. Where f32's range has room, each pixel of the input
//! and each filter has an exponent of its own as well, and outputs are as far apart.
//!
//! f16 has 2^-18 to 2^15, with the larger subnormals. Smaller ones have data of their own, whose sums
//! are exact: a tensor core takes them for numbers of 2^-14 when it aligns products, and then loses
//! more than the bound counts.

use convforge::{Activation, Math, Problem, Storage};

use crate::rng::mix;

/// The exponents of one problem's operands.
#[derive(Clone, Debug)]
pub(crate) struct Exponents {
    pub(crate) seed: u64,
    /// Of the input's channels, the least and how many there are.
    pub(crate) first: i32,
    pub(crate) channels: u64,
    /// Of products.
    pub(crate) product: i32,
    /// Those of pixels and filters lie in -others..=others.
    pub(crate) others: i32,
}

/// What an f16 operand may be.
const F16: [i32; 2] = [-18, 14];

impl Exponents {
    /// For products whose sum, over `k` of them, is to stay under 2^`most` and, where an activation
    /// saturates, to be a few units.
    pub(crate) fn new(problem: &Problem, seed: u64) -> Self {
        let epilogue = problem.epilogue();
        let scale = f64::from(epilogue.scale.abs());
        let k = problem.reduction() as f64;
        let f16 =
            problem.storage() == Storage::F16 || matches!(problem.math(), Math::F16 | Math::F16Acc);
        let mut product = if f16 { -4 } else { 0 };
        if problem.storage() == Storage::F16 || problem.math() == Math::F16Acc {
            // Products of mantissas are under 4. Half of what f16 holds is left to the epilogue.
            let room = (32_768.0 / (4.0 * k * scale.max(1.0))).log2().floor();
            product = product.min(room as i32);
        }
        let saturates = matches!(
            epilogue.activation,
            Activation::Relu6 | Activation::Tanh | Activation::Sigmoid | Activation::Silu
        );
        if saturates {
            let typical = 2.3 * k.sqrt() * scale;
            product = product.min((3.0 / typical).log2().floor() as i32);
        }
        let alone = !saturates && !epilogue.bias && !epilogue.residual;
        let [first, last] = match f16 {
            true => [F16[0].max(product - F16[1]), F16[1].min(product - F16[0])],
            false => [-40, 40],
        };
        Exponents {
            seed: mix(seed),
            first,
            channels: (last - first).max(0) as u64 + 1,
            product,
            others: if alone && !f16 { 20 } else { 0 },
        }
    }

    /// Of an element of the input.
    pub(crate) fn of_x(&self, channel: usize, pixel: usize) -> i32 {
        self.of_channel(channel) + self.other(mix(self.seed.wrapping_add(pixel as u64)))
    }

    /// Of a weight.
    pub(crate) fn of_w(&self, channel: usize, filter: usize) -> i32 {
        let other = self.other(mix(!self.seed.wrapping_add(filter as u64)));
        self.product - self.of_channel(channel) + other
    }

    fn of_channel(&self, channel: usize) -> i32 {
        let random = mix(self.seed ^ mix(channel as u64));
        self.first + (random % self.channels) as i32
    }

    fn other(&self, random: u64) -> i32 {
        (random % (2 * self.others as u64 + 1)) as i32 - self.others
    }
}
