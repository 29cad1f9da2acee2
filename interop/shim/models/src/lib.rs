//! Models of candle-transformers as they are there, with weights made on the spot, run by convforge's
//! convolutions and by candle's own.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `net` | [`Net`]: the models, and what goes into them |
//! | `weights` | [`Seeded`]: weights by name and seed |
//! | `measure` | outputs, times and memory of both, side by side |

mod measure;
mod memory;
mod net;
mod weights;

pub use measure::{Answer, Layer, Options, difference, measure};
pub use net::Net;
pub use weights::Seeded;
