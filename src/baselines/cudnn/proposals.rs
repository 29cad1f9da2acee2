//! What cuDNN proposes for a problem: its heuristics' engines, all engines there are, the older
//! API's algorithms; and building them.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use cudnn_sys::cudnnBackendHeurMode_t as Mode;

use super::{
    call::Handle,
    engine::Config,
    graph::Graph,
    legacy,
    plan::{Api, Candidate, Choice},
    rules::{self, Form, excluded},
    tally::{NO_TIME_TO_BUILD, Tally},
    until::Until,
};
use crate::{Error, Problem, Result, gpu::Gpu, variant::Arithmetic};

/// A plan that is yet to be built.
pub(crate) struct Proposal {
    pub(crate) choice: Choice,
    of: Of,
}

/// What a plan is built of.
enum Of {
    // Dropped in this order.
    Graph(Config, Arc<Graph>),
    Legacy(legacy::Choice),
}

impl Proposal {
    fn graph(config: Config, graph: &Arc<Graph>) -> Self {
        Proposal {
            choice: Choice(Api::Graph {
                form: graph.form(),
                engine: config.engine,
                knobs: config.knobs.clone(),
            }),
            of: Of::Graph(config, graph.clone()),
        }
    }

    fn legacy(choice: legacy::Choice) -> Self {
        Proposal {
            choice: Choice(Api::Legacy(choice)),
            of: Of::Legacy(choice),
        }
    }
}

/// Where engines are named.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Source {
    A,
    B,
    Fallback,
    /// All engines there are.
    Engines,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::A => "heuristic mode A",
            Source::B => "heuristic mode B",
            Source::Fallback => "the fallback list",
            Source::Engines => "the list of engines",
        }
    }

    fn ask(self, graph: &Graph) -> Result<Answer> {
        let mode = match self {
            Source::A => Mode::CUDNN_HEUR_MODE_A,
            Source::B => Mode::CUDNN_HEUR_MODE_B,
            Source::Fallback => Mode::CUDNN_HEUR_MODE_FALLBACK,
            Source::Engines => {
                let (configs, of_many_settings) = Config::every(graph)?;
                return Ok(Answer {
                    announced: configs.len(),
                    configs,
                    of_many_settings,
                });
            }
        };
        let (configs, announced) = Config::propose(graph, mode)?;
        Ok(Answer {
            configs,
            announced,
            of_many_settings: 0,
        })
    }
}

/// What a source names for a graph.
struct Answer {
    configs: Vec<Config>,
    /// How many it announced.
    announced: usize,
    /// Engines among them of which too many settings exist to name them all.
    of_many_settings: usize,
}

/// Engines with their knobs that were named for a form.
type Seen = HashSet<(Form, i64, Vec<(u32, i64)>)>;

/// A problem that cuDNN is asked about.
pub(super) struct Proposals<'a> {
    pub(super) gpu: &'a Gpu,
    pub(super) handle: &'a Arc<Handle>,
    pub(super) problem: &'a Problem,
}

impl Proposals<'_> {
    /// The first plan of the heuristics that adds up products, that no rule excludes, of a graph
    /// that is not known to be misread, and that builds.
    ///
    /// # Errors
    /// What the device answers when it is asked for free memory.
    pub(super) fn first(&self, tally: &mut Tally) -> Result<Option<Candidate>> {
        let room = self.room()?;
        let mut seen = Seen::new();
        let mut graphs = self.graphs(tally);
        graphs.retain(|graph| !rules::is_misread(self.problem, graph.form()));
        for source in [Source::A, Source::B, Source::Fallback] {
            for graph in &graphs {
                for config in self.ask(source, graph, &mut seen, tally) {
                    if rules::arithmetic(&config.notes) == Arithmetic::Transform {
                        tally.exclude("transforms");
                        continue;
                    }
                    let proposal = Proposal::graph(config, graph);
                    match self.build_one(proposal, &Mutex::new(self.handle)) {
                        Ok(candidate) if candidate.workspace(self.problem) <= room => {
                            return Ok(Some(candidate));
                        }
                        Ok(_) => tally.exclude(TOO_LARGE),
                        Err((when, error)) => tally.fail(when, &error),
                    }
                }
            }
        }
        Ok(None)
    }

    /// Every plan that cuDNN names and no rule excludes, the likeliest first.
    pub(super) fn all(&self, tally: &mut Tally) -> Vec<Proposal> {
        let graphs = self.graphs(tally);
        let older = legacy::Choice::all(self.problem);
        tally.found += older.len();
        let mut older: Vec<_> = older.into_iter().map(Proposal::legacy).collect();
        let mut proposals = Vec::new();
        let mut seen = Seen::new();
        for source in [Source::A, Source::B, Source::Fallback, Source::Engines] {
            for graph in &graphs {
                for config in self.ask(source, graph, &mut seen, tally) {
                    proposals.push(Proposal::graph(config, graph));
                }
            }
            // After what the heuristics think best.
            if source == Source::B {
                proposals.append(&mut older);
            }
        }
        proposals
    }

    /// These plans, as far as cuDNN takes them for this problem.
    pub(super) fn again(&self, plans: &[Choice]) -> Vec<Proposal> {
        let graphs = self.graphs(&mut Tally::default());
        let proposal = |plan: &Choice| match &plan.0 {
            Api::Legacy(choice) => Some(Proposal::legacy(*choice)),
            Api::Graph {
                form,
                engine,
                knobs,
            } => {
                let graph = graphs.iter().find(|graph| graph.form() == *form)?;
                let config = Config::named(graph, *engine, knobs).ok()?;
                Some(Proposal::graph(config, graph))
            }
        };
        plans.iter().filter_map(proposal).collect()
    }

    fn graphs(&self, tally: &mut Tally) -> Vec<Arc<Graph>> {
        let mut graphs = Vec::new();
        for form in Form::of(self.problem) {
            match Graph::new(self.handle, self.problem, *form) {
                Ok(graph) => graphs.push(Arc::new(graph)),
                Err(error) => tally.fail("as a graph", &error),
            }
        }
        graphs
    }

    /// What a source names for a graph that was not `seen` and that no rule excludes.
    fn ask(
        &self,
        source: Source,
        graph: &Graph,
        seen: &mut Seen,
        tally: &mut Tally,
    ) -> Vec<Config> {
        let Answer {
            mut configs,
            announced,
            of_many_settings,
        } = match source.ask(graph) {
            Ok(answer) => answer,
            Err(error) => {
                tally.fail(source.name(), &error);
                return Vec::new();
            }
        };
        tally.withdrawn += announced.saturating_sub(configs.len());
        // The same engines for each form of a problem.
        tally.of_many_settings = tally.of_many_settings.max(of_many_settings);
        configs.retain(|config| {
            if !seen.insert((graph.form(), config.engine, config.knobs.clone())) {
                return false;
            }
            tally.found += 1;
            tally.compile += usize::from(config.compiles);
            let why = excluded(self.problem.math(), &config.notes);
            why.into_iter().for_each(|why| tally.exclude(why));
            why.is_none()
        });
        configs
    }

    /// Builds them on all cores, since engines that compile their kernel take a second each: those
    /// that have room for their workspace, up to `cap` bytes, while there is time.
    ///
    /// # Errors
    /// What the device answers when it is asked for free memory.
    pub(super) fn build(
        &self,
        proposals: Vec<Proposal>,
        until: Until,
        cap: usize,
        tally: &mut Tally,
    ) -> Result<Vec<Candidate>> {
        // The handle serves one thread at a time; a plan only remembers it.
        let handle = Mutex::new(self.handle);
        let choices: Vec<_> = proposals.iter().map(|one| one.choice.clone()).collect();
        let slots: Vec<_> = proposals
            .into_iter()
            .map(|one| Mutex::new(Some(one)))
            .collect();
        let results: Vec<_> = slots.iter().map(|_| Mutex::new(None)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(slot) = slots.get(index) else { break };
                if until.is_over() {
                    continue;
                }
                if let Some(proposal) = lock(slot).take() {
                    *lock(&results[index]) = Some(self.build_one(proposal, &handle));
                }
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads.min(slots.len()) {
                scope.spawn(work);
            }
        });
        let cap = cap.min(self.room()?);
        let mut candidates = Vec::new();
        for (built, choice) in results.into_iter().zip(&choices) {
            match built.into_inner().unwrap_or_else(PoisonError::into_inner) {
                None => tally.leave(choice, NO_TIME_TO_BUILD),
                Some(Err((when, error))) => tally.lose(choice, when, &error),
                Some(Ok(candidate)) => {
                    tally.built += 1;
                    if candidate.workspace(self.problem) <= cap {
                        candidates.push(candidate);
                    } else {
                        tally.leave(choice, TOO_LARGE);
                    }
                }
            }
        }
        Ok(candidates)
    }

    /// A plan, or during what it failed.
    fn build_one(
        &self,
        proposal: Proposal,
        handle: &Mutex<&Arc<Handle>>,
    ) -> Result<Candidate, (&'static str, Error)> {
        let _current = self
            .gpu
            .enter()
            .map_err(|error| ("entering the context", error))?;
        match proposal.of {
            Of::Graph(config, graph) => {
                let when = ["building", "compiling"][usize::from(config.compiles)];
                Candidate::graph(&graph, config).map_err(|error| (when, error))
            }
            Of::Legacy(choice) => Candidate::legacy(&lock(handle), self.problem, choice)
                .map_err(|error| ("asking the older API", error)),
        }
    }

    /// Bytes that a workspace may take beside the operands.
    fn room(&self) -> Result<usize> {
        let (free, _) = self.gpu.memory_info()?;
        let rotating = 2 * self.gpu.limits().l2_bytes as usize + 2 * self.problem.bytes() as usize;
        Ok((free / 10 * 9).saturating_sub(rotating))
    }
}

const TOO_LARGE: &str = "larger workspace than there may be";

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
