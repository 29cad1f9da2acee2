//! Results of tuning: which variant took how long on a problem, kept for later processes.
//!
//! Plain data: nothing here measures, opens a library or needs a GPU. [`Tuner`](crate::Tuner) fills a
//! [`Store`], [`Pick::Auto`](crate::Pick::Auto) reads it, and docs/tuning.md says what may be relied on.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `record` | [`Record`]: the results of one problem, and their text |
//! | `store` | [`Store`]: a folder with a file for each |
//! | `shipped` | the results that are compiled into the program |
//! | `batchless` | a problem's text without its number of images |

mod batchless;
mod record;
pub mod shipped;
mod store;

pub use record::{Conditions, Line, Outcome, Record};
pub use store::Store;

use batchless::Batchless;

/// How many times as many images, or as few, as were measured a problem may have for the results to
/// serve it too.
pub const NEAR: usize = 2;

/// What `one` and `other` differ by as a factor, if results of the one may serve the other.
fn distance(one: usize, other: usize) -> Option<f64> {
    let (least, most) = (one.min(other), one.max(other));
    (least > 0 && most <= least.saturating_mul(NEAR)).then(|| most as f64 / least as f64)
}
