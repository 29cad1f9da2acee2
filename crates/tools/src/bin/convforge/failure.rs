//! What ends the command early, and with which exit status.

use std::{error::Error, io, process::ExitCode};

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
        match self {
            Failure::ClosedPipe => ExitCode::SUCCESS,
            Failure::Usage(text) => {
                eprintln!("error: {text}");
                ExitCode::from(2)
            }
            Failure::Error(error) => {
                eprintln!("error: {error}");
                let mut source = error.source();
                while let Some(cause) = source {
                    eprintln!("  because: {cause}");
                    source = cause.source();
                }
                ExitCode::FAILURE
            }
        }
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
            | E::UnknownPolicy { .. }
            | E::UnknownSuite { .. } => Failure::Usage(error.to_string()),
            error => Failure::Error(error.into()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ClosedPipe,
            _ => Failure::Error(error.into()),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        match error.io_error_kind() {
            Some(kind) => io::Error::from(kind).into(),
            None => Failure::Error(error.into()),
        }
    }
}
