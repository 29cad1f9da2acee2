//! What the profiler counted, variants against each other, and what bounds each.

use convforge::Problem;
use maud::{Markup, html};

use super::{
    bound::bound,
    html::{Cell, Line, Section, column, missing, table},
    results::{Results, words},
    steps::STEPS,
};
use crate::{
    measure::{bytes, table::significant},
    study::{Counters, Profile, ProfileRow},
};

pub fn section(results: &Results) -> Section {
    let body = html! {
        @if results.profiles.iter().all(|profile| profile.rows.is_empty()) {
            (missing("No profile was given, so nothing is said about what bounds a variant."))
        } @else {
            p {
                "The kernels of one call under Nsight Compute, which slows them down and leaves the "
                "clocks unlocked: shares count here, not times. Shares are of the peak. The sentence "
                "per variant follows from its counters by fixed rules: a unit at its limit bounds it; "
                "if none of the counted ones is, what its warps wait for most is said. Problems "
                "without counters are not spoken of."
            }
            @for profile in &results.profiles { (of_profile(profile)) }
        }
    };
    Section {
        id: "profiles",
        title: "What bounds them",
        body,
    }
}

fn of_profile(profile: &Profile) -> Markup {
    let mut problems: Vec<&Problem> = Vec::new();
    for row in &profile.rows {
        if !problems.contains(&&row.problem) {
            problems.push(&row.problem);
        }
    }
    html! {
        @for (i, problem) in problems.into_iter().enumerate() {
            @let rows = profile.rows.iter().filter(|row| row.problem == *problem);
            @let rows = rows.collect::<Vec<_>>();
            details open[i == 0] {
                summary { b { (words(problem)) } " " code { (problem) } }
                (sentences(&rows))
                (counters(problem, &rows))
                (comparisons(problem, &rows))
                p.small { (profile.tool) ", " (profile.device) ", driver " (profile.driver) ", csrc " (profile.csrc) }
            }
        }
    }
}

/// The kernels of each variant, in the order of the profile.
fn variants<'a>(rows: &[&'a ProfileRow]) -> Vec<(&'a str, Vec<&'a ProfileRow>)> {
    let mut variants: Vec<(&str, Vec<&ProfileRow>)> = Vec::new();
    for row in rows {
        match variants.iter_mut().find(|(name, _)| *name == row.variant) {
            Some((_, kernels)) => kernels.push(row),
            None => variants.push((&row.variant, vec![row])),
        }
    }
    variants
}

/// The kernel in which a variant spends most of its time; the first where no durations were read.
pub fn longest<'a>(kernels: &[&'a ProfileRow]) -> Option<&'a ProfileRow> {
    let duration = |row: &ProfileRow| row.counters.duration_us.unwrap_or(0.0);
    let longer = |a: &'a ProfileRow, b| if duration(b) > duration(a) { b } else { a };
    kernels.iter().copied().reduce(longer)
}

/// The time of all kernels of a variant.
fn total(kernels: &[&ProfileRow]) -> Option<f64> {
    kernels
        .iter()
        .map(|kernel| kernel.counters.duration_us)
        .sum()
}

fn sentences(rows: &[&ProfileRow]) -> Markup {
    let said = variants(rows).into_iter().filter_map(|(name, kernels)| {
        let kernel = longest(&kernels)?;
        let sentence = bound(&kernel.counters)?.sentence;
        let share = kernel.counters.duration_us.zip(total(&kernels));
        let share = share
            .filter(|_| kernels.len() > 1)
            .map(|(us, all)| us / all * 100.0);
        Some((name, kernel, share, sentence))
    });
    html! {
        ul.bounds {
            @for (name, kernel, share, sentence) in said {
                li {
                    code { (name) } ": "
                    @if let Some(share) = share {
                        (format!("{share:.0}\u{a0}% of the time in ")) code { (kernel.kernel) } ". "
                    }
                    (sentence.replace(" %", "\u{a0}%"))
                    @if let Some((line, share)) = hottest(kernel) {
                        " Hottest line: " code { (line) } (format!(", {share:.0}\u{a0}%."))
                    }
                }
            }
        }
    }
}

fn hottest(kernel: &ProfileRow) -> Option<(&String, &f64)> {
    kernel.hot_lines.iter().max_by(|a, b| a.1.total_cmp(b.1))
}

fn counters(problem: &Problem, rows: &[&ProfileRow]) -> Markup {
    let columns = [
        column("variant", ""),
        column("kernel", ""),
        column("duration", "under the profiler"),
        column("SM", "throughput of the multiprocessors, of the peak"),
        column("memory", "throughput of the memories, of the peak"),
        column("L1", "L1 and shared memory, of the peak"),
        column("L2", "of the peak"),
        column("DRAM", "device memory, of the peak"),
        column("FMA", "the FMA units, of the peak"),
        column("ALU", "integer arithmetic, of the peak"),
        column("LSU", "the load and store units, of the peak"),
        column("tensor", "the tensor cores, of the peak"),
        column("issue", "issue slots in use"),
        column("occupancy", "warps resident, of the most possible"),
        column(
            "possible",
            "occupancy that registers and shared memory allow",
        ),
        column("registers", "of a thread"),
        column("shared", "shared memory of a block"),
        column("DRAM bytes", "read and written"),
        column("stall", "the most frequent reason to wait"),
        column("of stalls", "its share"),
    ];
    let line = |row: &&ProfileRow| {
        let c = &row.counters;
        let moved = c
            .dram_read_bytes
            .zip(c.dram_write_bytes)
            .map(|(read, written)| read + written);
        let kernel = match row.launches {
            1 => row.kernel.clone(),
            launches => format!("{} × {launches}", row.kernel),
        };
        Line {
            class: "",
            cells: vec![
                Cell::name(&row.variant),
                Cell::name(&kernel),
                Cell::time(c.duration_us),
                Cell::percent(c.sm_pct),
                Cell::percent(c.memory_pct),
                Cell::percent(c.l1_pct),
                Cell::percent(c.l2_pct),
                Cell::percent(c.dram_pct),
                Cell::percent(c.fma_pct),
                Cell::percent(c.alu_pct),
                Cell::percent(c.lsu_pct),
                Cell::percent(c.tensor_pct),
                Cell::percent(c.issue_pct),
                Cell::percent(c.occupancy_pct),
                Cell::percent(c.theoretical_occupancy_pct),
                Cell::number(c.registers, |n| n.to_string()),
                Cell::number(c.shared_bytes, |n| bytes(n as usize)),
                Cell::number(moved, |n| bytes(n as usize)),
                c.stall.as_ref().map_or(Cell::Nothing, Cell::text),
                Cell::percent(c.stall_pct),
            ],
        }
    };
    let lines: Vec<Line> = rows.iter().map(line).collect();
    let problem_text = problem.to_string();
    let keys = [("of", "counters"), ("problem", &*problem_text)];
    table(
        &format!("Counters on {}", words(problem)),
        &keys,
        &columns,
        &lines,
    )
}

/// A counter that is compared.
type Compared = (&'static str, fn(&Counters) -> Option<f64>);
const COMPARED: [Compared; 8] = [
    ("SM", |c| c.sm_pct),
    ("memory", |c| c.memory_pct),
    ("L1", |c| c.l1_pct),
    ("L2", |c| c.l2_pct),
    ("DRAM", |c| c.dram_pct),
    ("occupancy", |c| c.occupancy_pct),
    ("registers", |c| c.registers),
    ("instructions", |c| c.instructions),
];

/// Variants against those that they build on, as the reports compare them, or where none of those was
/// counted all against the first: the difference of every counter in percent of the one before.
fn comparisons(problem: &Problem, rows: &[&ProfileRow]) -> Markup {
    let variants = variants(rows);
    // A variant stands in a profile with its default configuration, or with others.
    let find = |name: &str| {
        let mut found = variants.iter();
        found.find(|(variant, _)| variant.split(':').next() == Some(name))
    };
    let change = |before: Option<f64>, after: Option<f64>| {
        let change = before.zip(after).filter(|(before, _)| *before > 0.0);
        let percent = change.map(|(before, after)| (after / before - 1.0) * 100.0);
        Cell::number(percent, |percent| format!("{percent:+.0} %"))
    };
    let steps = STEPS.iter();
    let mut pairs: Vec<_> = steps
        .filter_map(|step| Some((find(step.from)?, find(step.to)?)))
        .collect();
    if let ([first, others @ ..], true) = (&variants[..], pairs.is_empty()) {
        pairs.extend(others.iter().map(|other| (first, other)));
    }
    let lines = pairs
        .into_iter()
        .filter_map(|((from, before), (to, after))| {
            let (first, second) = (longest(before)?, longest(after)?);
            let mut cells = vec![
                Cell::name(from),
                Cell::name(to),
                Cell::number(
                    total(before).zip(total(after)).map(|(b, a)| b / a),
                    significant,
                ),
                change(total(before), total(after)),
            ];
            let compared = COMPARED.iter();
            cells.extend(compared.map(|(_, of)| change(of(&first.counters), of(&second.counters))));
            Some(Line { class: "", cells })
        });
    let lines: Vec<Line> = lines.collect();
    let mut columns = vec![
        column("from", ""),
        column("to", ""),
        column("times faster", "of all kernels, under the profiler"),
        column("duration", "of all kernels"),
    ];
    let names = COMPARED.iter().map(|(name, _)| *name);
    columns.extend(names.map(|name| column(name, "of the longest kernel")));
    let problem_text = problem.to_string();
    let keys = [("of", "comparison"), ("problem", &*problem_text)];
    html! {
        @if !lines.is_empty() {
            h4 { "Against each other" }
            p {
                "The difference of each counter, in percent of the variant before. Shares are of the "
                "longest kernel of each."
            }
            (table(&format!("Differences on {}", words(problem)), &keys, &columns, &lines))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(variant: &str, kernel: &str, us: f64) -> ProfileRow {
        ProfileRow {
            variant: variant.to_owned(),
            problem: "mb10ic1ih8oc4kh3".parse().unwrap(),
            kernel: kernel.to_owned(),
            launches: 1,
            counters: Counters {
                duration_us: Some(us),
                dram_pct: Some(us / 2.0),
                ..Counters::default()
            },
            hot_lines: [("outputs.cuh:42".to_owned(), 31.0)].into(),
            divergent_lines: Default::default(),
        }
    }

    #[test]
    fn a_variant_is_judged_by_its_longest_kernel() {
        let rows = [
            row("im2col_gemm_shared", "unroll", 40.0),
            row("im2col_gemm_shared", "gemm", 160.0),
            row("direct_naive", "direct", 400.0),
        ];
        let rows: Vec<&ProfileRow> = rows.iter().collect();
        let text = sentences(&rows).into_string();
        assert!(
            text.contains("80\u{a0}% of the time in <code>gemm</code>"),
            "{text}"
        );
        assert!(
            text.contains("<code>outputs.cuh:42</code>, 31\u{a0}%"),
            "{text}"
        );
        // 400 us to 200 us, DRAM 200 % to 80 % of the peak of this made-up device.
        let text = comparisons(&rows[0].problem, &rows).into_string();
        for part in [">2.00<", ">-50 %<", ">-60 %<"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn without_a_pair_nothing_is_compared() {
        let row = row("direct_naive", "direct", 1.0);
        assert_eq!(comparisons(&row.problem, &[&row]).into_string(), "");
    }
}
