//! `convforge page`: results as one HTML page.

use std::{path::PathBuf, process::ExitCode};

use convforge_tools::{
    files::write_whole,
    page,
    results::{Source, committed},
};

use crate::failure::Failure;

#[derive(clap::Args)]
#[command(
    after_help = "The page needs no network and nothing beside itself. The same files make the same \
                  page.\n\n\
                  For example:\n\
                  \x20 convforge page results.json --out page.html"
)]
pub struct Args {
    /// A JSON file of `compare`, `sweep`, `study` or scripts/profile.sh, or one of benches/results, in
    /// any mix [default: all of benches/results]
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the page to FILE
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let files = match &args.files[..] {
        [] => committed()?,
        named => named.to_vec(),
    };
    let sources = files.iter().map(|file| Source::read(file));
    let sources = sources.collect::<Result<Vec<Source>, _>>()?;
    write_whole(&args.out, page::page(&sources)?)?;
    Ok(ExitCode::SUCCESS)
}
