//! The shapes of a graph's tensors: those that the file says, and what follows from them node by node.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    ops,
    proto::{Graph, Node, Tensor, TensorType, ValueInfo},
    values::Values,
};

/// A size, if it is known; never negative.
pub(super) type Dim = Option<i64>;

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
    fn constant(&mut self, name: &'a str, tensor: &Tensor) {
        let dims = tensor.dims.iter().map(|size| (*size >= 0).then_some(*size));
        self.dims.insert(name, dims.collect());
        self.types.insert(name, tensor.data_type);
        if let Some(values) = Values::of(tensor) {
            self.values.insert(name, values);
        }
    }

    /// Takes what the file says of a tensor.
    fn told(&mut self, info: &'a ValueInfo) {
        let Some(TensorType { elem_type, shape }) = tensor(info) else {
            return;
        };
        self.types.insert(&info.name, *elem_type);
        let Some(shape) = shape else { return };
        let size = |dim: &super::proto::Dimension| match (&dim.dim_value, &dim.dim_param) {
            (Some(size), _) if *size > 0 => Some(*size),
            (Some(_), _) => None, // -1 and 0 stand for any size in old files
            (None, Some(name)) => self.sizes.get(&**name).copied(),
            (None, None) => None,
        };
        let dims = shape.dim.iter().map(size).collect();
        self.dims.insert(&info.name, dims);
    }

    /// Takes what follows for an output of a node; what the file says goes before.
    fn follows(&mut self, name: &'a str, dims: Vec<Dim>) {
        let dims = dims.into_iter().map(|dim| dim.filter(|size| *size >= 0));
        let dims: Vec<Dim> = dims.collect();
        let told = self.dims.entry(name).or_insert_with(|| dims.clone());
        if told.len() == dims.len() {
            for (told, follows) in told.iter_mut().zip(dims) {
                *told = told.or(follows);
            }
        }
    }

    /// What follows from a node for the tensors that it makes.
    fn node(&mut self, node: &'a Node) {
        if !node.is_standard() {
            return;
        }
        if node.op_type == "Constant"
            && let Some(value) = node.attribute("value")
            && let Some(tensor) = &value.t
        {
            self.constant(node.gives(), &tensor.0);
        }
        let follows = ops::outputs(node, self).unwrap_or_default();
        for (name, dims) in node.output.iter().zip(follows) {
            self.follows(name, dims);
        }
        // Values are followed where they are a list.
        let is_list = self.dims(node.gives()).is_some_and(|dims| dims.len() <= 1);
        if let Some(values) = Values::from_node(node, self).filter(|_| is_list) {
            self.values.insert(node.gives(), values);
        }
    }
}

/// The type of a tensor, if that is what it is.
pub(super) fn tensor(info: &ValueInfo) -> Option<&TensorType> {
    info.r#type.as_ref()?.tensor_type.as_ref()
}

/// The inputs of a graph that are no weights.
pub(super) fn inputs(graph: &Graph) -> impl Iterator<Item = &ValueInfo> {
    let constants = graph.initializer.iter();
    let constants: HashSet<&str> = constants.map(|constant| &*constant.0.name).collect();
    let inputs = graph.input.iter();
    inputs.filter(move |input| !constants.contains(&*input.name))
}

/// A graph, with the graphs in its nodes, that was walked from its inputs to its outputs.
pub(super) struct Walk<'a> {
    /// What is known of its tensors in the end.
    pub known: Known<'a>,
    /// The nodes in the order of the file, those of a body before the node that has it.
    pub nodes: Vec<&'a Node>,
    /// The place of the node that makes a tensor.
    pub makers: HashMap<&'a str, usize>,
    /// The nodes that read a tensor.
    pub readers: HashMap<&'a str, Vec<usize>>,
    /// The tensors that graphs answer.
    pub answers: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    /// Walks.
    pub fn of(graph: &'a Graph, known: Known<'a>) -> Self {
        let mut walk = Walk {
            known,
            nodes: Vec::new(),
            makers: HashMap::new(),
            readers: HashMap::new(),
            answers: HashSet::new(),
        };
        walk.graph(graph);
        walk
    }

    fn graph(&mut self, graph: &'a Graph) {
        for info in [&graph.input, &graph.value_info, &graph.output]
            .into_iter()
            .flatten()
        {
            self.known.told(info);
        }
        // Old files list weights among the inputs as well; these say more.
        for constant in &graph.initializer {
            self.known.constant(&constant.0.name, &constant.0);
        }
        let answers = graph.output.iter().map(|output| &*output.name);
        self.answers.extend(answers);
        for node in &graph.node {
            for body in node.bodies() {
                self.graph(body);
            }
            self.known.node(node);
            let place = self.nodes.len();
            for name in &node.input {
                self.readers.entry(name).or_default().push(place);
            }
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            self.makers
                .extend(outputs.map(|name| (name.as_str(), place)));
            self.nodes.push(node);
        }
    }

    /// Where the shape of a tensor is lost: the first node on the way to it whose output is not known though its
    /// inputs are, or the input of the model that is not.
    pub fn lost(&self, tensor: &'a str) -> String {
        let unknown = |name: &&str| {
            let dims = self.known.dims(name);
            !name.is_empty() && dims.is_none_or(|dims| dims.contains(&None))
        };
        let mut at = tensor;
        // No chain is longer than there are nodes, but a damaged file may have a ring.
        for _ in 0..self.nodes.len() {
            let Some(place) = self.makers.get(at) else {
                break;
            };
            let node = self.nodes[*place];
            match node.input.iter().map(String::as_str).find(unknown) {
                Some(before) => at = before,
                None => return format!("it is lost in {}", title(node)),
            }
        }
        format!("it comes from `{at}`")
    }

    /// How many nodes there are of kinds that are convolutions of another sort.
    pub fn others(&self) -> BTreeMap<&'a str, usize> {
        let mut counts = BTreeMap::new();
        let others = self.nodes.iter().filter(|node| {
            node.op_type.contains("Conv") && !node.is_conv() && node.op_type != "ConvertLike"
        });
        for node in others {
            *counts.entry(&*node.op_type).or_default() += 1;
        }
        counts
    }
}

/// `Resize node `/up/Resize``.
pub(super) fn title(node: &Node) -> String {
    let domain = match node.is_standard() {
        true => String::new(),
        false => format!("{}.", node.domain),
    };
    let name = match node.name.is_empty() {
        true => node.gives(),
        false => &node.name,
    };
    format!("the {domain}{} node `{name}`", node.op_type)
}

/// `1x3x?x?`.
pub(super) fn spelled(dims: &[Dim]) -> String {
    let sizes = dims
        .iter()
        .map(|dim| dim.map_or("?".to_owned(), |size| size.to_string()));
    sizes.collect::<Vec<_>>().join("x")
}
