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
    let [rows, columns] = p.out();
    let sums = Strides::of(p.layout(), [p.k(), p.p(), p.q()]);
    let value = |n: usize, k: usize, [i, j]: [usize; 2]| {
        let sum = sum(p, x, w, n, k, [i, j], &step);
        let bias = bias.map_or(0.0, |b| b[k]);
        let residual = residual.map_or(0.0, |r| r[sums.at(n, k, i, j)].widen());
        epilogue::value(p.epilogue(), sum, bias, residual)
    };
    let output = |n: usize, k: usize, at: [usize; 2]| {
        let Some(pool) = &p.epilogue().pool else {
            return value(n, k, at);
        };
        let mut max = f32::NEG_INFINITY;
        for i in epilogue::window(pool, 0, at[0], p.p()) {
            for j in epilogue::window(pool, 1, at[1], p.q()) {
                max = epilogue::max(max, value(n, k, [i, j]));
            }
        }
        max
    };
    // A row is what lies contiguous in y: pixels in NCHW, channels in NHWC.
    match p.layout() {
        Layout::Nchw => for_rows(y, columns, |index, row| {
            let (plane, i) = (index / rows, index % rows);
            for (j, y) in row.iter_mut().enumerate() {
                *y = T::narrow(output(plane / p.k(), plane % p.k(), [i, j]));
            }
        }),
        Layout::Nhwc => for_rows(y, p.k(), |index, row| {
            let (n, i, j) = (
                index / columns / rows,
                index / columns % rows,
                index % columns,
            );
            for (k, y) in row.iter_mut().enumerate() {
                *y = T::narrow(output(n, k, [i, j]));
            }
        }),
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

fn sum<T: Stored>(
    p: &Problem,
    x: &[T],
    w: &[T],
    n: usize,
    k: usize,
    [i, j]: [usize; 2],
    step: impl Fn(f32, f32, f32) -> f32,
) -> f32 {
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
                let x = x[inputs.at(n, first + c, h, column)].widen();
                let w = w[weights.at(k, c, r, s)].widen();
                sum = step(sum, x, w);
            }
        }
    }
    sum
}
