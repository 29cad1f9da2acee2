//! Safe wrappers over the CUDA driver API: no raw type in public, every failure an
//! [`Error`](crate::Error).
//!
//! | file | what it holds |
//! | --- | --- |
//! | `gpu` | [`Gpu`]: one device and its primary context, which a thread [enters](Entered) |
//! | `stream` | [`Stream`]: a queue of work |
//! | `copies` | what it copies and sets |
//! | `event` | [`Event`]: a mark in a queue; time between two |
//! | `buffer` | [`DeviceBuffer`]: elements in device memory |
//! | `pinned` | [`PinnedBuffer`]: host memory that copies can run over; [`Pending`] copies |
//! | `graph` | [`Graph`]: a recorded queue, launched as one |
//! | `profiler_range` | [`ProfilerRange`]: the part of a program that a waiting profiler records |
//! | `call` | one driver call: its error, and the context it runs in, [`Entered`] |
//!
//! The driver is opened at first use, so a program with these types starts without one. Every
//! stream, event, buffer and graph holds a clone of its `Gpu`, and the last one gives the context
//! back. Every call leaves the thread's current context as it found it. What fails while
//! something is being dropped is passed over in silence: there is nobody to tell.

#[macro_use]
mod call;
mod buffer;
mod copies;
mod event;
#[allow(clippy::module_inception)]
mod gpu;
mod graph;
mod pinned;
mod profiler_range;
mod stream;

pub use buffer::DeviceBuffer;
pub use call::Entered;
pub(crate) use call::{is_of_recording, missing};
pub use event::Event;
pub use gpu::Gpu;
pub use graph::Graph;
pub use pinned::{Pending, PinnedBuffer};
pub use profiler_range::ProfilerRange;
pub use stream::Stream;
