//! Files of results: told apart by what is in them, and kept in a compact form.
//!
//! | form | who writes it | what it is |
//! | --- | --- | --- |
//! | `.json` | `compare`, `sweep` and `study` with --out, scripts/profile.sh | one object: all that was measured |
//! | `.jsonl` | [`Kept`] | a line per row: what tables and the page need, as it is committed |

mod kept;
mod lines;
mod read;
mod recorded;
mod seconds;
mod source;
#[cfg(test)]
mod tests;

pub use kept::files;
pub use kept::{Kept, committed, committed_alone};
pub use recorded::Recorded;
pub use source::{FullRow, Source};
