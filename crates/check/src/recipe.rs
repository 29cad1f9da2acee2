//! The numbers that a check feeds to a convolution, made from a kind of data and a seed.
//!
//! Every element is a function of the seed, the tensor and its index alone, so tensors are made in
//! parallel and any element can be made again by itself. Only integer operations, powers of two and
//! correctly rounded conversions are used: the same seed gives the same bits on every machine, and in
//! csrc/recipe.cuh, which makes large tensors on the GPU.

mod places;
mod ranges;
#[cfg(test)]
mod tests;

use convforge::{Activation, Device, Error, Problem, Storage};
use half::{bf16, f16};
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use crate::ffi;
use places::Places;
use ranges::Ranges;

use crate::{
    Data,
    extreme::Exponents,
    reference::{Tensors, round_stored},
    rng::mix,
    whole::{Whole, signed},
};

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tensor {
    /// Input.
    X,
    /// Filter.
    W,
    /// Bias.
    Bias,
    /// Residual.
    Residual,
}

/// How the operands of one problem are made from a kind of data and a seed.
#[derive(Clone, Debug)]
pub struct Recipe {
    data: Data,
    seed: u64,
    storage: Storage,
    lens: [usize; 4],
    places: Places,
    whole: Whole,
    /// Wide data: exponents lie in -e..e.
    exponents: u64,
    extreme: Exponents,
    /// What each tensor is multiplied by at last, plus or minus a power of two.
    factors: [f32; 4],
    /// An activation makes zeros of what is negative.
    clips: bool,
}

/// Largest magnitude of a bias or residual among whole numbers.
const ADDED: u64 = 3;

impl Recipe {
    /// Settles the ranges.
    pub fn new(problem: &Problem, data: Data, seed: u64) -> Self {
        let ranges = Ranges::new(problem, data);
        let whole = ranges.whole(seed);
        let exponents = ranges.exponents();
        Recipe {
            data,
            seed,
            storage: problem.storage(),
            lens: [
                problem.x_len(),
                problem.w_len(),
                problem.bias_len(),
                problem.residual_len(),
            ],
            places: Places::new(problem),
            factors: ranges.factors(seed, &whole, exponents),
            whole,
            extreme: Exponents::new(problem, seed),
            exponents: exponents as u64,
            clips: matches!(
                problem.epilogue().activation,
                Activation::Relu | Activation::Relu6
            ),
        }
    }

    /// What its random numbers come from.
    #[cfg(feature = "cuda")]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// One element, as it is stored.
    pub fn value(&self, tensor: Tensor, index: usize) -> f32 {
        let stream = self.stream(tensor);
        let hash = mix(stream.wrapping_add(index as u64));
        let value = match (self.data, tensor) {
            (Data::Integer | Data::Subnormal, tensor) => match tensor {
                Tensor::X => {
                    self.whole
                        .value(0, self.places.of_x(index)[0] % self.places.channels, hash)
                }
                Tensor::W if !self.kept(stream, index) => 0.0,
                Tensor::W => {
                    self.whole
                        .value(1, self.places.of_w(index)[0] % self.places.channels, hash)
                }
                Tensor::Bias | Tensor::Residual => signed(hash, (hash >> 8) % ADDED + 1),
            },
            // Where there are few channels, all of them could be zeros otherwise.
            (_, Tensor::Bias) if self.clips && index == 0 => 1.0,
            (Data::Normal, _) | (Data::Extreme, Tensor::Bias | Tensor::Residual) => {
                let again = mix(hash);
                let halves = [
                    hash >> 32,
                    hash & 0xffff_ffff,
                    again >> 32,
                    again & 0xffff_ffff,
                ];
                let sum = halves.iter().sum::<u64>() as i64 - 2 * 0xffff_ffff;
                sum as f32 * 2f32.powi(-31)
            }
            (Data::Positive, _) => ((hash >> 40) + 1) as f32 * 2f32.powi(-24),
            (Data::Wide, _) => {
                let exponent = (hash >> 40) % (2 * self.exponents);
                real(hash, exponent as i32 - self.exponents as i32)
            }
            (Data::Extreme, Tensor::X) => {
                let [channel, pixel] = self.places.of_x(index);
                real(hash, self.extreme.of_x(channel, pixel))
            }
            (Data::Extreme, Tensor::W) => {
                let [channel, filter] = self.places.of_w(index);
                real(hash, self.extreme.of_w(channel, filter))
            }
        };
        let value = value * self.factors[tensor as usize];
        round_stored(self.storage(tensor), value)
    }

    /// The recipe of one tensor in C.
    #[cfg(feature = "cuda")]
    pub(crate) fn in_c(&self, tensor: Tensor) -> ffi::cf_recipe {
        let (places, whole, extreme) = (&self.places, &self.whole, &self.extreme);
        let fine = whole.fine;
        ffi::cf_recipe {
            data: match self.data {
                Data::Integer | Data::Subnormal => ffi::CF_DATA_WHOLE,
                Data::Normal => ffi::CF_DATA_NORMAL,
                Data::Positive => ffi::CF_DATA_POSITIVE,
                Data::Wide => ffi::CF_DATA_WIDE,
                Data::Extreme => ffi::CF_DATA_EXTREME,
            } as i32,
            tensor: tensor as i32,
            storage: convforge::kernels::storage(self.storage(tensor)),
            clips: self.clips.into(),
            factor: self.factors[tensor as usize],
            stream: self.stream(tensor),
            len: self.lens[tensor as usize] as u64,
            between: places.between.map(|n| n as u64),
            all: places.all as u64,
            channels: places.channels as u64,
            filters: places.filters as u64,
            row: places.row as u64,
            largest: whole.largest,
            added: ADDED,
            block: whole.block as u64,
            // Of no channel that there is.
            period: fine.map_or(1, |fine| fine.period as u64),
            swap: fine.map_or(2, |fine| fine.swap as u64),
            half: fine.map_or(2, |fine| fine.half),
            partner: fine.map_or(1, |fine| fine.partner),
            wide: self.exponents as i32,
            extreme: extreme.seed,
            exponents: extreme.channels,
            first: extreme.first,
            product: extreme.product,
            others: extreme.others,
        }
    }

    /// What all random numbers of a tensor come from.
    fn stream(&self, tensor: Tensor) -> u64 {
        mix(self.seed ^ mix(tensor as u64 + 1))
    }

    /// Whether a weight is the one of its block that is not zero.
    fn kept(&self, stream: u64, index: usize) -> bool {
        let (size, row) = (self.whole.block, self.places.row);
        let (filter, tap) = (index / row, index % row);
        let block = mix(stream ^ mix(filter as u64)).wrapping_add((tap / size) as u64);
        mix(block) as usize % size == tap % size
    }

    /// How a tensor is stored.
    fn storage(&self, tensor: Tensor) -> Storage {
        match tensor {
            Tensor::Bias => Storage::F32,
            _ => self.storage,
        }
    }

    /// Bytes of a tensor.
    pub(crate) fn byte_len(&self, tensor: Tensor) -> usize {
        self.lens[tensor as usize] * self.storage(tensor).bytes()
    }

    /// Bytes of all operands, widened to f32.
    pub(crate) fn widened_bytes(&self) -> usize {
        self.lens.iter().sum::<usize>() * size_of::<f32>()
    }

    /// That the host has so many bytes: [`bytes`](Self::bytes) and [`tensors`](Self::tensors) would
    /// end the program where it has not.
    pub(crate) fn has_room(bytes: usize) -> Result<(), Error> {
        let found = Vec::<u8>::new().try_reserve_exact(bytes);
        found.map_err(|_| Error::OutOfMemory {
            device: Device::cpu().to_string(),
            asked: bytes,
            free: 0,
            total: 0,
        })
    }

    /// A whole tensor as the bytes of its storage.
    pub fn bytes(&self, tensor: Tensor) -> Vec<u8> {
        let mut bytes = vec![0; self.byte_len(tensor)];
        self.write(tensor, &mut bytes);
        bytes
    }

    /// The same into memory that is there, as much of it as this holds.
    pub fn write(&self, tensor: Tensor, to: &mut [u8]) {
        let storage = self.storage(tensor);
        let chunk = 1 << 14;
        to.par_chunks_mut(chunk * storage.bytes())
            .enumerate()
            .for_each(|(i, bytes)| {
                for (j, bytes) in bytes.chunks_exact_mut(storage.bytes()).enumerate() {
                    store(storage, self.value(tensor, i * chunk + j), bytes);
                }
            });
    }

    /// All operands, widened to f32.
    pub fn tensors(&self) -> Tensors {
        let all = |tensor: Tensor| {
            let indices = (0..self.lens[tensor as usize]).into_par_iter();
            indices.map(|index| self.value(tensor, index)).collect()
        };
        Tensors {
            x: all(Tensor::X),
            w: all(Tensor::W),
            bias: all(Tensor::Bias),
            residual: all(Tensor::Residual),
        }
    }
}

/// A number of either sign with this exponent, which is that of a normal f32.
fn real(hash: u64, exponent: i32) -> f32 {
    let mantissa = 1.0 + (hash & 0x7f_ffff) as f32 * 2f32.powi(-23);
    let sign = if hash >> 63 == 0 { 1.0 } else { -1.0 };
    sign * mantissa * f32::from_bits(((exponent + 127) as u32) << 23)
}

/// Writes one element as it is stored, rounded to nearest.
fn store(storage: Storage, value: f32, bytes: &mut [u8]) {
    match storage {
        Storage::F32 => bytes.copy_from_slice(&value.to_ne_bytes()),
        Storage::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        Storage::Bf16 => bytes.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
    }
}

/// These values as the bytes of their storage, rounded to nearest.
pub fn narrow(storage: Storage, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * storage.bytes()];
    for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(storage.bytes())) {
        store(storage, *value, bytes);
    }
    bytes
}

/// The elements of these bytes, widened to f32.
pub fn widen(storage: Storage, bytes: &[u8]) -> Vec<f32> {
    (0..bytes.len() / storage.bytes())
        .map(|index| widen_one(storage, bytes, index))
        .collect()
}

/// One element of these bytes, widened to f32.
pub(crate) fn widen_one(storage: Storage, bytes: &[u8], index: usize) -> f32 {
    let bytes = &bytes[index * storage.bytes()..];
    match storage {
        Storage::F32 => f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        Storage::F16 => f16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
        Storage::Bf16 => bf16::from_ne_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}
