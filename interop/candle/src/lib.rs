//! candle's `Conv2d` computed by [convforge]: one kernel for a whole layer with its bias and its
//! activation, for groups and depthwise filters too.
//!
//! For inference. Going backward through such a layer is an error that says so.
#![cfg_attr(
    feature = "nn",
    doc = "
```
use candle_core::{Device, Module, Tensor};
use candle_nn::Conv2dConfig;
use convforge_candle::{Activation, Conv2d};

let weight = Tensor::ones((8, 3, 3, 3), candle_core::DType::F32, &Device::Cpu)?;
let bias = Tensor::zeros(8, candle_core::DType::F32, &Device::Cpu)?;
let config = Conv2dConfig { padding: 1, ..Default::default() };
let conv = Conv2d::new(weight, Some(bias), config).activation(Activation::Relu);
let y = conv.forward(&Tensor::ones((2, 3, 16, 16), candle_core::DType::F32, &Device::Cpu)?)?;
assert_eq!(y.dims(), [2, 8, 16, 16]);
assert_eq!(y.flatten_all()?.to_vec1::<f32>()?[..2], [12., 18.]);
# Ok::<(), candle_core::Error>(())
```
"
)]
//!
//! # Which tensors
//!
//! f32, f16 and bf16 in candle's order (NCHW), on the CPU and, with the feature `cuda`, on NVIDIA's
//! GPUs. An input that is not contiguous is copied first. Whatever else there is (other types, Metal,
//! empty tensors) candle computes as always.
//!
//! Products of f32 are f32's, or TF32's where candle's own are
//! (`candle_core::cuda::set_gemm_reduced_precision_f32`); those of f16 and bf16 are summed in f32. A
//! bias is added and an activation applied before the result is rounded to 16 bits, where candle
//! rounds in between.
//!
//! # What is kept
//!
//! Ready convolutions, in one [`cache`] of the program; in each layer its filter in the forms that
//! kernels take, shared by all batch sizes; for each thread and stream a workspace. A first call with
//! new shapes makes what it needs, and cannot be captured in a graph; later ones only allocate their
//! output, as candle does.
//!
//! Weights are taken to stay as they are. Those of a `VarMap` may change, so their filter is packed
//! at each call: load them with another `VarBuilder`, or `detach` them and, as a detached tensor shares
//! its memory, call `weights_changed` on the layers once it was written to.
//!
//! # Streams
//!
//! Work is queued on the device's stream. candle's default one is another queue on each thread, so a
//! tensor that one thread makes and another reads needs `Device::synchronize` in between, here as
//! everywhere in candle; `Device::new_cuda_with_stream` has one for all.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod custom_op;
mod layer;
#[cfg(feature = "nn")]
mod nn;
mod op;
mod thread;

// As the stand-in for candle-nn names it, which has the file `nn` too.
extern crate self as convforge_candle;

#[cfg(feature = "nn")]
use candle_nn as theirs;
use convforge::ConvCache;
use std::sync::LazyLock;

pub use convforge::{Activation, Pick};
pub use layer::{Config, Layer};
#[cfg(feature = "nn")]
pub use nn::{Conv2d, conv2d, conv2d_no_bias};
pub use thread::{Call, by_candle, watch};

/// The ready convolutions of all layers of the program.
pub fn cache() -> &'static ConvCache {
    static CACHE: LazyLock<ConvCache> = LazyLock::new(ConvCache::default);
    &CACHE
}

/// An error of convforge's as candle has them. The causes go into the message: candle tells no sources of what it
/// wraps.
fn error(error: convforge::Error) -> candle_core::Error {
    candle_core::Error::msg(convforge::chain(&error))
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    #[test]
    fn an_error_has_its_causes() {
        let error = convforge::Error::NoGpu {
            why: "no driver".to_owned(),
            source: Some(AssertUnwindSafe("libcuda.so.1 is not there".into())),
        };
        let text = super::error(error).to_string();
        assert!(
            text.contains("no GPU: no driver: libcuda.so.1 is not there"),
            "{text}"
        );
    }
}
