//! `convforge list`: every variant, and which of them can do a problem.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use clap::builder::PossibleValuesParser;
use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use convforge::{
    Device, Limits, Pick, Problem,
    variant::{self, Info, Query, Variant},
};
use convforge_check as check;
use convforge_tools::{Contenders, measure::duration};
use serde::Serialize;

use crate::{args::DeviceArgs, failure::Failure, terminal};

#[derive(clap::Args)]
#[command(
    after_help = "For example, what an H200 would do, on a machine without one:\n  \
                  convforge list --problem mb64ic64ih56oc64oh56kh3ph1+f16+nhwc --as h200"
)]
pub struct Args {
    /// Say for this problem which variants support it and which one each pick chooses
    #[arg(long, value_name = "PROBLEM")]
    problem: Option<Problem>,
    /// Answer as this chip would, which need not be there; nor need its driver and libraries
    #[arg(
        long = "as",
        value_name = "CHIP",
        requires = "problem",
        conflicts_with = "device"
    )]
    #[arg(value_parser = PossibleValuesParser::new(Limits::CHIPS))]
    chip: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print a JSON array with one object per variant
    #[arg(long)]
    json: bool,
}

/// A line under the header, nothing else.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// Columns of text where no terminal says how wide it is.
const WIDTH: u16 = 100;

/// A variant in the list.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    info: &'a Info,
    /// Share of the generator's problems that it can do on an H200.
    coverage: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
}

/// What a variant says to a problem.
#[derive(Serialize)]
struct Answer {
    supported: bool,
    reason: Option<String>,
    /// Its own estimate of its time.
    rank_us: Option<f64>,
    /// The picks that choose it.
    picked_by: Vec<String>,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let asked = match &args.problem {
        Some(problem) => Some(Asked::new(problem, args)?),
        None => {
            // One that is not there is said, as everywhere.
            args.device.open()?;
            None
        }
    };
    // The same number on every machine.
    let nominal = Limits::of_chip("h200").unwrap_or_default();
    let all = Contenders::new();
    let entries = all.all().iter().map(|variant| Entry {
        info: variant.info(),
        coverage: check::coverage(&**variant, &nominal),
        answer: asked.as_ref().map(|asked| asked.ask(&**variant)),
    });
    let entries: Vec<Entry> = entries.collect();
    if args.json {
        terminal::print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    match &asked {
        Some(asked) => {
            let Asked { problem, place, .. } = asked;
            let shared = shared(&entries);
            writeln!(out, "{problem} on {place}\n{}", answers(&entries, &shared))?;
            for (note, why) in shared.iter().enumerate() {
                writeln!(out, "({}) {why}", note + 1)?;
            }
            asked.tell_picks(&mut out)?;
        }
        None => {
            writeln!(out, "{}", everything(&entries))?;
            tell_caveats(&mut out, &entries)?;
            tell_unranked(&mut out, &entries)?;
            writeln!(out, "\nPicks that choose by themselves:")?;
            for pick in Pick::automatic() {
                writeln!(out, "{pick}: {}", pick.explain()?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reasons that three variants or more say no with, as when a build lacks the chip's code: told once,
/// under the table.
fn shared<'a>(entries: &'a [Entry]) -> Vec<&'a str> {
    let reasons = || {
        let answers = entries.iter().filter_map(|entry| entry.answer.as_ref());
        answers.filter_map(|answer| answer.reason.as_deref())
    };
    let mut found: Vec<&str> = Vec::new();
    for why in reasons() {
        let count = reasons().filter(|other| *other == why).count();
        if count >= 3 && !found.contains(&why) {
            found.push(why);
        }
    }
    found
}

/// What each variant says to the problem; for a shared reason the number of its note.
fn answers(entries: &[Entry], shared: &[&str]) -> Table {
    let mut table = table(&["variant", "can do it", "estimate", "picked by"]);
    for Entry { info, answer, .. } in entries {
        let Some(answer) = answer else { continue };
        let note = |why: &String| shared.iter().position(|known| known == why);
        let can = match &answer.reason {
            Some(why) => match note(why) {
                Some(note) => format!("no ({})", note + 1),
                None => format!("no: {why}"),
            },
            None => "yes".to_owned(),
        };
        table.add_row([
            info.name.clone(),
            can,
            answer.rank_us.map_or("-".to_owned(), duration),
            answer.picked_by.join("\n"),
        ]);
    }
    table
}

/// What each variant is.
fn everything(entries: &[Entry]) -> Table {
    let mut table = table(&[
        "variant",
        "kind",
        "sums",
        "idea",
        "source",
        "configurations",
        "coverage",
    ]);
    for Entry { info, coverage, .. } in entries {
        table.add_row([
            info.name.clone(),
            info.kind.word().to_owned(),
            info.arithmetic.word().to_owned(),
            info.idea.clone(),
            info.source.clone(),
            info.configs.join(", "),
            format!("{:.0} %", coverage * 100.0),
        ]);
    }
    table
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(header);
    // Names are for copying: the other columns are wrapped.
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    table
}

/// What comes out of variants where a loop of sums would give something else: those of one caveat
/// together.
fn tell_caveats(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    let mut caveats: Vec<(&str, Vec<&str>)> = Vec::new();
    for Entry { info, .. } in entries {
        let Some(caveat) = &info.caveat else { continue };
        match caveats.iter_mut().find(|(known, _)| known == caveat) {
            Some((_, names)) => names.push(&info.name),
            None => caveats.push((caveat, vec![&info.name])),
        }
    }
    if !caveats.is_empty() {
        writeln!(out, "\nCaveats:")?;
    }
    for (caveat, names) in caveats {
        writeln!(out, "{}: {caveat}", names.join(", "))?;
    }
    Ok(())
}

/// Which variants no rule chooses.
fn tell_unranked(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    let unranked = entries.iter().filter(|entry| !entry.info.ranked);
    let names: Vec<&str> = unranked.map(|entry| &*entry.info.name).collect();
    if !names.is_empty() {
        let names = names.join(", ");
        writeln!(
            out,
            "\nNot measured yet, so that no rule chooses them: {names}"
        )?;
    }
    Ok(())
}

/// What a pick chose, and with which configuration; or why nothing.
type Picked = (Pick, convforge::Result<(Arc<dyn Variant>, usize)>);

/// A problem, and where it would be computed.
struct Asked<'a> {
    problem: &'a Problem,
    /// What the device or the chip is called.
    place: String,
    limits: Limits,
    /// What every pick that chooses by itself comes to.
    picks: Vec<Picked>,
}

impl<'a> Asked<'a> {
    fn new(problem: &'a Problem, args: &Args) -> Result<Self, Failure> {
        let picks = Pick::automatic().into_iter();
        let picked = |choose: &dyn Fn(&Pick) -> _| -> Vec<Picked> {
            let picked = picks.map(|pick| {
                let choice = choose(&pick);
                (pick, choice)
            });
            picked.collect()
        };
        if let Some(chip) = &args.chip {
            let limits = Limits::of_chip(chip).unwrap_or_default();
            return Ok(Asked {
                problem,
                place: chip.clone(),
                picks: picked(&|pick| pick.choose_for(&limits, problem)),
                limits,
            });
        }
        let (device, _): (Device, _) = args.device.open()?;
        Ok(Asked {
            problem,
            place: device.to_string(),
            limits: device.limits(),
            picks: picked(&|pick| pick.choose(&device, problem)),
        })
    }

    fn ask(&self, variant: &dyn Variant) -> Answer {
        let query = Query::new(self.problem, 0, &self.limits);
        let name = &variant.info().name;
        let chose = |(_, choice): &&Picked| {
            let choice = choice.as_ref();
            choice.is_ok_and(|(chosen, _)| chosen.info().name == *name)
        };
        let picks = self.picks.iter().filter(chose);
        let answer = variant::plan(variant, self.limits.is_gpu(), &query);
        let (rank_us, reason) = match answer {
            Ok(plan) => (plan.us, None),
            Err(why) => (None, Some(why)),
        };
        Answer {
            supported: reason.is_none(),
            reason,
            rank_us,
            picked_by: picks.map(|(pick, _)| pick.to_string()).collect(),
        }
    }

    fn tell_picks(&self, out: &mut impl Write) -> io::Result<()> {
        for (pick, choice) in &self.picks {
            match choice {
                Ok((variant, config)) => {
                    writeln!(out, "{pick} picks {}", variant.info().spelled(*config))?;
                }
                Err(why) => writeln!(out, "{pick} picks none: {why}")?,
            }
        }
        Ok(())
    }
}
