//! What a node says of itself.

use super::proto::{Attribute, Graph, Node};

impl Node {
    /// Whether it is one of ONNX's own operators.
    pub(super) fn is_standard(&self) -> bool {
        matches!(&*self.domain, "" | "ai.onnx")
    }

    /// Whether it is a convolution.
    pub(super) fn is_conv(&self) -> bool {
        self.is_standard() && self.op_type == "Conv"
    }

    /// The name of an input that is there.
    pub(super) fn takes(&self, index: usize) -> Option<&str> {
        let name = self.input.get(index)?;
        (!name.is_empty()).then_some(name)
    }

    /// The name of its first output.
    pub(super) fn gives(&self) -> &str {
        self.output.first().map_or("", String::as_str)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attribute
            .iter()
            .find(|attribute| attribute.name == name)
    }

    /// An integer.
    pub(super) fn int(&self, name: &str) -> Option<i64> {
        self.attribute(name).map(|attribute| attribute.i)
    }

    /// Integers.
    pub(super) fn ints(&self, name: &str) -> Option<&[i64]> {
        self.attribute(name).map(|attribute| &attribute.ints[..])
    }

    /// The bodies of If, Loop and Scan.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &Graph> {
        let attributes = self.attribute.iter();
        attributes.flat_map(|attribute| attribute.g.iter().chain(&attribute.graphs))
    }
}
