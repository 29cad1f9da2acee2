//! What cuDNN is asked for, and which of its plans may stand as the baseline. Pure rules: nothing
//! here needs the library.
//!
//! A plan may be the baseline if it does what the problem's math says, every time the same:
//!
//! | cuDNN's note on an engine | excluded |
//! | --- | --- |
//! | nondeterministic | always: a check runs twice and compares every bit |
//! | down-convert inputs | always: operands narrower than the math says |
//! | reduced precision reduction | unless the math is `f16acc` |
//! | tensor core | under `fp32` math, whatever the storage |
//! | Winograd, FFT | never: such a plan is a transform, of which the variant `cudnn_transform` is made |

use cudnn_sys::{cudnnBackendNumericalNote_t as Note, cudnnMathType_t, cudnnPointwiseMode_t};

use crate::{Activation, Layout, Math, Problem, Storage, variant::Arithmetic};

/// Why cuDNN has no words for this problem.
pub(super) fn refuses(problem: &Problem) -> Option<String> {
    let math = problem.math();
    if problem.storage() == Storage::F32 && !matches!(math, Math::Fp32 | Math::Tf32) {
        return Some(format!(
            "cuDNN computes with operands as they are stored: {math} math would need copies of \
             f32 tensors in another type"
        ));
    }
    // Its kernels count a filter's elements in 32 bits.
    if problem.w_len() > i32::MAX as usize {
        return Some(format!("cuDNN takes filters of up to {} weights", i32::MAX));
    }
    None
}

/// Why an engine with these notes cannot be the baseline.
pub(super) fn excluded(math: Math, notes: &[u32]) -> Option<&'static str> {
    let noted = |note: Note| notes.contains(&note.0);
    if noted(Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) {
        Some("not deterministic")
    } else if noted(Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) {
        Some("round operands further")
    } else if math != Math::F16Acc && noted(Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)
    {
        Some("sum in less than fp32")
    } else if math == Math::Fp32 && noted(Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE) {
        Some("on tensor cores")
    } else {
        None
    }
}

/// How an engine with these notes comes to its sums.
pub(super) fn arithmetic(notes: &[u32]) -> Arithmetic {
    let transforms = [
        Note::CUDNN_NUMERICAL_NOTE_FFT,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
        Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
    ];
    match transforms.iter().any(|note| notes.contains(&note.0)) {
        true => Arithmetic::Transform,
        false => Arithmetic::Exact,
    }
}

/// The math types that the older API may use; FMA is more than any math asks for.
/// `CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION` is not among them: it rounds f32 operands to 16 bits.
pub(super) fn math_types(math: Math) -> &'static [cudnnMathType_t] {
    match math {
        Math::Fp32 => &[cudnnMathType_t::CUDNN_FMA_MATH],
        _ => &[
            cudnnMathType_t::CUDNN_DEFAULT_MATH,
            cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
            cudnnMathType_t::CUDNN_FMA_MATH,
        ],
    }
}

/// What one graph computes, and where the rest of the epilogue happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    /// The convolution with its factor, stored in y.
    Plain,
    /// The same, summed in f16.
    Half,
    /// Convolution and epilogue in one, stored in y.
    Fused,
    /// The convolution's sums in f32, in the workspace; the shared pass finishes them. Sums are
    /// never rounded to 16 bits on the way.
    Sums,
}

impl Form {
    /// The forms that give the problem's result.
    pub(super) fn of(problem: &Problem) -> &'static [Form] {
        let mut rest = *problem.epilogue();
        rest.scale = 1.0;
        match (rest.is_identity(), problem.math(), rest.pool) {
            // Summing in f32 is more than was asked for, and may be faster all the same.
            (true, Math::F16Acc, _) => &[Form::Half, Form::Plain],
            (true, ..) => &[Form::Plain],
            (false, _, None) => &[Form::Fused, Form::Sums],
            // Its pooling does not fuse with a convolution.
            (false, _, Some(_)) => &[Form::Sums],
        }
    }

    /// Whether the shared pass follows.
    pub(super) fn finishes(self) -> bool {
        self == Form::Sums
    }

    /// The factor that the convolution itself applies.
    pub(super) fn alpha(self, problem: &Problem) -> f32 {
        match self {
            Form::Plain | Form::Half => problem.epilogue().scale,
            Form::Fused | Form::Sums => 1.0,
        }
    }
}

/// One pointwise operation after a convolution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Times the epilogue's factor.
    Scale,
    /// Plus the residual.
    Residual,
    /// Plus the bias.
    Bias,
    /// The activation.
    Activate(cudnnPointwiseMode_t),
}

/// The operations of [`Form::Fused`], in the order of the pattern that cuDNN's precompiled fusions
/// know: residual, bias, activation.
pub(super) fn steps(problem: &Problem) -> Vec<Step> {
    let epilogue = problem.epilogue();
    let mode = match epilogue.activation {
        Activation::None => None,
        Activation::Relu | Activation::Relu6 => {
            Some(cudnnPointwiseMode_t::CUDNN_POINTWISE_RELU_FWD)
        }
        Activation::Tanh => Some(cudnnPointwiseMode_t::CUDNN_POINTWISE_TANH_FWD),
        Activation::Sigmoid => Some(cudnnPointwiseMode_t::CUDNN_POINTWISE_SIGMOID_FWD),
        Activation::Silu => Some(cudnnPointwiseMode_t::CUDNN_POINTWISE_SWISH_FWD),
    };
    let steps = [
        (epilogue.scale != 1.0).then_some(Step::Scale),
        epilogue.residual.then_some(Step::Residual),
        epilogue.bias.then_some(Step::Bias),
        mode.map(Step::Activate),
    ];
    steps.into_iter().flatten().collect()
}

/// Distances of n, c, h and w in a tensor of these sizes; for a filter, of k, c, r and s.
pub(super) fn strides(layout: Layout, [_, c, h, w]: [usize; 4]) -> [usize; 4] {
    match layout {
        Layout::Nchw => [c * h * w, h * w, w, 1],
        Layout::Nhwc => [h * w * c, 1, w * c, c],
    }
}

/// The layout that a graph is described in. Where no tensor has more than one pixel, both lie alike
/// in memory, but not to cuDNN 9.19: its engines 4 and 7, with a bias behind the product, multiply
/// such tensors wrongly where they are said to be NCHW, and others are slower. The older API, which
/// has other kernels, is told the problem's own.
pub(super) fn layout(problem: &Problem) -> Layout {
    let sizes = [
        problem.h(),
        problem.w(),
        problem.r(),
        problem.s(),
        problem.p(),
        problem.q(),
    ];
    match sizes {
        [1, 1, 1, 1, 1, 1] => Layout::Nhwc,
        _ => problem.layout(),
    }
}

/// Whether plans of a graph are known to be wrong: what [`layout`] says of engine 4 is so as well
/// where y alone has one pixel, as behind a filter of the image's size, and then no other description
/// was tried. A search judges them like all others; without one they are not taken.
pub(super) fn is_misread(problem: &Problem, form: Form) -> bool {
    let one_pixel = problem.p() * problem.q() == 1;
    form == Form::Fused && one_pixel && layout(problem) == Layout::Nchw
}

/// Padding before and after, down and across.
///
/// A [`Problem`] drops padding below and to the right that no filter position reaches. Where the
/// same output allows it, it is put back: equal padding on both sides is all that the older API
/// and many engines know.
pub(super) fn padding(problem: &Problem) -> [[usize; 2]; 2] {
    let pad = problem.pad();
    let before = [pad.top, pad.left];
    let after = [pad.bottom, pad.right];
    let size = [problem.h(), problem.w()];
    let taps = [problem.r(), problem.s()];
    let out = [problem.p(), problem.q()];
    let even = [0, 1].map(|axis| {
        let span = (taps[axis] - 1) * problem.dilation()[axis] + 1;
        let padded = size[axis] + 2 * before[axis];
        let same = padded >= span && (padded - span) / problem.stride()[axis] + 1 == out[axis];
        if same { before[axis] } else { after[axis] }
    });
    [before, even]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> Problem {
        text.parse().unwrap()
    }

    #[test]
    fn notes_decide_what_is_strict() {
        let tensor_core = [Note::CUDNN_NUMERICAL_NOTE_TENSOR_CORE.0];
        assert_eq!(excluded(Math::Fp32, &tensor_core), Some("on tensor cores"));
        assert_eq!(excluded(Math::Tf32, &tensor_core), None);
        assert_eq!(excluded(Math::F16, &tensor_core), None);
        let down = [
            tensor_core[0],
            Note::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS.0,
        ];
        assert!(excluded(Math::Tf32, &down).is_some());
        let reduced = [Note::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION.0];
        assert!(excluded(Math::F16, &reduced).is_some());
        assert_eq!(excluded(Math::F16Acc, &reduced), None);
        for math in [Math::Fp32, Math::Tf32, Math::F16, Math::Bf16, Math::F16Acc] {
            let random = [Note::CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC.0];
            assert_eq!(excluded(math, &random), Some("not deterministic"));
            let winograd = [Note::CUDNN_NUMERICAL_NOTE_WINOGRAD.0];
            assert_eq!(excluded(math, &winograd), None);
        }
        // As an f16 engine of cuDNN 8 notes itself.
        let tile = Note::CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4.0;
        let winograd = [Note::CUDNN_NUMERICAL_NOTE_WINOGRAD.0, tile];
        let fft = [Note::CUDNN_NUMERICAL_NOTE_FFT.0];
        assert_eq!(arithmetic(&winograd), Arithmetic::Transform);
        assert_eq!(arithmetic(&fft), Arithmetic::Transform);
        for none in [&[][..], &tensor_core, &down, &reduced] {
            assert_eq!(arithmetic(none), Arithmetic::Exact);
        }
        assert_eq!(math_types(Math::Fp32), [cudnnMathType_t::CUDNN_FMA_MATH]);
    }

    #[test]
    fn f32_is_not_rounded_behind_the_callers_back() {
        assert_eq!(refuses(&problem("ic8ih8oc8kh3")), None);
        assert_eq!(refuses(&problem("ic8ih8oc8kh3+math=tf32")), None);
        assert_eq!(refuses(&problem("ic8ih8oc8kh3+f16+nhwc+math=f16acc")), None);
        for math in ["f16", "bf16", "f16acc"] {
            let why = refuses(&problem(&format!("ic8ih8oc8kh3+math={math}"))).unwrap();
            assert!(why.contains(&format!("{math} math")), "{why}");
        }
    }

    #[test]
    fn sums_are_fused_or_finished_in_f32() {
        let forms = |text| Form::of(&problem(text)).to_vec();
        assert_eq!(forms("ic8ih8oc8kh3+scale=0.5"), [Form::Plain]);
        assert_eq!(
            forms("ic8ih8oc8kh3+f16+math=f16acc"),
            [Form::Half, Form::Plain]
        );
        assert_eq!(forms("ic8ih8oc8kh3+f16+bias"), [Form::Fused, Form::Sums]);
        assert_eq!(forms("ic8ih8oc8kh3+relu+pool=2"), [Form::Sums]);
        assert_eq!(Form::Plain.alpha(&problem("ic8ih8oc8kh3+scale=0.5")), 0.5);
        assert_eq!(
            Form::Sums.alpha(&problem("ic8ih8oc8kh3+scale=0.5+bias")),
            1.0
        );
        let all = steps(&problem("ic8ih8oc8kh3+scale=2+bias+residual+silu"));
        let silu = cudnnPointwiseMode_t::CUDNN_POINTWISE_SWISH_FWD;
        assert_eq!(
            all,
            [
                Step::Scale,
                Step::Residual,
                Step::Bias,
                Step::Activate(silu)
            ]
        );
    }

    #[test]
    fn padding_is_even_where_that_changes_nothing() {
        // ResNet's first layer: the last row of padding below is never read.
        let stem = problem("ic3ih224oc64oh112kh7sh2ph3");
        assert_eq!((stem.pad().top, stem.pad().bottom), (3, 2));
        assert_eq!(padding(&stem), [[3, 3], [3, 3]]);
        // TensorFlow's `same` with an even filter: one more below.
        assert_eq!(padding(&problem("ic3ih8oc4oh8kh2ph0")), [[0, 0], [1, 1]]);
        // More above than below, and every row is read.
        assert_eq!(padding(&problem("ic3ih8oc4oh8kh2ph1")), [[1, 1], [0, 0]]);
        assert_eq!(padding(&problem("ic3ih8oc4kh3")), [[0, 0], [0, 0]]);
    }

    #[test]
    fn single_pixels_are_channels_last() {
        assert_eq!(layout(&problem("ic32ih1oc8oh1kh1+bias")), Layout::Nhwc);
        for more in [
            "ic32ih2oc8oh2kh1",
            "ic32ih7oc8oh1kh7",
            "ic32ih1oc8oh1kh3ph1",
        ] {
            assert_eq!(layout(&problem(more)), Layout::Nchw, "{more}");
        }
    }

    #[test]
    fn what_is_misread_is_a_fused_graph_of_one_pixel() {
        let dense = problem("ic32ih7oc8oh1kh7+bias");
        assert!(is_misread(&dense, Form::Fused));
        assert!(!is_misread(&dense, Form::Sums));
        for other in [
            "ic32ih1oc8oh1kh1+bias",
            "ic32ih7oc8oh1kh7+nhwc+bias",
            "ic32ih7oc8oh7kh1+bias",
        ] {
            assert!(!is_misread(&problem(other), Form::Fused), "{other}");
        }
    }

    #[test]
    fn strides_are_the_layouts() {
        assert_eq!(strides(Layout::Nchw, [2, 3, 5, 7]), [105, 35, 7, 1]);
        assert_eq!(strides(Layout::Nhwc, [2, 3, 5, 7]), [105, 1, 21, 3]);
    }
}
