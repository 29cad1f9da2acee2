//! The weights of the small network, from a file (`file`) or made up.

mod file;
mod tensors;

use convforge_check::random_at;

/// Weights and biases of the network, row-major, all finite. The convolutions have no biases: a file
/// of counted layers carries some, but the network was trained to be run without.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// First convolution, `[4][1][7][7]`: output channel, input channel, row, column.
    pub conv1: Vec<f32>,
    /// Second convolution, `[16][4][7][7]`.
    pub conv2: Vec<f32>,
    /// First fully connected layer, `[32][1296]`: output, input; the input is 16 x 9 x 9.
    pub fc1_weight: Vec<f32>,
    /// Its biases, `[32]`.
    pub fc1_bias: Vec<f32>,
    /// Second fully connected layer, `[10][32]`.
    pub fc2_weight: Vec<f32>,
    /// Its biases, `[10]`.
    pub fc2_bias: Vec<f32>,
}

impl Weights {
    /// Made-up weights for runs without the file: evenly spread around 0, scaled so that pixels
    /// from 0 to 255 give activations near 1. Equal seeds give equal weights.
    pub fn synthetic(seed: u64) -> Self {
        let mut index = 0;
        let mut spread = |count: usize, bound: f32| -> Vec<f32> {
            let mut next = || {
                index += 1;
                // 24 bits are exact in f32.
                let unit = (random_at(seed, index) >> 40) as f32 / (1 << 23) as f32 - 1.0;
                unit * bound
            };
            (0..count).map(|_| next()).collect()
        };
        // sqrt(6 / inputs) keeps the size of activations from layer to layer (He et al. 2015).
        let bound = |inputs: f32| (6.0 / inputs).sqrt();
        Weights {
            conv1: spread(4 * 49, bound(49.0) / 256.0),
            conv2: spread(16 * 4 * 49, bound(4.0 * 49.0)),
            fc1_weight: spread(32 * 1296, bound(1296.0)),
            fc1_bias: spread(32, 0.1),
            fc2_weight: spread(10 * 32, bound(32.0)),
            fc2_bias: spread(10, 0.1),
        }
    }
}
