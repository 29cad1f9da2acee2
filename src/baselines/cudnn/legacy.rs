//! The older convolution API: one function and eight algorithms. Some of them are not among the
//! engines that the graph API's heuristics propose.

use std::fmt;

use super::rules::{Form, math_types, padding};
use crate::{Activation, Problem, Storage, variant::Arithmetic};

/// By cuDNN's numbers.
const NAMES: [&str; 8] = [
    "implicit_gemm",
    "implicit_precomp_gemm",
    "gemm",
    "direct",
    "fft",
    "fft_tiling",
    "winograd",
    "winograd_nonfused",
];

/// One way to call the older API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// `cudnnConvolutionFwdAlgo_t`.
    pub(super) algorithm: u32,
    /// `cudnnMathType_t`.
    pub(super) math: u32,
    pub(super) form: Form,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let name = NAMES.get(self.algorithm as usize).unwrap_or(&"unknown");
        write!(f, "algorithm {name}, math type {}", self.math)
    }
}

impl Choice {
    /// Every way to call it for this problem; none where it has no words for it.
    pub(super) fn all(problem: &Problem) -> Vec<Choice> {
        if !speaks_of(problem) {
            return Vec::new();
        }
        let forms = Form::of(problem).iter().filter(|form| can(problem, **form));
        let mut all = Vec::new();
        for &form in forms {
            for math in math_types(problem.math()) {
                let choice = |algorithm| Choice {
                    algorithm,
                    math: math.0,
                    form,
                };
                all.extend((0..NAMES.len() as u32).map(choice));
            }
        }
        all
    }

    /// Of its text, `algorithm gemm, math type 3`.
    pub(super) fn named(text: &str, form: Form) -> Option<Self> {
        let (name, math) = text
            .strip_prefix("algorithm ")?
            .split_once(", math type ")?;
        Some(Choice {
            algorithm: NAMES.iter().position(|known| *known == name)? as u32,
            math: math.parse().ok()?,
            form,
        })
    }

    /// How it comes to its sums, by the algorithm's name.
    pub(super) fn arithmetic(self) -> Arithmetic {
        let name = NAMES.get(self.algorithm as usize).unwrap_or(&"");
        match name.starts_with("fft") || name.starts_with("winograd") {
            true => Arithmetic::Transform,
            false => Arithmetic::Exact,
        }
    }
}

/// It pads both sides equally, counts in 32 bits, and its kernels ask for 16 aligned bytes without
/// saying so.
fn speaks_of(problem: &Problem) -> bool {
    let [before, after] = padding(problem);
    let sizes = [
        problem.x_len(),
        problem.n() * problem.k() * problem.p() * problem.q(),
    ];
    before == after && problem.align() >= 16 && sizes.iter().all(|len| *len <= i32::MAX as usize)
}

/// Whether the older API can give this form.
fn can(problem: &Problem, form: Form) -> bool {
    let epilogue = problem.epilogue();
    match form {
        Form::Plain | Form::Half => true,
        // It stores what it reads, so sums are f32 for f32 alone.
        Form::Sums => problem.storage() == Storage::F32,
        // Its bias has the type of y.
        Form::Fused => {
            let known = matches!(epilogue.activation, Activation::None | Activation::Relu);
            problem.storage() == Storage::F32 && epilogue.bias && known
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Choice> {
        Choice::all(&text.parse().unwrap())
    }

    #[test]
    fn the_older_api_is_asked_where_it_has_words() {
        assert_eq!(all("ic8ih8oc8kh3").len(), 8);
        assert_eq!(all("ic8ih8oc8kh3+math=tf32").len(), 24);
        assert_eq!(all("ic8ih8oc8kh3+f16+math=f16acc").len(), 48);
        // Fused, and sums.
        assert_eq!(all("ic8ih8oc8kh3+bias+relu").len(), 16);
        assert_eq!(all("ic8ih8oc8kh3+bias+silu").len(), 8);
        // Padding on one side only, a type that it cannot store, addresses at odd places.
        assert!(all("ic3ih8oc4oh8kh2ph0").is_empty());
        assert!(all("ic8ih8oc8kh3+f16+bias").is_empty());
        assert!(all("ic8ih8oc8kh3+align=4").is_empty());
    }

    #[test]
    fn names_are_told() {
        let choice = Choice {
            algorithm: 6,
            math: 3,
            form: Form::Plain,
        };
        assert_eq!(choice.to_string(), "algorithm winograd, math type 3");
        let transforms = all("ic8ih8oc8kh3").into_iter().map(Choice::arithmetic);
        let sums = [Arithmetic::Exact; 4].into_iter();
        assert!(transforms.eq(sums.chain([Arithmetic::Transform; 4])));
    }
}
