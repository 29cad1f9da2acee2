//! The sums of a tile where a matrix would have one column: each output channel reads channels of
//! its own, so there is nothing to gain from unrolling, and the taps are added up one by one.

use super::{
    Strides, inside,
    number::{Rounding, Stored},
    tile::Tile,
    unroll::Overlap,
};
use crate::{Layout, Problem};

/// Whether this is such a problem.
pub(super) fn is_depthwise(p: &Problem) -> bool {
    match p.layout() {
        Layout::Nchw => p.groups() == p.k(),
        Layout::Nhwc => p.groups() == p.k() && p.groups() == p.c(),
    }
}

/// Elements of scratch for one line of the input.
pub(super) fn scratch(p: &Problem, channels: usize) -> usize {
    match p.layout() {
        Layout::Nchw => p.w() + p.pad().left + p.pad().right,
        Layout::Nhwc => channels,
    }
}

/// Writes the sums of the tile. `w` is the filter in the problem's own order for NCHW, and r s k
/// for NHWC.
pub(super) fn sums<T: Stored>(
    p: &Problem,
    x: &[T],
    w: &[f32],
    tile: &Tile,
    rounding: Rounding,
    scratch: &mut [f32],
    sums: &mut [f32],
) {
    let strides = Strides::of(p.layout(), [p.c(), p.h(), p.w()]);
    let channels = p.c() / p.groups();
    for line in tile.lines(p.layout()) {
        let [k, i, j] = line.at;
        let sums = &mut sums[line.start..][..line.len];
        sums.fill(0.0);
        let top = i * p.stride()[0];
        let left = j * p.stride()[1];
        for r in inside(p.r(), p.dilation()[0], top, p.pad().top, p.h()) {
            let h = top + r * p.dilation()[0] - p.pad().top;
            match p.layout() {
                Layout::Nchw => {
                    // All that the row's taps read, zeros around it included.
                    let span = (line.len - 1) * p.stride()[1] + (p.s() - 1) * p.dilation()[1] + 1;
                    let row = &mut scratch[..span];
                    let overlap = Overlap::new(span, 1, left, p.pad().left, p.w());
                    for c in 0..channels {
                        let from = &x[strides.at(tile.n, k * channels + c, h, 0)..][..p.w()];
                        overlap.copy(from, rounding, row);
                        for s in 0..p.s() {
                            let w = w[((k * channels + c) * p.r() + r) * p.s() + s];
                            let row = &row[s * p.dilation()[1]..];
                            add_row(sums, row, p.stride()[1], w);
                        }
                    }
                }
                Layout::Nhwc => {
                    for s in inside(p.s(), p.dilation()[1], left, p.pad().left, p.w()) {
                        let column = left + s * p.dilation()[1] - p.pad().left;
                        let from = &x[strides.at(tile.n, k, h, column)..][..line.len];
                        let w = &w[(r * p.s() + s) * p.k() + k..];
                        add_channels(sums, from, w, rounding, scratch);
                    }
                }
            }
        }
    }
}

/// One tap of a row of pixels.
fn add_row(sums: &mut [f32], row: &[f32], stride: usize, w: f32) {
    if stride == 1 {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x * w);
    } else {
        sums.iter_mut()
            .zip(row.iter().step_by(stride))
            .for_each(|(sum, x)| *sum += x * w);
    }
}

/// One tap of the channels of a pixel.
fn add_channels<T: Stored>(
    sums: &mut [f32],
    from: &[T],
    w: &[f32],
    rounding: Rounding,
    scratch: &mut [f32],
) {
    let mut add = |x: &[f32]| {
        sums.iter_mut()
            .zip(x)
            .zip(w)
            .for_each(|((sum, x), w)| *sum += x * w);
    };
    match T::as_f32(from) {
        Some(from) if rounding == Rounding::None => add(from),
        _ => {
            let x = &mut scratch[..from.len()];
            T::widen_all(from, x);
            rounding.apply_all(x);
            add(x);
        }
    }
}
