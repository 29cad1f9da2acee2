//! `cpu_gemm`: unroll a block of the input, multiply it with the filter, finish the tile of sums and
//! store it, all while they are in cache.
//!
//! Threads share nothing but the filter: each takes the next tile and has its own slice of the
//! workspace, and the `gemm` crate multiplies on that thread alone. Where the input already is the
//! matrix (1x1, stride 1, no padding, nothing to round) it is not unrolled, and where the matrix
//! would have one column (depthwise) it is not made. Where `gemm` packs an operand, it does so in
//! memory of its own, which is no part of the workspace.

use std::{
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use gemm::Parallelism;
use rayon::prelude::*;

use super::{
    Strides, Tensors, depthwise, finish,
    finish::Shared,
    info,
    number::{Rounding, Stored},
    tile::{CACHED, Tile, Tiling},
    unroll, with_storage,
};
use crate::{
    Device, Layout, Math, Problem, Result, Storage,
    device::host_buffer,
    variant::{Args, Bytes, Info, Plan, Prepared, Query, Variant},
};

/// Output channels of a tile: enough to make unrolling cheap beside multiplying.
const CHANNELS: usize = 128;
/// Slices start on cache lines of their own.
const ALIGN: usize = 128 / size_of::<f32>();
/// Bytes that the `gemm` crate keeps for each thread: as many as a core's second cache has, so at most these.
const GEMM_BYTES: usize = 4 << 20;

pub(crate) struct Gemm(Info);

impl Gemm {
    pub(crate) fn new() -> Self {
        let idea =
            "unroll a block that fits the cache, multiply it with the filter, finish in place";
        Gemm(info("cpu_gemm", idea, "im2col + the gemm crate"))
    }
}

// SAFETY: what it prepares keeps to its workspace, and to slices of the problem's sizes.
unsafe impl Variant for Gemm {
    fn info(&self) -> &Info {
        &self.0
    }

    /// Measured rates of one thread, and what a launch costs.
    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let p = query.problem;
        if p.math() == Math::F16Acc {
            return Err("accumulates in f32 only".to_owned());
        }
        let threads = f64::from(query.limits.sm_count.max(1));
        let narrow = Method::of(p) == Method::Depthwise || p.k() / p.groups() < 8;
        let flops_per_us = if narrow { 5e3 } else { 40e3 };
        Ok(Plan {
            us: Some(2.0 + (p.flops() / flops_per_us + p.bytes() / 4e3) / threads),
            ..Plan::default()
        })
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Blocked::new(
            query.problem.clone(),
            query.limits.sm_count as usize,
        )))
    }
}

/// How the sums of a tile come about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Unroll,
    /// The input is the matrix.
    InPlace,
    /// No matrix.
    Depthwise,
}

impl Method {
    fn of(p: &Problem) -> Self {
        let pointwise = [p.r(), p.s()] == [1; 2]
            && p.stride() == [1; 2]
            && [p.p(), p.q()] == [p.h(), p.w()]
            && p.storage() == Storage::F32
            && Rounding::of(p) == Rounding::None;
        match () {
            () if depthwise::is_depthwise(p) => Method::Depthwise,
            () if pointwise => Method::InPlace,
            () => Method::Unroll,
        }
    }
}

struct Blocked {
    problem: Problem,
    method: Method,
    rounding: Rounding,
    tiling: Tiling,
    /// Products that are unrolled at a time.
    depth: usize,
    /// Elements of the workspace for the filter: rounded, or in another order; 0 where it is used
    /// as it lies.
    filter: usize,
    /// The parts of a thread's slice.
    slice: Slice,
    threads: usize,
}

/// Elements of a thread's slice of the workspace.
struct Slice {
    sums: usize,
    panel: usize,
    line: usize,
}

impl Slice {
    fn len(&self) -> usize {
        (self.sums + self.panel + self.line).next_multiple_of(ALIGN)
    }
}

impl Blocked {
    fn new(problem: Problem, threads: usize) -> Self {
        let p = &problem;
        let method = Method::of(p);
        let rounding = Rounding::of(p);
        let sets = if method == Method::Depthwise {
            1
        } else {
            p.groups()
        };
        let tiling = Tiling::new(p, sets, CHANNELS);
        let (pixels, channels) = (tiling.pixels(), tiling.channels());
        // As deep as fits the cache, in steps of nearly the same depth.
        let deepest = (CACHED / pixels).max(1);
        let depth = p.reduction().div_ceil(p.reduction().div_ceil(deepest));
        let as_it_lies = p.storage() == Storage::F32 && rounding == Rounding::None;
        let reordered = method == Method::Depthwise && p.layout() == Layout::Nhwc;
        let filter = if as_it_lies && !reordered {
            0
        } else {
            p.w_len().next_multiple_of(ALIGN)
        };
        let slice = Slice {
            sums: pixels * channels,
            panel: match method {
                Method::Unroll => pixels * depth,
                Method::InPlace => 0,
                Method::Depthwise => depthwise::scratch(p, channels),
            },
            line: pixels.max(channels),
        };
        Blocked {
            method,
            rounding,
            tiling,
            depth,
            filter,
            slice,
            threads,
            problem,
        }
    }

    fn run<T: Stored>(
        &self,
        Tensors {
            x,
            w,
            y,
            bias,
            residual,
            scratch,
        }: Tensors<T>,
    ) -> Result<()> {
        let (filter, slices) = scratch.split_at_mut(self.filter);
        let slots = (slices.len() / self.slice.len()).min(rayon::current_num_threads());
        if self.method != Method::Depthwise {
            self.has_memory(slots)?;
        }
        let w = match T::as_f32(w) {
            Some(w) if self.filter == 0 => w,
            _ => {
                self.prepare(w, filter);
                filter
            }
        };
        let y = Shared::new(y);
        let next = AtomicUsize::new(0);
        slices
            .par_chunks_exact_mut(self.slice.len())
            .take(slots)
            .with_max_len(1)
            .for_each(|slice| {
                let (sums, slice) = slice.split_at_mut(self.slice.sums);
                let (panel, line) = slice.split_at_mut(self.slice.panel);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= self.tiling.count {
                        break;
                    }
                    let tile = self.tiling.tile(index);
                    self.sums(x, w, &tile, panel, sums);
                    finish::epilogue(&self.problem, &tile, sums, bias, residual);
                    finish::store(&self.problem, &tile, sums, line, &y);
                }
            });
        Ok(())
    }

    /// An error where there is no memory for what the `gemm` crate packs, which would end the process: on
    /// each thread its cache's worth, and parts of a product's operands, for which a slice's worth is
    /// added. It is given back before the products begin, so who else allocates meanwhile may still take it.
    fn has_memory(&self, slots: usize) -> Result<()> {
        let asked = slots * (GEMM_BYTES + self.slice.len() * size_of::<f32>());
        let found = Vec::<u8>::new().try_reserve_exact(asked);
        found.map_err(|_| host_buffer::out_of_memory(asked))
    }

    /// The filter in f32, rounded; depthwise in NHWC in the order r s k.
    fn prepare<T: Stored>(&self, w: &[T], filter: &mut [f32]) {
        let p = &self.problem;
        let filter = &mut filter[..w.len()];
        if self.method == Method::Depthwise && p.layout() == Layout::Nhwc {
            let taps = p.r() * p.s();
            for (i, to) in filter.iter_mut().enumerate() {
                *to = w[i % p.k() * taps + i / p.k()].widen();
            }
            self.rounding.apply_all(filter);
        } else {
            let run = 4096;
            filter
                .par_chunks_mut(run)
                .zip(w.par_chunks(run))
                .for_each(|(to, from)| {
                    T::widen_all(from, to);
                    self.rounding.apply_all(to);
                });
        }
    }

    fn sums<T: Stored>(
        &self,
        x: &[T],
        w: &[f32],
        tile: &Tile,
        panel: &mut [f32],
        sums: &mut [f32],
    ) {
        let p = &self.problem;
        match (self.method, T::as_f32(x)) {
            (Method::Depthwise, _) => {
                depthwise::sums(p, x, w, tile, self.rounding, panel, sums);
            }
            (Method::InPlace, Some(x)) => {
                let channel = unroll::first_channel(p, tile);
                let strides = Strides::of(p.layout(), [p.c(), p.h(), p.w()]);
                // A tile of part of the columns is multiplied row by row.
                let whole = tile.q.len() == p.w();
                let (runs, run) = if whole {
                    (1, tile.pixels())
                } else {
                    (tile.p.len(), tile.q.len())
                };
                for index in 0..runs {
                    let start = strides.at(tile.n, channel, tile.p.start + index, tile.q.start);
                    let a = Matrix {
                        data: &x[start..],
                        row: strides.w,
                        column: strides.c,
                    };
                    let first = index * run;
                    self.multiply(tile, first..first + run, a, w, 0..p.reduction(), sums);
                }
            }
            _ => {
                for start in (0..p.reduction()).step_by(self.depth) {
                    let depth = start..(start + self.depth).min(p.reduction());
                    unroll::unroll(p, x, tile, depth.clone(), self.rounding, panel);
                    let (a, pixels) = match p.layout() {
                        // The pixels that fill up the pitch are multiplied too, and never read.
                        Layout::Nchw => (
                            Matrix {
                                data: panel,
                                row: 1,
                                column: tile.pitch,
                            },
                            tile.pitch,
                        ),
                        Layout::Nhwc => (
                            Matrix {
                                data: panel,
                                row: depth.len(),
                                column: 1,
                            },
                            tile.pixels(),
                        ),
                    };
                    self.multiply(tile, 0..pixels, a, w, depth, sums);
                }
            }
        }
    }

    /// Sets the sums of `pixels` of the tile to `a` times the filter, or adds that to them where
    /// the depth is not the first.
    fn multiply(
        &self,
        tile: &Tile,
        pixels: Range<usize>,
        a: Matrix,
        w: &[f32],
        depth: Range<usize>,
        sums: &mut [f32],
    ) {
        let reduction = self.problem.reduction();
        let (row, column) = match self.problem.layout() {
            Layout::Nchw => (1, tile.pitch),
            Layout::Nhwc => (tile.pitch, 1),
        };
        let start = tile.k.start * reduction + depth.start;
        let filter = Matrix {
            data: &w[start..],
            row: 1,
            column: reduction,
        };
        let sums = &mut sums[pixels.start * row..];
        let size = [pixels.len(), tile.k.len(), depth.len()];
        multiply(size, sums, [row, column], a, filter, depth.start > 0);
    }
}

// SAFETY: as above.
unsafe impl Prepared for Blocked {
    fn workspace(&self) -> Bytes {
        let bytes = |threads: usize| (self.filter + threads * self.slice.len()) * size_of::<f32>();
        Bytes {
            least: bytes(1),
            preferred: bytes(self.threads.clamp(1, self.tiling.count.max(1))),
        }
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        with_storage!(self.problem, T => {
            // SAFETY: as this function's.
            let tensors = unsafe { Tensors::<T>::new(&self.problem, &args) };
            self.run(tensors)
        })
    }
}

/// A matrix and the distances between its rows and columns.
struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

/// `c = a b`, or `c += a b`, for `a` of m x k and `b` of k x n; on this thread.
fn multiply(
    [m, n, k]: [usize; 3],
    c: &mut [f32],
    [row, column]: [usize; 2],
    a: Matrix,
    b: Matrix,
    add: bool,
) {
    let last = |rows: usize, row: usize, columns: usize, column: usize| {
        (rows - 1) * row + (columns - 1) * column
    };
    assert!(m > 0 && n > 0 && k > 0);
    assert!(last(m, row, n, column) < c.len());
    assert!(last(m, a.row, k, a.column) < a.data.len());
    assert!(last(k, b.row, n, b.column) < b.data.len());
    // SAFETY: the last elements lie inside of the slices, and so do all others.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            c.as_mut_ptr(),
            column as isize,
            row as isize,
            add,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let gemm = Blocked::new("mb1ic2ih9oc2kh3".parse().unwrap(), 1);
        gemm.has_memory(1).unwrap();
        // As much as an allocator may be asked for, which no address space has.
        let each = GEMM_BYTES + gemm.slice.len() * size_of::<f32>();
        let slots = isize::MAX as usize / each;
        let error = gemm.has_memory(slots).unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { asked, .. } if asked == slots * each),
            "{error}"
        );
    }
}
