//! Every plan that cuDNN has for a problem: found, built, timed, and the best ones checked.
//!
//! Timing happens twice. All plans run once after warming up, which tells the slow ones apart; the
//! fastest are measured by [`crate::measure::time`], as every variant is: cold, in graphs, in turns. The
//! fastest must then pass what the project will ask of it before it prints a time, or the next one
//! has its place.
//!
//! There are two winners. Plans that add up products race for `cudnn`; transforms, by cuDNN's own
//! notes, race for `cudnn_transform`, as far as they are faster than the winner of the others.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use cudnn_sys::cudnnBackendHeurMode_t as Mode;
use rayon::prelude::*;

use super::{
    Options,
    call::Handle,
    engine::Config,
    graph::Graph,
    legacy,
    plan::Candidate,
    race::{Race, Runner, first_right},
    rules::{Form, excluded},
    tally::Tally,
};
use crate::{
    Device, Error, Math, Problem, Result,
    check::{self, Outcome},
    gpu::Gpu,
    measure,
    variant::{Arithmetic, Info},
};

/// Seed of all data.
const SEED: u64 = 1;

/// What a search found.
pub(super) struct Found {
    /// The fastest plan that adds up products, and is right.
    exact: Option<Arc<Candidate>>,
    /// The fastest of all plans that are right, if that is a transform.
    transform: Option<Arc<Candidate>>,
    /// What was found on the way, for the reports.
    pub(super) report: String,
}

impl Found {
    /// The winner among plans of this arithmetic.
    pub(super) fn winner(&self, arithmetic: Arithmetic) -> Option<&Arc<Candidate>> {
        match arithmetic {
            Arithmetic::Exact => self.exact.as_ref(),
            Arithmetic::Transform => self.transform.as_ref(),
        }
    }
}

/// A search for the fastest plans of one problem.
pub(super) struct Search<'a> {
    pub(super) device: &'a Device,
    pub(super) gpu: &'a Gpu,
    pub(super) handle: &'a Arc<Handle>,
    pub(super) problem: &'a Problem,
    pub(super) info: &'a Info,
    pub(super) options: &'a Options,
}

/// What is yet to be built.
enum Proposal {
    Graph(Arc<Graph>, Config),
    Legacy(legacy::Choice),
}

/// Where engines are named.
#[derive(Clone, Copy, PartialEq)]
enum Source {
    A,
    B,
    Fallback,
    /// All engines there are.
    Engines,
}

impl Source {
    const ALL: [Source; 4] = [Source::A, Source::B, Source::Fallback, Source::Engines];

    fn name(self) -> &'static str {
        match self {
            Source::A => "heuristic mode A",
            Source::B => "heuristic mode B",
            Source::Fallback => "the fallback list",
            Source::Engines => "the list of engines",
        }
    }

    /// The engines, and how many were announced.
    fn ask(self, graph: &Graph, math: Math) -> Result<(Vec<Config>, usize)> {
        let mode = match self {
            Source::A => Mode::CUDNN_HEUR_MODE_A,
            Source::B => Mode::CUDNN_HEUR_MODE_B,
            Source::Fallback => Mode::CUDNN_HEUR_MODE_FALLBACK,
            Source::Engines => {
                let engines = Config::every(graph, math == Math::Fp32)?;
                let count = engines.len();
                return Ok((engines, count));
            }
        };
        Config::propose(graph, mode)
    }
}

impl Search<'_> {
    /// The fastest plans that are right, and what was found on the way.
    ///
    /// # Errors
    /// [`Error::Check`] where there are plans that add up products and all are wrong, or what the
    /// device answers.
    pub(super) fn run(&self) -> Result<Found> {
        let mut tally = Tally::default();
        let deadline = Instant::now() + self.options.budget;
        let proposals = self.proposals(&mut tally);
        // Some problems have no plan that compiles; but then NVRTC's absence is not the reason.
        if tally.compile == 0
            && let Err(missing) = cudnn_sys::NVRTC.open()
        {
            tally.remark(format!(
                "{missing}: cuDNN leaves out the plans that it would compile at run time"
            ));
        }
        let candidates = self.build(proposals, deadline, &mut tally)?;
        let runners = self.race().first_round(candidates, &mut tally)?;
        let adds = |runner: &Runner| runner.candidate.arithmetic == Arithmetic::Exact;
        let (sums, transforms): (Vec<_>, Vec<_>) = runners.into_iter().partition(adds);
        let tried = !sums.is_empty();
        let exact = self.winner(sums, f64::INFINITY, &mut tally)?;
        if tried && exact.is_none() {
            return Err(Error::Check(format!("no plan of cuDNN is right: {tally}")));
        }
        let best = exact.as_ref().map_or(f64::INFINITY, |winner| winner.us);
        let transform = self.winner(transforms, best, &mut tally)?;
        if let Some(Runner { candidate, us, .. }) = &transform {
            let choice = &candidate.choice;
            tally.remark(format!("the fastest transform is {choice} at {us:.1} us"));
        }
        Ok(Found {
            exact: exact.map(|runner| runner.candidate),
            transform: transform.map(|runner| runner.candidate),
            report: tally.to_string(),
        })
    }

    fn race(&self) -> Race<'_> {
        Race {
            device: self.device,
            gpu: self.gpu,
            problem: self.problem,
            info: self.info,
            budget: self.options.budget,
            seed: SEED,
        }
    }

    /// The fastest that is right, if it takes less than `limit` microseconds.
    fn winner(
        &self,
        mut runners: Vec<Runner>,
        limit: f64,
        tally: &mut Tally,
    ) -> Result<Option<Runner>> {
        let all = runners.len();
        runners.retain(|runner| runner.may_beat(limit));
        let far = all - runners.len();
        let order = self.race().last_round(runners, tally)?;
        let time = |runner: &Runner| runner.us;
        let (winner, slower) = first_right(order, time, limit, |runner| match self.check(runner) {
            Ok(remarks) => {
                remarks.into_iter().for_each(|remark| tally.remark(remark));
                true
            }
            Err(why) => {
                tally.wrong(&runner.candidate.choice, runner.us, &why);
                false
            }
        });
        for _ in 0..far + slower {
            tally.exclude("slower than the best plan that is no transform");
        }
        Ok(winner)
    }

    /// Every plan that cuDNN names and no rule excludes, the likeliest first.
    fn proposals(&self, tally: &mut Tally) -> Vec<Proposal> {
        let mut graphs = Vec::new();
        for form in Form::of(self.problem) {
            match Graph::new(self.handle, self.problem, *form) {
                Ok(graph) => graphs.push(Arc::new(graph)),
                Err(error) => tally.fail("as a graph", &error),
            }
        }
        let older = legacy::Choice::all(self.problem);
        tally.found += older.len();
        let mut older: Vec<_> = older.into_iter().map(Proposal::Legacy).collect();
        let mut proposals = Vec::new();
        let mut seen = HashSet::new();
        for source in Source::ALL {
            for graph in &graphs {
                let configs = match source.ask(graph, self.problem.math) {
                    Ok((configs, announced)) => {
                        tally.withdrawn += announced.saturating_sub(configs.len());
                        configs
                    }
                    Err(error) => {
                        tally.fail(source.name(), &error);
                        continue;
                    }
                };
                for config in configs {
                    if !seen.insert((graph.form(), config.engine, config.knobs.clone())) {
                        continue;
                    }
                    tally.found += 1;
                    tally.compile += usize::from(config.compiles);
                    match excluded(self.problem.math, &config.notes) {
                        Some(why) => tally.exclude(why),
                        None => proposals.push(Proposal::Graph(graph.clone(), config)),
                    }
                }
            }
            // After what the heuristics think best.
            if source == Source::B {
                proposals.append(&mut older);
            }
        }
        proposals
    }

    /// Builds them on all cores: engines that compile their kernel take a second each.
    fn build(
        &self,
        proposals: Vec<Proposal>,
        deadline: Instant,
        tally: &mut Tally,
    ) -> Result<Vec<Candidate>> {
        // The handle serves one thread at a time; a plan only remembers it.
        let handle = Mutex::new(self.handle);
        let build = |proposal| {
            if Instant::now() > deadline {
                return None;
            }
            let _current = match self.gpu.enter() {
                Ok(current) => current,
                Err(error) => return Some(Err(("entering the context", error))),
            };
            let (when, built) = match proposal {
                Proposal::Graph(graph, config) => {
                    let when = ["building", "compiling"][usize::from(config.compiles)];
                    (when, Candidate::graph(&graph, config))
                }
                Proposal::Legacy(choice) => {
                    let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
                    (
                        "asking the older API",
                        Candidate::legacy(&handle, self.problem, choice),
                    )
                }
            };
            Some(built.map_err(|error| (when, error)))
        };
        let built: Vec<_> = proposals.into_par_iter().map(build).collect();
        let cap = self.options.workspace_cap.min(self.room()?);
        let mut candidates = Vec::new();
        for built in built {
            match built {
                None => tally.exclude("no time left to build them"),
                Some(Err((when, error))) => tally.fail(when, &error),
                Some(Ok(candidate)) => {
                    tally.built += 1;
                    if candidate.workspace(self.problem) <= cap {
                        candidates.push(candidate);
                    } else {
                        tally.exclude("larger workspace than there may be");
                    }
                }
            }
        }
        Ok(candidates)
    }

    /// Bytes that a workspace may take beside the operands.
    fn room(&self) -> Result<usize> {
        let (free, _) = self.gpu.memory_info()?;
        let rotating = 2 * self.gpu.limits().l2_bytes as usize + 2 * self.problem.bytes() as usize;
        Ok((free / 10 * 9).saturating_sub(rotating))
    }

    /// Whether a plan computes what it should, in every bit twice the same; what to add to the
    /// report if that could not be found out.
    fn check(&self, runner: &Runner) -> Result<Option<String>, String> {
        let arithmetic = runner.candidate.arithmetic;
        let options = measure::thoroughness(self.device, self.problem, arithmetic);
        match check::conv(&runner.conv, SEED, &options) {
            Outcome::Passed(_) => Ok(None),
            Outcome::Skipped(why) => Ok(Some(format!("not checked here: {why}"))),
            Outcome::Failed(why) | Outcome::Unsupported(why) => Err(why),
        }
    }
}
