//! The walk over the problems that checks, times, shows and keeps.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use convforge::{Device, Error};
use convforge_tools::{
    Contender,
    files::Target,
    measure::{self, ClockLog, Clocks, ModelTotals, Options, Part, Report, Row, Status, View},
    suite::{self, Layer},
};

use super::{MeasuringArgs, find_ceilings, print_end};
use crate::{
    charts,
    failure::{Failure, even_unread},
    report::models,
    terminal::{self, Progress},
};

/// A problem, and who is compared on it, side by side: a table, a chart and a place in the file.
pub type Unit = (Layer, Vec<Contender>);

/// A run that is about to measure.
pub struct Run<'a> {
    args: &'a MeasuringArgs,
    device: Device,
    /// What there is so far.
    pub report: Report,
    target: Option<Target>,
    /// As [`Options::fastest_configs`].
    pub fastest_configs: bool,
}

impl<'a> Run<'a> {
    /// With an empty report, or the one to be continued. `target` is open before that is read, so that
    /// what is read is no other run's.
    pub fn new(
        args: &'a MeasuringArgs,
        device: Device,
        view: View,
        target: Option<Target>,
    ) -> Result<Self, Failure> {
        Ok(Run {
            args,
            report: args.report(&device, view)?,
            device,
            target,
            fastest_configs: false,
        })
    }

    /// The problems with so few images as the CPU takes, unless they are for a GPU.
    pub fn fit(&mut self, layers: Vec<Layer>, gpu: bool) -> Vec<Layer> {
        if gpu {
            return layers;
        }
        let (layers, notes) = suite::reduce_for_cpu(&layers);
        self.report.notes = notes;
        layers
    }

    /// Takes the models that the problems are of.
    pub fn expect(&mut self, layers: &[Layer]) {
        self.report.expect(ModelTotals::of(layers));
    }

    /// Whether the report has a unit already.
    pub fn has(&self, (layer, group): &Unit) -> bool {
        self.report.has(layer, group)
    }

    /// Measures what the report does not have. What was measured before an error is kept.
    pub fn measure(mut self, no_gpu: Option<Error>, units: &[Unit]) -> Result<ExitCode, Failure> {
        if let Some(why) = no_gpu {
            self.report.notes.insert(0, terminal::no_gpu(&why));
        }
        if let Some(folder) = &self.args.svg {
            charts::make(folder)?;
        }
        self.keep()?;
        let walked = self.walk(units);
        let ended = self.end();
        even_unread(walked.and(ended))?;
        if let Some(first) = self.report.rows.first()
            && self.report.count(Status::Unsupported) == self.report.rows.len()
        {
            return Err(Failure::Error(nothing(first).into()));
        }
        Ok(terminal::exit_code(self.report.count(Status::Failed) > 0))
    }

    fn walk(&mut self, units: &[Unit]) -> Result<(), Failure> {
        let mut progress = Progress::new(units.len());
        let Report {
            environment, notes, ..
        } = &mut self.report;
        if !units.is_empty() {
            find_ceilings(&self.device, environment, notes, &mut progress);
        }
        for note in &self.report.notes {
            self.remark(note)?;
        }
        let options = Options {
            ceilings: self.report.environment.ceilings,
            fastest_configs: self.fastest_configs,
            ..self.args.sampling.options(self.device.is_gpu())
        };
        for unit in units {
            if terminal::interrupted() {
                break;
            }
            self.take(unit, &options, &mut progress)?;
            progress.step();
        }
        Ok(())
    }

    /// Measures a unit, unless the report has it, and keeps and shows it.
    fn take(
        &mut self,
        unit: &Unit,
        options: &Options,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let ((layer, group), view) = (unit, self.report.view);
        let first = group.first().map_or_else(String::new, Contender::variant);
        let title = view.title(layer, &first);
        if self.has(unit) {
            return self.remark(&format!("{title}: already there"));
        }
        let before = Clocks::read(&self.device);
        let mut say = |doing: &str| progress.say(&format!("{title}: {doing}"));
        let stop = terminal::stop();
        let rows = measure::compare(&self.device, layer, group, options, stop, &mut say);
        if self.device.is_gpu() {
            self.report.clocks.push(ClockLog {
                problem: layer.problem.to_string(),
                before,
                after: Clocks::read(&self.device),
            });
        }
        self.report.put(&rows);
        let kept = self.keep();
        let shown = self.show(&view.parts(layer, &rows), progress);
        kept.and(shown)
    }

    fn keep(&mut self) -> Result<(), Failure> {
        match &mut self.target {
            Some(target) => Ok(target.keep(|| self.report.text(self.args.format()))?),
            None => Ok(()),
        }
    }

    fn show(&self, parts: &[Part], progress: &Progress) -> Result<(), Failure> {
        for part in parts {
            if self.args.prints_tables() {
                let table = part.table(terminal::look());
                self.printed(progress.print(&format!("\n{}\n{table}", part.title)))?;
            }
            if let Some(folder) = &self.args.svg {
                charts::write(folder, part, &self.report.environment)?;
            }
        }
        Ok(())
    }

    /// Writes what there is in the end, and prints what is said below all tables.
    fn end(&mut self) -> Result<(), Failure> {
        let text = || self.report.text(self.args.format());
        if let Some(target) = &mut self.target {
            target.finish(text().as_bytes())?;
        }
        self.printed(match self.args.prints_tables() {
            true => self.tell_end(),
            false => write!(terminal::out(), "{}", text()),
        })
    }

    fn tell_end(&self) -> io::Result<()> {
        models(&mut terminal::out(), &self.report.models)?;
        let count = |status| self.report.count(status);
        print_end(Some(&self.device), self.args.out.as_deref(), count)
    }

    fn remark(&self, text: &str) -> Result<(), Failure> {
        self.printed(terminal::remark(text, self.args.prints_tables()))
    }

    /// With --out the results go elsewhere, and what is printed need not be read.
    fn printed(&self, told: io::Result<()>) -> Result<(), Failure> {
        match &self.args.out {
            Some(_) => even_unread(told),
            None => Ok(told?),
        }
    }
}

/// That no contender can do any of the problems, by the first of them.
fn nothing(row: &Row) -> String {
    let (name, problem) = (&row.variant, &row.problem);
    let why = row.reason.as_deref().unwrap_or("it says no");
    format!(
        "nothing was measured: {name} {problem}: {why}; `convforge list --problem {problem}` shows \
         who can"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;
    use convforge::{
        Result,
        variant::{Configured, Info, Plan, Prepared, Query, Variant},
        variants,
    };
    use convforge_tools::{files::write_whole, measure::Format};

    use super::*;

    /// The CPU's plain loops with configurations that change nothing; the last is not supported.
    struct Tiled(Info, Arc<dyn Variant>);

    // SAFETY: what it prepares is the library's own.
    unsafe impl Variant for Tiled {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, query: &Query) -> Result<Plan, String> {
            match query.config + 1 < self.0.configs.len() {
                true => self.1.plan(query),
                false => Err("is too large".to_owned()),
            }
        }

        fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
            self.1.prepare(device, query, plan)
        }
    }

    fn group(name: &str) -> Vec<Contender> {
        let plain = variants::find("cpu_direct").unwrap();
        let mut info = plain.info().clone();
        info.name = name.to_owned();
        info.configs = ["tile=8", "tile=4", "tile=16"].map(str::to_owned).into();
        let variant: Arc<dyn Variant> = Arc::new(Tiled(info, plain));
        let contenders = Configured::all_of(&variant).map(Contender::Variant);
        contenders.collect()
    }

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MeasuringArgs,
    }

    fn measure(args: &[&str], groups: &[Vec<Contender>], view: View) -> Result<ExitCode, Failure> {
        let cli = Cli::parse_from([&["test", "--device", "cpu", "--samples", "5"], args].concat());
        let layers = ["mb1ic1ih3oc1kh1", "mb2ic1ih3oc1kh1"];
        let layers = layers.map(|text| Layer::alone(text.parse().unwrap()));
        let unit = |layer: &Layer, group: &Vec<Contender>| (layer.clone(), group.clone());
        let units = layers.iter();
        let units = units.flat_map(|layer| groups.iter().map(move |group| unit(layer, group)));
        let run = Run::new(&cli.args, Device::cpu(), view, cli.args.target()?)?;
        run.measure(None, &units.collect::<Vec<_>>())
    }

    #[test]
    fn a_sweep_goes_on_with_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sweep.json");
        let charts = folder.path().join("charts");
        let (out, svg) = (path.to_str().unwrap(), charts.to_str().unwrap());
        let args = ["--out", out, "--svg", svg, "--resume"];
        let fine = ExitCode::SUCCESS;
        let answer = measure(&args, &[group("one")], View::Sweep).ok().unwrap();
        assert_eq!(answer, fine);
        let first = Report::read(&path).unwrap();
        assert_eq!(first.rows.len(), 6);
        assert_eq!(first.count(Status::Passed), 4);
        assert_eq!(first.count(Status::Unsupported), 2);

        // Another variant is added, an interrupted row comes again, what is there stays.
        let mut stopped = first.clone();
        stopped.rows[1].reason = Some(Error::Interrupted.to_string());
        stopped.rows[4].plan = Some("kept".to_owned());
        write_whole(&path, stopped.text(Format::Json)).unwrap();
        let groups = [group("one"), group("two")];
        assert_eq!(measure(&args, &groups, View::Sweep).ok().unwrap(), fine);
        let second = Report::read(&path).unwrap();
        assert_eq!(second.rows.len(), 12);
        assert!(second.rows.iter().all(|row| row.is_whole()));
        assert_eq!(second.rows[4].plan.as_deref(), Some("kept"));
        let parts = second.parts();
        let titles: Vec<&str> = parts.iter().map(|part| &*part.title).collect();
        assert!(titles.contains(&"mb2ic1ih3oc1oh3kh1 one"), "{titles:?}");
        assert_eq!(titles.len(), 4);
        assert_eq!(std::fs::read_dir(&charts).unwrap().count(), 4);

        // The two do not mix, and neither do times of a GPU with a cold cache and others.
        let refused = |view, told: &str| match measure(&args, &groups, view) {
            Err(Failure::Usage(why)) => assert!(why.contains(told), "{why}"),
            _ => panic!("it was continued"),
        };
        refused(View::Compare, "results of `sweep`");
        let mut cold = second.clone();
        cold.rows[0].cold = true;
        write_whole(&path, cold.text(Format::Json)).unwrap();
        refused(View::Sweep, "cannot be continued with others");
    }
}
