//! Comparing what a variant computes with the oracle. Tests, benches and the command all come
//! through here: no number is printed for a variant that did not pass.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `run` | [`case`]: one variant on one problem, everything around it watched |
//! | `data` | [`Data`]: the numbers fed to it, from whole ones to wild ones |
//! | `bounds` | [`Bounds`]: how wrong a result may be, and why |
//! | `judge` | [`judge`]: an output against the CPU's oracle, into a [`Verdict`] |
//! | `oracle` | the same on the GPU, for large problems |
//! | `stored` | [`Deviation`]: how far results are from f64 of the operands as they are stored |
//! | `fence` | memory whose surroundings are watched |
//! | `generate` | [`Profile`]: random valid problems |

mod bounds;
mod data;
mod fence;
mod generate;
mod judge;
#[cfg(feature = "cuda")]
mod oracle;
mod rng;
mod run;
mod stored;

pub use bounds::Bounds;
pub use data::{Data, Recipe, Tensor, narrow, widen};
pub use generate::{COVERAGE_PROBLEMS, Profile, coverage, nominal_limits};
pub use judge::{Verdict, judge};
#[cfg(feature = "cuda")]
pub use oracle::prove_oracle;
pub use run::{Measured, Options, Outcome, case, conv};
pub(crate) use stored::rounds;
pub use stored::{Deviation, sequential};

pub use crate::reference::{Expected, Reference, Tensors, position};
