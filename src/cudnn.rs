//! Searching the fastest of cuDNN's plans.
//!
//! The variant `cudnn` takes the first plan of cuDNN's own heuristics that the rules allow. That
//! costs milliseconds, and is what a caller gets who asks for no more.
//!
//! [`Search`] finds the fastest: every plan that the heuristics propose, every engine that cuDNN
//! has, and every algorithm of its older API, timed and judged by a [`Referee`] that the caller
//! brings. It takes seconds, so nothing begins it by itself. What it finds is a [`Choice`], which can
//! be kept and [prepared](prepare) again. There are two winners: plans that add up products race for
//! one place; transforms (Winograd, FFT), as far as they are faster than that winner, for the other.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `search` | [`Search`]: finding the fastest |
//! | `found` | [`Found`]: what it found, and which of it race again |
//! | `race` | who of them runs, and in which round |
//! | `timer` | what they run on, and taking their time |
//! | `referee` | [`Referee`]: who measures and judges them |

mod found;
mod race;
mod referee;
mod search;
mod timer;

pub use crate::baselines::cudnn::{Choice, Fate, Trial, Version, prepare, version};
pub use found::{Found, Rejected, Winner};
pub use referee::{Judgement, Referee};
pub use search::{Options, Search};
