//! Measuring on the spot.

use super::*;

#[test]
fn the_second_time_nothing_is_measured() {
    let cpu = Device::cpu();
    let (folder, store) = store();
    let problem = images(4);
    let tuner = Tuner::new(Duration::from_secs(20)).store(store.clone());
    let all = tuner.wanted(&cpu, &problem).unwrap().missing.len();
    let first = tuner.tune(&cpu, &problem).unwrap();
    assert!(first.measured == all && all > 0, "{first:?}");
    assert!(
        first
            .record
            .lines
            .iter()
            .all(|line| line.outcome.us().is_some()),
        "{first:?}"
    );
    let again = tuner.tune(&cpu, &problem).unwrap();
    assert_eq!((again.measured, &again.record), (0, &first.record));

    // Only what is of other code now is measured again.
    let file = &files(folder.path())[0];
    let mut changed: Record = fs::read_to_string(file).unwrap().parse().unwrap();
    changed.lines[0].source = "other".to_owned();
    fs::write(file, changed.to_string()).unwrap();
    let wanted = tuner.wanted(&cpu, &problem).unwrap();
    let missing: Vec<String> = wanted
        .missing
        .iter()
        .map(|entrant| entrant.name())
        .collect();
    assert_eq!(missing, [changed.lines[0].name.clone()]);
    assert_eq!(tuner.tune(&cpu, &problem).unwrap().measured, 1);

    let conv = tuner.conv(&cpu, &problem).unwrap();
    assert!(
        conv.reason().starts_with("measured on this problem"),
        "{}",
        conv.reason()
    );
    let picked = Conv::new(&cpu, &problem, &Pick::Tuned(store)).unwrap();
    assert_eq!(picked.name(), conv.name());
}

#[cfg(feature = "cpu")]
#[test]
fn without_time_the_rules_choice_is_measured() {
    let cpu = Device::cpu();
    let (_folder, store) = store();
    let problem = images(4);
    let tuner = |us| Tuner::new(Duration::from_micros(us)).store(store.clone());
    let ruled = Pick::Rule.choose(&cpu, &problem).unwrap().name();
    let first = tuner(0).tune(&cpu, &problem).unwrap();
    assert_eq!(first.measured, 1);
    assert!(first.record.line(&ruled).unwrap().outcome.us().is_some());
    let out_of_time = late(Duration::ZERO);
    let others = first.record.lines.iter().filter(|line| line.name != ruled);
    let others: Vec<_> = others.map(|line| line.outcome).collect();
    assert!(
        !others.is_empty() && others.iter().all(|other| *other == out_of_time),
        "{others:?}"
    );
    assert_eq!(tuner(0).tune(&cpu, &problem).unwrap().measured, 0);
    // A budget between two milliseconds is remembered as well.
    let mut rounded = first.record;
    rounded.lines = vec![Line::new("a", late(Duration::from_micros(2_500)), "1")];
    let rounded: Record = rounded.to_string().parse().unwrap();
    let Outcome::Late { budget } = rounded.lines[0].outcome else {
        panic!("{rounded}");
    };
    assert!(budget >= Duration::from_micros(2_500), "{budget:?}");
    // With more time their turn comes.
    let second = tuner(20_000_000).tune(&cpu, &problem).unwrap();
    assert_eq!(second.measured, others.len());
}

#[test]
fn what_cannot_be_done_is_an_error_and_no_image_is_nothing_to_measure() {
    let (_folder, store) = store();
    let tuner = Tuner::new(Duration::from_secs(1)).store(store);
    let tuned = tuner.tune(&Device::cpu(), &images(0)).unwrap();
    assert_eq!(tuned.measured, 0);
    tuner.conv(&Device::cpu(), &images(0)).unwrap();
    // More memory than addresses have bits for.
    let huge = problem("mb300000000ic64ih56oc64kh1");
    let error = tuner.tune(&Device::cpu(), &huge).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

/// The judge on the spot agrees with the variants, whatever the problem: they are right.
#[test]
fn on_the_spot_nobody_right_is_called_wrong() {
    let (_folder, store) = store();
    let tuner = Tuner::new(Duration::from_secs(60)).store(store);
    let mut checked = 0;
    for storage in [
        "",
        "+f16",
        "+bf16",
        "+f16+math=f16acc",
        "+math=tf32",
        "+math=f16acc",
        "+math=bf16",
    ] {
        for shape in [
            "mb2ic5ih9oc7kh3ph1",
            "g4mb1ic8ih12iw7oc12kh3sh2ph1+nhwc",
            "mb3ic300ih4oc9kh1",
        ] {
            for epilogue in [
                "",
                "+bias+relu",
                "+scale=0.37+bias+residual+silu",
                "+bias+tanh+pool=2",
            ] {
                let problem = problem(&format!("{shape}{storage}{epilogue}"));
                let tuned = tuner.tune(&Device::cpu(), &problem).unwrap();
                let right = |line: &Line| line.outcome.us().is_some();
                assert!(
                    tuned.record.lines.iter().all(right),
                    "{problem}: {:?}",
                    tuned.notes
                );
                checked += tuned.measured;
            }
        }
    }
    assert!(checked >= 84, "{checked}");
}
