//! A GPU's ceilings, by kernels and cuBLAS. Each result is looked at: work that was not done, or was
//! optimised away, would give the best rates of all.

use convforge::{
    Conv, Device, Error as Refused, Math, Problem, RawOperands, Shape, Storage, Stream,
    gpu::{DeviceBuffer, Gpu},
    kernels::checked,
    variants,
};
use convforge_check::{narrow, random_at, widen};
use rayon::prelude::*;

use crate::{Error, Result, ffi, measure::Ceilings};

/// Runs of each, after one that does not count; the median is taken.
const RUNS: usize = 7;
/// Blocks per multiprocessor: every thread it can hold.
const BLOCKS_PER_SM: u32 = 8;
/// The median of runs of 2 ms on an H200.
const FMA_ROUNDS: u32 = 1000;
/// Rows and columns of the matrices.
const SIDE: usize = 8192;

/// All ceilings of a GPU.
pub(super) fn measure(gpu: &Gpu) -> Result<Ceilings> {
    let stream = Device::from(gpu.clone()).stream()?;
    let [read, write, copy] = bandwidths(gpu, &stream)?;
    let fp32 = fma(gpu, &stream)?;
    let matrix = Matrix::new();
    let product = |math, storage| matrix.product(gpu, &stream, math, storage);
    Ok(Ceilings {
        read,
        write,
        copy,
        fp32,
        tf32: product(Math::Tf32, Storage::F32)?,
        f16: product(Math::F16, Storage::F16)?,
        bf16: product(Math::Bf16, Storage::Bf16)?,
        f16acc: product(Math::F16Acc, Storage::F16)?,
    })
}

/// The median time of `work`, in seconds. All runs are queued together: the GPU does not wait for
/// the host between them.
fn seconds(
    stream: &Stream,
    mut work: impl FnMut() -> convforge::Result<()>,
) -> convforge::Result<f64> {
    work()?;
    let mut marks = vec![stream.mark()?];
    for _ in 0..RUNS {
        work()?;
        marks.push(stream.mark()?);
    }
    let times = marks.windows(2).map(|pair| pair[1].us_since(&pair[0]));
    let mut times = times.collect::<convforge::Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2] * 1e-6)
}

fn wrong(what: &str) -> Error {
    Error::Wrong(format!(
        "the {what} that was to measure a ceiling left a wrong result"
    ))
}

fn blocks(gpu: &Gpu) -> i32 {
    (gpu.limits().sm_count * BLOCKS_PER_SM) as i32
}

/// Bytes per second of reading, writing and copying, far beyond the L2.
fn bandwidths(gpu: &Gpu, stream: &Stream) -> Result<[f64; 3]> {
    let limits = gpu.limits();
    let bytes = (16 * limits.l2_bytes)
        .max(512 << 20)
        .min(limits.memory_bytes / 8);
    let words = (bytes / 4) & !3;
    let from = DeviceBuffer::<u32>::alloc(gpu, words as usize)?;
    let mut to = DeviceBuffer::<u32>::alloc(gpu, words as usize)?;
    let mut sum = DeviceBuffer::<u32>::alloc(gpu, 1)?;
    let (raw, blocks) = (stream.raw(), blocks(gpu));
    let [a, b] = [&from, &to].map(|buffer| buffer.address() as *mut u32);
    let total = sum.address() as *mut u32;
    let _current = gpu.enter()?;

    let fill = |to, seed| {
        // SAFETY: the buffer is on the stream's device, has `words` words, and lives until the
        // marks behind the work are reached.
        let code = unsafe { ffi::cf_ceiling_write(to, words, seed, blocks, raw) };
        checked("cf_ceiling_write", code)
    };
    let add = |from| {
        // SAFETY: as above.
        let code = unsafe { ffi::cf_ceiling_read(from, words, total, blocks, raw) };
        checked("cf_ceiling_read", code)
    };
    let copy = || {
        // SAFETY: as above.
        let code = unsafe { ffi::cf_ceiling_copy(a, b, words, blocks, raw) };
        checked("cf_ceiling_copy", code)
    };

    let write_s = seconds(stream, || fill(a, 1))?;
    sum.upload(&[0])?;
    let read_s = seconds(stream, || add(a))?;
    let expected = pattern_sum(words, 1).wrapping_mul(RUNS as u32 + 1);
    if sum.download()? != [expected] {
        return Err(wrong("writing or reading"));
    }

    fill(b, 2)?;
    let kernel_s = seconds(stream, copy)?;
    sum.upload(&[0])?;
    add(b)?;
    stream.synchronize()?;
    if sum.download()? != [pattern_sum(words, 1)] {
        return Err(wrong("copying"));
    }
    let Some(queue) = stream.as_gpu() else {
        return Err(wrong("stream"));
    };
    let driver_s = seconds(stream, || queue.copy(&mut to, &from))?;

    let bytes = (words * 4) as f64;
    Ok([
        bytes / read_s,
        bytes / write_s,
        2.0 * bytes / kernel_s.min(driver_s),
    ])
}

/// What all words of a pattern add up to.
fn pattern_sum(words: u64, seed: u32) -> u32 {
    let indices = words * (words - 1) / 2;
    (words as u32)
        .wrapping_mul(seed)
        .wrapping_add((indices as u32).wrapping_mul(2_654_435_761))
}

/// Operations per second of FMAs in registers.
fn fma(gpu: &Gpu, stream: &Stream) -> Result<f64> {
    let blocks = blocks(gpu);
    let threads = blocks as usize * ffi::CF_FMA_THREADS as usize;
    let out = DeviceBuffer::<f32>::alloc(gpu, threads)?;
    // Just under 1, so that the chains stay apart and neither grow nor die out.
    let (factor, summand, rounds) = (1.0 - f32::EPSILON, 0.5, FMA_ROUNDS as i32);
    let _current = gpu.enter()?;
    let each = seconds(stream, || {
        let (out, raw) = (out.address() as *mut f32, stream.raw());
        // SAFETY: the buffer is on the stream's device, has one element per thread, and lives until
        // the marks behind the work are reached.
        let code = unsafe { ffi::cf_ceiling_fma(out, factor, summand, rounds, blocks, raw) };
        checked("cf_ceiling_fma", code)
    })?;

    let found = out.download()?;
    let steps = FMA_ROUNDS * ffi::CF_FMA_STEPS;
    let chain = |start: usize| (0..steps).fold(start as f32, |v, _| v.mul_add(factor, summand));
    for thread in [0, threads / 2 + 1, threads - 1] {
        let chains = (0..ffi::CF_FMA_CHAINS as usize).map(|i| chain(thread + i));
        if found[thread] != chains.fold(f32::MIN, f32::max) {
            return Err(wrong("arithmetic"));
        }
    }
    Ok(threads as f64 * f64::from(ffi::CF_FMA_CHAINS * steps) * 2.0 / each)
}

/// Random numbers from -1 to 1, as a square matrix.
struct Matrix(Vec<f32>);

impl Matrix {
    fn new() -> Self {
        let number = |i: usize| {
            // 24 bits are exact in f32.
            (random_at(0, i as u64) >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        Matrix((0..SIDE * SIDE).into_par_iter().map(number).collect())
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.0[row * SIDE..][..SIDE]
    }

    /// Operations per second of cuBLAS's product of the matrix and its transpose, two copies of it;
    /// none where cuBLAS cannot do that here. It is asked as the baseline is: through a fully
    /// connected layer, which is a product and nothing else.
    fn product(
        &self,
        gpu: &Gpu,
        stream: &Stream,
        math: Math,
        storage: Storage,
    ) -> Result<Option<f64>> {
        let mut shape = Shape::new(SIDE, [SIDE, 1, 1], SIDE, [1, 1]);
        (shape.storage, shape.math, shape.align) = (storage, math, 16);
        let problem = Problem::new(shape)?;
        let cublas = variants::find("cublas_gemm")?;
        let conv = match Conv::with_variant(&gpu.clone().into(), &problem, cublas) {
            Err(Refused::Library { .. } | Refused::Unsupported { .. }) => return Ok(None),
            other => other?,
        };
        let stored = narrow(storage, &self.0);
        let copy = || DeviceBuffer::from_slice(gpu, &stored);
        let (x, w, y) = (copy()?, copy()?, DeviceBuffer::alloc(gpu, stored.len())?);
        let pointer = |buffer: &DeviceBuffer<u8>| buffer.address() as *mut std::ffi::c_void;
        let operands = RawOperands::new(pointer(&x), pointer(&w), pointer(&y));
        let mut workspace = conv.workspace(stream)?;
        let each = seconds(stream, || {
            // SAFETY: the buffers are on the convolution's device, as large as the problem says,
            // and live until the marks behind the work are reached.
            unsafe { conv.run_raw(&operands, &mut workspace, stream) }
        })?;
        self.judge(&y, storage)?;
        Ok(Some(problem.flops() / each))
    }

    /// Whether some elements are about the products of their rows: no check of cuBLAS, only that
    /// the work was done.
    fn judge(&self, y: &DeviceBuffer<u8>, storage: Storage) -> Result<()> {
        let (mut off, mut all) = (0.0, 0.0);
        for i in 0..16 {
            let (row, column) = (i * 509, SIDE - 1 - i * 251);
            let size = storage.bytes();
            let at = (row * SIDE + column) * size;
            let bytes = y.download_range(at..at + size)?;
            let found = widen(storage, &bytes)[0];
            let pairs = self.row(row).iter().zip(self.row(column));
            let expected: f64 = pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            off += (f64::from(found) - expected).powi(2);
            all += expected.powi(2);
        }
        // Sums of f16 are off by some percent. A NaN is off, too.
        match off < all / 16.0 {
            true => Ok(()),
            false => Err(wrong("product")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_adds_up() {
        let words = (0..1000u32).map(|i| 7u32.wrapping_add(i.wrapping_mul(2_654_435_761)));
        let sum = words.fold(0u32, u32::wrapping_add);
        assert_eq!(pattern_sum(1000, 7), sum);
    }
}
