//! What stands around the library [`convforge`]: checking, timing and comparing its variants, and
//! showing what was found. The command `convforge` is made of it.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Contender`] | who takes part in a comparison |
//! | [`contenders`] | who can be compared: the library's variants, cuDNN at its strongest among them |
//! | [`measure`] | timing, tables, charts |
//! | [`suite`] | named sets of problems |
//! | [`model`] | the convolutions of ONNX files |
//! | [`net`] | the small network of the accuracy study |
//! | [`study`] | what the source reports measured, measured again and kept in one file |
//! | [`results`] | files of results, and their compact form |
//! | [`page`] | one HTML page of all results |
//! | [`tune`] | results of tuning, from comparisons |
//! | [`files`] | files that are whole at any time |
//! | [`Range`] | names on a profiler's timeline |
#![cfg_attr(
    feature = "cudnn",
    doc = "| [`cudnn`] | searching cuDNN's fastest plans, and keeping them |"
)]
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cuda` (default) | GPUs; a CUDA toolkit to build, nothing of it to start |
//! | `cudnn` | cuDNN, searched |

#![warn(missing_docs)]

mod contender;
pub mod contenders;
#[cfg(feature = "cudnn")]
pub mod cudnn;
mod error;
#[cfg(feature = "cuda")]
mod ffi;
pub mod files;
pub mod measure;
pub mod model;
pub mod net;
pub mod page;
mod range;
pub mod results;
pub mod study;
pub mod suite;
pub mod tune;

pub use contender::Contender;
pub use contenders::Contenders;
pub use convforge::chain;
pub use error::{Error, Result};
pub use range::Range;
