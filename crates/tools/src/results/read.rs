//! Reading files of results.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{lines, source::Source};
use crate::{Error, Result, files::read_text};

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

    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
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
}

fn read<T: DeserializeOwned>(value: Value, kind: &str) -> std::result::Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("is a damaged {kind}: {error}"))
}
