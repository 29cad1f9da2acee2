//! Constant folding: exporters compute the sizes of Reshape, Resize and others within the graph.

use super::{
    super::{known::Known, proto::Node, values::Values},
    axes::slices,
};

/// What a node computes, for the operators that exporters compute sizes with.
pub(in super::super) fn fold(node: &Node, known: &Known) -> Option<Values> {
    let input = |index| known.input_values(node, index);
    let values = match &*node.op_type {
        "Constant" => Values::of_attribute(node),
        "Shape" => shape(node, known),
        "Identity" | "Squeeze" | "Unsqueeze" | "Reshape" => input(0).cloned(),
        "Cast" => input(0)?.cast(node.int("to")?),
        "Floor" => input(0)?.each(f64::floor),
        "Ceil" => input(0)?.each(f64::ceil),
        "Gather" => input(0)?.gathered(input(1)?),
        "Concat" => concat(node, known),
        "Slice" => slice(node, known),
        "Add" => input(0)?.with(input(1)?, |a, b| a + b),
        "Sub" => input(0)?.with(input(1)?, |a, b| a - b),
        "Mul" => input(0)?.with(input(1)?, |a, b| a * b),
        "Div" => input(0)?.with(input(1)?, |a, b| a / b),
        _ => None,
    }?;
    values.are_few().then_some(values)
}

fn shape(node: &Node, known: &Known) -> Option<Values> {
    let dims = known.input(node, 0)?;
    let rank = dims.len() as i64;
    let place = |name: &str, default: i64| {
        let at = node.int(name).unwrap_or(default);
        let at = if at < 0 { at.saturating_add(rank) } else { at };
        at.clamp(0, rank) as usize
    };
    let (start, end) = (place("start", 0), place("end", rank));
    Some(Values::integers(
        dims[start..end.max(start)].iter().copied(),
    ))
}

fn concat(node: &Node, known: &Known) -> Option<Values> {
    let parts = (0..node.input.len()).map(|i| known.input_values(node, i));
    Values::concat(&parts.collect::<Option<Vec<_>>>()?)
}

fn slice(node: &Node, known: &Known) -> Option<Values> {
    let values = known.input_values(node, 0)?;
    let [slice] = &slices(node, known, 1)?[..] else {
        return None;
    };
    values.at(slice.places(values.len() as i64)?)
}
