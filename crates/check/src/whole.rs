//! The ranges of whole numbers: no order of additions rounds a sum of their products.
//!
//! In f32 with math fp32 some of them are *fine*: odd numbers of 12 to 15 bits. Rounded to the 11
//! bits of a TF32 or f16 operand they leave something, so that a kernel that multiplies operands in
//! parts is right only if it multiplies the low ones as well. Such kernels leave out the product of
//! two low parts, so of every product at most one operand is fine: in some channels that of the
//! input, in others that of the filter. Where there is one channel, the seed has it.

use convforge::{Math, Problem, Storage};

use crate::rng::mix;

/// Largest magnitude of an operand that is not fine: exact in bf16, the coarsest operand.
const COARSE: u64 = 127;
/// The least fine number has so many bits.
const LEAST_FINE: u64 = 12;
/// The largest one stays under the 65504 of an f16.
const MOST_FINE: u64 = 15;

/// Largest magnitudes.
#[derive(Clone, Debug)]
pub(crate) struct Whole {
    /// Of input and filter.
    pub(crate) largest: [u64; 2],
    /// Of how many weights in a row one is not zero.
    pub(crate) block: usize,
    pub(crate) fine: Option<Fine>,
    /// What the magnitude of a sum is about.
    pub(crate) typical: f64,
}

/// Channels in which one operand is fine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fine {
    /// The input's is in the first of so many channels, and the filter's in the second.
    pub(crate) period: usize,
    /// 1 where it is the other way round.
    pub(crate) swap: usize,
    /// Fine magnitudes are odd and between this and twice this.
    pub(crate) half: u64,
    /// Largest magnitude of what a fine one is multiplied by.
    pub(crate) partner: u64,
    /// Products of a sum that have a fine operand.
    products: u64,
}

impl Whole {
    /// For sums whose accumulator counts exactly up to `exact` and outputs up to `outputs`.
    pub(crate) fn new(problem: &Problem, seed: u64, exact: f64, outputs: f64) -> Self {
        let k = problem.reduction() as u64;
        let scale = f64::from(problem.epilogue().scale.abs());
        // The most that sum |x w| may be. Half of what is counted is left to the epilogue.
        let most = (exact.min(outputs) / 2.0 / scale.max(1.0)).max(1.0) as u64;
        let fine = match (problem.storage(), problem.math()) {
            (Storage::F32, Math::Fp32) => Fine::new(problem, seed, most),
            _ => None,
        };
        let (products, room) = match &fine {
            None => (k, most),
            Some(fine) => (k - fine.products, most / 2),
        };
        // Where even ones would be too many, one weight of each block stays.
        let block = products.div_ceil(room).max(1);
        let terms = products.div_ceil(block).max(1);
        let w = (room / terms).isqrt().clamp(1, COARSE);
        let x = (room / terms / w).clamp(1, COARSE);
        // Half of the magnitudes' product, on average, and of four products one that is not
        // cancelled: half of all that one operand's sign is of three in four.
        let coarse = if products > 0 {
            (terms * (x + 1) * (w + 1)) as f64 / 16.0
        } else {
            0.0
        };
        Whole {
            largest: [x, w],
            block: block as usize,
            typical: coarse + fine.map_or(0.0, |fine| fine.typical()),
            fine,
        }
    }

    /// A number of the input (0) or the filter (1), other than zero. Three of four are positive, so
    /// that sums grow instead of cancelling and a ReLU leaves something to compare.
    pub(crate) fn value(&self, operand: usize, channel: usize, hash: u64) -> f32 {
        let random = hash >> 8;
        let magnitude = match self.fine.map(|fine| (fine, fine.operand(channel))) {
            Some((fine, which)) if which == operand => fine.half + 1 + random % (fine.half / 2) * 2,
            Some((fine, 0 | 1)) => random % fine.partner + 1,
            _ => random % self.largest[operand] + 1,
        };
        signed(hash, magnitude)
    }
}

impl Fine {
    /// As many channels as there is room for, where there is any.
    fn new(problem: &Problem, seed: u64, most: u64) -> Option<Self> {
        let channels = problem.c() / problem.groups();
        let taps = (problem.r() * problem.s()) as u64;
        let periods = (1..=usize::BITS - 2).map(|bits| 1usize << bits);
        let mut rare = periods.take_while(|period| *period < 4 * channels);
        rare.find_map(|period| {
            // Of each period's channels, two.
            let of_last = (channels % period).min(2);
            let products = (2 * (channels / period) + of_last) as u64 * taps;
            let all = products == channels as u64 * taps;
            let room = if all { most } else { most / 2 } / products;
            let bits = room.checked_ilog2()?.min(MOST_FINE as u32);
            (u64::from(bits) >= LEAST_FINE).then(|| Fine {
                period,
                swap: (mix(seed ^ mix(problem.w_len() as u64)) & 1) as usize,
                half: 1 << (bits - 1),
                partner: (room >> bits).clamp(1, COARSE),
                products,
            })
        })
    }

    /// Whose operand is fine in a channel: the input's (0), the filter's (1), or of neither.
    fn operand(&self, channel: usize) -> usize {
        (channel % self.period) ^ self.swap
    }

    /// What the magnitude of a sum is about.
    fn typical(&self) -> f64 {
        (self.products * 3 * self.half * (self.partner + 1)) as f64 / 16.0
    }
}

/// Negative once in four times.
pub(crate) fn signed(hash: u64, magnitude: u64) -> f32 {
    let magnitude = magnitude as f32;
    if hash & 3 == 0 { -magnitude } else { magnitude }
}
