//! Comparing what a variant of convforge computes with an oracle in f64. Tests, benches and the
//! command all come through here: no number is printed for a variant that did not pass.
//!
//! ```
//! use convforge::{Device, Problem, variants};
//! use convforge_check::{Options, Outcome, case};
//!
//! let problem: Problem = "mb2ic3ih8oc4kh3+bias+relu".parse()?;
//! let plain = variants::find("cpu_direct")?.into();
//! let outcome = case(&Device::cpu(), &plain, &problem, 1, &Options::default());
//! assert!(matches!(outcome, Outcome::Passed(_)));
//! # Ok::<(), convforge::Error>(())
//! ```
//!
//! | file | what it holds |
//! | --- | --- |
//! | `options`, `outcome` | what a check is asked, [`Options`], and how it ends, [`Outcome`] |
//! | `run` | [`case`]: one variant on one problem |
//! | `trial` | its runs, everything around them watched |
//! | `fence` | memory whose surroundings are watched |
//! | `packed` | the filter as the variant packs it, watched as well |
//! | `data` | [`Data`]: kinds of numbers, from whole ones to wild ones |
//! | `recipe` | [`Recipe`]: the numbers fed to it |
//! | `whole`, `extreme` | the ranges of whole numbers, and of exponents |
//! | `reference` | [`Reference`]: the oracle, plain loops on the CPU |
//! | `oracle` | the same on the GPU, for large problems |
//! | `answers` | [`Answers`]: what it said, kept for the next variant on the same problem |
//! | `proof` | that both oracles agree |
//! | `verdict` | [`Verdict`]: what comparing an output with the oracle found |
//! | `judge` | [`judge`]: comparing them |
//! | `judged` | what a verdict means |
//! | `sets` | [`Sets`]: where the outputs of timed launches lie |
//! | `launched` | [`Launched`]: what timed launches should leave behind |
//! | `bounds` | [`Bounds`]: how wrong a result may be, and why |
//! | `split` | [`split`]: sums on tensor cores whose operands come in parts, emulated |
//! | `stored` | [`Deviation`]: how far results are from f64 of the operands as they are stored |
//! | `generate` | [`Profile`]: random valid problems |
//! | `domain` | [`Domain`]: random problems that one variant can do, up to where it refuses |
//! | `tails` | [`tails()`]: problems with sizes around those of tiles |
//! | `error` | [`Error`]: what keeps a check from being made |

#![warn(missing_docs)]

mod answers;
mod bounds;
mod data;
mod domain;
mod error;
mod extreme;
mod fence;
#[cfg(feature = "cuda")]
mod ffi;
mod generate;
mod judge;
mod judged;
mod launched;
mod options;
#[cfg(feature = "cuda")]
mod oracle;
mod outcome;
mod packed;
#[cfg(feature = "cuda")]
mod proof;
mod recipe;
mod reference;
mod rng;
mod run;
mod sets;
pub mod split;
mod stored;
mod tails;
mod trial;
mod verdict;
mod whole;

pub use answers::Answers;
pub use bounds::Bounds;
pub use data::Data;
pub use domain::{COVERAGE_PROBLEMS, Domain, coverage};
pub use error::{Error, Result};
pub use fence::forget_memory;
pub use generate::Profile;
pub use judge::judge;
pub use launched::{Launched, Left, find_poison, poison};
pub use options::Options;
pub use outcome::{Measured, Outcome};
#[cfg(feature = "cuda")]
pub use proof::prove_oracle;
pub use recipe::{Recipe, Tensor, narrow, widen};
pub use reference::{Expected, Reference, Tensors, position};
pub use rng::random_at;
pub use run::{beside, case, conv};
pub use sets::Sets;
pub use stored::{Deviation, rounds, sequential};
pub use tails::tails;
pub use verdict::Verdict;
