//! The study: what the source reports measured, measured again and kept in one file.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Study`] | the file: layers, network, overlap |
//! | [`NetworkRow`] | one variant running the whole network: op times, layer times, accuracy |
//! | [`overlap()`], [`OverlapRow`] | one variant under a number of streams: copies and kernels overlapped |
//! | [`Profile`] | what a profiler counted, kernel by kernel |

mod file;
mod overlap;
mod profile;
mod rows;

pub use file::Study;
pub use overlap::{OverlapOptions, overlap};
pub use profile::{Counters, Profile, ProfileRow};
pub use rows::{HostMemory, LayerTimes, NetworkRow, OverlapRow, Span, Spread, Work};
