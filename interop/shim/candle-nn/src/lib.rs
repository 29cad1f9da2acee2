//! candle-nn, but for `Conv2d`, `conv2d` and `conv2d_no_bias`, which are convforge's: patched in for
//! candle-nn it makes unmodified models, as candle-transformers', compute their convolutions by
//! convforge. For inference.

#[path = "../../../candle/src/nn.rs"]
mod nn;

use real as theirs;

pub use nn::{Conv2d, conv2d, conv2d_no_bias};
// What is named above goes before it.
pub use real::*;

/// candle-nn's convolution layers.
pub mod conv {
    pub use crate::nn::{Conv2d, conv2d, conv2d_no_bias};
    pub use real::conv::*;
}
