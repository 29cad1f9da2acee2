//! Results of tuning: what is kept comes back, and what is damaged, foreign or cannot be written is a note.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use convforge::{
    Conv, Device, Error, Pick, Problem, Tuner,
    tuning::{Conditions, Line, NEAR, Outcome, Record, Store, shipped::Shipped},
    variant, variants,
};
use proptest::prelude::*;

const MODEL: &str = "NVIDIA H200";

fn problem(text: &str) -> Problem {
    text.parse().unwrap()
}

fn images(n: usize) -> Problem {
    problem(&format!("mb{n}ic3ih8oc4kh3"))
}

fn line(name: &str, us: f64, source: &str) -> Line {
    Line {
        name: name.to_owned(),
        outcome: Outcome::took(us, 0.01),
        source: source.to_owned(),
    }
}

fn record(problem: &Problem) -> Record {
    let mut record = Record::new(problem, MODEL, Conditions::default());
    record.lines = vec![
        line("small_fma:weights=shared", 4.6, "aa2647d7"),
        line("cublas_gemm:auto", 25.1, "cuBLAS-13.1.0/0f3a"),
        Line {
            outcome: Outcome::Wrong,
            ..line("gemv_warp", 0.0, "51aa")
        },
        Line {
            outcome: Outcome::Late {
                budget: Duration::from_millis(1500),
            },
            ..line("direct_naive", 0.0, "27e4")
        },
    ];
    record
}

/// A store in a folder of its own, and the only file in it, once there is one.
fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::at(folder.path().join("tuning"));
    (folder, store)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let deep = paths.flat_map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    });
    deep.collect()
}

#[test]
fn what_is_kept_comes_back() {
    let (folder, store) = store();
    let one = record(&images(4));
    assert_eq!(store.get(MODEL, &one.problem), Ok(None));
    store.put(&one).unwrap();
    assert_eq!(store.get(MODEL, &one.problem), Ok(Some(one.clone())));
    let files = files(folder.path());
    let names: Vec<_> = files
        .iter()
        .map(|path| path.strip_prefix(folder.path()).unwrap())
        .collect();
    assert_eq!(
        names,
        [Path::new("tuning/NVIDIA-H200/ic3ih8oc4oh6kh3/mb4.txt")]
    );
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(
        text.starts_with("convforge tuning 1\nproblem mb4ic3ih8oc4oh6kh3\nmodel NVIDIA H200\n")
    );
    assert!(
        text.contains("\nsmall_fma:weights=shared 4.600us 1.0% aa2647d7\n"),
        "{text}"
    );

    // Others of the same name do not meet: other models, problems and conditions.
    let warm = Conditions {
        cold: false,
        ..Conditions::default()
    };
    for other in [
        store.get("NVIDIA H100", &one.problem),
        store.get(MODEL, &images(5)),
        store.get(MODEL, &problem("mb4ic3ih8oc4kh3+relu")),
        store.clone().under(warm).get(MODEL, &one.problem),
    ] {
        assert_eq!(other, Ok(None));
    }
    assert_eq!(store.all(), (vec![one], vec![]));
}

#[test]
fn a_new_line_takes_the_place_of_that_of_its_name_and_the_others_stay() {
    let (_folder, store) = store();
    let mut one = record(&images(4));
    store.put(&one).unwrap();
    let again = line("gemv_warp", 3.0, "new");
    let mut less = one.clone();
    less.lines = vec![again.clone()];
    store.put(&less).unwrap();
    one.put(again);
    assert_eq!(one.lines.len(), 4);
    assert_eq!(store.get(MODEL, &one.problem), Ok(Some(one)));
}

#[test]
fn the_nearest_number_of_images_serves_up_to_a_factor() {
    let (_folder, store) = store();
    for n in [0, 8, 32, 100] {
        store.put(&record(&images(n))).unwrap();
    }
    let texts: Vec<Record> = [8, 32, 100].iter().map(|n| record(&images(*n))).collect();
    let text = convforge::tuning::shipped::text(&texts);
    let shipped = Shipped {
        model: MODEL,
        chip: "h200",
        text: text.leak(),
    };
    for (n, nearest) in [
        (1, None),
        (3, None),
        (4, Some(8)),
        (8, None),
        (9, Some(8)),
        // As near to both.
        (16, Some(32)),
        (17, Some(32)),
        (32, None),
        (60, Some(100)),
        (200, Some(100)),
        (201, None),
    ] {
        let found = store.nearest(MODEL, &images(n)).unwrap();
        assert_eq!(found.map(|record| record.problem.n()), nearest, "{n}");
        let found = shipped.nearest(&images(n));
        assert_eq!(
            found.map(|record| record.problem.n()),
            nearest,
            "{n} shipped"
        );
    }
    assert_eq!(NEAR, 2);
}

#[test]
fn shipped_results_are_found_among_many() {
    let mut records = Vec::new();
    for c in 1..40 {
        for n in [1, 2, 10, 100] {
            let problem = problem(&format!("mb{n}ic{c}ih8oc4kh3"));
            let mut record = Record::new(&problem, MODEL, Conditions::default());
            record.lines = vec![line("b", (n * c) as f64, "2"), line("a", 0.5, "1")];
            records.push(record);
        }
    }
    let text = format!(
        "# A remark.\n{}",
        convforge::tuning::shipped::text(&records)
    );
    let shipped = Shipped {
        model: MODEL,
        chip: "h200",
        text: text.leak(),
    };
    for record in &records {
        let mut found = shipped.get(&record.problem).unwrap();
        found.lines.reverse();
        assert_eq!(found, *record);
    }
    for absent in [
        "mb3ic1ih8oc4kh3",
        "mb1ic40ih8oc4kh3",
        "mb1ic1ih8oc4kh3+f16",
        "g2mb1ic2ih8oc4kh3",
    ] {
        assert_eq!(shipped.get(&problem(absent)), None, "{absent}");
    }
    // As a checkout for Windows has it.
    let returns = Shipped {
        text: shipped.text.replace('\n', "\r\n").leak(),
        ..shipped
    };
    for record in &records {
        assert_eq!(returns.get(&record.problem), shipped.get(&record.problem));
        let nearest = returns.nearest(&record.problem);
        assert_eq!(nearest, shipped.nearest(&record.problem));
    }
    // A text that is none of it answers nothing.
    for text in ["", "\n\n", "mb1 -> ", "mb1ic1ih8oc4oh6kh3 -> x", "a\nb\nc"] {
        let shipped = Shipped { text, ..shipped };
        assert_eq!(shipped.get(&images(1)), None);
        assert_eq!(shipped.nearest(&images(1)), None);
    }
}

/// What a file that is there answers, whose content is this.
fn answer(text: &[u8]) -> Result<Option<Record>, String> {
    let (folder, store) = store();
    store.put(&record(&images(4))).unwrap();
    fs::write(&files(folder.path())[0], text).unwrap();
    store.get(MODEL, &images(4))
}

#[test]
fn a_damaged_or_foreign_file_is_a_note_and_is_replaced() {
    let whole = record(&images(4)).to_string();
    assert!(answer(whole.as_bytes()).is_ok());
    for end in 0..whole.len() {
        let note = answer(&whole.as_bytes()[..end]).unwrap_err();
        assert!(note.contains("mb4.txt: "), "{note}");
    }
    let mut other = record(&images(4));
    other.model = "NVIDIA H100".to_owned();
    let foreign = answer(other.to_string().as_bytes()).unwrap_err();
    assert!(foreign.contains("on NVIDIA H100"), "{foreign}");
    let other = record(&images(5)).to_string();
    assert!(
        answer(other.as_bytes())
            .unwrap_err()
            .contains("not of what its name says")
    );
    let later = whole.replacen("tuning 1", "tuning 2", 1);
    let foreign = answer(later.as_bytes()).unwrap_err();
    assert!(
        foreign.contains("first line is not `convforge tuning 1`"),
        "{foreign}"
    );
    assert!(answer(&[0xff; 100]).is_err());
    assert!(
        answer(&vec![b'a'; 1 << 20])
            .unwrap_err()
            .contains("too large")
    );

    let (folder, store) = store();
    let one = record(&images(4));
    store.put(&one).unwrap();
    let path = &files(folder.path())[0];
    fs::write(path, "nothing").unwrap();
    store.put(&one).unwrap();
    assert_eq!(store.get(MODEL, &one.problem), Ok(Some(one.clone())));
    // What is no file is not waited for.
    fs::remove_file(path).unwrap();
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    assert!(
        store
            .get(MODEL, &one.problem)
            .unwrap_err()
            .contains("no plain file")
    );
}

proptest! {
    #[test]
    fn no_single_byte_can_be_changed_unseen(at in 0usize..300, byte: u8) {
        let whole = record(&images(4)).to_string();
        let mut bytes = whole.clone().into_bytes();
        let at = at % bytes.len();
        prop_assume!(bytes[at] != byte);
        bytes[at] = byte;
        prop_assert!(answer(&bytes).is_err(), "byte {at} as {byte}");
    }

    #[test]
    fn every_record_is_read_as_it_was_written(
        times in prop::collection::vec((0.0..1e9f64, 0.0..10.0f64), 0..20),
        n in 0usize..100_000,
    ) {
        let mut record = Record::new(&images(n), "a model, of 4 threads", Conditions::default());
        for (i, (us, spread)) in times.into_iter().enumerate() {
            let outcome = Outcome::took(us, spread);
            record.put(Line { outcome, ..line(&format!("v{i}:tile={i}"), 0.0, "1") });
        }
        prop_assert_eq!(record.to_string().parse::<Record>().unwrap(), record);
    }

    #[test]
    fn any_text_is_a_record_or_an_error(text: String) {
        prop_assert!(text.parse::<Record>().is_err());
        let _ = text.parse::<Line>();
    }
}

#[test]
fn where_nothing_can_be_kept_it_is_said() {
    let (folder, _) = store();
    let file = folder.path().join("taken");
    fs::write(&file, "").unwrap();
    let read_only = folder.path().join("read-only");
    fs::create_dir(&read_only).unwrap();
    let mut rights = fs::metadata(&read_only).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&read_only, rights).unwrap();
    let mut places = vec![file, PathBuf::from("/proc/no/such/place")];
    // Of whom rights keep from nothing, as root, the folder is no test.
    if fs::write(read_only.join("a"), "").is_err() {
        places.push(read_only);
    }
    for place in places {
        let store = Store::at(&place);
        assert_eq!(store.get(MODEL, &images(4)).ok().flatten(), None);
        assert_eq!(store.nearest(MODEL, &images(4)).ok().flatten(), None);
        let note = store.put(&record(&images(4))).unwrap_err();
        assert!(
            note.contains(place.to_str().unwrap()) && note.contains("not kept"),
            "{note}"
        );
        // What was measured serves all the same.
        let cpu = &Device::cpu();
        let tuner = Tuner::new(Duration::from_secs(2)).store(store.clone());
        let tuned = tuner.tune(cpu, &images(4)).unwrap();
        assert!(tuned.measured > 0 && tuned.notes.iter().any(|note| note.contains("not kept")));
        let conv = tuner.conv(cpu, &images(4)).unwrap();
        assert!(conv.reason().contains("just now"), "{}", conv.reason());
        Conv::new(cpu, &images(4), &Pick::Tuned(store)).unwrap();
    }
    // A folder that vanishes is made again.
    let (folder, store) = self::store();
    store.put(&record(&images(4))).unwrap();
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(store.get(MODEL, &images(4)), Ok(None));
    store.put(&record(&images(4))).unwrap();
    assert!(store.get(MODEL, &images(4)).unwrap().is_some());
}

#[test]
fn what_could_not_be_read_again_is_not_kept() {
    let (folder, store) = store();
    let one = record(&images(4));
    store.put(&one).unwrap();
    let with = |name: &str, us: f64| {
        let mut record = one.clone();
        record.put(line(name, us, "1"));
        record
    };
    let lines = (0..10_000).map(|i| line(&format!("variant_{i}"), 1.0, "1"));
    let spoiled = [
        with("a", f64::NAN),
        with("a", f64::INFINITY),
        with("two words", 1.0),
        with("two\nlines", 1.0),
        Record {
            lines: lines.collect(),
            ..one.clone()
        },
        Record {
            model: "two\nlines".to_owned(),
            ..one.clone()
        },
    ];
    for record in spoiled {
        let note = store.put(&record).unwrap_err();
        assert!(note.contains("could not be read again"), "{note}");
    }
    assert_eq!(store.get(MODEL, &one.problem), Ok(Some(one)));
    assert_eq!(files(folder.path()).len(), 1);
    // Finite as it stands there, and not when it is rounded.
    for text in ["a 1e308us 0.0% 1", "a 1us 1e308% 1"] {
        let line = text.parse::<Line>();
        assert!(line.is_err(), "{line:?}");
    }
}

#[test]
fn files_of_another_process_with_this_ones_number_are_left_alone() {
    let (folder, store) = store();
    store.put(&record(&images(1))).unwrap();
    let others = files(folder.path())[0].with_file_name("");
    for count in 0..100 {
        let name = format!(".{}-{count}", std::process::id());
        fs::write(others.join(name), "half").unwrap();
    }
    store.put(&record(&images(4))).unwrap();
    assert_eq!(store.get(MODEL, &images(4)), Ok(Some(record(&images(4)))));
    // Two records and what the others write.
    assert_eq!(files(folder.path()).len(), 102);
}

/// What a child process of a test does: the variable names the store's folder.
const CHILD: &str = "CONVFORGE_TEST_TUNING";

fn child(what: &str, folder: &Path, before: &str) -> Command {
    let test = env::current_exe().unwrap();
    let mut command = Command::new("sh");
    let line = format!(
        "{before} exec '{}' --exact {what} --ignored --nocapture",
        test.display()
    );
    command.args(["-c", &line]).env(CHILD, folder);
    command
}

#[test]
#[ignore = "a part of another test"]
fn writes_a_hundred_times() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let store = Store::at(folder);
    for i in 0..100 {
        let mut one = record(&images(4));
        one.lines[0] = line("small_fma:weights=shared", f64::from(i), "aa2647d7");
        store.put(&one).unwrap();
        let found = store.get(MODEL, &one.problem).unwrap().unwrap();
        assert_eq!(found.lines.len(), 4);
    }
}

#[test]
fn sixteen_processes_write_at_once() {
    let (folder, store) = store();
    let spawn = |_| {
        let mut child = child("writes_a_hundred_times", store.folder().unwrap(), "");
        child.stdout(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..16).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let found = store.get(MODEL, &images(4)).unwrap().unwrap();
    assert_eq!(found.lines[0].outcome, Outcome::took(99.0, 0.01));
    assert_eq!(files(folder.path()).len(), 1);
}

#[test]
#[ignore = "a part of another test"]
fn cannot_write_a_byte() {
    let Some(folder) = env::var_os(CHILD) else {
        return;
    };
    let store = Store::at(folder);
    let note = store.put(&record(&images(4))).unwrap_err();
    println!("said: {note}");
}

#[test]
fn a_full_disk_is_a_note_and_leaves_nothing_behind() {
    let (folder, store) = store();
    // No file may grow, which is an error where the signal is ignored.
    let before = "trap '' XFSZ; ulimit -f 0;";
    let output = child("cannot_write_a_byte", store.folder().unwrap(), before)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("mb4.txt: not kept: File too large"), "{text}");
    assert!(files(folder.path()).is_empty());
    // What was there before stays.
    store.put(&record(&images(4))).unwrap();
    let mut child = child("cannot_write_a_byte", store.folder().unwrap(), before);
    assert!(child.stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(store.get(MODEL, &images(4)), Ok(Some(record(&images(4)))));
    assert_eq!(files(folder.path()).len(), 1);
}

/// What the CPU's plain loops are made of.
fn source(name: &str) -> String {
    variant::source(&*variants::find(name).unwrap()).unwrap()
}

/// A record of the CPU.
fn on_cpu(problem: &Problem, lines: Vec<Line>) -> Record {
    let conditions = Conditions::default().on(false);
    let mut record = Record::new(problem, &Device::cpu().model(), conditions);
    record.lines = lines;
    record
}

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
    let wrong = Line {
        outcome: Outcome::Wrong,
        ..line("cpu_gemm", 0.0, gemm)
    };
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
    let late = Outcome::Late {
        budget: Duration::ZERO,
    };
    let others = first.record.lines.iter().filter(|line| line.name != ruled);
    let others: Vec<_> = others.map(|line| line.outcome).collect();
    assert!(
        !others.is_empty() && others.iter().all(|other| *other == late),
        "{others:?}"
    );
    assert_eq!(tuner(0).tune(&cpu, &problem).unwrap().measured, 0);
    // A budget between two milliseconds is remembered as well.
    let rounded = Record {
        lines: vec![Line {
            outcome: Outcome::Late {
                budget: Duration::from_micros(2_500),
            },
            ..line("a", 0.0, "1")
        }],
        ..first.record
    };
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
