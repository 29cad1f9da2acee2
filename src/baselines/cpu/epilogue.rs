//! What happens to one sum before it is stored, and which sums a pooling window has.

use std::ops::Range;

use crate::{Activation, Epilogue, Pool};

/// `activation(scale * sum + bias + residual)` of one sum. A NaN stays one.
pub(super) fn value(epilogue: &Epilogue, sum: f32, bias: f32, residual: f32) -> f32 {
    activate(epilogue.activation, epilogue.scale * sum + bias + residual)
}

pub(super) fn activate(activation: Activation, v: f32) -> f32 {
    match activation {
        // f32::max would hide a NaN.
        _ if v.is_nan() => v,
        Activation::None => v,
        Activation::Relu => v.max(0.0),
        Activation::Relu6 => v.clamp(0.0, 6.0),
        Activation::Tanh => v.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-v).exp()),
        Activation::Silu => v / (1.0 + (-v).exp()),
    }
}

/// The larger of two, or NaN if either is: `a > b` is false for both.
pub(super) fn max(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() { a } else { b }
}

/// The rows (axis 0) or columns (axis 1) of a window, clipped to the `size` there are.
pub(super) fn window(pool: &Pool, axis: usize, at: usize, size: usize) -> Range<usize> {
    let first = at * pool.stride[axis];
    first..(first + pool.window[axis]).min(size)
}
