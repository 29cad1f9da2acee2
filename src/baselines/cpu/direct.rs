//! `cpu_direct`: the nested loops, one sum after the other.
//!
//! Nothing is kept from one output to the next and nothing is re-arranged, so it serves every
//! problem without a workspace; with pooling, a window's sums are made where the window is stored.
//! With the feature `cpu` rayon's threads take rows of the output.

#[cfg(feature = "cpu")]
use rayon::prelude::*;

use super::{
    Strides, Tensors, epilogue, info, inside,
    number::{Rounding, Stored, f16_fma, round_bf16, round_f16, tf32},
    with_storage,
};
use crate::{
    Device, Layout, Math, Problem, Result,
    variant::{Args, Info, Plan, Prepared, Query, Variant},
};

/// Products and sums per microsecond of one thread, measured.
const STEPS_PER_US: f64 = 600.0;

pub(crate) struct Direct(Info);

impl Direct {
    pub(crate) fn new() -> Self {
        Direct(info(
            "cpu_direct",
            "the nested loops, one sum after the other",
            "report E",
        ))
    }
}

// SAFETY: what it prepares uses no workspace, and slices of the problem's sizes.
unsafe impl Variant for Direct {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let threads = f64::from(query.limits.sm_count.max(1));
        Ok(Plan {
            us: Some(1.0 + query.problem.flops() / 2.0 / STEPS_PER_US / threads),
            ..Plan::default()
        })
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Loops(query.problem.clone())))
    }
}

struct Loops(Problem);

// SAFETY: as above.
unsafe impl Prepared for Loops {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        with_storage!(self.0, T => {
            // SAFETY: as this function's.
            let tensors = unsafe { Tensors::<T>::new(&self.0, &args) };
            run(&self.0, tensors);
        });
        Ok(())
    }
}

/// The loops with the math's step: what a product adds to a sum.
fn run<T: Stored>(p: &Problem, tensors: Tensors<T>) {
    match (Rounding::of(p), p.math()) {
        (Rounding::None, Math::F16Acc) => outputs(p, tensors, f16_fma),
        (_, Math::F16Acc) => {
            outputs(p, tensors, |sum, x, w| {
                f16_fma(sum, round_f16(x), round_f16(w))
            });
        }
        (Rounding::None, _) => outputs(p, tensors, |sum, x, w| sum + x * w),
        (Rounding::Tf32, _) => outputs(p, tensors, |sum, x, w| sum + tf32(x) * tf32(w)),
        (Rounding::F16, _) => outputs(p, tensors, |sum, x, w| sum + round_f16(x) * round_f16(w)),
        (Rounding::Bf16, _) => outputs(p, tensors, |sum, x, w| sum + round_bf16(x) * round_bf16(w)),
    }
}

fn outputs<T: Stored>(
    p: &Problem,
    Tensors {
        x,
        w,
        y,
        bias,
        residual,
        ..
    }: Tensors<T>,
    step: impl Fn(f32, f32, f32) -> f32 + Sync,
) {
    let reads = Reads {
        x: |at: usize| x[at].widen(),
        w: |at: usize| w[at].widen(),
        bias: |at: usize| bias.map_or(0.0, |bias| bias[at]),
        residual: |at: usize| residual.map_or(0.0, |residual| residual[at].widen()),
    };
    // A row is what lies contiguous in y: pixels in NCHW, channels in NHWC.
    let length = match p.layout() {
        Layout::Nchw => p.out()[1],
        Layout::Nhwc => p.k(),
    };
    for_rows(y, length, |index, row| {
        for (i, y) in row.iter_mut().enumerate() {
            let at = place(p, index * length + i);
            *y = T::narrow(reads.output(p, at, &step));
        }
    });
}

/// The image, the channel and the pixel of an output.
type Place = (usize, usize, [usize; 2]);

/// What stands at an index of the output.
fn place(p: &Problem, index: usize) -> Place {
    let ([rows, columns], channels) = (p.out(), p.k());
    match p.layout() {
        Layout::Nchw => {
            let (plane, i, j) = (
                index / columns / rows,
                index / columns % rows,
                index % columns,
            );
            (plane / channels, plane % channels, [i, j])
        }
        Layout::Nhwc => {
            let (pixel, k) = (index / channels, index % channels);
            let (n, i, j) = (
                pixel / columns / rows,
                pixel / columns % rows,
                pixel % columns,
            );
            (n, k, [i, j])
        }
    }
}

/// The elements of the operands by their indices; 0 for those of a bias or residual that is none.
pub(crate) struct Reads<X, W, B, R> {
    pub(crate) x: X,
    pub(crate) w: W,
    pub(crate) bias: B,
    pub(crate) residual: R,
}

impl<X, W, B, R> Reads<X, W, B, R>
where
    X: Fn(usize) -> f32,
    W: Fn(usize) -> f32,
    B: Fn(usize) -> f32,
    R: Fn(usize) -> f32,
{
    /// The output at an index, in f32 throughout, before it is stored.
    pub(crate) fn output_at(&self, p: &Problem, index: usize) -> f32 {
        self.output(p, place(p, index), &|sum, x, w| sum + x * w)
    }

    fn output(&self, p: &Problem, (n, k, at): Place, step: &impl Fn(f32, f32, f32) -> f32) -> f32 {
        let Some(pool) = &p.epilogue().pool else {
            return self.value(p, (n, k, at), step);
        };
        let mut max = f32::NEG_INFINITY;
        for i in epilogue::window(pool, 0, at[0], p.p()) {
            for j in epilogue::window(pool, 1, at[1], p.q()) {
                max = epilogue::max(max, self.value(p, (n, k, [i, j]), step));
            }
        }
        max
    }

    /// What pooling takes the largest of.
    fn value(&self, p: &Problem, at: Place, step: &impl Fn(f32, f32, f32) -> f32) -> f32 {
        let (n, k, [i, j]) = at;
        let sums = Strides::of(p.layout(), [p.k(), p.p(), p.q()]);
        let (bias, residual) = ((self.bias)(k), (self.residual)(sums.at(n, k, i, j)));
        epilogue::value(p.epilogue(), self.sum(p, at, step), bias, residual)
    }

    fn sum(&self, p: &Problem, (n, k, [i, j]): Place, step: &impl Fn(f32, f32, f32) -> f32) -> f32 {
        let channels = p.c() / p.groups();
        let first = k / (p.k() / p.groups()) * channels;
        let inputs = Strides::of(p.layout(), [p.c(), p.h(), p.w()]);
        let weights = Strides::of(p.layout(), [channels, p.r(), p.s()]);
        let (top, left) = (i * p.stride()[0], j * p.stride()[1]);
        let taps_down = inside(p.r(), p.dilation()[0], top, p.pad().top, p.h());
        let taps_across = inside(p.s(), p.dilation()[1], left, p.pad().left, p.w());
        let mut sum = 0.0;
        for c in 0..channels {
            for r in taps_down.clone() {
                let h = top + r * p.dilation()[0] - p.pad().top;
                for s in taps_across.clone() {
                    let column = left + s * p.dilation()[1] - p.pad().left;
                    let x = (self.x)(inputs.at(n, first + c, h, column));
                    let w = (self.w)(weights.at(k, c, r, s));
                    sum = step(sum, x, w);
                }
            }
        }
        sum
    }
}

/// Calls `body` with every row of `length` elements and its number; on all threads, where the
/// build has them (feature `cpu`).
fn for_rows<T: Send>(y: &mut [T], length: usize, body: impl Fn(usize, &mut [T]) + Sync + Send) {
    #[cfg(feature = "cpu")]
    let rows = y.par_chunks_mut(length).enumerate();
    #[cfg(not(feature = "cpu"))]
    let rows = y.chunks_mut(length).enumerate();
    rows.for_each(|(index, row)| body(index, row));
}
