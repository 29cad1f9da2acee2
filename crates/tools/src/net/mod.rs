//! The small network of the accuracy study: a LeNet on Fashion-MNIST images enlarged to 86x86.
//!
//! | layer | output |
//! | --- | --- |
//! | convolution 1 -> 4, 7x7 | 4 x 80 x 80 |
//! | ReLU, maximum over 2x2 | 4 x 40 x 40 |
//! | convolution 4 -> 16, 7x7 | 16 x 34 x 34 |
//! | ReLU, maximum over 4x4, the last windows clipped | 16 x 9 x 9 |
//! | fully connected, ReLU | 32 |
//! | fully connected | 10 |
//!
//! [`idx`] reads images and labels, [`resize`](mod@resize) enlarges them, [`weights`] reads the
//! trained weights, [`Network`] runs the layers on one device, from pixels to logits.
//! `FusedNetwork`, which is there with the feature `cuda`, does the same with the layers fused.

#[cfg(feature = "cuda")]
mod fused;
pub mod idx;
mod layers;
mod network;
pub mod npy;
pub mod resize;
pub mod weights;

#[cfg(feature = "cuda")]
pub use fused::{FusedNetwork, Measured};
pub use network::{Network, Outcome, Progress, SIDE};
pub(crate) use network::{check_size, classes};
