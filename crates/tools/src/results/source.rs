//! What a file of results holds.

use serde::Serialize;

use crate::{
    measure::{Environment, Report, Row},
    study::{Profile, Study},
};

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
    pub(super) fn environment(&self) -> Option<&Environment> {
        match self {
            Source::Report(report) => Some(&report.environment),
            Source::Study(study) => Some(&study.environment),
            Source::Profile(_) => None,
        }
    }

    pub(super) fn device(&self) -> &str {
        match self {
            Source::Profile(profile) => &profile.device,
            _ => self
                .environment()
                .map_or("", |environment| &environment.device),
        }
    }

    pub(super) fn rows_mut(&mut self) -> Option<&mut Vec<Row>> {
        match self {
            Source::Report(report) => Some(&mut report.rows),
            Source::Study(study) => Some(&mut study.layers),
            Source::Profile(_) => None,
        }
    }

    /// What files are ordered by.
    pub(super) fn stamp(&self) -> (&str, &str, &[String]) {
        match self {
            Source::Profile(profile) => (&profile.date, &profile.csrc, &[]),
            _ => self.environment().map_or(("", "", &[]), Environment::stamp),
        }
    }
}
