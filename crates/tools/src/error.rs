//! What can go wrong beside what the library says.

use std::{error, path::PathBuf};

/// Everything that can go wrong, as a value. A message does not repeat that of its source:
/// [`chain`](convforge::chain) has both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library's answer.
    #[error(transparent)]
    Convforge(#[from] convforge::Error),
    /// The judge's answer.
    #[error(transparent)]
    Check(convforge_check::Error),
    /// No suite has this name.
    #[error("there is no suite `{name}`{} There are {known}; or name a file of problems by its path", did_you_mean(.close))]
    UnknownSuite {
        /// The name asked for.
        name: String,
        /// The nearest name there is.
        close: Option<String>,
        /// Those there are.
        known: String,
    },
    /// A file cannot be read or written, or is not what it should be.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// Why, where somebody else says it.
        source: Option<Box<dyn error::Error + Send + Sync>>,
    },
    /// What was given does not go together.
    #[error("{0}")]
    Input(String),
    /// A result is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A drawing failed.
    #[error("the chart could not be drawn: {0}")]
    Drawing(String),
}

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<convforge_check::Error> for Error {
    /// What the judge only hands on is the library's.
    fn from(error: convforge_check::Error) -> Self {
        match error {
            convforge_check::Error::Library(error) => Error::Convforge(error),
            error => Error::Check(error),
        }
    }
}

impl Error {
    /// Whether it only says that somebody asked to stop.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Error::Convforge(convforge::Error::Interrupted))
    }

    /// A file that is not what it should be.
    pub fn file(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Error::File {
            path: path.into(),
            what: what.into(),
            source: None,
        }
    }

    /// A file with which something went wrong that has an error of its own.
    pub fn file_because(
        path: impl Into<PathBuf>,
        what: impl Into<String>,
        source: impl Into<Box<dyn error::Error + Send + Sync>>,
    ) -> Self {
        Error::File {
            path: path.into(),
            what: what.into(),
            source: Some(source.into()),
        }
    }
}

fn did_you_mean(close: &Option<String>) -> String {
    let name = close.iter();
    name.map(|name| format!("; did you mean `{name}`?"))
        .next()
        .unwrap_or_else(|| ".".to_owned())
}
