//! What shapes ONNX's operators make of their inputs' shapes.
//!
//! | file | whose |
//! | --- | --- |
//! | `images` | windows that slide over images, and other sizes of images |
//! | `axes` | parts of tensors, and other axes |
//! | `elements` | element by element, products, and shapes as values |
//! | `folding` | values that follow, beside shapes |
//!
//! An argument that was an attribute in an older version of an operator and is an input in a newer one is looked for
//! as both, so that versions need not be told apart.

mod axes;
mod elements;
mod folding;
mod images;

use super::{
    known::{Dims, Known},
    proto::Node,
};

pub(super) use folding::fold;

/// The shapes of a node's outputs, as far as they are asked for; none where the operator is not followed. Of a
/// damaged file they may be negative.
pub(super) fn outputs(node: &Node, known: &Known) -> Option<Vec<Dims>> {
    match &*node.op_type {
        "Split" => axes::split(node, known),
        _ => Some(vec![output(node, known)?]),
    }
}

/// The shape of a node's first output.
fn output(node: &Node, known: &Known) -> Option<Dims> {
    let is_of = |(names, _): &&(&[&str], Rule)| names.contains(&&*node.op_type);
    match RULES.iter().find(is_of) {
        Some((_, rule)) => rule(node, known),
        None if node.op_type.starts_with("Reduce") => axes::reduce(node, known),
        None => None,
    }
}

/// What follows for the shape of a node's first output.
type Rule = fn(&Node, &Known) -> Option<Dims>;

/// The operators that are followed, beside those that reduce and Split.
const RULES: [(&[&str], Rule); 24] = [
    (&["Conv"], images::conv),
    (&["ConvTranspose"], images::transposed_conv),
    (&["MaxPool", "AveragePool", "LpPool"], images::pool),
    (
        &["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"],
        images::global_pool,
    ),
    (&["Resize", "Upsample"], images::resize),
    (&["DepthToSpace", "SpaceToDepth"], images::blocks),
    (&["Concat"], axes::concat),
    (&["Pad"], axes::pad),
    (&["Slice"], axes::slice),
    (&["Gather"], axes::gather),
    (&["Transpose"], axes::transpose),
    (&["Reshape"], axes::reshape),
    (&["Flatten"], axes::flatten),
    (&["Squeeze"], axes::squeeze),
    (&["Unsqueeze"], axes::unsqueeze),
    (&["Gemm"], elements::gemm),
    (&["MatMul"], elements::matmul),
    (&["Expand"], elements::expand),
    (&["Where"], elements::choice),
    (&["Shape"], elements::shape),
    (&["Constant"], elements::constant),
    (&["ConstantOfShape"], elements::filled),
    (&BROADCASTING, elements::broadcasting),
    (&KEEPING, elements::keeping),
];

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the first rule of an operator would ever be asked.
    #[test]
    fn no_operator_has_two_rules() {
        let mut all: Vec<&str> = RULES
            .iter()
            .flat_map(|(names, _)| *names)
            .copied()
            .collect();
        all.extend(["Split"]);
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|name| !name.starts_with("Reduce")));
    }
}
