//! [`Layer`] in candle-nn's types, by the names and with the arguments that candle-nn has. The crate's
//! root says which candle-nn that is (`theirs`): the stand-in for candle-nn has this file too.

use candle_core::{Module, Result, Tensor, bail};
use convforge_candle::{Activation, Config, Layer, Pick};

use crate::theirs::{BatchNorm, Conv2dConfig, Init, VarBuilder, init};

/// candle-nn's `Conv2d` computed by convforge, with an activation in the same kernel. Clones share
/// weights and packed filters.
///
/// For inference: going backward through it is an error.
#[derive(Clone, Debug)]
pub struct Conv2d {
    layer: Layer,
    config: Conv2dConfig,
}

impl Conv2d {
    /// A filter of `out x in / groups x height x width`, and a bias of `out` elements. Of the
    /// configuration, `cudnn_fwd_algo` is for what candle computes itself.
    pub fn new(weight: Tensor, bias: Option<Tensor>, config: Conv2dConfig) -> Self {
        let over = Config {
            padding: config.padding,
            stride: config.stride,
            dilation: config.dilation,
            groups: config.groups,
        };
        Conv2d {
            layer: Layer::new(weight, bias, over),
            config,
        }
    }

    /// Applies this to what comes out, in the same kernel.
    pub fn activation(self, activation: Activation) -> Self {
        let layer = self.layer.activation(activation);
        Conv2d { layer, ..self }
    }

    /// How convforge finds its kernel.
    pub fn pick(self, pick: Pick) -> Self {
        let layer = self.layer.pick(pick);
        Conv2d { layer, ..self }
    }

    /// How the filter goes over the input.
    pub fn config(&self) -> &Conv2dConfig {
        &self.config
    }

    /// The filter.
    pub fn weight(&self) -> &Tensor {
        self.layer.weight()
    }

    /// The bias.
    pub fn bias(&self) -> Option<&Tensor> {
        self.layer.bias()
    }

    /// The same in candle-core's types.
    pub fn layer(&self) -> &Layer {
        &self.layer
    }

    /// This layer with the normalization that follows it in its weights; an activation goes behind
    /// both.
    ///
    /// # Errors
    /// A normalization without weight and bias, or what candle answers.
    pub fn absorb_bn(&self, bn: &BatchNorm) -> Result<Self> {
        let Some((scale, shift)) = bn.weight_and_bias() else {
            bail!("batch norm does not have weight_and_bias");
        };
        let scale = scale.div(&(bn.running_var() + bn.eps())?.sqrt()?)?;
        let channels = self.weight().dims4()?.0;
        let weight = self
            .weight()
            .broadcast_mul(&scale.reshape((channels, 1, 1, 1))?)?;
        let mean = match self.bias() {
            None => bn.running_mean().clone(),
            Some(bias) => (bn.running_mean() - bias)?,
        };
        let bias = (shift - (scale * mean)?)?;
        Ok(Conv2d {
            layer: self.layer.with_weights(weight, Some(bias)),
            config: self.config,
        })
    }
}

impl Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.layer.forward(x)
    }
}

/// A layer of square filters with a bias, its weights from `vb`.
///
/// # Errors
/// What `vb` answers.
pub fn conv2d(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    config: Conv2dConfig,
    vb: VarBuilder,
) -> Result<Conv2d> {
    let weight = weight(in_channels, out_channels, kernel_size, &config, &vb)?;
    let bound = 1. / (in_channels as f64).sqrt();
    let spread = Init::Uniform {
        lo: -bound,
        up: bound,
    };
    let bias = vb.get_with_hints(out_channels, "bias", spread)?;
    Ok(Conv2d::new(weight, Some(bias), config))
}

/// [`conv2d`] without a bias.
///
/// # Errors
/// What `vb` answers.
pub fn conv2d_no_bias(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    config: Conv2dConfig,
    vb: VarBuilder,
) -> Result<Conv2d> {
    let weight = weight(in_channels, out_channels, kernel_size, &config, &vb)?;
    Ok(Conv2d::new(weight, None, config))
}

fn weight(
    in_channels: usize,
    out_channels: usize,
    kernel_size: usize,
    config: &Conv2dConfig,
    vb: &VarBuilder,
) -> Result<Tensor> {
    let shape = (
        out_channels,
        in_channels / config.groups,
        kernel_size,
        kernel_size,
    );
    vb.get_with_hints(shape, "weight", init::DEFAULT_KAIMING_NORMAL)
}
