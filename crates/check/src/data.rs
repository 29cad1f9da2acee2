//! The kinds of numbers that a check feeds to a convolution.

use std::fmt;

use convforge::{Math, Problem, Storage, variant::Arithmetic};

/// A kind of data; each sees faults that the others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Whole numbers, different everywhere, so small that every sum in every order is exact: the
    /// result must be too. Nothing that reads, writes or adds the wrong element passes. In f32 with
    /// math fp32 some have more than the 11 bits of a TF32 or f16 operand: what multiplies operands in
    /// parts needs the low ones.
    Integer,
    /// Roughly normal, mean 0, variance 4/3: sums that cancel. What was rounded too early shows.
    Normal,
    /// Uniform in (0, 1]: sums that grow. An accumulator that is too narrow or cuts shows.
    Positive,
    /// +-2^U(-10, 10), or a narrower range where f16 would overflow: terms of unequal size.
    Wide,
    /// Whole numbers times 2^-24, the least f16: operands that are subnormal f16, and sums that are
    /// as exact as those of whole numbers. What takes subnormal operands for zero has nothing right.
    Subnormal,
    /// Exponents over most of the operands' range, other ones in every channel, of products that are
    /// of one size: 2^-60 to 2^60, or 2^-18 to 2^15 where operands are f16. What flushes, overflows or
    /// has one scale for a whole tensor shows. No transform is fed with it, as it adds up pixels of
    /// unequal size before it multiplies.
    Extreme,
}

impl Data {
    /// Every kind.
    pub const ALL: [Data; 6] = [
        Data::Integer,
        Data::Normal,
        Data::Positive,
        Data::Wide,
        Data::Subnormal,
        Data::Extreme,
    ];

    /// Whether a problem is fed with it: subnormal operands only where operands are f16, sums are
    /// f32, and what follows keeps them exact.
    pub fn fits(self, problem: &Problem) -> bool {
        let f16 = problem.storage() == Storage::F16 || problem.math() == Math::F16;
        self != Data::Subnormal
            || f16
                && problem.math() != Math::F16Acc
                && self.sums_are_exact(problem)
                && !problem.epilogue().activation.is_exponential()
    }

    /// Whether a variant of this arithmetic is fed with it.
    pub fn suits(self, arithmetic: Arithmetic) -> bool {
        self != Data::Extreme || arithmetic == Arithmetic::Exact
    }

    /// Whole numbers, or a power of two times whole numbers.
    pub(crate) fn is_whole(self) -> bool {
        matches!(self, Data::Integer | Data::Subnormal)
    }

    /// Whether no order of additions rounds a sum, and the epilogue's factor shifts it without
    /// rounding, by so little that it stays exact.
    pub(crate) fn sums_are_exact(self, problem: &Problem) -> bool {
        let scale = problem.epilogue().scale;
        let bits_of_mantissa = scale.to_bits() & 0x7f_ffff;
        let shifts = bits_of_mantissa == 0 && (1.0 / 64.0..=64.0).contains(&scale.abs());
        self.is_whole() && shifts
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Data::Integer => "integer",
            Data::Normal => "normal",
            Data::Positive => "positive",
            Data::Wide => "wide",
            Data::Subnormal => "subnormal",
            Data::Extreme => "extreme",
        })
    }
}
