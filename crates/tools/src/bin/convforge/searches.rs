//! `convforge searches`: what searches of cuDNN's plans found, kept for machines that never searched.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use convforge_tools::cudnn::Searches;

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(
    after_help = "Kept of a complete search are its winners, the finalists that came near them, and the \
                  fastest plans that were wrong. `compare --cudnn-known FILE --cudnn-stored finalists` \
                  goes by it. No GPU is needed."
)]
pub struct Args {
    /// A folder of searches, as CONVFORGE_CUDNN_PLANS named it, or another file that this command made
    #[arg(value_name = "PLANS", required = true)]
    plans: Vec<PathBuf>,
    /// The file to add them to: a line per search, in the place of an earlier one of the same
    #[arg(long, value_name = "FILE")]
    keep: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let mut searches = match args.keep.exists() {
        true => Searches::read(&args.keep)?,
        false => Searches::default(),
    };
    let (mut added, mut left) = (0, 0);
    for from in &args.plans {
        let (more, others) = searches.add(from)?;
        added += more;
        left += others;
    }
    searches.write(&args.keep)?;
    writeln!(
        io::stdout().lock(),
        "{}: {} searches, {added} of them added or replaced; {left} left out that were not complete or \
         have no winner",
        args.keep.display(),
        searches.len()
    )?;
    Ok(ExitCode::SUCCESS)
}
