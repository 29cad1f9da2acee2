//! The text form of problems, and what is refused.

use convforge::{Error, Padding, Problem, Shape};
use convforge_check::Profile;
use proptest::prelude::*;

fn parse(text: &str) -> Problem {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

/// The error of a text that must not be accepted.
fn refused(text: &str) -> String {
    match text.parse::<Problem>() {
        Ok(problem) => panic!("`{text}` was read as {problem}"),
        Err(error) => error.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn text_round_trips(seed: u64, index in 0u64..1000) {
        let problem = Profile::default().problem(seed, index);
        let text = problem.to_string();
        prop_assert_eq!(&parse(&text), &problem, "{}", text);
        prop_assert_eq!(parse(&text).to_string(), text);
    }

    /// Any padding, stride and dilation: what no filter position reaches must not matter.
    #[test]
    fn padding_round_trips(
        [h, w, r, s] in prop::array::uniform4(1usize..12),
        stride in prop::array::uniform2(1usize..5),
        dilation in prop::array::uniform2(1usize..4),
        [top, left, bottom, right] in prop::array::uniform4(0usize..9),
    ) {
        let shape = Shape {
            stride,
            dilation,
            pad: Padding { top, left, bottom, right },
            ..Shape::new(1, [1, h, w], 1, [r, s])
        };
        if let Ok(problem) = Problem::new(shape) {
            let text = problem.to_string();
            prop_assert_eq!(&parse(&text), &problem, "{}", text);
            let last = (problem.p() - 1) * stride[0] + (r - 1) * dilation[0] + 1;
            prop_assert_eq!(problem.pad().bottom, last.saturating_sub(h + top));
            prop_assert!(problem.pad().bottom <= bottom && problem.pad().right <= right);
        }
    }

    #[test]
    fn any_text_is_answered(text in ".{0,60}") {
        let _ = text.parse::<Problem>();
    }

    /// Texts that look like problems, with numbers up to the largest there are.
    #[test]
    fn any_numbers_are_answered(
        keys in prop::collection::vec(
            prop::sample::select(vec![
                "g", "mb", "ic", "ih", "iw", "oc", "oh", "ow", "kh", "kw", "sh", "sw", "ph", "pw",
                "dh", "dw",
            ]),
            0..16,
        ),
        numbers in prop::collection::vec(
            prop_oneof![
                0usize..12,
                Just(i32::MAX as usize),
                Just(1 << 31),
                Just(usize::MAX),
                Just(usize::MAX / 2),
            ],
            16,
        ),
        words in "(\\+(f16|nhwc|pool=[0-9]{1,20}(x[0-9])?(s[0-9])?(ceil)?|align=[0-9]{1,20}|scale=-?[0-9e.]{1,6}|bias)){0,3}",
    ) {
        let mut text: String =
            keys.iter().zip(&numbers).map(|(key, number)| format!("{key}{number}")).collect();
        text += &words;
        if let Ok(problem) = text.parse::<Problem>() {
            prop_assert_eq!(parse(&problem.to_string()), problem);
        }
    }
}

#[test]
fn benchdnn_rules_for_what_is_left_out() {
    // One of two axes gives the other; the batch is 2, groups and strides 1, dilation 0.
    let problem = parse("ic3ih8oc4kh3");
    assert_eq!(
        (
            problem.n(),
            problem.h(),
            problem.w(),
            problem.r(),
            problem.s()
        ),
        (2, 8, 8, 3, 3)
    );
    assert_eq!(
        (problem.groups(), problem.stride(), problem.dilation()),
        (1, [1, 1], [1, 1])
    );
    assert_eq!((problem.p(), problem.q()), (6, 6));
    assert_eq!(parse("ic3iw8oc4kw3"), problem);
    // Dilation is counted from 0.
    assert_eq!(parse("ic3ih8oc4kh3dh1").dilation(), [2, 2]);
    assert_eq!(parse("ic3ih8oc4kh3dh1"), parse("ic3ih8oc4oh4kh3dh1ph0"));
    // The output gives the padding, the padding gives the output.
    assert_eq!(parse("ic3ih8oc4oh8kh3"), parse("ic3ih8oc4kh3ph1"));
    assert_eq!(parse("ic3ih8oc4oh8kh3").pad().bottom, 1);
    // Underscores are for the eye.
    assert_eq!(parse("mb2_ic3ih8_oc4_kh3"), problem);
    // The order does not matter.
    assert_eq!(parse("kh3oc4ih8ic3mb2"), problem);
}

#[test]
fn padding_below_and_to_the_right_follows() {
    // 7 rows with stride 2 and one row of padding above: the 4th position hangs over by one.
    let problem = parse("mb1ic1ih7oc1oh4kh3sh2ph1");
    assert_eq!((problem.pad().top, problem.pad().bottom), (1, 1));
    // What is never read is dropped, so equal convolutions are equal problems.
    let shape = Shape {
        stride: [2, 2],
        pad: Padding {
            top: 1,
            left: 1,
            bottom: 2,
            right: 2,
        },
        ..Shape::new(1, [1, 7, 7], 1, [3, 3])
    };
    assert_eq!(Problem::new(shape).unwrap(), problem);
}

#[test]
fn one_spelling() {
    for (text, canonical) in [
        (
            "g1mb2ic3ih8iw8oc4oh6ow6kh3kw3sh1sw1dh0dw0ph0pw0+f32+nchw",
            "mb2ic3ih8oc4oh6kh3",
        ),
        (
            "ic3ih8oc4kh3+math=fp32+align=16+scale=1",
            "mb2ic3ih8oc4oh6kh3",
        ),
        (
            "ic3ih8oc4kh3+relu+bias+nhwc+f16",
            "mb2ic3ih8oc4oh6kh3+f16+nhwc+bias+relu",
        ),
        ("ic3ih8oc4kh3+pool=2x2s2x2", "mb2ic3ih8oc4oh6kh3+pool=2"),
        ("ic3ih8iw9oc4kh3kw2ph1pw0", "mb2ic3ih8iw9oc4oh8kh3kw2ph1pw0"),
    ] {
        assert_eq!(parse(text).to_string(), canonical);
    }
}

#[test]
fn bad_input_is_refused_in_words() {
    for (text, words) in [
        ("", "missing"),
        ("hello", "hello"),
        ("ic0ih8oc4kh3", "input channels (ic) is 0"),
        ("ic3ih8oc4kh0", "filter height (kh) is 0"),
        ("ic3ih8oc4kh3sh0", "stride"),
        ("g0ic3ih8oc4kh3", "groups"),
        ("ic-3ih8oc4kh3", "`ic` needs a number of 0 or more"),
        ("ic3ih8oc4kh3ph-1", "`ph` needs a number"),
        ("ic3ih8oc4", "`kh` is missing"),
        ("ih8oc4kh3", "`ic` is missing"),
        ("ic3ic3ih8oc4kh3", "`ic` is given twice"),
        ("ic3ih8oc4kh3zz4", "zz4"),
        ("ic3ih8oc4kh3+fast", "`fast` is no word"),
        ("ic3ih8oc4kh3+bias=2", "bias=2"),
        (
            "g2ic3ih8oc4kh3",
            "3 input and 4 output channels cannot be split into 2 groups",
        ),
        ("ic3ih8oc4kh9", "9x9 filter"),
        ("ic3ih8oc4kh3dh5", "3x3 filter with dilation 6x6"),
        ("ic3ih8oc4oh2kh3sh1ph0", "output cannot be 2x2"),
        ("ic3ih8oc4oh2kh3ph0", "output cannot be 2x2"),
        ("ic3ih8oc4kh3+align=3", "alignment of 3 bytes"),
        ("ic3ih8oc4kh3+align=2", "alignment of 2 bytes"),
        ("ic3ih8oc4kh3+align=x", "align=x"),
        ("ic3ih8oc4kh3+f16+math=tf32", "f16 storage with tf32 math"),
        ("ic3ih8oc4kh3+bf16+math=f16", "bf16 storage with f16 math"),
        ("ic3ih8oc4kh3+math=int8", "int8"),
        ("ic3ih8oc4kh3+scale=inf", "scale of inf"),
        ("ic3ih8oc4kh3+scale=two", "scale=two"),
        ("ic3ih8oc4kh3+pool=7", "pooling window of 7x7"),
        ("ic3ih8oc4kh3+pool=0", "window of 0"),
        ("ic3ih8oc4kh3+pool=2s0", "stride of 0"),
        ("ic3ih8oc4kh3+pool=big", "pooling reads"),
        ("mb99999999999999999999ic3ih8oc4kh3", "too large"),
        ("ic3ih8oc4kh3ph4000000000", "padding above is 4000000000"),
        ("ic9999999999ih8oc4kh3", "the limit is"),
        (
            "mb1000000000ic1000ih1000oc4kh3",
            "input of 1000000000 x 1000 x 1000 x 1000 has more than",
        ),
        ("mb9000000000000000000ic1ih2oc4kh1", "has more than"),
        (
            "mb0ic2000000000ih200000oc1kh1",
            "input of 1 x 2000000000 x 200000 x 200000 has more than",
        ),
        ("ic2000000000ih9oc1kh9", "weights"),
        ("ic2147483647ih1oc1kh1", "the limit is 2147418112"),
        ("ic1ih1oc2147483647kh1", "the limit is 2147418112"),
        ("g2ic2147483646ih1oc2kh1", "the limit is 2147418112"),
        ("ic2147400000ih2oc1kh2", "weights"),
        ("ic1ih1073741825oc1kh2dh1073741823", "spans 1073741824"),
        ("ic1ih9oc1kh3dh9000000000000000000", "the limit is"),
    ] {
        let error = refused(text);
        assert!(error.contains(words), "`{text}`: {error}");
    }
    // A word given twice or two that contradict each other.
    for text in [
        "ic3ih8oc4kh3+relu+tanh",
        "ic3ih8oc4kh3+bias+bias",
        "ic3ih8oc4kh3+f16+bf16",
        "ic3ih8oc4kh3+align=4+align=8",
    ] {
        assert!(refused(text).contains("twice"), "{text}");
    }
    let error = Problem::new(Shape::new(1, [1, 0, 5], 1, [1, 1])).unwrap_err();
    assert!(matches!(error, Error::InvalidProblem(_)), "{error}");
}

#[test]
fn what_no_tap_falls_on_is_not_read() {
    let bytes = |text: &str| text.parse::<Problem>().unwrap().bytes() / 4.0;
    // 8 channels of 14x14 of 28x28, 8x8 weights, 8 channels of 14x14.
    assert_eq!(
        bytes("mb1ic8ih28oc8oh14kh1sh2"),
        (2 * 8 * 14 * 14 + 64) as f64
    );
    // All of 28x28: three taps overlap, and two meet.
    let all = (8 * 28 * 28 + 8 * 14 * 14) as f64;
    assert_eq!(bytes("mb1ic8ih28oc8oh14kh3sh2ph1"), all + 64.0 * 9.0);
    assert_eq!(bytes("mb1ic8ih28oc8oh14kh2sh2"), all + 64.0 * 4.0);
}
