//! Files of results: told apart by what is in them, and kept in a compact form.
//!
//! | form | who writes it | what it is |
//! | --- | --- | --- |
//! | `.json` | `compare`, `sweep` and `study` with --out, scripts/profile.sh | one object: all that was measured |
//! | `.jsonl` | [`Kept`] | a line per row: what tables and the page need, as it is committed |

mod kept;
mod lines;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    Error, Result,
    files::read_text,
    measure::{Environment, Report, Row},
    study::{Profile, Study},
};

pub use kept::{Kept, committed};

/// One file of results.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// What `compare` or `sweep` wrote.
    Report(Report),
    /// What `study` wrote.
    Study(Study),
    /// What scripts/profile.sh wrote.
    Profile(Profile),
}

/// A row as programs get it: with the device, the code and the date that it was measured with.
#[derive(Clone, Debug, Serialize)]
pub struct FullRow<'a> {
    /// What was measured.
    #[serde(flatten)]
    pub row: &'a Row,
    /// Hash of the kernels' sources.
    pub csrc: &'a str,
    /// The device.
    pub device: &'a str,
    /// When its report was begun, in UTC.
    pub date: &'a str,
}

impl Source {
    /// Reads a file of any of the three kinds, in either form.
    ///
    /// # Errors
    /// [`Error::File`] where it is none of them, or a damaged one.
    pub fn read(path: &Path) -> Result<Self> {
        let text = read_text(path)?;
        let is_compact = path.extension().is_some_and(|end| end == lines::EXTENSION);
        let parsed = match is_compact {
            true => lines::parse(&text).and_then(Self::of).map(|mut source| {
                source
                    .rows_mut()
                    .into_iter()
                    .for_each(|rows| lines::restore(rows));
                source
            }),
            false => Self::parse(&text),
        };
        parsed.map_err(|why| Error::file(path, why))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        serde_json::from_str(text)
            .map_err(|error| format!("is no JSON: {error}"))
            .and_then(Self::of)
    }

    fn of(value: Value) -> std::result::Result<Self, String> {
        let has = |key| value.get(key).is_some();
        if has("environment") && has("network") && has("overlap") {
            read(value, "study").map(Source::Study)
        } else if has("environment") && has("rows") {
            read(value, "report of `compare` or `sweep`").map(Source::Report)
        } else if has("tool") && has("rows") {
            read(value, "profile").map(Source::Profile)
        } else {
            Err(
                "is neither a report (`environment` and `rows`), nor a study (`environment`, \
                 `network` and `overlap`), nor a profile (`tool` and `rows`)"
                    .to_owned(),
            )
        }
    }

    /// The rows of variants side by side: all of a report, of a study its layers, of a profile none.
    pub fn rows(&self) -> impl Iterator<Item = FullRow<'_>> {
        let rows = match self {
            Source::Report(report) => &report.rows[..],
            Source::Study(study) => &study.layers,
            Source::Profile(_) => &[],
        };
        let environment = self.environment().into_iter();
        environment.flat_map(move |environment| {
            rows.iter().map(|row| FullRow {
                row,
                csrc: &environment.csrc,
                device: &environment.device,
                date: &environment.date,
            })
        })
    }

    /// Where and when; a profile has less of it.
    fn environment(&self) -> Option<&Environment> {
        match self {
            Source::Report(report) => Some(&report.environment),
            Source::Study(study) => Some(&study.environment),
            Source::Profile(_) => None,
        }
    }

    fn device(&self) -> &str {
        match self {
            Source::Profile(profile) => &profile.device,
            _ => self
                .environment()
                .map_or("", |environment| &environment.device),
        }
    }

    fn rows_mut(&mut self) -> Option<&mut Vec<Row>> {
        match self {
            Source::Report(report) => Some(&mut report.rows),
            Source::Study(study) => Some(&mut study.layers),
            Source::Profile(_) => None,
        }
    }

    /// What files are ordered by.
    fn stamp(&self) -> (&str, &str, &[String]) {
        match self {
            Source::Profile(profile) => (&profile.date, &profile.csrc, &[]),
            _ => self.environment().map_or(("", "", &[]), Environment::stamp),
        }
    }
}

fn read<T: DeserializeOwned>(value: Value, kind: &str) -> std::result::Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("is a damaged {kind}: {error}"))
}
