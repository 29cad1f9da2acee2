//! Every variant on every problem: the layers of the reports, hand-picked edges, random ones, and
//! random ones of the variant's own domain.
//!
//! No variant is named here: the test walks the list of all of them. A variant that refuses a fixed
//! problem is listed as ignored, with its reason; random problems that it refuses are only counted,
//! and the count may not fall under what tests/coverage.txt says. What a variant refuses, and what
//! it plans, is arithmetic: without a GPU that is tested all the same, for an H200.
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CONVFORGE_CASES` | random problems, 150 by default |
//! | `CONVFORGE_SEED` | seed of problems and data, 1 by default |
//! | `CONVFORGE_REQUIRE_GPU` | 1: a missing GPU is a failure |

mod common;

use std::{env, sync::Arc};

use common::{
    Answer,
    drawn::{self, DRAWS, nominal},
};
use convforge::{
    Device, Limits, Problem,
    variant::{Configured, Kind, Variant},
    variants,
};
use convforge_check::{Domain, Options, Outcome, Profile, case};
use libtest_mimic::{Arguments, Completion, Trial};

/// The convolutions of the reports, for two images.
const REPORTS: [&str; 4] = [
    "ic1ih86oc4oh80kh7",
    "ic4ih40oc16oh34kh7",
    "ic1ih70oc12oh66kh5",
    "ic12ih33oc24oh29kh5",
];

/// More of the reports and of known networks, too large for the CPU's oracle.
const LARGE: [&str; 12] = [
    "mb1ic64ih224oc64oh222kh3",
    "mb1ic512ih14oc512oh12kh3",
    "mb1ic25088ih1oc4096kh1+f16",
    "mb16ic4096ih1oc1024kh1",
    "mb100ic1ih86oc4oh80kh7",
    "mb8ic64ih56oc64kh3ph1+f16+nhwc+bias+relu",
    "mb8ic64ih56oc64kh3ph1+bf16+nhwc",
    "mb8ic64ih56oc64kh3ph1+math=tf32",
    "mb8ic256ih14oc256kh3ph1+f16",
    "mb8ic3ih224oc64oh112kh7sh2ph3+f16+nhwc",
    "g32mb8ic128ih56oc128kh3ph1+f16+nhwc",
    "g96mb8ic96ih112oc96oh56kh3sh2ph1",
];

/// Where loops, tiles and addresses end.
const EDGES: &[&str] = &[
    // nothing, one, and as little as can be
    "mb0ic3ih8oc4kh3",
    "mb0ic64ih8oc64kh3ph1+f16",
    "mb0ic64ih8oc64kh3ph1+f16+nhwc",
    "mb0ic64ih8oc64kh3ph1+nhwc",
    "mb1ic1ih1oc1kh1",
    "mb1ic1ih1oc1kh1+f16+nhwc+align=2",
    "mb3ic1ih5iw1oc1kh3kw1",
    "mb1ic130ih1oc66kh1",
    // the filter is the image, and larger than it with padding
    "mb2ic3ih7iw5oc4kh7kw5",
    "mb2ic3ih2iw3oc4kh5ph2",
    // one side much longer
    "mb1ic2ih1iw300oc3kh1kw9",
    "mb1ic2ih300iw1oc3kh9kw1",
    // around tiles of 16
    "mb1ic16ih16oc16kh1",
    "mb1ic15ih17iw16oc17kh3ph1",
    "mb1ic17ih18oc33kh3+f16+nhwc",
    "mb1ic31ih18oc15kh3+bf16",
    // around tiles of 64
    "mb1ic64ih8oc64kh3ph1+f16+nhwc",
    "mb1ic63ih9oc65kh3ph1+math=tf32",
    "mb1ic65ih9oc63kh3ph1+f16",
    // strides that leave rows over, dilations, lopsided padding
    "mb2ic4ih20iw17oc8kh3kw5sh2sw3",
    "mb2ic4ih20iw17oc8oh10ow6kh3kw5sh2sw3ph0pw1",
    "mb2ic4ih19oc8kh3dh1dw2ph2+nhwc",
    "mb1ic3ih32oc8oh16kh7sh2ph3",
    "mb2ic4ih9iw11oc4oh10ow11kh3kw2ph2pw0",
    "mb1ic2ih9oc2oh3kh1sh4",
    // more padding than the filter has rows: outputs that meet nothing of x
    "mb2ic16ih6oc16oh16kh3ph5+f16+nhwc+bias+silu",
    "mb2ic3ih6oc8oh16kh3ph5+bias+silu",
    "g4mb2ic8ih6oc8oh16kh3ph5+bf16+nhwc+bias+silu",
    "g4mb2ic8ih6oc8oh16kh3ph5+f16+bias+silu",
    "g8mb2ic8ih6oc8oh16kh3ph5+f16+nhwc+bias+silu",
    "g8mb2ic8ih6oc8oh16kh3ph5+bias+silu",
    // groups
    "g4mb2ic8ih9oc12kh3ph1",
    "g32mb1ic32ih12oc32kh3ph1+nhwc",
    "g16mb1ic16ih12oc48kh5ph2+f16",
    "g3mb2ic9ih10oc6kh3sh2ph1+bf16+nhwc",
    // every math, both layouts
    "mb2ic5ih13iw11oc7kh3ph1+math=f16",
    "mb2ic5ih13iw11oc7kh3ph1+nhwc+math=bf16",
    "mb2ic5ih13iw11oc7kh3ph1+math=f16acc",
    "mb2ic5ih13iw11oc7kh3ph1+f16+nhwc+math=fp32",
    "mb2ic5ih13iw11oc7kh3ph1+bf16+math=fp32",
    "mb2ic6ih13iw11oc8kh3ph1+f16+nhwc+math=f16acc",
    // alignment of a single element, and more than usual
    "mb2ic3ih15iw13oc5kh3+align=4",
    "mb2ic8ih15iw13oc8kh3+f16+nhwc+align=2",
    "mb2ic8ih16oc8kh3+align=128",
    // deep sums
    "mb1ic600ih3oc5kh3",
    "mb1ic2048ih2oc9kh1+f16+nhwc",
    // epilogues
    "mb2ic3ih12oc8kh3ph1+bias+relu",
    "mb2ic3ih12oc8kh3ph1+f16+nhwc+bias+residual+relu",
    "mb2ic3ih12oc8kh3ph1+scale=0.5+residual+relu6",
    "mb2ic3ih12oc8kh3ph1+nhwc+bias+silu",
    "mb2ic3ih12oc8kh3ph1+bf16+scale=2+tanh",
    "mb2ic3ih12oc8kh3ph1+bias+sigmoid",
    "mb2ic3ih12oc8kh3+pool=2",
    "mb2ic3ih13oc8kh3+bias+relu+pool=2ceil",
    "mb2ic3ih13oc8kh3ph1+nhwc+residual+pool=3s2x1ceil",
];

/// So many problems of its own domain every configuration of every variant meets.
const EACH: usize = 30;
/// Of so many that are drawn for the GPU that is here, which may have more or less of what is rare on an H200: as many
/// as `check --each` draws.
const DRAWS_HERE: u64 = 2000 * EACH as u64;

/// What the tests were told, and what they run on.
struct Setting {
    gpu: Result<Device, String>,
    seed: u64,
    fixed: Vec<Problem>,
    large: Vec<Problem>,
    random: Vec<Problem>,
}

fn main() {
    let mut arguments = Arguments::from_args();
    let number = |name, default| match env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => default,
    };
    let seed = number("CONVFORGE_SEED", 1);
    let cases = number("CONVFORGE_CASES", 150);
    let parse = |text: &&str| text.parse().unwrap_or_else(|error| panic!("{error}"));
    let setting = Setting {
        gpu: Device::gpu(0).map_err(|why| convforge::chain(&why)),
        seed,
        fixed: REPORTS.iter().chain(EDGES).map(parse).collect(),
        large: LARGE.iter().map(parse).collect(),
        random: (0..cases)
            .map(|index| Profile::default().problem(seed, index))
            .collect(),
    };
    if setting.gpu.is_ok() {
        // Cases share the one GPU's memory.
        arguments.test_threads.get_or_insert(1);
    }
    if !arguments.list {
        println!("CONVFORGE_SEED={seed} CONVFORGE_CASES={cases}");
    }
    let mut trials: Vec<Trial> = variants::all().iter().map(coverage).collect();
    for configured in common::configured() {
        trials.extend(domains(&configured, &setting));
        trials.extend(judged(&configured, &setting));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// A trial for each problem.
fn judged(configured: &Configured, setting: &Setting) -> Vec<Trial> {
    let name = configured.name();
    let device = common::device_of(configured.info(), &setting.gpu);
    let limits = device.as_ref().map_or_else(|_| nominal(), Device::limits);
    let domain = Domain::new(configured, &limits);
    let large = match &device {
        Ok(device) if device.is_gpu() => &setting.large[..],
        _ => &[],
    };
    let random = setting.random.iter().filter(|problem| domain.has(problem));
    let own = domain.problems(setting.seed, DRAWS_HERE).take(EACH);
    let problems = setting.fixed.iter().chain(large).chain(random).cloned();
    let trial = |problem: Problem| {
        let (configured, seed) = (configured.clone(), setting.seed);
        common::trial(
            &format!("{name} {problem}"),
            device.clone(),
            move |device| judge(device, &configured, &problem, seed),
        )
    };
    problems.chain(own).map(trial).collect()
}

/// Problems with more floating-point operations do not meet every kind of data on the CPU.
const CPU_FLOPS: f64 = 3e6;

fn judge(device: &Device, configured: &Configured, problem: &Problem, seed: u64) -> Answer {
    let options = Options::affordable(device, problem, configured.info().arithmetic, CPU_FLOPS);
    match case(device, configured, problem, seed, &options) {
        Outcome::Passed(_) => Ok(Completion::Completed),
        Outcome::Failed(why) => Err(why.into()),
        Outcome::Unsupported(why) => Ok(Completion::ignored_with(why)),
        // What cannot be tried here is no pass; where a GPU is required, it is a failure.
        Outcome::Skipped(why) if common::gpu_is_required() => Err(why.into()),
        Outcome::Skipped(why) => Ok(Completion::ignored_with(why)),
    }
}

/// Nothing that a variant can do is so rare that it is not met, and its plans make sense: for an H200, and for
/// the GPU that is here, where its own problems are judged.
fn domains(configured: &Configured, setting: &Setting) -> Vec<Trial> {
    let name = configured.name();
    let trial = |what: &str, here: Option<Limits>| {
        let (configured, seed) = (configured.clone(), setting.seed);
        Trial::ignorable_test(format!("{name} {what}"), move || {
            domain(&configured, here.as_ref(), seed)
        })
    };
    let mut trials = vec![trial("domain", None)];
    if let (Ok(gpu), false) = (&setting.gpu, configured.info().kind == Kind::Cpu) {
        trials.push(trial("domain here", Some(gpu.limits())));
    }
    trials
}

/// On the chip that is `here`; without one for an H200.
fn domain(configured: &Configured, here: Option<&Limits>, seed: u64) -> Answer {
    let h200 = nominal();
    let domain = Domain::new(configured, here.unwrap_or(&h200));
    let draws = here.map_or(DRAWS, |_| DRAWS_HERE);
    let problems: Vec<Problem> = domain.problems(seed, draws).take(EACH).collect();
    if problems.len() < EACH {
        if let (Some(_), Some(why)) = (here, drawn::unable_here(&domain)) {
            return Ok(Completion::ignored_with(why));
        }
        let random = (0..100).map(|index| Profile::default().problem(seed, index));
        let refusal = random
            .filter_map(|problem| domain.plan(&problem).err())
            .next();
        return Err(format!(
            "it can do {} of the {draws} problems that are drawn for it, and should meet {EACH} \
             (it says for instance: {}); they are met with\n    convforge check --variant {} \
             --each {EACH} --seed {seed}",
            problems.len(),
            refusal.unwrap_or_default(),
            configured.name()
        )
        .into());
    }
    for problem in problems {
        plan(&domain, &problem).map_err(|why| format!("{problem}: {why}"))?;
    }
    Ok(Completion::Completed)
}

/// What a plan says must hold together, and for any number of images.
fn plan(domain: &Domain, problem: &Problem) -> Result<(), String> {
    let plan = domain.plan(problem)?;
    let bytes = plan.workspace;
    if bytes.least > bytes.preferred {
        return Err(format!("it would like less than it needs: {bytes:?}"));
    }
    if plan.us.is_some_and(|us| !us.is_finite() || us < 0.0) {
        return Err(format!("it takes {:?} microseconds", plan.us));
    }
    for images in [1, 3, 100] {
        let other = problem.with(|shape| shape.n = images);
        let other = domain.plan(&other.map_err(|error| error.to_string())?);
        if let Ok(other) = other
            && other.packing != plan.packing
        {
            return Err(format!(
                "its filter is packed as {:?}, and as {:?} for {images} images",
                plan.packing, other.packing
            ));
        }
    }
    Ok(())
}

/// A variant may not come to refuse what it once could do.
fn coverage(variant: &Arc<dyn Variant>) -> Trial {
    let variant = variant.clone();
    let name = variant.info().name.clone();
    Trial::test(format!("{name} coverage"), move || {
        let share = convforge_check::coverage(&*variant, &nominal());
        let line = format!("{name} {share:.3}");
        let mut lines = include_str!("coverage.txt")
            .lines()
            .map(str::split_whitespace);
        let Some(mut known) = lines.find(|line| line.clone().next() == Some(&name)) else {
            return Err(format!("add the line `{line}` to tests/coverage.txt").into());
        };
        let floor: f64 = known.nth(1).unwrap_or_default().parse()?;
        if share < floor - 1e-6 {
            return Err(format!(
                "it can do {share:.3} of the random problems, and could do {floor:.3}; if that is \
                 meant, change the line in tests/coverage.txt to `{line}`"
            )
            .into());
        }
        Ok(())
    })
}
