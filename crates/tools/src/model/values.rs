//! Values of small tensors, and arithmetic on them.

use super::proto::{Node, Tensor};

/// Most values that are followed; no shape has so many.
const MOST: usize = 256;

/// Numbers of ONNX's element types.
const FLOAT: i32 = 1;
const INT32: i32 = 6;
const INT64: i32 = 7;

/// The values of a tensor of one dimension or none; one that depends on what is not known is none. An f64 holds all
/// 32-bit floats, and all integers that are sizes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    of: Vec<Option<f64>>,
    /// Whether a division drops what is left over.
    integers: bool,
}

impl Values {
    /// Those of a tensor, if they were read.
    pub fn of(tensor: &Tensor) -> Option<Self> {
        let count: i64 = match tensor.dims[..] {
            [] => 1,
            [count] => count,
            _ => return None,
        };
        let raw = &tensor.raw_data[..];
        let of: Vec<f64> = match tensor.data_type {
            FLOAT if raw.is_empty() => tensor.float_data.iter().map(|v| f64::from(*v)).collect(),
            FLOAT => numbers(raw, |bytes| f64::from(f32::from_le_bytes(bytes))),
            INT32 if raw.is_empty() => tensor.int32_data.iter().map(|v| f64::from(*v)).collect(),
            INT32 => numbers(raw, |bytes| f64::from(i32::from_le_bytes(bytes))),
            INT64 if raw.is_empty() => tensor.int64_data.iter().map(|v| *v as f64).collect(),
            INT64 => numbers(raw, |bytes| i64::from_le_bytes(bytes) as f64),
            _ => return None,
        };
        let is_whole = of.len() <= MOST && i64::try_from(of.len()) == Ok(count);
        is_whole.then(|| Values {
            of: of.into_iter().map(Some).collect(),
            integers: tensor.data_type != FLOAT,
        })
    }

    /// Of the attributes of Constant those that are no tensor.
    pub fn of_attribute(node: &Node) -> Option<Self> {
        let attribute = node.attribute.first()?;
        let integers = |of: &[i64]| Some(Values::integers(of.iter().map(|v| Some(*v))));
        let floats = |of: &[f32]| {
            Some(Values {
                of: of.iter().map(|v| Some(f64::from(*v))).collect(),
                integers: false,
            })
        };
        match &*attribute.name {
            "value_int" => integers(&[attribute.i]),
            "value_ints" => integers(&attribute.ints),
            "value_float" => floats(&[attribute.f]),
            "value_floats" => floats(&attribute.floats),
            _ => None,
        }
    }

    /// Whole numbers.
    pub fn integers(of: impl Iterator<Item = Option<i64>>) -> Self {
        Values {
            of: of.map(|value| value.map(|value| value as f64)).collect(),
            integers: true,
        }
    }

    /// Whether there are no more than are followed.
    pub fn are_few(&self) -> bool {
        self.of.len() <= MOST
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.of.len()
    }

    /// As integers; what is too large is the largest.
    pub fn ints(&self) -> impl Iterator<Item = Option<i64>> {
        self.of.iter().map(|value| value.map(|value| value as i64))
    }

    /// As integers, if all are known.
    pub fn all_ints(&self) -> Option<Vec<i64>> {
        self.ints().collect()
    }

    /// As floats, if all are known.
    pub fn all_floats(&self) -> Option<Vec<f32>> {
        let floats = self.of.iter().map(|value| value.map(|value| value as f32));
        floats.collect()
    }

    /// Value by value.
    pub fn each(&self, of: impl Fn(f64) -> f64) -> Option<Self> {
        Some(Values {
            of: self.of.iter().map(|value| value.map(&of)).collect(),
            integers: self.integers,
        })
    }

    /// As another of ONNX's element types.
    pub fn cast(&self, to: i64) -> Option<Self> {
        let to = i32::try_from(to).ok()?;
        match to {
            FLOAT => Some(Values {
                integers: false,
                ..self.clone()
            }),
            INT32 | INT64 => Some(Values {
                integers: true,
                ..self.each(f64::trunc)?
            }),
            _ => None,
        }
    }

    /// Value by value, one that stands alone with each of the other's.
    pub fn with(&self, other: &Values, of: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let count = match (self.len(), other.len()) {
            (a, b) if a == b || b == 1 => a,
            (1, b) => b,
            _ => return None,
        };
        let at = |values: &Values, i: usize| match values.len() {
            1 => values.of[0],
            _ => values.of[i],
        };
        let integers = self.integers && other.integers;
        let one = |i| {
            let value = of(at(self, i)?, at(other, i)?);
            let value = if integers { value.trunc() } else { value };
            value.is_finite().then_some(value)
        };
        Some(Values {
            of: (0..count).map(one).collect(),
            integers,
        })
    }

    /// One behind the other, where they are few.
    pub fn concat(parts: &[&Values]) -> Option<Self> {
        let count: usize = parts.iter().map(|part| part.len()).sum();
        (count <= MOST).then(|| Values {
            of: parts.iter().flat_map(|part| part.of.clone()).collect(),
            integers: parts.iter().all(|part| part.integers),
        })
    }

    /// Those at some places, where there are such.
    pub fn at(&self, places: impl Iterator<Item = i64>) -> Option<Self> {
        let of = places.map(|place| self.of.get(usize::try_from(place).ok()?).copied());
        Some(Values {
            of: of.collect::<Option<_>>()?,
            integers: self.integers,
        })
    }

    /// Those at the places that others say, counted from the end where they are negative.
    pub fn gathered(&self, places: &Values) -> Option<Self> {
        let count = i64::try_from(self.len()).ok()?;
        let one = |place: Option<i64>| {
            let place = place?;
            let place = if place < 0 {
                place.checked_add(count)?
            } else {
                place
            };
            Some(*self.of.get(usize::try_from(place).ok()?)?)
        };
        Some(Values {
            of: places.ints().map(one).collect::<Option<_>>()?,
            integers: self.integers,
        })
    }
}

/// Numbers of so many bytes each.
fn numbers<const N: usize>(raw: &[u8], number: impl Fn([u8; N]) -> f64) -> Vec<f64> {
    let (numbers, _) = raw.as_chunks::<N>();
    numbers.iter().map(|bytes| number(*bytes)).collect()
}
