//! Models put together call by call.

use convforge_tools::model::proto::{
    Attribute, Constant, Dimension, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType,
    Type, ValueInfo,
};

const FLOAT: i32 = 1;
const INT64: i32 = 7;

/// A model that is being put together.
pub struct Build {
    graph: Graph,
    opset: i64,
}

impl Build {
    /// One with these operators and one input, `x`: `1 3 h w`.
    pub fn new(opset: i64, x: &str) -> Self {
        let build = Build {
            graph: Graph::default(),
            opset,
        };
        build.input("x", x)
    }

    pub fn input(mut self, name: &str, sizes: &str) -> Self {
        self.graph.input.push(info(name, sizes));
        self
    }

    /// What the file says of a tensor in between.
    pub fn told(mut self, name: &str, sizes: &str) -> Self {
        self.graph.value_info.push(info(name, sizes));
        self
    }

    /// Weights of zeros.
    pub fn weights(self, name: &str, dims: &[i64]) -> Self {
        let count: i64 = dims.iter().product();
        self.constant(Tensor {
            dims: dims.to_vec(),
            data_type: FLOAT,
            name: name.to_owned(),
            raw_data: vec![0; 4 * count as usize],
            ..Tensor::default()
        })
    }

    pub fn ints(self, name: &str, values: &[i64]) -> Self {
        self.constant(ints(name, values))
    }

    pub fn floats(self, name: &str, values: &[f32]) -> Self {
        self.constant(Tensor {
            dims: vec![values.len() as i64],
            data_type: FLOAT,
            name: name.to_owned(),
            float_data: values.to_vec(),
            ..Tensor::default()
        })
    }

    /// One number, of no dimension.
    pub fn float(self, name: &str, value: f32) -> Self {
        self.constant(Tensor {
            data_type: FLOAT,
            name: name.to_owned(),
            float_data: vec![value],
            ..Tensor::default()
        })
    }

    pub fn constant(mut self, tensor: Tensor) -> Self {
        self.graph.initializer.push(Constant(tensor));
        self
    }

    /// `node("y = Conv x w", &[pads(&[1, 1, 1, 1])])`; the node is called as its first output, in capitals. An input
    /// `_` is left out.
    pub fn node(mut self, text: &str, attribute: &[Attribute]) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        let middle = words.iter().position(|word| *word == "=").unwrap();
        let named = |words: &[&str]| {
            let names = words.iter().map(|word| word.trim_matches('_').to_owned());
            names.collect::<Vec<_>>()
        };
        let (domain, op_type) = match words[middle + 1].rsplit_once('.') {
            Some((domain, op)) => (domain, op),
            None => ("", words[middle + 1]),
        };
        self.graph.node.push(Node {
            input: named(&words[middle + 2..]),
            output: named(&words[..middle]),
            name: words[0].to_uppercase(),
            op_type: op_type.to_owned(),
            attribute: attribute.to_vec(),
            domain: domain.to_owned(),
        });
        self
    }

    /// A convolution of so many filters and no attributes but these; `pads` and the like. Its weights are made.
    pub fn conv(self, y: &str, x: &str, weights: &[i64], attribute: &[Attribute]) -> Self {
        let w = format!("{y}w");
        self.weights(&w, weights)
            .node(&format!("{y} = Conv {x} {w}"), attribute)
    }

    /// The model, with one output.
    pub fn answers(mut self, output: &str) -> Model {
        self.graph.output.push(ValueInfo {
            name: output.to_owned(),
            r#type: Some(Type {
                tensor_type: Some(TensorType {
                    elem_type: FLOAT,
                    shape: None,
                }),
            }),
        });
        Model {
            ir_version: 8,
            graph: Some(self.graph),
            opset_import: vec![OperatorSet {
                domain: String::new(),
                version: self.opset,
            }],
            functions: Vec::new(),
        }
    }
}

/// A tensor of integers by itself, as of the node Constant.
pub fn ints(name: &str, values: &[i64]) -> Tensor {
    Tensor {
        dims: vec![values.len() as i64],
        data_type: INT64,
        name: name.to_owned(),
        raw_data: values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        ..Tensor::default()
    }
}

fn info(name: &str, sizes: &str) -> ValueInfo {
    let dim = |word: &str| Dimension {
        dim_value: word.parse().ok(),
        dim_param: word
            .parse::<i64>()
            .is_err()
            .then(|| word.trim_matches('?').to_owned()),
    };
    ValueInfo {
        name: name.to_owned(),
        r#type: Some(Type {
            tensor_type: Some(TensorType {
                elem_type: FLOAT,
                shape: Some(Shape {
                    dim: sizes.split_whitespace().map(dim).collect(),
                }),
            }),
        }),
    }
}

/// An attribute of one integer.
pub fn int(name: &str, value: i64) -> Attribute {
    Attribute {
        name: name.to_owned(),
        i: value,
        r#type: 2,
        ..Attribute::default()
    }
}

/// An attribute of one number.
pub fn float(name: &str, value: f32) -> Attribute {
    Attribute {
        name: name.to_owned(),
        f: value,
        r#type: 1,
        ..Attribute::default()
    }
}

/// An attribute of integers.
pub fn list(name: &str, values: &[i64]) -> Attribute {
    Attribute {
        name: name.to_owned(),
        ints: values.to_vec(),
        r#type: 7,
        ..Attribute::default()
    }
}

/// An attribute of numbers.
pub fn floats(name: &str, values: &[f32]) -> Attribute {
    Attribute {
        name: name.to_owned(),
        floats: values.to_vec(),
        r#type: 6,
        ..Attribute::default()
    }
}

/// An attribute that is a word.
pub fn word(name: &str, value: &str) -> Attribute {
    Attribute {
        name: name.to_owned(),
        s: value.as_bytes().to_vec(),
        r#type: 3,
        ..Attribute::default()
    }
}

/// An attribute that is a tensor.
pub fn value(tensor: Tensor) -> Attribute {
    Attribute {
        name: "value".to_owned(),
        t: Some(Constant(tensor)),
        r#type: 4,
        ..Attribute::default()
    }
}

/// An attribute that is a body.
pub fn body(name: &str, graph: Graph) -> Attribute {
    Attribute {
        name: name.to_owned(),
        g: Some(graph),
        r#type: 5,
        ..Attribute::default()
    }
}
