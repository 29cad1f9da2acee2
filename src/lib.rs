//! 2-D convolution on NVIDIA GPUs: handwritten CUDA kernels beside cuBLAS and cuDNN, every one
//! checked against the same oracle and timed in the same run, and the fastest correct one served to
//! Rust programs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Problem`] | shapes, layout, storage, math, epilogue, and the text that names them |
//! | [`Device`], [`Buffer`], [`View`], [`Stream`] | the CPU or a GPU, behind one set of types |
//! | [`Conv`] | a problem with its chosen variant; [`Conv::run`] only enqueues |
//! | [`ConvCache`], [`Filter`] | ready convolutions and packed filters, made at first use and kept |
//! | [`Pick`], [`policy`] | how the variant is chosen |
//! | [`tuning`], [`tuner`] | results of measurements that choices go by; making them |
//! | [`variant`], [`variants`] | what every kernel and baseline offers, and the list of all of them |
//! | [`Pipeline`] | a batch in host memory, split over streams: copies beside kernels |
#![cfg_attr(
    feature = "cuda",
    doc = "| [`gpu`] | safe wrappers over the CUDA driver |\n| [`kernels`] | what kernels of other crates need of this one's |"
)]
#![cfg_attr(
    feature = "cudnn",
    doc = "| [`cudnn`] | searching the fastest of cuDNN's plans |"
)]
//!
//! # Growth
//!
//! What may have one more member in a later release is `#[non_exhaustive]`: build it with `new` or its default, and
//! the methods that are called as its fields. What is not can be written out, and matched to the last one. Of these a
//! [`Shape`] with all that stands in it ([`Layout`], [`Storage`], [`Math`], [`Padding`], [`Epilogue`], [`Activation`],
//! [`Pool`]) must be known in full by whoever computes or judges a convolution; a field of an [`Error`]'s variant by
//! whoever implements [`variant::Variant`] and answers with it. One more there is a breaking change.
//!
//! # Threads
//!
//! Whatever lives on a device is `Send`. [`Conv`], [`ConvCache`], [`Packed`], [`Filter`], devices, streams, buffers and views are
//! `Sync` too: one convolution serves any number of threads, each with a stream and a [`Workspace`] of its own. A
//! workspace, a [`Pipeline`] and a graph serve one thread at a time. The CPU's fast variants run on the
//! caller's rayon pool.
//!
//! One kind of stream serves one thread alone: CUDA's per-thread default stream, handle 2, which `Stream::from_raw`
//! of `gpu` binds to the thread that took it. On another it answers [`Error::WrongThread`]. Each thread
//! takes the handle anew, with a workspace of its own.
//!
//! Work on one stream is in order; nothing but a [`Mark`] orders that of two. What one of them reads while
//! another writes it is any numbers, and no worse.
//!
//! # Contexts, processes
//!
//! GPU work happens in the device's primary context, which the CUDA runtime and most libraries use too.
//! Every call makes it current and then restores what the thread had. Whoever resets the device
//! (`cudaDeviceReset`) ends all that lives on it.
//!
//! Neither CUDA nor a pool of threads survives `fork`: a child process uses and drops nothing that was
//! made before. Fork first, or start another program.
//!
//! # Memory
//!
//! In safe code the borrow checker says what may overlap, and a buffer that is dropped waits for the work
//! that uses it. For plain addresses ([`Conv::run_raw`], [`View::from_raw`]): input, filter, bias,
//! residual and packed filter may overlap each other, output and workspace overlap nothing. So an output
//! cannot take its residual's place.
//!
//! # Graphs
//!
//! A run can be captured ([`Conv::run`] allocates nothing on the device and waits for nothing); packing and
//! [`Workspace::reserve`] cannot. On the host a run allocates nothing either, but for `cudnn` and `cudnn_transform`: cuDNN
//! takes addresses in a descriptor of its own, so a workspace's first run with new addresses makes one, and keeps those of
//! the last 32 sets of addresses. A graph knows by addresses alone what its launches use: operands, packed
//! filter, the workspace's memory, and what the [`Conv`] keeps. All of these stay as they are for as long
//! as it is launched; reserving more in the workspace moves its memory. Whoever launches promises it.
//!
//! # Environment
//!
//! `CONVFORGE_CUDA_LIB`, `CONVFORGE_CUBLAS_LIB`, `CONVFORGE_CUDNN_LIB` and `CONVFORGE_NVRTC_LIB` name
//! libraries, or folders of them; `CONVFORGE_CACHE` is where the installer that a failed build's error names
//! (toolkit.py of the crate convforge-bind) puts them, and where a user's
//! [results of tuning](tuning::Store::of_user) lie. Beside which libraries can be opened and which results there
//! are, no variable changes what is chosen or computed, and no default searches by time: what costs seconds is asked for by
//! a value that has a budget.
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
mod cache;
mod conv;
#[cfg(feature = "cudnn")]
pub mod cudnn;
mod device;
mod error;
#[cfg(feature = "cuda")]
pub mod gpu;
#[cfg(feature = "cuda")]
pub mod kernels;
mod limits;
pub mod pipeline;
pub mod policy;
mod problem;
mod select;
#[cfg(feature = "cuda")]
mod sources;
pub mod tuner;
pub mod tuning;
pub mod variant;
pub mod variants;

pub use cache::ConvCache;
pub use conv::{Conv, Filter, Operands, Packed, Workspace};
pub use device::{
    Buffer, Device, Element, HostCopies, Mark, Stream, View, ViewMut, with_host_copies,
};
pub use error::{Cause, Error, Result, chain};
pub use limits::Limits;
pub use pipeline::Pipeline;
pub use problem::{Activation, Epilogue, Layout, Math, Padding, Pool, Problem, Shape, Storage};
pub use select::{Choice, Pick};
pub use tuner::Tuner;
pub use variant::RawOperands;

/// Names the CUDA sources that this build was made from; results carry it.
pub const CSRC_HASH: &str = env!("CONVFORGE_CSRC_HASH");

// The guide's programs.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;
