//! Operands on a device, in as many copies as wanted, of whole numbers.
//!
//! Inputs are -1, 0 or 1, and so are weights, most of which are 0 where a sum has many products: sums stay
//! so small that every math has them exactly, in whatever order they are made. Where an activation levels
//! off, inputs and what is added are smaller by a power of two, which changes nothing of that: else one
//! sum were as good as another.

use std::{iter, ptr::null};

use half::{bf16, f16};

use super::copies::{Copies, on_host};
use crate::{
    Activation, Device, Epilogue, Math, Problem, Result, Storage, Stream, baselines::Reads,
    variant::RawOperands,
};

/// Products of a sum whose weights need not be thinned out.
const DENSE: usize = 1 << 15;
/// The same where sums are f16: of more, a single product would be less than the rounding of the largest.
const DENSE_F16: usize = 1 << 11;
/// The same where an activation levels off behind that, and leaves less of the product.
const DENSE_F16_LEVELLED: usize = 1 << 8;
/// The largest bias and residual, in units.
const ADDED: i64 = 4;
/// The same where an activation levels off: the unit of what is added.
const ADDED_UNIT: f32 = 0.25;
/// Inputs are no smaller, so that no storage has subnormal ones.
const LEAST_UNIT: f64 = 1.0 / 1024.0;

/// The operands of a problem, in `count` sets.
pub(super) struct Operands {
    count: usize,
    epilogue: Epilogue,
    storage: Storage,
    x: Copies,
    w: Copies,
    bias: Copies,
    residual: Copies,
    y: Copies,
    y_bytes: usize,
}

impl Operands {
    pub(super) fn new(device: &Device, problem: &Problem, count: usize) -> Result<Self> {
        let storage = problem.storage();
        let stream = device.stream()?;
        // What is too large for the device is never made on the host.
        let copies = |storage: Storage, numbers: Numbers| -> Result<Copies> {
            let bytes = numbers.len * storage.bytes();
            let mut copies = Copies::new(device, problem, bytes, count)?;
            copies.fill_alike(&stream, |to| encode(storage, numbers.all(), to))?;
            Ok(copies)
        };
        let content = Content::of(problem);
        let y_bytes = problem.y_len() * storage.bytes();
        Ok(Operands {
            count,
            epilogue: *problem.epilogue(),
            storage,
            x: copies(storage, content.x)?,
            w: copies(storage, content.w)?,
            bias: copies(Storage::F32, content.bias)?,
            residual: copies(storage, content.residual)?,
            y: Copies::new(device, problem, y_bytes, count)?,
            y_bytes,
        })
    }

    /// The addresses of every set, until anything else is done with them.
    pub(super) fn raw(&mut self) -> Vec<RawOperands> {
        let set = |i| {
            let given = |copies: &Copies, is| if is { copies.at(i) } else { null() };
            RawOperands::new(self.x.at(i), self.w.at(i), self.y.at_mut(i))
                .bias(given(&self.bias, self.epilogue.bias).cast())
                .residual(given(&self.residual, self.epilogue.residual))
        };
        (0..self.count).map(set).collect()
    }

    /// Fills the first set's output with NaN.
    pub(super) fn poison(&mut self, stream: &Stream) -> Result<()> {
        let all = on_host(self.y.memory().len(), POISON)?;
        self.y.memory_mut().copy_from(&all, stream)
    }

    /// The first set's output, once `stream`'s work is done.
    pub(super) fn output(&self, stream: &Stream) -> Result<Vec<f32>> {
        let bytes = self.y.memory().to_vec(stream)?;
        let first = &bytes[self.y.offset(0)..][..self.y_bytes];
        Ok(decode(self.storage, first))
    }
}

/// Of such bytes, NaN in every storage.
const POISON: u8 = 0xff;

/// What the operands of a problem hold.
pub(super) struct Content {
    x: Numbers,
    w: Numbers,
    bias: Numbers,
    residual: Numbers,
    /// What a sum is at most, scaled and with all that is added.
    pub(super) largest: f64,
}

impl Content {
    pub(super) fn of(problem: &Problem) -> Self {
        let (epilogue, reduction) = (problem.epilogue(), problem.reduction());
        let levels_off = levels_off(epilogue.activation);
        let dense = match problem.math() {
            Math::F16Acc if levels_off => DENSE_F16_LEVELLED,
            Math::F16Acc => DENSE_F16,
            _ => DENSE,
        };
        let thinned = reduction.div_ceil(dense);
        // Products are 1 or -1, each in four of nine cases of those that the thinning leaves.
        let deviation = (reduction as f64 / thinned as f64 * 4.0 / 9.0).sqrt();
        let scale = f64::from(epilogue.scale.abs());
        let (unit, added_unit) = match levels_off {
            true => (unit_for(deviation * scale), ADDED_UNIT),
            false => (1.0, 1.0),
        };
        let numbers = |len, most, thinned: usize, unit| Numbers {
            len,
            most,
            thinned: thinned as u64,
            unit,
        };
        Content {
            x: numbers(problem.x_len(), 1, 1, unit),
            w: numbers(problem.w_len(), 1, thinned, 1.0),
            bias: numbers(problem.bias_len(), ADDED, 1, added_unit),
            residual: numbers(problem.residual_len(), ADDED, 1, added_unit),
            // Eight standard deviations are more than any sum is.
            largest: 8.0 * deviation * scale * f64::from(unit)
                + (2 * ADDED) as f64 * f64::from(added_unit),
        }
    }

    /// What a problem's output at an index must be: sums are exact in whatever math.
    pub(super) fn output(&self, problem: &Problem, index: usize) -> f32 {
        let given = |numbers: Numbers, is: bool| move |i| if is { numbers.at(i) } else { 0.0 };
        let epilogue = problem.epilogue();
        let reads = Reads {
            x: given(self.x, true),
            w: given(self.w, true),
            bias: given(self.bias, epilogue.bias),
            residual: given(self.residual, epilogue.residual),
        };
        let storage = problem.storage();
        let output = reads.output_at(problem, index);
        let mut stored = [0; size_of::<f32>()];
        let stored = &mut stored[..storage.bytes()];
        encode(storage, iter::once(output), stored);
        decode(storage, stored)[0]
    }
}

/// Whether large values all become the same.
fn levels_off(activation: Activation) -> bool {
    match activation {
        Activation::Relu6 | Activation::Tanh | Activation::Sigmoid => true,
        Activation::None | Activation::Relu | Activation::Silu => false,
    }
}

/// The largest power of two that makes sums of this standard deviation differ by no more than 1.
fn unit_for(deviation: f64) -> f32 {
    let unit = (-deviation.max(1.0).log2().ceil()).exp2();
    unit.max(LEAST_UNIT) as f32
}

/// Whole multiples of a unit, up to so many of them, all but one of `thinned` of them 0: the same for the
/// same length.
#[derive(Clone, Copy)]
struct Numbers {
    len: usize,
    most: i64,
    thinned: u64,
    unit: f32,
}

impl Numbers {
    fn all(self) -> impl Iterator<Item = f32> {
        (0..self.len).map(move |i| self.at(i))
    }

    fn at(&self, i: usize) -> f32 {
        let random = random(i as u64 ^ (self.len as u64) << 32);
        let number = (random >> 32) as i64 % (2 * self.most + 1) - self.most;
        if random.is_multiple_of(self.thinned) {
            number as f32 * self.unit
        } else {
            0.0
        }
    }
}

/// SplitMix64 of a place.
fn random(place: u64) -> u64 {
    let mut z = place.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn encode(storage: Storage, numbers: impl Iterator<Item = f32>, to: &mut [u8]) {
    for (number, to) in numbers.zip(to.chunks_exact_mut(storage.bytes())) {
        match storage {
            Storage::F32 => to.copy_from_slice(&number.to_ne_bytes()),
            Storage::F16 => to.copy_from_slice(&f16::from_f32(number).to_ne_bytes()),
            Storage::Bf16 => to.copy_from_slice(&bf16::from_f32(number).to_ne_bytes()),
        }
    }
}

fn decode(storage: Storage, bytes: &[u8]) -> Vec<f32> {
    let pairs = || bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match storage {
        Storage::F32 => {
            let words = bytes.chunks_exact(4);
            words
                .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        }
        Storage::F16 => pairs().map(|b| f16::from_ne_bytes(b).to_f32()).collect(),
        Storage::Bf16 => pairs().map(|b| bf16::from_ne_bytes(b).to_f32()).collect(),
    }
}
