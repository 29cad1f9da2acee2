//! NVIDIA cuDNN at its strongest: every plan that its heuristics propose, every engine it has, and
//! every algorithm of its older API, in the problem's own layout, timed by this project, and the
//! fastest right one kept.
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
//! | `stored` | a file that keeps the winners |
//! | `call`, `descriptor` | safe wrappers: one call, a handle, a descriptor of the graph API |
//!
//! A search costs seconds, so it is made when a convolution is planned and never when it runs.
//! These environment variables are read once:
//!
//! | variable | meaning |
//! | --- | --- |
//! | `CONVFORGE_CUDNN_PLANS` | a file that keeps the winners; without it every plan is a search |
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
    search::Search,
    stored::{Entry, File},
};
use crate::{
    Device, Error, Result,
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

/// The variant `cudnn`.
pub(crate) struct Cudnn {
    info: Info,
    options: Options,
}

impl Cudnn {
    /// With what the environment says.
    pub(crate) fn from_env() -> Self {
        Self::new(Options::from_env())
    }

    /// With options of one's own.
    pub(crate) fn new(options: Options) -> Self {
        let info = Info {
            name: "cudnn".to_owned(),
            family: "cudnn".to_owned(),
            idea: "the fastest plan of all that cuDNN has".to_owned(),
            source: "NVIDIA cuDNN".to_owned(),
            kind: Kind::Baseline,
            arithmetic: Arithmetic::Exact,
            // What cuDNN 9 for CUDA 13 serves.
            min_arch: 75,
            max_arch: 999,
            configs: Vec::new(),
        };
        Cudnn { info, options }
    }

    /// What a stored winner is kept under.
    fn key(&self, query: &Query, device: &Device, version: Version) -> String {
        let mut key = format!("{} on {} by cuDNN {version}", query.problem, device.name());
        if self.options.workspace_cap != usize::MAX {
            key += &format!(" within {} bytes", self.options.workspace_cap);
        }
        key
    }
}

impl Variant for Cudnn {
    fn info(&self) -> &Info {
        &self.info
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        rules::refuses(query.problem).map_or(Ok(()), Err)
    }

    fn rank(&self, query: &Query) -> Option<f64> {
        Some(rank::microseconds(query.problem))
    }

    fn open(&self) -> Result<()> {
        Version::found().map(drop)
    }

    fn plan(&self, device: &Device, query: &Query) -> Result<Box<dyn Plan>> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::NoGpu("cuDNN computes on GPUs".to_owned()));
        };
        let problem = query.problem;
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
        let file = self.options.plans.as_deref().map(File::new);
        let key = self.key(query, device, version);
        if let Some(file) = &file
            && let Some(entry) = file.get(&key)?
            // A plan that can no longer be built is searched for again.
            && let Ok(candidate) = Candidate::again(&handle, problem, &entry.choice)
        {
            let note = note(&candidate, &format!("from a file: {}", entry.search));
            return Ok(settled(Some(Arc::new(candidate)), note));
        }
        let search = Search {
            device,
            gpu,
            handle: &handle,
            problem,
            info: &self.info,
            options: &self.options,
        };
        let (candidate, search) = search.run()?;
        if let Some(file) = &file {
            let choice = candidate.choice.clone();
            file.put(
                key,
                Entry {
                    choice,
                    search: search.clone(),
                },
            )?;
        }
        let note = note(&candidate, &search);
        Ok(settled(Some(candidate), note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Problem};

    #[test]
    fn it_says_no_with_a_reason_and_needs_no_library_for_it() {
        let limits = Limits::default();
        let ask = |text: &str| {
            let problem: Problem = text.parse().unwrap();
            let query = Query {
                problem: &problem,
                config: 0,
                limits: &limits,
            };
            Cudnn::new(Options::default()).supports(&query)
        };
        assert_eq!(ask("ic8ih8oc8kh3+f16+nhwc+bias+relu"), Ok(()));
        assert!(ask("ic8ih8oc8kh3+math=bf16").unwrap_err().contains("bf16"));
    }

    #[test]
    fn the_cpu_is_no_place_for_it() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let limits = Limits::default();
        let query = Query {
            problem: &problem,
            config: 0,
            limits: &limits,
        };
        let plan = Cudnn::new(Options::default()).plan(&Device::Cpu, &query);
        assert!(matches!(plan, Err(Error::NoGpu(_))));
    }

    #[test]
    fn winners_are_told_apart_by_all_that_matters() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let limits = Limits::default();
        let query = Query {
            problem: &problem,
            config: 0,
            limits: &limits,
        };
        let capped = Options {
            workspace_cap: 1 << 20,
            ..Options::default()
        };
        let version = Version::LEAST;
        let key = |options| Cudnn::new(options).key(&query, &Device::Cpu, version);
        assert!(key(Options::default()).starts_with(&problem.to_string()));
        assert_ne!(key(Options::default()), key(capped));
    }
}
