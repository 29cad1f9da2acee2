//! What streams gain, in sentences whose numbers are those of the rows.

use crate::{
    measure::median,
    study::{HostMemory, OverlapRow},
};

/// A variant on a problem from one kind of memory: its rows with a time.
struct Case<'a>(Vec<&'a OverlapRow>);

/// From here to there the fastest run agrees with copies that take turns.
const AGREES: std::ops::RangeInclusive<f64> = 0.9..=1.1;

/// Sentences about pinned and about pageable memory, as far as there are such rows.
pub fn gains(rows: &[OverlapRow]) -> Vec<String> {
    let pinned = cases(rows, HostMemory::Pinned);
    let (copies, kernels): (Vec<&Case>, Vec<&Case>) =
        pinned.iter().partition(|case| case.is_bound_by_copies());
    let pageable = cases(rows, HostMemory::Pageable);
    let sentences = [by_copies(&copies), by_kernels(&kernels), turns(&pageable)];
    sentences.into_iter().flatten().collect()
}

fn cases(rows: &[OverlapRow], memory: HostMemory) -> Vec<Case<'_>> {
    let mut cases: Vec<Case> = Vec::new();
    for row in rows {
        if row.memory != memory || row.time.is_none() || row.bound_us().is_none() {
            continue;
        }
        let of = |row: &OverlapRow| (row.suite.clone(), row.layer.clone(), row.variant.clone());
        let same = |case: &&mut Case| {
            let first = case.0[0];
            of(first) == of(row) && first.problem == row.problem
        };
        match cases.iter_mut().find(same) {
            Some(case) => case.0.push(row),
            None => cases.push(Case(vec![row])),
        }
    }
    cases
}

impl Case<'_> {
    fn is_bound_by_copies(&self) -> bool {
        self.0[0].kernel_us < self.0[0].bound_us()
    }

    /// Of the chunks at a number of streams the fastest, in microseconds.
    fn time(&self, streams: usize) -> Option<f64> {
        let at = self.0.iter().filter(|row| row.streams == streams);
        at.filter_map(|row| Some(row.time?.median_us))
            .reduce(f64::min)
    }

    /// The fastest number of streams above one, and its time.
    fn fastest(&self) -> Option<(usize, f64)> {
        let many = self.0.iter().filter(|row| row.streams > 1);
        let times = many.filter_map(|row| Some((row.streams, row.time?.median_us)));
        times.min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn reached(&self, streams: usize) -> Option<f64> {
        Some(self.0[0].bound_us()? / self.time(streams)?)
    }

    /// What it takes if both copies take turns and only the kernels run beside them.
    fn in_turns_us(&self) -> Option<f64> {
        let row = self.0[0];
        Some((row.copy_in_us? + row.copy_out_us?).max(row.kernel_us?))
    }
}

/// How much of the time the slower copy alone is, at each number of streams.
fn by_copies(cases: &[&Case]) -> Option<String> {
    let rows = cases.iter().flat_map(|case| &case.0);
    let mut streams: Vec<usize> = rows.map(|row| row.streams).collect();
    streams.sort_unstable();
    streams.dedup();
    let shares = streams.iter().filter_map(|streams| {
        let reached = cases.iter().filter_map(|case| case.reached(*streams));
        let word = if *streams == 1 { "stream" } else { "streams" };
        Some(format!("{} with {streams} {word}", percent(reached)?))
    });
    let shares = shares.collect::<Vec<_>>().join(", ");
    let mut best = cases
        .iter()
        .filter_map(|case| Some(case.fastest()?.0))
        .collect::<Vec<_>>();
    best.sort_unstable();
    best.dedup();
    let best = match best[..] {
        [] => return None,
        [streams] => format!(" {streams} streams are fastest for each of them."),
        _ => String::new(),
    };
    Some(format!(
        "From pinned memory, where a copy takes longer than the kernels ({}), the slower copy alone is \
         this share of the time: {shares}.{best}",
        variants(cases)
    ))
}

fn by_kernels(cases: &[&Case]) -> Option<String> {
    let reached = cases
        .iter()
        .filter_map(|case| case.reached(case.fastest()?.0));
    Some(format!(
        "Where the kernels take longest ({}), they alone are {} of the time with the fastest number of \
         streams.",
        variants(cases),
        percent(reached)?
    ))
}

/// That from pageable memory the copies take turns, if the times say so.
fn turns(cases: &[Case]) -> Option<String> {
    let gains = cases
        .iter()
        .filter_map(|case| Some(case.time(1)? / case.fastest()?.1));
    let [least, most] = range(gains)?;
    let gain = format!(
        "From pageable memory the fastest number of streams is {least:.2} to {most:.2} times as fast \
         as one stream"
    );
    let ratios = cases
        .iter()
        .filter_map(|case| Some(case.fastest()?.1 / case.in_turns_us()?));
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    let [first, .., last] = ratios[..] else {
        return Some(gain + ".");
    };
    let median = median(&ratios);
    let because = match AGREES.contains(&median) {
        true => ": kernels run beside copies, but the two copies take turns",
        false => "",
    };
    Some(format!(
        "{gain}. It takes {median:.2} times (median; {first:.2} to {last:.2}) as long as both copies \
         alone one after the other, or the kernels where these take longer{because}."
    ))
}

/// `cudnn on l1 and l2`, of every variant.
fn variants(cases: &[&Case]) -> String {
    let mut named: Vec<(&str, String)> = Vec::new();
    for case in cases {
        let row = case.0[0];
        match named.iter_mut().find(|(name, _)| *name == row.variant) {
            Some((_, layers)) => *layers += &format!(" and {}", row.layer),
            None => named.push((&row.variant, row.layer.clone())),
        }
    }
    let named = named
        .iter()
        .map(|(name, layers)| format!("{name} on {layers}"));
    named.collect::<Vec<_>>().join(", ")
}

fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.fold(None, |range, value| match range {
        None => Some([value, value]),
        Some([least, most]) => Some([value.min(least), value.max(most)]),
    })
}

/// `93.5 to 94.9 %`.
fn percent(shares: impl Iterator<Item = f64>) -> Option<String> {
    let [least, most] = range(shares)?.map(|share| format!("{:.1}", share * 100.0));
    Some(match least == most {
        true => format!("{least}\u{a0}%"),
        false => format!("{least} to {most}\u{a0}%"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Spread, Status};

    /// Copies of 30 and 50 us, and kernels; at each number of streams a time.
    fn rows(memory: HostMemory, kernel_us: f64, times: &[(usize, f64)]) -> Vec<OverlapRow> {
        let row = |(streams, us): &(usize, f64)| OverlapRow {
            suite: "report-86".to_owned(),
            layer: "l1".to_owned(),
            problem: "mb10ic1ih8oc4kh3".parse().unwrap(),
            variant: format!("takes_{kernel_us}"),
            chose: None,
            streams: *streams,
            chunk: 1,
            memory,
            status: Status::Passed,
            reason: None,
            time: Spread::of(&[*us]),
            runs: 1,
            copy_in_us: Some(30.0),
            copy_out_us: Some(50.0),
            kernel_us: Some(kernel_us),
            timeline: Vec::new(),
        };
        times.iter().map(row).collect()
    }

    #[test]
    fn pinned_is_told_apart_by_what_takes_longest() {
        let mut all = rows(
            HostMemory::Pinned,
            20.0,
            &[(1, 100.0), (2, 54.0), (4, 60.0)],
        );
        all.extend(rows(HostMemory::Pinned, 70.0, &[(1, 150.0), (2, 72.0)]));
        let said = gains(&all);
        assert_eq!(
            said,
            [
                "From pinned memory, where a copy takes longer than the kernels (takes_20 on l1), the \
                 slower copy alone is this share of the time: 50.0\u{a0}% with 1 stream, \
                 92.6\u{a0}% with 2 streams, 83.3\u{a0}% with 4 streams. 2 streams are fastest for \
                 each of them.",
                "Where the kernels take longest (takes_70 on l1), they alone are 97.2\u{a0}% of the \
                 time with the fastest number of streams.",
            ]
        );
    }

    #[test]
    fn copies_take_turns_only_if_the_times_say_so() {
        let said = |many: f64| {
            let mut all = rows(HostMemory::Pageable, 20.0, &[(1, 100.0), (2, many)]);
            all.extend(rows(HostMemory::Pageable, 10.0, &[(1, 90.0), (2, many)]));
            gains(&all).concat()
        };
        let turns = said(80.0);
        assert!(turns.contains("1.12 to 1.25 times as fast"), "{turns}");
        assert!(turns.contains("takes 1.00 times") && turns.contains("take turns"));
        assert!(!said(55.0).contains("take turns"));
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert!(gains(&[]).is_empty());
        let mut untimed = rows(HostMemory::Pinned, 1.0, &[(1, 1.0)]);
        untimed[0].time = None;
        assert!(gains(&untimed).is_empty());
    }
}
