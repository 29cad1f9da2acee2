//! What takes tensors element by element, multiplies matrices or makes tensors of nothing but a shape.

use super::{
    super::{
        known::{Dim, Dims, Known},
        proto::Node,
    },
    folding::fold,
};

pub(super) fn keeping(node: &Node, known: &Known) -> Option<Dims> {
    Some(known.input(node, 0)?.to_vec())
}

pub(super) fn broadcasting(node: &Node, known: &Known) -> Option<Dims> {
    let first = known.input(node, 0)?.to_vec();
    // Before version 7 an attribute says that the second is fitted to the first.
    if node.attribute("broadcast").is_some() {
        return Some(first);
    }
    (1..node.input.len()).try_fold(first, |dims, i| broadcast(&dims, known.input(node, i)?))
}

pub(super) fn expand(node: &Node, known: &Known) -> Option<Dims> {
    let to: Dims = known.input_values(node, 1)?.ints().collect();
    broadcast(known.input(node, 0)?, &to)
}

pub(super) fn choice(node: &Node, known: &Known) -> Option<Dims> {
    let branches = broadcast(known.input(node, 1)?, known.input(node, 2)?)?;
    broadcast(known.input(node, 0)?, &branches)
}

pub(super) fn gemm(node: &Node, known: &Known) -> Option<Dims> {
    let [a, b] = [known.input(node, 0)?, known.input(node, 1)?];
    let turned = |name| node.int(name) == Some(1);
    let rows = a.get(usize::from(turned("transA")))?;
    let columns = b.get(usize::from(!turned("transB")))?;
    Some(vec![*rows, *columns])
}

pub(super) fn matmul(node: &Node, known: &Known) -> Option<Dims> {
    let (a, b) = (known.input(node, 0)?, known.input(node, 1)?);
    let ([many @ .., rows, _], [more @ .., _, columns]) = (a, b) else {
        return None;
    };
    let mut dims = broadcast(many, more)?;
    dims.extend([*rows, *columns]);
    Some(dims)
}

pub(super) fn shape(node: &Node, known: &Known) -> Option<Dims> {
    let count = fold(node, known)?.len();
    Some(vec![Some(i64::try_from(count).ok()?)])
}

pub(super) fn constant(node: &Node, _: &Known) -> Option<Dims> {
    let attribute = node.attribute.first()?;
    match &*attribute.name {
        "value_int" | "value_float" => Some(vec![]),
        "value_ints" => Some(vec![Some(attribute.ints.len() as i64)]),
        "value_floats" => Some(vec![Some(attribute.floats.len() as i64)]),
        _ => None,
    }
}

pub(super) fn filled(node: &Node, known: &Known) -> Option<Dims> {
    Some(known.input_values(node, 0)?.ints().collect())
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
