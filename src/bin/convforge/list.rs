//! `convforge list`: every variant, and which of them can do a problem.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use convforge::{
    Device, Pick, Problem, check,
    measure::duration,
    variant::{self, Info, Kind, Query, Variant},
};
use serde::Serialize;

use crate::{args::DeviceArgs, failure::Failure, terminal};

#[derive(clap::Args)]
pub struct Args {
    /// Say for this problem which variants support it and which one is picked
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
    /// Whether the rule picks it.
    picked: bool,
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let (device, _) = args.device.open()?;
    let picked = args
        .problem
        .as_ref()
        .and_then(|problem| Pick::Rule.choose(&device, problem).ok());
    let limits = check::nominal_limits();
    let entries: Vec<Entry> = variant::all()
        .iter()
        .map(|variant| Entry {
            info: variant.info(),
            coverage: check::coverage(&**variant, &limits),
            answer: args.problem.as_ref().map(|problem| {
                let picked = picked
                    .as_ref()
                    .map(|(picked, _)| picked.info().name.as_str());
                ask(&**variant, &device, problem, picked)
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
    if let Some(problem) = &args.problem {
        writeln!(io::stdout().lock(), "{problem} on {device}")?;
        table.set_header(["variant", "can do it", "estimate", "picked"]);
        for Entry { info, answer, .. } in &entries {
            let Some(answer) = answer else { continue };
            table.add_row([
                info.name.clone(),
                answer
                    .reason
                    .as_ref()
                    .map_or("yes".to_owned(), |why| format!("no: {why}")),
                answer.rank_us.map_or("-".to_owned(), duration),
                if answer.picked { "by the rule" } else { "" }.to_owned(),
            ]);
        }
    } else {
        table.set_header([
            "variant",
            "kind",
            "idea",
            "source",
            "configurations",
            "coverage",
        ]);
        for Entry { info, coverage, .. } in &entries {
            table.add_row([
                info.name.clone(),
                kind(info.kind).to_owned(),
                info.idea.clone(),
                info.source.clone(),
                info.configs.join("\n"),
                format!("{:.0} %", coverage * 100.0),
            ]);
        }
    }
    writeln!(io::stdout().lock(), "{table}")?;
    Ok(ExitCode::SUCCESS)
}

fn ask(variant: &dyn Variant, device: &Device, problem: &Problem, picked: Option<&str>) -> Answer {
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
        picked: picked == Some(&variant.info().name),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Kernel => "kernel",
        Kind::Baseline => "baseline",
        Kind::Cpu => "cpu",
    }
}
