//! Stored elements, and what the maths do to operands before they are multiplied.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::{Element, Math, Problem, Storage};

/// An element type as the CPU reads and writes it: everything is calculated in f32.
pub(super) trait Stored: Element {
    fn widen(self) -> f32;
    fn narrow(value: f32) -> Self;
    /// [`widen`](Self::widen) for slices of the same length.
    fn widen_all(from: &[Self], to: &mut [f32]);
    /// [`narrow`](Self::narrow) for slices of the same length.
    fn narrow_all(from: &[f32], to: &mut [Self]);
    /// The elements themselves, where they are f32 already.
    fn as_f32(from: &[Self]) -> Option<&[f32]>;
}

impl Stored for f32 {
    fn widen(self) -> f32 {
        self
    }

    fn narrow(value: f32) -> f32 {
        value
    }

    fn widen_all(from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn narrow_all(from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }

    fn as_f32(from: &[f32]) -> Option<&[f32]> {
        Some(from)
    }
}

macro_rules! stored_in_16_bits {
    ($($T:ty, $widen:expr);+) => {$(
        impl Stored for $T {
            #[inline]
            fn widen(self) -> f32 {
                $widen(self)
            }

            #[inline]
            fn narrow(value: f32) -> Self {
                Self::from_f32(value)
            }

            fn widen_all(from: &[Self], to: &mut [f32]) {
                to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
            }

            fn narrow_all(from: &[f32], to: &mut [Self]) {
                to.convert_from_f32_slice(from);
            }

            fn as_f32(_: &[Self]) -> Option<&[f32]> {
                None
            }
        }
    )+};
}

stored_in_16_bits!(f16, widen_f16; bf16, bf16::to_f32);

/// What happens to operands before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    None,
    Tf32,
    F16,
    Bf16,
}

impl Rounding {
    /// What the problem's math asks for; nothing where the storage has no more bits than that.
    pub(super) fn of(problem: &Problem) -> Self {
        match (problem.math(), problem.storage()) {
            (Math::Fp32, _)
            | (Math::F16 | Math::F16Acc, Storage::F16)
            | (Math::Bf16, Storage::Bf16) => Rounding::None,
            (Math::Tf32, _) => Rounding::Tf32,
            (Math::F16 | Math::F16Acc, _) => Rounding::F16,
            (Math::Bf16, _) => Rounding::Bf16,
        }
    }

    pub(super) fn apply_all(self, values: &mut [f32]) {
        match self {
            Rounding::None => {}
            Rounding::Tf32 => values.iter_mut().for_each(|v| *v = tf32(*v)),
            Rounding::F16 => values.iter_mut().for_each(|v| *v = round_f16(*v)),
            Rounding::Bf16 => values.iter_mut().for_each(|v| *v = round_bf16(*v)),
        }
    }
}

/// Rounds to 10 bits of mantissa, ties away from zero, as the GPU's `cvt.rna.tf32` does.
#[inline]
pub(super) fn tf32(value: f32) -> f32 {
    // A carry out of the mantissa raises the exponent, which is what rounding up means there.
    let rounded = f32::from_bits(value.to_bits().wrapping_add(0x1000) & !0x1fff);
    if value.is_finite() { rounded } else { value }
}

/// An f16's value. `half` asks for the processor's features at each call; this becomes vector code
/// in the loop around it.
#[inline]
pub(super) fn widen_f16(value: f16) -> f32 {
    let bits = u32::from(value.to_bits());
    let (sign, size) = ((bits & 0x8000) << 16, bits & 0x7fff);
    // The same fields in f32, whose exponent counts from 112 further down.
    let finite = f32::from_bits(size << 13) * 2f32.powi(112);
    let special = f32::from_bits(size << 13 | 0x7f80_0000);
    let size = if size < 0x7c00 { finite } else { special };
    f32::from_bits(size.to_bits() | sign)
}

/// Rounds to the nearest f16, ties to even; inline as [`widen_f16`] is.
#[inline]
pub(super) fn round_f16(value: f32) -> f32 {
    let size = value.abs();
    let bits = size.to_bits();
    let even = bits >> 13 & 1;
    let normal = f32::from_bits(bits.wrapping_add(0xfff + even) & !0x1fff);
    // Below the smallest normal f16, all are multiples of 2^-24, the last place of 0.5.
    let subnormal = (size + 0.5) - 0.5;
    let rounded = if size < 2f32.powi(-14) {
        subnormal
    } else {
        normal
    };
    let rounded = if rounded > 65504.0 {
        f32::INFINITY
    } else {
        rounded
    };
    let rounded = if value.is_nan() { value } else { rounded };
    rounded.copysign(value)
}

/// Rounds to the nearest bf16, ties to even.
#[inline]
pub(super) fn round_bf16(value: f32) -> f32 {
    let bits = value.to_bits();
    let even = bits >> 16 & 1;
    let rounded = f32::from_bits(bits.wrapping_add(0x7fff + even) & !0xffff);
    if value.is_nan() { value } else { rounded }
}

/// `sum + x * w` rounded to f16 once, as an fma would. `sum`, `x` and `w` are f16 values.
///
/// The f64 sum is exact unless the product is so small that it cannot reach the rounding. Going on
/// through f32 would round twice, so f32 is rounded to odd: its last bit then says that something
/// was cut off, and no tie appears that was none.
pub(super) fn f16_fma(sum: f32, x: f32, w: f32) -> f32 {
    let exact = f64::from(sum) + f64::from(x) * f64::from(w);
    let near = exact as f32;
    let back = f64::from(near);
    let odd = if exact.is_nan() || back == exact {
        near
    } else {
        let toward_zero = near.to_bits() - u32::from(back.abs() > exact.abs());
        f32::from_bits(toward_zero | 1)
    };
    round_f16(odd)
}
