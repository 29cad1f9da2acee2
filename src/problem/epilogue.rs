//! What happens to a sum before it is stored.

use std::hash::{Hash, Hasher};

/// What is applied to the sum, the bias and the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(v, 0)
    Relu,
    /// min(max(v, 0), 6)
    Relu6,
    /// tanh(v)
    Tanh,
    /// 1 / (1 + exp(-v))
    Sigmoid,
    /// v / (1 + exp(-v))
    Silu,
}

impl Activation {
    /// Whether it is computed with an exponential, which nobody rounds correctly.
    pub fn is_exponential(self) -> bool {
        matches!(
            self,
            Activation::Tanh | Activation::Sigmoid | Activation::Silu
        )
    }
}

/// A maximum over windows of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    /// Height and width of a window.
    pub window: [usize; 2],
    /// Distance between windows, down and across.
    pub stride: [usize; 2],
    /// Whether windows that hang over the lower or right edge are kept, clipped.
    pub ceil: bool,
}

/// What happens to a sum before it is stored:
/// `y = pool(activation(scale * sum + bias[k] + residual))`.
///
/// Scales are equal whose bits are: 0 and -0 are two.
#[derive(Clone, Copy, Debug)]
pub struct Epilogue {
    /// Factor on the sum, 1 by default.
    pub scale: f32,
    /// Whether one f32 per output channel is added.
    pub bias: bool,
    /// Whether a tensor of the convolution's own output shape (before pooling) is added.
    pub residual: bool,
    /// The activation.
    pub activation: Activation,
    /// The pooling.
    pub pool: Option<Pool>,
}

impl Default for Epilogue {
    fn default() -> Self {
        Epilogue {
            scale: 1.0,
            bias: false,
            residual: false,
            activation: Activation::None,
            pool: None,
        }
    }
}

impl Epilogue {
    /// Whether the sums are stored as they are.
    pub fn is_identity(&self) -> bool {
        *self == Epilogue::default()
    }

    /// What two equal ones have in common.
    fn identity(&self) -> impl Eq + Hash {
        let scale = self.scale.to_bits();
        let adds = (self.bias, self.residual);
        (scale, adds, self.activation, self.pool)
    }
}

impl PartialEq for Epilogue {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Epilogue {}

impl Hash for Epilogue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}
