//! The convolutions of a network that an ONNX file describes.
//!
//! The shapes that the file has are trusted; others follow node by node from those of the inputs. Weights are not
//! read: only their sizes matter.

mod conv;
mod file;
mod known;
mod node;
mod ops;
pub mod proto;
mod shapes;
mod values;
mod window;

use std::{collections::HashMap, path::Path};

use convforge::Problem;

use crate::{Error, Result, suite::Layer};
use conv::Refusal;
use known::{Known, tensor};
use proto::{Dimension, Function, Graph};
use shapes::{Walk, inputs, title};

/// What a model's file leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Images, where the first size of the model's inputs is not fixed.
    pub batch: Option<usize>,
    /// Sizes for the names that stand in place of sizes.
    pub sizes: Vec<(String, usize)>,
    /// Whether what follows a convolution is taken into its epilogue, where that has it.
    pub fuse: bool,
    /// Whether Conv nodes that are no problem are left out, rather than an error.
    pub skip_unknown: bool,
}

/// The convolutions of a model.
#[derive(Clone, Debug)]
pub struct Model {
    /// The file's name, which stands as the suite of its layers.
    pub name: String,
    /// Each distinct convolution once, in the order of the file, with the nodes that it stands for. It is called as
    /// the first of them.
    pub layers: Vec<Layer>,
    /// What was left out.
    pub notes: Vec<String>,
}

impl Model {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::File`] where it is no ONNX model, a size is left open, or a Conv node is no problem and not to be
    /// skipped; with the way out.
    pub fn open(path: &Path, asked: &Asked) -> Result<Self> {
        let model = file::read(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Model::of(model, &plain(&name), asked).map_err(|why| Error::file(path, why))
    }

    /// The convolutions of a file that was read.
    fn of(mut model: proto::Model, name: &str, asked: &Asked) -> Result<Self, String> {
        let standard = |domain: &str| matches!(domain, "" | "ai.onnx");
        let mut sets = model.opset_import.iter();
        let graph = model.graph.as_mut();
        let graph = graph.ok_or("has no graph: it is no ONNX model, or not all of one")?;
        // Files older than version 3 of the format name no operators.
        if model.ir_version >= 3 && !sets.any(|set| standard(&set.domain)) {
            return Err("does not say which version of ONNX's operators it has".to_owned());
        }
        let sizes = settle(graph, asked)?;
        let graph = &*graph;
        let known = sizes.iter().map(|(name, size)| (&**name, *size));
        let walk = Walk::of(graph, Known::new(known.collect()));
        let mut found = Found::of(&walk, asked.fuse);
        found.refuse_calls(&walk, &model.functions);
        if !(found.refused.is_empty() || asked.skip_unknown) {
            return Err(found.complaint(graph, &sizes));
        }
        let notes = found.notes(&walk);
        if found.problems.is_empty() {
            let all = match found.refused.is_empty() {
                true => "has no Conv node".to_owned(),
                false => "has no Conv node that can be computed".to_owned(),
            };
            return Err([all]
                .into_iter()
                .chain(notes)
                .collect::<Vec<_>>()
                .join("; "));
        }
        Ok(Model {
            notes: notes.iter().map(|note| format!("{name}: {note}")).collect(),
            layers: merged(name, found.problems),
            name: name.to_owned(),
        })
    }
}

/// Sizes for the names that stand in place of sizes: those that were asked for, and the batch for whatever stands in
/// the first place of an image. A first size without a name is set.
fn settle(graph: &mut Graph, asked: &Asked) -> Result<HashMap<String, i64>, String> {
    let size = |size: usize| i64::try_from(size).map_err(|_| format!("{size} is no size"));
    let names = open_names(graph);
    let mut sizes = HashMap::new();
    for (name, given) in &asked.sizes {
        if !names.contains(name) {
            let close = convforge::Error::closest(name, names.iter().map(String::as_str));
            let close = close.map(|close| format!("; did you mean `{close}`?"));
            let known = match names.is_empty() {
                true => "all are fixed".to_owned(),
                false => format!("those that are open are {}", names.join(", ")),
            };
            return Err(format!(
                "no size of its inputs is called `{name}`: {known}{}",
                close.unwrap_or_default()
            ));
        }
        sizes.insert(name.clone(), size(*given)?);
    }
    if let Some(batch) = asked.batch {
        for dim in batches(graph) {
            match &dim.dim_param {
                Some(name) if !name.is_empty() => {
                    sizes.entry(name.clone()).or_insert(size(batch)?);
                }
                _ => dim.dim_value = Some(size(batch)?),
            }
        }
    }
    Ok(sizes)
}

/// The sizes of a graph's inputs that are not fixed.
fn open_sizes(graph: &Graph) -> impl Iterator<Item = &Dimension> {
    let shapes = inputs(graph).filter_map(|input| tensor(input)?.shape.as_ref());
    let dims = shapes.flat_map(|shape| &shape.dim);
    dims.filter(|dim| is_open(dim))
}

/// Whether a size is not fixed; -1 and 0 stand for any size in old files.
fn is_open(dim: &Dimension) -> bool {
    dim.dim_value.is_none_or(|size| size <= 0)
}

/// The names that stand in place of sizes of a graph's inputs, each once.
fn open_names(graph: &Graph) -> Vec<String> {
    let mut names: Vec<String> = open_sizes(graph)
        .filter_map(|dim| dim.dim_param.clone())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The first sizes of a graph's inputs that are images, where they are not fixed.
fn batches(graph: &mut Graph) -> impl Iterator<Item = &mut Dimension> {
    let inputs = graph.input.iter_mut();
    let shapes = inputs.filter_map(|input| {
        let tensor = input.r#type.as_mut()?.tensor_type.as_mut()?;
        tensor.shape.as_mut().filter(|shape| shape.dim.len() >= 3)
    });
    let first = shapes.filter_map(|shape| shape.dim.first_mut());
    first.filter(|dim| is_open(dim))
}

/// The Conv nodes of a walk.
struct Found {
    /// Names of nodes, and their problems.
    problems: Vec<(String, Problem)>,
    /// Names of nodes that are none.
    refused: Vec<(String, Refusal)>,
    /// All of them.
    count: usize,
}

impl Found {
    fn of(walk: &Walk, fuse: bool) -> Self {
        let convs = walk.nodes.iter().enumerate();
        let convs: Vec<usize> = convs
            .filter(|(_, node)| node.is_conv())
            .map(|(place, _)| place)
            .collect();
        let mut names: HashMap<&str, usize> = HashMap::new();
        for place in &convs {
            *names.entry(&walk.nodes[*place].name).or_default() += 1;
        }
        let mut found = Found {
            problems: Vec::new(),
            refused: Vec::new(),
            count: convs.len(),
        };
        for place in convs {
            let node = walk.nodes[place];
            // What a node gives has a name of its own.
            let is_own = !node.name.is_empty() && names.get(&*node.name) == Some(&1);
            let name = plain(if is_own { &node.name } else { node.gives() });
            match walk.problem(place, fuse) {
                Ok(problem) => found.problems.push((name, problem)),
                Err(refusal) => found.refused.push((name, refusal)),
            }
        }
        found
    }

    /// Nodes that call a function of the file's own in which there are convolutions.
    fn refuse_calls(&mut self, walk: &Walk, functions: &[Function]) {
        let has_conv = |function: &&Function| function.node.iter().any(|node| node.is_conv());
        let functions = functions.iter().filter(has_conv);
        let names = functions.map(|function| (&*function.domain, &*function.name));
        let names: Vec<(&str, &str)> = names.collect();
        for node in &walk.nodes {
            if names.contains(&(&*node.domain, &*node.op_type)) {
                let why = "it calls a function of the file's own with Conv nodes; \
                           onnx.inliner.inline_local_functions puts them in its place";
                self.count += 1;
                self.refused
                    .push((plain(&title(node)), Refusal::Other(why.to_owned())));
            }
        }
    }

    /// Which nodes are no problem, why, and what can be done.
    fn complaint(&self, graph: &Graph, sizes: &HashMap<String, i64>) -> String {
        let unknown = |(_, refusal): &&(String, Refusal)| matches!(refusal, Refusal::Unknown(_));
        let unknown = self.refused.iter().filter(unknown).count();
        if let (true, Some(remedy)) = (unknown > 0, open_inputs(graph, sizes)) {
            return format!("not all sizes of its inputs are fixed: {remedy}");
        }
        let mut text = format!(
            "{} of its {} Conv nodes cannot be computed:",
            self.refused.len(),
            self.count
        );
        for (name, refusal) in &self.refused {
            text += &format!("\n  {name}: {}", refusal.why());
        }
        if unknown > 0 {
            text += "\nMore shapes may be found by: python3 -c \"import onnx; \
                     onnx.shape_inference.infer_shapes_path('model.onnx', 'shapes.onnx')\"";
        }
        text + "\n--skip-unknown leaves these nodes out."
    }

    /// What was left out.
    fn notes(&self, walk: &Walk) -> Vec<String> {
        let refused = self.refused.iter();
        let refused = refused.map(|(name, refusal)| format!("{name} left out: {}", refusal.why()));
        let others = walk.others().into_iter();
        let others = others.map(|(kind, count)| format!("{count} {} left out", plain(kind)));
        refused.chain(others).collect()
    }
}

/// The inputs whose sizes are still open, and the options that fix them.
fn open_inputs(graph: &Graph, sizes: &HashMap<String, i64>) -> Option<String> {
    let is_given = |dim: &Dimension| {
        let name = dim.dim_param.as_ref();
        name.is_some_and(|name| sizes.contains_key(name))
    };
    let (mut options, mut spelled) = (Vec::new(), Vec::new());
    for input in inputs(graph) {
        let Some(shape) = tensor(input).and_then(|tensor| tensor.shape.as_ref()) else {
            continue;
        };
        let is_image = shape.dim.len() >= 3;
        let open = shape.dim.iter().enumerate();
        let open: Vec<_> = open
            .filter(|(_, dim)| is_open(dim) && !is_given(dim))
            .collect();
        for (place, dim) in &open {
            options.extend(match &dim.dim_param {
                _ if *place == 0 && is_image => Some("--batch IMAGES".to_owned()),
                Some(name) if !name.is_empty() => Some(format!("--dim {}=SIZE", plain(name))),
                _ => None,
            });
        }
        if !open.is_empty() {
            let sizes: Vec<String> = shape.dim.iter().map(word).collect();
            spelled.push(format!("`{}` is {}", plain(&input.name), sizes.join("x")));
        }
    }
    options.dedup();
    let remedy = match options.is_empty() {
        true => "fix them in the file".to_owned(),
        false => format!("give {}", options.join(" ")),
    };
    (!spelled.is_empty()).then(|| format!("{}; {remedy}", spelled.join(", ")))
}

/// A size, its name, or a question mark.
fn word(dim: &Dimension) -> String {
    match (dim.dim_value, &dim.dim_param) {
        (Some(size), _) if size > 0 => size.to_string(),
        (_, Some(name)) if !name.is_empty() => plain(name),
        _ => "?".to_owned(),
    }
}

/// Equal problems as one layer, in the order of the first of each.
fn merged(suite: &str, problems: Vec<(String, Problem)>) -> Vec<Layer> {
    let mut places: HashMap<Problem, usize> = HashMap::new();
    let mut layers: Vec<Layer> = Vec::new();
    for (name, problem) in problems {
        let place = *places.entry(problem.clone()).or_insert(layers.len());
        match layers.get_mut(place) {
            Some(layer) => layer.nodes.push(name),
            None => layers.push(Layer {
                suite: suite.to_owned(),
                layer: name.clone(),
                problem,
                nodes: vec![name],
            }),
        }
    }
    layers
}

/// A name as one word that does nothing to a terminal.
fn plain(name: &str) -> String {
    let word = |c: char| {
        if c.is_control() || c.is_whitespace() {
            '_'
        } else {
            c
        }
    };
    name.chars().map(word).collect()
}
