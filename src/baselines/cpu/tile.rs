//! The tiles that an output is split into: each is made, finished and stored by one thread while it
//! is in cache.
//!
//! Sizes depend on the problem alone, never on the number of threads: so do the order of every sum
//! and with it each bit of the result.

use std::ops::Range;

use crate::{Layout, Pool, Problem};

/// Sums of a tile, or unrolled elements, that a thread should have in cache at most: 256 KiB of f32.
pub(super) const CACHED: usize = 64 << 10;
/// Pixels of a tile: enough for the matrix product to pay, few enough for the panel to be deep.
const PIXELS: usize = 512;
/// A problem of fewer tiles than this is split finer, so that every core has work.
const FEW_TILES: usize = 32;
/// The matrix product takes pixels eight at a time, and copies them first where some are left.
const ROUND: usize = 8;

/// How an output is split.
#[derive(Debug)]
pub(super) struct Tiling {
    layout: Layout,
    pool: Pool,
    /// The convolution's own rows and columns.
    size: [usize; 2],
    sets: Split,
    channels: Split,
    rows: Split,
    columns: Split,
    /// Tiles in all.
    pub count: usize,
}

/// One tile.
#[derive(Debug)]
pub(super) struct Tile {
    pub n: usize,
    /// Output channels, over all groups.
    pub k: Range<usize>,
    /// Stored rows and columns.
    pub out: [Range<usize>; 2],
    /// Rows of the convolution under them.
    pub p: Range<usize>,
    /// Columns of the convolution under them.
    pub q: Range<usize>,
    /// Distance of the lines among the tile's sums: channels in NCHW, pixels in NHWC.
    pub pitch: usize,
}

/// What lies contiguous among the sums of a tile as well as in a tensor of the output's layout:
/// pixels of one row in NCHW, channels of one pixel in NHWC.
pub(super) struct Line {
    /// Where it starts among the sums.
    pub start: usize,
    pub len: usize,
    /// Channel, row and column of its first element.
    pub at: [usize; 3],
}

/// `0..len` in parts of nearly the same size.
#[derive(Clone, Copy, Debug)]
struct Split {
    len: usize,
    step: usize,
}

impl Split {
    fn new(len: usize, most: usize) -> Self {
        let parts = len.div_ceil(most.clamp(1, len));
        Split {
            len,
            step: len.div_ceil(parts),
        }
    }

    fn parts(self) -> usize {
        self.len.div_ceil(self.step)
    }

    fn part(self, index: usize) -> Range<usize> {
        index * self.step..((index + 1) * self.step).min(self.len)
    }
}

impl Tiling {
    /// Tiles of at most `most` channels. None has channels of two `sets`.
    pub fn new(problem: &Problem, sets: usize, most: usize) -> Self {
        let fine = Tiling::of(problem, sets, most, PIXELS / 2);
        if fine.count < FEW_TILES {
            fine
        } else {
            Tiling::of(problem, sets, most, PIXELS)
        }
    }

    fn of(p: &Problem, sets: usize, most: usize, pixels: usize) -> Self {
        let pool = p.epilogue().pool.unwrap_or(Pool {
            window: [1; 2],
            stride: [1; 2],
            ceil: false,
        });
        let size = [p.p(), p.q()];
        let split = |axis: usize, pixels: usize| {
            // Outputs whose windows span no more than that.
            let outputs = pixels.saturating_sub(pool.window[axis]) / pool.stride[axis] + 1;
            Split::new(p.out()[axis], outputs)
        };
        let columns = split(1, pixels);
        let across = span(&pool, 1, &columns.part(0), size[1]).len();
        let rows = split(0, pixels / across.min(pixels));
        let down = span(&pool, 0, &rows.part(0), size[0]).len();
        let channels = Split::new(p.k() / sets, most.min(CACHED / (down * across).min(CACHED)));
        let sets = Split::new(sets, 1);
        let count = p.n() * rows.parts() * columns.parts() * sets.parts() * channels.parts();
        Tiling {
            layout: p.layout(),
            pool,
            size,
            sets,
            channels,
            rows,
            columns,
            count,
        }
    }

    /// Tile number `index`; tiles of the same pixels follow each other.
    pub fn tile(&self, index: usize) -> Tile {
        let mut rest = index;
        let mut next = |split: &Split| {
            let part = rest % split.parts();
            rest /= split.parts();
            split.part(part)
        };
        let channels = next(&self.channels);
        let first = next(&self.sets).start * self.channels.len;
        let columns = next(&self.columns);
        let rows = next(&self.rows);
        let k = first + channels.start..first + channels.end;
        let p = span(&self.pool, 0, &rows, self.size[0]);
        let q = span(&self.pool, 1, &columns, self.size[1]);
        let pitch = match self.layout {
            Layout::Nchw => (p.len() * q.len()).next_multiple_of(ROUND),
            Layout::Nhwc => k.len(),
        };
        Tile {
            n: rest,
            k,
            out: [rows, columns],
            p,
            q,
            pitch,
        }
    }

    /// Most pixels of a tile, rounded up as its lines are.
    pub fn pixels(&self) -> usize {
        // A part may be clipped at the edge, but none is larger than what is not.
        let span = |axis: usize, split: &Split| {
            let whole = (split.step - 1) * self.pool.stride[axis] + self.pool.window[axis];
            whole.min(self.size[axis])
        };
        (span(0, &self.rows) * span(1, &self.columns)).next_multiple_of(ROUND)
    }

    /// Most channels of a tile.
    pub fn channels(&self) -> usize {
        self.channels.step
    }
}

/// The convolution's rows or columns under some stored ones.
fn span(pool: &Pool, axis: usize, out: &Range<usize>, size: usize) -> Range<usize> {
    let end = (out.end - 1) * pool.stride[axis] + pool.window[axis];
    out.start * pool.stride[axis]..end.min(size)
}

impl Tile {
    /// Pixels of the convolution.
    pub fn pixels(&self) -> usize {
        self.p.len() * self.q.len()
    }

    /// Its sums, line after line.
    pub fn lines(&self, layout: Layout) -> impl Iterator<Item = Line> {
        let (rows, columns) = (self.p.len(), self.q.len());
        let count = match layout {
            Layout::Nchw => self.k.len() * rows,
            Layout::Nhwc => rows * columns,
        };
        let [k, p, q] = [self.k.start, self.p.start, self.q.start];
        let (pitch, channels) = (self.pitch, self.k.len());
        (0..count).map(move |i| match layout {
            Layout::Nchw => Line {
                start: i / rows * pitch + i % rows * columns,
                len: columns,
                at: [k + i / rows, p + i % rows, q],
            },
            Layout::Nhwc => Line {
                start: i * pitch,
                len: channels,
                at: [k, p + i / columns, q + i % columns],
            },
        })
    }
}
