//! Windows that slide over images: convolutions and pools along one axis.

use super::{known::Dim, proto::Node};

/// A window along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub kernel: i64,
    pub stride: i64,
    pub dilation: i64,
    /// Zeros before and after the image.
    pub pad: [i64; 2],
}

/// How a node says what its padding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Auto {
    Not,
    Valid,
    /// As much as a stride needs, the odd pixel after the image.
    Upper,
    /// The same, the odd pixel before the image.
    Lower,
}

/// Most that a size may be, so that sums and products of a few stay within an i64.
const MOST: i64 = i32::MAX as i64;

/// The windows of a node over each axis of an image.
///
/// # Errors
/// What is wrong with its attributes.
pub(super) fn axes(node: &Node, kernel: &[i64], image: &[Dim]) -> Result<Vec<Axis>, String> {
    let count = kernel.len();
    let sizes = |name: &str, count: usize, default: i64, least: i64| match node.ints(name) {
        None | Some([]) => Ok(vec![default; count]),
        Some(sizes) if sizes.len() != count => {
            Err(format!("its {name} are {} and not {count}", sizes.len()))
        }
        Some(sizes) => match sizes.iter().find(|size| !(least..=MOST).contains(size)) {
            Some(wrong) => Err(format!("{wrong} is one of its {name}")),
            None => Ok(sizes.to_vec()),
        },
    };
    let auto = auto(node)?;
    let strides = sizes("strides", count, 1, 1)?;
    let dilations = sizes("dilations", count, 1, 1)?;
    // Beside auto_pad they mean nothing.
    let pads = match auto {
        Auto::Not => sizes("pads", 2 * count, 0, 0)?,
        _ => vec![0; 2 * count],
    };
    let axis = |i: usize| {
        let axis = Axis {
            kernel: kernel[i],
            stride: strides[i],
            dilation: dilations[i],
            pad: [pads[i], pads[i + count]],
        };
        axis.padded(auto, image.get(i).copied().flatten())
    };
    Ok((0..count).map(axis).collect())
}

fn auto(node: &Node) -> Result<Auto, String> {
    let Some(attribute) = node.attribute("auto_pad") else {
        return Ok(Auto::Not);
    };
    match &attribute.s[..] {
        b"" | b"NOTSET" => Ok(Auto::Not),
        b"VALID" => Ok(Auto::Valid),
        b"SAME_UPPER" => Ok(Auto::Upper),
        b"SAME_LOWER" => Ok(Auto::Lower),
        other => Err(format!(
            "its auto_pad is `{}`, none of NOTSET, VALID, SAME_UPPER and SAME_LOWER",
            String::from_utf8_lossy(other)
        )),
    }
}

impl Axis {
    /// Pixels that the window spans.
    fn extent(self) -> Option<i64> {
        self.kernel
            .checked_sub(1)?
            .checked_mul(self.dilation)?
            .checked_add(1)
    }

    /// With the padding that the image needs.
    fn padded(self, auto: Auto, image: Dim) -> Self {
        let total = || {
            let image = image?;
            let steps = (image.checked_add(self.stride - 1)? / self.stride).checked_sub(1)?;
            let reach = steps.checked_mul(self.stride)?;
            Some(
                reach
                    .checked_add(self.extent()?)?
                    .checked_sub(image)?
                    .max(0),
            )
        };
        let total = match auto {
            Auto::Not | Auto::Valid => return self,
            // What is not known is not asked for: there is no output size then either.
            Auto::Upper | Auto::Lower => total().unwrap_or(0),
        };
        let (less, more) = (total / 2, total - total / 2);
        let pad = match auto {
            Auto::Upper => [less, more],
            _ => [more, less],
        };
        Axis { pad, ..self }
    }

    /// The size of the output; `ceil` keeps a window that hangs over the end, unless all of it is padding.
    pub fn out(self, image: Dim, ceil: bool) -> Dim {
        let image = image?;
        let padded = image.checked_add(self.pad[0])?.checked_add(self.pad[1])?;
        let free = padded.checked_sub(self.extent()?)?;
        if free < 0 {
            return None;
        }
        if !ceil {
            return Some(free / self.stride + 1);
        }
        let last = free.checked_add(self.stride - 1)? / self.stride;
        let starts_in_image = last.checked_mul(self.stride)? < image.checked_add(self.pad[0])?;
        Some(if starts_in_image { last + 1 } else { last })
    }

    /// The size of a transposed convolution's output.
    pub fn transposed(self, image: Dim, more: i64) -> Dim {
        let reach = self.stride.checked_mul(image?.checked_sub(1)?)?;
        let whole = reach.checked_add(self.extent()?)?.checked_add(more)?;
        let cut = whole.checked_sub(self.pad[0])?.checked_sub(self.pad[1])?;
        (cut >= 0).then_some(cut)
    }
}
