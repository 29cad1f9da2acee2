//! Measuring which variant is the fastest on this device, and keeping it.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `tuner` | [`Tuner`]: what is measured, in which order, for how long |
//! | `operands` | what it is measured on |
//! | `copies` | [`Copies`]: a tensor of it as often as the L2 cache asks for |
//! | `timer` | taking a time |
//! | [`sampling`] | how many sets, samples and rests, in `convforge compare` too |
//! | `judge` | a check on the spot |

mod copies;
mod judge;
mod operands;
pub mod sampling;
#[cfg(test)]
mod tests;
mod timer;

use std::{
    collections::HashSet,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    Conv, Device, Error, Pick, Problem, Result, chain,
    select::tuned,
    tuning::{Conditions, Line, Outcome, Record, Store},
    variant::{self, Configured},
    variants,
};

pub use copies::Copies;
use judge::{Judge, Verdict};
use timer::{Budget, Timer};

/// How many times the least estimate of the variants that rules choose from a configuration of them may
/// be estimated to take, and still be measured. Those that rules do not choose are in any case.
pub const FACTOR: f64 = 4.0;

/// Measures the variants that can do a problem, and keeps all their times.
///
/// ```no_run
/// use std::time::Duration;
/// use convforge::{Device, Problem, Tuner};
///
/// let device = Device::gpu(0)?;
/// let problem: Problem = "mb64ic64ih56oc64oh56kh3ph1".parse()?;
/// // Once. Later it readies the fastest at once, in other processes too, where `Pick::Auto` finds it.
/// let conv = Tuner::new(Duration::from_secs(2)).conv(&device, &problem)?;
/// println!("{}: {}", conv.name(), conv.reason());
/// # Ok::<(), convforge::Error>(())
/// ```
///
/// What the rule would take is measured first, then each variant in its best configuration, then the other
/// configurations, from the least estimate to the largest, until time is up. Each is checked first: on whole numbers it must give what another variant of the
/// device gives, the plainest there is, within the rounding of what is stored; where they differ the host
/// computes that output and decides. That finds a
/// variant that is broken here. It tells nothing of how closely a math is kept, of infinities or of NaN:
/// for that there is `convforge check`. `convforge tune` measures with more care than this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tuner {
    store: Store,
    budget: Duration,
}

/// What a [`Tuner`] found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Tuned {
    /// All that is known of the problem now, in the store as well where that can be written.
    pub record: Record,
    /// How many variants were measured or checked now; of the others there were results.
    pub measured: usize,
    /// What went wrong on the way: variants that failed, files that could not be read or written.
    pub notes: Vec<String>,
}

/// A variant in one of its configurations that is to be measured.
#[derive(Clone)]
pub struct Entrant {
    /// What is measured.
    pub configured: Configured,
    /// What it is made of now, [`variant::source`].
    pub source: String,
    us: f64,
}

/// What is known of a problem, and what is not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Wanted {
    /// The results that still stand.
    pub known: Record,
    /// Who has none yet, in the order in which they are measured.
    pub missing: Vec<Entrant>,
    /// Who was left out, and which file could not be read.
    pub notes: Vec<String>,
}

impl Entrant {
    /// The variant with its configuration.
    pub fn name(&self) -> String {
        self.configured.name()
    }

    /// The line that says what became of it.
    pub fn line(&self, outcome: Outcome) -> Line {
        Line {
            name: self.name(),
            outcome,
            source: self.source.clone(),
        }
    }
}

impl fmt::Debug for Entrant {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Entrant({} of {})", self.name(), self.source)
    }
}

impl Tuner {
    /// Measures a problem for about so long, on a GPU with the rests between samples, what the rule takes in
    /// any case, and keeps the results in the user's [`Store`].
    pub fn new(budget: Duration) -> Self {
        Tuner {
            store: Store::of_user(),
            budget,
        }
    }

    /// Keeps the results there, and takes times under its conditions.
    #[must_use]
    pub fn store(self, store: Store) -> Self {
        Tuner { store, ..self }
    }

    /// Measures what there are no results of yet, and keeps them. The second time nothing is measured.
    ///
    /// # Errors
    /// [`Error::NoVariant`]; what keeps the device from computing at all. That a variant fails or that
    /// nothing can be kept is a note.
    pub fn tune(&self, device: &Device, problem: &Problem) -> Result<Tuned> {
        let Wanted {
            known: mut record,
            missing,
            mut notes,
        } = self.wanted(device, problem)?;
        let budget = Budget {
            began: Instant::now(),
            of: self.budget,
        };
        let mut measured = 0;
        let mut bench = match missing.is_empty() {
            true => None,
            false => Some(Bench::new(device, problem, record.conditions)?),
        };
        for (i, entrant) in missing.iter().enumerate() {
            let Some(bench) = &mut bench else { break };
            let outcome = if i > 0 && budget.is_spent() {
                Outcome::Late { budget: budget.of }
            } else {
                measured += 1;
                match bench.outcome(entrant, budget, &mut notes) {
                    Ok(outcome) => outcome,
                    Err(failed) => {
                        notes.push(format!("{}: {}", entrant.name(), failed.why));
                        match failed.for_good {
                            true => Outcome::Wrong,
                            false => continue,
                        }
                    }
                }
            };
            record.put(entrant.line(outcome));
        }
        if measured > 0 {
            notes.extend(self.store.put(&record).err());
        }
        Ok(Tuned {
            record,
            measured,
            notes,
        })
    }

    /// The fastest, ready to run, [tuned](Self::tune) where it was not before.
    ///
    /// # Errors
    /// As [`tune`](Self::tune) and [`Conv::new`].
    pub fn conv(&self, device: &Device, problem: &Problem) -> Result<Conv> {
        let tuned = self.tune(device, problem)?;
        Conv::first_of(device, problem, tuned::measured(device, &tuned.record))
    }

    /// What [`tune`](Self::tune) would measure, for who measures otherwise.
    ///
    /// # Errors
    /// [`Error::NoVariant`].
    pub fn wanted(&self, device: &Device, problem: &Problem) -> Result<Wanted> {
        let store = self.store_for(device);
        let ruled = Pick::Rule.choose(device, problem)?.name();
        let (mut entrants, mut notes) = entrants(device, problem);
        let model = device.model();
        let kept = store.get(&model, problem);
        let kept = kept.unwrap_or_else(|note| {
            notes.push(note);
            None
        });
        let mut known = Record::new(problem, &model, store.conditions());
        // Of no image nothing is ever launched.
        entrants.retain(|_| problem.n() > 0);
        // The rule's choice, the best of each variant, all others; each by estimates, as the sorts are stable.
        entrants.sort_by(|a, b| a.us.total_cmp(&b.us));
        let mut met = HashSet::new();
        let is_first = |entrant: &Entrant| met.insert(entrant.configured.info().name.clone());
        let (mut entrants, others): (Vec<_>, Vec<_>) = entrants.into_iter().partition(is_first);
        entrants.extend(others);
        entrants.sort_by_key(|entrant| entrant.name() != ruled);
        for line in kept.iter().flat_map(|record| &record.lines) {
            let is_known = |entrant: &Entrant| {
                let is_it = line.name == entrant.name() && line.source == entrant.source;
                is_it && !matches!(line.outcome, Outcome::Late { budget } if budget < self.budget)
            };
            let before = entrants.len();
            entrants.retain(|entrant| !is_known(entrant));
            if entrants.len() < before {
                known.put(line.clone());
            }
        }
        Ok(Wanted {
            known,
            missing: entrants,
            notes,
        })
    }

    /// Keeps results that were taken otherwise.
    ///
    /// # Errors
    /// A note, as [`Store::put`].
    pub fn keep(&self, record: &Record) -> Result<(), String> {
        self.store.put(record)
    }

    fn store_for(&self, device: &Device) -> Store {
        let conditions = self.store.conditions().on(device.is_gpu());
        self.store.clone().under(conditions)
    }
}

/// Every variant that can do a problem, in the configurations that may be the fastest; and who was left
/// out because of a library.
fn entrants(device: &Device, problem: &Problem) -> (Vec<Entrant>, Vec<String>) {
    let limits = device.limits();
    let (mut entrants, mut notes) = (Vec::new(), Vec::new());
    for variant in variants::all() {
        let info = variant.info();
        let mut able = Configured::plans_of(variant, &limits, problem);
        able.retain(|(_, plan)| !plan.is_in_constant_memory());
        if able.is_empty() {
            continue;
        }
        match variant::source(&**variant) {
            Err(why) => notes.push(format!("{} was left out: {}", info.name, chain(&why))),
            Ok(source) => entrants.extend(able.into_iter().map(|(configured, plan)| Entrant {
                configured,
                source: source.clone(),
                us: plan.us.unwrap_or(f64::INFINITY),
            })),
        }
    }
    let ranked = |entrant: &Entrant| entrant.configured.info().ranked;
    let estimates = entrants.iter().filter(|entrant| ranked(entrant));
    let least = estimates
        .map(|entrant| entrant.us)
        .fold(f64::INFINITY, f64::min);
    entrants.retain(|entrant| !ranked(entrant) || entrant.us <= FACTOR * least);
    (entrants, notes)
}

/// What variants of one problem are checked and timed with.
struct Bench {
    device: Device,
    problem: Problem,
    judge: Judge,
    timer: Timer,
}

/// Why a variant has no result.
struct Failed {
    why: String,
    /// Whether it would be no other another time.
    for_good: bool,
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Failed {
            for_good: matches!(error, Error::Unsupported { .. }),
            why: chain(&error),
        }
    }
}

impl Bench {
    fn new(device: &Device, problem: &Problem, conditions: Conditions) -> Result<Self> {
        Ok(Bench {
            device: device.clone(),
            problem: problem.clone(),
            judge: Judge::new(device, problem)?,
            timer: Timer::new(device, problem, conditions)?,
        })
    }

    /// Checks and times a variant.
    fn outcome(
        &mut self,
        entrant: &Entrant,
        budget: Budget,
        notes: &mut Vec<String>,
    ) -> Result<Outcome, Failed> {
        let conv = self.ready(entrant, &self.problem)?;
        match self.verdict(entrant, &conv)? {
            Verdict::Right => {}
            Verdict::Unknown(why) => {
                notes.push(format!("{} was not checked: {why}", entrant.name()))
            }
            Verdict::Wrong(why) => {
                return Err(Failed {
                    why: format!("wrong, {why}"),
                    for_good: true,
                });
            }
        }
        Ok(self.timer.time(&conv, budget)?)
    }

    /// What the check says of a convolution that is to be timed. A library's plan takes its time, so it is the
    /// same one that is judged, unless that is done on fewer images.
    fn verdict(&mut self, entrant: &Entrant, conv: &Conv) -> Result<Verdict> {
        match *self.judge.problem() == self.problem {
            true => self.judge.judge(conv),
            false => {
                let fewer = self.ready(entrant, self.judge.problem())?;
                self.judge.judge(&fewer)
            }
        }
    }

    fn ready(&self, entrant: &Entrant, problem: &Problem) -> Result<Conv> {
        Conv::with_variant(&self.device, problem, entrant.configured.clone())
    }
}
