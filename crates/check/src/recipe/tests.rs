//! What makes the numbers serve: sums that no order rounds, and nothing that overflows.

use convforge::Math;

use super::*;
use crate::{Profile, Reference};

/// What makes a bitwise comparison fair: no order of additions rounds.
#[test]
fn integer_sums_are_exact() {
    let deep = [
        "mb1ic7200ih1oc2kh1+math=f16acc",
        "mb1ic2048ih3oc2kh3+f16+math=f16acc+bias+tanh",
    ];
    let deep = deep.iter().map(|text| text.parse().unwrap());
    let small = Profile {
        flops: 2e5,
        ..Profile::default()
    };
    for problem in (0..300).map(|i| small.problem(7, i)).chain(deep) {
        let recipe = Recipe::new(&problem, Data::Integer, 3);
        let tensors = recipe.tensors();
        let down = recipe.factors[Tensor::W as usize].abs();
        let unit = f64::from(down) * f64::from(problem.epilogue().scale.abs());
        let limit = if problem.math() == Math::F16Acc {
            2048.0
        } else {
            16_777_216.0
        };
        let reference = Reference::new(&problem, &tensors)
            .unwrap()
            .outputs(0..problem.y_len());
        for expected in &reference {
            assert!(
                expected.mag / unit.min(1.0) <= limit,
                "{problem}: {expected:?} in {unit}"
            );
            if problem.storage() == Storage::F16 {
                assert!(expected.mag < 65504.0, "{problem}: {expected:?}");
            }
        }
        // Only in fp32 are there more bits than the coarsest operand has.
        let parts = problem.storage() == Storage::F32 && problem.math() == Math::Fp32;
        for v in tensors.x.iter().chain(&tensors.w) {
            let scaled = v / down;
            assert!(scaled.fract() == 0.0 || v.fract() == 0.0, "{problem}: {v}");
            assert!(v.abs() < 32768.0, "{problem}: {v}");
            assert!(
                parts || v.abs() <= 127.0 && bf16::from_f32(*v).to_f32() == *v,
                "{problem}: {v}"
            );
        }
        let nonzero = reference.iter().filter(|e| e.value != 0.0).count();
        // Padding may outgrow the filter: then some outputs are sums of nothing.
        let sums = reference.iter().filter(|e| e.mag != 0.0).count();
        assert!(
            (sums > 0 && nonzero * 4 >= sums) || reference.len() < 16,
            "{problem}: {nonzero}"
        );
    }
}

/// What rounding to the 11 bits of TF32 leaves.
fn low(v: f32) -> f32 {
    v - f32::from_bits((v.to_bits() + 0x1000) & !0x1fff)
}

/// Of both operands there are low parts, and of no product two: what multiplies in parts leaves
/// their product out.
#[test]
fn whole_numbers_of_fp32_have_low_parts() {
    for (text, [inputs, filters]) in [
        ("mb2ic3ih9oc4kh3", [true, true]),
        ("mb1ic2ih9oc4kh3+nhwc", [true, true]),
        ("mb1ic64ih9oc8kh3", [true, true]),
        ("g4mb1ic12ih9oc8kh5+nhwc+bias", [true, true]),
        ("mb1ic512ih4oc8kh3ph1+relu6", [true, true]),
        ("mb1ic25088ih1oc8kh1+scale=2", [true, true]),
        // The seed chooses.
        ("mb1ic1ih30oc4kh5", [true, false]),
        ("g8mb1ic8ih40oc8kh31", [false, true]),
        // Nothing to be rounded.
        ("mb2ic3ih9oc4kh3+math=tf32", [false, false]),
        ("mb2ic3ih9oc4kh3+math=f16", [false, false]),
        ("mb2ic3ih9oc4kh3+f16+math=fp32", [false, false]),
    ] {
        let problem: Problem = text.parse().unwrap();
        let found = |seed| {
            let tensors = Recipe::new(&problem, Data::Integer, seed).tensors();
            let mut lows = tensors.clone();
            for v in lows.x.iter_mut().chain(&mut lows.w) {
                *v = low(*v);
            }
            let both = Reference::new(&problem, &lows).unwrap();
            let both = both.outputs(0..problem.y_len());
            let added = f64::from(problem.epilogue().bias) * 3.0;
            assert!(both.iter().all(|low| low.mag <= added), "{text}");
            for v in tensors.x.iter().chain(&tensors.w) {
                assert!(low(low(*v)) == 0.0, "{text}: {v}");
                let f16s = half::f16::from_f32(*v).to_f32();
                assert_eq!(low(*v) != 0.0, f16s != *v, "{text}: {v}");
            }
            [&lows.x, &lows.w].map(|lows| lows.iter().any(|low| *low != 0.0))
        };
        let seeds: Vec<[bool; 2]> = (0..4).map(found).collect();
        let all = [inputs, filters];
        if problem.c() > problem.groups() || all == [false, false] {
            assert!(seeds.iter().all(|found| *found == all), "{text}: {seeds:?}");
        } else {
            let other = [!inputs, !filters];
            assert!(seeds.contains(&all) && seeds.contains(&other), "{text}");
            assert!(seeds.iter().all(|found| *found == all || *found == other));
        }
    }
}

/// Operands from end to end of the range, and products of one size.
#[test]
fn extreme_exponents_span_the_range_and_nothing_overflows() {
    for (text, least, most) in [
        ("mb2ic128ih7oc32kh3ph1", -55, 55),
        ("mb2ic128ih7oc32kh3ph1+nhwc+math=tf32", -55, 55),
        ("mb2ic128ih7oc32kh3ph1+bf16+nhwc", -55, 55),
        ("mb2ic128ih7oc32kh3ph1+bias+tanh", -33, 33),
        ("mb2ic128ih7oc32kh3ph1+f16+nhwc", -17, 14),
        ("mb2ic128ih7oc32kh3ph1+math=f16+residual", -17, 14),
        ("mb2ic128ih7oc32kh3ph1+math=f16acc", -17, 14),
        ("g64mb2ic128ih7oc128kh3ph1", -45, 45),
        ("g64mb2ic64ih7oc128kh3ph1+nhwc", -45, 45),
    ] {
        let problem: Problem = text.parse().unwrap();
        let recipe = Recipe::new(&problem, Data::Extreme, 2);
        let tensors = recipe.tensors();
        for values in [&tensors.x, &tensors.w] {
            let exponents = values.iter().map(|v| v.abs().log2().floor() as i32);
            let [low, high] = [exponents.clone().min(), exponents.max()].map(Option::unwrap);
            assert!(low <= least && high >= most, "{text}: {low} to {high}");
        }
        let f16 = most < 20;
        let reference = Reference::new(&problem, &tensors).unwrap();
        for expected in reference.outputs(0..problem.y_len()) {
            let most = if f16 { 32_768.0 } else { 2f64.powi(60) };
            assert!(
                expected.mag > 1e-15 && expected.mag < most,
                "{text}: {expected:?}"
            );
            assert!(expected.sequential.is_finite());
        }
        // No operand is alone beyond the least f16 that is aligned well.
        let limit = 2f32.powi(-18);
        assert!(!f16 || tensors.x.iter().chain(&tensors.w).all(|v| v.abs() >= limit));
    }
}

/// Operands that are subnormal in f16, and sums that are as exact as those of whole numbers.
#[test]
fn subnormal_operands_have_exact_sums() {
    let small = Profile {
        flops: 2e5,
        ..Profile::default()
    };
    let (mut inputs, mut filters) = (0, 0);
    for problem in (0..1000).map(|i| small.problem(7, i)) {
        if !Data::Subnormal.fits(&problem) || problem.n() == 0 {
            continue;
        }
        let recipe = Recipe::new(&problem, Data::Subnormal, 3);
        let tensors = recipe.tensors();
        let subnormal = |values: &[f32]| {
            let limit = f16::MIN_POSITIVE.to_f32();
            let mut kept = values.iter().filter(|v| **v != 0.0);
            kept.all(|v| v.abs() < limit && f16::from_f32(*v).to_f32() == *v)
        };
        let [x, w] = [subnormal(&tensors.x), subnormal(&tensors.w)];
        assert!(x || w, "{problem}");
        assert!(x && w || problem.storage() == Storage::F16, "{problem}");
        inputs += usize::from(x);
        filters += usize::from(w);
        let [of_x, of_w, of_sums, _] = recipe.factors.map(|f| f64::from(f.abs()));
        assert_eq!(of_x * of_w, of_sums);
        let scale = f64::from(problem.epilogue().scale.abs());
        let unit = of_sums * scale.min(1.0);
        for expected in Reference::new(&problem, &tensors)
            .unwrap()
            .outputs(0..problem.y_len())
        {
            assert_eq!((expected.value / unit).fract(), 0.0, "{problem}");
            let most = 16_777_216.0;
            assert!(expected.mag / unit <= most, "{problem}: {expected:?}");
        }
    }
    assert!(inputs > 50 && filters > 50, "{inputs} and {filters}");
    let fits = |text: &str| Data::Subnormal.fits(&text.parse().unwrap());
    assert!(fits("ic8ih8oc8kh3+math=f16") && fits("ic8ih8oc8kh3+f16+math=fp32+relu"));
    assert!(!fits("ic8ih8oc8kh3") && !fits("ic8ih8oc8kh3+bf16"));
    assert!(!fits("ic8ih8oc8kh3+f16+math=f16acc") && !fits("ic8ih8oc8kh3+f16+tanh"));
    assert!(!fits("ic8ih8oc8kh3+f16+scale=0.3"));
}

#[test]
fn nothing_overflows_an_f16() {
    for problem in [
        "mb1ic512ih4oc4oh4kh3ph1+f16+nhwc+bias+residual",
        "mb1ic555555ih1oc2kh1+f16+scale=2",
        "mb1ic200000ih1oc2kh1+math=f16acc",
        "mb1ic555555ih1oc2kh1+math=f16acc+scale=0.125",
    ] {
        let problem: Problem = problem.parse().unwrap();
        for data in Data::ALL {
            let tensors = Recipe::new(&problem, data, 1).tensors();
            let reference = Reference::new(&problem, &tensors).unwrap();
            for expected in reference.outputs(0..problem.y_len()) {
                // Of every order of additions, where data does not cancel in all of them.
                let most = match data {
                    Data::Normal | Data::Wide if problem.reduction() > 10_000 => {
                        expected.value.abs()
                    }
                    _ => expected.mag,
                };
                assert!(most < 40_000.0, "{data}: {expected:?}");
            }
        }
    }
}

#[test]
fn bytes_are_the_values() {
    for problem in [
        "mb2ic3ih5oc4kh3+bias+residual",
        "mb2ic3ih5oc4kh3+bf16+bias+residual",
    ] {
        let problem: Problem = problem.parse().unwrap();
        let recipe = Recipe::new(&problem, Data::Normal, 9);
        let tensors = recipe.tensors();
        assert_eq!(
            widen(problem.storage(), &recipe.bytes(Tensor::X)),
            tensors.x
        );
        assert_eq!(
            widen(Storage::F32, &recipe.bytes(Tensor::Bias)),
            tensors.bias
        );
        assert_eq!(tensors.residual.len(), problem.residual_len());
    }
}
