//! The CPU oracle: plain loops in f64, nothing clever. What it computes is the definition of a
//! convolution in this crate; csrc/oracle.cu repeats it for problems that are too large for a CPU.
//!
//! Per output, with the sum over channels, then filter rows, then filter columns:
//!
//! | | |
//! | --- | --- |
//! | operands | rounded as the problem's math rounds them; `fp32` and `tf32` take them as they are |
//! | value | activation(scale * sum x w + bias + residual) in f64 |
//! | mag | the same with every term's magnitude and no activation: what errors are measured against |
//! | sequential | the same by a loop of fp32 multiply-adds, rounded to the storage |
//!
//! Pooling takes the maximum of each over the window, clipped at the edge.

use std::ops::Range;

use convforge::{Activation, Layout, Math, Problem, Storage};
use half::{bf16, f16};
use rayon::prelude::*;

use crate::{Result, error::same_length};

/// The operands of a problem in its own layout; stored values, widened to f32 without loss.
#[derive(Clone, Debug, Default)]
pub struct Tensors {
    /// Input.
    pub x: Vec<f32>,
    /// Filter.
    pub w: Vec<f32>,
    /// Bias; empty without one.
    pub bias: Vec<f32>,
    /// Residual; empty without one.
    pub residual: Vec<f32>,
}

/// What one output should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// The reference, not rounded.
    pub value: f64,
    /// Magnitude of everything that was added up.
    pub mag: f64,
    /// What a sequential loop in fp32 gives.
    pub sequential: f32,
}

/// Where an oracle finds its operands: input and filter as the math rounds them, all by index.
pub(crate) trait Operands {
    fn x(&self, index: usize) -> f32;
    fn w(&self, index: usize) -> f32;
    fn bias(&self, index: usize) -> f32;
    fn residual(&self, index: usize) -> f32;
}

/// The oracle for one problem and its operands.
pub struct Reference<'a> {
    problem: &'a Problem,
    tensors: &'a Tensors,
    /// Operands as the math rounds them.
    x: Vec<f32>,
    w: Vec<f32>,
}

impl<'a> Reference<'a> {
    /// Rounds the operands.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) where the tensors are not as long as the problem says.
    pub fn new(problem: &'a Problem, tensors: &'a Tensors) -> Result<Self> {
        for (what, values, expected) in [
            ("values of the input (x)", &tensors.x, problem.x_len()),
            ("values of the filter (w)", &tensors.w, problem.w_len()),
            ("values of the bias", &tensors.bias, problem.bias_len()),
            (
                "values of the residual",
                &tensors.residual,
                problem.residual_len(),
            ),
        ] {
            same_length(problem, what, values.len(), expected)?;
        }
        let rounded = |v: &Vec<f32>| {
            v.iter()
                .map(|v| round_operand(problem.math(), *v))
                .collect()
        };
        Ok(Reference {
            problem,
            tensors,
            x: rounded(&tensors.x),
            w: rounded(&tensors.w),
        })
    }

    /// The problem.
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// What the output with this index, in y's own order, should be; none where there is no such
    /// output.
    pub fn output(&self, index: usize) -> Option<Expected> {
        (index < self.problem.y_len()).then(|| self.expected(index))
    }

    /// What those of these outputs should be that there are.
    pub fn outputs(&self, range: Range<usize>) -> Vec<Expected> {
        (range.start..range.end.min(self.problem.y_len()))
            .into_par_iter()
            .map(|index| self.expected(index))
            .collect()
    }

    /// What an output that there is should be.
    pub(crate) fn expected(&self, index: usize) -> Expected {
        expected(self.problem, self, index)
    }
}

impl Operands for Reference<'_> {
    fn x(&self, index: usize) -> f32 {
        self.x[index]
    }

    fn w(&self, index: usize) -> f32 {
        self.w[index]
    }

    fn bias(&self, index: usize) -> f32 {
        self.tensors.bias[index]
    }

    fn residual(&self, index: usize) -> f32 {
        self.tensors.residual[index]
    }
}

/// What an output that there is should be.
pub(crate) fn expected(problem: &Problem, operands: &impl Operands, index: usize) -> Expected {
    let [n, k, row, column] = position(problem, index);
    let Some(pool) = &problem.epilogue().pool else {
        return pixel(problem, operands, [n, k, row, column]);
    };
    let first = [row * pool.stride[0], column * pool.stride[1]];
    let end = [
        (first[0] + pool.window[0]).min(problem.p()),
        (first[1] + pool.window[1]).min(problem.q()),
    ];
    let pixels = (first[0]..end[0]).flat_map(|p| (first[1]..end[1]).map(move |q| (p, q)));
    let pixel = |(p, q)| pixel(problem, operands, [n, k, p, q]);
    // A window begins inside the image, so there is a first one.
    let first = pixel((first[0], first[1]));
    pixels.skip(1).map(pixel).fold(first, |a, b| Expected {
        value: a.value.max(b.value),
        mag: a.mag.max(b.mag),
        sequential: a.sequential.max(b.sequential),
    })
}

/// One pixel of the convolution's output, before pooling.
fn pixel(problem: &Problem, operands: &impl Operands, [n, k, p, q]: [usize; 4]) -> Expected {
    let channels = problem.c() / problem.groups();
    let first_channel = k / (problem.k() / problem.groups()) * channels;
    let x_at = Strides::new(problem.layout(), [problem.c(), problem.h(), problem.w()]);
    let w_at = Strides::new(problem.layout(), [channels, problem.r(), problem.s()]);
    let (mut sum, mut mag, mut sequential) = (0.0f64, 0.0f64, 0.0f32);
    for c in 0..channels {
        for r in 0..problem.r() {
            let h = p * problem.stride()[0] + r * problem.dilation()[0];
            let Some(h) = h
                .checked_sub(problem.pad().top)
                .filter(|h| *h < problem.h())
            else {
                continue;
            };
            for s in 0..problem.s() {
                let w = q * problem.stride()[1] + s * problem.dilation()[1];
                let Some(w) = w
                    .checked_sub(problem.pad().left)
                    .filter(|w| *w < problem.w())
                else {
                    continue;
                };
                let a = operands.x(x_at.index([n, first_channel + c, h, w]));
                let b = operands.w(w_at.index([k, c, r, s]));
                let product = f64::from(a) * f64::from(b);
                sum += product;
                mag += product.abs();
                sequential = a.mul_add(b, sequential);
            }
        }
    }

    let epilogue = problem.epilogue();
    let bias = if epilogue.bias { operands.bias(k) } else { 0.0 };
    let residual = if epilogue.residual {
        let at = Strides::new(problem.layout(), [problem.k(), problem.p(), problem.q()]);
        operands.residual(at.index([n, k, p, q]))
    } else {
        0.0
    };
    let scale = f64::from(epilogue.scale);
    let added = scale * sum + f64::from(bias) + f64::from(residual);
    let value = activate(epilogue.activation, added);
    let mag = scale.abs() * mag + f64::from(bias.abs()) + f64::from(residual.abs());
    let sequential = epilogue.scale * sequential + bias + residual;
    let sequential = activate(epilogue.activation, f64::from(sequential)) as f32;
    Expected {
        value,
        // Only the sigmoid makes something out of nothing.
        mag: mag.max(value.abs()),
        sequential: round_stored(problem.storage(), sequential),
    }
}

/// Image, channel, row and column of an output, from its index in y's own order.
pub fn position(problem: &Problem, index: usize) -> [usize; 4] {
    let [rows, columns] = problem.out();
    match problem.layout() {
        Layout::Nchw => {
            let plane = rows * columns;
            let (nk, pixel) = (index / plane, index % plane);
            [
                nk / problem.k(),
                nk % problem.k(),
                pixel / columns,
                pixel % columns,
            ]
        }
        Layout::Nhwc => {
            let (pixel, k) = (index / problem.k(), index % problem.k());
            let (n, pixel) = (pixel / (rows * columns), pixel % (rows * columns));
            [n, k, pixel / columns, pixel % columns]
        }
    }
}

/// `v` as an operand of this math.
pub fn round_operand(math: Math, v: f32) -> f32 {
    match math {
        Math::Fp32 | Math::Tf32 => v,
        Math::F16 | Math::F16Acc => f16::from_f32(v).to_f32(),
        Math::Bf16 => bf16::from_f32(v).to_f32(),
    }
}

/// `v` rounded to the storage, to nearest and ties to even.
pub fn round_stored(storage: Storage, v: f32) -> f32 {
    match storage {
        Storage::F32 => v,
        Storage::F16 => f16::from_f32(v).to_f32(),
        Storage::Bf16 => bf16::from_f32(v).to_f32(),
    }
}

fn activate(activation: Activation, v: f64) -> f64 {
    match activation {
        Activation::None => v,
        Activation::Relu => v.max(0.0),
        Activation::Relu6 => v.clamp(0.0, 6.0),
        Activation::Tanh => v.tanh(),
        Activation::Sigmoid => 1.0 / (1.0 + (-v).exp()),
        Activation::Silu => v / (1.0 + (-v).exp()),
    }
}

/// Where an element of a four-dimensional tensor lies.
#[derive(Clone, Copy)]
struct Strides([usize; 4]);

impl Strides {
    /// Of a tensor n c h w; the outermost size does not matter.
    fn new(layout: Layout, [c, h, w]: [usize; 3]) -> Self {
        Strides(match layout {
            Layout::Nchw => [c * h * w, h * w, w, 1],
            Layout::Nhwc => [c * h * w, 1, w * c, c],
        })
    }

    fn index(self, at: [usize; 4]) -> usize {
        at.iter().zip(self.0).map(|(i, stride)| i * stride).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(problem: &str, x: &[f32], w: &[f32]) -> Vec<f64> {
        let problem: Problem = problem.parse().unwrap();
        let tensors = Tensors {
            x: x.to_vec(),
            w: w.to_vec(),
            ..Tensors::default()
        };
        let all = Reference::new(&problem, &tensors)
            .unwrap()
            .outputs(0..problem.y_len());
        all.iter().map(|e| e.value).collect()
    }

    /// Small enough to do by hand.
    #[test]
    fn by_hand() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        // The filter is not flipped, and rows are not columns.
        assert_eq!(
            outputs("mb1ic1ih2iw3oc1kh1kw2", &x, &[10.0, 1.0]),
            [12.0, 23.0, 45.0, 56.0]
        );
        assert_eq!(
            outputs("mb1ic1ih2iw3oc1kh2kw1", &x, &[10.0, 1.0]),
            [14.0, 25.0, 36.0]
        );
        // Channels are outermost in one layout and innermost in the other.
        assert_eq!(
            outputs("mb1ic2ih1iw3oc1kh1", &x, &[10.0, 1.0]),
            [14.0, 25.0, 36.0]
        );
        assert_eq!(
            outputs("mb1ic2ih1iw3oc1kh1+nhwc", &x, &[10.0, 1.0]),
            [12.0, 34.0, 56.0]
        );
        // Each group sees its own channels.
        assert_eq!(
            outputs("g2mb1ic2ih1iw3oc2kh1", &x, &[10.0, 1.0]),
            [10.0, 20.0, 30.0, 4.0, 5.0, 6.0]
        );
        // Padding, stride and dilation.
        assert_eq!(
            outputs("mb1ic1ih1iw6oc1kh1kw2oh1ow3sh1sw3ph0pw1", &x, &[10.0, 1.0]),
            [1.0, 34.0, 60.0]
        );
        assert_eq!(
            outputs("mb1ic1ih1iw6oc1kh1kw2dh0dw3", &x, &[10.0, 1.0]),
            [15.0, 26.0]
        );
        // A maximum whose last window is clipped.
        assert_eq!(
            outputs("mb1ic1ih2iw3oc1kh1+pool=2ceil", &x, &[1.0]),
            [5.0, 6.0]
        );
        assert_eq!(
            outputs("mb1ic1ih2iw3oc1kh1+scale=-1+relu6", &x, &[-2.0])[1..4],
            [4.0, 6.0, 6.0]
        );
    }

    #[test]
    fn operands_are_rounded_as_the_math_says() {
        let fine = 1.0 + 2f32.powi(-12);
        assert_eq!(
            outputs("mb1ic1ih1oc1kh1", &[fine], &[1.0]),
            [f64::from(fine)]
        );
        assert_eq!(
            outputs("mb1ic1ih1oc1kh1+math=tf32", &[fine], &[1.0]),
            [f64::from(fine)]
        );
        assert_eq!(outputs("mb1ic1ih1oc1kh1+math=f16", &[fine], &[1.0]), [1.0]);
    }
}
