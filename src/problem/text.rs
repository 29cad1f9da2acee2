//! The text of a problem, read and written. [`Problem`] has the grammar.

use std::{fmt, str::FromStr};

use super::{
    Activation, Layout, Math, Padding, Pool, Problem, Shape, Storage,
    check::{MAX_DIM, extent},
};
use crate::{Error, Result};

/// Gives an enum its words: `Display`, `FromStr` and the list of all.
macro_rules! words {
    ($name:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.pad(match self { $($name::$variant => $word),+ })
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($word => Ok($name::$variant),)+
                    _ => Err(Error::Parse {
                        what: $what,
                        text: text.to_owned(),
                        why: format!("it may be {}", [$($word),+].join(", ")),
                    }),
                }
            }
        }
    };
}

words!(Layout, "a layout", Nchw = "nchw", Nhwc = "nhwc");
words!(
    Storage,
    "a storage",
    F32 = "f32",
    F16 = "f16",
    Bf16 = "bf16"
);
words!(
    Math,
    "a math",
    Fp32 = "fp32",
    Tf32 = "tf32",
    F16 = "f16",
    Bf16 = "bf16",
    F16Acc = "f16acc"
);
words!(
    Activation,
    "an activation",
    None = "none",
    Relu = "relu",
    Relu6 = "relu6",
    Tanh = "tanh",
    Sigmoid = "sigmoid",
    Silu = "silu"
);

/// `3`, or `3x2` where the two differ.
fn pair([a, b]: [usize; 2]) -> String {
    if a == b {
        a.to_string()
    } else {
        format!("{a}x{b}")
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&pair(self.window))?;
        if self.stride != self.window {
            write!(f, "s{}", pair(self.stride))?;
        }
        if self.ceil {
            f.write_str("ceil")?;
        }
        Ok(())
    }
}

impl FromStr for Pool {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = || Error::Parse {
            what: "a pooling",
            text: text.to_owned(),
            why: "pooling reads `2`, `3x2`, `3s2` or `3x2s2x1ceil`: window, stride, clipping"
                .into(),
        };
        let sizes = |text: &str| -> Result<[usize; 2]> {
            let (a, b) = text.split_once('x').unwrap_or((text, text));
            Ok([
                a.parse().map_err(|_| error())?,
                b.parse().map_err(|_| error())?,
            ])
        };
        let (rest, ceil) = match text.strip_suffix("ceil") {
            Some(rest) => (rest, true),
            None => (text, false),
        };
        let (window, stride) = rest.split_once('s').unwrap_or((rest, rest));
        Ok(Pool {
            window: sizes(window)?,
            stride: sizes(stride)?,
            ceil,
        })
    }
}

/// `ih5`, or `ih5iw7` where the two differ, or nothing where both are what is understood anyway.
fn axes(name: &str, [a, b]: [usize; 2], default: Option<usize>) -> String {
    if a != b {
        format!("{name}h{a}{name}w{b}")
    } else if Some(a) != default {
        format!("{name}h{a}")
    } else {
        String::new()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let s = &self.shape;
        let mut text = String::new();
        if s.groups != 1 {
            text += &format!("g{}", s.groups);
        }
        text += &format!("mb{}ic{}", s.n, s.c);
        text += &axes("i", [s.h, s.w], None);
        text += &format!("oc{}", s.k);
        text += &axes("o", self.conv_out, None);
        text += &axes("k", [s.r, s.s], None);
        text += &axes("s", s.stride, Some(1));
        text += &axes("d", [s.dilation[0] - 1, s.dilation[1] - 1], Some(0));
        // Left out, padding would be derived from the output size.
        let centred = [
            centred_pad(self.conv_out[0], s.h, s.r, s.stride[0], s.dilation[0]),
            centred_pad(self.conv_out[1], s.w, s.s, s.stride[1], s.dilation[1]),
        ];
        let pads = [s.pad.top, s.pad.left];
        if pads != [0; 2] || centred != [0; 2] {
            text += &axes("p", pads, None);
        }

        if s.storage != Storage::F32 {
            text += &format!("+{}", s.storage);
        }
        if s.layout != Layout::Nchw {
            text += &format!("+{}", s.layout);
        }
        if s.math != s.storage.maths()[0] {
            text += &format!("+math={}", s.math);
        }
        if s.align != 16 {
            text += &format!("+align={}", s.align);
        }
        let e = &s.epilogue;
        if e.scale != 1.0 {
            text += &format!("+scale={}", e.scale);
        }
        if e.bias {
            text += "+bias";
        }
        if e.residual {
            text += "+residual";
        }
        if e.activation != Activation::None {
            text += &format!("+{}", e.activation);
        }
        if let Some(pool) = &e.pool {
            text += &format!("+pool={pool}");
        }
        f.pad(&text)
    }
}

/// benchdnn's rule for padding that is left out: what the output size needs, halved.
fn centred_pad(o: usize, i: usize, k: usize, stride: usize, dilation: usize) -> usize {
    ((o.saturating_sub(1))
        .saturating_mul(stride)
        .saturating_add(extent(k, dilation)))
    .saturating_sub(i)
        / 2
}

impl FromStr for Problem {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let error = |why: String| Error::Parse {
            what: "a problem",
            text: text.to_owned(),
            why,
        };
        let mut parts = text.trim().split('+');
        let numbers = Numbers::read(parts.next().unwrap_or_default()).map_err(error)?;
        let mut shape = numbers.shape().map_err(error)?;
        let mut math = None;
        let mut given = Vec::new();
        for word in parts {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let number = |what: &str| error(format!("`{word}`: {what}"));
            let slot = match key {
                "f32" | "f16" | "bf16" => "storage",
                "nchw" | "nhwc" => "layout",
                "relu" | "relu6" | "tanh" | "sigmoid" | "silu" => "activation",
                other => other,
            };
            if given.contains(&slot) {
                return Err(number(&format!("the {slot} is given twice")));
            }
            given.push(slot);
            match key {
                "f32" | "f16" | "bf16" if value.is_empty() => shape.storage = key.parse()?,
                "nchw" | "nhwc" if value.is_empty() => shape.layout = key.parse()?,
                "math" => math = Some(value.parse()?),
                "align" => {
                    shape.align = value
                        .parse()
                        .map_err(|_| number("an alignment is a number of bytes"))?;
                }
                "scale" => {
                    shape.epilogue.scale =
                        value.parse().map_err(|_| number("a scale is a number"))?;
                }
                "bias" if value.is_empty() => shape.epilogue.bias = true,
                "residual" if value.is_empty() => shape.epilogue.residual = true,
                "relu" | "relu6" | "tanh" | "sigmoid" | "silu" if value.is_empty() => {
                    shape.epilogue.activation = key.parse()?;
                }
                "pool" => shape.epilogue.pool = Some(value.parse()?),
                _ => {
                    return Err(error(format!(
                        "`{word}` is no word of a problem; they are f32 f16 bf16, nchw nhwc, \
                         math=, align=, scale=, bias, residual, relu relu6 tanh sigmoid silu, pool="
                    )));
                }
            }
        }
        shape.math = math.unwrap_or(shape.storage.maths()[0]);
        numbers.check_out(&Problem::new(shape)?).map_err(error)
    }
}

/// The numbers of a descriptor as they were written.
#[derive(Default)]
struct Numbers {
    given: Vec<(&'static str, usize)>,
}

impl Numbers {
    const KEYS: [&'static str; 16] = [
        "g", "mb", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw", "dh",
        "dw",
    ];

    fn read(text: &str) -> Result<Self, String> {
        let mut numbers = Numbers::default();
        let mut rest = text;
        while !rest.is_empty() {
            rest = rest.trim_start_matches('_'); // benchdnn allows them for the eye
            let letters = rest
                .find(|c: char| !c.is_ascii_lowercase())
                .unwrap_or(rest.len());
            let (key, tail) = rest.split_at(letters);
            let Some(key) = Self::KEYS.into_iter().find(|k| *k == key) else {
                return Err(format!(
                    "`{rest}` should begin with one of {}",
                    Self::KEYS.join(" ")
                ));
            };
            let digits = tail
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(tail.len());
            let (number, tail) = tail.split_at(digits);
            if number.is_empty() {
                return Err(format!(
                    "`{key}` needs a number of 0 or more after it, found `{tail}`"
                ));
            }
            let value = number
                .parse()
                .map_err(|_| format!("{key}{number} is too large"))?;
            if numbers.get(key).is_some() {
                return Err(format!("`{key}` is given twice"));
            }
            numbers.given.push((key, value));
            rest = tail;
        }
        Ok(numbers)
    }

    fn get(&self, key: &str) -> Option<usize> {
        self.given
            .iter()
            .find(|(k, _)| *k == key)
            .map(|(_, value)| *value)
    }

    /// Both axes, where one gives the other.
    fn axes(&self, h: &str, w: &str) -> Option<[usize; 2]> {
        let (a, b) = (self.get(h), self.get(w));
        Some([a.or(b)?, b.or(a)?])
    }

    /// Which sizes are needed and not there.
    fn missing(&self) -> String {
        let needed = [["ic"; 2], ["ih", "iw"], ["oc"; 2], ["kh", "kw"]];
        let absent = needed.iter().filter(|[h, w]| self.axes(h, w).is_none());
        let names: Vec<String> = absent.map(|[name, _]| format!("`{name}`")).collect();
        match &names[..] {
            [name] => format!("{name} is missing"),
            names => format!("{} are missing, as in ic3ih8oc4kh3", names.join(", ")),
        }
    }

    fn shape(&self) -> Result<Shape, String> {
        let (Some(c), Some([h, w]), Some(k), Some([r, s])) = (
            self.get("ic"),
            self.axes("ih", "iw"),
            self.get("oc"),
            self.axes("kh", "kw"),
        ) else {
            return Err(self.missing());
        };
        let mut shape = Shape::new(self.get("mb").unwrap_or(2), [c, h, w], k, [r, s]);
        shape.groups = self.get("g").unwrap_or(1);
        shape.stride = self.axes("sh", "sw").unwrap_or([1; 2]);
        shape.dilation = self
            .axes("dh", "dw")
            .unwrap_or([0; 2])
            .map(|from_zero| from_zero.saturating_add(1));
        let before = self.axes("ph", "pw");
        // Sizes that Problem::new will refuse must not be calculated with here.
        let dims = [
            h,
            w,
            r,
            s,
            shape.stride[0],
            shape.stride[1],
            shape.dilation[0],
            shape.dilation[1],
        ];
        if dims.iter().any(|d| *d == 0 || *d > MAX_DIM)
            || extent_overflows(r, shape.dilation[0])
            || extent_overflows(s, shape.dilation[1])
        {
            return Ok(shape);
        }
        let axis = |axis: usize, i: usize, k: usize| {
            let (stride, dilation) = (shape.stride[axis], shape.dilation[axis]);
            match (
                self.axes("oh", "ow").map(|o| o[axis]),
                before.map(|b| b[axis]),
            ) {
                (Some(o), pad) => {
                    let pad = pad.unwrap_or_else(|| centred_pad(o, i, k, stride, dilation));
                    let need = o.saturating_sub(1).saturating_mul(stride);
                    let need = need.saturating_add(extent(k, dilation));
                    (pad, need.saturating_sub(i).saturating_sub(pad))
                }
                (None, pad) => (pad.unwrap_or(0), pad.unwrap_or(0)),
            }
        };
        let ((top, bottom), (left, right)) = (axis(0, h, r), axis(1, w, s));
        shape.pad = Padding {
            top,
            left,
            bottom,
            right,
        };
        Ok(shape)
    }

    /// An output size that was given must be the one that follows.
    fn check_out(&self, problem: &Problem) -> Result<Problem, String> {
        match self.axes("oh", "ow") {
            Some([p, q]) if [p, q] != problem.conv_out => Err(format!(
                "the output cannot be {p}x{q}: with this input, filter, stride, dilation and \
                 padding it is {}x{} or, with more padding, larger",
                problem.p(),
                problem.q()
            )),
            _ => Ok(problem.clone()),
        }
    }
}

fn extent_overflows(k: usize, dilation: usize) -> bool {
    (k - 1)
        .checked_mul(dilation)
        .is_none_or(|span| span > MAX_DIM)
}

#[cfg(feature = "serde")]
impl serde::Serialize for Problem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Problem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <String as serde::Deserialize>::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
