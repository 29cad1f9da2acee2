//! What is known of a graph's tensors: shapes, element types, values of small ones.

use std::collections::HashMap;

use super::{
    proto::{Dimension, Node, Tensor, TensorType, ValueInfo},
    values::Values,
};

/// A size, if it is known; never negative.
pub(super) type Dim = Option<i64>;

/// A shape whose rank is known.
pub(super) type Dims = Vec<Dim>;

/// What is known of tensors, by their names.
#[derive(Default)]
pub(super) struct Known<'a> {
    dims: HashMap<&'a str, Vec<Dim>>,
    values: HashMap<&'a str, Values>,
    types: HashMap<&'a str, i32>,
    /// The sizes that were given to names in place of sizes.
    sizes: HashMap<&'a str, i64>,
}

impl<'a> Known<'a> {
    /// Nothing but sizes for names of sizes.
    pub fn new(sizes: HashMap<&'a str, i64>) -> Self {
        Known {
            sizes,
            ..Known::default()
        }
    }

    /// The shape of a tensor, if its rank is known.
    pub fn dims(&self, name: &str) -> Option<&[Dim]> {
        self.dims.get(name).map(Vec::as_slice)
    }

    /// The values of a small tensor.
    pub fn values(&self, name: &str) -> Option<&Values> {
        self.values.get(name)
    }

    /// The number of a tensor's element type.
    pub fn elements(&self, name: &str) -> Option<i32> {
        self.types.get(name).copied()
    }

    /// The shape of a node's input.
    pub fn input(&self, node: &Node, index: usize) -> Option<&[Dim]> {
        self.dims(node.takes(index)?)
    }

    /// The values of a node's input.
    pub fn input_values(&self, node: &Node, index: usize) -> Option<&Values> {
        self.values(node.takes(index)?)
    }

    /// Takes what a tensor with values is.
    pub fn constant(&mut self, name: &'a str, tensor: &Tensor) {
        let dims = tensor.dims.iter().map(|size| (*size >= 0).then_some(*size));
        self.dims.insert(name, dims.collect());
        self.types.insert(name, tensor.data_type);
        if let Some(values) = Values::of(tensor) {
            self.values.insert(name, values);
        }
    }

    /// Takes what the file says of a tensor.
    pub fn declared(&mut self, info: &'a ValueInfo) {
        let Some(TensorType { elem_type, shape }) = tensor(info) else {
            return;
        };
        self.types.insert(&info.name, *elem_type);
        let Some(shape) = shape else { return };
        let size = |dim: &Dimension| match (&dim.dim_value, &dim.dim_param) {
            (Some(size), _) if *size > 0 => Some(*size),
            (Some(_), _) => None, // -1 and 0 stand for any size in old files
            (None, Some(name)) => self.sizes.get(&**name).copied(),
            (None, None) => None,
        };
        let dims = shape.dim.iter().map(size).collect();
        self.dims.insert(&info.name, dims);
    }

    /// Takes what follows for an output of a node; what the file says goes before.
    pub fn follows(&mut self, name: &'a str, dims: Vec<Dim>) {
        let dims = dims.into_iter().map(|dim| dim.filter(|size| *size >= 0));
        let dims: Vec<Dim> = dims.collect();
        let known = self.dims.entry(name).or_insert_with(|| dims.clone());
        if known.len() == dims.len() {
            for (known, follows) in known.iter_mut().zip(dims) {
                *known = known.or(follows);
            }
        }
    }

    /// Takes values that a node computes.
    pub fn computes(&mut self, name: &'a str, values: Values) {
        self.values.insert(name, values);
    }
}

/// The type of a tensor, if that is what it is.
pub(super) fn tensor(info: &ValueInfo) -> Option<&TensorType> {
    info.r#type.as_ref()?.tensor_type.as_ref()
}

/// `1x3x?x?`.
pub(super) fn spelled(dims: &[Dim]) -> String {
    let sizes = dims
        .iter()
        .map(|dim| dim.map_or("?".to_owned(), |size| size.to_string()));
    sizes.collect::<Vec<_>>().join("x")
}
