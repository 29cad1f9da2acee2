//! What takes tensors apart, puts them together, or changes their axes.

use super::super::{
    known::{Dim, Dims, Known},
    proto::Node,
};

pub(super) fn concat(node: &Node, known: &Known) -> Option<Dims> {
    let parts = (0..node.input.len()).map(|i| known.input(node, i));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let rank = parts.first()?.len();
    let along = axis(node.int("axis").unwrap_or(1), rank)?;
    if parts.iter().any(|part| part.len() != rank) {
        return None;
    }
    let size = |i: usize| match i == along {
        true => parts
            .iter()
            .try_fold(0i64, |sum, part| sum.checked_add(part[i]?)),
        false => parts.iter().find_map(|part| part[i]),
    };
    Some((0..rank).map(size).collect())
}

pub(super) fn split(node: &Node, known: &Known) -> Option<Vec<Dims>> {
    let x = known.input(node, 0)?;
    let along = axis(node.int("axis").unwrap_or(0), x.len())?;
    let count = i64::try_from(node.output.len()).ok()?;
    let sizes: Dims = match ints(node, known, "split", 1) {
        Some(sizes) => sizes
            .into_iter()
            .map(|size| (size >= 0).then_some(size))
            .collect(),
        None if node.takes(1).is_some() => return None,
        // Equal parts, the last one smaller where they cannot be.
        None => {
            let part = |size: i64| size.checked_add(count - 1)?.checked_div(count);
            let part = x[along].and_then(part);
            let last = x[along].and_then(|size| size.checked_sub(part?.checked_mul(count - 1)?));
            let last = last.filter(|size| *size >= 0);
            (1..=count)
                .map(|i| if i < count { part } else { last })
                .collect()
        }
    };
    let of = |size: Dim| {
        let mut dims = x.to_vec();
        dims[along] = size;
        dims
    };
    Some(sizes.into_iter().map(of).collect())
}

/// What Slice takes along one axis.
pub(in super::super) struct AxisSlice {
    axis: usize,
    start: i64,
    end: i64,
    step: i64,
}

impl AxisSlice {
    /// The places that it takes of so many: the first, and how many.
    fn taken(&self, count: i64) -> Option<(i64, i64)> {
        let from_end = |place: i64| match place < 0 {
            true => place.saturating_add(count),
            false => place,
        };
        // A walk backwards may end before the first.
        let (least, most) = match self.step > 0 {
            true => (0, count),
            false => (-1, count - 1),
        };
        let place = |place: i64| from_end(place).clamp(least, most);
        let (start, distance) = (place(self.start), place(self.end) - place(self.start));
        let whole = distance.checked_div(self.step)?;
        let more = i64::from(distance.checked_rem(self.step)? != 0);
        let goes_on = distance.signum() == self.step.signum();
        Some((start, if goes_on { whole + more } else { 0 }))
    }

    /// The places that it takes of so many.
    pub fn places(&self, count: i64) -> Option<impl Iterator<Item = i64>> {
        let (start, taken) = self.taken(count)?;
        let step = self.step;
        Some((0..taken).map(move |i| start + i * step))
    }
}

/// What Slice takes of a tensor of so many dimensions.
pub(super) fn slices(node: &Node, known: &Known, rank: usize) -> Option<Vec<AxisSlice>> {
    let starts = ints(node, known, "starts", 1)?;
    let ends = ints(node, known, "ends", 2)?;
    let axes = match node.ints("axes").is_some() || node.takes(3).is_some() {
        true => ints(node, known, "axes", 3)?,
        false => (0..starts.len() as i64).collect(),
    };
    let steps = match node.takes(4) {
        Some(_) => known.input_values(node, 4)?.all_ints()?,
        None => vec![1; starts.len()],
    };
    let lengths = [ends.len(), axes.len(), steps.len()];
    if lengths.iter().any(|length| *length != starts.len()) {
        return None;
    }
    let slice = |i: usize| {
        Some(AxisSlice {
            axis: axis(axes[i], rank)?,
            start: starts[i],
            end: ends[i],
            step: steps[i],
        })
    };
    (0..starts.len()).map(slice).collect()
}

pub(super) fn slice(node: &Node, known: &Known) -> Option<Dims> {
    let mut dims = known.input(node, 0)?.to_vec();
    for slice in slices(node, known, dims.len())? {
        dims[slice.axis] = dims[slice.axis].and_then(|size| Some(slice.taken(size)?.1));
    }
    Some(dims)
}

pub(super) fn pad(node: &Node, known: &Known) -> Option<Dims> {
    let mut dims = known.input(node, 0)?.to_vec();
    let pads = match node.ints("paddings") {
        Some(pads) => pads.to_vec(),
        None => ints(node, known, "pads", 1)?,
    };
    let axes: Vec<usize> = match node.takes(3) {
        Some(_) => {
            let axes = known.input_values(node, 3)?.all_ints()?;
            axes.into_iter()
                .map(|a| axis(a, dims.len()))
                .collect::<Option<_>>()?
        }
        None => (0..dims.len()).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return None;
    }
    for (i, at) in axes.iter().enumerate() {
        let padded = dims[*at].and_then(|size| {
            let before = size.checked_add(pads[i])?;
            before.checked_add(pads[i + axes.len()])
        });
        dims[*at] = padded.filter(|size| *size >= 0);
    }
    Some(dims)
}

pub(super) fn gather(node: &Node, known: &Known) -> Option<Dims> {
    let (x, places) = (known.input(node, 0)?, known.input(node, 1)?);
    let along = axis(node.int("axis").unwrap_or(0), x.len())?;
    Some([&x[..along], places, &x[along + 1..]].concat())
}

pub(super) fn reduce(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let axes = match node.ints("axes").is_some() || node.takes(1).is_some() {
        true => ints(node, known, "axes", 1)?,
        false => Vec::new(),
    };
    // Empty ones are as good as none.
    let axes = match axes.is_empty() {
        true if node.int("noop_with_empty_axes") == Some(1) => return Some(x.to_vec()),
        true => (0..x.len() as i64).collect(),
        false => axes,
    };
    let axes: Vec<usize> = axes
        .into_iter()
        .map(|a| axis(a, x.len()))
        .collect::<Option<_>>()?;
    let keeps = node.int("keepdims") != Some(0);
    let sizes = x
        .iter()
        .enumerate()
        .filter_map(|(i, size)| match axes.contains(&i) {
            true => keeps.then_some(Some(1)),
            false => Some(*size),
        });
    Some(sizes.collect())
}

pub(super) fn transpose(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let Some(order) = node.ints("perm") else {
        return Some(x.iter().rev().copied().collect());
    };
    if order.len() != x.len() {
        return None;
    }
    let size = |from: &i64| x.get(usize::try_from(*from).ok()?).copied();
    order.iter().map(size).collect()
}

pub(super) fn reshape(node: &Node, known: &Known) -> Option<Dims> {
    let to: Dims = match node.ints("shape") {
        Some(to) => to.iter().copied().map(Some).collect(),
        None => known.input_values(node, 1)?.ints().collect(),
    };
    let x = known.input(node, 0);
    let keeps = node.int("allowzero") != Some(1);
    let size = |(i, to): (usize, &Dim)| match to {
        Some(0) if keeps => x?.get(i).copied()?,
        to => *to,
    };
    let mut dims: Dims = to.iter().enumerate().map(size).collect();
    let Some(rest) = dims.iter().position(|dim| *dim == Some(-1)) else {
        return Some(dims);
    };
    dims[rest] = Some(1);
    let (all, others) = (x.and_then(product), product(&dims));
    dims[rest] = match (all, others) {
        (Some(all), Some(others)) if others > 0 && all % others == 0 => Some(all / others),
        _ => None,
    };
    Some(dims)
}

pub(super) fn flatten(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let at = node.int("axis").unwrap_or(1);
    let at = match at == x.len() as i64 {
        true => x.len(),
        false => axis(at, x.len())?,
    };
    Some(vec![product(&x[..at]), product(&x[at..])])
}

/// The product of sizes.
fn product(dims: &[Dim]) -> Dim {
    dims.iter()
        .try_fold(1i64, |product, dim| product.checked_mul((*dim)?))
}

pub(super) fn squeeze(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    if node.ints("axes").is_none() && node.takes(1).is_none() {
        let all: Option<Vec<i64>> = x.iter().copied().collect();
        return Some(
            all?.into_iter()
                .filter(|size| *size != 1)
                .map(Some)
                .collect(),
        );
    }
    let axes = ints(node, known, "axes", 1)?;
    let axes: Vec<usize> = axes
        .into_iter()
        .map(|a| axis(a, x.len()))
        .collect::<Option<_>>()?;
    let left = (0..x.len()).filter(|i| !axes.contains(i));
    Some(left.map(|i| x[i]).collect())
}

pub(super) fn unsqueeze(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let axes = ints(node, known, "axes", 1)?;
    let rank = x.len() + axes.len();
    let axes: Vec<usize> = axes
        .into_iter()
        .map(|a| axis(a, rank))
        .collect::<Option<_>>()?;
    let mut sizes = x.iter().copied();
    let dims = (0..rank).map(|i| match axes.contains(&i) {
        true => Some(Some(1)),
        false => sizes.next(),
    });
    dims.collect()
}

/// An axis that may be counted from the end.
pub(super) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let at = if axis < 0 {
        axis.checked_add(rank)?
    } else {
        axis
    };
    (0..rank).contains(&at).then_some(at as usize)
}

/// Integers of an attribute, or of the input that took its place.
fn ints(node: &Node, known: &Known, name: &str, index: usize) -> Option<Vec<i64>> {
    match node.ints(name) {
        Some(ints) => Some(ints.to_vec()),
        None => known.input_values(node, index)?.all_ints(),
    }
}
