//! What is kept, by whom, and what becomes of it.

use super::*;

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
    let warm = Conditions::default().cold(false);
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
    let shipped = Shipped::new(MODEL, "h200", text.leak());
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

/// More numbers than are looked through, which a folder lists in no order.
#[test]
fn the_nearest_number_of_images_is_found_among_many() {
    let (folder, store) = store();
    let far = [20_000, 50_000, 200_000, 500_000];
    for n in [1, 650].into_iter().chain(far) {
        store.put(&record(&images(n))).unwrap();
    }
    let beside = files(folder.path())[0].with_file_name("");
    let fill = |numbers: Range<usize>| {
        for n in numbers {
            fs::write(beside.join(format!("mb{n}-warm.txt")), "").unwrap();
        }
    };
    let nearest = |n| {
        let found = store.nearest(MODEL, &images(n));
        found.map(|found| found.map(|record| record.problem.n()))
    };
    let ask = || {
        for n in far {
            for near in [n + 240, n - 200] {
                assert_eq!(nearest(near), Ok(Some(n)), "{near}");
            }
        }
        assert_eq!(nearest(2), Ok(Some(1)));
        assert_eq!(nearest(1), Ok(None));
        // All that could serve were asked for.
        assert_eq!(nearest(300), Ok(None));
        assert_eq!(nearest(350), Ok(Some(650)));
    };
    ask();
    assert_eq!(nearest(30_000), Ok(Some(20_000)));
    fill(1..3000);
    ask();
    // It is said that there may be one.
    let note = nearest(30_000).unwrap_err();
    assert!(
        note.contains(beside.to_str().unwrap().trim_end_matches('/'))
            && note.contains("more than 500 files"),
        "{note}"
    );
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
    let shipped = Shipped::new(MODEL, "h200", text.leak());
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
    let returns = shipped.text.replace('\n', "\r\n");
    let returns = Shipped::new(MODEL, "h200", returns.leak());
    for record in &records {
        assert_eq!(returns.get(&record.problem), shipped.get(&record.problem));
        let nearest = returns.nearest(&record.problem);
        assert_eq!(nearest, shipped.nearest(&record.problem));
    }
    // A text that is none of it answers nothing.
    for text in ["", "\n\n", "mb1 -> ", "mb1ic1ih8oc4oh6kh3 -> x", "a\nb\nc"] {
        let shipped = Shipped::new(MODEL, "h200", text);
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
            record.put(Line::new(format!("v{i}:tile={i}"), outcome, "1"));
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
    let (mut large, mut torn) = (one.clone(), one.clone());
    large.lines = lines.collect();
    torn.model = "two\nlines".to_owned();
    let spoiled = [
        with("a", f64::NAN),
        with("a", f64::INFINITY),
        with("two words", 1.0),
        with("two\nlines", 1.0),
        large,
        torn,
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

#[test]
fn what_a_killed_writer_has_left_is_removed_after_an_hour() {
    let (folder, store) = store();
    store.put(&record(&images(1))).unwrap();
    let beside = files(folder.path())[0].with_file_name("");
    let left = |name: &str, minutes: u64| {
        let path = beside.join(name);
        let file = fs::File::open(&path).or_else(|_| fs::File::create(&path));
        let then = SystemTime::now() - Duration::from_secs(60 * minutes);
        file.unwrap().set_modified(then).unwrap();
    };
    left(".0123456789abcdef", 61);
    // Somebody may still write it.
    left(".1123456789abcdef", 59);
    // None of ours, however old.
    let foreign = [
        ".123456789abcdef",
        ".0123456789abcdeg",
        ".0123456789abcdef.txt",
        ".4711-1",
        "0123456789abcdef",
        "notes",
    ];
    foreign.iter().for_each(|name| left(name, 10_000));
    // Nor is a folder.
    fs::create_dir(beside.join(".2123456789abcdef")).unwrap();
    left(".2123456789abcdef", 61);
    store.put(&record(&images(4))).unwrap();
    let mut names: Vec<String> = fs::read_dir(&beside)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let stay = [
        "mb1.txt",
        "mb4.txt",
        ".1123456789abcdef",
        ".2123456789abcdef",
    ];
    let mut expected = [&stay[..], &foreign].concat();
    expected.sort();
    assert_eq!(names, expected);
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
        let mut child = child("store::writes_a_hundred_times", store.folder().unwrap(), "");
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
    let output = child(
        "store::cannot_write_a_byte",
        store.folder().unwrap(),
        before,
    )
    .output()
    .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("mb4.txt: not kept: File too large"), "{text}");
    assert!(files(folder.path()).is_empty());
    // What was there before stays.
    store.put(&record(&images(4))).unwrap();
    let mut child = child(
        "store::cannot_write_a_byte",
        store.folder().unwrap(),
        before,
    );
    assert!(child.stdout(Stdio::null()).status().unwrap().success());
    assert_eq!(store.get(MODEL, &images(4)), Ok(Some(record(&images(4)))));
    assert_eq!(files(folder.path()).len(), 1);
}
