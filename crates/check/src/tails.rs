//! The tails of tiles: layers in which one size goes through one below, at and one above the size of each tile that
//! kernels have, the same problems in the same order everywhere.
//!
//! | layer | sizes that go through the edges, one at a time |
//! | --- | --- |
//! | dense: 3x3, 1x1, 3x3 with stride 2 | channels, filters, width; up to 129 height; up to 65 images |
//! | 1x1, planes of four rows | pixels of a plane, in fours |
//! | few channels under a 7x7 filter | width of the output; up to 33 filters, images |
//! | few channels under 4x4 with stride 4 | filters |
//! | depthwise: 3x3, 5x5 with stride 2, 7x7 | channels, one above each edge; width; up to 129 height |
//! | groups of 4, 8, 16 and 32 channels | width; up to 65 groups; up to 33 height |
//!
//! Each comes as f32 with fp32 and tf32 math and as f16, in NCHW and in NHWC, and as bf16 in NHWC.

use std::collections::HashSet;

use convforge::{Layout, Math, Padding, Problem, Shape, Storage};

/// Sizes of tiles.
const TILES: [usize; 9] = [4, 8, 16, 32, 64, 96, 128, 192, 256];
/// Pixels of a plane that kernels for 1x1 take as a tile.
const PLANES: [usize; 4] = [100, 112, 196, 208];
/// What kernels are written for.
const TYPES: [(Storage, Math, Layout); 7] = [
    (Storage::F32, Math::Fp32, Layout::Nchw),
    (Storage::F32, Math::Tf32, Layout::Nchw),
    (Storage::F16, Math::F16, Layout::Nchw),
    (Storage::F32, Math::Fp32, Layout::Nhwc),
    (Storage::F32, Math::Tf32, Layout::Nhwc),
    (Storage::F16, Math::F16, Layout::Nhwc),
    (Storage::Bf16, Math::Bf16, Layout::Nhwc),
];

/// A square filter's side, stride and padding.
type Window = [usize; 3];

const DENSE: [Window; 3] = [[3, 1, 1], [1, 1, 0], [3, 2, 1]];
const FEW_CHANNELS: Window = [7, 1, 0];
const PATCHES: Window = [4, 4, 0];
const DEPTHWISE: [Window; 3] = [[3, 1, 1], [5, 2, 2], [7, 1, 3]];
const GROUPED: Window = [3, 1, 1];
/// Channels of a group.
const GROUP_CHANNELS: [usize; 4] = [4, 8, 16, 32];

/// Problems in which one size is one below, at or one above that of a tile: dense, depthwise and grouped layers, and
/// such of few channels, in each type that kernels are written for. Each comes once, always in the same order.
///
/// ```
/// let problems = convforge_check::tails();
/// assert!(problems.contains(&"mb2ic129ih12iw20oc32kh3ph1+f16+nhwc".parse()?));
/// # Ok::<(), convforge::Error>(())
/// ```
pub fn tails() -> Vec<Problem> {
    let layers = layers();
    let typed = |(storage, math, layout)| {
        layers.iter().map(move |layer| Shape {
            storage,
            math,
            layout,
            ..layer.clone()
        })
    };
    let shapes = TYPES.into_iter().flat_map(typed);
    shapes
        .map(|shape| Problem::new(shape).expect("no filter is larger than its padded image"))
        .collect()
}

/// Of every kind, in one type.
fn layers() -> Vec<Shape> {
    let edges = TILES.into_iter().flat_map(|tile| tile - 1..=tile + 1);
    let kinds = [dense_at, few_channels_at, depthwise_at, grouped_at];
    let planes = PLANES
        .into_iter()
        .flat_map(|tile| [tile - 4, tile, tile + 4]);
    let all = edges.flat_map(|edge| kinds.into_iter().flat_map(move |kind| kind(edge)));
    let all = all.chain(planes.map(|pixels| dense([1, 1, 0], 2, [66, 4, pixels / 4], 130)));
    let mut seen = HashSet::new();
    all.filter(|layer| seen.insert(layer.clone())).collect()
}

fn dense_at(edge: usize) -> Vec<Shape> {
    let mut layers = Vec::new();
    for window in DENSE {
        layers.push(dense(window, 2, [edge, 12, 20], 32));
        layers.push(dense(window, 2, [32, 12, 20], edge));
        layers.push(dense(window, 1, [24, 12, edge], 40));
        if edge <= 129 {
            layers.push(dense(window, 1, [24, edge, 12], 40));
        }
        if edge <= 65 {
            layers.push(dense(window, edge, [16, 7, 7], 24));
        }
    }
    layers
}

fn few_channels_at(edge: usize) -> Vec<Shape> {
    let window = FEW_CHANNELS;
    let mut layers = Vec::new();
    if edge <= 33 {
        layers.push(dense(window, 3, [3, 40, 40], edge));
        layers.push(dense(window, edge, [1, 30, 30], 4));
    }
    // The output is as wide as the edge.
    layers.push(dense(window, 2, [4, 40, edge + 6], 16));
    layers.push(dense(PATCHES, 2, [3, 40, 40], edge));
    layers
}

fn depthwise_at(edge: usize) -> Vec<Shape> {
    let mut layers = Vec::new();
    for window in DEPTHWISE {
        layers.push(grouped(window, 2, 1, [14, 20], edge + 1));
        layers.push(grouped(window, 1, 1, [10, edge], 40));
        if edge <= 129 {
            layers.push(grouped(window, 1, 1, [edge, 10], 40));
        }
    }
    layers
}

fn grouped_at(edge: usize) -> Vec<Shape> {
    let mut layers = Vec::new();
    for channels in GROUP_CHANNELS {
        layers.push(grouped(GROUPED, 2, channels, [14, edge], 4));
        if edge <= 33 {
            layers.push(grouped(GROUPED, 2, channels, [edge, 14], 5));
        }
        if edge <= 65 {
            layers.push(grouped(GROUPED, 1, channels, [7, 9], edge));
        }
    }
    layers
}

fn dense([side, stride, pad]: Window, images: usize, input: [usize; 3], filters: usize) -> Shape {
    Shape {
        stride: [stride; 2],
        pad: Padding {
            top: pad,
            left: pad,
            bottom: pad,
            right: pad,
        },
        ..Shape::new(images, input, filters, [side; 2])
    }
}

/// Groups of so many channels, as many out as in.
fn grouped(
    window: Window,
    images: usize,
    channels: usize,
    [h, w]: [usize; 2],
    groups: usize,
) -> Shape {
    let channels = groups * channels;
    Shape {
        groups,
        ..dense(window, images, [channels, h, w], channels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> HashSet<Problem> {
        tails().into_iter().collect()
    }

    #[track_caller]
    fn has(problems: &HashSet<Problem>, text: &str) {
        assert!(problems.contains(&text.parse().unwrap()), "no {text}");
    }

    #[test]
    fn no_problem_comes_twice() {
        let problems = tails();
        assert_eq!(problems.len(), all().len());
        assert_eq!(problems.len() % TYPES.len(), 0);
    }

    #[test]
    fn every_size_goes_through_the_edges_of_a_tile() {
        let problems = all();
        for e in [127, 128, 129] {
            has(&problems, &format!("mb2ic{e}ih12iw20oc32kh3ph1+f16+nhwc"));
            has(&problems, &format!("mb2ic32ih12iw20oc{e}kh1"));
            has(&problems, &format!("mb1ic24ih12iw{e}oc40kh3sh2ph1+nhwc"));
            has(&problems, &format!("mb1ic24ih{e}iw12oc40kh1+math=tf32"));
            has(&problems, &format!("mb2ic3ih40oc{e}kh4sh4"));
            let (few, g) = (e + 6, e + 1);
            has(&problems, &format!("mb2ic4ih40iw{few}oc16kh7+f16"));
            has(
                &problems,
                &format!("g{g}mb2ic{g}ih14iw20oc{g}kh7ph3+bf16+nhwc"),
            );
            has(&problems, &format!("g40mb1ic40ih10iw{e}oc40kh5sh2ph2"));
            has(&problems, &format!("g4mb2ic32ih14iw{e}oc32kh3ph1"));
        }
        for w in [24, 25, 26, 51, 52, 53] {
            has(&problems, &format!("mb2ic66ih4iw{w}oc130kh1+f16"));
        }
        for e in [31, 32, 33] {
            has(&problems, &format!("mb{e}ic16ih7oc24kh3ph1+nhwc+math=tf32"));
            has(&problems, &format!("mb3ic3ih40oc{e}kh7+f16+nhwc"));
            let c = 8 * e;
            has(&problems, &format!("g{e}mb1ic{c}ih7iw9oc{c}kh3ph1+f16"));
        }
    }

    #[test]
    fn a_share_has_every_type() {
        let share: Vec<Problem> = tails().into_iter().skip(4).step_by(197).collect();
        for kind in TYPES {
            let of =
                |problem: &&Problem| (problem.storage(), problem.math(), problem.layout()) == kind;
            assert!(share.iter().filter(of).count() > 3, "{kind:?}");
        }
    }

    #[test]
    fn none_takes_long() {
        let flops: Vec<f64> = tails().iter().map(Problem::flops).collect();
        assert!(flops.iter().all(|&flops| flops < 1e9));
        let total: f64 = flops.iter().sum();
        assert!(total < 1e11, "{total:e} operations in all");
    }
}
