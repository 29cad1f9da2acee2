//! A Conv node as a problem.

use convforge::{Activation, Epilogue, Padding, Problem, Shape, Storage};

use super::{
    known::{Dim, spelled},
    proto::Node,
    shapes::Walk,
    window::{self, Axis},
};

/// What the element types of ONNX that are floats are stored as.
const STORAGES: [(i32, Storage); 3] = [(1, Storage::F32), (10, Storage::F16), (16, Storage::Bf16)];

/// Why a node is no problem.
pub(super) enum Refusal {
    /// A shape is not known.
    Unknown(String),
    /// It is something else.
    Other(String),
}

impl Refusal {
    pub fn why(&self) -> &str {
        match self {
            Refusal::Unknown(why) | Refusal::Other(why) => why,
        }
    }
}

impl<'a> Walk<'a> {
    /// The problem of a Conv node; with `fuse` what follows it stands in the epilogue.
    pub fn problem(&self, place: usize, fuse: bool) -> Result<Problem, Refusal> {
        let node = self.nodes[place];
        let mut shape = self.shape(node)?;
        shape.epilogue.bias = node.takes(2).is_some();
        if fuse {
            self.fuse(place, &mut shape.epilogue);
        }
        Problem::new(shape).map_err(|why| Refusal::Other(why.to_string()))
    }

    fn shape(&self, node: &'a Node) -> Result<Shape, Refusal> {
        let (x, w) = (
            self.dims_of(node, 0, "input")?,
            self.dims_of(node, 1, "weights")?,
        );
        let other = |why: String| Err(Refusal::Other(why));
        if x.len() != w.len() {
            let (x, w) = (spelled(x), spelled(w));
            return other(format!("an input of {x} does not go with weights of {w}"));
        }
        let dims = x.len().saturating_sub(2);
        if !(1..=2).contains(&dims) {
            return other(format!(
                "it is a convolution of {dims} dimensions; those of 1 and 2 can be computed"
            ));
        }
        let unknown = |what: &str, dims| {
            let name = node
                .takes(usize::from(what == "weights"))
                .unwrap_or_default();
            let why = format!("its {what} `{name}` is {}", spelled(dims));
            Refusal::Unknown(format!("{why}; {}", self.lost(name)))
        };
        let [n, c, image @ ..] = &sizes(x).ok_or_else(|| unknown("input", x))?[..] else {
            return other("its input has no channels".to_owned());
        };
        let [k, per_group, kernel @ ..] = &sizes(w).ok_or_else(|| unknown("weights", w))?[..]
        else {
            return other("its weights have no channels".to_owned());
        };
        let groups = node.int("group").unwrap_or(1);
        if per_group.checked_mul(groups) != Some(*c) {
            return other(format!(
                "{c} input channels do not go with weights of {} in {groups} groups",
                spelled(w)
            ));
        }
        let axes = window::axes(node, kernel, &x[2..]).map_err(Refusal::Other)?;
        // A convolution of one dimension is one of images one pixel high.
        let one = Axis {
            kernel: 1,
            stride: 1,
            dilation: 1,
            pad: [0; 2],
        };
        let ([h, w], [down, across]) = match (image, &axes[..]) {
            ([w], [across]) => ([1, *w], [one, *across]),
            ([h, w], [down, across]) => ([*h, *w], [*down, *across]),
            _ => return other("its axes do not go together".to_owned()),
        };
        let storage = self.storage(node)?;
        let shape = Shape {
            stride: [down.stride, across.stride].map(size),
            dilation: [down.dilation, across.dilation].map(size),
            pad: Padding {
                top: size(down.pad[0]),
                left: size(across.pad[0]),
                bottom: size(down.pad[1]),
                right: size(across.pad[1]),
            },
            groups: size(groups),
            storage,
            math: storage.maths()[0],
            ..Shape::new(
                size(*n),
                [size(*c), size(h), size(w)],
                size(*k),
                [down.kernel, across.kernel].map(size),
            )
        };
        Ok(shape)
    }

    /// The shape of an input that a convolution must have.
    fn dims_of(&self, node: &'a Node, index: usize, what: &str) -> Result<&[Dim], Refusal> {
        let Some(name) = node.takes(index) else {
            return Err(Refusal::Other(format!("it has no {what}")));
        };
        self.known.dims(name).ok_or_else(|| {
            let lost = self.lost(name);
            Refusal::Unknown(format!(
                "the shape of its {what} `{name}` is not known; {lost}"
            ))
        })
    }

    /// What it is stored as: the type of the first of its tensors whose type is known.
    fn storage(&self, node: &Node) -> Result<Storage, Refusal> {
        let tensors = [node.takes(1), node.takes(0), Some(node.gives())];
        let mut types = tensors.into_iter().flatten();
        let Some(elements) = types.find_map(|name| self.known.elements(name)) else {
            return Ok(Storage::F32);
        };
        let storage = STORAGES.iter().find(|(number, _)| *number == elements);
        let refusal = || {
            Refusal::Other(format!(
                "its elements are of ONNX's type {elements}; f32, f16 and bf16 can be computed"
            ))
        };
        storage.map(|(_, storage)| *storage).ok_or_else(refusal)
    }

    /// Takes what follows a convolution into its epilogue, as far as nothing else reads what is between: a
    /// normalisation, whose factors go into the weights and whose rest is a bias; a tensor of the same shape that
    /// is added; an activation.
    fn fuse(&self, place: usize, epilogue: &mut Epilogue) {
        let mut at = self.nodes[place].gives();
        loop {
            if let Some(activation) = self.activation(at) {
                epilogue.activation = activation;
                return;
            }
            let Some(next) = self.only_reader(at) else {
                return;
            };
            match &*next.op_type {
                "BatchNormalization" if !epilogue.residual && next.takes(0) == Some(at) => {
                    epilogue.bias = true;
                }
                "Add" if !epilogue.residual && self.adds(next, at, place) => {
                    epilogue.residual = true;
                }
                _ => return,
            }
            at = next.gives();
        }
    }

    /// The places of the nodes that read a tensor; none where anyone else asks for it, or where one of them does not
    /// come after the node that makes it: a damaged file may have rings.
    fn readers(&self, tensor: &str) -> &[usize] {
        let Some((maker, readers)) = self.makers.get(tensor).zip(self.readers.get(tensor)) else {
            return &[];
        };
        let is_sound = readers.iter().all(|reader| reader > maker);
        match is_sound && !self.answers.contains(tensor) {
            true => readers,
            false => &[],
        }
    }

    /// The node that reads a tensor, where there is one only and no one else asks for it.
    fn only_reader(&self, tensor: &str) -> Option<&'a Node> {
        match self.readers(tensor) {
            [place] => Some(self.nodes[*place]).filter(|node| node.is_standard()),
            _ => None,
        }
    }

    /// Whether a node adds to `tensor` another one of the same shape, which is there before the convolution.
    fn adds(&self, node: &Node, tensor: &str, conv: usize) -> bool {
        let [a, b] = &node.input[..] else {
            return false;
        };
        let other = if a == tensor { b } else { a };
        let dims = |name| self.known.dims(name).and_then(sizes);
        let is_there = self.makers.get(&**other).is_none_or(|maker| *maker < conv);
        is_there && dims(tensor).is_some() && dims(tensor) == dims(other)
    }

    /// The activation of a tensor that nothing else reads.
    fn activation(&self, tensor: &str) -> Option<Activation> {
        if let [a, b] = self.readers(tensor) {
            return self.is_silu([*a, *b]).then_some(Activation::Silu);
        }
        let node = self.only_reader(tensor)?;
        match &*node.op_type {
            "Relu" => Some(Activation::Relu),
            "Tanh" => Some(Activation::Tanh),
            "Sigmoid" => Some(Activation::Sigmoid),
            "Clip" => self.is_relu6(node).then_some(Activation::Relu6),
            _ => None,
        }
    }

    /// Whether two nodes that read a tensor multiply it by its own sigmoid.
    fn is_silu(&self, places: [usize; 2]) -> bool {
        let [a, b] = places.map(|place| self.nodes[place]);
        let multiplies = |sigmoid: &Node, mul: &Node| {
            let is_own = sigmoid.op_type == "Sigmoid" && mul.op_type == "Mul";
            let reader = self.only_reader(sigmoid.gives());
            is_own && mul.input.len() == 2 && reader.is_some_and(|reader| std::ptr::eq(reader, mul))
        };
        multiplies(a, b) || multiplies(b, a)
    }

    fn is_relu6(&self, clip: &Node) -> bool {
        let bound = |name: &str, index: usize| match clip.attribute(name) {
            Some(attribute) => Some(attribute.f),
            None => self
                .known
                .input_values(clip, index)?
                .all_floats()?
                .first()
                .copied(),
        };
        (bound("min", 1), bound("max", 2)) == (Some(0.0), Some(6.0))
    }
}

/// A size that is not negative, as none is here.
fn size(size: i64) -> usize {
    usize::try_from(size).unwrap_or(0)
}

/// All sizes, if they are known.
fn sizes(dims: &[Dim]) -> Option<Vec<i64>> {
    dims.iter().copied().collect()
}
