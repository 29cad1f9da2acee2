//! One call of a layer: its problem, its convolution, its bias.

use candle_core::{DType, Layout, Result, Shape, Tensor, bail};
use convforge::{Conv, Device, Epilogue, Math, Padding, Problem, Storage};
use std::sync::Arc;

use crate::{Config, Layer, cache, error, thread};

/// A layer, the shapes of one call, and the bias as convforge takes it.
pub(crate) struct Op {
    pub(crate) layer: Layer,
    problem: Problem,
    bias: Option<Tensor>,
}

impl Op {
    /// This layer of `x`, with its own weight where that is contiguous, or a copy.
    pub(crate) fn new(layer: Layer, x: &Tensor, weight: &Tensor) -> Result<Self> {
        let problem = problem(&layer, x, weight)?;
        let bias = layer
            .bias()
            .map(|bias| bias.to_dtype(DType::F32)?.contiguous());
        Ok(Op {
            problem,
            bias: bias.transpose()?,
            layer,
        })
    }

    /// The bias in f32.
    pub(crate) fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The ready convolution, for operands at multiples of `align` bytes.
    pub(crate) fn conv(&self, device: &Device, align: usize) -> Result<Arc<Conv>> {
        let problem = self.problem.with(|shape| shape.align = align);
        let problem = problem.map_err(error)?;
        let conv = cache().get(device, &problem, &self.layer.pick);
        let conv = conv.map_err(error)?;
        thread::tell(&conv);
        Ok(conv)
    }

    /// Elements of the output.
    pub(crate) fn y_len(&self) -> usize {
        self.problem.y_len()
    }

    pub(crate) fn y_shape(&self) -> Shape {
        let [p, q] = self.problem.out();
        Shape::from((self.problem.n(), self.problem.k(), p, q))
    }
}

/// The problem of a layer and an input.
fn problem(layer: &Layer, x: &Tensor, weight: &Tensor) -> Result<Problem> {
    let Config {
        padding,
        stride,
        dilation,
        groups,
    } = layer.config;
    let (n, c, h, w) = x.dims4()?;
    let (k, c_of_group, r, s) = weight.dims4()?;
    if c_of_group.checked_mul(groups) != Some(c) {
        bail!("an input of {c} channels, for filters of {c_of_group} channels in {groups} groups");
    }
    if let Some(bias) = layer.bias()
        && bias.dims() != [k]
    {
        bail!("a bias of {:?} for {k} output channels", bias.shape());
    }
    let (storage, math) = match x.dtype() {
        DType::F16 => (Storage::F16, Math::F16),
        DType::BF16 => (Storage::Bf16, Math::Bf16),
        _ if x.device().is_cuda() && candle_core::cuda::gemm_reduced_precision_f32() => {
            (Storage::F32, Math::Tf32)
        }
        _ => (Storage::F32, Math::Fp32),
    };
    let mut shape = convforge::Shape::new(n, [c, h, w], k, [r, s]);
    shape.stride = [stride; 2];
    shape.dilation = [dilation; 2];
    shape.pad = Padding {
        top: padding,
        left: padding,
        bottom: padding,
        right: padding,
    };
    shape.groups = groups;
    shape.storage = storage;
    shape.math = math;
    shape.epilogue = Epilogue {
        bias: layer.bias().is_some(),
        activation: layer.activation,
        ..Epilogue::default()
    };
    Problem::new(shape).map_err(error)
}

/// The largest power of two up to 16 that all of these addresses are multiples of.
pub(crate) fn align_of(addresses: impl IntoIterator<Item = usize>) -> usize {
    let bits = addresses
        .into_iter()
        .fold(16, |bits, address| bits | address);
    1 << bits.trailing_zeros()
}

/// The elements of a tensor whose layout is contiguous, as those of an [`Op`] are.
pub(crate) fn range(layout: &Layout) -> Result<std::ops::Range<usize>> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(start..end),
        None => bail!("{NAME} of a tensor that is not contiguous"),
    }
}

/// What candle's errors call it.
pub(crate) const NAME: &str =
    "convforge's conv2d, which is for inference alone (detach its tensors)";
