//! How cuDNN's plans are searched.

#[cfg(feature = "cudnn")]
use std::{path::Path, time::Duration};

#[cfg(feature = "cudnn")]
use clap::ValueEnum;
use convforge_tools::Contenders;
#[cfg(feature = "cudnn")]
use convforge_tools::{
    chain,
    cudnn::{Options, Searches, Stored},
};

#[cfg(feature = "cudnn")]
use crate::{
    numbers::{number, seconds},
    terminal,
};

/// How cuDNN's plans are searched, in a build that has it.
#[derive(clap::Args)]
pub struct SearchArgs {
    /// Time for building cuDNN's plans, and again for running them for the first time, for each
    /// problem; a search that it cuts short has no `vs cuDNN` [default: as long as it takes]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    cudnn_seconds: Option<Duration>,
    /// Most bytes of workspace that a plan of cuDNN's may ask for [default: any number]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "BYTES", value_parser = number::<usize>, allow_negative_numbers = true)]
    cudnn_workspace: Option<usize>,
    /// What to do with a complete search in the folder that CONVFORGE_CUDNN_PLANS names, or in the file
    /// of --cudnn-known [default: trusted; finalists with --cudnn-known]
    #[cfg(feature = "cudnn")]
    #[arg(long, value_enum)]
    cudnn_stored: Option<StoredSearch>,
    /// A file of complete searches that `convforge searches` made, for problems that the folder does not
    /// have
    #[cfg(feature = "cudnn")]
    #[arg(long, value_name = "FILE", value_parser = searches)]
    cudnn_known: Option<Searches>,
}

#[cfg(feature = "cudnn")]
fn searches(file: &str) -> Result<Searches, String> {
    Searches::read(Path::new(file)).map_err(|error| chain(&error))
}

/// What to do with a search that an earlier process kept.
#[cfg(feature = "cudnn")]
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoredSearch {
    /// Use its winners
    Trusted,
    /// Time and judge its finalists again, and all plans where that does not confirm it
    Finalists,
    /// Time every plan again that is not known to be far from the fastest
    Again,
}

impl SearchArgs {
    /// Everyone whom a command may name.
    #[cfg(feature = "cudnn")]
    pub fn contenders(&self) -> Contenders {
        let mut options = Options {
            known: self.cudnn_known.clone().unwrap_or_default(),
            ..Options::default()
        };
        let search = &mut options.search;
        search.budget = self.cudnn_seconds.or(search.budget);
        search.workspace_cap = self.cudnn_workspace.unwrap_or(search.workspace_cap);
        search.stop = Some(terminal::stop());
        options.stored = match (self.cudnn_stored, &self.cudnn_known) {
            (Some(StoredSearch::Trusted), _) | (None, None) => Stored::Trusted,
            // What another machine found is measured on this one.
            (Some(StoredSearch::Finalists), _) | (None, Some(_)) => Stored::Finalists,
            (Some(StoredSearch::Again), _) => Stored::Again,
        };
        Contenders::searching(&options)
    }

    /// Everyone whom a command may name.
    #[cfg(not(feature = "cudnn"))]
    pub fn contenders(&self) -> Contenders {
        Contenders::new()
    }
}
