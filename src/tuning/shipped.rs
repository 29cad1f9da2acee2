//! The results that are compiled into the program: a text for each model of GPU, made from the committed
//! measurements by `convforge tune ship`.
//!
//! A line is `PROBLEM -> NAME 61.250us 0.2% SOURCE`. Lines are sorted by the problem without its number of
//! images, then by that number, then by time, so that they are found by halves and the rest is not read.
//! Times are of graphs, cold.

use super::{Batchless, Conditions, Record, distance};
use crate::{Limits, Problem};

/// A text of shipped results.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Shipped<'a> {
    /// The model of GPU that it is of.
    pub model: &'static str,
    /// The chip's name among [`Limits::CHIPS`].
    pub chip: &'static str,
    /// Its lines.
    pub text: &'a str,
}

/// One for each model that was measured.
pub const ALL: [Shipped<'static>; 2] = [
    Shipped::new("NVIDIA H200", "h200", include_str!("h200.txt")),
    Shipped::new("NVIDIA H100 80GB HBM3", "h100", include_str!("h100.txt")),
];

/// Between a line's problem and its results.
const ARROW: &str = " -> ";

impl Shipped<'static> {
    /// Those of a model of device, if there are any.
    pub fn of_model(model: &str) -> Option<Self> {
        ALL.into_iter().find(|shipped| shipped.model == model)
    }

    /// The model of GPU that a chip is which is known by its limits alone.
    pub fn model_of(limits: &Limits) -> Option<&'static str> {
        let is = |shipped: &&Shipped| Limits::of_chip(shipped.chip).as_ref() == Some(limits);
        ALL.iter().find(is).map(|shipped| shipped.model)
    }
}

impl<'a> Shipped<'a> {
    /// A text of results of a model of GPU, which is this chip.
    pub const fn new(model: &'static str, chip: &'static str, text: &'a str) -> Self {
        Shipped { model, chip, text }
    }
}

impl Shipped<'_> {
    /// The results of a problem, if there are any.
    pub fn get(&self, problem: &Problem) -> Option<Record> {
        let text = problem.to_string();
        self.record(problem, Batchless::of(&text)?)
    }

    /// The results of the same problem with the nearest other number of images, at most
    /// [`NEAR`](super::NEAR) times as many or as few; of two as near, those with more.
    pub fn nearest(&self, problem: &Problem) -> Option<Record> {
        let text = problem.to_string();
        let parts = Batchless::of(&text)?;
        let alike = lines_from(self.text, parts.with(0));
        let alike = alike.map_while(|line| problem_of(line).filter(|found| found.is_like(&parts)));
        let near = alike.filter(|found| found.images != parts.images);
        let near = near.filter_map(|found| Some((distance(found.images, parts.images)?, found)));
        let (_, nearest) =
            near.min_by(|(a, m), (b, n)| a.total_cmp(b).then(n.images.cmp(&m.images)))?;
        let problem = problem.with(|shape| shape.n = nearest.images).ok()?;
        self.record(&problem, parts.with(nearest.images))
    }

    fn record(&self, problem: &Problem, parts: Batchless) -> Option<Record> {
        let mut record = Record::new(problem, self.model, Conditions::default());
        let lines = lines_from(self.text, parts);
        for line in lines.take_while(|line| problem_of(line) == Some(parts)) {
            let (_, results) = line.split_once(ARROW)?;
            record.put(results.parse().ok()?);
        }
        (!record.lines.is_empty()).then_some(record)
    }
}

fn problem_of(line: &str) -> Option<Batchless<'_>> {
    Batchless::of(line.split_once(ARROW)?.0)
}

/// The lines from the first on that is not before `least`.
fn lines_from<'a>(text: &'a str, least: Batchless) -> impl Iterator<Item = &'a str> + use<'a> {
    // The answer begins in `low..=high`; both are beginnings of lines, or the end.
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = low + (high - low) / 2;
        let begin = text.as_bytes()[..middle].iter().rposition(|b| *b == b'\n');
        let begin = begin.map_or(0, |newline| newline + 1);
        let rest = &text[begin..];
        let line = rest.split_inclusive('\n').next().unwrap_or_default();
        // What is no line of results stands before all that are.
        if problem_of(line).is_none_or(|found| found < least) {
            low = begin + line.len();
        } else {
            high = begin;
        }
    }
    text[low..].lines()
}

/// The text of these records, as [`ALL`] has it.
pub fn text(records: &[Record]) -> String {
    let mut lines = Vec::new();
    for record in records {
        let problem = record.problem.to_string();
        let results = record.fastest_first().into_iter();
        lines.extend(results.map(|(us, line)| (problem.clone(), us, line.to_string())));
    }
    lines.sort_by(|(a, us, _), (b, other, _)| {
        (Batchless::of(a).cmp(&Batchless::of(b))).then(us.total_cmp(other))
    });
    let line = |(problem, _, line): &(String, f64, String)| format!("{problem}{ARROW}{line}\n");
    lines.iter().map(line).collect()
}
