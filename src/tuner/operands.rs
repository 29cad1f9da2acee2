//! Operands on a device, in as many copies as wanted, of whole numbers.
//!
//! Inputs are -1, 0 or 1, and so are weights, most of which are 0 where a sum has many products: sums stay
//! so small that every math has them exactly, in whatever order they are made.

use std::{ffi::c_void, ptr::null};

use half::{bf16, f16};

use crate::{Buffer, Device, Problem, Result, Storage, Stream, variant::RawOperands};

/// Products of a sum whose weights need not be thinned out.
const DENSE: usize = 1 << 15;
/// The largest bias and residual.
const ADDED: i64 = 4;

/// The same tensor some times, each aligned as the problem says.
struct Copies {
    memory: Buffer<u8>,
    start: usize,
    stride: usize,
}

impl Copies {
    /// Of so many bytes. What is too large for the device is never made on the host.
    fn new(
        device: &Device,
        problem: &Problem,
        bytes: usize,
        content: impl FnOnce() -> Vec<u8>,
        count: usize,
    ) -> Result<Self> {
        let align = problem.align().max(256);
        let stride = bytes.next_multiple_of(align);
        // The base of an allocation is aligned to less than some problems guarantee.
        let mut memory = device.alloc::<u8>(stride * count + align)?;
        let content = content();
        let base = memory.as_ptr() as usize;
        let start = base.next_multiple_of(align) - base;
        let mut host = vec![0; memory.len()];
        for copy in 0..count {
            host[start + copy * stride..][..bytes].copy_from_slice(&content);
        }
        memory.copy_from(&host, &device.stream()?)?;
        Ok(Copies {
            memory,
            start,
            stride,
        })
    }

    fn at(&self, copy: usize) -> *const c_void {
        let offset = self.start + copy * self.stride;
        self.memory.as_ptr().wrapping_byte_add(offset)
    }
}

/// The operands of a problem, in `count` sets.
pub(super) struct Operands {
    pub(super) raw: Vec<RawOperands>,
    y: Copies,
    y_bytes: usize,
    storage: Storage,
    _others: [Copies; 4],
}

impl Operands {
    pub(super) fn new(device: &Device, problem: &Problem, count: usize) -> Result<Self> {
        let storage = problem.storage();
        let copies = |storage: Storage, len: usize, most, thinned| {
            let content = || encode(storage, numbers(len, most, thinned));
            Copies::new(device, problem, len * storage.bytes(), content, count)
        };
        let x = copies(storage, problem.x_len(), 1, 1)?;
        let w = copies(storage, problem.w_len(), 1, thinned(problem))?;
        let bias = copies(Storage::F32, problem.bias_len(), ADDED, 1)?;
        let residual = copies(storage, problem.residual_len(), ADDED, 1)?;
        let y_bytes = problem.y_len() * storage.bytes();
        let y = Copies::new(device, problem, y_bytes, || poison(y_bytes), count)?;
        let set = |i| {
            let given = |copies: &Copies, is| if is { copies.at(i) } else { null() };
            RawOperands::new(x.at(i), w.at(i), y.at(i).cast_mut())
                .bias(given(&bias, problem.epilogue().bias).cast())
                .residual(given(&residual, problem.epilogue().residual))
        };
        Ok(Operands {
            raw: (0..count).map(set).collect(),
            y,
            y_bytes,
            storage,
            _others: [x, w, bias, residual],
        })
    }

    /// Fills the first set's output with NaN.
    pub(super) fn poison(&mut self, stream: &Stream) -> Result<()> {
        let all = poison(self.y.memory.len());
        self.y.memory.copy_from(&all, stream)
    }

    /// The first set's output, once `stream`'s work is done.
    pub(super) fn output(&self, stream: &Stream) -> Result<Vec<f32>> {
        let bytes = self.y.memory.to_vec(stream)?;
        Ok(decode(self.storage, &bytes[self.y.start..][..self.y_bytes]))
    }
}

/// Bytes that are NaN in every storage.
fn poison(bytes: usize) -> Vec<u8> {
    vec![0xff; bytes]
}

/// One of so many weights may be other than 0.
fn thinned(problem: &Problem) -> u64 {
    problem.reduction().div_ceil(DENSE) as u64
}

/// What most sums are at most, before the epilogue: eight standard deviations, as they are sums of
/// products that are 1 or -1, each in four of nine cases of those that the thinning leaves.
pub(super) fn largest_sum(problem: &Problem) -> f64 {
    let products = problem.reduction() as f64 / thinned(problem) as f64;
    8.0 * (products * 4.0 / 9.0).sqrt()
}

/// Whole numbers up to `most`, all but one of `thinned` of them 0: the same for the same length.
fn numbers(len: usize, most: i64, thinned: u64) -> impl Iterator<Item = f32> {
    // SplitMix64 of the place.
    let random = |i: u64| {
        let mut z = i.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..len as u64).map(move |i| {
        let random = random(i ^ (len as u64) << 32);
        let number = (random >> 32) as i64 % (2 * most + 1) - most;
        if random % thinned == 0 {
            number as f32
        } else {
            0.0
        }
    })
}

fn encode(storage: Storage, numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    match storage {
        Storage::F32 => numbers.flat_map(f32::to_ne_bytes).collect(),
        Storage::F16 => numbers
            .flat_map(|n| f16::from_f32(n).to_ne_bytes())
            .collect(),
        Storage::Bf16 => numbers
            .flat_map(|n| bf16::from_f32(n).to_ne_bytes())
            .collect(),
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
