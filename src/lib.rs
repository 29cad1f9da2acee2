//! 2-D convolution on NVIDIA GPUs: handwritten CUDA kernels beside cuBLAS and cuDNN, every one
//! checked against the same oracle and timed in the same run, and the fastest correct one served to
//! Rust programs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Problem`] | shapes, layout, storage, math, epilogue, and the text that names them |
//! | [`Device`], [`Buffer`], [`Stream`] | the CPU or a GPU, behind one set of types |
//! | [`Conv`] | a problem with its chosen variant; [`Conv::run`] only enqueues |
//! | [`Pick`], [`policy`] | how the variant is chosen |
//! | [`variant`], [`variants`] | what every kernel and baseline offers, and the list of all of them |
//! | [`Pipeline`] | a batch in host memory, cut over streams: copies beside kernels |
//! | [`check`] | comparing an output with the oracle |
//! | [`measure`] | timing |
//! | [`suite`] | named sets of problems |
//! | [`net`] | the small network of the accuracy study |
//! | [`study`] | what the source reports measured, measured again and kept in one file |
//! | [`page`] | one HTML page of all results |
//! | [`Range`] | names on a profiler's timeline |
//! | [`gpu`] | safe wrappers over the CUDA driver |

#![warn(missing_docs)]

mod baselines;
pub mod check;
mod conv;
mod device;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "cuda")]
mod kernels;
pub mod measure;
pub mod net;
pub mod page;
pub mod pipeline;
pub mod policy;
mod problem;
mod range;
mod reference;
mod select;
pub mod study;
pub mod suite;
pub mod variant;
pub mod variants;

pub use conv::{BoundConv, Conv, Operands, Packed, RawOperands, Workspace};
pub use device::{Buffer, Device, Element, HostBuffer, Limits, Mark, Stream};
pub use error::{Error, Result};
pub use pipeline::Pipeline;
pub use problem::{Activation, Epilogue, Layout, Math, Padding, Pool, Problem, Shape, Storage};
pub use range::Range;
pub use select::Pick;

/// Names the CUDA sources that this build was made from; results carry it.
pub const CSRC_HASH: &str = env!("CONVFORGE_CSRC_HASH");
