//! What variants estimate of themselves, against what was measured on an H200.
#![cfg(feature = "cudnn")]

use convforge::{Limits, Problem, variant::Query, variants};
use convforge_tools::{Contenders, results::Source};

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

/// What the rule would choose among the variants of a comparison, against the fastest of them, over
/// all problems that were measured since cuBLAS's passes are fast.
#[test]
fn the_rule_loses_little_where_all_was_measured() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results");
    let contenders = Contenders::new();
    let limits = Limits::of_chip("h200").unwrap();
    let mut logs = Vec::new();
    let mut worst = (1.0, String::new());
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = file.file_name().into_string().unwrap();
        if !name.starts_with("h200-small-") && !name.starts_with("h200-suites-") {
            continue;
        }
        let source = Source::read(&file.path()).unwrap();
        let rows = || source.rows().map(|full| full.row);
        let mut problems: Vec<&Problem> = Vec::new();
        for row in rows() {
            if !problems.contains(&&row.problem) {
                problems.push(&row.problem);
            }
        }
        for problem in problems {
            let mut timed: Vec<(f64, f64, String)> = Vec::new();
            for row in rows().filter(|row| &row.problem == problem) {
                let (Some(us), None) = (row.median_us, &row.chose) else {
                    continue;
                };
                let variant = contenders.find(&row.variant).unwrap();
                let configs = &variant.info().configs;
                let of = |config: &String| configs.iter().position(|one| one == config).unwrap();
                let query = Query::new(problem, row.config.as_ref().map_or(0, of), &limits);
                if let Some(estimate) = variant.plan(&query).ok().and_then(|plan| plan.us) {
                    timed.push((estimate, us, row.name()));
                }
            }
            // Where a run was ended, there may be nothing to choose among.
            if timed.len() < 2 {
                continue;
            }
            let chosen = timed.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
            let best = timed.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            let loss = chosen.1 / best.1;
            logs.push(loss.ln());
            if loss > worst.0 {
                worst = (loss, format!("{problem}: {chosen:?} instead of {best:?}"));
            }
        }
    }
    let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    assert!(logs.len() > 200, "{} problems", logs.len());
    assert!(mean < 1.04 && worst.0 < 2.2, "{mean:.3}; {worst:?}");
}
