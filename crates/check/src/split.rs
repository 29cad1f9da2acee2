//! Sums of fp32 products on tensor cores, emulated bit for bit: what operands in parts lose.
//!
//! A tensor core multiplies f16 or TF32 operands exactly. It aligns the products of an instruction and
//! its accumulator to the largest exponent, as operands have it, cuts each toward zero at two bits
//! below the unit of an f32 there, adds them exactly, and cuts the result toward zero to f32 (measured
//! on an H200, equal in every bit on 6000 sums). [`Method`] has what a kernel may do about that.
//!
//! **Three f16 products.** `x s = h + l / 4096`, with h and l in f16 and s a power of two that brings
//! the largest number of a block under 2^15: a block of x is 64 channels of a tile's pixels, one of w
//! 64 channels of an output channel. Of 64 terms, `P = (hx lw + lx hw) / 4096 + hx hw`, without the
//! product of two l, and `S += P / (sx sw)`: the sum S is rounded to nearest, and has no scale.
//!
//! | size of x in its block | what `h + l / 4096` is wrong by |
//! | --- | --- |
//! | down to 2^-28 of the largest | at most 2^-23 of x |
//! | down to 2^-29 | at most 2^-22 of x |
//! | below | a guard sees it, and the sum is a loop's ([`Scale::of`]) |
//!
//! The loop also takes the place of sums that are no finite number, so infinities and NaN come out as
//! a loop has them.

use std::fmt;

use half::f16;
use rayon::prelude::*;

/// Terms of a block: those that have a scale of their own.
pub const BLOCK: usize = 64;
/// Terms of an instruction.
const STEP: usize = 16;
const TF32_STEP: usize = 8;
/// What l is multiplied by.
const LOW: f32 = 4096.0;
/// The largest number of a scaled block has this exponent.
const TOP: i32 = 14;
/// What lies so many exponents below its block's largest is for the guard.
const RANGE: i32 = 29;
/// So is a block whose largest has less than this, so that all these numbers are normal ones.
const LEAST: i32 = RANGE - 126;
/// And products of blocks whose scales are below this, so that those of l are normal ones.
const LEAST_FACTOR: f32 = f32::MIN_POSITIVE * LOW;

/// How products are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A sequential loop of fp32 multiply-adds.
    Loop,
    /// Three TF32 products; the large ones go into an f32 sum after so many instructions of 8 terms.
    Tf32 {
        /// Instructions.
        every: usize,
    },
    /// Three f16 products, as above; P goes into S after so many steps of 16 terms, at most 4.
    F16 {
        /// Steps.
        every: usize,
    },
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Method::Loop => f.pad("FFMA"),
            Method::Tf32 { every } => f.pad(&format!("3xTF32, every {every}")),
            Method::F16 { every } => f.pad(&format!("3xF16, every {}", every * STEP)),
        }
    }
}

/// The scale of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// Times 2 to this; 0 for a block of zeros.
    Power(i32),
    /// None does: a number is none, or the block's exponents reach too far.
    Guard,
}

impl Scale {
    /// Of a block with these numbers.
    pub fn of<'a>(values: impl IntoIterator<Item = &'a f32>) -> Scale {
        let (mut largest, mut least) = (0, u32::MAX);
        for value in values {
            let bits = value.to_bits() & 0x7fff_ffff;
            largest = largest.max(bits);
            // Zero is behind all others.
            least = least.min(bits.wrapping_sub(1));
        }
        let exponent = |bits: u32| (bits >> 23) as i32 - 127;
        match exponent(largest) {
            _ if largest == 0 => Scale::Power(0),
            top if !(LEAST..128).contains(&top) => Scale::Guard,
            top if exponent(least.wrapping_add(1)) < top - RANGE => Scale::Guard,
            top => Scale::Power(TOP - top),
        }
    }

    /// What the sum of products is multiplied by; none where a loop has to do it.
    fn factor(self, other: Scale) -> Option<f32> {
        let (Scale::Power(a), Scale::Power(b)) = (self, other) else {
            return None;
        };
        // Beyond the largest it is an infinity, and the sum is not finite.
        let factor = power(-a) * power(-b);
        (factor >= LEAST_FACTOR).then_some(factor)
    }
}

fn power(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

/// An operand of a tensor core: mantissa times 2^(exponent - 10).
#[derive(Clone, Copy, Debug, Default)]
struct Operand {
    mantissa: i32,
    exponent: i32,
}

impl Operand {
    fn of_f16(value: f16) -> Self {
        let bits = i32::from(value.to_bits());
        let (field, mantissa) = (bits >> 10 & 31, bits & 1023);
        Operand::new(bits >> 15 & 1, field, mantissa, 15)
    }

    /// What a tensor core sees of an f32.
    fn of_tf32(value: f32) -> Self {
        let bits = value.to_bits() as i32;
        let (field, mantissa) = (bits >> 23 & 255, bits >> 13 & 1023);
        Operand::new(bits >> 31 & 1, field, mantissa, 127)
    }

    fn new(sign: i32, field: i32, mantissa: i32, bias: i32) -> Self {
        let whole = if field > 0 { mantissa + 1024 } else { mantissa };
        Operand {
            mantissa: if sign != 0 { -whole } else { whole },
            exponent: field.max(1) - bias,
        }
    }
}

/// Both parts of an operand.
#[derive(Clone, Copy, Debug, Default)]
struct Parts {
    high: Operand,
    low: Operand,
}

impl Parts {
    /// Of a number of a block.
    fn of_f16(value: f32, scale: f32) -> Self {
        let scaled = value * scale;
        let high = f16::from_f32(scaled);
        let low = f16::from_f32((scaled - high.to_f32()) * LOW);
        Parts {
            high: Operand::of_f16(high),
            low: Operand::of_f16(low),
        }
    }

    /// The high part rounded by an integer addition, the low one cut by the tensor core.
    fn of_tf32(value: f32) -> Self {
        let high = f32::from_bits((value.to_bits().wrapping_add(0x1000)) & 0xffff_e000);
        Parts {
            high: Operand::of_tf32(high),
            low: Operand::of_tf32(value - high),
        }
    }
}

/// An instruction: `sum + a b`.
fn multiply<'a>(sum: f32, pairs: impl Iterator<Item = (&'a Operand, &'a Operand)> + Clone) -> f32 {
    let bits = sum.to_bits();
    let field = (bits >> 23 & 255) as i32;
    let whole = (bits & 0x7f_ffff) as i64 | if field > 0 { 1 << 23 } else { 0 };
    let of_sum = field.max(1) - 127;
    let products = pairs.filter(|(a, b)| a.mantissa != 0 && b.mantissa != 0);
    let all = products.clone().map(|(a, b)| a.exponent + b.exponent);
    let all = all.chain((whole != 0).then_some(of_sum));
    let Some(top) = all.max() else {
        return sum;
    };
    // In units of 2^(top - 25); division cuts toward zero.
    let shift = |mantissa: i64, by: i32| match by {
        0.. => mantissa << by,
        -62..0 => mantissa / (1 << -by),
        _ => 0,
    };
    let of_sum = shift(whole, of_sum - top + 2);
    let mut total = if bits >> 31 != 0 { -of_sum } else { of_sum };
    for (a, b) in products {
        let product = i64::from(a.mantissa) * i64::from(b.mantissa);
        total += shift(product, a.exponent + b.exponent - top + 5);
    }
    // To f32.
    let more = (40 - total.unsigned_abs().leading_zeros() as i32).max(0);
    let cut = total / (1 << more) * (1 << more);
    (cut as f64 * 2f64.powi(top - 25)) as f32
}

/// All products of rows of x with rows of w, each of `terms` numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// One by one: of the first row of x with all rows of w, of the second one, ...
    pub y: Vec<f32>,
    /// Sums that a loop took the place of.
    pub guarded: usize,
}

/// Rows of x share scales by so many: those of a tile.
///
/// `x` and `w` hold rows of `terms`, which is at least 1.
pub fn products(method: Method, x: &[f32], w: &[f32], terms: usize, tile: usize) -> Products {
    let rows = |values: &[f32], together: usize| -> Vec<Row> {
        let sets = values.par_chunks(terms * together);
        let rows = sets.flat_map_iter(|set| Row::all(method, set, terms));
        rows.collect()
    };
    let (x_rows, w_rows) = (rows(x, tile), rows(w, 1));
    let pairs = x_rows.par_iter().zip(x.par_chunks(terms));
    let all = pairs.flat_map_iter(|(xs, x)| {
        let filters = w_rows.iter().zip(w.chunks(terms));
        filters.map(move |(ws, w)| {
            let fast = match method {
                Method::Loop => None,
                Method::Tf32 { every } => Some(tf32(xs, ws, every)),
                Method::F16 { every } => f16_sum(xs, ws, every),
            };
            let fast = fast.filter(|sum| sum.is_finite());
            let in_a_loop = || x.iter().zip(w).fold(0.0, |sum, (x, w)| x.mul_add(*w, sum));
            (fast.unwrap_or_else(in_a_loop), fast.is_none())
        })
    });
    let all: Vec<(f32, bool)> = all.collect();
    Products {
        guarded: all.iter().filter(|(_, guarded)| *guarded).count(),
        y: all.into_iter().map(|(y, _)| y).collect(),
    }
}

/// A row of numbers in parts.
struct Row {
    parts: Vec<Parts>,
    scales: Vec<Scale>,
}

impl Row {
    fn all(method: Method, set: &[f32], terms: usize) -> Vec<Row> {
        let of_block = |block: usize| {
            let end = (block + BLOCK).min(terms);
            Scale::of(set.chunks(terms).flat_map(|row| &row[block..end]))
        };
        let scales: Vec<Scale> = (0..terms).step_by(BLOCK).map(of_block).collect();
        let part = |(i, value): (usize, &f32)| match (method, scales[i / BLOCK]) {
            (Method::F16 { .. }, Scale::Power(exponent)) => Parts::of_f16(*value, power(exponent)),
            (Method::Tf32 { .. }, _) => Parts::of_tf32(*value),
            _ => Parts::default(),
        };
        let row = |row: &[f32]| Row {
            parts: row.iter().enumerate().map(part).collect(),
            scales: scales.clone(),
        };
        set.chunks(terms).map(row).collect()
    }
}

/// Products of one part of each operand.
fn pairs<'a>(
    x: &'a [Parts],
    w: &'a [Parts],
    part: fn(&'a Parts, &'a Parts) -> (&'a Operand, &'a Operand),
) -> impl Iterator<Item = (&'a Operand, &'a Operand)> + Clone {
    x.iter().zip(w).map(move |(x, w)| part(x, w))
}

fn f16_sum(x: &Row, w: &Row, every: usize) -> Option<f32> {
    let mut sum = 0f32;
    let blocks = x.parts.chunks(BLOCK).zip(w.parts.chunks(BLOCK));
    for (block, (xs, ws)) in blocks.enumerate() {
        let factor = x.scales[block].factor(w.scales[block])?;
        for (xs, ws) in xs.chunks(every * STEP).zip(ws.chunks(every * STEP)) {
            let steps = || xs.chunks(STEP).zip(ws.chunks(STEP));
            let mut p = 0f32;
            for (xs, ws) in steps() {
                p = multiply(p, pairs(xs, ws, |x, w| (&x.high, &w.low)));
            }
            for (xs, ws) in steps() {
                p = multiply(p, pairs(xs, ws, |x, w| (&x.low, &w.high)));
            }
            p /= LOW;
            for (xs, ws) in steps() {
                p = multiply(p, pairs(xs, ws, |x, w| (&x.high, &w.high)));
            }
            sum = p.mul_add(factor, sum);
        }
    }
    Some(sum)
}

fn tf32(x: &Row, w: &Row, every: usize) -> f32 {
    let steps = x.parts.chunks(TF32_STEP).zip(w.parts.chunks(TF32_STEP));
    let (mut sum, mut low, mut high) = (0f32, 0f32, 0f32);
    for (step, (xs, ws)) in steps.enumerate() {
        if step % every == 0 {
            sum += high;
            high = 0.0;
        }
        low = multiply(low, pairs(xs, ws, |x, w| (&x.low, &w.high)));
        low = multiply(low, pairs(xs, ws, |x, w| (&x.high, &w.low)));
        high = multiply(high, pairs(xs, ws, |x, w| (&x.high, &w.high)));
    }
    sum + high + low
}

#[cfg(test)]
mod tests {
    use convforge::{Problem, variant::Arithmetic};

    use super::*;
    use crate::{Bounds, Data, Recipe, Reference, judge};

    const F16: Method = Method::F16 { every: 4 };

    fn instruction(sum: f32, terms: &[(f32, f32)]) -> f32 {
        let operand = |v: f32| Operand::of_f16(f16::from_f32(v));
        let terms: Vec<_> = terms
            .iter()
            .map(|(a, b)| (operand(*a), operand(*b)))
            .collect();
        multiply(sum, terms.iter().map(|(a, b)| (a, b)))
    }

    /// What was measured, one fact at a time.
    #[test]
    fn an_instruction_cuts_as_the_hardware_does() {
        let unit = f32::EPSILON;
        let small = 2f32.powi(-12);
        // Cut toward zero, not rounded.
        assert_eq!(instruction(1.0, &[(1.5 * small, small)]), 1.0);
        assert_eq!(instruction(-1.0, &[(-1.5 * small, small)]), -1.0);
        // Two bits below the unit are kept, a third one is not: these add up to a unit, or stay below.
        let halves = |below: i32| [(2f32.powi(-11), 2f32.powi(-12 - below)); 8];
        assert_eq!(instruction(1.0, &halves(2)[..4]), 1.0 + unit);
        assert_eq!(instruction(1.0, &halves(3)), 1.0);
        // Exponents are those of the operands: 1.5 1.5 counts as one below 2.
        let near = [(1.5, 1.5), (2f32.powi(-12), 2f32.powi(-13))];
        assert_eq!(instruction(0.0, &near), 2.25);
        // What cancels leaves nothing of what was aligned away.
        let gone = [(16384.0, 16384.0), (-16384.0, 16384.0), (1.0, 1.0)];
        assert_eq!(instruction(0.0, &gone), 0.0);
        assert_eq!(instruction(3.5, &[]), 3.5);
        // Subnormal operands are none that are flushed.
        let least = 2f32.powi(-24);
        assert_eq!(instruction(0.0, &[(least, least)]), 2f32.powi(-48));
    }

    #[test]
    fn parts_are_as_near_as_promised() {
        let top = 1.7f32;
        let scale = match Scale::of(&[top, 0.0]) {
            Scale::Power(exponent) => power(exponent),
            Scale::Guard => panic!("it has one"),
        };
        for i in 0..200_000 {
            let exponent = i % (RANGE + 1);
            let mantissa = (i as u32).wrapping_mul(0x9e37_79b9) & 0x7f_ffff;
            let value = f32::from_bits(((127 - exponent) as u32) << 23 | mantissa);
            let Parts { high, low } = Parts::of_f16(value, scale);
            let of = |part: Operand| f64::from(part.mantissa) * 2f64.powi(part.exponent - 10);
            let back = (of(high) + of(low) / f64::from(LOW)) / f64::from(scale);
            let bits = if exponent <= 28 { 23 } else { 22 };
            let error = (back / f64::from(value) - 1.0).abs();
            assert!(error <= 2f64.powi(-bits), "{value}: {error}");
        }
    }

    #[test]
    fn the_guard_sees_what_no_scale_fits() {
        let of = |values: &[f32]| Scale::of(values);
        assert_eq!(of(&[0.0, -0.0]), Scale::Power(0));
        assert_eq!(of(&[-1.0, 2f32.powi(-29)]), Scale::Power(14));
        assert_eq!(of(&[-1.0, 0.999 * 2f32.powi(-29)]), Scale::Guard);
        assert_eq!(of(&[f32::MAX, 0.0, 1.0]), Scale::Guard);
        assert_eq!(of(&[f32::MAX, 0.0, 1e30]), Scale::Power(14 - 127));
        assert_eq!(of(&[1.0, f32::INFINITY]), Scale::Guard);
        assert_eq!(of(&[f32::NAN]), Scale::Guard);
        assert_eq!(of(&[f32::MIN_POSITIVE]), Scale::Guard);
    }

    /// Infinities, NaN, sums beyond the largest, subnormal ones.
    #[test]
    fn what_is_no_number_comes_out_as_from_a_loop() {
        let wild = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3e38, 1e-42];
        for (i, wild) in wild.into_iter().enumerate() {
            let mut x: Vec<f32> = (0..80).map(|i| (i % 7) as f32 - 3.0).collect();
            let w: Vec<f32> = (0..80).map(|i| (i % 5) as f32 - 1.9).collect();
            x[10 * i + 3] = wild;
            let [ours, plain] = [F16, Method::Loop].map(|method| products(method, &x, &w, 80, 1));
            assert_eq!(ours.guarded, 1);
            assert_eq!(ours.y[0].to_bits(), plain.y[0].to_bits(), "{wild}");
        }
    }

    fn judged(method: Method, data: Data, terms: usize) -> bool {
        let text = format!("mb64ic{terms}ih1oc24oh1kh1");
        let problem: Problem = text.parse().unwrap();
        let tensors = Recipe::new(&problem, data, 3).tensors();
        let reference = Reference::new(&problem, &tensors).unwrap();
        let bounds = Bounds::new(&problem, data, Arithmetic::Exact);
        let found = products(method, &tensors.x, &tensors.w, terms, 64);
        if method == F16 {
            assert_eq!(found.guarded > 0, data == Data::Extreme, "{data} {terms}");
        }
        let y: Vec<u8> = found.y.iter().flat_map(|y| y.to_ne_bytes()).collect();
        let verdict = judge(&reference, &y, &bounds).unwrap();
        verdict.bad == 0 && verdict.rms() <= bounds.rms_limit(&verdict)
    }

    #[test]
    fn f16_products_pass_the_check() {
        for data in Data::ALL {
            if data != Data::Subnormal {
                for terms in [32, 64, 72, 576] {
                    assert!(judged(F16, data, terms), "{data}, {terms}");
                }
            }
        }
    }

    /// The check that the others pass can fail: without promotion, what is cut adds up.
    #[test]
    fn sums_that_are_never_promoted_fail_it() {
        let never = Method::Tf32 { every: usize::MAX };
        for data in [Data::Normal, Data::Positive, Data::Wide] {
            assert!(!judged(never, data, 2304), "{data}");
        }
    }
}
