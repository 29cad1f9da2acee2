//! The layers around the convolutions, on either device. Simple on purpose: the convolutions are
//! what is studied.

use bytemuck::Pod;
#[cfg(feature = "cuda")]
use convforge::kernels::checked;
use convforge::{Buffer, Stream};
use rayon::prelude::*;

#[cfg(feature = "cuda")]
use crate::ffi;
use crate::{Error, Result};

/// Buffers that do not live where the stream works.
fn mixed() -> Error {
    Error::Input("the buffers of a layer and its stream are on different devices".to_owned())
}

/// The elements, where both they and the stream are on the CPU.
fn on_cpu<'a, T: Pod>(buffer: &'a Buffer<T>, stream: &Stream) -> Result<&'a [T]> {
    let elements = buffer.as_slice().filter(|_| !stream.device().is_gpu());
    elements.ok_or_else(mixed)
}

/// Pixels 0..255 as f32, unscaled. `x` is at least as long as `pixels`.
pub(super) fn from_bytes(pixels: &Buffer<u8>, x: &mut Buffer<f32>, stream: &Stream) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let (Some(stream), Some(pixels), Some(x)) =
        (stream.as_gpu(), pixels.as_gpu(), x.as_gpu_mut())
    {
        let _current = stream.gpu().enter()?;
        // SAFETY: both buffers are on the stream's device, x as long as the pixels.
        return Ok(checked("cf_net_from_bytes", unsafe {
            ffi::cf_net_from_bytes(
                pixels.address() as *const u8,
                x.address() as *mut f32,
                pixels.len().min(x.len()) as i64,
                stream.raw(),
            )
        })?);
    }
    let pixels = on_cpu(pixels, stream)?;
    let x = x.as_mut_slice().ok_or_else(mixed)?;
    x.par_iter_mut()
        .zip(pixels)
        .with_min_len(1 << 16)
        .for_each(|(x, pixel)| *x = f32::from(*pixel));
    Ok(())
}

/// ReLU, then a maximum over `window` x `window` every `window` pixels of `planes` planes of
/// `side` x `side`; the last windows are clipped.
pub(super) fn relu_maxpool(
    x: &Buffer<f32>,
    y: &mut Buffer<f32>,
    planes: usize,
    side: usize,
    window: usize,
    stream: &Stream,
) -> Result<()> {
    let out = side.div_ceil(window);
    if x.len() < planes * side * side || y.len() < planes * out * out {
        return Err(mixed());
    }
    #[cfg(feature = "cuda")]
    if let (Some(stream), Some(x), Some(y)) = (stream.as_gpu(), x.as_gpu(), y.as_gpu_mut()) {
        let _current = stream.gpu().enter()?;
        // SAFETY: both buffers are on the stream's device and long enough, as checked above.
        return Ok(checked("cf_net_relu_maxpool", unsafe {
            ffi::cf_net_relu_maxpool(
                x.address() as *const f32,
                y.address() as *mut f32,
                planes as i64,
                side as i32,
                side as i32,
                window as i32,
                stream.raw(),
            )
        })?);
    }
    let x = on_cpu(x, stream)?.par_chunks_exact(side * side);
    let y = y.as_mut_slice().ok_or_else(mixed)?;
    let y = y.par_chunks_exact_mut(out * out);
    y.zip(x).take(planes).with_min_len(16).for_each(|(y, x)| {
        for (row, y) in y.chunks_exact_mut(out).enumerate() {
            y.fill(0.0); // the ReLU
            let rows = x.chunks_exact(side).skip(row * window).take(window);
            for x in rows {
                for (v, x) in y.iter_mut().zip(x.chunks(window)) {
                    // A NaN passes through: no comparison with it is true.
                    *v = x.iter().fold(*v, |v, u| if *u <= v { v } else { *u });
                }
            }
        }
    });
    Ok(())
}

/// A fully connected layer's tensors.
pub(super) struct Linear {
    /// `[outputs][inputs]`
    pub weight: Buffer<f32>,
    pub bias: Buffer<f32>,
    pub relu: bool,
}

impl Linear {
    /// `y[n][out] = sum x[n][in] weight[out][in] + bias[out]`
    pub fn run(
        &self,
        x: &Buffer<f32>,
        y: &mut Buffer<f32>,
        n: usize,
        stream: &Stream,
    ) -> Result<()> {
        let outputs = self.bias.len();
        let inputs = self.weight.len() / outputs;
        if x.len() < n * inputs || y.len() < n * outputs {
            return Err(mixed());
        }
        #[cfg(feature = "cuda")]
        if let (Some(stream), Some(x), Some(weight), Some(bias), Some(y)) = (
            stream.as_gpu(),
            x.as_gpu(),
            self.weight.as_gpu(),
            self.bias.as_gpu(),
            y.as_gpu_mut(),
        ) {
            let _current = stream.gpu().enter()?;
            // SAFETY: the buffers are on the stream's device and long enough, as checked above.
            return Ok(checked("cf_net_linear", unsafe {
                ffi::cf_net_linear(
                    x.address() as *const f32,
                    weight.address() as *const f32,
                    bias.address() as *const f32,
                    y.address() as *mut f32,
                    n as i64,
                    inputs as i32,
                    outputs as i32,
                    self.relu.into(),
                    stream.raw(),
                )
            })?);
        }
        let x = on_cpu(x, stream)?.par_chunks_exact(inputs);
        let (weight, bias) = (on_cpu(&self.weight, stream)?, on_cpu(&self.bias, stream)?);
        let y = y.as_mut_slice().ok_or_else(mixed)?;
        y.par_chunks_exact_mut(outputs)
            .zip(x)
            .take(n)
            .for_each(|(y, x)| {
                let rows = weight.chunks_exact(inputs).zip(bias);
                for (v, (row, bias)) in y.iter_mut().zip(rows) {
                    let sum = dot(x, row) + bias;
                    *v = if self.relu && sum <= 0.0 { 0.0 } else { sum };
                }
            });
        Ok(())
    }
}

/// Eight running sums, so that the loop vectorises.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8
        .remainder()
        .iter()
        .zip(b8.remainder())
        .map(|(x, y)| x * y)
        .sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + rest
}
