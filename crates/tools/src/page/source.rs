//! The files that a page is made of, told apart by what is in them.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Error, Result,
    files::read_text,
    measure::Report,
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

impl Source {
    /// Reads a file of any of the three kinds.
    ///
    /// # Errors
    /// [`Error::File`] where it is none of them, or a damaged one.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(&read_text(path)?).map_err(|why| Error::file(path, why))
    }

    fn parse(text: &str) -> std::result::Result<Self, String> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
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
}

fn read<T: DeserializeOwned>(value: Value, kind: &str) -> std::result::Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("is a damaged {kind}: {error}"))
}

#[cfg(test)]
mod tests {
    use convforge::Device;

    use super::*;
    use crate::measure::{Environment, Format, View};

    #[test]
    fn files_are_told_apart_by_their_content() {
        let environment = Environment::of(&Device::cpu(), Vec::new());
        let report = Report::new(environment.clone(), View::Sweep);
        let study = Study::new(environment);
        let profile = r#"{"device": "d", "driver": "1", "tool": "ncu 1", "csrc": "0", "date": "",
                          "rows": []}"#;
        let study_text = serde_json::to_string(&study).unwrap();
        assert_eq!(Source::parse(&study_text), Ok(Source::Study(study)));
        let read = Source::parse(&report.text(Format::Json));
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
    }
}
