//! No row is left out by the tests and the benchmark that need a GPU: for every configuration of every variant there
//! is a problem that it can do of those they try, planned for an H200 on any machine.

mod common;

use common::drawn::{self, Wanted, nominal};
use convforge::{Limits, variant::Configured, variants};
use convforge_check::Domain;
use libtest_mimic::{Arguments, Failed, Trial};

/// Rows of which several configurations arrange a filter alike, so that what one has packed serves the others. A new
/// row needs no line here.
#[cfg(feature = "cuda")]
const PACKED_ALIKE: [&str; 8] = [
    "direct_shared_unroll",
    "im2col_gemm_constant",
    "im2col_gemm_mma",
    "implicit_gemm_nhwc",
    "implicit_gemm_nchw",
    "implicit_gemm_mma",
    "implicit_gemm_f32_nhwc",
    "implicit_gemm_f32_nchw",
];

fn main() {
    let all = [
        ("zeros", Wanted::ZEROS),
        ("sums", Wanted::SUMS),
        ("chunks", Wanted::CHUNKS),
        ("anything", Wanted::ANY),
    ];
    let mut trials = Vec::new();
    for configured in common::configured() {
        let name = configured.name();
        let mut trial =
            |what: &str, test: fn(&Configured, Wanted) -> Result<(), Failed>, wanted| {
                let configured = configured.clone();
                let test = move || test(&configured, wanted);
                trials.push(Trial::test(format!("{name} {what}"), test));
            };
        for (what, wanted) in all {
            trial(what, has_one, wanted);
        }
        trial("pooled", pools_or_says_so, Wanted::POOLED);
    }
    trials.extend(variants::all().iter().map(|variant| {
        let configured = Configured::from(variant.clone());
        let name = &variant.info().name;
        Trial::test(format!("{name} host"), move || is_timed(&configured))
    }));
    trials.push(Trial::test("a chip that is too small", a_chip_is_told));
    #[cfg(feature = "cuda")]
    trials.extend([
        Trial::test(
            "filters for several configurations",
            some_filters_are_packed_alike,
        ),
        Trial::test("padding beyond a filter", wide_padding_is_for_others),
        Trial::test("few channels become many", few_channels_become_so_many),
        Trial::test(
            "padding of half a billion rows",
            endless_padding_is_planned_or_refused,
        ),
    ]);
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn has_one(configured: &Configured, wanted: Wanted) -> Result<(), Failed> {
    let limits = nominal();
    match wanted.problems(Domain::new(configured, &limits)).next() {
        Some(_) => Ok(()),
        None => {
            Err("none of what is drawn for it in tests/common/drawn.rs is what is wanted".into())
        }
    }
}

fn pools_or_says_so(configured: &Configured, wanted: Wanted) -> Result<(), Failed> {
    match drawn::pools_nothing(Domain::new(configured, &nominal())) {
        Some(_) => Ok(()),
        None => has_one(configured, wanted),
    }
}

/// By the benchmark of the host's time, which takes the first configuration alone.
fn is_timed(configured: &Configured) -> Result<(), Failed> {
    let limits = nominal();
    let domain = Domain::new(configured, &limits);
    let mut refused = None;
    for problem in common::host_problems() {
        match domain.plan(&problem) {
            Ok(_) => return Ok(()),
            Err(why) => refused = Some(why),
        }
    }
    Err(format!("add a problem to benches/host-problems.txt: {refused:?}").into())
}

/// What no chip of its kind can do is not for want of a problem, and the reason says so.
fn a_chip_is_told() -> Result<(), Failed> {
    let (h200, l40s) = (nominal(), Limits::of_chip("l40s").ok_or("a chip")?);
    for configured in common::configured() {
        let name = configured.name();
        let why = drawn::unable_here(&Domain::new(&configured, &h200));
        common::ensure(why.is_none(), &format!("{name} on an H200: {why:?}"))?;
        let why = drawn::unable_here(&Domain::new(&configured, &l40s));
        let told = why.is_some_and(|why| why.contains("sm_89"));
        let must = configured.info().min_arch > 89;
        common::ensure(told || !must, &format!("{name} on an L40S"))?;
    }
    Ok(())
}

/// depthwise_batched reads and masks rows beside a plane, as many as a filter has; a problem with more is not drawn.
#[cfg(feature = "cuda")]
fn wide_padding_is_for_others() -> Result<(), Failed> {
    for text in [
        "g8mb1ic8ih7oc8oh106ow7kh3ph100pw1+f16",
        "g8mb1ic8ih7oc8oh14ow7kh3ph3pw1+f16",
    ] {
        common::ensure(!is_planned("depthwise_batched", text)?, text)?;
        common::ensure(is_planned("depthwise_nchw", text)?, text)?;
    }
    Ok(())
}

/// Which rows of the small family take more than 64 output channels, and how many.
#[cfg(feature = "cuda")]
fn few_channels_become_so_many() -> Result<(), Failed> {
    let of = |channels: usize, words: &str| format!("mb2ic3ih24oc{channels}kh3ph1{words}");
    for (name, most, words) in [
        ("small_fma", 512, ""),
        ("small_mma", 512, ""),
        ("small_mma", 512, "+nhwc"),
        ("small_mma16", 512, "+f16"),
        ("small_mma16", 512, "+bf16+nhwc"),
        ("small_resident", 64, ""),
    ] {
        let (fits, beyond) = (of(most, words), of(most + 1, words));
        common::ensure(is_planned(name, &fits)?, &format!("{name} {fits}"))?;
        common::ensure(!is_planned(name, &beyond)?, &format!("{name} {beyond}"))?;
    }
    // Filters of one row have weights in shared memory, in steps of 1.
    let (steps_of_1, steps_of_2) = ("mb2ic16ih20oc96kh1", "mb2ic16ih20oc96oh10kh1sh2");
    let shared = "small_fma:weights=shared";
    common::ensure(is_planned(shared, steps_of_1)?, steps_of_1)?;
    common::ensure(!is_planned(shared, steps_of_2)?, steps_of_2)
}

/// Numbers of rows and pixels that are beyond what a plan counts in.
#[cfg(feature = "cuda")]
fn endless_padding_is_planned_or_refused() -> Result<(), Failed> {
    let rows = "g2mb1ic2ih8iw8oc2oh1073741828ow8kh3ph536870911pw1+f16";
    is_planned("depthwise_nchw", rows)?;
    // In f32 by 5x5 nothing of y lies in shared memory, which limits the columns elsewhere.
    let columns = "g2mb1ic2ih8iw8oc2oh8ow536870912kh5ph2pw2";
    common::ensure(!is_planned("depthwise_nchw", columns)?, columns)?;
    let fewer = "g2mb1ic2ih8iw8oc2oh8ow268435456kh5ph2pw2";
    common::ensure(is_planned("depthwise_nchw", fewer)?, fewer)?;
    let pixels = "g4mb1ic128ih8oc128oh2kh1sh268435455ph268435455+f16";
    common::ensure(!is_planned("grouped_nchw", pixels)?, pixels)?;
    let plane = "g2mb1ic8ih2147484iw1000oc8oh2147484ow1000kh3ph1+f16";
    common::ensure(!is_planned("grouped_planar", plane)?, plane)?;
    let smaller = "g2mb1ic8ih1000000iw1000oc8oh1000000ow1000kh3ph1+f16";
    common::ensure(is_planned("grouped_planar", smaller)?, smaller)?;
    let plane = "g8mb1ic8ih2147484iw1000oc8oh2147484ow1000kh3ph1+f16";
    common::ensure(!is_planned("depthwise_planar", plane)?, plane)?;
    let smaller = "g8mb1ic8ih1000000iw1000oc8oh1000000ow1000kh3ph1+f16";
    common::ensure(is_planned("depthwise_planar", smaller)?, smaller)
}

#[cfg(feature = "cuda")]
fn is_planned(name: &str, text: &str) -> Result<bool, Failed> {
    let (limits, problem) = (nominal(), text.parse()?);
    let is_named = |one: &Configured| one.info().name == name || one.name() == name;
    let mut configured = common::configured().filter(is_named);
    Ok(configured.any(|configured| configured.plan(&limits, &problem).is_ok()))
}

/// By the test that packs a filter with one configuration and runs another, of each of [`PACKED_ALIKE`].
#[cfg(feature = "cuda")]
fn some_filters_are_packed_alike() -> Result<(), Failed> {
    let limits = nominal();
    let is_alike = |configured: &Configured| {
        let domain = Domain::new(configured, &limits);
        !drawn::packed_alike(domain, &drawn::packing(domain)).is_empty()
    };
    for name in PACKED_ALIKE {
        let mut configured = common::configured().filter(|one| one.info().name == name);
        let message = format!("no two configurations of {name} arrange a filter alike");
        common::ensure(configured.any(|configured| is_alike(&configured)), &message)?;
    }
    Ok(())
}
