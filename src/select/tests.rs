use super::*;
use crate::{
    Conv,
    variant::{Info, Plan},
};

/// A variant of the CPU that its library keeps from being planned.
struct Missing(Info);

fn missing() -> Arc<dyn Variant> {
    let info = Info {
        name: "missing".to_owned(),
        ..variants::find("cpu_direct").unwrap().info().clone()
    };
    Arc::new(Missing(info))
}

impl Variant for Missing {
    fn info(&self) -> &Info {
        &self.0
    }

    fn supports(&self, _: &Query) -> Result<(), String> {
        Ok(())
    }

    fn plan(&self, _: &Device, _: &Query) -> Result<Box<dyn Plan>> {
        Err(Error::Library {
            library: "libfake",
            why: "looked for libfake.so".to_owned(),
        })
    }
}

fn problem() -> Problem {
    "mb1ic3ih8oc4kh3".parse().unwrap()
}

fn first_of(order: Vec<Choice>, lenient: bool) -> Result<Conv> {
    let candidates = Candidates {
        order,
        refused: vec!["other needs a GPU".to_owned()],
        lenient,
    };
    Conv::first_of(&Device::Cpu, &problem(), candidates)
}

#[test]
fn the_next_best_serves_where_a_library_is_missing() {
    let plain = (variants::find("cpu_direct").unwrap(), 0);
    let conv = first_of(vec![(missing(), 0), plain.clone()], true).unwrap();
    assert_eq!(conv.name(), "cpu_direct");

    let none = first_of(vec![(missing(), 0)], true).err().unwrap();
    let text = none.to_string();
    assert!(matches!(none, Error::NoVariant { .. }), "{text}");
    for part in ["other needs a GPU", "libfake", "looked for libfake.so"] {
        assert!(text.contains(part), "{text}");
    }

    // What was named is meant.
    let named = first_of(vec![(missing(), 0), plain], false);
    assert!(matches!(named, Err(Error::Library { .. })));
}

#[test]
fn picks_are_spelled_as_they_are_read() {
    for text in ["rule", "kernels", "policy:per-layer", "a", "a:tile=24"] {
        assert_eq!(text.parse::<Pick>().unwrap().to_string(), text);
    }
    for pick in Pick::automatic() {
        assert!(!pick.explain().unwrap().is_empty());
    }
    let unknown = Pick::Policy("per-leyer".to_owned());
    for error in [
        unknown.explain().err(),
        unknown.choose(&Device::Cpu, &problem()).err(),
    ] {
        assert!(matches!(error, Some(Error::UnknownPolicy { .. })));
    }
}

#[test]
fn on_the_cpu_kernels_have_a_reason() {
    let (rule, _) = Pick::Rule.choose(&Device::Cpu, &problem()).unwrap();
    assert_eq!(rule.info().name, "cpu_gemm");
    for pick in Pick::automatic().into_iter().skip(1) {
        let error = pick.choose(&Device::Cpu, &problem()).err().unwrap();
        assert!(matches!(error, Error::NoVariant { .. }), "{error}");
    }
}

/// A variant of which each configuration has an estimate, or none because it cannot do the problem.
struct Estimates(Info, &'static [Option<f64>]);

impl Variant for Estimates {
    fn info(&self) -> &Info {
        &self.0
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        self.1[query.config]
            .map(|_| ())
            .ok_or_else(|| format!("cannot as {}", query.config))
    }

    fn rank(&self, query: &Query) -> Option<f64> {
        self.1[query.config]
    }

    fn plan(&self, _: &Device, _: &Query) -> Result<Box<dyn Plan>> {
        unreachable!("nothing plans it")
    }
}

#[test]
fn the_best_of_all_configurations_counts() {
    let best = |estimates: &'static [Option<f64>]| {
        let info = Info {
            configs: (0..estimates.len()).map(|i| i.to_string()).collect(),
            ..missing().info().clone()
        };
        let variant = Estimates(info, estimates);
        best_config(&variant, &Device::Cpu, &problem(), &Device::Cpu.limits())
    };
    assert_eq!(best(&[Some(5.0), Some(3.0), Some(4.0)]), Ok((3.0, 1)));
    assert_eq!(best(&[Some(3.0), Some(3.0)]), Ok((3.0, 0)));
    assert_eq!(best(&[None, Some(7.0)]), Ok((7.0, 1)));
    assert_eq!(best(&[None, None]), Err("cannot as 0".to_owned()));
}

/// Layers that were measured on an H200: microseconds of each variant.
#[cfg(feature = "cudnn")]
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
    let limits = crate::check::nominal_limits();
    for (text, measured) in MEASURED {
        let problem: Problem = text.parse().unwrap();
        let query = Query {
            problem: &problem,
            config: 0,
            limits: &limits,
        };
        let estimates = NAMES.map(|name| {
            let variant = variants::find(name).unwrap();
            variant.supports(&query).unwrap();
            variant.rank(&query).unwrap()
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
#[cfg(feature = "cudnn")]
#[test]
fn the_rule_loses_little_where_all_was_measured() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/results");
    let limits = crate::check::nominal_limits();
    let mut logs = Vec::new();
    let mut worst = (1.0, String::new());
    for file in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = file.file_name().into_string().unwrap();
        if !name.starts_with("h200-small-") && !name.starts_with("h200-suites-") {
            continue;
        }
        let report = crate::measure::Report::read(&file.path()).unwrap();
        let mut problems: Vec<&Problem> = Vec::new();
        for row in &report.rows {
            if !problems.contains(&&row.problem) {
                problems.push(&row.problem);
            }
        }
        for problem in problems {
            let mut timed: Vec<(f64, f64, String)> = Vec::new();
            for row in report.rows.iter().filter(|row| &row.problem == problem) {
                let (Some(us), None) = (row.median_us, &row.chose) else {
                    continue;
                };
                let variant = variants::find(&row.variant).unwrap();
                let configs = &variant.info().configs;
                let of = |config: &String| configs.iter().position(|one| one == config).unwrap();
                let query = Query {
                    problem,
                    config: row.config.as_ref().map_or(0, of),
                    limits: &limits,
                };
                if let Some(estimate) = variant.rank(&query) {
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
