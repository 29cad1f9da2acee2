//! The shapes of a graph's tensors: those that the file says, and what follows from them node by node.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{
    known::Known,
    ops,
    proto::{Graph, Node, ValueInfo},
};

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
            self.known.declared(info);
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
            self.infer(node);
            let place = self.nodes.len();
            for name in node.input.iter().filter(|name| !name.is_empty()) {
                self.readers.entry(name).or_default().push(place);
            }
            let outputs = node.output.iter().filter(|name| !name.is_empty());
            self.makers
                .extend(outputs.map(|name| (name.as_str(), place)));
            self.nodes.push(node);
        }
    }

    /// What follows from a node for the tensors that it makes.
    fn infer(&mut self, node: &'a Node) {
        if !node.is_standard() {
            return;
        }
        if node.op_type == "Constant"
            && let Some(value) = node.attribute("value")
            && let Some(tensor) = &value.t
        {
            self.known.constant(node.gives(), &tensor.0);
        }
        let follows = ops::outputs(node, &self.known).unwrap_or_default();
        for (name, dims) in node.output.iter().zip(follows) {
            self.known.follows(name, dims);
        }
        // Values are followed where they are a list.
        let is_list = self
            .known
            .dims(node.gives())
            .is_some_and(|dims| dims.len() <= 1);
        if let Some(values) = ops::fold(node, &self.known).filter(|_| is_list) {
            self.known.computes(node.gives(), values);
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
