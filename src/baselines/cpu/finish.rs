//! Epilogue and pooling of a tile, and storing it.

use std::marker::PhantomData;

use super::{
    Strides,
    epilogue::{activate, max, window},
    number::Stored,
    tile::{Line, Tile},
};
use crate::{Activation, Epilogue, Layout, Problem};

/// Applies the epilogue, apart from pooling, to the sums of a tile where they are.
pub(super) fn epilogue<T: Stored>(
    p: &Problem,
    tile: &Tile,
    sums: &mut [f32],
    bias: Option<&[f32]>,
    residual: Option<&[T]>,
) {
    let e = p.epilogue();
    if (Epilogue { pool: None, ..*e }).is_identity() {
        return;
    }
    let strides = Strides::of(p.layout(), [p.k(), p.p(), p.q()]);
    for Line {
        start,
        len,
        at: [k, i, j],
    } in tile.lines(p.layout())
    {
        let line = &mut sums[start..][..len];
        line.iter_mut().for_each(|v| *v *= e.scale);
        match (bias, p.layout()) {
            (None, _) => {}
            (Some(bias), Layout::Nchw) => line.iter_mut().for_each(|v| *v += bias[k]),
            (Some(bias), Layout::Nhwc) => {
                line.iter_mut().zip(&bias[k..]).for_each(|(v, b)| *v += b);
            }
        }
        if let Some(residual) = residual {
            let residual = &residual[strides.at(tile.n, k, i, j)..];
            line.iter_mut()
                .zip(residual)
                .for_each(|(v, r)| *v += r.widen());
        }
        match e.activation {
            Activation::None => {}
            // A loop of its own, which becomes vector code.
            Activation::Relu => line
                .iter_mut()
                .for_each(|v| *v = activate(Activation::Relu, *v)),
            other => line.iter_mut().for_each(|v| *v = activate(other, *v)),
        }
    }
}

/// Stores a tile whose epilogue is done, pooled if the problem asks for it. `line` is scratch for
/// one of its lines.
pub(super) fn store<T: Stored>(
    p: &Problem,
    tile: &Tile,
    sums: &[f32],
    line: &mut [f32],
    y: &Shared<T>,
) {
    let [rows, columns] = p.out();
    let strides = Strides::of(p.layout(), [p.k(), rows, columns]);
    let put = |[k, i, j]: [usize; 3], values: &[f32]| {
        // SAFETY: no output belongs to two tiles.
        let y = unsafe { y.slice(strides.at(tile.n, k, i, j), values.len()) };
        T::narrow_all(values, y);
    };
    let Some(pool) = &p.epilogue().pool else {
        for Line { start, len, at } in tile.lines(p.layout()) {
            put(at, &sums[start..][..len]);
        }
        return;
    };
    let raise = |line: &mut [f32], sums: &[f32]| {
        line.iter_mut()
            .zip(sums)
            .for_each(|(m, v)| *m = max(*m, *v));
    };
    let across = tile.q.len();
    for i in tile.out[0].clone() {
        let window_rows = window(pool, 0, i, tile.p.end).map(|row| row - tile.p.start);
        let window_columns = |j| {
            let columns = window(pool, 1, j, tile.q.end);
            columns.start - tile.q.start..columns.end - tile.q.start
        };
        match p.layout() {
            // First down, for all columns at once; then across, where a result may take the place
            // of what only earlier windows read.
            Layout::Nchw => {
                let line = &mut line[..across];
                for k in tile.k.clone() {
                    line.fill(f32::NEG_INFINITY);
                    let plane = &sums[(k - tile.k.start) * tile.pitch..];
                    for row in window_rows.clone() {
                        raise(line, &plane[row * across..][..across]);
                    }
                    for (to, j) in tile.out[1].clone().enumerate() {
                        line[to] = line[window_columns(j)]
                            .iter()
                            .copied()
                            .fold(f32::NEG_INFINITY, max);
                    }
                    put([k, i, tile.out[1].start], &line[..tile.out[1].len()]);
                }
            }
            Layout::Nhwc => {
                let line = &mut line[..tile.k.len()];
                for j in tile.out[1].clone() {
                    line.fill(f32::NEG_INFINITY);
                    for row in window_rows.clone() {
                        for column in window_columns(j) {
                            raise(line, &sums[(row * across + column) * tile.pitch..]);
                        }
                    }
                    put([tile.k.start, i, j], line);
                }
            }
        }
    }
}

/// An output that several threads write to.
pub(super) struct Shared<'a, T> {
    start: *mut T,
    len: usize,
    borrowed: PhantomData<&'a mut [T]>,
}

// SAFETY: `slice` asks its callers to keep threads apart.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Shared {
            start: slice.as_mut_ptr(),
            len: slice.len(),
            borrowed: PhantomData,
        }
    }

    /// # Safety
    /// No other slice that is in use holds any of these elements.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the slices apart")]
    unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start + len <= self.len);
        // SAFETY: inside of the borrowed slice, and in no other use.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}
