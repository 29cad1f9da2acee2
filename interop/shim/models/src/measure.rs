//! Outputs, times and memory of a model by convforge's convolutions and by candle's own.

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Module, Result, Tensor};
use convforge_candle::{Call, Config, Pick, by_candle, watch};
use serde::Serialize;

use crate::{Net, Seeded, memory};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub device: Device,
    /// Type of weights and activations.
    pub dtype: DType,
    /// Images.
    pub batch: usize,
    /// Rows and columns of an image.
    pub size: usize,
    /// Of weights and input.
    pub seed: u64,
    /// Least time that anything is timed for.
    pub least: Duration,
    /// Whether every layer is timed by itself.
    pub layers: bool,
    /// How convforge finds the kernel of such a layer; none for as in the model.
    pub pick: Option<Pick>,
}

/// One model, both ways.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The model.
    pub net: Net,
    /// Whether candle's own layers may use cuDNN, and convforge too.
    pub cudnn: bool,
    /// Convolutions that convforge computed.
    pub convolutions: usize,
    /// How far its output is from candle's: RMS of the difference over the RMS of the output.
    pub difference: f64,
    /// For 16 bits, how far the outputs of convforge and of candle are from candle's in f32.
    pub from_f32: Option<[f64; 2]>,
    /// Median milliseconds of a call by convforge.
    pub convforge_ms: f64,
    /// Median milliseconds of a call by candle.
    pub candle_ms: f64,
    /// Bytes that a first call by convforge takes, beyond weights; none on the CPU.
    pub convforge_bytes: Option<usize>,
    /// The same by candle.
    pub candle_bytes: Option<usize>,
    /// Its convolutions, equal ones together.
    pub layers: Vec<Layer>,
}

/// A convolution of a model by itself, with its bias.
#[derive(Clone, Debug, Serialize)]
pub struct Layer {
    /// Its problem, as text.
    pub problem: String,
    /// How many of the model's there are.
    pub count: usize,
    /// What convforge computes it by.
    pub variant: String,
    /// Median milliseconds of a call by convforge.
    pub convforge_ms: f64,
    /// Median milliseconds of a call by candle.
    pub candle_ms: f64,
    /// How far its output is from candle's, as of a model.
    pub difference: f64,
}

impl Answer {
    /// Why the output is wrong, if it is: in f32 it is candle's but for rounding, which is of operands too where
    /// candle lets cuDNN multiply in TF32; in 16 bits it is not much farther from f32's than candle's is.
    pub fn wrong(&self) -> Option<String> {
        match self.from_f32 {
            // A NaN is under no bound.
            None if self.difference <= if self.cudnn { 2e-3 } else { 1e-4 } => None,
            Some([ours, candles]) if ours <= 1.5 * candles => None,
            None => Some(format!("differs from candle's by {:.1e}", self.difference)),
            Some([ours, candles]) => Some(format!(
                "is {ours:.1e} from that in f32, candle's {candles:.1e}"
            )),
        }
    }
}

/// Runs and times a model.
pub fn measure(net: Net, options: &Options) -> Result<Answer> {
    let Options { device, dtype, .. } = options;
    let (model, x) = ready(net, options, *dtype)?;
    let first = || watch(|| model.forward(&x));
    let ((y, calls), convforge_bytes) = memory::peak(device, || {
        let (y, calls) = first();
        Ok((y?, calls))
    })?;
    let (candles, candle_bytes) = memory::peak(device, || by_candle(|| model.forward(&x)))?;
    let from_f32 = match dtype {
        DType::F32 => None,
        _ => {
            let (model, x) = ready(net, options, DType::F32)?;
            let exact = by_candle(|| model.forward(&x))?;
            Some([difference(&y, &exact)?, difference(&candles, &exact)?])
        }
    };
    Ok(Answer {
        net,
        cudnn: cfg!(feature = "cudnn"),
        convolutions: calls.len(),
        difference: difference(&y, &candles)?,
        from_f32,
        convforge_ms: median_ms(options, || model.forward(&x))?,
        candle_ms: by_candle(|| median_ms(options, || model.forward(&x)))?,
        convforge_bytes,
        candle_bytes,
        layers: match options.layers {
            true => layers(calls, options)?,
            false => Vec::new(),
        },
    })
}

/// The model and its input.
fn ready(net: Net, options: &Options, dtype: DType) -> Result<(impl Module + use<>, Tensor)> {
    let seed = Seeded(options.seed);
    let model = net.build(seed.builder(dtype, &options.device))?;
    let x = net.input(options.batch, options.size, seed, dtype, &options.device)?;
    Ok((model, x))
}

/// RMS of the difference of two tensors over the RMS of the second.
pub fn difference(a: &Tensor, b: &Tensor) -> Result<f64> {
    let exact = |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64);
    let (a, b) = (exact(a)?, exact(b)?);
    let squares = |tensor: &Tensor| tensor.sqr()?.sum_all()?.to_scalar::<f64>();
    Ok((squares(&(a - &b)?)? / squares(&b)?).sqrt())
}

/// Fewest calls that are timed.
const LEAST_CALLS: usize = 3;

/// Median time of a call, each waited for.
fn median_ms(options: &Options, mut call: impl FnMut() -> Result<Tensor>) -> Result<f64> {
    call()?;
    options.device.synchronize()?;
    let (begin, mut times) = (Instant::now(), Vec::new());
    while times.len() < LEAST_CALLS || begin.elapsed() < options.least {
        let start = Instant::now();
        call()?;
        options.device.synchronize()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Each of the convolutions by itself, equal ones once.
fn layers(calls: Vec<Call>, options: &Options) -> Result<Vec<Layer>> {
    let mut different: Vec<(Call, usize)> = Vec::new();
    for call in calls {
        match different
            .iter_mut()
            .find(|(known, _)| known.problem == call.problem)
        {
            Some((_, count)) => *count += 1,
            None => different.push((call, 1)),
        }
    }
    let timed = different.into_iter();
    timed
        .map(|(call, count)| layer(&call, count, options))
        .collect()
}

fn layer(call: &Call, count: usize, options: &Options) -> Result<Layer> {
    let p = &call.problem;
    let vb = Seeded(options.seed).builder(options.dtype, &options.device);
    let weight = vb.get((p.k(), p.c() / p.groups(), p.r(), p.s()), "weight")?;
    let bias = p
        .epilogue()
        .bias
        .then(|| vb.get(p.k(), "bias"))
        .transpose()?;
    let x = vb.get((p.n(), p.c(), p.h(), p.w()), "x")?;
    let config = Config {
        padding: p.pad().top,
        stride: p.stride()[0],
        dilation: p.dilation()[0],
        groups: p.groups(),
    };
    let mut layer = convforge_candle::Layer::new(weight, bias, config);
    let mut variant = call.variant.clone();
    if let Some(pick) = &options.pick {
        layer = layer.pick(pick.clone());
        variant = pick.to_string();
    }
    Ok(Layer {
        problem: p.to_string(),
        count,
        variant,
        convforge_ms: median_ms(options, || layer.forward(&x))?,
        candle_ms: by_candle(|| median_ms(options, || layer.forward(&x)))?,
        difference: difference(&layer.forward(&x)?, &by_candle(|| layer.forward(&x))?)?,
    })
}
