//! Of which problems earlier results say enough, and how long the others take.

use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::builder::PossibleValuesParser;
use convforge::{Device, Limits};
use convforge_tools::{
    Contender,
    measure::{Environment, Options},
    results::Recorded,
    suite::Layer,
};

use crate::{failure::Failure, measuring::Unit, numbers::positive, terminal};

#[derive(clap::Args)]
pub struct FreshArgs {
    /// Leave out problems that are fresh: of which a report in the folder DIR, made by --out or by
    /// `report --keep`, has every contender, timed on such a device, with the libraries that are here
    /// and of the code that is here; may be repeated
    #[arg(long, value_name = "DIR")]
    unless: Vec<PathBuf>,
    /// Leave out this project's variants that are known to be slow: whose least time in the folders of
    /// --unless is over TIMES times the least of these on the problem. Of code that has changed since, and
    /// of what was never timed, the estimate counts as well. Picks, cuBLAS and cuDNN stay
    #[arg(long, value_name = "TIMES", requires = "unless", value_parser = positive::<u32>)]
    within: Option<u32>,
    /// Measure what is fresh, too: results in the folders of --unless only say who is slow
    #[arg(long, requires = "unless")]
    pub again: bool,
    /// Measure nothing: print each problem that would be measured, and about how many seconds it takes
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub plan: bool,
    /// Plan for this chip, which need not be here: with the driver and the libraries of the latest
    /// report of one in the folders of --unless
    #[arg(long = "as", value_name = "CHIP", requires_all = ["plan", "unless"])]
    #[arg(conflicts_with_all = ["device", "out"])]
    #[arg(value_parser = PossibleValuesParser::new(Limits::CHIPS))]
    chip: Option<String>,
}

impl FreshArgs {
    /// Whether a GPU is measured, or planned for.
    pub fn is_gpu(&self, device: &Device) -> bool {
        device.is_gpu() || self.chip.is_some()
    }

    /// The earlier results, of this machine or of the chip that is planned for.
    pub fn recorded(&self, device: &Limits, now: &Environment) -> Result<Recorded, Failure> {
        Ok(match &self.chip {
            Some(chip) => Recorded::of_chip(&self.unless, chip)?,
            None => Recorded::read(&self.unless, device, now)?,
        })
    }

    /// The problems, each with the contenders that --within leaves; and how many it leaves none of.
    pub fn near(
        &self,
        layers: Vec<Layer>,
        contenders: &[Contender],
        recorded: &Recorded,
        cold: bool,
    ) -> (Vec<Unit>, usize) {
        let all = layers.len();
        let near = |layer: &Layer| match self.within {
            Some(times) => recorded.within(f64::from(times), layer, contenders, cold),
            None => contenders.to_vec(),
        };
        let units = layers.into_iter().map(|layer| (near(&layer), layer));
        let units = units.filter(|(group, _)| !group.is_empty());
        let units: Vec<Unit> = units.map(|(group, layer)| (layer, group)).collect();
        let empty = all - units.len();
        (units, empty)
    }
}

/// A line per problem that is left of `all`: about how many seconds, and its name. Then the sum.
pub fn tell_plan(
    options: &Options,
    units: &[Unit],
    recorded: &Recorded,
    all: usize,
) -> Result<ExitCode, Failure> {
    let mut out = terminal::out();
    let (mut total, mut searches) = (0.0, 0);
    for (layer, group) in units {
        let seconds = recorded.seconds(layer, group, options);
        let search = recorded.wants_search(&layer.problem, group);
        let note = if search {
            "; cuDNN is searched in full"
        } else {
            ""
        };
        writeln!(out, "{seconds:6.0} s  {}{note}", layer.title())?;
        total += seconds;
        searches += usize::from(search);
    }
    let fresh = all - units.len();
    let more = match searches {
        0 => String::new(),
        searches => format!("; cuDNN is searched in full for {searches}"),
    };
    writeln!(
        out,
        "{total:6.0} s for {} problems, {fresh} are fresh{more}",
        units.len()
    )?;
    Ok(ExitCode::SUCCESS)
}
