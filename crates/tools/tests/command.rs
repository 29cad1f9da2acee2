//! What the command answers. To bad input: an exit status that is not 0, a line `error: ...` that
//! names the thing, and never a panic.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Runs the command and asserts that it fails with every part in its error.
#[track_caller]
fn fails(args: &[&str], parts: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command.args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let shown = args.join(" ");
    // A process that a signal ended has no code.
    assert!(
        matches!(output.status.code(), Some(1 | 2)),
        "{shown}: {}\n{text}",
        output.status
    );
    assert!(!text.contains("panicked"), "{shown}:\n{text}");
    let error = text.find("error: ").map(|start| &text[start..]);
    let error = error.unwrap_or_else(|| panic!("{shown}: no error in:\n{text}"));
    for part in parts {
        assert!(error.contains(part), "{shown}: no `{part}` in:\n{text}");
    }
}

/// Runs the command, asserts that it succeeds, and answers its standard output.
#[track_caller]
fn says(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command.args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}:\n{text}", args.join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn problems_that_are_none() {
    for (problem, part) in [
        ("mb1ic0ih8oc4kh3", "input channels (ic) is 0"),
        ("mb1ic3ih0oc4kh3", "input height (ih) is 0"),
        ("mb1ic3ih8oc4kh0", "filter height (kh) is 0"),
        ("mb1ic3ih8oc4kh3sh0", "stride (sh) is 0"),
        ("g0mb1ic3ih8oc4kh3", "groups (g) is 0"),
        ("mb1ic-3ih8oc4kh3", "`-3ih8oc4kh3`"),
        ("g2mb1ic3ih8oc4kh3", "cannot be split into 2 groups"),
        ("g4mb1ic8ih8oc6kh3", "cannot be split into 4 groups"),
        ("mb1ic3ih4oc4kh7ph1", "larger than the padded image of 6x6"),
        ("mb1ic3ih8oc4kh99999999999999999999", "is too large"),
        ("mb1ic3ih8oc4kh3000000000", "3000000000; the limit is"),
        (
            "mb2000000000ic2000000000ih2000000000oc1kh1",
            "more than 70368744177664 elements",
        ),
        ("mb1ic3ih8oc4kh3+align=3", "alignment of 3 bytes"),
        (
            "mb1ic3ih8oc4kh3+bf16+math=tf32",
            "bf16 storage with tf32 math",
        ),
        ("mb1ic3ih8oc4kh3+gelu", "`gelu` is no word"),
        ("mb1ic3ih8kh3", "`oc` is missing"),
        ("", "`ic`, `ih`, `oc`, `kh` are missing"),
        ("mb1ic3iw8", "`oc`, `kh` are missing"),
    ] {
        fails(&["check", "--device", "cpu", "--problem", problem], &[part]);
        fails(&["list", "--device", "cpu", "--problem", problem], &[part]);
    }
}

#[test]
fn sizes_by_flags_that_make_no_problem() {
    for (flags, part) in [
        ("--c 3 --h 8 --k 4", "--r <R>"),
        ("--k 4", "--c <C>"),
        ("--c 0 --h 8 --k 4 --r 3", "input channels (ic) is 0"),
        ("--c -3 --h 8 --k 4 --r 3", "`-3` is no number"),
        ("--c 3 --h 8 --k 4 --r 3 --stride 0x1", "stride (sh) is 0"),
        ("--c 3 --h 8 --k 4 --r 3 --pad -1", "`-1` is no number"),
        ("--c 3 --h 8 --k 4 --r 9", "larger than the padded image"),
        ("--c 3 --h 8 --k 4 --r 3 --groups 2", "split into 2 groups"),
        (
            "--c 3 --h 8 --k 4 --r 3 --n 18446744073709551615",
            "elements",
        ),
        (
            "--c 3 --h 8 --k 4 --r 3 --pad 18446744073709551615",
            "padding above",
        ),
        (
            "--c 3 --h 8 --k 4 --r 2 --dilation 18446744073709551615",
            "dilation",
        ),
    ] {
        let mut args = vec!["check", "--device", "cpu"];
        args.extend(flags.split_whitespace());
        fails(&args, &[part]);
    }
}

#[test]
fn numbers_that_are_none() {
    let problem = ["--problem", "mb1ic3ih8oc4kh3"];
    for (args, part) in [
        ("check --generated -1", "`-1` is no number of 0 or more"),
        ("check --generated 99999999999999999999", "is too large"),
        ("check --each few", "`few` is no number"),
        ("check --seed -1", "`-1` is no number"),
        ("check --jobs 0", "at least 1"),
        ("check --batch -1", "`-1` is no number"),
        ("compare --samples 0", "at least 1"),
        ("compare --samples 99999999999", "is too large"),
        ("compare --seconds -1", "`-1` is no number of seconds"),
        ("compare --seconds nan", "`nan` is no number of seconds"),
        ("tune --samples 0", "at least 1"),
        ("profile cpu_gemm --runs 0", "at least 1"),
        ("infer --count 0", "at least 1"),
        ("infer --batch -1", "`-1` is no number"),
        ("study --batches 100,0", "at least 1"),
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let takes_problems = !["infer", "study"].contains(&words[0]);
        let problem = if takes_problems { &problem[..] } else { &[] };
        fails(&[&words, problem].concat(), &[part]);
    }
}

#[test]
fn names_that_nothing_has() {
    let cpu = ["check", "--device", "cpu", "--problem", "mb1ic3ih8oc4kh3"];
    let check = |more: &[&str], parts: &[&str]| fails(&[&cpu, more].concat(), parts);
    check(
        &["--variant", "cpu_gem"],
        &["no variant `cpu_gem`", "did you mean `cpu_gemm`"],
    );
    check(
        &["--variant", "cpu_gemm:tile=3"],
        &["cpu_gemm has no configuration `tile=3`"],
    );
    check(&["--variant", "rule"], &["`rule` is no variant"]);
    check(
        &["--suite", "resnet5"],
        &["no suite `resnet5`", "did you mean `resnet50`"],
    );
    let kernel = ["--variant", "small_mma"];
    match cfg!(feature = "cuda") {
        true => check(&kernel, &["small_mma"]),
        false => check(&kernel, &["no variant `small_mma`", "no CUDA"]),
    }
    check(&["--shard", "3/2"], &["'3/2'", "i-th of n"]);
    check(&["--data", "reals"], &["'reals'", "integer, normal"]);
    check(&["--data", "subnormal"], &["fits none", "f16 operands"]);
    fails(
        &[
            "infer",
            "--device",
            "cpu",
            "--count",
            "1",
            "--variant",
            "policy:per-leyer",
        ],
        &["no policy `per-leyer`", "did you mean `per-layer`"],
    );
    fails(
        &[
            "infer",
            "--device",
            "cpu",
            "--count",
            "1",
            "--variant",
            "kernels",
        ],
        &["no variant on the CPU"],
    );
}

#[test]
fn a_pick_is_compared_and_says_what_it_chose() {
    let cpu = ["compare", "--device", "cpu", "--samples", "5"];
    // Only the plain loops can; of both the rule takes one by how many cores there are.
    let problem = ["--problem", "mb1ic3ih8oc4kh3+math=f16acc"];
    let picks = ["--variant", "rule", "--variant", "policy:per-layer"];
    let args = [&cpu[..], &problem, &picks].concat();
    let report: serde_json::Value =
        serde_json::from_str(&says(&[&args[..], &["--json"]].concat())).unwrap();
    let [rule, policy] = &report["rows"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!([&rule["variant"], &rule["chose"]], ["rule", "cpu_direct"]);
    assert_eq!(rule["samples"], 5);
    // Its variants are kernels.
    assert_eq!(policy["variant"], "policy:per-layer");
    assert_eq!(policy["status"], "unsupported");
    assert!(policy["chose"].is_null() && policy["reason"].is_string());

    let text = says(&args);
    assert!(text.contains("rule (cpu_direct)"), "{text}");
    let misspelled = ["--variant", "policy:per-leyer"];
    fails(
        &[&cpu[..], &problem, &misspelled].concat(),
        &["no policy `per-leyer`", "did you mean `per-layer`"],
    );
}

#[test]
fn a_profile_writes_a_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.json");
    let profile = ["profile", "cpu_gemm", "--device", "cpu"];
    let problem = ["--problem", "mb1ic3ih8oc4kh3"];
    let args = [&profile[..], &problem].concat();
    let written = ["--runs", "2", "--json", "--trace", trace.to_str().unwrap()];
    let ran: serde_json::Value =
        serde_json::from_str(&says(&[&args[..], &written].concat())).unwrap();
    assert_eq!(ran["variant"], "cpu_gemm");
    assert_eq!(ran["problem"], "mb1ic3ih8oc4oh6kh3");
    assert!(ran["environment"]["csrc"].is_string(), "{ran}");
    let text = fs::read_to_string(trace).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let work: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    let names: Vec<_> = work.iter().map(|event| event["name"].clone()).collect();
    let call = ["input", "cpu_gemm", "output"];
    assert_eq!(names, [call, call].concat());
    // One after the other.
    let time = |event: &serde_json::Value, key: &str| event[key].as_f64().unwrap();
    for pair in work.windows(2) {
        let end = time(pair[0], "ts") + time(pair[0], "dur");
        assert!(end <= time(pair[1], "ts") + 1e-3, "{text}");
    }

    // No number is printed.
    let text = says(&args);
    assert!(
        text.contains("checked, called 3 times on the CPU"),
        "{text}"
    );
    let cannot = ["profile", "cpu_gem", "--device", "cpu"];
    fails(
        &[&cannot[..], &problem].concat(),
        &["did you mean `cpu_gemm`"],
    );
    fails(&[&args[..], &["--runs", "0"]].concat(), &["0"]);
    let nowhere = "no/such/folder/trace.json";
    fails(&[&args[..], &["--trace", nowhere]].concat(), &[nowhere]);
}

#[test]
fn a_sweep_says_what_can_be_swept() {
    let cpu = ["sweep", "--device", "cpu"];
    let sweep = |more: &[&str], parts: &[&str]| fails(&[&cpu, more].concat(), parts);
    let nothing = "more than one configuration to sweep";
    sweep(&[], &["no variant on the CPU has", nothing]);
    sweep(&["cpu_gemm"], &["`cpu_gemm` does not have", nothing]);
    sweep(&["cpu_gem"], &["did you mean `cpu_gemm`"]);
    sweep(&["rule"], &["`rule` is no variant"]);
    sweep(&["cpu_gemm:tile=4"], &["name `cpu_gemm` alone"]);
}

/// Where it is all there is, nothing was measured: shown, and no success.
#[cfg(feature = "cuda")]
#[test]
fn a_configuration_that_is_not_supported_is_shown() {
    let problem = ["--device", "cpu", "--problem", "mb1ic3ih8oc4kh3"];
    let sweep = [&["sweep", "cublas_gemm"], &problem[..]].concat();
    let shown = |args: &[&str]| {
        fails(args, &["nothing was measured: cublas_gemm", "needs a GPU"]);
        fed(args, "").1
    };
    let json = shown(&[&sweep[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = report["rows"].as_array().unwrap();
    assert!(report["view"] == "sweep" && rows.len() > 1, "{report}");
    let unsupported = |row: &serde_json::Value| row["status"] == "unsupported";
    assert!(rows.iter().all(unsupported), "{report}");
    let text = shown(&sweep);
    for part in ["auto", "default", "unsupported: needs a GPU"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_study_goes_on_is_put_together_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [one, two, all] = ["one.json", "two.json", "all.json"].map(file);
    let study = |out: &str, more: &[&str]| {
        let cpu = ["study", "--device", "cpu", "--batches", "2", "--runs", "2"];
        let variant = [
            "--variant",
            "cpu_gemm",
            "--parts",
            "network,overlap",
            "--synthetic",
        ];
        says(&[&cpu[..], &variant, &["--out", out, "--resume"], more].concat())
    };
    let read = |path: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let text = study(&one, &["--shard", "1/2"]);
    assert!(text.contains("network 2 images"), "{text}");
    let first = read(&one);
    let row = &first["network"][0];
    assert_eq!([&row["variant"], &row["status"]], ["cpu_gemm", "passed"]);
    assert_eq!((&row["images"], &row["runs"]), (&2.into(), &2.into()));
    // Nothing is known of made-up images.
    assert!(row["accuracy"].is_null() && row["total"]["median_us"].as_f64() > Some(0.0));

    let again = study(&one, &["--shard", "1/2"]);
    assert!(
        again.contains("network 2 images cpu_gemm fp32: already there"),
        "{again}"
    );
    assert_eq!(read(&one)["network"], first["network"]);

    study(&two, &["--shard", "2/2"]);
    says(&["study", "--merge", &one, &two, "--out", &all]);
    let merged = read(&all);
    let rows = |value: &serde_json::Value, key: &str| value[key].as_array().unwrap().len();
    assert_eq!(merged["network"], first["network"]);
    let parts = [&first, &read(&two)].map(|value| rows(value, "overlap"));
    assert_eq!(rows(&merged, "overlap"), parts[0] + parts[1]);

    for more in [&[][..], &["--markdown"]] {
        let text = says(&[&["report", &*all][..], more].concat());
        for part in ["network 2 images", "whole time", "streams report-86 l2"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

#[test]
fn a_study_of_errors_goes_on_and_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [one, two, all, page] = ["one.json", "two.json", "all.json", "page.html"].map(path);
    // Of five units, a problem each, the last and smallest.
    let study = |out: &str, more: &[&str]| {
        let cpu = [
            "study",
            "--device",
            "cpu",
            "--parts",
            "errors",
            "--variant",
            "cpu_gemm",
        ];
        says(
            &[
                &cpu[..],
                &["--shard", "5/5", "--out", out, "--resume"],
                more,
            ]
            .concat(),
        )
    };
    let read = |path: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    };
    let text = study(&one, &["--math", "fp32"]);
    assert!(text.contains("1 passed, 0 failed"), "{text}");
    // Nothing was timed.
    assert!(!text.contains("Timed"), "{text}");
    let first = read(&one);
    let row = &first["errors"][0];
    assert_eq!([&row["layer"], &row["status"]], ["mobilenet", "passed"]);
    let wide = &row["data"][2];
    assert!(wide["data"] == "wide" && wide["rounded"].is_null());
    let rms = |of: &str| wide[of]["rms"].as_f64().unwrap();
    assert!(rms("stored") > 0.0 && rms("stored") < 2.0 * rms("sequential"));

    let again = study(&one, &["--math", "fp32"]);
    assert!(again.contains("kh3sh2ph1: already there"), "{again}");
    assert_eq!(read(&one)["errors"], first["errors"]);

    study(&two, &["--math", "bf16"]);
    says(&["study", "--merge", &one, &two, "--out", &all]);
    assert_eq!(read(&all)["errors"].as_array().unwrap().len(), 2);
    for more in [&[][..], &["--markdown"]] {
        let text = says(&[&["report", &*all][..], more].concat());
        for part in [
            "errors first mobilenet mb1ic3ih224",
            "C R S = 27",
            "bf16",
            "sequential loop",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
    says(&["page", &all, "--out", &page]);
    let page = fs::read_to_string(&page).unwrap();
    for part in [
        "data-of=\"errors\" data-data=\"wide\"",
        "RMS error on positive data, bf16",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_study_that_makes_no_sense() {
    let study = |more: &[&str], parts: &[&str]| {
        fails(&[&["study", "--device", "cpu"], more].concat(), parts);
    };
    study(&["--batches", "0"], &["at least 1"]);
    study(&["--parts", "layer"], &["layers, network, overlap, errors"]);
    study(&["--variant", "cpu_gem"], &["did you mean `cpu_gemm`"]);
    study(
        &["--overlap-variant", "cpu_gem"],
        &["did you mean `cpu_gemm`"],
    );
    study(&["--resume"], &["--out"]);
    study(
        &["--out", "no/such/folder/out.json"],
        &["no/such/folder/out.json"],
    );
    study(&["--merge", "absent.json", "other.json"], &["absent.json"]);
}

#[test]
fn devices_that_are_not_there() {
    for command in ["check", "compare", "infer", "list", "study", "sweep"] {
        fails(&[command, "--device", "gpu:99"], &["GPU"]);
        fails(&[command, "--device", "tpu"], &["'tpu'", "`gpu:1`"]);
    }
}

#[test]
fn each_variant_gets_as_many_problems_as_it_was_promised() {
    // cpu_gemm cannot do every random problem.
    let args = [
        "check", "--device", "cpu", "--each", "30", "--data", "integer",
    ];
    let text = says(&args);
    assert!(
        text.contains("60 passed, 0 failed, 0 skipped, 0 unsupported"),
        "{text}"
    );
}

#[test]
fn a_share_of_the_tails_of_tiles_passes_on_the_cpu() {
    let kinds = ["--data", "integer", "--data", "normal"];
    let share = ["check", "--device", "cpu", "--tails", "--shard", "5/197"];
    let text = says(&[&share[..], &kinds].concat());
    assert!(
        text.contains("Problems: 32, ") && text.contains(" 0 failed, 0 skipped"),
        "{text}"
    );
}

#[test]
fn tails_are_all_that_is_checked() {
    let problem = "mb1ic3ih8oc4kh3";
    for others in [
        "--generated 5",
        "--each 5",
        "--suite vgg16",
        &format!("--problem {problem}"),
        "--model net.onnx",
        "--storage f16",
        "--c 3 --h 8 --k 4 --r 3",
    ] {
        let named = others.split(' ');
        let tails = ["check", "--device", "cpu", "--shard", "1/6153", "--tails"];
        let args: Vec<&str> = tails.into_iter().chain(named).collect();
        let option = args[tails.len()];
        fails(&args, &["cannot be used with", "--tails", option]);
    }
}

/// gpu.sh makes as many steps as they take.
#[test]
fn the_script_knows_how_many_tails_there_are() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/gpu/check.sh");
    let text = fs::read_to_string(script).unwrap();
    let count = convforge_check::tails().len();
    let line = format!("readonly TAILS={count} ");
    assert!(text.contains(&line), "no `{line}` in check.sh");
}

#[test]
fn a_variant_that_cannot_do_it() {
    // One row is not supported, so nothing was shown.
    let problem = "mb1ic3ih8oc4kh3+math=f16acc";
    let args = ["infer", "--device", "cpu", "--count", "1"];
    let more = ["--variant", "cpu_gemm", "--math", "f16acc"];
    fails(&[&args[..], &more].concat(), &["cpu_gemm cannot do", "f16"]);
    let text = says(&["list", "--device", "cpu", "--problem", problem]);
    assert!(text.contains("rule picks cpu_direct"), "{text}");
}

/// On a chip that no kernel runs on, or that the build has no code for, all say the same.
#[test]
#[cfg(feature = "cuda")]
fn a_reason_that_many_variants_share_is_told_once() {
    let problem = ["--problem", "mb1ic3ih8oc4kh3"];
    for place in [["--as", "a100"], ["--device", "cpu"]] {
        let args = [&["list"], &place[..], &problem].concat();
        let json: serde_json::Value =
            serde_json::from_str(&says(&[&args[..], &["--json"]].concat())).unwrap();
        let reasons = json.as_array().unwrap().iter();
        let reasons: Vec<&str> = reasons
            .filter_map(|entry| entry["answer"]["reason"].as_str())
            .collect();
        // A table wraps long reasons; the notes under it do not.
        let text = says(&args);
        for why in &reasons {
            let count = reasons.iter().filter(|other| *other == why).count();
            let notes = text.lines().filter(|line| {
                line.strip_prefix('(')
                    .and_then(|line| line.split_once(") "))
                    .is_some_and(|(_, note)| note == *why)
            });
            assert_eq!(notes.count(), usize::from(count >= 3), "{why}:\n{text}");
        }
        assert_eq!(text.contains("no (1)"), text.contains("\n(1) "), "{text}");
    }
}

#[test]
fn a_chip_that_is_not_there_is_asked() {
    let problem = ["--problem", "mb64ic64ih56oc64oh56kh3ph1+f16+nhwc"];
    let args = [&["list", "--as", "h200"], &problem[..]].concat();
    let text = says(&args);
    assert!(text.contains("oh56kh3ph1+f16+nhwc on h200"), "{text}");
    let without = text.contains("This build has no CUDA");
    assert_eq!(without, cfg!(not(feature = "cuda")), "{text}");
    let all: serde_json::Value =
        serde_json::from_str(&says(&[&args[..], &["--json"]].concat())).unwrap();
    let of = |name: &str| {
        let mut entries = all.as_array().unwrap().iter();
        let named = entries.find(|entry| entry["name"] == name);
        named.unwrap_or_else(|| panic!("no {name} in {all}"))
    };
    let cpu = &of("cpu_gemm")["answer"];
    assert_eq!(cpu["reason"], "runs on the CPU only");
    #[cfg(feature = "cuda")]
    {
        let cublas = &of("cublas_gemm")["answer"];
        assert!(cublas["supported"] == true && cublas["rank_us"].as_f64() > Some(0.0));
        let picked = |entry: &serde_json::Value| {
            let picks = entry["answer"]["picked_by"].as_array().unwrap().clone();
            picks.iter().any(|pick| pick == "rule")
        };
        let chosen = all.as_array().unwrap().iter().filter(|entry| picked(entry));
        assert_eq!(chosen.count(), 1);
    }
    fails(&["list", "--as", "h200"], &["--problem"]);
    let changed = ["--math", "tf32"];
    fails(
        &[&["list"], &changed[..]].concat(),
        &["--math", "name some"],
    );
    fails(
        &[&["list", "--as", "h300"], &problem[..]].concat(),
        &["'h300'", "h200, h100, a100"],
    );
    fails(
        &[&args[..], &["--device", "cpu"]].concat(),
        &["cannot be used with"],
    );
}

/// Runs the command with this on its standard input; answers its status and what it wrote.
fn fed(args: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let command = command.args(args).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn problems_come_from_files_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.txt");
    let lines = "# two\n\nmb1ic3ih8oc4kh3\nstem mb2ic3ih8oc4kh3\n";
    fs::write(&file, lines).unwrap();
    let file = file.to_str().unwrap();
    for (command, more) in [
        ("check", &["--variant", "cpu_gemm", "--device", "cpu"][..]),
        (
            "compare",
            &["--variant", "cpu_gemm", "--device", "cpu", "--samples", "1"],
        ),
        ("list", &["--device", "cpu"]),
    ] {
        let read = [&[command, "--problem", "-"], more].concat();
        let (code, text, error) = fed(&read, lines);
        assert_eq!(code, Some(0), "{command}: {error}");
        let suite = says(&[&[command, "--suite", file], more].concat());
        if command == "check" {
            assert!(text.contains("Problems: 2,") && suite.contains("Problems: 2,"));
        } else {
            assert!(text.contains("\nstem mb2ic3ih8oc4oh6kh3"), "{text}");
            assert!(suite.contains("\nmine stem mb2ic3ih8oc4oh6kh3"), "{suite}");
        }
        for (input, part) in [
            ("# none\n", "standard input: has no problem"),
            (
                "\na mb1ic0ih8oc4kh3",
                "standard input: line 2: invalid problem",
            ),
        ] {
            let (code, _, error) = fed(&read, input);
            assert!(
                code == Some(1) && error.contains(part),
                "{command}: {error}"
            );
        }
        fails(
            &[&[command, "--suite", "no/such.txt"], more].concat(),
            &["no/such.txt"],
        );
    }
    // On the CPU a sweep measures nothing, but its problems are read alike.
    let sweep = ["sweep", "cublas_gemm", "--device", "cpu", "--problem", "-"];
    if cfg!(feature = "cuda") {
        let (code, text, error) = fed(&sweep, lines);
        assert!(code == Some(1) && text.contains("stem mb2ic3"), "{error}");
    }
    // What is kept names no folder.
    let kept = [
        "compare",
        "--device",
        "cpu",
        "--samples",
        "1",
        "--json",
        "--suite",
        file,
    ];
    let report: serde_json::Value = serde_json::from_str(&says(&kept)).unwrap();
    let options = report["environment"]["options"].to_string();
    assert!(
        options.contains("\"mine\"") && !options.contains("mine.txt"),
        "{options}"
    );

    let several = ["list", "--device", "cpu", "--json", "--suite", file];
    let all: serde_json::Value = serde_json::from_str(&says(&several)).unwrap();
    let layers = all.as_array().unwrap().iter();
    let stems = layers
        .filter(|entry| entry["answer"]["layer"] == "stem")
        .count();
    assert_eq!(2 * stems, all.as_array().unwrap().len());
}

#[test]
fn a_row_of_a_list_is_a_line_where_there_is_no_terminal() {
    let all: serde_json::Value = serde_json::from_str(&says(&["list", "--json"])).unwrap();
    let text = says(&["list"]);
    for entry in all.as_array().unwrap() {
        let word = |key: &str| entry[key].as_str().unwrap();
        let is_row = |line: &&str| {
            line.trim_start().starts_with(&format!("{} ", word("name")))
                && line.contains(word("idea"))
                && line.contains(word("source"))
        };
        assert_eq!(text.lines().filter(is_row).count(), 1, "{entry}\n{text}");
    }
    assert!(text.lines().all(|line| line == line.trim_end()));
}

/// Whoever can do the problem is in sight; programs get the order of the library.
#[test]
fn a_list_begins_with_whoever_can_do_the_problem() {
    // Only the plain loops, the last of the list, can.
    let problem = ["--problem", "mb1ic3ih8oc4kh3+math=f16acc"];
    let args = [&["list", "--device", "cpu"], &problem[..]].concat();
    let text = says(&args);
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    let rows: Vec<_> = rows
        .filter(|(_, can)| ["yes", "no"].contains(can))
        .collect();
    assert_eq!(rows[0], ("cpu_direct", "yes"), "{text}");
    assert!(rows[1..].iter().all(|(_, can)| *can == "no"), "{text}");

    let names = |args: &[&str]| {
        let all: serde_json::Value = serde_json::from_str(&says(args)).unwrap();
        let names = all.as_array().unwrap().iter();
        names
            .map(|entry| entry["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let json = names(&[&args[..], &["--json"]].concat());
    assert_eq!(json, names(&["list", "--json"]));
    assert!(rows.len() == json.len() && rows.len() > 1, "{text}");
}

#[test]
fn nothing_at_all_is_no_success() {
    let check = ["check", "--device", "cpu"];
    let with = |more: &[&'static str]| [&check[..], more].concat();
    let unsupported = [
        "--variant",
        "cpu_gemm",
        "--problem",
        "mb1ic3ih8oc4kh3+math=f16acc",
    ];
    fails(&with(&["--generated", "0"]), &["nothing was checked"]);
    fails(
        &with(&unsupported),
        &[
            "nothing was checked",
            "cpu_gemm unsupported",
            "accumulates in f32",
        ],
    );
    fails(
        &[&with(&unsupported)[..], &["--json"]].concat(),
        &["nothing was checked"],
    );
    // Of three shares of one problem two are empty.
    let share = ["--problem", "mb1ic3ih8oc4kh3", "--shard", "3/3"];
    says(&with(&share));
    fails(&with(&["--judge", "gpu"]), &["--judge gpu"]);
    fails(&with(&["--math", "tf32"]), &["--math", "name some"]);
}

#[test]
fn errors_name_their_subject_and_the_way_out() {
    let problem = "mb1ic3ih8oc4kh3+math=foo";
    fails(
        &["check", "--problem", problem],
        &["`foo` is not a math: it may be fp32"],
    );
    fails(&["check", "--layout", "foo"], &["`foo` is not a layout"]);
    let kernels = [
        "infer",
        "--device",
        "cpu",
        "--count",
        "1",
        "--variant",
        "kernels",
    ];
    fails(
        &kernels,
        &["no variant on the CPU", "convforge list --problem"],
    );
    if cfg!(feature = "cuda") {
        fails(
            &kernels,
            &["direct_naive and ", " others: each needs a GPU"],
        );
    }
}

#[test]
fn devices_say_each_reason_once() {
    let found: serde_json::Value = serde_json::from_str(&says(&["devices", "--json"])).unwrap();
    let text = says(&["devices"]);
    for library in found["libraries"].as_array().unwrap() {
        if let Some(why) = library["error"].as_str() {
            assert_eq!(text.matches(why).count(), 1, "{text}");
            let mut parts = why.split(": ").zip(why.split(": ").skip(1));
            let twice = parts.find(|(part, next)| part.ends_with(&format!(" {next}")));
            assert_eq!(twice, None, "{why}");
        }
    }
}

/// Ctrl-C says at once that it was seen, and the status is its own.
#[cfg(target_os = "linux")]
#[test]
fn an_interruption_is_told_and_ends_the_work() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let mut child = command
        .args(["check", "--device", "cpu", "--problem", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    // From when SIGINT, the second bit, is caught.
    let caught = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        u64::from_str_radix(mask.unwrap().trim(), 16).unwrap() & 2 != 0
    };
    while !caught() {
        thread::sleep(Duration::from_millis(5));
    }
    // The shell's own, where there may be no program.
    let kill = Command::new("sh")
        .args(["-c", &format!("kill -INT {pid}")])
        .status();
    assert!(kill.unwrap().success());
    let mut said = String::new();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    errors.read_line(&mut said).unwrap();
    assert!(said.contains("Ctrl-C again ends at once"), "{said}");

    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"mb1ic3ih8oc4kh3\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(
        text.contains("interrupted") && text.contains("0 passed"),
        "{text}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_an_error_and_a_closed_one_none() {
    let infer = ["infer", "--device", "cpu", "--count", "1", "--batch", "1"];
    let list = ["list"];
    let json = ["devices", "--json"];
    for args in [&infer[..], &list, &json] {
        let command = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
            command.args(args).stderr(Stdio::piped());
            command
        };
        let full = fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = command().stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("error: standard output: cannot be written: No space left"),
            "{text}"
        );

        let mut child = command().stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !text.contains("error"), "{text}");

        // Where the error cannot be written either.
        let full = || {
            fs::OpenOptions::new()
                .write(true)
                .open("/dev/full")
                .unwrap()
        };
        let status = command().stdout(full()).stderr(full()).status().unwrap();
        assert_eq!(status.code(), Some(1));
    }
}

/// Runs the command with a standard output that nobody reads; answers its status.
#[track_caller]
fn unread(args: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let command = command.args(args).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    child.wait().unwrap().code()
}

/// The rows of a file of results.
fn rows_of(file: &str, key: &str) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value[key].as_array().unwrap().len()
}

#[test]
fn work_goes_on_though_nobody_reads() {
    let check = ["check", "--device", "cpu", "--variant"];
    let passes = ["cpu_direct", "--problem", "mb1ic3ih8oc4kh3"];
    assert_eq!(unread(&[&check[..], &passes].concat()), Some(0));
    // A variant that meets too few problems has failed.
    #[cfg(feature = "cuda")]
    {
        let meets_none = ["small_mma", "--each", "1"];
        assert_eq!(unread(&[&check[..], &meets_none].concat()), Some(1));
    }

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let problems = ["mb1ic1ih3oc1kh1", "mb2ic1ih3oc1kh1"];
    let problems = problems.map(|problem| ["--problem", problem]).concat();
    let few = ["--device", "cpu", "--samples", "5"];
    let (out, store) = (path("compare.json"), path("store"));
    let compare = ["compare", "--variant", "cpu_gemm", "--out", &out];
    let compare = [&compare[..], &few, &problems].concat();
    assert_eq!(unread(&compare), Some(0));
    assert_eq!(rows_of(&out, "rows"), 2);
    let tune = [&["tune", "--store", &store], &few[..], &problems].concat();
    assert_eq!(unread(&tune), Some(0));
    let again = says(&tune);
    assert_eq!(again.matches("2 already there").count(), 2, "{again}");

    let out = path("study.json");
    let study = [
        "study",
        "--device",
        "cpu",
        "--parts",
        "network",
        "--batches",
    ];
    let made_up = ["--synthetic", "--runs", "2", "--variant", "cpu_gemm"];
    let study = |batches| {
        let out = ["--out", &out, "--resume"];
        unread(&[&study[..], &[batches], &made_up, &out].concat())
    };
    assert_eq!((study("2"), study("2,3")), (Some(0), Some(0)));
    assert_eq!(rows_of(&out, "network"), 2);
}

/// What was measured before an error is in the stream that results go to.
#[cfg(target_os = "linux")]
#[test]
fn an_error_in_passing_loses_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let problem = "mb1ic1ih3oc1oh3kh1";
    // A folder stands where the chart would go.
    let charts = folder.path().join("charts");
    fs::create_dir_all(charts.join(format!("{problem}.svg"))).unwrap();
    let charts = charts.to_str().unwrap();
    let args = ["compare", "--device", "cpu", "--samples", "1", "--json"];
    let rest = ["--problem", problem, "--variant", "cpu_gemm", "--svg"];
    let args = [&args[..], &rest, &[charts]].concat();
    fails(&args, &["mb1ic1ih3oc1oh3kh1.svg: cannot be written"]);
    let report: serde_json::Value = serde_json::from_str(&fed(&args, "").1).unwrap();
    assert_eq!(report["rows"][0]["variant"], "cpu_gemm", "{report}");
    let (status, written, _) = fed(&[&args[..], &["--out", "/dev/stdout"]].concat(), "");
    assert_eq!(status, Some(1));
    assert!(written.contains(r#""variant": "cpu_gemm""#), "{written}");
}

/// A study shows what it measured before its file grew too large for the disk.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_does_not_hide_what_a_study_measured() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study.json");
    let study = ["study", "--device", "cpu", "--batches", "2", "--runs", "2"];
    let parts = ["--parts", "network,overlap", "--variant", "cpu_gemm"];
    let out_there = ["--synthetic", "--out", out.to_str().unwrap()];
    let args = [&study[..], &parts, &out_there].concat();
    // A share without any work.
    says(&[&args[..], &["--shard", "99/99"]].concat());
    // Blocks of 1024 bytes.
    let blocks = fs::metadata(&out).unwrap().len() / 1024 + 1;
    fs::remove_file(&out).unwrap();
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\"");
    let mut command = Command::new("bash");
    command.args(["-c", &script, "-", env!("CARGO_BIN_EXE_convforge")]);
    let output = command.args(&args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("study.json: cannot be written: "), "{said}");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("cpu_gemm"), "{shown}");
    assert!(!shown.contains("The results are in"), "{shown}");
    assert_eq!(rows_of(out.to_str().unwrap(), "overlap"), 0);
}

/// A process with so much memory finds too little for the buffers, for what the judge makes, or for
/// none of it, wherever it first runs out. It has two threads: on a machine with many cores their stacks alone would
/// be too much.
#[cfg(target_os = "linux")]
#[test]
fn a_batch_too_large_for_memory_is_said() {
    let problem = "mb64ic64ih112oc64oh112kh1";
    for kilobytes in (400_000..1_240_000).step_by(60_000) {
        let script = format!("ulimit -v {kilobytes}; exec \"$@\"");
        let args = [
            "profile",
            "cpu_gemm",
            "--device",
            "cpu",
            "--problem",
            problem,
        ];
        let mut command = Command::new("bash");
        command.args(["-c", &script, "-", env!("CARGO_BIN_EXE_convforge")]);
        command.args(args).env("RAYON_NUM_THREADS", "2");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{kilobytes}: {text}");
        assert!(text.contains("error: out of memory on the CPU: "), "{text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn results_go_through_links_and_pipes() {
    let folder = tempfile::tempdir().unwrap();
    let [link, file, pipe] = ["link", "file", "pipe"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink("file", &link).unwrap();
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read_to_string(pipe).unwrap()
    });
    let cpu = [
        "compare",
        "--device",
        "cpu",
        "--samples",
        "1",
        "--variant",
        "cpu_gemm",
    ];
    for out in [&link, &pipe] {
        let problems = [
            "--problem",
            "mb1ic3ih8oc4kh3",
            "--problem",
            "mb1ic3ih9oc4kh3",
        ];
        says(&[&cpu[..], &problems, &["--out", out.to_str().unwrap()]].concat());
    }
    assert!(link.is_symlink() && !pipe.metadata().unwrap().is_file());
    for text in [fs::read_to_string(file).unwrap(), reader.join().unwrap()] {
        let report: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn a_list_has_caveats() {
    let all: serde_json::Value = serde_json::from_str(&says(&["list", "--json"])).unwrap();
    let text = says(&["list"]);
    let (_, caveats) = text.split_once("Caveats:").unwrap_or_default();
    let caveats = caveats.split("\n\n").next().unwrap_or_default();
    let told: BTreeSet<&str> = caveats
        .lines()
        .filter_map(|line| line.split_once(": "))
        .flat_map(|(names, _)| names.trim().split(", "))
        .collect();
    let all = all.as_array().unwrap();
    let with = all.iter().filter(|entry| entry["caveat"].is_string());
    let with: BTreeSet<&str> = with.filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!(told, with);
    // Whoever takes fp32 apart for tensor cores.
    let rows = all.iter().any(|entry| entry["kind"] == "kernel");
    let split = ["small_mma", "small_resident"];
    assert!(
        !rows || split.iter().all(|name| with.contains(name)),
        "{with:?}"
    );
}

/// A file with a header of big-endian numbers, as IDX has it, and some bytes behind it.
fn idx(folder: &Path, name: &str, header: &[u32], bytes: usize) -> PathBuf {
    let path = folder.join(name);
    let mut content: Vec<u8> = header.iter().flat_map(|n| n.to_be_bytes()).collect();
    content.resize(content.len() + bytes, 7);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn files_that_are_broken() {
    const IMAGES: u32 = 0x803;
    const LABELS: u32 = 0x801;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let images = idx(folder, "images", &[IMAGES, 3, 28, 28], 3 * 28 * 28);
    let labels = idx(folder, "labels", &[LABELS, 3], 3);
    let infer = |images: &Path, labels: &Path, more: &[&str], parts: &[&str]| {
        let (images, labels) = (images.to_str().unwrap(), labels.to_str().unwrap());
        let args = [
            "infer", "--device", "cpu", "--images", images, "--labels", labels,
        ];
        fails(&[&args[..], more].concat(), parts);
    };

    let truncated = idx(folder, "truncated", &[IMAGES, 3, 28, 28], 100);
    infer(&truncated, &labels, &[], &["truncated: "]);
    let header = idx(folder, "header", &[IMAGES], 0);
    infer(&header, &labels, &[], &["header: "]);
    let huge = idx(folder, "huge", &[IMAGES, u32::MAX, u32::MAX, u32::MAX], 9);
    infer(&huge, &labels, &[], &["huge: "]);
    let empty = idx(folder, "empty", &[], 0);
    infer(&empty, &labels, &[], &["empty: "]);
    infer(&labels, &labels, &[], &["labels: ", "images"]);
    infer(&images, &images, &[], &["images: ", "labels"]);
    infer(&folder.join("absent"), &labels, &[], &["absent: "]);
    infer(folder, &labels, &[], &["error: "]);
    let two = idx(folder, "two", &[LABELS, 2], 2);
    infer(
        &images,
        &two,
        &[],
        &["two: 2 labels, but there are 3 images"],
    );
    let many = ["--count", "4"];
    infer(&images, &labels, &many, &["--count 4", "only 3 images"]);
    infer(&images, &labels, &["--count", "0"], &["at least 1"]);

    let weights = folder.join("weights");
    for (content, part) in [
        (Vec::new(), "weights: "),
        (b"not weights at all".to_vec(), "weights: "),
        (vec![0xa5; 1000], "is neither safetensors"),
    ] {
        fs::write(&weights, content).unwrap();
        let path = weights.to_str().unwrap();
        infer(&images, &labels, &["--weights", path], &[part]);
    }
    let path = images.to_str().unwrap();
    infer(&images, &labels, &["--expect", path], &["images: "]);
    infer(&images, &labels, &["--variant", "cpu_gem"], &["`cpu_gem`"]);
}

#[test]
fn infer_needs_no_flags() {
    let text = says(&["infer", "--device", "cpu", "--count", "100", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    // As data/README.md has it.
    assert_eq!(found["correct"], 90, "{text}");
    fails(
        &["infer", "--device", "cpu", "--count", "10001"],
        &["only 10000 images", "--synthetic"],
    );
}

#[test]
fn infer_says_what_to_do_far_from_a_checkout() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("convforge");
    // By a process of its own. What this one writes is open, too, in programs that other tests begin at that
    // moment, and nobody runs what somebody has open to write.
    let mut copy = Command::new("cp");
    let copied = copy
        .arg(env!("CARGO_BIN_EXE_convforge"))
        .arg(&program)
        .status();
    assert!(copied.unwrap().success());
    let run = |more: &[&str]| {
        let mut command = Command::new(&program);
        command.args(["infer", "--device", "cpu", "--count", "1"]);
        command.args(more).current_dir(folder.path());
        command.output().unwrap()
    };
    let output = run(&[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in ["t10k-images-idx3-ubyte.gz", "--images", "--synthetic"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(run(&["--synthetic"]).status.success());
}

#[test]
fn a_fused_network_that_cannot_be() {
    let infer = |more: &[&str], parts: &[&str]| {
        let args = ["infer", "--device", "cpu", "--count", "1", "--fused"];
        fails(&[&args[..], more].concat(), parts);
    };
    #[cfg(feature = "cuda")]
    infer(&[], &["9.0 or newer", "the CPU"]);
    #[cfg(not(feature = "cuda"))]
    infer(&[], &["no CUDA"]);
    infer(&["--math", "tf32"], &["fp32", "--math tf32"]);
    infer(&["--runs", "0"], &["at least 1"]);
    infer(&["--variant", "rule"], &["--fused", "--variant"]);
}

#[test]
fn a_result_that_cannot_be_written_is_said_before_the_work() {
    let place = "no/such/folder/out.json";
    let quick = ["compare", "--device", "cpu", "--out", place];
    fails(
        &[&quick[..], &["--problem", "mb1ic3ih8oc4kh3"]].concat(),
        &[place],
    );
}

#[test]
fn a_report_of_files_that_are_no_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file.json");
    let path = path.to_str().unwrap();
    fails(&["report", path], &[path, "No such file"]);
    let profile = r#"{"device": "d", "driver": "1", "tool": "ncu 1", "csrc": "0", "date": "",
                      "rows": []}"#;
    for (content, part) in [
        ("not JSON", "is no JSON"),
        ("{}", "is neither a report"),
        (profile, "convforge page"),
    ] {
        fs::write(path, content).unwrap();
        fails(&["report", path], &[path, part]);
    }
}

/// The rows of variants side by side in the files of a folder of results, and the dates of the files that have
/// such.
fn committed_rows(folder: &Path) -> (usize, Vec<String>) {
    let (mut count, mut dates) = (0, Vec::new());
    for file in fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        if file.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let header: serde_json::Value = lines.next().unwrap();
        // Not the counters of a profiler.
        let Some(environment) = header.get("environment") else {
            continue;
        };
        dates.push(environment["date"].as_str().unwrap().to_owned());
        let mut counts = false;
        for line in lines {
            match line.get("section") {
                Some(section) => counts = section == "rows" || section == "layers",
                None => count += usize::from(counts && line.get("of").is_none()),
            }
        }
    }
    (count, dates)
}

#[test]
fn every_committed_row_is_printed_whole() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let results = Path::new(root).join("benches/results");
    let (beside, _) = committed_rows(&results);
    let (alone, dates_alone) = committed_rows(&results.join("rows"));
    assert!(beside > 1000 && alone > 100, "{beside} and {alone}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command.args(["report", "--rows"]).current_dir(root);
    let text = String::from_utf8(output.output().unwrap().stdout).unwrap();
    assert_eq!(text.lines().count(), beside + alone);
    let mut printed_alone = 0;
    for line in text.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        if dates_alone.iter().any(|date| row["date"] == **date) {
            assert!(row["cudnn_us"].is_null(), "{line}");
            printed_alone += 1;
        }
        for field in [
            "suite",
            "layer",
            "problem",
            "math",
            "variant",
            "config",
            "status",
            "reason",
            "median_us",
            "p10_us",
            "p90_us",
            "samples",
            "floor_us",
            "workspace_bytes",
            "cudnn_us",
            "cudnn_plan",
            "csrc",
            "device",
            "date",
        ] {
            assert!(row.get(field).is_some(), "{field} is missing: {line}");
        }
        let timed = row["status"] == "passed";
        assert_eq!(row["median_us"].is_number(), timed, "{line}");
        assert_eq!(row["tflops"].is_number(), timed, "{line}");
    }
    assert_eq!(printed_alone, alone);
    // Elsewhere there are none.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command
        .args(["report", "--rows"])
        .current_dir(folder.path());
    let output = output.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("go to the root"),
        "{text}"
    );
}

#[test]
fn committed_rows_are_printed_where_none_ran_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("benches/results");
    fs::create_dir_all(&results).unwrap();
    let file = "h200-general-fp32.jsonl";
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/results");
    fs::copy(committed.join(file), results.join(file)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let output = command
        .args(["report", "--rows"])
        .current_dir(folder.path());
    let output = output.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let printed = String::from_utf8_lossy(&output.stdout).lines().count();
    assert_eq!(printed, committed_rows(&results).0);
}

#[test]
fn a_page_of_files_that_are_no_results() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let out = path("page.html");
    let page =
        |file: &str, out: &str, part: &str| fails(&["page", file, "--out", out], &[file, part]);
    page(&path("absent"), &out, "No such file");
    for (content, part) in [
        ("not JSON", "is no JSON"),
        ("{}", "is neither a report"),
        (r#"{"environment": {}, "rows": []}"#, "is a damaged report"),
    ] {
        fs::write(path("file.json"), content).unwrap();
        page(&path("file.json"), &out, part);
    }
    assert!(!Path::new(&out).exists());
    let results = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../benches/results/h200-fp32.jsonl"
    );
    fails(
        &["page", results, "--out", &path("no/page.html")],
        &["no/page.html"],
    );
    says(&["page", results, "--out", &out]);
    assert!(
        fs::read_to_string(&out)
            .unwrap()
            .starts_with("<!DOCTYPE html>")
    );
}

#[test]
fn what_is_recorded_is_not_measured_again() {
    let folder = tempfile::tempdir().unwrap();
    let (out, kept) = (folder.path().join("a.json"), folder.path().join("kept"));
    fs::create_dir(&kept).unwrap();
    let (out, kept) = (out.to_str().unwrap(), kept.to_str().unwrap());
    let problems = [
        "--problem",
        "mb1ic2ih9oc2oh7kh3",
        "--problem",
        "mb1ic3ih9oc2oh7kh3",
    ];
    let compare = |more: &[&str]| {
        let words = [
            "compare",
            "--device",
            "cpu",
            "--unless",
            kept,
            "--also",
            "cpu_direct",
        ];
        says(&[&words, &problems[..], more].concat())
    };
    assert!(compare(&["--plan"]).ends_with(" s for 2 problems, 0 are fresh\n"));
    let share = compare(&["--plan", "--shard", "2/2"]);
    assert!(
        share.contains(problems[3]) && !share.contains(problems[1]),
        "{share}"
    );
    // What is fresh is known of comparisons only.
    fails(&["sweep", "--plan"], &["unexpected argument '--plan'"]);
    fails(&["compare", "--plan", "--json"], &["cannot be used with"]);
    // The default ones, the rule, and what was asked for beside them.
    says(&[
        "compare",
        "--device",
        "cpu",
        "--fastest-configs",
        "--problem",
        problems[1],
        "--out",
        out,
    ]);
    let text = fs::read_to_string(out).unwrap();
    assert!(text.contains(r#""variant": "rule""#), "{text}");
    says(&["report", out, "--keep", kept]);
    let plan = compare(&["--plan"]);
    assert!(plan.ends_with(" s for 1 problems, 1 are fresh\n"), "{plan}");
    assert!(
        plan.contains(problems[3]) && !plan.contains(problems[1]),
        "{plan}"
    );
    let all = compare(&["--plan", "--again"]);
    assert!(all.ends_with(" s for 2 problems, 0 are fresh\n"), "{all}");
    fails(&["compare", "--again"], &["--unless <DIR>"]);
}

#[test]
fn who_is_killed_loses_one_problem() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a.json");
    let problems = [
        "mb1ic1ih3oc1kh1",
        "mb2ic1ih3oc1kh1",
        "mb64ic64ih56oc64oh56kh3ph1",
    ];
    let mut args = vec![
        "compare",
        "--device",
        "cpu",
        "--variant",
        "cpu_direct",
        "--resume",
    ];
    args.extend(["--out", out.to_str().unwrap()]);
    args.extend(problems.iter().flat_map(|problem| ["--problem", *problem]));
    let mut killed = Command::new(env!("CARGO_BIN_EXE_convforge"))
        .args(&args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let rows = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&out).unwrap_or_default();
        // Whenever it is looked at, the file is whole.
        let report: serde_json::Value = match &*text {
            "" => return Vec::new(),
            text => serde_json::from_str(text).unwrap(),
        };
        report["rows"].as_array().unwrap().clone()
    };
    let began = Instant::now();
    while rows().is_empty() && began.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(1));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let first = rows();
    assert!(!first.is_empty());
    let said = says(&args);
    assert_eq!(said.matches("already there").count(), first.len(), "{said}");
    let all = rows();
    assert_eq!(all.len(), problems.len());
    let mut same = first.iter().zip(&all);
    assert!(same.all(|(old, new)| old["problem"] == new["problem"]));
}

#[test]
fn a_chip_that_is_not_here_is_planned_for() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/results");
    let problem = "mb16ic3ih224oc64oh224kh3ph1";
    let asked = ["compare", "--problem", problem, "--as", "h200"];
    let plan = |more: &[&str]| says(&[&asked[..], &["--plan", "--unless", results], more].concat());
    let text = plan(&[]);
    assert!(text.contains(" s for 1 problems, 0 are fresh"), "{text}");
    if cfg!(feature = "cudnn") {
        let full = "cuDNN is searched in full";
        assert_eq!(text.matches(full).count(), 2, "{text}");
        let known = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../benches/cudnn-plans.jsonl"
        );
        let text = plan(&["--cudnn-known", known]);
        assert!(!text.contains(full), "{text}");
    }
    fails(&asked, &["--plan"]);
    fails(
        &[
            &asked[..],
            &["--plan", "--unless", results, "--out", "a.json"],
        ]
        .concat(),
        &["cannot be used with", "--out"],
    );
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    fails(
        &[&asked[..], &["--plan", "--unless", empty]].concat(),
        &["no folder that --unless names has a report of the chip `h200`"],
    );
}

#[cfg(feature = "cudnn")]
#[test]
fn searches_are_kept_in_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (plans, file, again) = (path("plans"), path("plans.jsonl"), path("again.jsonl"));
    fs::create_dir(&plans).unwrap();
    let search = r#"{"key": "a on b", "exact": {"choice": "engine 1 k2=3", "us": 5.0},
        "plans": 60, "report": "60 plans found; more", "trials": [
            {"plan": "engine 1 k2=3", "fate": "final", "us": 5.0},
            {"plan": "engine 2", "fate": "timed", "us": 6.0}
        ]}"#;
    fs::write(path("plans/a.json"), search).unwrap();
    let cut_short = search.replace("60,", r#"60, "incomplete": "why","#);
    fs::write(path("plans/b.json"), cut_short).unwrap();
    let said = says(&["searches", &plans, "--keep", &file]);
    assert!(
        said.contains("1 searches, 1 of them added or replaced; 1 left out"),
        "{said}"
    );
    let line = concat!(
        r#"{"key":"a on b","exact":{"choice":"engine 1 k2=3","us":5.0},"plans":60,"#,
        r#""trials":[{"plan":"engine 1 k2=3","fate":"final","us":5.0}],"report":"60 plans found"}"#,
        "\n"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), line);
    // From one file into another.
    says(&["searches", &file, "--keep", &again]);
    assert_eq!(fs::read_to_string(&again).unwrap(), line);
    fails(
        &["searches", &path("absent"), "--keep", &file],
        &["absent", "No such file"],
    );
    fs::write(path("plans/c.json"), "{}").unwrap();
    fails(
        &["searches", &plans, "--keep", &file],
        &["c.json", "is no search of cuDNN's plans"],
    );
    fs::write(&again, "nothing").unwrap();
    fails(
        &["compare", "--cudnn-known", &again],
        &["again.jsonl", "line 1 is no search of cuDNN's plans"],
    );
}

#[test]
fn tuning_goes_on_where_it_was_and_moves_between_stores() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, other, file) = (path("store"), path("other"), path("results.txt"));
    let tune = |problems: &[&str]| {
        let args = [
            "tune",
            "--device",
            "cpu",
            "--samples",
            "5",
            "--store",
            &store,
        ];
        says(&[&args[..], problems].concat())
    };
    let [one, two] = ["mb1ic3ih8oc4oh6kh3", "mb2ic3ih8oc4oh6kh3"];
    let text = tune(&["--problem", one]);
    assert!(text.contains(one) && text.contains("2 measured"), "{text}");
    let text = tune(&["--problem", one, "--problem", two, "--json"]);
    let run: serde_json::Value = serde_json::from_str(&text).unwrap();
    let counts = |i: usize| {
        let told = &run["problems"][i];
        (
            told["measured"].as_u64().unwrap(),
            told["known"].as_u64().unwrap(),
        )
    };
    assert_eq!((counts(0), counts(1)), ((0, 2), (2, 0)));
    assert!(run["problems"][1]["us"].as_f64().unwrap() > 0.0);
    let picked = format!("tuned:{store}");
    let args = [
        "compare",
        "--device",
        "cpu",
        "--problem",
        one,
        "--samples",
        "1",
    ];
    let text = says(&[&args[..], &["--variant", &picked]].concat());
    assert!(text.contains("1 passed"), "{text}");

    let text = says(&["tune", "export", &file, "--store", &store]);
    assert!(text.ends_with("results.txt: 2.\n"), "{text}");
    let mut text = fs::read_to_string(&file).unwrap();
    text += "what is no result\n";
    fs::write(&file, text).unwrap();
    let text = says(&["tune", "import", &file, "--store", &other]);
    assert!(
        text.contains("results.txt: 2.") && text.contains("line 15: "),
        "{text}"
    );
    fails(&["tune", "--device", "cpu"], &["nothing to tune"]);
    let export = ["tune", "export", &file, "--store", &path("none")];
    fails(&export, &["no results in", "none"]);
    // A plain file is a folder that nothing can be written to, for root as well.
    let unkept = ["--problem", one, "--store", &file];
    let mut command = Command::new(env!("CARGO_BIN_EXE_convforge"));
    let args = ["tune", "--device", "cpu", "--samples", "5"];
    let output = command.args(args).args(unkept).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        !output.status.success() && text.contains("--store"),
        "{text}"
    );
    fails(
        &["tune", "import", &path("none")],
        &["none: cannot be read"],
    );
}
