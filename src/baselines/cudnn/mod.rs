//! NVIDIA cuDNN at its strongest: every plan that its heuristics propose, every engine it has, and
//! every algorithm of its older API, in the problem's own layout, timed by this project, and the
//! fastest right ones kept.
//!
//! They make two variants. `cudnn` is the fastest plan that adds up products, and exact on whole
//! numbers as every variant is. `cudnn_transform` is cuDNN's fastest plan with transforms allowed
//! (Winograd, FFT), where that is one: it declares so, and is judged by the rules for real data.
//! One search finds both.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `rules` | what is asked of cuDNN, and which of its plans may stand as the baseline |
//! | `graph` | a convolution and its epilogue as an operation graph |
//! | `engine` | the engines that cuDNN has for a graph, and execution plans made of them |
//! | `legacy` | the older API's eight algorithms, and what they can be asked for |
//! | `algorithm` | a call of the older API with its descriptors |
//! | `plan` | one of all these behind the project's [`Plan`] |
//! | `search` | finding, building and checking them |
//! | `race` | timing them |
//! | `rank` | the estimate of its time |
//! | `tally` | what became of them, counted |
//! | `stored` | what keeps the winners |
//! | `call`, `descriptor` | safe wrappers: one call, a handle, a descriptor of the graph API |
//!
//! A search costs seconds, so it is made when a convolution is planned and never when it runs, and
//! once for a problem in a process. These environment variables are read once:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CONVFORGE_CUDNN_PLANS` | a file that keeps the winners for other processes |
//! | `CONVFORGE_CUDNN_WORKSPACE` | most bytes of workspace a plan may ask for; any number by default |
//! | `CONVFORGE_CUDNN_SECONDS` | for building and first runs of one search, 30 by default |

#[macro_use]
mod call;
mod algorithm;
mod descriptor;
mod engine;
mod graph;
mod legacy;
mod plan;
mod race;
mod rank;
mod rules;
mod search;
mod stored;
mod tally;

use std::{env, path::PathBuf, ptr::null_mut, str::FromStr, sync::Arc, time::Duration};

pub(super) use self::call::Version;
use self::{
    call::Handle,
    plan::{Candidate, Settled},
    search::{Found, Search},
    stored::{Entry, Plans},
};
use crate::{
    Device, Error, Problem, Result,
    variant::{Arithmetic, Info, Kind, Plan, Query, Variant},
};

/// How cuDNN's plans are searched.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Options {
    /// Most bytes of workspace that a plan may ask for.
    pub(crate) workspace_cap: usize,
    /// How long building plans and running them for the first time may take; plans that come later
    /// are left out and counted.
    pub(crate) budget: Duration,
    /// A file that keeps the winners.
    pub(crate) plans: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workspace_cap: usize::MAX,
            budget: Duration::from_secs(30),
            plans: None,
        }
    }
}

impl Options {
    /// What the environment says.
    fn from_env() -> Self {
        fn number<T: FromStr>(variable: &str) -> Option<T> {
            env::var(variable).ok()?.trim().parse().ok()
        }
        let usual = Options::default();
        let seconds = number("CONVFORGE_CUDNN_SECONDS").map(Duration::from_secs);
        Options {
            workspace_cap: number("CONVFORGE_CUDNN_WORKSPACE").unwrap_or(usual.workspace_cap),
            budget: seconds.unwrap_or(usual.budget),
            plans: env::var_os("CONVFORGE_CUDNN_PLANS")
                .filter(|p| !p.is_empty())
                .map(Into::into),
        }
    }
}

/// The variants `cudnn` and `cudnn_transform`.
pub(crate) struct Cudnn {
    info: Info,
    options: Options,
    /// Shared by both, as one search finds both winners.
    plans: Arc<Plans>,
}

impl Cudnn {
    /// Both, with what the environment says.
    pub(crate) fn from_env() -> [Self; 2] {
        Self::both(&Options::from_env())
    }

    /// Both, with options of one's own.
    fn both(options: &Options) -> [Self; 2] {
        let plans = Arc::new(Plans::new(options.plans.as_deref()));
        let variant = |name: &str, idea: &str, arithmetic| Cudnn {
            info: Info {
                name: name.to_owned(),
                family: "cudnn".to_owned(),
                idea: idea.to_owned(),
                source: "NVIDIA cuDNN".to_owned(),
                kind: Kind::Baseline,
                arithmetic,
                // What cuDNN 9 for CUDA 13 serves.
                min_arch: 75,
                max_arch: 999,
                configs: Vec::new(),
            },
            options: options.clone(),
            plans: plans.clone(),
        };
        [
            variant(
                "cudnn",
                "the fastest plan of all that cuDNN has, but for transforms",
                Arithmetic::Exact,
            ),
            variant(
                "cudnn_transform",
                "cuDNN's fastest plan where that is a transform: Winograd, FFT",
                Arithmetic::Transform,
            ),
        ]
    }

    /// What the winner of this arithmetic is kept under.
    fn key(
        &self,
        arithmetic: Arithmetic,
        problem: &Problem,
        device: &Device,
        version: Version,
    ) -> String {
        let mut key = format!("{problem} on {} by cuDNN {version}", device.name());
        if self.options.workspace_cap != usize::MAX {
            key += &format!(" within {} bytes", self.options.workspace_cap);
        }
        if arithmetic == Arithmetic::Transform {
            key += " as a transform";
        }
        key
    }

    /// Keeps both winners. Where there is none at all, something may be missing that will be there
    /// another time.
    fn keep(&self, found: &Found, key: impl Fn(Arithmetic) -> String) -> Result<()> {
        let entries = [Arithmetic::Exact, Arithmetic::Transform].map(|arithmetic| {
            let winner = found.winner(arithmetic);
            let entry = Entry {
                choice: winner.map(|candidate| candidate.choice.clone()),
                search: found.report.clone(),
            };
            (key(arithmetic), entry)
        });
        if entries.iter().all(|(_, entry)| entry.choice.is_none()) {
            return Ok(());
        }
        self.plans.put(entries)
    }

    /// That no plan is right for this variant, with what was found.
    fn none(&self, problem: &Problem, search: &str) -> Error {
        let why = match self.info.arithmetic {
            Arithmetic::Exact => "cuDNN has no plan for it",
            Arithmetic::Transform => {
                "no transform plan of cuDNN passes and is faster than its best plan that is none"
            }
        };
        Error::Unsupported {
            variant: self.info.name.clone(),
            problem: Box::new(problem.clone()),
            why: format!("{why}: {search}"),
        }
    }
}

impl Variant for Cudnn {
    fn info(&self) -> &Info {
        &self.info
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        rules::refuses(query.problem).map_or(Ok(()), Err)
    }

    /// What a transform takes is seen when it is searched; who picks by estimates has the rounding
    /// of all the others.
    fn rank(&self, query: &Query) -> Option<f64> {
        let adds = self.info.arithmetic == Arithmetic::Exact;
        adds.then(|| rank::microseconds(query.problem))
    }

    fn open(&self) -> Result<()> {
        Version::found().map(drop)
    }

    fn plan(&self, device: &Device, query: &Query) -> Result<Box<dyn Plan>> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::NoGpu("cuDNN computes on GPUs".to_owned()));
        };
        let (problem, arithmetic) = (query.problem, self.info.arithmetic);
        let version = Version::found()?;
        let settled = |candidate, note| {
            Box::new(Settled {
                gpu: gpu.clone(),
                problem: problem.clone(),
                candidate,
                note,
            })
        };
        if problem.n == 0 {
            return Ok(settled(None, None));
        }
        let note = |candidate: &Candidate, search: &str| {
            let bytes = candidate.workspace(problem);
            let choice = &candidate.choice;
            Some(format!(
                "{choice}, cuDNN {version}, {bytes} bytes of workspace; {search}"
            ))
        };
        let _current = gpu.enter()?;
        let handle = Arc::new(Handle::new(gpu, null_mut())?);
        let key = |arithmetic| self.key(arithmetic, problem, device, version);
        if let Some(Entry { choice, search }) = self.plans.get(&key(arithmetic))? {
            let Some(choice) = choice else {
                return Err(self.none(problem, &search));
            };
            // A plan that can no longer be built is searched for again.
            if let Ok(candidate) = Candidate::again(&handle, problem, &choice)
                && candidate.arithmetic == arithmetic
            {
                let note = note(&candidate, &format!("searched before: {search}"));
                return Ok(settled(Some(Arc::new(candidate)), note));
            }
        }
        let search = Search {
            device,
            gpu,
            handle: &handle,
            problem,
            info: &self.info,
            options: &self.options,
        };
        let found = search.run()?;
        self.keep(&found, key)?;
        let Some(candidate) = found.winner(arithmetic) else {
            return Err(self.none(problem, &found.report));
        };
        let note = note(candidate, &found.report);
        Ok(settled(Some(candidate.clone()), note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    fn both() -> [Cudnn; 2] {
        Cudnn::both(&Options::default())
    }

    #[test]
    fn they_say_no_with_a_reason_and_need_no_library_for_it() {
        let limits = Limits::default();
        for variant in both() {
            let ask = |text: &str| {
                let problem: Problem = text.parse().unwrap();
                let query = Query {
                    problem: &problem,
                    config: 0,
                    limits: &limits,
                };
                variant.supports(&query)
            };
            assert_eq!(ask("ic8ih8oc8kh3+f16+nhwc+bias+relu"), Ok(()));
            assert!(ask("ic8ih8oc8kh3+math=bf16").unwrap_err().contains("bf16"));
        }
    }

    #[test]
    fn the_cpu_is_no_place_for_them_and_no_rule_picks_the_transform() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let limits = Limits::default();
        let query = Query {
            problem: &problem,
            config: 0,
            limits: &limits,
        };
        let [exact, transform] = both();
        for variant in [&exact, &transform] {
            let plan = variant.plan(&Device::Cpu, &query);
            assert!(matches!(plan, Err(Error::NoGpu(_))));
        }
        assert!(exact.rank(&query).is_some() && transform.rank(&query).is_none());
    }

    #[test]
    fn winners_are_told_apart_by_all_that_matters() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let capped = Options {
            workspace_cap: 1 << 20,
            ..Options::default()
        };
        let key = |options: &Options, arithmetic| {
            let [variant, _] = Cudnn::both(options);
            variant.key(arithmetic, &problem, &Device::Cpu, Version::LEAST)
        };
        let usual = key(&Options::default(), Arithmetic::Exact);
        assert!(usual.starts_with(&problem.to_string()));
        assert_ne!(usual, key(&capped, Arithmetic::Exact));
        assert_ne!(usual, key(&Options::default(), Arithmetic::Transform));
    }

    #[test]
    fn what_one_search_found_serves_both() {
        let [exact, transform] = both();
        let entry = Entry {
            choice: None,
            search: "59 plans found".to_owned(),
        };
        exact.plans.put([("a".to_owned(), entry.clone())]).unwrap();
        assert_eq!(transform.plans.get("a").unwrap(), Some(entry));
        let problem = "ic8ih8oc8kh3".parse().unwrap();
        let text = transform.none(&problem, "59 plans found").to_string();
        for part in [
            "cudnn_transform cannot do",
            "no transform plan of cuDNN passes",
            "59 plans",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
