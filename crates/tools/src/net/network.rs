//! The network on one device: a batch stays there from pixels to logits.

use std::time::Instant;

use convforge::{
    Buffer, Conv, Device, Error::Interrupted, Math, Operands, Packed, Problem, Shape, Stream,
    Workspace,
};

use super::{
    idx::Images,
    layers::{Linear, from_bytes, relu_maxpool},
    weights::Weights,
};
use crate::{
    Contender, Error, Result,
    measure::{Stage, stages},
};

/// Side of the images that the network takes.
pub const SIDE: usize = 86;
pub(super) const CLASSES: usize = 10;

/// The layers of the accuracy study, with their weights on a device.
pub struct Network {
    device: Device,
    stream: Stream,
    workspace: Workspace,
    contender: Contender,
    math: Math,
    filters: [Buffer<f32>; 2],
    linears: [Linear; 2],
}

/// What a run of the network gave.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Ten per image.
    pub logits: Vec<f32>,
    /// The variant of each convolution.
    pub variants: [String; 2],
    /// Microseconds of each convolution's kernels, over all images.
    pub op_us: [f64; 2],
    /// Microseconds of each convolution with its ReLU and pooling.
    pub layer_us: [f64; 2],
    /// Microseconds from pixels in host memory to logits in host memory.
    pub total_us: f64,
}

/// Told how many images are done; answers whether to go on.
pub type Progress<'a> = &'a mut dyn FnMut(usize) -> bool;

impl Network {
    /// Puts the weights on `device`. `contender` does the convolutions, `math` says how they
    /// multiply; everything is stored as f32.
    ///
    /// # Errors
    /// Out of memory, or no GPU.
    pub fn new(
        device: &Device,
        weights: &Weights,
        contender: &Contender,
        math: Math,
    ) -> Result<Self> {
        let stream = device.stream()?;
        let linear = |weight: &[f32], bias: &[f32], relu| -> Result<Linear> {
            Ok(Linear {
                weight: device.upload(weight)?,
                bias: device.upload(bias)?,
                relu,
            })
        };
        Ok(Network {
            workspace: Workspace::new(&stream)?,
            stream,
            contender: contender.clone(),
            math,
            filters: [
                device.upload(&weights.conv1)?,
                device.upload(&weights.conv2)?,
            ],
            linears: [
                linear(&weights.fc1_weight, &weights.fc1_bias, true)?,
                linear(&weights.fc2_weight, &weights.fc2_bias, false)?,
            ],
            device: device.clone(),
        })
    }

    /// The logits of every image, computed `batch` images at a time.
    ///
    /// On a GPU the first batch runs once before the clock starts: the first launch of a kernel
    /// loads it.
    ///
    /// # Errors
    /// Images that are not 86x86; a variant that cannot do the convolutions; out of memory;
    /// [`Interrupted`] where `progress` answers false and images are left.
    pub fn classify(
        &mut self,
        images: &Images,
        batch: usize,
        progress: Progress,
    ) -> Result<Outcome> {
        check_size(images)?;
        let mut outcome = Outcome::default();
        let mut layers: Option<Layers> = None;
        let mut warm = !self.device.is_gpu();
        let chunk = batch.max(1).saturating_mul(SIDE * SIDE);
        for pixels in images.pixels.chunks(chunk) {
            let n = pixels.len() / (SIDE * SIDE);
            // Made anew where the last batch is smaller.
            let layers = match &mut layers {
                Some(layers) if layers.n == n => layers,
                slot => slot.insert(self.layers(n)?),
            };
            if !warm {
                self.run(layers, pixels, &mut Outcome::default())?;
                warm = true;
            }
            outcome.variants = layers.convs.each_ref().map(Conv::name);
            self.run(layers, pixels, &mut outcome)?;
            let done = outcome.logits.len() / CLASSES;
            if !progress(done) && done < images.count {
                return Err(Interrupted.into());
            }
        }
        Ok(outcome)
    }

    /// The two convolutions for a batch of `n` images.
    ///
    /// # Errors
    /// [`convforge::Error::InvalidProblem`] for more images than any memory holds.
    pub fn problems(n: usize, math: Math) -> Result<[Problem; 2]> {
        let problem = |c, side, k| {
            let shape = Shape {
                math,
                ..Shape::new(n, [c, side, side], k, [7, 7])
            };
            Problem::new(shape)
        };
        Ok([problem(1, 86, 4)?, problem(4, 40, 16)?])
    }

    /// Plans the convolutions for a batch of `n` images, and allocates all that a run needs.
    pub(crate) fn layers(&mut self, n: usize) -> Result<Layers> {
        let [first, second] = &Self::problems(n, self.math)?;
        let convs = [
            self.contender.conv(&self.device, first)?,
            self.contender.conv(&self.device, second)?,
        ];
        for conv in &convs {
            self.workspace.reserve(conv, &self.stream)?;
        }
        let device = &self.device;
        Ok(Layers {
            n,
            packed: [
                convs[0].pack(&self.filters[0], &self.stream)?,
                convs[1].pack(&self.filters[1], &self.stream)?,
            ],
            pixels: device.alloc(first.x_len())?,
            x: [device.alloc(first.x_len())?, device.alloc(second.x_len())?],
            y: [device.alloc(first.y_len())?, device.alloc(second.y_len())?],
            pooled: device.alloc(n * 16 * 9 * 9)?,
            hidden: device.alloc(n * self.linears[0].bias.len())?,
            logits: device.alloc(n * CLASSES)?,
            convs,
        })
    }

    /// Classifies one batch, and adds what it gave and how long it took to `outcome`.
    pub(crate) fn run(
        &mut self,
        layers: &mut Layers,
        pixels: &[u8],
        outcome: &mut Outcome,
    ) -> Result<()> {
        let Layers {
            n,
            convs,
            packed,
            pixels: bytes,
            x,
            y,
            pooled,
            hidden,
            logits,
        } = layers;
        let (n, stream) = (*n, &self.stream);
        let start = Instant::now();
        bytes.copy_from(pixels, stream)?;
        from_bytes(bytes, &mut x[0], stream)?;
        let mut marks = Vec::with_capacity(6);
        for i in 0..2 {
            marks.push(stream.mark()?);
            let operands = Operands::new(&x[i], &self.filters[i], &mut y[i]).packed(&packed[i]);
            convs[i].run_with(operands, &mut self.workspace, stream)?;
            marks.push(stream.mark()?);
            if i == 0 {
                relu_maxpool(&y[0], &mut x[1], n * 4, 80, 2, stream)?;
            } else {
                relu_maxpool(&y[1], pooled, n * 16, 34, 4, stream)?;
            }
            marks.push(stream.mark()?);
        }
        self.linears[0].run(pooled, hidden, n, stream)?;
        self.linears[1].run(hidden, logits, n, stream)?;
        outcome.logits.extend(logits.to_vec(stream)?);
        outcome.total_us += start.elapsed().as_secs_f64() * 1e6;
        for i in 0..2 {
            let [before, conv, layer] = [&marks[3 * i], &marks[3 * i + 1], &marks[3 * i + 2]];
            outcome.op_us[i] += conv.us_since(before)?;
            outcome.layer_us[i] += layer.us_since(before)?;
        }
        Ok(())
    }

    /// The time of each kernel of each convolution, on what the last run left in its input.
    pub(crate) fn stages(&mut self, layers: &mut Layers) -> Result<[Vec<Stage>; 2]> {
        let mut of = |i: usize| {
            stages(&self.stream, |_, stage| {
                let y = &mut layers.y[i];
                let operands =
                    Operands::new(&layers.x[i], &self.filters[i], y).packed(&layers.packed[i]);
                layers.convs[i].run_staged(operands, &mut self.workspace, &self.stream, stage)
            })
        };
        Ok([of(0)?, of(1)?])
    }
}

/// What the network needs for batches of one size.
pub(crate) struct Layers {
    n: usize,
    pub convs: [Conv; 2],
    packed: [Option<Packed>; 2],
    pixels: Buffer<u8>,
    /// What the convolutions read in the last run.
    pub x: [Buffer<f32>; 2],
    y: [Buffer<f32>; 2],
    pooled: Buffer<f32>,
    hidden: Buffer<f32>,
    logits: Buffer<f32>,
}

/// Refuses images that the network does not take.
pub(crate) fn check_size(images: &Images) -> Result<()> {
    match (images.rows, images.cols) {
        (SIDE, SIDE) => Ok(()),
        (rows, cols) => Err(Error::Input(format!(
            "the network takes images of {SIDE}x{SIDE}; these are {rows}x{cols}"
        ))),
    }
}

/// The class with the largest logit, per image; the first of equals.
pub(crate) fn classes(logits: &[f32]) -> Vec<u8> {
    let largest = |row: &[f32]| {
        (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best }) as u8
    };
    logits.chunks_exact(CLASSES).map(largest).collect()
}

impl Outcome {
    /// The class with the largest logit, per image; the first of equals.
    pub fn classes(&self) -> Vec<u8> {
        classes(&self.logits)
    }

    /// Largest difference from the expected logits, relative to the largest magnitude of its row;
    /// NaN counts as infinite.
    ///
    /// # Errors
    /// Fewer expected logits than there are.
    pub fn deviation(&self, expected: &[f32]) -> Result<f64> {
        if expected.len() < self.logits.len() {
            return Err(Error::Input(format!(
                "{} logits were expected, {} were computed",
                expected.len(),
                self.logits.len()
            )));
        }
        let rows = self
            .logits
            .chunks_exact(CLASSES)
            .zip(expected.chunks_exact(CLASSES));
        Ok(rows.fold(0.0, |worst: f64, (got, want)| {
            let scale = want.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
            got.iter().zip(want).fold(worst, |worst, (g, w)| {
                let difference = f64::from((g - w).abs() / scale);
                if difference.is_nan() {
                    f64::INFINITY
                } else {
                    worst.max(difference)
                }
            })
        }))
    }
}

#[cfg(test)]
mod tests {
    use convforge::Pick;

    use super::*;
    use crate::{Contenders, net::resize::resize};

    #[test]
    fn who_stops_in_the_last_batch_keeps_all_results() {
        let (images, _) = Images::synthetic(4, 1).unwrap();
        let images = resize(&images, SIDE).unwrap();
        let contender = Contenders::new().named(&Pick::Rule).unwrap();
        let weights = Weights::synthetic(1);
        let mut network = Network::new(&Device::cpu(), &weights, &contender, Math::Fp32).unwrap();
        let mut stopping_at = |last| network.classify(&images, 2, &mut |done| done < last);
        assert!(stopping_at(2).unwrap_err().is_interruption());
        assert_eq!(stopping_at(4).unwrap().classes().len(), 4);
    }
}
