//! What was measured, before what is estimated.

use super::candidates::{Candidate, Candidates, Place, by_rank, find};
use crate::{
    Device, Limits, Problem,
    tuning::{Line, Outcome, Record, Store, shipped::Shipped},
    variant::{self, Configured, Info, Variant},
};

/// Where results come from, in words, and how they are had.
type Source<'a> = (&'a str, &'a dyn Fn() -> Result<Option<Record>, String>);

/// Those of the rule; before them the fastest by the first results that serve: kept or shipped ones.
pub(super) fn candidates(
    place: &Place,
    limits: &Limits,
    problem: &Problem,
    store: &Store,
) -> Candidates {
    let Some(model) = place.model() else {
        return by_rank(limits, problem, |_| true);
    };
    let store = &store.clone().under(store.conditions().on(limits.is_gpu()));
    let shipped = Shipped::of_model(&model);
    let shipped = shipped.filter(|_| store.conditions() == Default::default());
    // What is nearest is asked for only where there is nothing of the problem itself.
    let sources: [Source; 4] = [
        ("kept results", &|| store.get(&model, problem)),
        ("shipped results", &|| {
            Ok(shipped.and_then(|all| all.get(problem)))
        }),
        ("kept results", &|| store.nearest(&model, problem)),
        ("shipped results", &|| {
            Ok(shipped.and_then(|all| all.nearest(problem)))
        }),
    ];
    let asked = Asked {
        place,
        limits,
        problem,
    };
    asked.candidates(&sources)
}

/// The same by what was just measured on a device.
pub(crate) fn measured(device: &Device, record: &Record) -> Candidates {
    let asked = Asked {
        place: &Place::Here(device),
        limits: &device.limits(),
        problem: &record.problem,
    };
    asked.candidates(&[("just now", &|| Ok(Some(record.clone())))])
}

/// What records are asked about.
struct Asked<'a> {
    place: &'a Place<'a>,
    limits: &'a Limits,
    problem: &'a Problem,
}

impl Asked<'_> {
    fn candidates(&self, sources: &[Source]) -> Candidates {
        let mut candidates = by_rank(self.limits, self.problem, |_| true);
        if self.problem.n() == 0 {
            return candidates;
        }
        let mut wrong = Vec::new();
        for (whose, find) in sources {
            let first = match find() {
                Ok(None) => continue,
                Ok(Some(record)) => {
                    wrong.extend(self.wrong(&record));
                    // The sort is stable.
                    let order = &mut candidates.order;
                    order.sort_by_cached_key(|candidate| wrong.contains(&candidate.name()));
                    self.winner(&record, candidates.order.first(), &wrong)
                        .map_err(|why| format!("{whose}, of {}: {why}", record.problem))
                }
                Err(note) => Err(note),
            };
            match first {
                Ok(mut first) => {
                    first.reason += &format!(" ({whose})");
                    let name = first.name();
                    candidates.order.retain(|other| other.name() != name);
                    candidates.order.insert(0, first);
                    break;
                }
                Err(note) => candidates.notes.push(note),
            }
        }
        candidates
    }

    /// The fastest that a record names, that is what it was then and is not known to be wrong.
    ///
    /// Where it has no time of what the rule would take, nobody knows who is faster: a variant that was
    /// added or changed since would lose unseen.
    fn winner(
        &self,
        record: &Record,
        ruled: Option<&Candidate>,
        wrong: &[String],
    ) -> Result<Candidate, String> {
        if let Some(ruled) = ruled
            && !record
                .lines
                .iter()
                .any(|line| is_time_of(line, ruled.configured.info()))
        {
            return Err(format!(
                "there is no time of {} as it is now, which the rule takes",
                ruled.name()
            ));
        }
        let timed = record.fastest_first();
        let mut right = timed.iter().filter(|(_, line)| !wrong.contains(&line.name));
        let is_exact = record.problem == *self.problem;
        let serving = right.find_map(|(us, line)| Some((us, self.candidate(line, is_exact)?)));
        let Some((us, mut candidate)) = serving else {
            return Err("nothing in them is what it was when they were taken".to_owned());
        };
        let on = match record.problem.n() {
            _ if is_exact => "measured on this problem".to_owned(),
            1 => "measured on 1 image".to_owned(),
            images => format!("measured on {images} images"),
        };
        let count = timed.len();
        candidate.reason = format!("{on}: {us} us, the fastest of {count}");
        Ok(candidate)
    }

    /// What a line names, if it is here, is what it was then, and can do the problem. The number of a plan names
    /// another one of another number of images.
    fn candidate(&self, line: &Line, is_exact: bool) -> Option<Candidate> {
        let configured = named(line).ok()?;
        if !is_exact && configured.info().is_numbered(configured.config) {
            return None;
        }
        if !self.is_fresh(line, &*configured.variant) {
            return None;
        }
        let plan = configured.plan(self.limits, self.problem).ok()?;
        (!plan.is_in_constant_memory()).then(|| Candidate {
            plan: Some(plan),
            remembered: true,
            ..Candidate::new(configured, "")
        })
    }

    fn is_fresh(&self, line: &Line, variant: &dyn Variant) -> bool {
        match self.place {
            Place::Here(_) => variant::source(variant).is_ok_and(|now| now == line.source),
            Place::Elsewhere(_) => is_same_code(line, variant.info()),
        }
    }

    /// Who failed the check on this very problem, and is what it was then: that serves only where nothing
    /// else does, whatever the rule or other results say.
    fn wrong(&self, record: &Record) -> Vec<String> {
        let lines = record
            .lines
            .iter()
            .filter(|line| record.problem == *self.problem && line.outcome == Outcome::Wrong);
        let fresh = lines.filter(|line| {
            let named = named(line).ok();
            named.is_some_and(|named| self.is_fresh(line, &*named.variant))
        });
        fresh.map(|line| line.name.clone()).collect()
    }
}

/// The variant and the configuration that a line names.
fn named(line: &Line) -> crate::Result<Configured> {
    match line.name.split_once(':') {
        Some((name, config)) => find(name, Some(config)),
        None => find(&line.name, None),
    }
}

/// Whether a line is a time of a variant in any configuration, as far as is known without opening a
/// library: what serves in its place need not wait for that.
fn is_time_of(line: &Line, info: &Info) -> bool {
    let name = line.name.split(':').next();
    name == Some(&info.name) && line.outcome.us().is_some() && is_same_code(line, info)
}

fn is_same_code(line: &Line, info: &Info) -> bool {
    line.source.rsplit('/').next() == Some(&variant::code(info))
}
