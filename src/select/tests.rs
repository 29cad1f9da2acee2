use std::{panic::AssertUnwindSafe, sync::Arc};

use super::{
    candidates::{best_config, by_reason},
    *,
};
use crate::{
    Conv,
    variant::{Info, Packing, Plan, Prepared, Query, Space, Variant},
    variants,
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

// SAFETY: nothing of it is ever ready.
unsafe impl Variant for Missing {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Err(Error::Library {
            library: "libfake",
            why: "install it".to_owned(),
            source: Some(AssertUnwindSafe("looked for libfake.so".into())),
        })
    }
}

#[test]
fn what_was_never_measured_is_not_chosen() {
    let cpu = Device::cpu().limits();
    let of = |ranked| {
        let mut info = missing().info().clone();
        info.ranked = ranked;
        let variant: Arc<dyn Variant> = Arc::new(Missing(info));
        best_config(&variant, &cpu, &problem()).map(|(_, best)| best.configured.config)
    };
    assert_eq!(of(true), Ok(0));
    assert!(of(false).unwrap_err().contains("waits for measurements"));
}

fn problem() -> Problem {
    "mb1ic3ih8oc4kh3".parse().unwrap()
}

fn first_of(order: Vec<Arc<dyn Variant>>, lenient: bool) -> Result<Conv> {
    let candidate = |variant: Arc<dyn Variant>| Candidate::new(variant.into(), "first");
    let candidates = Candidates {
        order: order.into_iter().map(candidate).collect(),
        refused: vec!["other needs a GPU".to_owned()],
        notes: Vec::new(),
        lenient,
    };
    Conv::first_of(&Device::cpu(), &problem(), candidates)
}

#[test]
fn a_reason_that_several_give_is_told_once() {
    let said = [
        ("a", "needs a GPU"),
        ("b", "takes NCHW"),
        ("c", "needs a GPU"),
    ];
    let said = by_reason(said.map(|(name, why)| (name, why.to_owned())).to_vec());
    assert_eq!(said, ["a, c: each needs a GPU", "b takes NCHW"]);

    let many = ["a", "b", "c", "d"].map(|name| (name, "needs a GPU".to_owned()));
    let said = by_reason([&[("e", "takes NCHW".to_owned())], &many[..]].concat());
    assert_eq!(said, ["a and 3 others: each needs a GPU", "e takes NCHW"]);
}

#[test]
fn of_many_reasons_the_first_are_told_and_the_rest_counted() {
    let candidates = Candidates {
        order: Vec::new(),
        refused: (1..=6).map(|i| format!("v{i} says no")).collect(),
        notes: Vec::new(),
        lenient: true,
    };
    let text = candidates.none("a GPU", &problem()).to_string();
    let told = "v4 says no; others say no for 2 more reasons; variant::plan asks each of";
    assert!(text.contains(told) && !text.contains("v5"), "{text}");
    assert!(
        text.contains("or the command `convforge list --problem"),
        "{text}"
    );
}

#[test]
fn the_next_best_serves_where_a_library_is_missing() {
    let plain = variants::find("cpu_direct").unwrap();
    let conv = first_of(vec![missing(), plain.clone()], true).unwrap();
    assert_eq!(conv.name(), "cpu_direct");
    let reason = conv.reason();
    assert!(
        reason.starts_with("first; missing was passed over: libfake"),
        "{reason}"
    );

    let none = first_of(vec![missing()], true).err().unwrap();
    let text = none.to_string();
    assert!(matches!(none, Error::NoVariant { .. }), "{text}");
    for part in ["other needs a GPU", "libfake", "looked for libfake.so"] {
        assert!(text.contains(part), "{text}");
    }

    // What was named is meant.
    let named = first_of(vec![missing(), plain], false);
    assert!(matches!(named, Err(Error::Library { .. })));
}

/// A candidate that results of another time put first, and whose device then fails.
#[test]
fn what_tuning_remembers_is_passed_over_whatever_is_wrong_with_it() {
    struct Fails(Info);
    // SAFETY: nothing of it is ever ready.
    unsafe impl Variant for Fails {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, _: &Query) -> Result<Plan, String> {
            Ok(Plan::default())
        }

        fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
            Err(Error::OutOfMemory {
                device: "the CPU".to_owned(),
                asked: 77,
                free: 0,
                total: 0,
            })
        }
    }
    let conv = |remembered| {
        let fails = Arc::new(Fails(missing().info().clone()));
        let first = Candidate {
            remembered,
            ..Candidate::new(fails.into(), "measured")
        };
        let plain = variants::find("cpu_direct").unwrap();
        let candidates = Candidates {
            order: vec![first, Candidate::new(plain.into(), "second")],
            refused: Vec::new(),
            notes: Vec::new(),
            lenient: true,
        };
        Conv::first_of(&Device::cpu(), &problem(), candidates)
    };
    let served = conv(true).unwrap();
    assert_eq!(served.name(), "cpu_direct");
    let reason = served.reason();
    assert!(
        reason.starts_with("second; missing was passed over: out of memory"),
        "{reason}"
    );
    // The rule's own choice fails as it is.
    assert!(matches!(
        conv(false),
        Err(Error::OutOfMemory { asked: 77, .. })
    ));
}

#[test]
fn picks_are_spelled_as_they_are_read() {
    let picks = [
        "auto",
        "tuned:/a/b:c",
        "rule",
        "kernels",
        "policy:per-layer",
        "a",
        "a:tile=24",
    ];
    for text in picks {
        assert_eq!(text.parse::<Pick>().unwrap().to_string(), text);
    }
    // Not the working directory.
    let error = "tuned:".parse::<Pick>().unwrap_err();
    assert!(error.to_string().contains("tuned:FOLDER"), "{error}");
    for pick in Pick::automatic() {
        assert!(!pick.explain().unwrap().is_empty());
    }
    let unknown = Pick::Policy("per-leyer".to_owned());
    for error in [
        unknown.explain().err(),
        unknown.choose(&Device::cpu(), &problem()).err(),
    ] {
        assert!(matches!(error, Some(Error::UnknownPolicy { .. })));
    }
}

#[test]
fn on_the_cpu_kernels_have_a_reason() {
    // Large enough that however many cores do not make loops worth while.
    let problem: Problem = "mb8ic64ih56oc64kh3ph1".parse().unwrap();
    let rule = Pick::Rule.choose(&Device::cpu(), &problem).unwrap();
    assert_eq!(rule.name(), "cpu_gemm");
    assert!(rule.reason.contains("estimate"), "{}", rule.reason);
    let same = Pick::Rule
        .choose_for(&Device::cpu().limits(), &problem)
        .unwrap();
    assert_eq!(same.name(), "cpu_gemm");
    for pick in Pick::automatic().into_iter().skip(2) {
        let error = pick.choose(&Device::cpu(), &problem).err().unwrap();
        assert!(matches!(error, Error::NoVariant { .. }), "{error}");
        // What waits for measurements could not run here either.
        let text = error.to_string();
        assert!(!text.contains("waits for measurements"), "{text}");
    }
}

/// A variant of which each configuration has an estimate, or none because it cannot do the problem.
struct Estimates(Info, &'static [Option<f64>]);

// SAFETY: nothing of it is ever ready.
unsafe impl Variant for Estimates {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let us = self.1[query.config].ok_or_else(|| format!("cannot as {}", query.config))?;
        // Negative: so long, and the filter in constant memory.
        let packing = (us < 0.0).then_some(Packing::new(4, 0).space(Space::Constant));
        Ok(Plan::default().us(us.abs()).packing(packing))
    }

    fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        unreachable!("nothing readies it")
    }
}

#[test]
fn the_best_of_all_configurations_counts() {
    let best = |estimates: &'static [Option<f64>]| {
        let info = Info {
            configs: (0..estimates.len()).map(|i| i.to_string()).collect(),
            ..missing().info().clone()
        };
        let variant: Arc<dyn Variant> = Arc::new(Estimates(info, estimates));
        best_config(&variant, &Device::cpu().limits(), &problem())
            .map(|(us, candidate)| (us, candidate.configured.config))
    };
    assert_eq!(best(&[Some(5.0), Some(3.0), Some(4.0)]), Ok((3.0, 1)));
    assert_eq!(best(&[Some(3.0), Some(3.0)]), Ok((3.0, 0)));
    assert_eq!(best(&[None, Some(7.0)]), Ok((7.0, 1)));
    assert_eq!(best(&[None, None]), Err("cannot as 0".to_owned()));
    // A first one of `any` is the best of all; the others need no plan.
    let info = Info {
        configs: ["tiles=any", "plan=2"].map(str::to_owned).to_vec(),
        ..missing().info().clone()
    };
    let any: Arc<dyn Variant> = Arc::new(Estimates(info, &[Some(3.0), Some(2.0)]));
    let (us, candidate) = best_config(&any, &Device::cpu().limits(), &problem()).unwrap();
    assert_eq!((us, candidate.configured.config), (3.0, 0));
    // There is room for few filters in constant memory: a rule leaves it to those who ask.
    assert_eq!(best(&[Some(-1.0), Some(7.0)]), Ok((7.0, 1)));
    assert!(best(&[Some(-1.0)]).unwrap_err().contains("constant memory"));
}
