//! What variants answer when they are asked for a plan of anything at all: a number or a reason, be the
//! problem as large as problems may be, the chip one that nobody built, the configuration one that there
//! is not. Plans are arithmetic, in C where the variant is a kernel, so what divides by zero there or reads
//! beyond a table ends the process.

use convforge::{
    Layout, Limits, Padding, Problem, Shape, Storage,
    variant::{self, Kind, Plan, Query, Variant},
    variants,
};
use proptest::prelude::*;

fn plan(variant: &dyn Variant, query: &Query) -> Result<Plan, String> {
    let on_gpu = variant.info().kind != Kind::Cpu;
    variant::plan(variant, on_gpu, query)
}

#[test]
fn a_configuration_that_there_is_not_is_refused() {
    let limits = Limits::of_chip("h200").unwrap();
    for text in ["mb2ic4ih40oc16oh34kh7", "mb4ic64ih14oc64kh3ph1+f16+nhwc"] {
        let problem: Problem = text.parse().unwrap();
        for variant in variants::all() {
            let count = variant.info().configs.len().max(1);
            for config in [count, count + 1, 1 << 20, 1 << 31, usize::MAX] {
                let query = Query::new(&problem, config, &limits);
                let why = plan(&**variant, &query).unwrap_err();
                let named = why.contains(&format!("index {config}; there are {count}"));
                assert!(named, "{}: {why}", variant.info().name);
                // Whoever asks the variant itself is answered as well.
                let _ = variant.plan(&query);
            }
        }
    }
}

/// Numbers that kernels divide by and multiply with.
#[test]
fn a_chip_that_nobody_built_is_answered() {
    let chips: [fn(&mut Limits, u32); 9] = [
        |chip, value| chip.sm_count = value,
        |chip, value| chip.shared_per_block = value,
        |chip, value| chip.shared_per_sm = value,
        |chip, value| chip.registers_per_sm = value,
        |chip, value| chip.l2_bytes = u64::from(value) << 32,
        |chip, value| chip.memory_bytes = u64::from(value) << 32,
        |chip, value| chip.clock_khz = value,
        |chip, value| chip.memory_clock_khz = value,
        |chip, value| chip.memory_bits = value,
    ];
    let problems = [
        "mb2ic4ih40oc16oh34kh7",
        "mb2ic4ih40oc16oh34kh7+f16",
        "mb8ic64ih56oc64kh3ph1",
        "mb8ic64ih56oc64kh3ph1+f16+nhwc",
        "mb8ic64ih56oc64kh3ph1+math=tf32",
        "mb4ic256ih1oc128kh1",
        "g32mb2ic32ih56oc32kh3ph1+f16+nhwc",
        "g32mb2ic32ih56oc32kh3ph1",
        "g8mb2ic64ih56oc64kh3ph1+f16",
    ];
    for (chip, name) in chips
        .iter()
        .flat_map(|chip| [(chip, "h200"), (chip, "a100")])
    {
        for value in [0, 1, 31, 1 << 16, 1 << 20, u32::MAX] {
            let mut limits = Limits::of_chip(name).unwrap();
            chip(&mut limits, value);
            for problem in problems.map(|text| text.parse::<Problem>().unwrap()) {
                for variant in variants::all() {
                    for config in 0..variant.info().configs.len().max(1) {
                        let _ = plan(&**variant, &Query::new(&problem, config, &limits));
                    }
                }
            }
        }
    }
    let problem: Problem = problems[0].parse().unwrap();
    let mut none = Limits::of_chip("h200").unwrap();
    none.sm_count = 0;
    for variant in variants::all() {
        if variant.info().kind == Kind::Kernel
            && plan(&**variant, &Query::new(&problem, 0, &none)).is_ok()
        {
            panic!(
                "{} plans for a GPU without multiprocessors",
                variant.info().name
            );
        }
    }
}

/// A size of some number of bits, so that small and large ones are as frequent.
fn size(bits: u32) -> impl Strategy<Value = usize> {
    (0..=bits).prop_flat_map(|bits| 0..=1usize << bits)
}

fn sizes<const N: usize>(bits: u32) -> impl Strategy<Value = [usize; N]> {
    proptest::array::uniform(size(bits))
}

prop_compose! {
    /// Mostly large, with groups, steps and paddings of their own.
    fn shapes()(
        n in size(46),
        [c, h, w, k] in sizes(30),
        [r, s] in sizes(14),
        [of_group, groups] in sizes(12),
        grouped in 0..4,
        stride in sizes(6),
        dilation in sizes(6),
        [top, left, bottom, right] in sizes(29),
        padded: bool,
        nhwc: bool,
        storage in prop::sample::select(Storage::ALL.to_vec()),
        math in 0usize..5,
    ) -> Shape {
        let mut shape = Shape::new(n, [c, h, w], k, [r, s]);
        match grouped {
            0 => (shape.groups, shape.k) = (c, c),
            1 => (shape.groups, shape.c, shape.k) = (groups, groups * of_group, groups * of_group),
            _ => {}
        }
        (shape.stride, shape.dilation) = (stride, dilation);
        if padded {
            shape.pad = Padding { top, left, bottom, right };
        }
        shape.layout = if nhwc { Layout::Nhwc } else { Layout::Nchw };
        shape.storage = storage;
        shape.math = storage.maths()[math % storage.maths().len()];
        shape
    }
}

/// Whatever can do a problem plans a workspace that there could be, and takes a time.
fn answers(problem: &Problem) -> Result<(), TestCaseError> {
    let limits = Limits::of_chip("h200").unwrap();
    for variant in variants::all() {
        let name = &variant.info().name;
        for config in 0..variant.info().configs.len().max(1) {
            let Ok(plan) = plan(&**variant, &Query::new(problem, config, &limits)) else {
                continue;
            };
            let bytes = plan.workspace;
            let sane = bytes.least <= bytes.preferred && bytes.preferred <= isize::MAX as usize;
            prop_assert!(sane, "{name}: {problem}: {bytes:?}");
            let us = plan.us.unwrap_or_default();
            prop_assert!(us.is_finite() && us >= 0.0, "{name}: {problem}: {us} us");
        }
    }
    Ok(())
}

/// Its unrolled image has 2^61 elements: their bytes do not fit 63 bits.
#[test]
fn an_unrolled_image_beyond_64_bits_is_answered() {
    let problem = "mb1ic32ih1iw13820023oc62kh6296kw6369sh51sw4dh4dw1ph29000pw15644";
    answers(&problem.parse().unwrap()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_local_rejects: 1 << 20, ..Default::default() })]

    #[test]
    fn the_largest_problems_are_answered(shape in shapes(), images: bool) {
        let shape = Shape { n: if images { shape.n } else { 0 }, ..shape };
        let Ok(problem) = Problem::new(shape) else { return Ok(()) };
        answers(&problem)?;
    }
}
