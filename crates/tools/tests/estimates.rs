//! What variants estimate of themselves, against what was measured on an H200.
#![cfg(feature = "cudnn")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    process::Command,
};

use convforge::{
    Limits, Problem,
    variant::{Query, Space},
    variants,
};
use convforge_tools::{
    Contenders,
    measure::View,
    results::{FullRow, Source, files},
};

/// Layers that were measured on an H200: microseconds of each variant.
#[test]
fn estimates_are_near_what_was_measured() {
    const NAMES: [&str; 5] = [
        "direct_naive",
        "im2col_gemm_shared",
        "fused_shared",
        "cublas_gemm",
        "cudnn",
    ];
    const MEASURED: [(&str, [f64; 5]); 6] = [
        (
            "mb1000ic1ih86oc4oh80kh7",
            [2407.0, 2860.0, 3024.0, 896.0, 865.0],
        ),
        (
            "mb1000ic4ih40oc16oh34kh7",
            [8700.0, 1811.0, 1600.0, 762.0, 573.0],
        ),
        (
            "mb32ic64ih56oc64oh56kh3ph1+f16+nhwc",
            [8095.0, f64::NAN, 1461.0, f64::NAN, 25.0],
        ),
        (
            "mb32ic64ih56oc64oh56kh3ph1+math=tf32",
            [9800.0, f64::NAN, 1546.0, f64::NAN, 74.0],
        ),
        // 16-bit operands with the fast passes.
        (
            "mb64ic64ih56oc64oh56kh3ph1+bf16+nhwc",
            [f64::NAN, f64::NAN, f64::NAN, 147.0, 40.0],
        ),
        (
            "mb64ic64ih56oc64oh56kh3ph1+f16",
            [f64::NAN, f64::NAN, f64::NAN, 167.0, 89.0],
        ),
    ];
    let limits = Limits::of_chip("h200").unwrap();
    for (text, measured) in MEASURED {
        let problem: Problem = text.parse().unwrap();
        let query = Query::new(&problem, 0, &limits);
        let estimates = NAMES.map(|name| {
            let variant = variants::find(name).unwrap();
            variant.plan(&query).unwrap().us.unwrap()
        });
        for (name, (estimate, measured)) in NAMES.iter().zip(estimates.iter().zip(measured)) {
            let ratio = estimate / measured;
            assert!(
                measured.is_nan() || (0.5..2.0).contains(&ratio),
                "{name} on {text}: {estimate:.0} us, measured {measured:.0}"
            );
        }
        // The order among those that are further apart than that.
        for (i, a) in measured.iter().enumerate() {
            for (j, b) in measured.iter().enumerate() {
                let wrong = a * 1.2 < *b && estimates[i] > estimates[j];
                assert!(!wrong, "{} before {} on {text}", NAMES[j], NAMES[i]);
            }
        }
    }
}

/// The unrolling pass and the one after a product, of which cublas_gemm and im2col_gemm_* are made,
/// are up to fifteen times as fast as before this day. Older rows of them are not judged: the
/// estimates are of what there is now.
const PASSES: [&str; 2] = ["unroll", "permute"];
const PASSES_SINCE: &str = "2026-11-22";

/// The libraries' estimates are what scripts/estimate_model.py reckons, with the constants that
/// scripts/fit_estimates.py fits to the committed results.
#[test]
fn the_fit_is_in_the_source() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fit_estimates.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--check", "--program", env!("CARGO_BIN_EXE_convforge")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{output:?}");
}

/// A row whose variant gives an estimate.
#[derive(Clone)]
struct Timed {
    name: String,
    estimate: f64,
    /// The same, as a rule counts it.
    counted: f64,
    us: f64,
    ranked: bool,
}

impl Timed {
    fn of(full: &FullRow, contenders: &Contenders, limits: &Limits) -> Option<Timed> {
        let row = full.row;
        if row.chose.is_some() {
            return None;
        }
        let us = row.median_us?;
        let variant = contenders.find(&row.variant).unwrap();
        let configs = &variant.info().configs;
        let of = |config: &String| configs.iter().position(|one| one == config).unwrap();
        let config = row.config.as_ref().map_or(0, of);
        let query = Query::new(&row.problem, config, limits);
        let plan = variant.plan(&query).ok()?;
        let in_constant_memory = plan
            .packing
            .is_some_and(|packing| packing.space == Space::Constant);
        let estimate = plan.us?;
        // A rule is the library's, of whose cudnn plans are not checked as those of the command's are.
        let ruled = variants::find(&row.variant);
        let info = ruled.as_ref().map_or(variant.info(), |ruled| ruled.info());
        Some(Timed {
            name: row.name(),
            estimate,
            counted: estimate * info.rule_factor(),
            us,
            // A number names another plan wherever the code has changed since; it is never chosen.
            ranked: variant.info().ranked
                && !in_constant_memory
                && !variant.info().is_numbered(config),
        })
    }
}

fn has_old_passes(full: &FullRow) -> bool {
    let mut stages = full.row.stages.iter();
    full.date < PASSES_SINCE && stages.any(|stage| PASSES.contains(&&*stage.name))
}

impl fmt::Display for Timed {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Timed {
            name, estimate, us, ..
        } = self;
        write!(f, "{name} (estimate {estimate:.1} us, measured {us:.1})")
    }
}

/// What the rule would choose for a problem among what was timed, and what was fastest.
struct Choice {
    /// The suite and the words of its problems, as in "vgg16 f16+nhwc"; of some a problem is in several.
    suite: String,
    chosen: Timed,
    fastest: Timed,
}

impl Choice {
    fn loss(&self) -> f64 {
        self.chosen.us / self.fastest.us
    }
}

/// A problem, cold or warm.
type Key = (String, bool);

/// The committed results of an H200: comparisons, rows that ran by themselves, and studies. A sweep
/// compares a variant with itself.
fn sources() -> Vec<Source> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results");
    let folders = [results.clone(), results.join("rows")];
    let files = folders.iter().flat_map(|folder| files(folder).unwrap());
    let mut sources: Vec<Source> = files.map(|file| Source::read(&file).unwrap()).collect();
    sources.retain(|source| match source {
        Source::Report(report) => report.view == View::Compare,
        Source::Study(_) => true,
        Source::Profile(_) => false,
    });
    let of_h200 = |full: FullRow| full.device.contains("H200");
    sources.retain(|source| source.rows().next().is_some_and(of_h200));
    sources
}

/// Every problem with more than one time: of each row, with its configuration, the latest.
fn measured() -> BTreeMap<Key, Choice> {
    let contenders = Contenders::new();
    let limits = Limits::of_chip("h200").unwrap();
    let mut found: BTreeMap<Key, BTreeMap<String, (String, Timed)>> = BTreeMap::new();
    let mut suites: BTreeMap<Key, String> = BTreeMap::new();
    for source in sources() {
        for full in source.rows().filter(|full| !has_old_passes(full)) {
            let Some(timed) = Timed::of(&full, &contenders, &limits) else {
                continue;
            };
            let text = full.row.problem.to_string();
            let (_, words) = text.split_once('+').unwrap_or((&text, "f32"));
            let suite = format!("{} {words}", full.row.suite);
            let key = (text, full.row.cold);
            suites.entry(key.clone()).or_insert(suite);
            let rows = found.entry(key).or_default();
            let known = rows.get(&timed.name);
            if known.is_none_or(|(date, _)| date.as_str() <= full.date) {
                rows.insert(timed.name.clone(), (full.date.to_owned(), timed));
            }
        }
    }
    let choice = |(key, rows): (Key, BTreeMap<String, (String, Timed)>)| {
        let timed: Vec<Timed> = rows.into_values().map(|(_, timed)| timed).collect();
        let ranked = timed.iter().filter(|timed| timed.ranked);
        let chosen = ranked.min_by(|a, b| a.counted.total_cmp(&b.counted))?;
        let fastest = timed.iter().min_by(|a, b| a.us.total_cmp(&b.us))?;
        let choice = Choice {
            suite: suites[&key].clone(),
            chosen: chosen.clone(),
            fastest: fastest.clone(),
        };
        (timed.len() > 1).then_some((key, choice))
    };
    found.into_iter().filter_map(choice).collect()
}

fn mean<'a>(choices: impl Iterator<Item = &'a Choice>) -> f64 {
    let losses: Vec<f64> = choices.map(|choice| choice.loss().ln()).collect();
    (losses.iter().sum::<f64>() / losses.len() as f64).exp()
}

/// What the rule would choose among what was measured, against the fastest of it. It prints the means
/// of suites: `cargo test -p convforge-tools --features cudnn --test estimates -- --nocapture`.
#[test]
fn the_rule_loses_little_where_all_was_measured() {
    /// Times the fastest, of a problem and in the geometric means of a suite's type and of all.
    const WORST: f64 = 1.8;
    const SUITE: f64 = 1.3;
    const MEAN: f64 = 1.02;
    let found = measured();
    assert!(found.len() > 700, "{} problems", found.len());
    let all = mean(found.values());
    let suites: BTreeSet<&String> = found.values().map(|choice| &choice.suite).collect();
    let of = |suite: &String| mean(found.values().filter(|choice| choice.suite == *suite));
    let suites: Vec<(f64, &String)> = suites.into_iter().map(|suite| (of(suite), suite)).collect();
    for (mean, suite) in &suites {
        eprintln!("{mean:.3}  {suite}");
    }
    eprintln!("{all:.3}  all {} problems", found.len());
    let mut losses: Vec<(&Key, &Choice)> = found.iter().collect();
    losses.sort_by(|(_, a), (_, b)| b.loss().total_cmp(&a.loss()));
    let line = |(key, choice): &(&Key, &Choice)| {
        let (loss, (problem, cold)) = (choice.loss(), key);
        let warm = if *cold { "" } else { " (warm)" };
        let Choice {
            chosen, fastest, ..
        } = choice;
        format!("{loss:.2} times  {problem}{warm}: {chosen} instead of {fastest}")
    };
    // Those that are too far, or what there is most to gain from.
    let too_far = losses
        .iter()
        .filter(|(_, choice)| choice.loss() >= WORST)
        .count();
    let shown: Vec<String> = losses.iter().take(too_far.max(20)).map(line).collect();
    assert!(
        too_far == 0 && all < MEAN,
        "{too_far} of {} problems are {WORST} times the fastest or more, and the mean is {all:.3} of at \
         most {MEAN}; the furthest:\n{}",
        found.len(),
        shown.join("\n")
    );
    let far: Vec<&(f64, &String)> = suites.iter().filter(|(mean, _)| *mean >= SUITE).collect();
    assert!(
        far.is_empty(),
        "{SUITE} times the fastest or more in the mean: {far:?}"
    );
}
