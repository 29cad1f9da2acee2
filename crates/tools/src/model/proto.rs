//! ONNX's messages, as far as shapes need them: fields that are not here are skipped while reading, and so are the
//! values of large tensors. The numbers are those of onnx.proto.

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut},
    encoding::{self, DecodeContext, WireType},
};

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    /// Version of the format.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// What it computes.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    /// The operators that its nodes name.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    /// Operators that it defines itself.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<Function>,
}

/// A version of a set of operators.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    /// Whose; empty for ONNX's own.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Which one.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// An operator that is made of others.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// The operator.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it is made of.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<Node>,
    /// Whose it is.
    #[prost(string, tag = "10")]
    pub domain: String,
}

/// Nodes in an order in which they can be computed.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    /// The nodes.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    /// Weights and other constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Constant>,
    /// What it is given; in old files the initialisers are listed here too.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    /// What it answers.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
    /// What is known of tensors in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfo>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Names of tensors; an empty one is an input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of tensors.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its own name; may be empty.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Its attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    /// Whose operator it is; empty for ONNX's own.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// An attribute of a node: of its values the one that has its type.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Which one.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// An integer.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// A text.
    #[prost(bytes = "vec", tag = "4")]
    pub s: Vec<u8>,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<Constant>,
    /// A body, as of If and Loop.
    #[prost(message, optional, tag = "6")]
    pub g: Option<Graph>,
    /// Numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Integers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Bodies.
    #[prost(message, repeated, tag = "11")]
    pub graphs: Vec<Graph>,
    /// Which of the values it has.
    #[prost(int32, tag = "20")]
    pub r#type: i32,
}

/// What is known of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it is.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

/// What a value is.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    /// A tensor, where it is one.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

/// Element type and shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// Number of the element type.
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// The shape, if it is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// Sizes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    /// One for each dimension.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// A size, a name for one, or neither.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// The size.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// What it is called where it is not fixed.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// A tensor with its values.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Its sizes.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// Number of the element type.
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Values of 32-bit floats.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Values of integers of up to 32 bits.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Values of 64-bit integers.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Values of any type as they lie in memory, the lowest byte first.
    #[prost(bytes = "vec", tag = "9")]
    pub raw_data: Vec<u8>,
}

/// A [`Tensor`] whose values are read only where they are few, as those of a shape are: what weights hold is
/// skipped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constant(pub Tensor);

/// Most bytes of the values that are read, more than any shape has.
const MOST_BYTES: u64 = 4096;

/// The fields of [`Tensor`] that hold values.
const VALUES: [u32; 4] = [4, 5, 7, 9];

impl Message for Constant {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        self.0.encode_raw(buf);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        if !VALUES.contains(&tag) {
            return self.0.merge_field(tag, wire_type, buf, ctx);
        }
        let tensor = &self.0;
        let values = tensor.float_data.len() + tensor.int32_data.len() + tensor.int64_data.len();
        if wire_type != WireType::LengthDelimited {
            // One value; a shape has few.
            return match values as u64 * 4 < MOST_BYTES {
                true => self.0.merge_field(tag, wire_type, buf, ctx),
                false => encoding::skip_field(wire_type, tag, buf, ctx),
            };
        }
        let length = encoding::decode_varint(buf)?;
        let mut head = Vec::new();
        encoding::encode_varint(length, &mut head);
        if length > MOST_BYTES || length > buf.remaining() as u64 {
            // Its length is put back before it, and says whether the file has so much.
            return encoding::skip_field(wire_type, tag, &mut (&head[..]).chain(buf), ctx);
        }
        let values = buf.copy_to_bytes(length as usize);
        self.0
            .merge_field(tag, wire_type, &mut (&head[..]).chain(values), ctx)
    }

    fn encoded_len(&self) -> usize {
        self.0.encoded_len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
