//! The models.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{Func, VarBuilder};
use candle_transformers::models::{
    convnext,
    efficientnet::{EfficientNet, MBConvConfig},
    resnet,
    stable_diffusion::vae::{AutoEncoderKL, AutoEncoderKLConfig},
};

use crate::Seeded;

/// A model of candle-transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Net {
    /// ResNet-18.
    Resnet18,
    /// ResNet-50.
    Resnet50,
    /// ConvNeXt-T.
    ConvnextT,
    /// EfficientNet-B0.
    EfficientnetB0,
    /// The decoder of Stable Diffusion 1.5's autoencoder.
    Vae,
}

/// Classes of ImageNet.
const CLASSES: usize = 1000;
/// The autoencoder's image has so many times the rows and columns of what it is decoded from.
const LATENT: usize = 8;

impl Net {
    /// The model with weights from `vb`.
    pub fn build(self, vb: VarBuilder<'static>) -> Result<Func<'static>> {
        match self {
            Net::Resnet18 => resnet::resnet18(CLASSES, vb),
            Net::Resnet50 => resnet::resnet50(CLASSES, vb),
            Net::ConvnextT => convnext::convnext(&convnext::Config::tiny(), CLASSES, vb),
            Net::EfficientnetB0 => {
                let net = EfficientNet::new(vb, MBConvConfig::b0(), CLASSES)?;
                Ok(Func::new(move |x| net.forward(x)))
            }
            Net::Vae => {
                let config = AutoEncoderKLConfig {
                    block_out_channels: vec![128, 256, 512, 512],
                    layers_per_block: 2,
                    ..AutoEncoderKLConfig::default()
                };
                let net = AutoEncoderKL::new(vb, 3, 3, config)?;
                Ok(Func::new(move |x| net.decode(x)))
            }
        }
    }

    /// What goes in for `batch` images of `size` rows and columns.
    pub fn input(
        self,
        batch: usize,
        size: usize,
        seed: Seeded,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let dims = match self {
            Net::Vae => (batch, 4, size / LATENT, size / LATENT),
            _ => (batch, 3, size, size),
        };
        let len = dims.0 * dims.1 * dims.2 * dims.3;
        let numbers = seed.numbers("input", len, -2., 2.);
        Tensor::from_vec(numbers, dims, &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)
    }
}
