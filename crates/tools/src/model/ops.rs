//! What shapes ONNX's operators make of their inputs' shapes.
//!
//! An argument that was an attribute in an older version of an operator and is an input in a newer one is looked for
//! as both, so that versions need not be told apart.

use super::{
    proto::Node,
    shapes::{Dim, Known},
    values::Values,
    window::{self, Axis},
};

/// A shape whose rank is known.
type Dims = Vec<Dim>;

/// The shapes of a node's outputs, as far as they are asked for; none where the operator is not followed. Of a
/// damaged file they may be negative.
pub(super) fn outputs(node: &Node, known: &Known) -> Option<Vec<Dims>> {
    match &*node.op_type {
        "Split" => split(node, known),
        _ => Some(vec![output(node, known)?]),
    }
}

/// The shape of a node's first output.
fn output(node: &Node, known: &Known) -> Option<Dims> {
    let x = || known.input(node, 0);
    match &*node.op_type {
        "Conv" => conv(node, known),
        "ConvTranspose" => transposed_conv(node, known),
        "MaxPool" | "AveragePool" | "LpPool" => pool(node, x()?),
        "GlobalAveragePool" | "GlobalMaxPool" | "GlobalLpPool" => {
            let x = x()?;
            Some(
                x.iter()
                    .enumerate()
                    .map(|(i, dim)| if i < 2 { *dim } else { Some(1) })
                    .collect(),
            )
        }
        "Concat" => concat(node, known),
        "Resize" | "Upsample" => resize(node, known),
        "Pad" => pad(node, known),
        "Slice" => slice(node, known),
        "Transpose" => transpose(node, x()?),
        "Reshape" => reshape(node, known),
        "Flatten" => flatten(node, x()?),
        "Squeeze" => squeeze(node, known),
        "Unsqueeze" => unsqueeze(node, known),
        "Gemm" => gemm(node, known),
        "MatMul" => matmul(x()?, known.input(node, 1)?),
        "Shape" => Some(vec![Some(
            i64::try_from(Values::from_node(node, known)?.len()).ok()?,
        )]),
        "Constant" => {
            let attribute = node.attribute.first()?;
            match &*attribute.name {
                "value_int" | "value_float" => Some(vec![]),
                "value_ints" => Some(vec![Some(attribute.ints.len() as i64)]),
                "value_floats" => Some(vec![Some(attribute.floats.len() as i64)]),
                _ => None,
            }
        }
        "ConstantOfShape" => Some(known.input_values(node, 0)?.ints().collect()),
        "Expand" => {
            let to: Dims = known.input_values(node, 1)?.ints().collect();
            broadcast(x()?, &to)
        }
        "Gather" => gather(node, x()?, known.input(node, 1)?),
        "DepthToSpace" => blocks(node, x()?, true),
        "SpaceToDepth" => blocks(node, x()?, false),
        name if name.starts_with("Reduce") => reduce(node, known),
        "Where" => {
            let branches = broadcast(known.input(node, 1)?, known.input(node, 2)?)?;
            broadcast(x()?, &branches)
        }
        name if BROADCASTING.contains(&name) => broadcasting(node, known),
        name if KEEPING.contains(&name) => Some(x()?.to_vec()),
        _ => None,
    }
}

/// Operators whose output has the shape of their first input.
const KEEPING: [&str; 69] = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BatchNormalization",
    "Bernoulli",
    "BitwiseNot",
    "Cast",
    "CastLike",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "CumSum",
    "DequantizeLinear",
    "Dropout",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "ImageScaler",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LRN",
    "LayerNormalization",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "QuantizeLinear",
    "RMSNormalization",
    "RandomNormalLike",
    "RandomUniformLike",
    "Reciprocal",
    "Relu",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Swish",
    "Tan",
    "Tanh",
    "ThresholdedRelu",
    "Trilu",
];

/// Operators that take tensors element by element.
const BROADCASTING: [&str; 22] = [
    "Add",
    "And",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Or",
    "Pow",
    "Sub",
    "Sum",
    "Xor",
];

/// An axis that may be counted from the end.
fn axis(axis: i64, rank: usize) -> Option<usize> {
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

fn broadcasting(node: &Node, known: &Known) -> Option<Dims> {
    let first = known.input(node, 0)?.to_vec();
    // Before version 7 an attribute says that the second is fitted to the first.
    if node.attribute("broadcast").is_some() {
        return Some(first);
    }
    (1..node.input.len()).try_fold(first, |dims, i| broadcast(&dims, known.input(node, i)?))
}

/// Sizes from the last one on must be equal, or one of them 1.
fn broadcast(a: &[Dim], b: &[Dim]) -> Option<Dims> {
    let rank = a.len().max(b.len());
    let at = |dims: &[Dim], i: usize| match (i + dims.len()).checked_sub(rank) {
        Some(i) => dims[i],
        None => Some(1),
    };
    let size = |i| match (at(a, i), at(b, i)) {
        (a, b) if a == b => Some(a),
        (Some(1), other) | (other, Some(1)) => Some(other),
        // A size that is not known is 1 or the other.
        (None, known) | (known, None) => Some(known),
        _ => None,
    };
    (0..rank).map(size).collect()
}

fn conv(node: &Node, known: &Known) -> Option<Dims> {
    let (x, w) = (known.input(node, 0)?, known.input(node, 1)?);
    let (n, image) = (x.first()?, x.get(2..)?);
    let kernel: Vec<i64> = w.get(2..)?.iter().copied().collect::<Option<_>>()?;
    if kernel.len() != image.len() {
        return None;
    }
    let axes = window::axes(node, &kernel, image).ok()?;
    Some(slid(*n, w[0], image, &axes, false))
}

/// Windows that slid over an image.
fn slid(n: Dim, channels: Dim, image: &[Dim], axes: &[Axis], ceil: bool) -> Dims {
    let sizes = image.iter().zip(axes);
    let sizes = sizes.map(|(image, axis)| axis.out(*image, ceil));
    [n, channels].into_iter().chain(sizes).collect()
}

fn pool(node: &Node, x: &[Dim]) -> Option<Dims> {
    let (n, c, image) = (x.first()?, x.get(1)?, x.get(2..)?);
    let kernel = node.ints("kernel_shape")?;
    if kernel.len() != image.len() || kernel.iter().any(|size| *size < 1) {
        return None;
    }
    let axes = window::axes(node, kernel, image).ok()?;
    Some(slid(*n, *c, image, &axes, node.int("ceil_mode") == Some(1)))
}

fn transposed_conv(node: &Node, known: &Known) -> Option<Dims> {
    let (x, w) = (known.input(node, 0)?, known.input(node, 1)?);
    let (n, image) = (x.first()?, x.get(2..)?);
    let kernel: Vec<i64> = w.get(2..)?.iter().copied().collect::<Option<_>>()?;
    let k = w[1].and_then(|k| k.checked_mul(node.int("group").unwrap_or(1)));
    if let Some(sizes) = node.ints("output_shape").filter(|s| s.len() == image.len()) {
        let sizes = sizes.iter().map(|size| (*size >= 0).then_some(*size));
        return Some([*n, k].into_iter().chain(sizes).collect());
    }
    if kernel.len() != image.len() {
        return None;
    }
    let axes = window::axes(node, &kernel, image).ok()?;
    let same = node
        .attribute("auto_pad")
        .is_some_and(|auto| auto.s.starts_with(b"SAME"));
    let more = node.ints("output_padding").unwrap_or_default();
    let size = |(i, axis): (usize, &Axis)| match same {
        true => image[i]?.checked_mul(axis.stride),
        false => axis.transposed(image[i], more.get(i).copied().unwrap_or(0)),
    };
    let sizes = axes.iter().enumerate().map(size);
    Some([*n, k].into_iter().chain(sizes).collect())
}

fn concat(node: &Node, known: &Known) -> Option<Dims> {
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

fn resize(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    // Two inputs are the image and its scales; newer versions have a region between them, and sizes.
    let scales = if node.input.len() == 2 { 1 } else { 2 };
    let axes = match node.ints("axes") {
        Some(axes) => axes
            .iter()
            .map(|a| axis(*a, x.len()))
            .collect::<Option<_>>()?,
        None => (0..x.len()).collect::<Vec<_>>(),
    };
    let mut dims = x.to_vec();
    if let Some(sizes) = known.input_values(node, 3) {
        let policy = node.attribute("keep_aspect_ratio_policy");
        let stretches = policy.is_none_or(|policy| policy.s == b"stretch");
        if sizes.len() != axes.len() || !stretches {
            return None;
        }
        for (at, size) in axes.into_iter().zip(sizes.ints()) {
            dims[at] = size.filter(|size| *size >= 0);
        }
        return Some(dims);
    }
    let scales = match node.attribute("scales") {
        Some(scales) => scales.floats.clone(),
        None => known.input_values(node, scales)?.all_floats()?,
    };
    if scales.len() != axes.len() {
        return None;
    }
    for (at, scale) in axes.into_iter().zip(scales) {
        let size = |size: i64| (size as f32 * scale).floor() as i64;
        dims[at] = dims[at].map(size).filter(|size| *size >= 0);
    }
    Some(dims)
}

fn pad(node: &Node, known: &Known) -> Option<Dims> {
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

fn split(node: &Node, known: &Known) -> Option<Vec<Dims>> {
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
            let part = |size: i64| size.checked_add(count - 1).map(|size| size / count);
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
pub(super) struct AxisSlice {
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

fn slice(node: &Node, known: &Known) -> Option<Dims> {
    let mut dims = known.input(node, 0)?.to_vec();
    for slice in slices(node, known, dims.len())? {
        dims[slice.axis] = dims[slice.axis].and_then(|size| Some(slice.taken(size)?.1));
    }
    Some(dims)
}

fn transpose(node: &Node, x: &[Dim]) -> Option<Dims> {
    let Some(order) = node.ints("perm") else {
        return Some(x.iter().rev().copied().collect());
    };
    if order.len() != x.len() {
        return None;
    }
    let size = |from: &i64| x.get(usize::try_from(*from).ok()?).copied();
    order.iter().map(size).collect()
}

/// The product of sizes.
fn product(dims: &[Dim]) -> Dim {
    dims.iter()
        .try_fold(1i64, |product, dim| product.checked_mul((*dim)?))
}

fn reshape(node: &Node, known: &Known) -> Option<Dims> {
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

fn flatten(node: &Node, x: &[Dim]) -> Option<Dims> {
    let at = node.int("axis").unwrap_or(1);
    let at = match at == x.len() as i64 {
        true => x.len(),
        false => axis(at, x.len())?,
    };
    Some(vec![product(&x[..at]), product(&x[at..])])
}

fn squeeze(node: &Node, known: &Known) -> Option<Dims> {
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

fn unsqueeze(node: &Node, known: &Known) -> Option<Dims> {
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

fn gemm(node: &Node, known: &Known) -> Option<Dims> {
    let [a, b] = [known.input(node, 0)?, known.input(node, 1)?];
    let turned = |name| node.int(name) == Some(1);
    let rows = a.get(usize::from(turned("transA")))?;
    let columns = b.get(usize::from(!turned("transB")))?;
    Some(vec![*rows, *columns])
}

fn matmul(a: &[Dim], b: &[Dim]) -> Option<Dims> {
    let ([many @ .., rows, _], [more @ .., _, columns]) = (a, b) else {
        return None;
    };
    let mut dims = broadcast(many, more)?;
    dims.extend([*rows, *columns]);
    Some(dims)
}

fn gather(node: &Node, x: &[Dim], places: &[Dim]) -> Option<Dims> {
    let along = axis(node.int("axis").unwrap_or(0), x.len())?;
    Some([&x[..along], places, &x[along + 1..]].concat())
}

fn blocks(node: &Node, x: &[Dim], to_space: bool) -> Option<Dims> {
    let [n, c, h, w] = *x else { return None };
    let side = node.int("blocksize").filter(|side| *side > 0)?;
    let grown = |size: Dim, by: i64| size?.checked_mul(by);
    let shrunk = |size: Dim, by: i64| size.map(|size| size / by);
    let square = side.checked_mul(side)?;
    Some(match to_space {
        true => vec![n, shrunk(c, square), grown(h, side), grown(w, side)],
        false => vec![n, grown(c, square), shrunk(h, side), shrunk(w, side)],
    })
}

fn reduce(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let axes = match node.ints("axes").is_some() || node.takes(1).is_some() {
        true => ints(node, known, "axes", 1)?,
        false if node.int("noop_with_empty_axes") == Some(1) => return Some(x.to_vec()),
        false => (0..x.len() as i64).collect(),
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
