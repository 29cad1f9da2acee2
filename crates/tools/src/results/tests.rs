//! The compact form, and what is dropped of it.

use convforge::Device;

use super::*;
use crate::{
    files::write_whole,
    measure::{Environment, Format, Load, Report, Row, Stage, Status, View},
    study::Study,
};

const PROBLEM: &str = "mb10ic1ih86oc4oh80kh7";

fn row(variant: &str, us: Option<f64>) -> Row {
    let text = format!(
        r#"{{"suite": "report-86", "layer": "l1", "problem": "{PROBLEM}", "math": "fp32",
            "variant": "{variant}", "config": null, "status": "passed", "reason": null,
            "median_us": null, "p10_us": null, "p90_us": null, "samples": 30, "how": "graph",
            "cold": true, "stages": [], "floor_us": 40.0, "tflops": null, "gbs": null,
            "workspace_bytes": 0, "pack_us": null, "plan": null, "cudnn_variant": null,
            "cudnn_us": null, "cudnn_plan": null, "speedup_vs_cudnn": null}}"#
    );
    let row: Row = serde_json::from_str(&text).unwrap();
    match us {
        Some(_) => Row {
            median_us: us,
            ..row
        },
        None => Row {
            status: Status::Skipped,
            reason: Some("out of memory".to_owned()),
            ..row
        },
    }
}

fn cudnn(us: f64) -> Row {
    Row {
        plan: Some(format!("engine {us}, cuDNN 9, and how it was found")),
        ..row("cudnn", Some(us))
    }
}

/// As it was measured: with rates, and cuDNN beside each row.
fn report(date: &str, mut rows: Vec<Row>) -> Report {
    lines::restore(&mut rows);
    let mut report = Report::new(Environment::of(&Device::cpu(), Vec::new()), View::Compare);
    report.environment.date = date.to_owned();
    report.rows = rows;
    report
}

fn text(report: &Report) -> String {
    lines::text(&Source::Report(report.clone())).unwrap()
}

/// A folder with reports, each under its date.
fn folder(reports: &[Report]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for report in reports {
        let name = format!("{}.jsonl", report.environment.date);
        std::fs::write(folder.path().join(name), text(report)).unwrap();
    }
    folder
}

/// The names of the rows that a file of such a folder still has, after pruning.
fn left(folder: &tempfile::TempDir, date: &str) -> Vec<String> {
    let mut kept = Kept::read(folder.path()).unwrap();
    kept.prune();
    kept.write().unwrap();
    match Source::read(&folder.path().join(format!("{date}.jsonl"))) {
        Ok(source) => source.rows().map(|full| full.row.name()).collect(),
        Err(_) => Vec::new(),
    }
}

#[test]
fn what_is_kept_is_read_as_it_was() {
    let mut other = row("b", Some(3.5));
    other.problem = format!("{PROBLEM}+f16").parse().unwrap();
    (other.math, other.config) = ("f16".to_owned(), Some("tile=8".to_owned()));
    let report = report(
        "1",
        vec![row("a", Some(20.0)), cudnn(10.0), row("c", None), other],
    );
    assert_eq!(report.rows[0].speedup_vs_cudnn, Some(0.5));
    let folder = folder(std::slice::from_ref(&report));
    let read = Source::read(&folder.path().join("1.jsonl")).unwrap();
    let full: Vec<FullRow> = read.rows().collect();
    assert_eq!(
        (full[0].date, full[0].device),
        ("1", &*report.environment.device)
    );
    assert_eq!(read, Source::Report(report));

    let study = Study::new(Environment::of(&Device::cpu(), Vec::new()));
    let path = folder.path().join("study.jsonl");
    std::fs::write(&path, lines::text(&Source::Study(study.clone())).unwrap()).unwrap();
    assert_eq!(Source::read(&path).unwrap(), Source::Study(study));
}

#[test]
fn what_a_gpu_ran_at_stays_when_a_report_is_kept_again() {
    let clocked = |us, sm_mhz| Row {
        sm_mhz: Some(sm_mhz),
        ..row("a", Some(us))
    };
    let mut first = report("1", vec![clocked(1.0, 1863.4), clocked(2.0, 1979.6)]);
    first.environment.load = Some(Load {
        least_sm_mhz: 1900.0,
        most_sm_mhz: 1950.0,
        memory_mhz: 3201.0,
        celsius: 66.0,
        watts: 553.0,
    });
    let once = text(&first);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.jsonl");
    std::fs::write(&path, &once).unwrap();
    let source = Source::read(&path).unwrap();
    assert_eq!(lines::text(&source).unwrap(), once);
    let load = source.environment().unwrap().load.unwrap();
    assert_eq!((load.least_sm_mhz, load.most_sm_mhz), (1863.0, 1980.0));
    assert_eq!(
        (load.memory_mhz, load.celsius, load.watts),
        (3201.0, 66.0, 553.0)
    );
}

#[test]
fn a_run_that_is_continued_ran_at_what_both_parts_did() {
    let load = |sm_mhz, watts| Load {
        least_sm_mhz: sm_mhz,
        most_sm_mhz: sm_mhz,
        memory_mhz: 3201.0,
        celsius: 66.0,
        watts,
    };
    let mut first = report("1", vec![row("a", Some(1.0))]);
    first.environment.load = Some(load(1800.0, 500.0));
    let folder = folder(&[first]);
    let mut kept = Kept::read(folder.path()).unwrap();
    let mut second = report("1", vec![row("b", Some(1.0))]);
    second.environment.load = Some(load(1900.0, 400.0));
    let path = folder.path().join("1.json");
    std::fs::write(&path, second.text(Format::Json)).unwrap();
    kept.add(&path).unwrap();
    kept.write().unwrap();
    let source = Source::read(&folder.path().join("1.jsonl")).unwrap();
    let both = source.environment().unwrap().load.unwrap();
    assert_eq!(
        (both.least_sm_mhz, both.most_sm_mhz, both.watts),
        (1800.0, 1900.0, 500.0)
    );
}

#[test]
fn how_far_cudnn_was_searched_is_kept_once() {
    let cut = "40 plans left out (no time left to run them)";
    let searched = Row {
        cudnn_search: Some(cut.to_owned()),
        cudnn_any_us: Some(7.0),
        cudnn_any_plan: Some("engine 7".to_owned()),
        cudnn_any_why: Some("coarse".to_owned()),
        ..cudnn(10.0)
    };
    let report = report("1", vec![row("a", Some(20.0)), searched]);
    let first = &report.rows[0];
    assert_eq!(first.cudnn_search.as_deref(), Some(cut));
    assert_eq!((first.cudnn_us, first.speedup_vs_cudnn), (Some(10.0), None));
    assert_eq!(text(&report).matches(cut).count(), 1);
    let folder = folder(std::slice::from_ref(&report));
    let read = Source::read(&folder.path().join("1.jsonl")).unwrap();
    assert_eq!(read, Source::Report(report));
}

#[test]
fn chunks_of_a_stage_are_added_up() {
    let stage = |us| Stage {
        name: "gemm".to_owned(),
        us,
    };
    let row = Row {
        stages: vec![stage(1.5), stage(2.25)],
        ..row("a", Some(5.0))
    };
    let folder = folder(&[report("1", vec![row])]);
    let read = Source::read(&folder.path().join("1.jsonl")).unwrap();
    assert_eq!(read.rows().next().unwrap().row.stages, [stage(3.75)]);
}

#[test]
fn a_row_that_is_measured_again_changes_one_line() {
    let rows = |us| vec![row("a", Some(1.0)), cudnn(us), row("b", Some(2.0))];
    let (old, new) = (
        text(&report("1", rows(10.0))),
        text(&report("1", rows(11.0))),
    );
    let pairs = old.lines().zip(new.lines());
    assert_eq!(pairs.filter(|(old, new)| old != new).count(), 1);
    assert_eq!(old.lines().count(), new.lines().count());
}

#[test]
fn a_later_row_of_the_same_work_supersedes() {
    let old = report(
        "1",
        vec![row("a", Some(20.0)), row("b", Some(30.0)), cudnn(10.0)],
    );
    let new = report("2", vec![cudnn(8.0), row("a", None), row("b", Some(31.0))]);
    let folder = folder(&[old, new]);
    // Skipped is not measured.
    assert_eq!(left(&folder, "1"), ["a"]);
    assert_eq!(left(&folder, "2"), ["cudnn", "a", "b"]);
    // It still stands beside what it was compared with.
    let source = Source::read(&folder.path().join("1.jsonl")).unwrap();
    let first = source.rows().next().unwrap().row;
    assert_eq!(
        (first.cudnn_us, first.speedup_vs_cudnn),
        (Some(10.0), Some(0.5))
    );
    assert_eq!(first.cudnn_plan.as_deref(), Some("engine 10"));
}

#[test]
fn a_row_knows_what_it_took_before() {
    let reports = [("1", 20.0), ("2", 25.0), ("3", 24.0)];
    let reports = reports.map(|(date, us)| report(date, vec![row("a", Some(us))]));
    let folder = folder(&reports);
    let before = |folder: &tempfile::TempDir| {
        assert_eq!(left(folder, "3"), ["a"]);
        let source = Source::read(&folder.path().join("3.jsonl")).unwrap();
        source.rows().next().unwrap().row.before_us
    };
    assert_eq!(before(&folder), Some(25.0));
    // That stays, however often files are kept again, and where the run goes on.
    assert_eq!(before(&folder), Some(25.0));
    let raw = tempfile::tempdir().unwrap();
    let path = raw.path().join("3.json");
    write_whole(&path, reports[2].text(crate::measure::Format::Json)).unwrap();
    let mut kept = Kept::read(folder.path()).unwrap();
    kept.add(&path).unwrap();
    kept.write().unwrap();
    assert_eq!(before(&folder), Some(25.0));
}

/// A configuration that a comparison found.
fn found(variant: &str, config: &str, us: f64) -> Row {
    Row {
        config: Some(config.to_owned()),
        found: true,
        ..row(variant, Some(us))
    }
}

/// A default of which other configurations were tried.
fn tried(variant: &str, us: f64) -> Row {
    Row {
        tried: Some(8),
        ..row(variant, Some(us))
    }
}

#[test]
fn what_a_comparison_found_gives_way_to_what_the_next_one_finds() {
    let old = report("1", vec![tried("a", 20.0), found("a", "plan=3", 18.0)]);
    let new = |rows| folder(&[old.clone(), report("2", rows)]);
    let folder = new(vec![tried("a", 20.0), found("a", "plan=5", 17.0)]);
    assert_eq!(left(&folder, "1"), [""; 0]);
    // Whether it finds another one or none.
    assert_eq!(left(&new(vec![tried("a", 20.0)]), "1"), [""; 0]);
    // One that has tried none has decided nothing.
    assert_eq!(left(&new(vec![row("a", Some(20.0))]), "1"), ["a:plan=3"]);

    // In one report as well; what was asked for by its name stays.
    let named = Row {
        found: false,
        ..found("b", "plan=2", 9.0)
    };
    let first = vec![found("a", "plan=3", 18.0), found("b", "plan=3", 8.0), named];
    let mut report = report("3", first);
    let names = |report: &Report| report.rows.iter().map(Row::name).collect::<Vec<_>>();
    report.put(&[
        tried("a", 20.0),
        tried("b", 20.0),
        found("b", "plan=4", 7.0),
    ]);
    assert_eq!(names(&report), ["b:plan=2", "a", "b", "b:plan=4"]);
    // An interrupted one has decided nothing.
    let interrupted = Row {
        reason: Some(crate::Error::from(convforge::Error::Interrupted).to_string()),
        ..tried("b", 20.0)
    };
    report.put(&[interrupted]);
    assert_eq!(names(&report), ["b:plan=2", "a", "b", "b:plan=4"]);
}

#[test]
fn what_a_variant_cannot_do_is_not_kept() {
    let unsupported = |variant| Row {
        status: Status::Unsupported,
        reason: Some("no".to_owned()),
        ..row(variant, None)
    };
    let rows = vec![
        row("a", Some(1.0)),
        unsupported("b"),
        unsupported("cudnn_transform"),
    ];
    let raw = tempfile::tempdir().unwrap();
    let path = raw.path().join("1.json");
    write_whole(&path, report("1", rows).text(crate::measure::Format::Json)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::read(folder.path()).unwrap();
    kept.add(&path).unwrap();
    kept.write().unwrap();
    assert_eq!(left(&folder, "1"), ["a", "cudnn_transform"]);
}

#[test]
fn a_problem_that_was_interrupted_is_left_out_whole() {
    let of = |layer: &str, row: Row| Row {
        layer: layer.to_owned(),
        ..row
    };
    let interrupted = Row {
        reason: Some(crate::Error::from(convforge::Error::Interrupted).to_string()),
        ..row("b", None)
    };
    let rows = vec![
        of("whole", row("a", Some(1.0))),
        of("whole", row("c", None)),
        of("part", row("a", Some(1.0))),
        of("part", interrupted),
    ];
    let raw = tempfile::tempdir().unwrap();
    let path = raw.path().join("1.json");
    let mut report = report("1", rows);
    write_whole(&path, report.text(crate::measure::Format::Json)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut kept = Kept::read(folder.path()).unwrap();
    kept.add(&path).unwrap();
    assert_eq!(kept.interrupted(), 1);
    kept.write().unwrap();
    assert_eq!(left(&folder, "1"), ["a", "c"]);
    // What sweeps measure stands by itself.
    report.view = View::Sweep;
    let path = raw.path().join("2.json");
    write_whole(&path, report.text(crate::measure::Format::Json)).unwrap();
    kept.add(&path).unwrap();
    kept.write().unwrap();
    assert_eq!(left(&folder, "2"), ["a", "c", "a", "b"]);
}

#[test]
fn what_is_measured_otherwise_supersedes_nothing() {
    let old = report("1", vec![row("a", Some(20.0))]);
    let warm = Row {
        cold: false,
        ..row("a", Some(20.0))
    };
    let mut sweep = report("3", vec![row("a", Some(20.0))]);
    sweep.view = View::Sweep;
    let mut elsewhere = report("4", vec![row("a", Some(20.0))]);
    elsewhere.environment.device = "another".to_owned();
    let folder = folder(&[old, report("2", vec![warm]), sweep, elsewhere]);
    assert_eq!(left(&folder, "1"), ["a"]);
    std::fs::write(
        folder.path().join("5.jsonl"),
        text(&report("5", vec![row("a", Some(20.0))])),
    )
    .unwrap();
    // Nothing is left of it, and its file goes.
    assert_eq!(left(&folder, "1"), [""; 0]);
    assert!(!folder.path().join("1.jsonl").exists());
}

#[test]
fn a_name_belongs_to_one_run() {
    let folder = folder(&[report("1", vec![row("a", Some(20.0))])]);
    let raw = tempfile::tempdir().unwrap();
    let path = raw.path().join("1.json");
    let add = |report: &Report| {
        write_whole(&path, report.text(crate::measure::Format::Json)).unwrap();
        let mut kept = Kept::read(folder.path()).unwrap();
        kept.add(&path).map(|()| kept.count())
    };
    // It went on.
    let mut report = report("2", vec![row("a", Some(20.0)), row("b", Some(2.0))]);
    assert_eq!(add(&report).unwrap(), (2, 1));
    report.environment.csrc = "0".to_owned();
    let why = add(&report).unwrap_err().to_string();
    assert!(
        why.contains("of another hash of csrc; give the file another name"),
        "{why}"
    );
}

#[test]
fn files_are_told_apart_by_their_content() {
    let environment = Environment::of(&Device::cpu(), Vec::new());
    let report = Report::new(environment.clone(), View::Sweep);
    let study = Study::new(environment);
    let profile = r#"{"device": "d", "driver": "1", "tool": "ncu 1", "csrc": "0", "date": "",
                      "rows": []}"#;
    let study_text = serde_json::to_string(&study).unwrap();
    assert_eq!(Source::parse(&study_text), Ok(Source::Study(study)));
    let read = Source::parse(&report.text(crate::measure::Format::Json));
    assert_eq!(read, Ok(Source::Report(report)));
    assert!(matches!(Source::parse(profile), Ok(Source::Profile(_))));
}

#[test]
fn what_is_none_of_them_is_said() {
    for (text, part) in [
        ("{", "is no JSON"),
        ("[]", "is neither a report"),
        (r#"{"tool": 1, "rows": []}"#, "is a damaged profile"),
        (r#"{"environment": 1, "rows": []}"#, "is a damaged report"),
    ] {
        let why = Source::parse(text).unwrap_err();
        assert!(why.contains(part), "{text}: {why}");
    }
    let why = lines::parse("{}\n{\"variant\": \"a\"}\n").unwrap_err();
    assert_eq!(why, "line 2: is a row before the line of its list");
    assert!(
        lines::parse("{}\n[]\n")
            .unwrap_err()
            .starts_with("line 2: is no JSON object")
    );
}
