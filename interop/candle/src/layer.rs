//! A convolution with its weights.

use std::sync::Arc;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use convforge::{Activation, Filter, Pick};

use crate::{op::Op, thread};

/// How a layer's filter goes over its input, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Zeros on all four sides.
    pub padding: usize,
    /// Steps.
    pub stride: usize,
    /// Distance between filter taps, 1 for a dense filter.
    pub dilation: usize,
    /// Groups; both channel counts are multiples of it.
    pub groups: usize,
}

impl Default for Config {
    /// No padding, steps of one, a dense filter, one group.
    fn default() -> Self {
        Config {
            padding: 0,
            stride: 1,
            dilation: 1,
            groups: 1,
        }
    }
}

/// A convolution with its weights, in candle-core's types alone; `Conv2d` is the same in candle-nn's.
/// Clones share weights and packed filters.
#[derive(Clone, Debug)]
pub struct Layer {
    pub(crate) weights: Arc<Weights>,
    pub(crate) config: Config,
    pub(crate) activation: Activation,
    pub(crate) pick: Pick,
}

#[derive(Debug)]
pub(crate) struct Weights {
    weight: Tensor,
    bias: Option<Tensor>,
    /// The packed forms of the weight, where it stays as it is.
    filter: Filter,
}

impl Layer {
    /// A filter of `out x in / groups x height x width`, and a bias of `out` elements.
    pub fn new(weight: Tensor, bias: Option<Tensor>, config: Config) -> Self {
        let filter = Filter::new();
        let weights = Weights {
            weight,
            bias,
            filter,
        };
        Layer {
            weights: Arc::new(weights),
            config,
            activation: Activation::None,
            pick: Pick::default(),
        }
    }

    /// This layer with other weights.
    pub fn with_weights(&self, weight: Tensor, bias: Option<Tensor>) -> Self {
        Layer::new(weight, bias, self.config)
            .activation(self.activation)
            .pick(self.pick.clone())
    }

    /// Applies this to what comes out, in the same kernel.
    pub fn activation(self, activation: Activation) -> Self {
        Layer { activation, ..self }
    }

    /// How convforge finds its kernel; the default is [`Pick::default`].
    pub fn pick(self, pick: Pick) -> Self {
        Layer { pick, ..self }
    }

    /// The filter.
    pub fn weight(&self) -> &Tensor {
        &self.weights.weight
    }

    /// The bias.
    pub fn bias(&self) -> Option<&Tensor> {
        self.weights.bias.as_ref()
    }

    /// How the filter goes over the input.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of the filter's packed forms, which lie beside the weights.
    pub fn packed_bytes(&self) -> usize {
        self.weights.filter.bytes()
    }

    /// Forgets the packed forms: after the weights' memory was written to.
    pub fn weights_changed(&self) {
        self.weights.filter.clear();
    }

    /// The filter's kept forms; none for a variable or what is computed from one, as views are, whose
    /// elements may change at any time.
    pub(crate) fn filter(&self) -> Option<&Filter> {
        let weights = &self.weights;
        (!weights.weight.track_op()).then_some(&weights.filter)
    }

    /// Whether convforge computes this layer of `x`.
    fn is_ours(&self, x: &Tensor) -> bool {
        let device = match x.device() {
            Device::Cpu => true,
            Device::Cuda(_) => cfg!(feature = "cuda"),
            Device::Metal(_) => false,
        };
        let tensors = [Some(x), Some(self.weight()), self.bias()];
        let alike = tensors
            .into_iter()
            .flatten()
            .all(|tensor| tensor.dtype() == x.dtype() && tensor.device().same_device(x.device()));
        let known = matches!(x.dtype(), DType::F32 | DType::F16 | DType::BF16);
        device && alike && known && x.elem_count() > 0 && !thread::is_candles()
    }

    /// What candle computes, for what is not ours and for comparing.
    fn by_candle(&self, x: &Tensor) -> Result<Tensor> {
        let Config {
            padding,
            stride,
            dilation,
            groups,
        } = self.config;
        let y = x.conv2d(self.weight(), padding, stride, dilation, groups)?;
        let y = match self.bias() {
            None => y,
            Some(bias) => y.broadcast_add(&bias.reshape((1, bias.dim(D::Minus1)?, 1, 1))?)?,
        };
        match self.activation {
            Activation::None => Ok(y),
            Activation::Relu => y.relu(),
            Activation::Relu6 => y.clamp(0f32, 6f32),
            Activation::Tanh => y.tanh(),
            Activation::Sigmoid => (y.neg()?.exp()? + 1.)?.recip(),
            Activation::Silu => y.silu(),
        }
    }
}

impl Module for Layer {
    /// The layer of `n x in x height x width`.
    ///
    /// # Errors
    /// Shapes that do not fit each other, no memory, or what the device answers.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if !self.is_ours(x) {
            return self.by_candle(x);
        }
        let x = x.contiguous()?;
        let weight = self.weight().contiguous()?;
        let op = Op::new(self.clone(), &x, &weight)?;
        // All tensors take part, so that going backward to any of them is an error.
        match self.bias() {
            None => x.apply_op2(&weight, op),
            Some(bias) => x.apply_op3(&weight, bias, op),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Var};

    use super::*;

    #[test]
    fn of_weights_that_may_change_nothing_is_kept() -> Result<()> {
        let plain = Tensor::zeros((8, 8, 3, 3), DType::F32, &Device::Cpu)?;
        let variable = Var::from_tensor(&plain)?;
        let view = variable.as_tensor().reshape((8, 8, 3, 3))?;
        let part = variable.as_tensor().narrow(0, 0, 4)?;
        let kept = |weight: &Tensor| {
            let layer = Layer::new(weight.clone(), None, Config::default());
            layer.filter().is_some()
        };
        assert!(kept(&plain));
        for weight in [variable.as_tensor(), &view, &part] {
            assert!(!kept(weight));
        }
        Ok(())
    }
}
