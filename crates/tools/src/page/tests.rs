//! The whole page, of results that were made up for it.

use convforge::{Device, Problem};

use super::*;
use crate::{
    measure::{Environment, Report, Row, Spread, View},
    study::{
        Counters, HostMemory, LayerTimes, NetworkRow, OverlapRow, Profile, ProfileRow, Span, Study,
        Work,
    },
};

const L1: &str = "mb1000ic1ih86oc4oh80kh7";

fn environment(date: &str) -> Environment {
    let mut environment = Environment::of(&Device::cpu(), Vec::new());
    environment.date = date.to_owned();
    environment.gpu = Some(environment.device.clone());
    environment.ceilings = serde_json::from_str(
        r#"{"read": 4e12, "write": 4e12, "copy": 4e12, "fp32": 6e13, "tf32": null, "f16": null,
            "bf16": null, "f16acc": null}"#,
    )
    .unwrap();
    environment
}

fn row(variant: &str, us: Option<f64>) -> Row {
    let (status, reason) = match us {
        Some(_) => ("\"passed\"", "null"),
        None => ("\"unsupported\"", "\"a < b\""),
    };
    let us = us.map_or("null".to_owned(), |us| us.to_string());
    let text = format!(
        r#"{{"suite": "report-86", "layer": "l1", "problem": "{L1}", "math": "fp32",
            "variant": "{variant}", "config": null, "status": {status}, "reason": {reason},
            "median_us": {us}, "p10_us": {us}, "p90_us": {us}, "samples": 30, "how": "graph",
            "cold": true, "stages": [], "floor_us": 40.0, "tflops": 1.0, "gbs": 10.0,
            "workspace_bytes": 0, "pack_us": null, "plan": null, "cudnn_variant": null,
            "cudnn_us": null, "cudnn_plan": null, "speedup_vs_cudnn": null}}"#
    );
    serde_json::from_str(&text).unwrap()
}

fn report(date: &str, rows: Vec<Row>) -> Source {
    let mut report = Report::new(environment(date), View::Compare);
    report.rows = rows;
    Source::Report(report)
}

fn spread(us: f64) -> Spread {
    Spread::of(&[us]).unwrap()
}

fn study() -> Source {
    let problem: Problem = L1.parse().unwrap();
    let mut study = Study::new(environment("2026-01-02"));
    let layer = |us: f64| LayerTimes {
        problem: problem.clone(),
        chose: "direct_naive".to_owned(),
        op: spread(us),
        stages: Vec::new(),
        layer: spread(us * 3.0),
    };
    let network = |variant: &str, us: f64| NetworkRow {
        variant: variant.to_owned(),
        math: "fp32".to_owned(),
        images: 1000,
        status: crate::measure::Status::Passed,
        reason: None,
        layers: vec![layer(us), layer(us)],
        total: Some(spread(us * 4.0)),
        accuracy: Some(0.8714),
        logit_deviation: None,
        runs: 5,
    };
    study.network = vec![network("direct_naive", 400.0), network("small_fma", 100.0)];
    let overlap = |streams: usize, us: f64| OverlapRow {
        suite: "report-86".to_owned(),
        layer: "l1".to_owned(),
        problem: problem.clone(),
        variant: "small_fma".to_owned(),
        chose: None,
        streams,
        chunk: 1000 / streams,
        memory: HostMemory::Pinned,
        status: crate::measure::Status::Passed,
        reason: None,
        time: Some(spread(us)),
        runs: 5,
        copy_in_us: Some(600.0),
        copy_out_us: Some(2000.0),
        kernel_us: Some(70.0),
        timeline: vec![Span::new(0, 0, Work::In, [0.0, 600.0])],
    };
    study.overlap = vec![overlap(1, 3000.0), overlap(4, 2100.0)];
    Source::Study(study)
}

fn profile() -> Source {
    let row = |variant: &str, us: f64| ProfileRow {
        variant: variant.to_owned(),
        problem: L1.parse().unwrap(),
        kernel: "kernel".to_owned(),
        launches: 1,
        counters: Counters {
            duration_us: Some(us),
            fma_pct: Some(77.0),
            dram_read_bytes: Some(1e8),
            dram_write_bytes: Some(1e8),
            ..Counters::default()
        },
        hot_lines: Default::default(),
        divergent_lines: Default::default(),
    };
    Source::Profile(Profile {
        device: "NVIDIA H200".to_owned(),
        driver: "1".to_owned(),
        tool: "ncu 1".to_owned(),
        csrc: "0".to_owned(),
        date: "2026-01-03".to_owned(),
        rows: vec![row("direct_naive", 400.0), row("direct_constant", 200.0)],
    })
}

#[test]
fn every_section_has_its_numbers() {
    let rows = vec![
        row("direct_naive", Some(400.0)),
        row("direct_constant", Some(200.0)),
        row("cudnn", Some(300.0)),
        row("gemv_warp", None),
    ];
    let sources = [report("2026-01-01", rows), study(), profile()];
    let text = page(&sources).unwrap();
    for part in [
        // The answer, the step, the reason, the speed-up of the network, the overlap, the bound.
        "1.50 to 1.50 times the speed of cuDNN and takes 5.00 to 5.00 times the floor",
        "1 of 1 steps are faster, most of all direct_constant over direct_naive (filter in constant \
         memory and more, 2.00 times).",
        "filter in constant memory; also addresses of weights in 32 bits",
        "2026-01-01, <code>",
        "unsupported: a &lt; b",
        "data-value=\"4\">4.00<",
        "data-value=\"95.2381\">95.2 %<",
        "Bound by the FMA units, at 77\u{a0}% of the peak",
        "bytes counted in device memory (2 of 3 variants)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.contains("No report of sweep was given."));
    assert_eq!(text.matches("class=\"missing\"").count(), 2);
}

#[test]
fn nothing_is_faster_than_a_search_that_was_cut_short() {
    let text = |search: &str| {
        let cudnn = Row {
            cudnn_search: Some(search.to_owned()),
            ..row("cudnn", Some(300.0))
        };
        let rows = vec![row("direct_constant", Some(200.0)), cudnn];
        page(&[report("2026-01-01", rows)]).unwrap()
    };
    for claim in ["times the speed of cuDNN", "1.50 × cuDNN's speed"] {
        assert!(text("complete").contains(claim), "{claim}");
        assert!(!text("40 plans left out").contains(claim), "{claim}");
    }
}

#[test]
fn without_results_every_section_says_so() {
    let text = page(&[]).unwrap();
    assert_eq!(text.matches("class=\"missing\"").count(), 8, "{text}");
}

#[test]
fn a_later_run_takes_the_place_of_an_earlier_one_whatever_their_order() {
    let old = || report("2026-01-01", vec![row("direct_naive", Some(777.0))]);
    let new = || report("2026-01-02", vec![row("direct_naive", Some(400.0))]);
    let text = page(&[old(), new()]).unwrap();
    assert_eq!(text, page(&[new(), old()]).unwrap());
    assert!(
        text.contains("400 us") && !text.contains("777 us"),
        "{text}"
    );
}

#[test]
fn a_sweep_is_a_curve_over_the_number_that_most_configurations_have() {
    let config = |config: &str, us| Row {
        config: Some(config.to_owned()),
        ..row("fused_shared", Some(us))
    };
    let circles = |rows: Vec<Row>| {
        let mut report = Report::new(environment("2026-01-01"), View::Sweep);
        report.rows = rows;
        let text = page(&[Source::Report(report)]).unwrap();
        text.matches("<circle").count()
    };
    let mut rows = vec![
        config("chunk=1", 9.0),
        config("tile=16", 3.0),
        config("tile=4", 4.0),
        config("tile=8", 2.0),
    ];
    assert_eq!(circles(rows.clone()), 3);
    // Two numbers make no curve.
    rows.truncate(3);
    assert_eq!(circles(rows), 0);
}
