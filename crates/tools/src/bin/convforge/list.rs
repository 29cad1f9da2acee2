//! `convforge list`: every variant, and which of them can do a problem.

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use comfy_table::{ColumnConstraint, ContentArrangement, LineStyle, Table, TableStyle};
use convforge::{
    Device, Error, Pick, Problem, check,
    measure::duration,
    variant::{self, Info, Kind, Query, Variant},
    variants,
};
use serde::Serialize;

use crate::{args::DeviceArgs, failure::Failure, terminal};

#[derive(clap::Args)]
pub struct Args {
    /// Say for this problem which variants support it and which one each pick chooses
    #[arg(long, value_name = "PROBLEM")]
    problem: Option<Problem>,
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
    /// Share of the generator's problems that it can do.
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
    let (device, _) = args.device.open()?;
    let picks = args.problem.as_ref().map(|problem| picks(&device, problem));
    let limits = check::nominal_limits();
    let entries: Vec<Entry> = variants::all()
        .iter()
        .map(|variant| Entry {
            info: variant.info(),
            coverage: check::coverage(&**variant, &limits),
            answer: args.problem.as_ref().map(|problem| {
                ask(
                    &**variant,
                    &device,
                    problem,
                    picks.as_deref().unwrap_or_default(),
                )
            }),
        })
        .collect();
    if args.json {
        terminal::print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }

    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    if let Some(problem) = &args.problem {
        writeln!(io::stdout().lock(), "{problem} on {device}")?;
        table.set_header(["variant", "can do it", "estimate", "picked by"]);
        for Entry { info, answer, .. } in &entries {
            let Some(answer) = answer else { continue };
            table.add_row([
                info.name.clone(),
                answer
                    .reason
                    .as_ref()
                    .map_or("yes".to_owned(), |why| format!("no: {why}")),
                answer.rank_us.map_or("-".to_owned(), duration),
                answer.picked_by.join("\n"),
            ]);
        }
    } else {
        table.set_header([
            "variant",
            "kind",
            "sums",
            "idea",
            "source",
            "configurations",
            "coverage",
        ]);
        for Entry { info, coverage, .. } in &entries {
            table.add_row([
                info.name.clone(),
                kind(info.kind).to_owned(),
                info.arithmetic.word().to_owned(),
                info.idea.clone(),
                info.source.clone(),
                info.configs.join(", "),
                format!("{:.0} %", coverage * 100.0),
            ]);
        }
    }
    // Names are for copying: the other columns are wrapped.
    if let Some(names) = table.column_mut(0) {
        names.set_constraint(ColumnConstraint::ContentWidth);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{table}")?;
    match &picks {
        Some(picks) => {
            for (pick, choice) in picks {
                match choice {
                    Ok((variant, config)) => {
                        writeln!(out, "{pick} picks {}", variant.info().spelled(*config))?;
                    }
                    Err(why) => writeln!(out, "{pick} picks none: {why}")?,
                }
            }
        }
        None => {
            writeln!(out, "\nPicks that choose by themselves:")?;
            for pick in Pick::automatic() {
                writeln!(out, "{pick}: {}", pick.explain()?)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a pick chose, and with which configuration; or why nothing.
type Picked = (Pick, Result<(Arc<dyn Variant>, usize), Error>);

/// What every pick that chooses by itself comes to.
fn picks(device: &Device, problem: &Problem) -> Vec<Picked> {
    let picks = Pick::automatic().into_iter();
    picks
        .map(|pick| {
            let choice = pick.choose(device, problem);
            (pick, choice)
        })
        .collect()
}

fn ask(variant: &dyn Variant, device: &Device, problem: &Problem, picks: &[Picked]) -> Answer {
    let limits = device.limits();
    let query = Query {
        problem,
        config: 0,
        limits: &limits,
    };
    let answer = variant::supports(variant, device, &query);
    Answer {
        supported: answer.is_ok(),
        rank_us: if answer.is_ok() {
            variant.rank(&query)
        } else {
            None
        },
        reason: answer.err(),
        picked_by: picks
            .iter()
            .filter(|(_, choice)| {
                choice
                    .as_ref()
                    .is_ok_and(|(chosen, _)| chosen.info().name == variant.info().name)
            })
            .map(|(pick, _)| pick.to_string())
            .collect(),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "kernel",
        Kind::Baseline => "baseline",
        Kind::Cpu => "cpu",
    }
}
