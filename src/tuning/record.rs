//! The results of one problem, and the text that keeps them.
//!
//! ```text
//! convforge tuning 1
//! problem mb64ic64ih56oc64oh56kh3ph1+f16+nhwc
//! model NVIDIA H200
//! conditions graph cold
//! implicit_gemm_nhwc 25.100us 0.4% 8c1f0a5d2b7e9346
//! cublas_gemm:auto 61.250us 0.2% cuBLAS-13.1.0/0f3a77c2d1e85b69
//! gemv_warp wrong 51aa02c7f3d6e890
//! direct_naive late 2000ms 27e4d9b1c05f8a63
//! sum 3fd04be19a5c7728
//! ```
//!
//! The last line is a sum of all before it: a file that was cut off or changed by a single byte is no
//! record.

use std::{fmt, fmt::Write, str::FromStr, time::Duration};

use crate::{Error, Problem, Result};

/// First line of a record. Another number is another form, and foreign.
const HEAD: &str = "convforge tuning 1";
/// Bytes of the largest text that is read: a record has a few dozen lines.
pub(super) const LARGEST: usize = 1 << 17;
/// What an error calls it.
const WHAT: &str = "a record of tuning";

/// What was measured of one problem on one model of device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Record {
    /// The problem.
    pub problem: Problem,
    /// The model of the device, [`Device::model`](crate::Device::model).
    pub model: String,
    /// How times were taken.
    pub conditions: Conditions,
    /// A line for each variant and configuration, in any order.
    pub lines: Vec<Line>,
}

/// How times are taken: as the convolution will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Conditions {
    /// Launched by a captured graph, so that the host's part vanishes; otherwise call by call.
    pub graph: bool,
    /// On operands that no cache holds, as in a network larger than the L2 cache; otherwise on the same
    /// ones again and again.
    pub cold: bool,
}

impl Default for Conditions {
    /// In a graph, cold.
    fn default() -> Self {
        Conditions {
            graph: true,
            cold: true,
        }
    }
}

impl Conditions {
    /// Whether launched by a captured graph.
    #[must_use]
    pub fn graph(self, graph: bool) -> Self {
        Conditions { graph, ..self }
    }

    /// Whether on operands that no cache holds.
    #[must_use]
    pub fn cold(self, cold: bool) -> Self {
        Conditions { cold, ..self }
    }

    /// These on a GPU. The CPU has no graphs, and its caches are no L2: it is called, warm.
    #[must_use]
    pub fn on(self, is_gpu: bool) -> Self {
        match is_gpu {
            true => self,
            false => Conditions {
                graph: false,
                cold: false,
            },
        }
    }
}

/// One variant in one configuration.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Line {
    /// `implicit_gemm_nhwc`, `fused_shared:tile=24`: names, never indices.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What it was made of then, [`variant::source`](crate::variant::source). Where that is another now,
    /// the line says nothing, and the others stay.
    pub source: String,
}

impl Line {
    /// What became of the variant and configuration of this name, made of this source.
    pub fn new(name: impl Into<String>, outcome: Outcome, source: impl Into<String>) -> Self {
        Line {
            name: name.into(),
            outcome,
            source: source.into(),
        }
    }
}

/// What measuring a variant came to.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// It passed its check, and took so long.
    Took {
        /// Median microseconds of a call.
        us: f64,
        /// From the fastest tenth of the samples to the slowest, as a share of the median.
        spread: f64,
    },
    /// It did not pass its check, or refused.
    Wrong,
    /// Its turn did not come within this budget.
    Late {
        /// The budget.
        budget: Duration,
    },
}

impl Outcome {
    /// A time, rounded as it is kept: microseconds to three digits behind the point, the spread to a
    /// tenth of a percent.
    pub fn took(us: f64, spread: f64) -> Self {
        Outcome::Took {
            us: (us * 1e3).round() / 1e3,
            spread: (spread * 1e3).round() / 1e3,
        }
    }

    /// Median microseconds, where it was measured.
    pub fn us(&self) -> Option<f64> {
        match self {
            Outcome::Took { us, .. } => Some(*us),
            _ => None,
        }
    }

    /// The spread of the samples, where it was measured.
    pub fn spread(&self) -> Option<f64> {
        match self {
            Outcome::Took { spread, .. } => Some(*spread),
            _ => None,
        }
    }
}

impl Record {
    /// A record without lines.
    pub fn new(problem: &Problem, model: &str, conditions: Conditions) -> Self {
        Record {
            problem: problem.clone(),
            model: model.to_owned(),
            conditions,
            lines: Vec::new(),
        }
    }

    /// The line of this name.
    pub fn line(&self, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.name == name)
    }

    /// Adds a line, in the place of that of the same name.
    pub fn put(&mut self, line: Line) {
        match self.lines.iter_mut().find(|known| known.name == line.name) {
            Some(known) => *known = line,
            None => self.lines.push(line),
        }
    }

    /// The lines with a time, the fastest first.
    pub fn fastest_first(&self) -> Vec<(f64, &Line)> {
        let timed = self.lines.iter();
        let mut timed: Vec<_> = timed
            .filter_map(|line| Some((line.outcome.us()?, line)))
            .collect();
        timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        timed
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let how = if self.graph { "graph" } else { "calls" };
        let cache = if self.cold { "cold" } else { "warm" };
        write!(f, "{how} {cache}")
    }
}

impl FromStr for Conditions {
    type Err = Error;

    /// `graph cold`, `calls warm`.
    fn from_str(text: &str) -> Result<Self> {
        let all = [(true, true), (true, false), (false, true), (false, false)];
        let mut all = all
            .into_iter()
            .map(|(graph, cold)| Conditions { graph, cold });
        all.find(|known| known.to_string() == text)
            .ok_or_else(|| Error::Parse {
                what: "conditions of a measurement",
                text: text.to_owned(),
                why: "they are `graph` or `calls`, then `cold` or `warm`".to_owned(),
            })
    }
}

impl fmt::Display for Line {
    /// `cublas_gemm:auto 61.250us 0.2% cuBLAS-13.1.0/0f3a77c2d1e85b69`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Line { name, source, .. } = self;
        match self.outcome {
            Outcome::Took { us, spread } => {
                write!(f, "{name} {us:.3}us {:.1}% {source}", spread * 100.0)
            }
            Outcome::Wrong => write!(f, "{name} wrong {source}"),
            // Rounded up, so that the same budget is known to be too short.
            Outcome::Late { budget } => {
                let ms = budget.as_nanos().div_ceil(1_000_000);
                write!(f, "{name} late {ms}ms {source}")
            }
        }
    }
}

impl FromStr for Line {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let read = || {
            let (name, outcome, source) = match words[..] {
                [name, "wrong", source] => (name, Outcome::Wrong, source),
                [name, "late", budget, source] => (name, late(budget)?, source),
                [name, us, spread, source] => (name, took(us, spread)?, source),
                _ => return None,
            };
            let is_word =
                |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_graphic());
            (is_word(name) && is_word(source)).then(|| Line {
                name: name.to_owned(),
                outcome,
                source: source.to_owned(),
            })
        };
        read().ok_or_else(|| Error::Parse {
            what: "a line of tuning results",
            text: text.to_owned(),
            why: "one reads `NAME 61.250us 0.2% SOURCE`, `NAME wrong SOURCE` or \
                  `NAME late 2000ms SOURCE`"
                .to_owned(),
        })
    }
}

fn took(us: &str, spread: &str) -> Option<Outcome> {
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|n| n.is_finite() && *n >= 0.0)
    };
    let us = number(us.strip_suffix("us")?)?;
    let percent = number(spread.strip_suffix('%')?)?;
    let took = Outcome::took(us, percent / 100.0);
    // The largest numbers do not bear rounding.
    let is_finite = |n: Option<f64>| n.is_some_and(f64::is_finite);
    (is_finite(took.us()) && is_finite(took.spread())).then_some(took)
}

fn late(budget: &str) -> Option<Outcome> {
    let ms = budget.strip_suffix("ms")?.parse().ok()?;
    Some(Outcome::Late {
        budget: Duration::from_millis(ms),
    })
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let mut text = format!(
            "{HEAD}\nproblem {}\nmodel {}\nconditions {}\n",
            self.problem, self.model, self.conditions
        );
        for line in &self.lines {
            writeln!(text, "{line}")?;
        }
        writeln!(f, "{text}sum {:016x}", sum(&text))
    }
}

impl FromStr for Record {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let damaged = |why: &str| Error::Parse {
            what: WHAT,
            text: text.lines().next().unwrap_or_default().to_owned(),
            why: why.to_owned(),
        };
        if text.len() > LARGEST {
            return Err(damaged("it is too large to be a record"));
        }
        if !text.starts_with(&format!("{HEAD}\n")) {
            return Err(damaged(&format!("its first line is not `{HEAD}`")));
        }
        let end = text.rfind("sum ").unwrap_or_default();
        let (body, last) = text.split_at(end);
        if last != format!("sum {:016x}\n", sum(body)) {
            return Err(damaged(
                "it was cut off or changed: the sum in its last line is not its own",
            ));
        }
        let mut lines = body.lines().skip(1);
        let mut field = |name: &str| {
            let line = lines
                .next()
                .and_then(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.ok_or_else(|| damaged(&format!("its line `{name}` is missing")))
        };
        let (problem, model, conditions) =
            (field("problem")?, field("model")?, field("conditions")?);
        let mut record = Record::new(&problem.parse()?, model, conditions.parse()?);
        for line in lines {
            record.put(line.parse()?);
        }
        Ok(record)
    }
}

/// FNV-1a: any one changed byte changes it.
fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
