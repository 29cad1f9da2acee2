//! A timeline in Chrome's trace format, which Perfetto shows.

use std::path::Path;

use serde_json::{Value, json};

use crate::{Result, files::write_whole};

/// One piece of work on a timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What was done.
    pub name: String,
    /// The line it stands in, with others that never overlap it: `kernels`, `stream 2`.
    pub lane: String,
    /// The call or the chunk that it belongs to, from 0.
    pub part: usize,
    /// Microseconds from the timeline's beginning.
    pub begin_us: f64,
    /// As `begin_us`.
    pub end_us: f64,
}

/// Events of one run as the text of a trace file; lanes stand in the order of their first events.
fn text(title: &str, events: &[Event]) -> String {
    let mut lanes: Vec<&str> = Vec::new();
    let mut work: Vec<Value> = Vec::new();
    for event in events {
        let lane = lanes
            .iter()
            .position(|lane| *lane == event.lane)
            .unwrap_or_else(|| {
                lanes.push(&event.lane);
                lanes.len() - 1
            });
        work.push(json!({
            "ph": "X", "pid": 1, "tid": lane, "name": event.name,
            "ts": to_ns(event.begin_us), "dur": to_ns(event.end_us - event.begin_us),
            "args": {"part": event.part},
        }));
    }
    let named = |what: &str, lane: usize, name: &str| json!({"ph": "M", "pid": 1, "tid": lane, "name": what, "args": {"name": name}});
    let ordered = |lane: usize| {
        json!({"ph": "M", "pid": 1, "tid": lane, "name": "thread_sort_index",
               "args": {"sort_index": lane}})
    };
    let mut all = vec![named("process_name", 0, title)];
    for (lane, name) in lanes.into_iter().enumerate() {
        all.extend([named("thread_name", lane, name), ordered(lane)]);
    }
    all.extend(work);
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    format!("{{\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// Microseconds to the nanosecond: no clock here has more.
fn to_ns(us: f64) -> f64 {
    (us * 1e3).round() / 1e3
}

/// Writes a timeline as a trace file.
///
/// # Errors
/// [`Error::File`](crate::Error::File).
pub fn write_trace(path: &Path, title: &str, events: &[Event]) -> Result<()> {
    write_whole(path, text(title, events))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_stands_in_its_lane() {
        let event = |name: &str, lane: &str, begin_us| Event {
            name: name.to_owned(),
            lane: lane.to_owned(),
            part: 3,
            begin_us,
            end_us: begin_us + 0.5,
        };
        let events = [
            event("input", "copy in", 0.0),
            event("unroll", "kernels", 1.25),
            event("gemm", "kernels", 2.0),
        ];
        let text = text("a \"name\"", &events);
        let file: Value = serde_json::from_str(&text).unwrap();
        let all = file["traceEvents"].as_array().unwrap();
        let of = |kind: &str| all.iter().filter(|e| e["ph"] == kind).collect::<Vec<_>>();
        let names = |what: &str| {
            let named = of("M").into_iter().filter(|e| e["name"] == what);
            named.map(|e| e["args"]["name"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("process_name"), ["a \"name\""]);
        assert_eq!(names("thread_name"), ["copy in", "kernels"]);
        let [input, _, gemm] = of("X")[..] else {
            panic!("{text}")
        };
        assert_eq!([&input["tid"], &gemm["tid"]], [0, 1]);
        assert_eq!(gemm["name"], "gemm");
        assert_eq!([&gemm["ts"], &gemm["dur"]], [2.0, 0.5]);
        assert_eq!(gemm["args"]["part"], 3);
    }
}
