//! Weights made on the spot.

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};

/// Weights that depend on their name, their shape and a seed alone, of a size that keeps activations
/// near 1 through a deep network.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(pub u64);

impl Seeded {
    /// As models take them.
    pub fn builder(self, dtype: DType, device: &Device) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self), dtype, device.clone())
    }

    /// So many numbers from `low` to `high`, evenly spread.
    pub fn numbers(self, name: &str, len: usize, low: f32, high: f32) -> Vec<f32> {
        let mut state = name
            .bytes()
            .fold(self.0, |hash, byte| mix(hash ^ u64::from(byte)));
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            // 24 bits, as many as an f32 has.
            low + (high - low) * (mix(state) >> 40) as f32 / (1u64 << 24) as f32
        };
        (0..len).map(|_| next()).collect()
    }
}

/// The last step of splitmix64: one bit that changes, changes half of all.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl SimpleBackend for Seeded {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, to: &Device) -> Result<Tensor> {
        let dims = shape.dims();
        let (low, high) = match (dims.len(), name.rsplit('.').next()) {
            (1, Some("bias" | "running_mean")) => (-0.1, 0.1),
            // Scales and variances.
            (0 | 1, _) => (0.8, 1.2),
            // A sum of so many products then varies as much as what goes in.
            _ => {
                let inputs: usize = dims[1..].iter().product();
                let bound = (3. / inputs.max(1) as f32).sqrt();
                (-bound, bound)
            }
        };
        let numbers = self.numbers(name, shape.elem_count(), low, high);
        Tensor::from_vec(numbers, shape, &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(to)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} was asked for without a shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}
