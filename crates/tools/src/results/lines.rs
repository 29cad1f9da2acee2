//! The compact form: JSON lines.
//!
//! The first line is the file's object without its rows: where and when, and notes. Each list of rows
//! follows. It begins with a line that has its name and what its rows usually say, by their status.
//! Before the rows of a problem is a line of what they have in common, `of`. Then each row has a line
//! with all that is neither usual nor common, so that a row that is measured again changes one line.
//!
//! What follows from the rest is left out: rates, and cuDNN beside a row. A row's stages of one name
//! are added up. Stages, packing and timelines are kept to the nanosecond, and of what the GPU ran at
//! the least and the most. All other numbers stay as they were measured.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::source::Source;
use crate::measure::{Row, Stage, beside_cudnn};

/// How the names of such files end.
pub const EXTENSION: &str = "jsonl";

/// The lists of rows that files have.
const SECTIONS: [&str; 5] = ["rows", "layers", "network", "overlap", "errors"];

/// What tells problems apart.
const PROBLEM: [&str; 4] = ["suite", "layer", "problem", "cold"];

/// What the rows of a problem have in common.
const COMMON: [&str; 10] = [
    "suite",
    "layer",
    "problem",
    "cold",
    "math",
    "seed",
    "floor_us",
    "cudnn_variant",
    "cudnn_us",
    "cudnn_plan",
];

/// The status of a row that does not say it.
const PASSED: &str = "passed";

type Object = Map<String, Value>;

/// What rows of a status usually say, those of all lists together. Of a status that is not here it is
/// what those say that passed.
fn usual() -> Value {
    json!({
        PASSED: {
            "math": "fp32", "config": null, "chose": null, "arithmetic": "exact", "status": PASSED,
            "reason": null, "samples": 30, "how": "graph", "cold": true, "stages": [], "tflops": null,
            "gbs": null, "workspace_bytes": 0, "pack_us": null, "plan": null, "cudnn_variant": null,
            "cudnn_us": null, "cudnn_plan": null, "speedup_vs_cudnn": null, "seed": 1,
            "accuracy": null, "logit_deviation": null, "hot_lines": {}, "divergent_lines": {},
        },
        "unsupported": {
            "math": "fp32", "config": null, "chose": null, "arithmetic": "exact", "median_us": null,
            "p10_us": null, "p90_us": null, "samples": 0, "how": null, "cold": true, "stages": [],
            "tflops": null, "gbs": null, "workspace_bytes": null, "pack_us": null, "plan": null,
            "cudnn_variant": null, "cudnn_us": null, "cudnn_plan": null, "speedup_vs_cudnn": null,
            "seed": 1, "data": [],
        },
    })
}

/// What is usual of a row of this status.
fn usual_of<'a>(usual: &'a Value, row: &Object) -> Option<&'a Object> {
    let status = row.get("status").and_then(Value::as_str).unwrap_or(PASSED);
    usual.get(status).or(usual.get(PASSED))?.as_object()
}

/// A file's text.
pub fn text(source: &Source) -> serde_json::Result<String> {
    let mut source = source.clone();
    if let Source::Report(report) = &mut source
        && let Some(load) = report.load()
    {
        report.environment.load = Some(load);
    }
    if let Some(rows) = source.rows_mut() {
        strip(rows);
    }
    if let Source::Study(study) = &mut source {
        for span in study.overlap.iter_mut().flat_map(|row| &mut row.timeline) {
            span.begin_us = to_ns(span.begin_us);
            span.end_us = to_ns(span.end_us);
        }
    }
    let mut header = match &source {
        Source::Report(report) => serde_json::to_value(report),
        Source::Study(study) => serde_json::to_value(study),
        Source::Profile(profile) => serde_json::to_value(profile),
    }?;
    let mut sections = Vec::new();
    if let Some(header) = header.as_object_mut() {
        header.remove("clocks");
        let list = |name: &str| Some((name.to_owned(), header.remove(name)?));
        sections.extend(SECTIONS.into_iter().filter_map(list));
    }
    let mut lines = vec![header];
    for (name, rows) in sections {
        if let Value::Array(rows) = rows {
            lines.extend(section(&name, rows));
        }
    }
    Ok(lines.iter().map(|line| format!("{line}\n")).collect())
}

/// The lines of a list of rows.
fn section(name: &str, rows: Vec<Value>) -> Vec<Value> {
    let mut usual = usual();
    let has = |key: &str| rows.iter().any(|row| row.get(key).is_some());
    for of_status in usual.as_object_mut().into_iter().flat_map(Map::values_mut) {
        let of_status = of_status.as_object_mut().into_iter();
        of_status.for_each(|values| values.retain(|key, _| has(key)));
    }
    let mut lines = vec![json!({ "section": name, "usual": usual })];
    let mut problem = Object::new();
    let mut common = Object::new();
    for row in rows {
        let Value::Object(mut row) = row else {
            continue;
        };
        let usual = usual_of(&usual, &row);
        let is_usual = |key: &str, value: &Value| usual.and_then(|of| of.get(key)) == Some(value);
        if row.contains_key("problem") && only(&row, &PROBLEM) != problem {
            problem = only(&row, &PROBLEM);
            common = only(&row, &COMMON);
            common.retain(|key, value| !is_usual(key, value));
            lines.push(json!({ "of": common }));
        }
        row.retain(|key, value| match common.get(key) {
            Some(same) => same != value,
            None => !is_usual(key, value),
        });
        lines.push(row.into());
    }
    lines
}

/// The fields of these names.
fn only(row: &Object, keys: &[&str]) -> Object {
    let fields = row.iter().filter(|(key, _)| keys.contains(&key.as_str()));
    fields
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The object that a text is of, with what is usual and common, without what [`restore`] knows.
pub fn parse(text: &str) -> Result<Value, String> {
    let mut object = Object::new();
    let (mut name, mut usual, mut common) = (String::new(), Value::Null, Object::new());
    for (i, line) in text.lines().enumerate() {
        let damaged = |why: &str| format!("line {}: {why}", i + 1);
        let mut line: Object = serde_json::from_str(line)
            .map_err(|error| damaged(&format!("is no JSON object: {error}")))?;
        if i == 0 {
            object = line;
        } else if let Some(section) = line.get("section").and_then(Value::as_str) {
            name = section.to_owned();
            object.insert(name.clone(), json!([]));
            usual = line.remove("usual").unwrap_or_default();
            common.clear();
        } else if let Some(Value::Object(of)) = line.get_mut("of") {
            common = std::mem::take(of);
        } else {
            let mut row = usual_of(&usual, &line).cloned().unwrap_or_default();
            row.extend(common.clone());
            row.extend(line);
            let rows = object.get_mut(&name).and_then(Value::as_array_mut);
            let rows = rows.ok_or_else(|| damaged("is a row before the line of its list"))?;
            rows.push(row.into());
        }
    }
    Ok(object.into())
}

/// Takes from rows what [`restore`] puts back. Of a row that stands beside a time of cuDNN's which is
/// no longer here that time stays, with the plan's name.
fn strip(rows: &mut [Row]) {
    let full = rows.to_vec();
    for row in rows.iter_mut() {
        (row.tflops, row.gbs, row.speedup_vs_cudnn) = (None, None, None);
        (row.cudnn_variant, row.cudnn_us, row.cudnn_plan) = (None, None, None);
        if row.family() != "cudnn" {
            row.cudnn_search = None;
        }
        row.stages = added_up(&row.stages);
        row.pack_us = row.pack_us.map(to_ns);
        row.with_pack_us = row.with_pack_us.map(to_ns);
        row.serial_us = row.serial_us.map(to_ns);
        row.sm_mhz = row.sm_mhz.map(f64::round);
    }
    let mut restored = rows.to_vec();
    restore(&mut restored);
    for ((row, full), restored) in rows.iter_mut().zip(full).zip(restored) {
        if full.cudnn_us != restored.cudnn_us {
            let name = |plan: String| plan.split(", cuDNN").next().map(str::to_owned);
            row.cudnn_plan = full.cudnn_plan.and_then(name);
            row.cudnn_variant = full.cudnn_variant;
            row.cudnn_us = full.cudnn_us;
            row.cudnn_search = full.cudnn_search;
        }
    }
}

/// One stage for all of a name: a batch in chunks has them once per chunk.
fn added_up(stages: &[Stage]) -> Vec<Stage> {
    let mut sums: Vec<Stage> = Vec::new();
    for stage in stages {
        match sums.iter_mut().find(|sum| sum.name == stage.name) {
            Some(sum) => sum.us += stage.us,
            None => sums.push(stage.clone()),
        }
    }
    sums.iter_mut().for_each(|sum| sum.us = to_ns(sum.us));
    sums
}

/// Microseconds, rounded.
fn to_ns(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// Puts back what follows from other fields and other rows.
pub fn restore(rows: &mut [Row]) {
    let mut problems: HashMap<_, Vec<&mut Row>> = HashMap::new();
    for row in rows {
        row.find_rates();
        let problem = (
            row.suite.clone(),
            row.layer.clone(),
            row.problem.to_string(),
            row.cold,
        );
        problems.entry(problem).or_default().push(row);
    }
    problems
        .into_values()
        .for_each(|mut rows| beside_cudnn(&mut rows));
}
