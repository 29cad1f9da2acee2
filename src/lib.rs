//! 2-D convolution on NVIDIA GPUs: handwritten CUDA kernels beside cuBLAS and cuDNN, every one
//! checked against the same oracle and timed in the same run, and the fastest correct one served to
//! Rust programs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Problem`] | shapes, layout, storage, math, epilogue, and the text that names them |
//! | [`Device`], [`Buffer`], [`View`], [`Stream`] | the CPU or a GPU, behind one set of types |
//! | [`Conv`] | a problem with its chosen variant; [`Conv::run`] only enqueues |
//! | [`Pick`], [`policy`] | how the variant is chosen |
//! | [`variant`], [`variants`] | what every kernel and baseline offers, and the list of all of them |
//! | [`Pipeline`] | a batch in host memory, cut over streams: copies beside kernels |
#![cfg_attr(
    feature = "cuda",
    doc = "| [`gpu`] | safe wrappers over the CUDA driver |"
)]
#![cfg_attr(
    feature = "cudnn",
    doc = "| [`cudnn`] | searching the fastest of cuDNN's plans |"
)]
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cuda` (default) | kernels and cuBLAS; a CUDA toolkit to build, nothing of it to start |
//! | `cpu` (default) | the fast CPU backend; without it there are plain loops |
//! | `cudnn` | that baseline |
//! | `serde` | what values say of themselves can be written down |

#![warn(missing_docs, missing_debug_implementations)]

mod baselines;
mod conv;
mod device;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "cuda")]
mod kernels;
pub mod pipeline;
pub mod policy;
mod problem;
mod select;
pub mod variant;
pub mod variants;

#[cfg(feature = "cudnn")]
pub use baselines::cudnn;
pub use conv::{Conv, Operands, Packed, RawOperands, Workspace};
pub use device::{
    Buffer, Device, Element, HostCopies, Limits, Mark, Stream, View, ViewMut, with_host_copies,
};
pub use error::{Error, Result};
pub use pipeline::Pipeline;
pub use problem::{Activation, Epilogue, Layout, Math, Padding, Pool, Problem, Shape, Storage};
pub use select::Pick;

/// Names the CUDA sources that this build was made from; results carry it.
pub const CSRC_HASH: &str = env!("CONVFORGE_CSRC_HASH");
