//! What `auto` and `tuned` take of what is kept.

use super::*;

#[cfg(feature = "cpu")]
#[test]
fn what_was_measured_comes_before_what_is_estimated() {
    let cpu = Device::cpu();
    let (folder, store) = store();
    let pick = Pick::Tuned(store.clone());
    // Large enough that the rule never takes the loops.
    let problem = problem("mb8ic64ih56oc64kh3ph1");
    let chosen = |problem: &Problem| {
        let choice = pick.choose(&cpu, problem).unwrap();
        (choice.name(), choice.reason)
    };
    let (name, reason) = chosen(&problem);
    assert_eq!(name, "cpu_gemm");
    assert!(reason.starts_with("by its estimate"), "{reason}");

    let both = |direct: &str, gemm: &str| {
        vec![line("cpu_gemm", 7.0, gemm), line("cpu_direct", 5.0, direct)]
    };
    let (direct, gemm) = (&*source("cpu_direct"), &*source("cpu_gemm"));
    store.put(&on_cpu(&problem, both(direct, gemm))).unwrap();
    let (name, reason) = chosen(&problem);
    assert_eq!(name, "cpu_direct");
    assert_eq!(
        reason,
        "measured on this problem: 5 us, the fastest of 2 (kept results)"
    );
    let conv = Conv::new(&cpu, &problem, &pick).unwrap();
    assert_eq!((conv.name(), conv.reason()), (name, &*reason));

    // Twice as many images, not four times as many.
    let more = |n| problem.with(|shape| shape.n = n).unwrap();
    let (name, reason) = chosen(&more(16));
    assert_eq!(name, "cpu_direct");
    assert!(reason.starts_with("measured on 8 images: 5 us"), "{reason}");
    assert_eq!(chosen(&more(17)).0, "cpu_gemm");
    store.put(&on_cpu(&more(1), both(direct, gemm))).unwrap();
    let (_, reason) = chosen(&more(2));
    assert!(reason.starts_with("measured on 1 image: 5 us"), "{reason}");
    assert!(chosen(&more(0)).1.starts_with("by its estimate"));

    // A line of other code says nothing; the others stay.
    store.put(&on_cpu(&problem, both("old", gemm))).unwrap();
    assert_eq!(chosen(&problem).0, "cpu_gemm");
    assert!(
        chosen(&problem)
            .1
            .starts_with("measured on this problem: 7 us")
    );
    // Where nobody knows what the rule's choice takes, it is not said to be slower.
    store.put(&on_cpu(&problem, both(direct, "old"))).unwrap();
    let (name, reason) = chosen(&problem);
    assert_eq!(name, "cpu_gemm");
    assert!(
        reason.contains("there is no time of cpu_gemm as it is now"),
        "{reason}"
    );
    // Who was wrong here does not serve where another can.
    let wrong = Line::new("cpu_gemm", Outcome::Wrong, gemm);
    store.put(&on_cpu(&problem, vec![wrong])).unwrap();
    assert_eq!(chosen(&problem).0, "cpu_direct");
    // Nor where results for another number of images say that he is the fastest.
    let fast = [line("cpu_gemm", 3.0, gemm), line("cpu_direct", 5.0, direct)];
    store.put(&on_cpu(&more(7), fast.into())).unwrap();
    let slow = line("cpu_direct", 5.0, "old");
    store.put(&on_cpu(&problem, vec![slow])).unwrap();
    assert_eq!(chosen(&problem).0, "cpu_direct");
    assert_eq!(chosen(&more(9)).0, "cpu_gemm");
    // Variants and configurations that there are not.
    let others = [
        "cpu_no_more",
        "cpu_direct:tile=4",
        "cpu_gemm:",
        ":",
        "direct_naive",
    ];
    let mut lines = vec![line("cpu_gemm", 9.0, gemm), line("cpu_direct", 5.0, direct)];
    lines.extend(others.map(|name| line(name, 1.0, direct)));
    store.put(&on_cpu(&problem, lines)).unwrap();
    let kept = store.clone().under(Conditions::default().on(false));
    assert!(
        kept.get(&cpu.model(), &problem)
            .unwrap()
            .unwrap()
            .lines
            .len()
            >= 7
    );
    assert_eq!(chosen(&problem).0, "cpu_direct");

    for file in files(folder.path()) {
        fs::write(file, "damaged").unwrap();
    }
    let (name, reason) = chosen(&problem);
    assert_eq!(name, "cpu_gemm");
    assert!(
        reason.contains("mb8-calls-warm.txt: `damaged` is not a record"),
        "{reason}"
    );
}

/// A pick that goes by results reads a few files among thousands: it takes no millisecond longer than
/// the rule. The least of some attempts, as other processes take their time too.
#[test]
fn choosing_by_results_takes_no_millisecond() {
    let cpu = Device::cpu();
    let (_folder, store) = store();
    for c in 1..200 {
        for n in [1, 2, 4, 8, 16] {
            let problem = problem(&format!("mb{n}ic{c}ih8oc4kh3"));
            let lines = (0..30)
                .map(|i| line(&format!("v{i}"), 5.0, "old"))
                .collect();
            store.put(&on_cpu(&problem, lines)).unwrap();
        }
    }
    let least = |pick: &Pick, problem: &Problem| {
        let times = (0..20).map(|_| {
            let began = Instant::now();
            pick.choose(&cpu, problem).unwrap();
            began.elapsed()
        });
        times.min().unwrap()
    };
    // With a record, near one, and with none.
    for text in ["mb8ic77ih8oc4kh3", "mb13ic77ih8oc4kh3", "mb1ic999ih8oc4kh3"] {
        let problem = problem(text);
        let (tuned, rule) = (
            least(&Pick::Tuned(store.clone()), &problem),
            least(&Pick::Rule, &problem),
        );
        println!("{text}: {tuned:?}, the rule {rule:?}");
        assert!(
            tuned < rule + Duration::from_millis(1),
            "{text}: {tuned:?} against {rule:?}"
        );
    }
}
