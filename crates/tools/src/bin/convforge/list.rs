//! `convforge list`: every variant, and which of them can do a problem.

mod estimates;

use std::{
    fmt,
    io::{self, Write},
    iter,
    process::ExitCode,
    sync::Arc,
};

use clap::builder::PossibleValuesParser;
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use convforge::{
    Choice, Device, Error, Limits, Pick, Problem, chain,
    variant::{Configured, Info, Plan, Variant},
};
use convforge_check as check;
use convforge_tools::{
    Contenders,
    measure::{Look, duration},
    suite::Layer,
};
use serde::Serialize;

use crate::{
    args::{DeviceArgs, ProblemArgs},
    failure::Failure,
    terminal,
};

#[derive(clap::Args)]
#[command(
    after_help = "For example, what an H200 would do, on a machine without one:\n  \
                  convforge list --problem mb64ic64ih56oc64oh56kh3ph1+f16+nhwc --as h200"
)]
pub struct Args {
    #[command(flatten)]
    problems: ProblemArgs,
    /// Answer as this chip would, which need not be there; nor need its driver and libraries
    #[arg(long = "as", value_name = "CHIP", conflicts_with = "device")]
    #[arg(value_parser = PossibleValuesParser::new(Limits::CHIPS))]
    chip: Option<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Print a JSON array with one object per variant, of each problem
    #[arg(long)]
    json: bool,
    /// Print nothing but a JSON object per line for each configuration that can do a problem: what it
    /// estimates of its time in microseconds, and whether the rule may take it
    #[arg(long, conflicts_with = "json")]
    estimates: bool,
}

/// A line under the header, nothing else.
const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A variant in the list.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(flatten)]
    info: &'a Info,
    /// Share of the generator's problems that it can do on an H200, where it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    coverage: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer>,
}

/// What a variant says to a problem.
#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    layer: Layer,
    supported: bool,
    reason: Option<String>,
    /// The configuration that does it where the first one cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<String>,
    /// Its own estimate of its time.
    rank_us: Option<f64>,
    /// The picks that choose it.
    picked_by: Vec<String>,
    /// The reason of each of them.
    picked_because: Vec<String>,
}

/// Where problems would be computed.
enum Place {
    Chip(String, Limits),
    Here(Device),
}

impl Place {
    /// The chip that was named, or the device.
    fn of(args: &Args) -> Result<Self, Failure> {
        Ok(match &args.chip {
            Some(chip) => Place::Chip(chip.clone(), Limits::of_chip(chip).unwrap_or_default()),
            None => Place::Here(args.device.open()?.0),
        })
    }

    fn limits(&self) -> Limits {
        match self {
            Place::Chip(_, limits) => limits.clone(),
            Place::Here(device) => device.limits(),
        }
    }

    fn choose(&self, pick: &Pick, problem: &Problem) -> convforge::Result<Choice> {
        match self {
            Place::Chip(_, limits) => pick.choose_for(limits, problem),
            Place::Here(device) => pick.choose(device, problem),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Chip(chip, _) => f.write_str(chip),
            Place::Here(device) => device.fmt(f),
        }
    }
}

pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let layers = args.problems.layers()?;
    if layers.is_empty() && args.chip.is_some() {
        return Err(Failure::Usage(
            "--as takes a problem: give --problem, --suite, --model or sizes".to_owned(),
        ));
    }
    if layers.is_empty() && args.estimates {
        return Err(Failure::Usage(
            "--estimates takes a problem: give --problem, --suite, --model or sizes".to_owned(),
        ));
    }
    if layers.is_empty() {
        return everything(args);
    }
    let place = Place::of(args)?;
    if args.estimates {
        return estimates::print(&layers, &place.limits());
    }
    let all = Contenders::new();
    if args.json {
        let coverage = coverage(&all);
        let list = |layer| entries(&all, &coverage, Some(&Asked::new(layer, &place)));
        terminal::print_json(&layers.iter().flat_map(list).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    for (i, layer) in layers.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        Asked::new(layer, &place).tell(&mut out, &all)?;
    }
    if args.chip.is_some() && cfg!(not(feature = "cuda")) {
        let said =
            "This build has no CUDA (feature `cuda`): of what runs on a chip it has nothing.";
        say(&mut out, said)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every variant, and everything that is said of all problems.
fn everything(args: &Args) -> Result<ExitCode, Failure> {
    // A device that is not there is said, as everywhere.
    args.device.open()?;
    let all = Contenders::new();
    let entries = entries(&all, &coverage(&all), None);
    if args.json {
        terminal::print_json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    writeln!(out, "{}", descriptions(&entries, terminal::look()))?;
    tell_caveats(&mut out, &entries)?;
    tell_unranked(&mut out, &entries)?;
    writeln!(out)?;
    say(&mut out, "Picks that choose by themselves:")?;
    for pick in Pick::automatic() {
        say(&mut out, &format!("{pick}: {}", pick.explain()?))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line of prose.
fn say(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", terminal::look().paragraph("", text))
}

/// The share of the generator's problems that each can do on an H200, which takes a while.
fn coverage(all: &Contenders) -> Vec<f64> {
    // The same number on every machine.
    let nominal = Limits::of_chip("h200").unwrap_or_default();
    let variants = all.all().iter();
    variants
        .map(|variant| check::coverage(&**variant, &nominal))
        .collect()
}

/// Everyone, with their coverage where it is shown, and what they answer.
fn entries<'a>(all: &'a Contenders, coverage: &[f64], asked: Option<&Asked>) -> Vec<Entry<'a>> {
    let entries = all.all().iter().enumerate().map(|(i, variant)| Entry {
        info: variant.info(),
        coverage: coverage.get(i).copied(),
        answer: asked.map(|asked| asked.ask(variant)),
    });
    entries.collect()
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

/// What each variant says to the problem, first those that can do it; for a shared reason the number of
/// its note.
fn answers(entries: &[Entry], shared: &[&str], look: Look) -> String {
    let answered = entries.iter();
    let mut answered: Vec<_> = answered
        .filter_map(|entry| Some((entry.info, entry.answer.as_ref()?)))
        .collect();
    // The sort is stable: both parts are in the order of the library.
    answered.sort_by_key(|(_, answer)| !answer.supported);
    let rows = answered.into_iter().map(|(info, answer)| {
        let note = |why: &String| shared.iter().position(|known| known == why);
        let (can, why) = match &answer.reason {
            Some(why) => match note(why) {
                Some(note) => (format!("no ({})", note + 1), String::new()),
                None => ("no".to_owned(), why.clone()),
            },
            None => ("yes".to_owned(), String::new()),
        };
        let name = match &answer.config {
            Some(config) => format!("{}:{config}", info.name),
            None => info.name.clone(),
        };
        vec![
            name,
            can,
            answer.rank_us.map_or("-".to_owned(), duration),
            answer.picked_by.join(", "),
            why,
        ]
    });
    let header = ["variant", "can do it", "estimate", "picked by", "why not"];
    listing(header, 3, &rows.collect::<Vec<_>>(), look)
}

/// What each variant is.
fn descriptions(entries: &[Entry], look: Look) -> String {
    let rows = entries.iter().map(|Entry { info, coverage, .. }| {
        vec![
            info.name.clone(),
            info.kind.word().to_owned(),
            info.arithmetic.word().to_owned(),
            coverage.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
            info.idea.clone(),
            info.source.clone(),
            info.configs.join(", "),
        ]
    });
    let header = [
        "variant",
        "kind",
        "sums",
        "coverage",
        "idea",
        "source",
        "configurations",
    ];
    listing(header, 4, &rows.collect::<Vec<_>>(), look)
}

/// Rows of so many short cells, then long ones: a line each, or, where a terminal has no room for that,
/// the long cells as paragraphs under the short ones, and these under the first where they have none
/// either.
fn listing<const N: usize>(
    header: [&str; N],
    short: usize,
    rows: &[Vec<String>],
    look: Look,
) -> String {
    let whole = table(&header, rows.iter().map(|row| &row[..]));
    let has_room = |text: &str| {
        let mut widths = text.lines().map(|line| line.chars().count());
        look.width
            .is_none_or(|most| widths.all(|width| width <= most))
    };
    if has_room(&whole) {
        return whole;
    }
    let heads = table(&header[..short], rows.iter().map(|row| &row[..short]));
    if !has_room(&heads) {
        let rows = rows.iter().map(|row| stacked(&header, short, row, look));
        return rows.collect::<Vec<_>>().join("\n");
    }
    let (mut lines, mut rows) = (heads.lines(), rows.iter());
    let mut text: Vec<String> = lines.by_ref().take(2).map(str::to_owned).collect();
    for (line, row) in lines.zip(&mut rows) {
        text.push(line.to_owned());
        let long = labelled(&header[short..], &row[short..]);
        text.extend(long.map(|said| look.paragraph("     ", &said)));
    }
    text.join("\n")
}

/// A row with its first cell alone on a line; beneath it the other short cells together, then each long
/// one.
fn stacked(header: &[&str], short: usize, row: &[String], look: Look) -> String {
    let together: Vec<String> = labelled(&header[1..short], &row[1..short]).collect();
    let beneath = iter::once(together.join(", ")).chain(labelled(&header[short..], &row[short..]));
    let beneath = beneath.map(|said| look.paragraph("  ", &said));
    let lines: Vec<String> = iter::once(row[0].clone()).chain(beneath).collect();
    lines.join("\n")
}

/// Cells behind what their columns are called, without the empty ones.
fn labelled(header: &[&str], cells: &[String]) -> impl Iterator<Item = String> {
    let said = header
        .iter()
        .zip(cells)
        .filter(|(_, cell)| !cell.is_empty());
    said.map(|(what, cell)| format!("{what}: {cell}"))
}

/// A table without blanks at the ends of its lines.
fn table<'a>(header: &[&str], rows: impl Iterator<Item = &'a [String]>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    text.lines()
        .map(str::trim_end)
        .collect::<Vec<_>>()
        .join("\n")
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
        say(out, &format!("{}: {caveat}", names.join(", ")))?;
    }
    Ok(())
}

/// Which variants no rule chooses.
fn tell_unranked(out: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    let unranked = entries.iter().filter(|entry| !entry.info.ranked);
    let names: Vec<&str> = unranked.map(|entry| &*entry.info.name).collect();
    if !names.is_empty() {
        let names = names.join(", ");
        writeln!(out)?;
        say(
            out,
            &format!("Run by name alone, as no rule chooses them yet: {names}"),
        )?;
    }
    Ok(())
}

/// What a pick chose, or why nothing.
type Picked = (Pick, convforge::Result<Choice>);

/// A problem, and where it would be computed.
struct Asked<'a> {
    layer: &'a Layer,
    place: &'a Place,
    limits: Limits,
    /// What every pick that chooses by itself comes to.
    picks: Vec<Picked>,
}

impl<'a> Asked<'a> {
    fn new(layer: &'a Layer, place: &'a Place) -> Self {
        let picked = |pick: Pick| {
            let choice = place.choose(&pick, &layer.problem);
            (pick, choice)
        };
        Asked {
            layer,
            place,
            limits: place.limits(),
            picks: Pick::automatic().into_iter().map(picked).collect(),
        }
    }

    /// What everyone says to the problem, and who is picked.
    fn tell(&self, out: &mut impl Write, all: &Contenders) -> io::Result<()> {
        let entries = entries(all, &[], Some(self));
        let shared = shared(&entries);
        say(out, &format!("{} on {}", self.layer.title(), self.place))?;
        if let nodes @ [_, _, ..] = &self.layer.nodes[..] {
            let names = nodes.join(", ");
            say(out, &format!("{} nodes: {names}", nodes.len()))?;
        }
        writeln!(out, "{}", answers(&entries, &shared, terminal::look()))?;
        for (note, why) in shared.iter().enumerate() {
            say(out, &format!("({}) {why}", note + 1))?;
        }
        self.tell_picks(out)
    }

    /// The first configuration that can do it, and its plan; or why the default cannot.
    fn first_able(&self, variant: &Arc<dyn Variant>) -> Result<(Configured, Plan), String> {
        let plan = |one: Configured| {
            let plan = one.plan(&self.limits, &self.layer.problem)?;
            Ok((one, plan))
        };
        plan(variant.clone().into()).or_else(|why| {
            let mut others = Configured::all_of(variant).skip(1);
            others.find_map(|one| plan(one).ok()).ok_or(why)
        })
    }

    fn ask(&self, variant: &Arc<dyn Variant>) -> Answer {
        let name = &variant.info().name;
        let chose = |(_, choice): &&Picked| {
            let choice = choice.as_ref();
            choice.is_ok_and(|chosen| chosen.configured.info().name == *name)
        };
        let picked = || self.picks.iter().filter(chose);
        let (rank_us, config, reason) = match self.first_able(variant) {
            Ok((Configured { config, .. }, plan)) => (plan.us, config, None),
            Err(why) => (None, 0, Some(why)),
        };
        // Of the default nothing is said.
        let other = (config > 0).then(|| variant.info().configs[config].clone());
        Answer {
            layer: self.layer.clone(),
            supported: reason.is_none(),
            reason,
            config: other,
            rank_us,
            picked_by: picked().map(|(pick, _)| pick.to_string()).collect(),
            picked_because: picked()
                .filter_map(|(_, choice)| Some(choice.as_ref().ok()?.reason.clone()))
                .collect(),
        }
    }

    fn tell_picks(&self, out: &mut impl Write) -> io::Result<()> {
        for (pick, choice) in &self.picks {
            match choice {
                Ok(choice) => {
                    let Choice { reason, .. } = choice;
                    say(out, &format!("{pick} picks {}, {reason}", choice.name()))?;
                }
                Err(Error::NoVariant { why, .. }) => {
                    say(out, &format!("{pick} picks none: {why}"))?;
                }
                Err(why) => say(out, &format!("{pick} picks none: {}", chain(why)))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The list of all variants, and what they answer to a problem.
    fn tables(look: Look) -> [String; 2] {
        let all = Contenders::new();
        let problem = "mb16ic64ih56oc64oh56kh3ph1".parse().unwrap();
        let layer = Layer::alone(problem);
        let place = Place::Here(Device::cpu());
        let asked = Asked::new(&layer, &place);
        [
            descriptions(&entries(&all, &[], None), look),
            answers(&entries(&all, &[], Some(&asked)), &[], look),
        ]
    }

    fn narrow(width: usize) -> Look {
        Look {
            width: Some(width),
            ..Look::default()
        }
    }

    #[cfg(feature = "cuda")]
    #[test]
    fn a_variant_can_do_what_one_of_its_configurations_can() {
        // A filter that is too large for constant memory.
        let layer = Layer::alone("mb2ic4ih20oc512oh16kh5".parse().unwrap());
        let place = Place::Chip("h200".to_owned(), Limits::of_chip("h200").unwrap());
        let all = Contenders::new();
        let asked = Asked::new(&layer, &place);
        let text = answers(&entries(&all, &[], Some(&asked)), &[], Look::default());
        let line = text.lines().find(|line| line.contains("small_fma"));
        let words: Vec<&str> = line.unwrap().split_whitespace().collect();
        assert_eq!(words[..2], ["small_fma:weights=shared", "yes"]);
    }

    /// Without the commas that cells get between them.
    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split_whitespace()
            .map(|word| word.trim_end_matches(','))
    }

    #[test]
    fn a_narrow_list_cuts_no_word_and_only_words_are_wider() {
        let whole = tables(Look::default());
        for width in [120, 66, 60, 50, 20, 1] {
            for (text, whole) in tables(narrow(width)).iter().zip(&whole) {
                for line in text.lines() {
                    let is_word = words(line).count() == 1;
                    assert!(is_word || line.chars().count() <= width, "{width}: {line}");
                }
                let known: HashSet<&str> = words(text).collect();
                let cut = whole.lines().skip(2).flat_map(words);
                let cut: Vec<&str> = cut.filter(|word| !known.contains(word)).collect();
                assert!(cut.is_empty(), "{width}: {cut:?} are not in\n{text}");
            }
        }
    }

    #[test]
    fn the_narrowest_list_has_names_alone_and_the_rest_beneath_them() {
        let row = ["small", "kernel", "", "a tile per block", ""].map(str::to_owned);
        let header = ["variant", "kind", "sums", "idea", "source"];
        let text = listing(header, 3, &[row.to_vec(), row.to_vec()], narrow(16));
        let lines = ["small", "  kind: kernel", "  idea: a tile", "    per block"].join("\n");
        assert_eq!(text, format!("{lines}\n{lines}"));
    }
}
