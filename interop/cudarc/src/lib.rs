//! Convolutions of [convforge] on [cudarc]'s memory and streams, in safe code.
//!
//! Both crates work in the device's primary context, so addresses and streams of one are the other's.
//! A [`Queue`] stands for a stream of cudarc's; operands are whatever cudarc can read and write:
//! slices, views, unified memory.
//!
//! ```no_run
//! use convforge::{Conv, Device, Pick, Problem};
//! use convforge_cudarc::{Operands, Queue};
//! use cudarc::driver::CudaContext;
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let problem: Problem = "mb8ic3ih32oc16oh32kh3ph1".parse()?;
//! let x = stream.clone_htod(&vec![1f32; problem.x_len()])?;
//! let w = stream.clone_htod(&vec![0.5f32; problem.w_len()])?;
//! let mut y = stream.alloc_zeros::<f32>(problem.y_len())?;
//!
//! let device = Device::gpu(0)?;
//! let mut queue = Queue::new(&device, &stream)?;
//! let conv = Conv::new(&device, &problem, &Pick::default())?;
//! let packed = queue.pack(&conv, &w)?; // once per filter
//! queue.run(&conv, Operands::new(&x, &w, &mut y).packed(packed.as_ref()))?;
//! let y = stream.clone_dtoh(&y)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked
//!
//! Lengths and element types against the problem; that stream, operands and convolution are of one
//! GPU, and the stream and the operands of its primary context. cudarc's events order the work behind
//! what other streams do with the operands, and what they do later behind it, as far as cudarc tracks
//! them.
//!
//! # The per-thread default stream
//!
//! That stream (`CudaContext::per_thread_stream`, and candle's) is another queue on each thread. A
//! [`Queue`] of it belongs to the thread that made it: use it there, and make one per thread.

mod operands;
mod queue;

pub use operands::Operands;
pub use queue::Queue;
