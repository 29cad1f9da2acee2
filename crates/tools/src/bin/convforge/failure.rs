//! What ends the command early, and with which exit status.

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use convforge_tools::chain;

/// An error on its way to the user.
pub enum Failure {
    /// What was asked for makes no sense: status 2.
    Usage(String),
    /// Something went wrong: status 1.
    Error(Box<dyn Error>),
    /// Nobody reads the output any more; no reason to complain.
    ClosedPipe,
}

impl Failure {
    /// Prints the error with its sources.
    pub fn report(self) -> ExitCode {
        let (text, code) = match self {
            Failure::ClosedPipe => return ExitCode::SUCCESS,
            Failure::Usage(text) => (text, ExitCode::from(2)),
            Failure::Error(error) => (chain(&*error), ExitCode::FAILURE),
        };
        // Where nobody reads the error either, the status has to do.
        let _ = writeln!(io::stderr().lock(), "error: {text}");
        code
    }
}

/// What became of printing where the work does not depend on it: that nobody reads any more is fine.
pub fn even_unread(told: Result<(), impl Into<Failure>>) -> Result<(), Failure> {
    match told.map_err(Into::into) {
        Err(Failure::ClosedPipe) => Ok(()),
        told => told,
    }
}

impl From<convforge::Error> for Failure {
    fn from(error: convforge::Error) -> Self {
        use convforge::Error as E;
        match error {
            E::Parse { .. }
            | E::InvalidProblem(_)
            | E::UnknownVariant { .. }
            | E::UnknownConfig { .. }
            | E::UnknownPolicy { .. } => Failure::Usage(error.to_string()),
            error => Failure::Error(error.into()),
        }
    }
}

impl From<convforge_tools::Error> for Failure {
    fn from(error: convforge_tools::Error) -> Self {
        use convforge_tools::Error as E;
        match error {
            E::Convforge(error) => error.into(),
            E::UnknownSuite { .. } | E::Input(_) => Failure::Usage(error.to_string()),
            error => Failure::Error(error.into()),
        }
    }
}

/// Files have errors of their own, which name them.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Error(format!("standard output: cannot be written: {error}").into()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(_) => io::Error::from(error).into(),
            None => Failure::Error(error.into()),
        }
    }
}
