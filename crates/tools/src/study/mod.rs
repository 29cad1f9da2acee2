//! The study: what the source reports measured, measured again and kept in one file.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`Study`] | the file: layers, network, overlap, errors |
//! | [`network()`], [`NetworkRow`] | one variant running the whole network: times, accuracy |
//! | [`overlap()`], [`OverlapRow`] | one variant under a number of streams: copies and kernels overlapped |
//! | [`errors()`], [`ErrorRow`] | variants on one problem: how far from f64 |
//! | [`Table`] | the file's tables for people |
//! | [`Profile`] | what a profiler counted, kernel by kernel |

mod errors;
mod file;
mod network;
mod overlap;
mod profile;
mod rows;
mod tables;

pub use errors::{DataErrors, ERROR_DATA, ErrorRow, errors};
pub use file::Study;
pub use network::{NetworkData, NetworkOptions, network};
pub use overlap::{OverlapOptions, overlap};
pub use profile::{Counters, Profile, ProfileRow};
pub use rows::{HostMemory, LayerTimes, NetworkRow, OverlapRow, Span, Work};
pub use tables::{Table, YARDSTICKS};
