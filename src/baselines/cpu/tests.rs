//! Both variants against loops in f64, through the public interface.

use std::sync::Arc;

use half::{bf16, f16};

use super::{Direct, Gemm, number};
use crate::{
    Activation, Buffer, Conv, Device, Element, Layout, Math, Operands, Pick, Pool, Problem, Result,
    Storage,
    variant::{Query, Variant},
};

/// Every way through the code: padding on four sides, stride, dilation, groups, 1x1, depthwise,
/// several tiles down, across and in channels, sums in several steps.
const GEOMETRIES: [&str; 13] = [
    "mb1ic1ih1oc1kh1",
    "mb2ic3ih9iw7oc5kh3kw2ph1",
    "mb2ic3ih9iw8oc5oh6ow5kh3ph2pw1sh2sw2",
    "mb1ic2ih11iw13oc3kh3kw2dh1dw2ph2pw0",
    "g2mb2ic4ih6iw5oc6kh3ph1",
    "g4mb1ic4ih9iw10oc4kh3ph1sh1sw2",
    "g3mb1ic6ih7iw5oc3kh2ph1dh1",
    "g3mb2ic3ih5iw6oc6kh3ph1",
    "mb2ic6ih5iw7oc9kh1",
    "mb1ic5ih3iw700oc3kh1",
    "mb1ic3ih2iw1100oc2kh2kw3pw1",
    "mb1ic2ih28iw30oc3kh12",
    "mb1ic2ih17iw19oc131kh1sh2",
];
const EPILOGUES: [&str; 4] = [
    "",
    "+bias+relu",
    "+scale=0.5+bias+residual+pool=2",
    "+pool=3x2s2x1ceil",
];
const SMOOTH: [&str; 4] = [
    "+tanh",
    "+bias+sigmoid",
    "+residual+silu+pool=2",
    "+scale=0.5+bias+relu6",
];

fn variants() -> [Arc<dyn Variant>; 2] {
    [Arc::new(Direct::new()), Arc::new(Gemm::new())]
}

/// The problem in every storage, math and layout, as far as it can be pooled at all.
fn all(text: &str, epilogues: &[&str]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for epilogue in epilogues {
        let Ok(problem) = format!("{text}{epilogue}").parse::<Problem>() else {
            continue;
        };
        for storage in Storage::ALL {
            for math in storage.maths() {
                for layout in [Layout::Nchw, Layout::Nhwc] {
                    let edit = |s: &mut crate::Shape| {
                        (s.storage, s.math, s.layout) = (storage, *math, layout);
                    };
                    problems.push(problem.with(edit).unwrap());
                }
            }
        }
    }
    problems
}

/// Operands that differ from place to place: integers of -`most` to `most`, or fractions of it.
struct Data {
    x: Vec<f32>,
    w: Vec<f32>,
    bias: Vec<f32>,
    residual: Vec<f32>,
}

impl Data {
    fn new(p: &Problem, integers: bool) -> Self {
        let values = |len: usize, seed: u64, most: i64| -> Vec<f32> {
            let mut state = seed;
            let mut next = || {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                if integers {
                    ((state >> 33) as i64 % (2 * most + 1) - most) as f32
                } else {
                    ((state >> 33) as f64 / (1u64 << 30) as f64 - 1.0) as f32 * most as f32
                }
            };
            let stored = |v: f32| match p.storage() {
                Storage::F32 => v,
                Storage::F16 => f16::from_f32(v).to_f32(),
                Storage::Bf16 => bf16::from_f32(v).to_f32(),
            };
            (0..len).map(|_| stored(next())).collect()
        };
        Data {
            x: values(p.x_len(), 1, 2),
            w: values(p.w_len(), 2, 2),
            bias: values(p.bias_len(), 3, 4),
            residual: values(p.residual_len(), 4, 4),
        }
    }
}

fn run(p: &Problem, variant: &Arc<dyn Variant>, data: &Data, limit: usize) -> Result<Vec<f32>> {
    fn typed<T: Element + super::Stored>(
        conv: &Conv,
        data: &Data,
        limit: usize,
    ) -> Result<Vec<f32>> {
        let device = Device::cpu();
        let stream = device.stream()?;
        let upload = |values: &[f32]| -> Result<Buffer<T>> {
            device.upload(&values.iter().map(|v| T::narrow(*v)).collect::<Vec<T>>())
        };
        let mut workspace = crate::Workspace::new(&stream)?.limit(limit);
        workspace.reserve(conv, &stream)?;
        let (x, w, residual) = (upload(&data.x)?, upload(&data.w)?, upload(&data.residual)?);
        let bias = device.upload(&data.bias)?;
        let mut y = upload(&vec![f32::NAN; conv.problem().y_len()])?;
        let mut operands = Operands::new(&x, &w, &mut y);
        if !bias.is_empty() {
            operands = operands.bias(&bias);
        }
        if !residual.is_empty() {
            operands = operands.residual(&residual);
        }
        conv.run_with(operands, &mut workspace, &stream)?;
        Ok(y.to_vec(&stream)?.into_iter().map(T::widen).collect())
    }
    let conv = Conv::with_variant(&Device::cpu(), p, variant.clone())?;
    super::with_storage!(p, T => typed::<T>(&conv, data, limit))
}

/// The sums and their magnitudes in f64, then everything else, straight from the definition.
fn expected(p: &Problem, data: &Data) -> Vec<(f64, f64)> {
    let operand = |v: f32| -> f64 {
        f64::from(match p.math() {
            Math::Fp32 => v,
            Math::Tf32 => number::tf32(v),
            Math::F16 | Math::F16Acc => f16::from_f32(v).to_f32(),
            Math::Bf16 => bf16::from_f32(v).to_f32(),
        })
    };
    let at = |dims: [usize; 3], n: usize, c: usize, h: usize, w: usize| match p.layout() {
        Layout::Nchw => ((n * dims[0] + c) * dims[1] + h) * dims[2] + w,
        Layout::Nhwc => ((n * dims[1] + h) * dims[2] + w) * dims[0] + c,
    };
    let cg = p.c() / p.groups();
    let before_pooling = |n: usize, k: usize, i: usize, j: usize| {
        let (mut sum, mut mag) = (0.0, 0.0);
        for c in 0..cg {
            for r in 0..p.r() {
                for s in 0..p.s() {
                    let h = (i * p.stride()[0] + r * p.dilation()[0]) as i64 - p.pad().top as i64;
                    let w = (j * p.stride()[1] + s * p.dilation()[1]) as i64 - p.pad().left as i64;
                    if h < 0 || w < 0 || h >= p.h() as i64 || w >= p.w() as i64 {
                        continue;
                    }
                    let channel = k / (p.k() / p.groups()) * cg + c;
                    let x = data.x[at([p.c(), p.h(), p.w()], n, channel, h as usize, w as usize)];
                    let w = data.w[at([cg, p.r(), p.s()], k, c, r, s)];
                    sum += operand(x) * operand(w);
                    mag += (operand(x) * operand(w)).abs();
                }
            }
        }
        let e = p.epilogue();
        let bias = if e.bias { f64::from(data.bias[k]) } else { 0.0 };
        let residual = if e.residual {
            f64::from(data.residual[at([p.k(), p.p(), p.q()], n, k, i, j)])
        } else {
            0.0
        };
        let v = f64::from(e.scale) * sum + bias + residual;
        let v = match e.activation {
            Activation::None => v,
            Activation::Relu => v.max(0.0),
            Activation::Relu6 => v.clamp(0.0, 6.0),
            Activation::Tanh => v.tanh(),
            Activation::Sigmoid => 1.0 / (1.0 + (-v).exp()),
            Activation::Silu => v / (1.0 + (-v).exp()),
        };
        (v, f64::from(e.scale) * mag + bias.abs() + residual.abs())
    };
    let [rows, columns] = p.out();
    let mut y = vec![(0.0, 0.0); p.y_len()];
    let Pool { window, stride, .. } = p.epilogue().pool.unwrap_or(Pool {
        window: [1; 2],
        stride: [1; 2],
        ceil: false,
    });
    for n in 0..p.n() {
        for k in 0..p.k() {
            for i in 0..rows {
                for j in 0..columns {
                    let (mut max, mut mag) = (f64::NEG_INFINITY, 0f64);
                    for a in i * stride[0]..(i * stride[0] + window[0]).min(p.p()) {
                        for b in j * stride[1]..(j * stride[1] + window[1]).min(p.q()) {
                            let (v, m) = before_pooling(n, k, a, b);
                            (max, mag) = (max.max(v), mag.max(m));
                        }
                    }
                    y[at([p.k(), rows, columns], n, k, i, j)] = (max, mag);
                }
            }
        }
    }
    y
}

fn rounded(storage: Storage, v: f64) -> f32 {
    match storage {
        Storage::F32 => v as f32,
        Storage::F16 => f16::from_f64(v).to_f32(),
        Storage::Bf16 => bf16::from_f64(v).to_f32(),
    }
}

fn supported(variant: &Arc<dyn Variant>, p: &Problem) -> bool {
    let limits = Device::cpu().limits();
    variant.plan(&Query::new(p, 0, &limits)).is_ok()
}

#[test]
fn integers_are_exact() {
    for p in GEOMETRIES.iter().flat_map(|text| all(text, &EPILOGUES)) {
        let data = Data::new(&p, true);
        let expected = expected(&p, &data);
        for variant in variants().iter().filter(|v| supported(v, &p)) {
            let y = run(&p, variant, &data, usize::MAX).unwrap();
            for (i, (y, (e, _))) in y.iter().zip(&expected).enumerate() {
                let e = rounded(p.storage(), *e);
                assert!(
                    *y == e,
                    "{} of {p} at {i}: {y}, not {e}",
                    variant.info().name
                );
            }
        }
    }
}

#[test]
fn fractions_are_near() {
    for p in GEOMETRIES[1..9].iter().flat_map(|text| all(text, &SMOOTH)) {
        let data = Data::new(&p, false);
        let expected = expected(&p, &data);
        let of_sum = if p.math() == Math::F16Acc { 2e-3 } else { 1e-6 };
        let of_storage = [0.0, 5e-4, 4e-3][p.storage() as usize];
        for variant in variants().iter().filter(|v| supported(v, &p)) {
            let y = run(&p, variant, &data, usize::MAX).unwrap();
            for (i, (y, (e, mag))) in y.iter().zip(&expected).enumerate() {
                let error = (f64::from(*y) - e).abs();
                let bound = of_sum * mag + of_storage * e.abs() + 1e-6;
                let name = &variant.info().name;
                assert!(
                    error <= bound,
                    "{name} of {p} at {i}: {y}, not {e}: {error} > {bound}"
                );
            }
        }
    }
}

#[test]
fn bits_depend_on_neither_threads_nor_workspace() {
    for p in GEOMETRIES
        .iter()
        .flat_map(|text| all(text, &["+bias+tanh", "+pool=2"]))
    {
        let data = Data::new(&p, false);
        for variant in variants().iter().filter(|v| supported(v, &p)) {
            let conv = Conv::with_variant(&Device::cpu(), &p, variant.clone()).unwrap();
            let bytes = conv.workspace_bytes();
            let on = |threads: usize, limit: usize| -> Vec<u32> {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads)
                    .build()
                    .unwrap();
                let y = pool.install(|| run(&p, variant, &data, limit)).unwrap();
                y.into_iter().map(f32::to_bits).collect()
            };
            let y = on(2, usize::MAX);
            for (threads, limit) in [
                (2, usize::MAX),
                (1, usize::MAX),
                (3, usize::MAX),
                (2, bytes.least),
            ] {
                assert!(
                    y == on(threads, limit),
                    "{} of {p}: {threads} threads",
                    variant.info().name
                );
            }
        }
    }
}

#[test]
fn the_rule_takes_the_matrix_where_it_can() {
    let pick = |text: &str| {
        let p: Problem = text.parse().unwrap();
        Conv::new(&Device::cpu(), &p, &Pick::Rule).unwrap().name()
    };
    assert_eq!(pick("mb1ic64ih56oc64oh56kh3ph1"), "cpu_gemm");
    assert_eq!(pick("g32mb1ic32ih112oc32oh112kh3ph1"), "cpu_gemm");
    assert_eq!(pick("mb1ic16ih8oc16kh3+math=f16acc"), "cpu_direct");
}

#[test]
fn tf32_rounds_ties_away() {
    let ulp = (2f32).powi(-10);
    for (v, expected) in [
        (1.0, 1.0),
        (1.0 + ulp / 2.0, 1.0 + ulp),
        (-1.0 - ulp / 2.0, -1.0 - ulp),
        (1.0 + ulp * 0.49, 1.0),
        (2.0 - ulp / 4.0, 2.0),
        (f32::INFINITY, f32::INFINITY),
    ] {
        assert_eq!(number::tf32(v), expected);
    }
    assert!(number::tf32(f32::NAN).is_nan());
}

#[test]
fn f16_is_that_of_half() {
    for bits in 0..=u16::MAX {
        let (v, expected) = (
            number::widen_f16(f16::from_bits(bits)),
            f16::from_bits(bits).to_f32(),
        );
        assert!(
            v.to_bits() == expected.to_bits() || v.is_nan() && expected.is_nan(),
            "{bits:#x}"
        );
        // Each f16, the tie above it, and both sides of the tie.
        let next = f16::from_bits(bits.wrapping_add(1)).to_f32();
        let tie = if next.is_infinite() {
            65520f32.copysign(v)
        } else {
            v.midpoint(next)
        };
        for v in [v, tie, tie.next_up(), tie.next_down()] {
            let (v, expected) = (number::round_f16(v), f16::from_f32(v).to_f32());
            assert!(
                v.to_bits() == expected.to_bits() || v.is_nan() && expected.is_nan(),
                "{v}"
            );
        }
    }
}

#[test]
fn bf16_is_that_of_half() {
    for bits in 0..=u16::MAX {
        let v = bf16::from_bits(bits).to_f32();
        let tie = f32::from_bits(v.to_bits() | 0x8000);
        for v in [v, tie, tie.next_up(), tie.next_down()] {
            let (v, expected) = (number::round_bf16(v), bf16::from_f32(v).to_f32());
            assert!(
                v.to_bits() == expected.to_bits() || v.is_nan() && expected.is_nan(),
                "{v}"
            );
        }
    }
}

#[test]
fn f16_fma_rounds_once() {
    let two = |e: i32| (2f32).powi(e);
    // A tie, which goes to even; just above one, by less than f32 can tell; just below one.
    assert_eq!(number::f16_fma(1.0, two(-6), two(-5)), 1.0);
    assert_eq!(
        number::f16_fma(1.0, two(-1) * (1.0 + two(-10)), two(-10) * (1.0 + two(-10))),
        1.0 + two(-10)
    );
    assert_eq!(
        number::f16_fma(
            1.0 + two(-10),
            two(-1) * (1.0 - two(-10)),
            two(-10) * (1.0 + two(-10))
        ),
        1.0 + two(-10)
    );
    assert_eq!(number::f16_fma(60000.0, 300.0, 300.0), f32::INFINITY);
    assert!(number::f16_fma(f32::NAN, 1.0, 1.0).is_nan());
}
