//! What a tile reads of the input, unrolled into a matrix (im2col): one pixel of the output against
//! one product of its sum, in the order of the filter's weights, so that the filter is used as it
//! lies. Operands are rounded here.
//!
//! Both layouts unroll into what they can copy whole: NCHW into one line per product, its pixels
//! side by side; NHWC into one line per pixel, its products side by side.

use std::ops::Range;

use super::{
    Strides, inside,
    number::{Rounding, Stored},
    tile::Tile,
};
use crate::{Layout, Problem};

/// Writes the products `depth` of every pixel of the tile to `panel`.
pub(super) fn unroll<T: Stored>(
    p: &Problem,
    x: &[T],
    tile: &Tile,
    depth: Range<usize>,
    rounding: Rounding,
    panel: &mut [f32],
) {
    match p.layout() {
        Layout::Nchw => products(p, x, tile, depth, rounding, panel),
        Layout::Nhwc => pixels(p, x, tile, depth, rounding, panel),
    }
}

/// First input channel that the tile reads.
pub(super) fn first_channel(p: &Problem, tile: &Tile) -> usize {
    tile.k.start / (p.k() / p.groups()) * (p.c() / p.groups())
}

/// A line of the matrix as it lies over a padded line of the input: where it reads elements, and
/// where zeros.
pub(super) struct Overlap {
    /// The part of the line that reads elements.
    inside: Range<usize>,
    /// The element that the first of these reads.
    first: usize,
    stride: usize,
}

impl Overlap {
    /// Of `count` elements from `start` on, padding counted, with `pad` zeros before the `size`
    /// elements and zeros after them.
    pub(super) fn new(count: usize, stride: usize, start: usize, pad: usize, size: usize) -> Self {
        let inside = inside(count, stride, start, pad, size);
        // Of no use, and perhaps negative, where nothing lies inside.
        let first = (start + inside.start * stride).saturating_sub(pad);
        Overlap {
            inside,
            first,
            stride,
        }
    }

    /// Copies the line, widened and rounded.
    pub(super) fn copy<T: Stored>(&self, from: &[T], rounding: Rounding, to: &mut [f32]) {
        let Range { start, end } = self.inside.clone();
        to[..start].fill(0.0);
        to[end..].fill(0.0);
        if start == end {
            return;
        }
        let from = &from[self.first..];
        let to = &mut to[start..end];
        if self.stride == 1 {
            T::widen_all(&from[..to.len()], to);
        } else {
            let from = from.iter().step_by(self.stride);
            to.iter_mut()
                .zip(from)
                .for_each(|(to, from)| *to = from.widen());
        }
        rounding.apply_all(to);
    }
}

/// One line per product (c r s), `tile.pitch` apart.
fn products<T: Stored>(
    p: &Problem,
    x: &[T],
    tile: &Tile,
    depth: Range<usize>,
    rounding: Rounding,
    panel: &mut [f32],
) {
    let strides = Strides::of(p.layout(), [p.c(), p.h(), p.w()]);
    let first = first_channel(p, tile);
    let [rows, columns] = [tile.p.len(), tile.q.len()];
    for (product, line) in depth.zip(panel.chunks_exact_mut(tile.pitch)) {
        let (c, r, s) = (
            product / p.s() / p.r(),
            product / p.s() % p.r(),
            product % p.s(),
        );
        let top = tile.p.start * p.stride()[0] + r * p.dilation()[0];
        let left = tile.q.start * p.stride()[1] + s * p.dilation()[1];
        let down = inside(rows, p.stride()[0], top, p.pad().top, p.h());
        let across = Overlap::new(columns, p.stride()[1], left, p.pad().left, p.w());
        let plane = &x[strides.at(tile.n, first + c, 0, 0)..][..p.h() * p.w()];
        for (row, to) in line.chunks_exact_mut(columns).take(rows).enumerate() {
            if down.contains(&row) {
                let h = top + row * p.stride()[0] - p.pad().top;
                across.copy(&plane[h * p.w()..][..p.w()], rounding, to);
            } else {
                to.fill(0.0);
            }
        }
    }
}

/// One line per pixel, as long as `depth`, of products (r s c).
fn pixels<T: Stored>(
    p: &Problem,
    x: &[T],
    tile: &Tile,
    depth: Range<usize>,
    rounding: Rounding,
    panel: &mut [f32],
) {
    let channels = p.c() / p.groups();
    let first = first_channel(p, tile);
    // Taps that lie side by side in the input as they do in the filter are copied together.
    let together = if p.dilation()[1] == 1 && p.groups() == 1 {
        p.s()
    } else {
        1
    };
    let run = together * channels;
    let runs = depth.start / run..depth.end.div_ceil(run);
    let first_tap = (runs.start * together / p.s(), runs.start * together % p.s());
    let row_len = p.w() * p.c();
    let image = &x[tile.n * p.h() * row_len..][..p.h() * row_len];
    let pixels = tile
        .p
        .clone()
        .flat_map(|i| tile.q.clone().map(move |j| [i, j]));
    for ([i, j], line) in pixels.zip(panel.chunks_exact_mut(depth.len())) {
        let (mut r, mut s) = first_tap;
        for index in runs.clone() {
            let (down, across) = (r * p.dilation()[0], s * p.dilation()[1]);
            s += together;
            if s == p.s() {
                (r, s) = (r + 1, 0);
            }
            // The part of this run that the depth asks for.
            let wanted = (index * run).max(depth.start)..((index + 1) * run).min(depth.end);
            let to = &mut line[wanted.start - depth.start..wanted.end - depth.start];
            let row = i * p.stride()[0] + down;
            if row < p.pad().top || row >= p.pad().top + p.h() {
                to.fill(0.0);
                continue;
            }
            // A row is one line of elements, its padding too. A run of one tap lies inside or
            // outside as a whole.
            let column = j * p.stride()[1] + across;
            let start = column * p.c() + first + (wanted.start - index * run);
            let overlap = Overlap::new(to.len(), 1, start, p.pad().left * p.c(), row_len);
            overlap.copy(
                &image[(row - p.pad().top) * row_len..][..row_len],
                rounding,
                to,
            );
        }
    }
}
