//! The network with its layers fused (csrc/net_fused.cu), from pixels in host memory to logits there.
//!
//! A batch is copied in chunk by chunk, and the kernels of a chunk run while later ones are copied. On
//! an H200 behind PCIe 5 copies take about twice as long as kernels, so a run takes as long as its
//! copies and the kernels of the last chunk.

use std::{ops::Range, time::Instant};

use convforge::{
    Buffer, Device, Error as Refused, Mark, Stream,
    gpu::{Gpu, PinnedBuffer},
    kernels::checked,
    with_host_copies,
};

use super::{
    check_size,
    idx::Images,
    network::{CLASSES, SIDE},
    weights::Weights,
};
use crate::{Error, Result, ffi, measure::Spread};

/// Bytes of an image.
const IMAGE: usize = ffi::CF_FUSED_PIXELS as usize;
const _: () = assert!(IMAGE == SIDE * SIDE);
/// Numbers that the convolutions leave of an image.
const FEATURES: usize = ffi::CF_FUSED_FEATURES as usize;
/// Compute capability times ten, from which on the kernels run.
const LEAST_ARCH: u32 = 90;

/// The layers of the accuracy study on a GPU of compute capability 9.0 or newer, fused: an image goes
/// through the device once, and what lies between the layers stays in its shared memory. In fp32's
/// accuracy.
///
/// All that a run needs is made once, for batches of one size.
pub struct FusedNetwork {
    images: usize,
    chunks: Vec<Range<usize>>,
    /// For copies in, and for kernels and the copy out. More of them would let copies in share the
    /// link, so that each comes later.
    streams: [Stream; 2],
    /// That a chunk's pixels are there.
    copied: Vec<Mark>,
    resident: Resident,
    marks: [Mark; 2],
}

/// What is in device memory.
struct Resident {
    gpu: Gpu,
    /// The weights in the kernels' own order.
    packed: Buffer<u8>,
    pixels: Buffer<u8>,
    features: Buffer<f32>,
    logits: Buffer<f32>,
}

/// What [`FusedNetwork::measure`] found; times in microseconds.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Ten per image.
    pub logits: Vec<f32>,
    /// From pixels in pinned host memory to logits in pinned host memory, by the host's clock.
    pub whole: Spread,
    /// The kernels alone, over all images as one batch and on pixels that are on the device; by events.
    pub kernels: Spread,
    /// Copying all pixels to the device, as one copy, and nothing else; by events.
    pub copy_in: Spread,
}

impl Measured {
    /// How many times as long a whole run takes as the longer of kernels and copy in, which nothing
    /// that overlaps them could beat.
    pub fn over_floor(&self) -> f64 {
        self.whole.median_us / self.kernels.median_us.max(self.copy_in.median_us)
    }
}

impl FusedNetwork {
    /// Puts the weights on `device`, and takes what batches of `images` need: 13 KB of device memory
    /// for each image.
    ///
    /// # Errors
    /// [`NoGpu`](Refused::NoGpu) for the CPU and for GPUs older than compute capability 9.0;
    /// [`Error::Input`] for weights that are infinite or no numbers; out of memory.
    pub fn new(device: &Device, weights: &Weights, images: usize) -> Result<Self> {
        let limits = device.limits();
        let gpu = match device.as_gpu() {
            Some(gpu) if limits.arch >= LEAST_ARCH => gpu.clone(),
            _ => {
                return Err(Refused::no_gpu(format!(
                    "the fused network takes one of compute capability 9.0 or newer, and {device} \
                     is none; the layers one by one run anywhere"
                ))
                .into());
            }
        };
        load(&gpu)?;
        let chunks = chunks(images, limits.sm_count as usize);
        let streams = [device.stream()?, device.stream()?];
        let room = |numbers: usize| images.saturating_mul(numbers);
        let resident = Resident {
            packed: pack(device, &gpu, weights, &streams[0])?,
            // Vectors of 16 bytes are read.
            pixels: device.alloc(room(IMAGE).saturating_add(12))?,
            features: device.alloc(room(FEATURES))?,
            logits: device.alloc(room(CLASSES))?,
            gpu,
        };
        streams[0].synchronize()?;
        Ok(FusedNetwork {
            marks: [streams[0].mark()?, streams[0].mark()?],
            copied: chunks
                .iter()
                .map(|_| streams[0].mark())
                .collect::<convforge::Result<_>>()?,
            images,
            chunks,
            streams,
            resident,
        })
    }

    /// Images of a batch.
    pub fn images(&self) -> usize {
        self.images
    }

    /// Chunks that a batch is copied in.
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Ten logits for each image, of 86x86 pixels; answers the microseconds it took by the host's
    /// clock. The first run loads the kernels.
    ///
    /// Slices of a [`PinnedBuffer`] are copied while kernels run, others hardly.
    ///
    /// # Errors
    /// [`Error::Input`] for slices of another length, or what the driver answers.
    pub fn run(&mut self, pixels: &[u8], logits: &mut [f32]) -> Result<f64> {
        let start = Instant::now();
        let expected = (self.images * IMAGE, self.images * CLASSES);
        if (pixels.len(), logits.len()) != expected {
            return Err(Error::Input(format!(
                "a batch of {} images has {} pixels and {} logits; {} and {} were given",
                self.images,
                expected.0,
                expected.1,
                pixels.len(),
                logits.len()
            )));
        }
        let (streams, resident) = (&self.streams, &mut self.resident);
        let [copies_in, kernels] = streams;
        let (queued, waited) = with_host_copies(streams, |copies| -> convforge::Result<()> {
            for (chunk, copied) in self.chunks.iter().zip(&mut self.copied) {
                let (at, end) = (chunk.start * IMAGE, chunk.end * IMAGE);
                copies.upload(0, &pixels[at..end], &mut resident.pixels, at)?;
                copies_in.move_mark(copied)?;
                kernels.wait_for(copied)?;
                resident.enqueue(chunk.clone(), kernels)?;
            }
            copies.download(1, &resident.logits, 0, logits)
        });
        queued?;
        waited?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    /// Runs the images `runs` times from pinned memory to pinned memory, after a run that loads the
    /// kernels. Kernels alone and the copy alone are measured in turn with it.
    ///
    /// # Errors
    /// [`Error::Input`] for images of another size or number; [`Error::Wrong`] where two runs
    /// give different logits, or for no run; or what the driver answers.
    pub fn measure(&mut self, images: &Images, runs: usize) -> Result<Measured> {
        check_size(images)?;
        let gpu = &self.resident.gpu;
        let mut pixels = PinnedBuffer::alloc(gpu, images.pixels.len())?;
        pixels.copy_from_slice(&images.pixels);
        let mut logits = PinnedBuffer::alloc(gpu, self.images * CLASSES)?;
        self.run(&pixels, &mut logits)?;
        let first = logits.to_vec();
        let [mut whole, mut kernels, mut copy_in] = [const { Vec::new() }; 3];
        for _ in 0..runs {
            logits.fill(f32::NAN);
            whole.push(self.run(&pixels, &mut logits)?);
            let same = logits
                .iter()
                .zip(&first)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            if !same {
                return Err(Error::Wrong("two runs gave different logits".to_owned()));
            }
            kernels.push(self.kernels_us()?);
            copy_in.push(self.copy_in_us(&pixels)?);
        }
        let none = || Error::Input("a measurement takes at least one run".to_owned());
        let spread = |samples: &[f64]| Spread::of(samples).ok_or_else(none);
        Ok(Measured {
            logits: first,
            whole: spread(&whole)?,
            kernels: spread(&kernels)?,
            copy_in: spread(&copy_in)?,
        })
    }

    /// Microseconds of the kernels, on the pixels that the last run left on the device.
    fn kernels_us(&mut self) -> Result<f64> {
        let stream = &self.streams[0];
        stream.move_mark(&mut self.marks[0])?;
        self.resident.enqueue(0..self.images, stream)?;
        stream.move_mark(&mut self.marks[1])?;
        Ok(self.marks[1].us_since(&self.marks[0])?)
    }

    /// Microseconds of copying all pixels to the device.
    fn copy_in_us(&mut self, pixels: &[u8]) -> Result<f64> {
        let (stream, [begin, end]) = (&self.streams[..1], &mut self.marks);
        let (queued, waited) = with_host_copies(stream, |copies| {
            stream[0].move_mark(begin)?;
            copies.upload(0, pixels, &mut self.resident.pixels, 0)?;
            stream[0].move_mark(end)
        });
        queued?;
        waited?;
        Ok(end.us_since(begin)?)
    }
}

impl Resident {
    /// Queues the kernels for some of the images; the first of them is a multiple of 4.
    fn enqueue(&mut self, images: Range<usize>, stream: &Stream) -> convforge::Result<()> {
        let _current = self.gpu.enter()?;
        let pixels = self.pixels.as_ptr().cast::<u8>();
        let features = self.features.as_mut_ptr().cast::<f32>();
        let logits = self.logits.as_mut_ptr().cast::<f32>();
        // SAFETY: the buffers are on the stream's GPU and have room for these images. Pixels are read
        // in vectors of 16 bytes: the first image begins with one, and 12 bytes follow the last.
        checked("cf_net_fused", unsafe {
            ffi::cf_net_fused(
                pixels.add(images.start * IMAGE),
                images.len() as i64,
                self.packed.as_ptr(),
                features.add(images.start * FEATURES).cast(),
                logits.add(images.start * CLASSES),
                self.gpu.limits().sm_count as i32,
                stream.raw(),
            )
        })
    }
}

/// Loads the kernels; the first launch would otherwise.
fn load(gpu: &Gpu) -> Result<()> {
    let _current = gpu.enter()?;
    // SAFETY: it takes no argument, and a context is current.
    let code = unsafe { ffi::cf_net_fused_prepare() };
    Ok(checked("cf_net_fused_prepare", code)?)
}

/// The weights in the kernels' own order. Numbers that are not finite have no scale, and the kernels'
/// ReLU would hide them.
fn pack(device: &Device, gpu: &Gpu, weights: &Weights, stream: &Stream) -> Result<Buffer<u8>> {
    let tensor = |name: &str, values: &[f32], len: usize| {
        if values.len() != len {
            return Err(Error::Input(format!(
                "{name} of the network has {len} values, not {}",
                values.len()
            )));
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::Input(format!(
                "value {at} of {name} is {}: the fused network takes finite weights only; the layers \
                 one by one take any",
                values[at]
            )));
        }
        Ok(device.upload(values)?)
    };
    let conv1 = tensor("convolution 1", &weights.conv1, 4 * 49)?;
    let conv2 = tensor("convolution 2", &weights.conv2, 16 * 4 * 49)?;
    let fc1_weight = tensor("fully connected 1", &weights.fc1_weight, 32 * FEATURES)?;
    let fc1_bias = tensor("the bias of fully connected 1", &weights.fc1_bias, 32)?;
    let fc2_weight = tensor("fully connected 2", &weights.fc2_weight, CLASSES * 32)?;
    let fc2_bias = tensor("the bias of fully connected 2", &weights.fc2_bias, CLASSES)?;
    let from = ffi::cf_fused_weights {
        conv1: conv1.as_ptr().cast(),
        conv2: conv2.as_ptr().cast(),
        fc1_weight: fc1_weight.as_ptr().cast(),
        fc1_bias: fc1_bias.as_ptr().cast(),
        fc2_weight: fc2_weight.as_ptr().cast(),
        fc2_bias: fc2_bias.as_ptr().cast(),
    };
    // SAFETY: it answers a constant.
    let mut packed = device.alloc(unsafe { ffi::cf_net_fused_packed_bytes() } as usize)?;
    let _current = gpu.enter()?;
    // SAFETY: the tensors have these lengths, and dropping them waits for the kernel.
    checked("cf_net_fused_pack", unsafe {
        ffi::cf_net_fused_pack(&from, packed.as_mut_ptr(), stream.raw())
    })?;
    Ok(packed)
}

/// A third of what is left at a time: the last chunks are small, because nothing hides the kernels of
/// the last one, and the first large, because every copy costs some microseconds to begin. In units of
/// an image for each multiprocessor, at least four. Chunks begin at multiples of 4 images, which are
/// multiples of 16 bytes.
fn chunks(images: usize, sm_count: usize) -> Vec<Range<usize>> {
    let unit = sm_count.max(1).next_multiple_of(4);
    let mut chunks = Vec::new();
    let mut at = 0;
    while at < images {
        let units = ((images - at) / unit).div_ceil(3).max(4);
        let end = at.saturating_add(units * unit).min(images);
        chunks.push(at..end);
        at = end;
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_batch_and_begin_aligned() {
        for images in [0, 1, 3, 133, 264, 265, 1000, 10_000, 123_457] {
            for sm_count in [0, 1, 114, 132] {
                let chunks = chunks(images, sm_count);
                let mut end = 0;
                for chunk in &chunks {
                    assert_eq!(chunk.start, end);
                    assert!(chunk.start % 4 == 0 && !chunk.is_empty());
                    end = chunk.end;
                }
                assert_eq!(end, images);
            }
        }
        let sizes: Vec<usize> = chunks(10_000, 132).iter().map(Range::len).collect();
        assert_eq!(sizes, [3300, 2244, 1452, 1056, 660, 528, 528, 232]);
    }

    #[test]
    fn the_cpu_is_refused() {
        let made = FusedNetwork::new(&Device::cpu(), &Weights::synthetic(1), 1);
        let text = made.err().expect("an error").to_string();
        assert!(
            text.contains("9.0 or newer") && text.contains("the CPU"),
            "{text}"
        );
    }
}
