//! What slides windows over images or changes their size.

use super::{
    super::{
        known::{Dim, Dims, Known},
        proto::Node,
        window::{self, Axis},
    },
    axes::axis,
};

pub(super) fn conv(node: &Node, known: &Known) -> Option<Dims> {
    let (x, w) = (known.input(node, 0)?, known.input(node, 1)?);
    let (n, image) = (x.first()?, x.get(2..)?);
    let kernel: Vec<i64> = w.get(2..)?.iter().copied().collect::<Option<_>>()?;
    if kernel.len() != image.len() {
        return None;
    }
    let axes = window::axes(node, &kernel, image).ok()?;
    Some(slid(*n, w[0], image, &axes, false))
}

pub(super) fn transposed_conv(node: &Node, known: &Known) -> Option<Dims> {
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

pub(super) fn pool(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?;
    let (n, c, image) = (x.first()?, x.get(1)?, x.get(2..)?);
    let kernel = node.ints("kernel_shape")?;
    if kernel.len() != image.len() || kernel.iter().any(|size| *size < 1) {
        return None;
    }
    let axes = window::axes(node, kernel, image).ok()?;
    Some(slid(*n, *c, image, &axes, node.int("ceil_mode") == Some(1)))
}

pub(super) fn global_pool(node: &Node, known: &Known) -> Option<Dims> {
    let x = known.input(node, 0)?.iter().enumerate();
    let dims = x.map(|(i, dim)| if i < 2 { *dim } else { Some(1) });
    Some(dims.collect())
}

/// Windows that slid over an image.
fn slid(n: Dim, channels: Dim, image: &[Dim], axes: &[Axis], ceil: bool) -> Dims {
    let sizes = image.iter().zip(axes);
    let sizes = sizes.map(|(image, axis)| axis.out(*image, ceil));
    [n, channels].into_iter().chain(sizes).collect()
}

pub(super) fn resize(node: &Node, known: &Known) -> Option<Dims> {
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

pub(super) fn blocks(node: &Node, known: &Known) -> Option<Dims> {
    let [n, c, h, w] = *known.input(node, 0)? else {
        return None;
    };
    let side = node.int("blocksize").filter(|side| *side > 0)?;
    let grown = |size: Dim, by: i64| size?.checked_mul(by);
    let shrunk = |size: Dim, by: i64| size.map(|size| size / by);
    let square = side.checked_mul(side)?;
    Some(match node.op_type == "DepthToSpace" {
        true => vec![n, shrunk(c, square), grown(h, side), grown(w, side)],
        false => vec![n, grown(c, square), shrunk(h, side), shrunk(w, side)],
    })
}
