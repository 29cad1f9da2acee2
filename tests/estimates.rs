//! What variants estimate of their time, on every chip that is known by name: never nothing, never less
//! than the chip needs to move the operands, and more where there is more work or less of a chip.
#![cfg(feature = "cuda")]

use std::collections::HashSet;

use convforge::{
    Limits, Pick, Problem,
    variant::{self, Configured, Kind, Query, Space, Variant},
    variants,
};
use convforge_check::Profile;
use proptest::prelude::*;

/// A problem of the check's domain, of any number of images.
fn problems() -> impl Strategy<Value = Problem> {
    let profile = Profile::default();
    (any::<u64>(), 0..6u32).prop_map(move |(index, doublings)| {
        let problem = profile.problem(1, index);
        of_images(&problem, problem.n() << doublings)
    })
}

fn chips() -> impl Strategy<Value = (&'static str, Limits)> {
    let chips = Limits::CHIPS.map(|chip| (chip, Limits::of_chip(chip).unwrap()));
    prop::sample::select(chips.to_vec())
}

fn of_images(problem: &Problem, n: usize) -> Problem {
    problem.with(|shape| shape.n = n).unwrap()
}

/// The least estimate of a variant's configurations that the rule may take.
fn estimate(variant: &dyn Variant, limits: &Limits, problem: &Problem) -> Option<f64> {
    let configs = 0..variant.info().configs.len().max(1);
    let all = configs.filter_map(|config| {
        let query = Query::new(problem, config, limits);
        let plan = variant::plan(variant, true, &query).ok()?;
        let in_constant_memory = plan
            .packing
            .is_some_and(|packing| packing.space == Space::Constant);
        plan.us.filter(|_| !in_constant_memory)
    });
    all.reduce(f64::min)
}

fn ranked() -> impl Iterator<Item = &'static dyn Variant> {
    let all = variants::all().iter().map(|variant| &**variant);
    all.filter(|variant| variant.info().ranked && variant.info().kind != Kind::Cpu)
}

/// Tiles are compared without some terms of their times: the one that is taken may be told to take so many
/// times as long as another would be, and so many microseconds more.
const TIMES: f64 = 1.3;
const MORE_US: f64 = 3.0;

/// Rows, and less of a chip that some problems are told to take shorter with:
/// - small_mma and small_mma16 give each multiprocessor its share of the memory's pins, though with few
///   images few of them read: half as many have twice the share (csrc/kernels/small/*_plan.cuh).
/// - small_mma takes the task that its filter is packed for by what it would take on eight images, of
///   which others may take less with another one.
const SHORTER: [(&str, &str); 4] = [
    ("small_mma", "multiprocessors"),
    ("small_mma", "clocks"),
    ("small_mma", "bandwidth"),
    ("small_mma16", "multiprocessors"),
];

/// Rows whose estimate leaves out the bias's bytes.
const WITHOUT_BIAS: [&str; 3] = ["small_resident", "depthwise_nchw", "depthwise_any"];

/// A chip with some of another's.
fn less(limits: &Limits) -> [(&'static str, Limits); 3] {
    let mut all = ["multiprocessors", "clocks", "bandwidth"].map(|what| (what, limits.clone()));
    all[0].1.sm_count /= 2;
    all[1].1.clock_khz /= 2;
    all[2].1.memory_clock_khz /= 2;
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn an_estimate_is_a_time_that_the_chip_can_keep(problem in problems(), (chip, limits) in chips()) {
        for variant in ranked() {
            let Some(us) = estimate(variant, &limits, &problem) else { continue };
            let name = &variant.info().name;
            prop_assert!(us.is_finite() && us > 0.0, "{name} on {problem}, {chip}: {us} us");
            // A packed filter may be smaller than it is stored.
            let filter = problem.w_len() * problem.storage().bytes();
            let bias = match WITHOUT_BIAS.contains(&&**name) {
                true => problem.bias_len() * 4,
                false => 0,
            };
            let floor = (problem.bytes() - (filter + bias) as f64) / limits.bytes_per_us();
            prop_assert!(us >= floor, "{name} on {problem}, {chip}: {us} us, under {floor} of memory");
        }
    }

    #[test]
    fn less_of_a_chip_takes_longer(problem in problems(), (chip, limits) in chips()) {
        for variant in ranked() {
            let Some(us) = estimate(variant, &limits, &problem) else { continue };
            let name = &variant.info().name;
            for (what, less) in less(&limits) {
                if SHORTER.contains(&(&**name, what)) { continue }
                let Some(longer) = estimate(variant, &less, &problem) else { continue };
                prop_assert!(
                    longer * TIMES + MORE_US >= us,
                    "{name} on {problem}, {chip}: {us} us, with half its {what} {longer}"
                );
            }
        }
    }

    #[test]
    fn more_images_take_longer(problem in problems(), (chip, limits) in chips()) {
        let more = of_images(&problem, 2 * problem.n());
        for variant in ranked() {
            let pair = [&problem, &more].map(|problem| estimate(variant, &limits, problem));
            let [Some(us), Some(longer)] = pair else { continue };
            let name = &variant.info().name;
            prop_assert!(longer * TIMES + MORE_US >= us, "{name} on {problem}, {chip}: {us} us, of twice as many {longer}");
        }
    }

    #[test]
    fn a_rule_takes_the_least_estimate_as_it_counts_it(problem in problems(), (chip, limits) in chips()) {
        let Ok(choice) = Pick::Rule.choose_for(&limits, &problem) else {
            let able = ranked().find(|variant| estimate(*variant, &limits, &problem).is_some());
            prop_assert!(able.is_none(), "{problem}, {chip}: none, but {} can", able.unwrap().info().name);
            return Ok(());
        };
        let counted = |us: f64, variant: &dyn Variant| us * variant.info().rule_factor();
        let us = choice.configured.plan(&limits, &problem).unwrap().us.unwrap();
        let us = counted(us, &*choice.configured.variant);
        let least = ranked().filter_map(|variant| Some(counted(estimate(variant, &limits, &problem)?, variant)));
        let least = least.reduce(f64::min).unwrap();
        prop_assert!(us <= least, "{problem}, {chip}: {} with {us} us, the least is {least}", choice.name());
    }
}

/// A variant that plans all by its first configuration: what each of them would do, where it can.
struct Planned {
    name: String,
    configs: Vec<(String, Option<variant::Plan>)>,
}

impl Planned {
    /// What each configuration is told to take.
    fn us(&self) -> impl Iterator<Item = (&str, f64)> {
        let able = self.configs.iter();
        able.filter_map(|(name, plan)| Some((&**name, plan.as_ref()?.us?)))
    }

    /// The plans in their places: the first, and those of a number.
    fn places(&self) -> impl Iterator<Item = &variant::Plan> {
        let is_place = |name: &str| name.ends_with("=any") || name.starts_with("plan=");
        let places = self.configs.iter().filter(move |(name, _)| is_place(name));
        places.filter_map(|(_, plan)| plan.as_ref())
    }
}

fn planned_by_any(problem: &Problem, limits: &Limits) -> Vec<Planned> {
    let is_any = |first: &String| first.ends_with("=any");
    let any = ranked().filter(|variant| variant.info().configs.first().is_some_and(is_any));
    let planned = |variant: &dyn Variant| {
        let plan = |config| variant::plan(variant, true, &Query::new(problem, config, limits)).ok();
        let names = variant.info().configs.iter().enumerate();
        Planned {
            name: variant.info().name.clone(),
            configs: names
                .map(|(config, name)| (name.clone(), plan(config)))
                .collect(),
        }
    };
    any.map(planned).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_is_the_best_of_all_and_the_next_plans_follow_it(problem in problems(), (chip, limits) in chips()) {
        for all in planned_by_any(&problem, &limits) {
            let name = &all.name;
            let mut us = all.us();
            let Some((_, first)) = us.next() else { continue };
            for (config, us) in us {
                prop_assert!(first <= us, "{name}:{config} on {problem}, {chip}: {us} us, the first {first}");
            }
            let us: Vec<f64> = all.places().filter_map(|plan| plan.us).collect();
            prop_assert!(us.is_sorted(), "{name} on {problem}, {chip}: {us:?}");
            let notes: Vec<&str> = all.places().filter_map(|plan| plan.note.as_deref()).collect();
            let distinct: HashSet<&str> = notes.iter().copied().collect();
            prop_assert!(distinct.len() == notes.len(), "{name} on {problem}, {chip}: {notes:#?}");
        }
    }
}

#[test]
fn rows_that_choose_among_many_plans_have_eight() {
    let limits = Limits::of_chip("h200").unwrap();
    for (text, name) in [
        ("mb64ic64ih56oc64oh56kh3ph1+f16+nhwc", "implicit_gemm_nhwc"),
        ("mb64ic64ih56oc64oh56kh3ph1+f16", "implicit_gemm_nchw"),
        ("mb64ic64ih56oc64oh56kh3ph1+nhwc", "implicit_gemm_f32_nhwc"),
        ("mb64ic64ih56oc64oh56kh3ph1", "implicit_gemm_f32_nchw"),
        ("g32mb64ic32ih56oc32oh56kh3ph1+nhwc", "depthwise_nhwc"),
        ("g32mb64ic32ih56oc32oh56kh3ph1", "depthwise_nchw"),
        ("g32mb64ic32ih56oc32oh56kh7ph3+nhwc", "depthwise_nhwc"),
        ("g32mb64ic32ih56oc32oh56kh7ph3", "depthwise_nchw"),
        ("g32mb64ic32ih56oc32oh56kh7ph3", "depthwise_rows"),
        ("g32mb64ic32ih56oc32oh56kh3ph1+f16+nhwc", "depthwise_mma"),
        ("g384mb64ic384ih14oc384oh14kh3ph1+f16", "depthwise_batched"),
        ("g32mb64ic32ih56oc32oh56kh3ph1+f16", "depthwise_planar"),
        ("g32mb64ic128ih56oc128oh56kh3ph1+nhwc", "grouped_nhwc"),
        ("g32mb64ic128ih56oc128oh56kh3ph1", "grouped_nchw"),
    ] {
        let all = planned_by_any(&text.parse().unwrap(), &limits);
        let found = all.iter().find(|all| all.name == name).unwrap();
        let notes = found.places().filter_map(|plan| plan.note.as_deref());
        let distinct: HashSet<&str> = notes.collect();
        assert_eq!(distinct.len(), 8, "{name} on {text}: {distinct:#?}");
    }
}

/// What is measured of a variant: no plan by two names.
#[test]
fn kinds_of_plans_that_have_a_number_are_left_out() {
    let limits = Limits::of_chip("h200").unwrap();
    let problem = "mb64ic64ih56oc64oh56kh3ph1+f16+nhwc".parse().unwrap();
    let plans = |name| {
        let variant = variants::find(name).unwrap();
        let plans = Configured::plans_of(&variant, &limits, &problem).into_iter();
        plans
            .map(|(one, plan)| (one.name(), plan.us.unwrap()))
            .collect::<Vec<_>>()
    };
    let all = plans("implicit_gemm_nhwc");
    let names: Vec<&str> = all.iter().map(|(name, _)| &**name).collect();
    let numbered = (2..=8).map(|number| format!("implicit_gemm_nhwc:plan={number}"));
    assert!(
        numbered.into_iter().all(|name| names.contains(&&*name)),
        "{names:?}"
    );
    assert_eq!(names[0], "implicit_gemm_nhwc:tiles=any");
    // `alone` is what `any` takes here.
    assert!(
        !names.contains(&"implicit_gemm_nhwc:tiles=alone"),
        "{all:?}"
    );
    // Estimates that do not see what configurations differ in make them no less others.
    let of_cublas = plans("cublas_gemm");
    let (auto, l2) = (&of_cublas[0], of_cublas.last().unwrap());
    assert_eq!((&*l2.0, l2.1), ("cublas_gemm:l2", auto.1));
}

#[test]
fn who_asks_for_sums_in_f16_gets_those_in_f32_where_there_are_no_others() {
    let limits = Limits::of_chip("h200").unwrap();
    let plan = |text: &str, name: &str| {
        let problem: Problem = text.parse().unwrap();
        let variant = variants::find(name).unwrap();
        let plan = variant.plan(&Query::new(&problem, 0, &limits)).unwrap();
        (plan.us, plan.packing.map(|packing| packing.bytes))
    };
    for (text, name) in [
        ("mb64ic64ih56oc64oh56kh3ph1+f16+nhwc", "implicit_gemm_nhwc"),
        ("g32mb64ic128ih56oc128oh56kh3ph1+f16", "grouped_nchw"),
        ("mb100ic1ih86oc4oh80kh7", "small_mma16"),
    ] {
        let of = |math: &str| plan(&format!("{text}+math={math}"), name);
        assert_eq!(of("f16acc"), of("f16"), "{name} on {text}");
    }
}

#[test]
fn plans_that_nobody_checked_are_taken_where_all_else_takes_twice_as_long() {
    let limits = Limits::of_chip("h200").unwrap();
    let cudnn = variants::find("cudnn").unwrap();
    assert!(!cudnn.info().judged);
    // Its estimate is the least, by less than that.
    let problem: Problem = "mb64ic24ih56oc144oh56kh1+f16".parse().unwrap();
    let choice = Pick::Rule.choose_for(&limits, &problem).unwrap();
    assert!(
        choice.reason.contains("; cudnn is estimated at"),
        "{}",
        choice.reason
    );
    let chosen = choice.configured;
    let us = chosen.plan(&limits, &problem).unwrap().us.unwrap();
    let least = estimate(&*cudnn, &limits, &problem).unwrap();
    assert!(least < us && us < 2.0 * least, "{least} us, and {us}");
    assert_ne!(chosen.variant.info().name, "cudnn");
}

/// Tensor copies bring whole pieces of 16 bytes, from boxes that are no longer than 256 along a side.
#[test]
fn depthwise_nhwc_copies_pixels_by_groups() {
    let limits = Limits::of_chip("h200").unwrap();
    let variant = variants::find("depthwise_nhwc").unwrap();
    // The groups of its plans, and the images of a strip.
    let plans = |text: &str| {
        let problem: Problem = text.parse().unwrap();
        let plans = Configured::plans_of(&variant, &limits, &problem).into_iter();
        plans
            .map(|(_, plan)| {
                let note = plan.note.unwrap();
                let word = |name: &str| -> usize {
                    let mut words = note.split(' ').filter_map(|word| word.split_once('='));
                    words
                        .find(|word| word.0 == name)
                        .unwrap()
                        .1
                        .parse()
                        .unwrap()
                };
                (word("group"), word("images"))
            })
            .collect::<Vec<_>>()
    };
    let groups = |text: &str| -> HashSet<usize> {
        plans(text).into_iter().map(|(group, _)| group).collect()
    };
    // Pixels of 116 and 232 bytes: as many as the width allows, up to 8. Of 32 and 128: whole lines.
    for (text, group) in [
        ("g58mb64ic58ih56oc58oh28kh3sh2ph1+f16+nhwc", 8),
        ("g58mb64ic58ih28oc58oh28kh3ph1+f16+nhwc", 4),
        ("g116mb64ic116ih14oc116oh14kh3ph1+f16+nhwc", 2),
        ("g58mb64ic58ih30oc58oh30kh3ph1+nhwc", 2),
        ("g16mb64ic16ih112oc16oh112kh3ph1+f16+nhwc", 4),
        ("g64mb64ic64ih56oc64oh56kh3ph1+f16+nhwc", 1),
    ] {
        assert!(groups(text).contains(&group), "{text}: {:?}", groups(text));
    }
    // Strips whose columns are no multiple of a group have smaller ones, or single pixels.
    for text in [
        "g24mb1ic24ih288oc24oh288kh3ph1+f16+nhwc",
        "g44mb8ic44ih192oc44oh192kh3ph1+nhwc",
        "g58mb64ic58ih136oc58oh134kh3+f16+nhwc",
        "g72mb64ic72ih128oc72oh128kh3ph1+f16+nhwc",
    ] {
        assert_eq!(plans(text).len(), 8, "{text}");
    }
    for text in [
        "g57mb64ic57ih56oc57oh56kh3ph1+nhwc",
        "g58mb64ic58ih30oc58oh30kh3ph1+f16+nhwc",
        "g1030mb64ic1030ih56oc1030oh56kh3ph1+f16+nhwc",
    ] {
        assert_eq!(plans(text), [], "{text}");
    }
    for text in [
        "g2mb20000ic2ih14iw4oc2oh14ow4kh3ph1+nhwc",
        "g2mb4096ic2ih7iw8oc2oh4ow4kh3sh2ph1+f16+nhwc",
    ] {
        let most = plans(text).into_iter().map(|(_, images)| images).max();
        assert!(most.is_some_and(|most| most <= 256), "{text}: {most:?}");
    }
}
