//! Which numbers describe a convolution, and within what limits.

use super::{Padding, Pool, Shape};
use crate::{Error, Result};

/// Largest value of one dimension: kernels may count a single dimension in 32 bits.
pub(super) const MAX_DIM: usize = i32::MAX as usize;
/// Most rows or columns from a filter's first tap to its last: kernels put what is outside of an image so far
/// before it that no tap reaches it.
const MAX_SPAN: usize = 1 << 30;
/// Most products of a sum: kernels count them in 32 bits, in steps that may end behind the last.
const MAX_SUM: usize = MAX_DIM - 0xffff;
/// Most channels, for the same reason: blocks walk them in steps of up to a grid.
const MAX_CHANNELS: usize = MAX_SUM;
/// Largest number of elements of one tensor.
const MAX_ELEMENTS: usize = 1 << 46;

fn invalid(why: String) -> Error {
    Error::InvalidProblem(why)
}

/// Output size along one axis of a padded image, or `None` where the filter does not fit.
fn out_size(padded: usize, k: usize, stride: usize, dilation: usize) -> Option<usize> {
    Some(padded.checked_sub(extent(k, dilation))? / stride + 1)
}

/// Pixels that a filter spans along one axis.
pub(super) fn extent(k: usize, dilation: usize) -> usize {
    (k - 1) * dilation + 1
}

/// What was checked: the shape, with its padding as far as it is read, and height and width of the convolution's
/// output and of what is stored.
pub(super) type Checked = (Shape, [usize; 2], [usize; 2]);

/// Checks the shape; see [`Problem::new`](super::Problem::new).
pub(super) fn checked(mut shape: Shape) -> Result<Checked> {
    sizes(&shape)?;
    padding(&shape)?;
    let conv_out = conv_out(&shape)?;
    weights(&shape)?;
    types(&shape)?;
    let out = match &shape.epilogue.pool {
        None => conv_out,
        Some(pool) => pool.out(conv_out)?,
    };
    shape.pad = read_padding(&shape, conv_out);
    elements(&shape, conv_out)?;
    Ok((shape, conv_out, out))
}

fn sizes(s: &Shape) -> Result<()> {
    for (name, value) in [
        ("input channels (ic)", s.c),
        ("input height (ih)", s.h),
        ("input width (iw)", s.w),
        ("output channels (oc)", s.k),
        ("filter height (kh)", s.r),
        ("filter width (kw)", s.s),
        ("vertical stride (sh)", s.stride[0]),
        ("horizontal stride (sw)", s.stride[1]),
        ("vertical dilation", s.dilation[0]),
        ("horizontal dilation", s.dilation[1]),
        ("groups (g)", s.groups),
    ] {
        if value == 0 {
            return Err(invalid(format!("{name} is 0; it must be at least 1")));
        }
        within(name, value, MAX_DIM)?;
    }
    within("input channels (ic)", s.c, MAX_CHANNELS)?;
    within("output channels (oc)", s.k, MAX_CHANNELS)
}

fn within(name: &str, value: usize, most: usize) -> Result<()> {
    match value <= most {
        true => Ok(()),
        false => Err(invalid(format!("{name} is {value}; the limit is {most}"))),
    }
}

fn padding(s: &Shape) -> Result<()> {
    let pad = s.pad;
    for (name, value) in [
        ("padding above", pad.top),
        ("padding to the left", pad.left),
        ("padding below", pad.bottom),
        ("padding to the right", pad.right),
    ] {
        within(name, value, MAX_DIM / 4)?;
    }
    if s.h + pad.top + pad.bottom > MAX_DIM || s.w + pad.left + pad.right > MAX_DIM {
        return Err(invalid(format!(
            "the padded image of {}x{} exceeds {MAX_DIM} rows or columns",
            s.h, s.w
        )));
    }
    Ok(())
}

/// Rows and columns of the convolution's output.
fn conv_out(s: &Shape) -> Result<[usize; 2]> {
    if !s.c.is_multiple_of(s.groups) || !s.k.is_multiple_of(s.groups) {
        return Err(invalid(format!(
            "{} input and {} output channels cannot be split into {} groups: both must be \
             multiples of it",
            s.c, s.k, s.groups
        )));
    }
    let padded = [
        s.h + s.pad.top + s.pad.bottom,
        s.w + s.pad.left + s.pad.right,
    ];
    let span = |axis: usize, taps: usize| (taps - 1).checked_mul(s.dilation[axis]);
    let spanned = [span(0, s.r), span(1, s.s)];
    if spanned
        .iter()
        .any(|span| span.is_none_or(|span| span >= MAX_SPAN))
    {
        return Err(invalid(format!(
            "the {}x{} filter with dilation {}x{} spans {MAX_SPAN} rows or columns, or more",
            s.r, s.s, s.dilation[0], s.dilation[1]
        )));
    }
    let along = |axis: usize, taps| out_size(padded[axis], taps, s.stride[axis], s.dilation[axis]);
    match (along(0, s.r), along(1, s.s)) {
        (Some(p), Some(q)) => Ok([p, q]),
        _ => Err(invalid(format!(
            "the {}x{} filter with dilation {}x{} is larger than the padded image of {}x{}",
            s.r, s.s, s.dilation[0], s.dilation[1], padded[0], padded[1]
        ))),
    }
}

fn weights(s: &Shape) -> Result<()> {
    let channels = s.c / s.groups;
    if channels > MAX_SUM / s.r / s.s {
        return Err(invalid(format!(
            "one filter of {channels}x{}x{} has more than {MAX_SUM} weights",
            s.r, s.s
        )));
    }
    Ok(())
}

/// What goes together of alignment, storage, math and scale.
fn types(s: &Shape) -> Result<()> {
    if !s.align.is_power_of_two() || s.align < s.storage.bytes() || s.align > 4096 {
        return Err(invalid(format!(
            "an alignment of {} bytes: it must be a power of two from {} (one {} element) to \
             4096",
            s.align,
            s.storage.bytes(),
            s.storage
        )));
    }
    let maths = s.storage.maths();
    if !maths.contains(&s.math) {
        let maths: Vec<String> = maths.iter().map(ToString::to_string).collect();
        return Err(invalid(format!(
            "{0} storage with {1} math; {0} storage goes with {2}",
            s.storage,
            s.math,
            maths.join(", ")
        )));
    }
    if !s.epilogue.scale.is_finite() {
        return Err(invalid(format!(
            "a scale of {}: it must be finite",
            s.epilogue.scale
        )));
    }
    Ok(())
}

/// The padding without what no filter position reaches below and to the right.
fn read_padding(s: &Shape, [p, q]: [usize; 2]) -> Padding {
    let used = |out: usize, stride: usize, taps, dilation, before: usize| {
        ((out - 1) * stride + extent(taps, dilation)).saturating_sub(before)
    };
    Padding {
        bottom: used(p, s.stride[0], s.r, s.dilation[0], s.h + s.pad.top),
        right: used(q, s.stride[1], s.s, s.dilation[1], s.w + s.pad.left),
        ..s.pad
    }
}

fn elements(s: &Shape, [p, q]: [usize; 2]) -> Result<()> {
    // Without an image no tensor has an element, but what is planned counts those of one.
    let images = s.n.max(1);
    for (what, dims) in [
        ("input", [images, s.c, s.h, s.w]),
        ("filter", [s.k, s.c / s.groups, s.r, s.s]),
        ("output", [images, s.k, p, q]),
    ] {
        let count = dims.iter().try_fold(1usize, |a, d| a.checked_mul(*d));
        if count.is_none_or(|count| count > MAX_ELEMENTS) {
            let [a, b, c, d] = dims;
            return Err(invalid(format!(
                "the {what} of {a} x {b} x {c} x {d} has more than {MAX_ELEMENTS} elements"
            )));
        }
    }
    Ok(())
}

impl Pool {
    /// Number of windows down and across an output of the given size.
    fn out(&self, size: [usize; 2]) -> Result<[usize; 2]> {
        let mut out = [0; 2];
        for axis in 0..2 {
            let (i, window, stride) = (size[axis], self.window[axis], self.stride[axis]);
            if window == 0 || stride == 0 || window > MAX_DIM || stride > MAX_DIM {
                return Err(invalid(format!(
                    "pooling with a window of {window} and a stride of {stride}"
                )));
            }
            out[axis] = if self.ceil {
                let windows = i.saturating_sub(window).div_ceil(stride) + 1;
                // A window must start inside the image.
                windows.min((i - 1) / stride + 1)
            } else if window <= i {
                (i - window) / stride + 1
            } else {
                return Err(invalid(format!(
                    "a pooling window of {}x{} is larger than the {}x{} output; `ceil` clips it",
                    self.window[0], self.window[1], size[0], size[1]
                )));
            };
        }
        Ok(out)
    }
}
