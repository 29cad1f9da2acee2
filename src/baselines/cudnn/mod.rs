//! NVIDIA cuDNN, in the problem's own layout (of single pixels, which have none, channels last): the
//! variant `cudnn`, which takes the plan that its
//! heuristics think best, and all plans that it has, for who searches the fastest
//! (`src/cudnn.rs`).
//!
//! | file | what it holds |
//! | --- | --- |
//! | `rules` | what is asked of cuDNN, and which of its plans may serve |
//! | `graph` | a convolution and its epilogue as an operation graph |
//! | `engine` | the engines that cuDNN has for a graph, and execution plans made of them |
//! | `legacy` | the older API's eight algorithms, and what they can be asked for |
//! | `algorithm` | a call of the older API with its descriptors |
//! | `plan` | one of all these, ready to launch |
//! | `proposals` | what cuDNN proposes for a problem, and building it |
//! | `until` | when building and timing them has to end |
//! | `rank` | the estimate of its time |
//! | `variant_pack` | the addresses of a launch, and descriptors of those of the last ones |
//! | `recent` | a few things by their keys |
//! | `trial`, `tally` | what became of each of them; counted |
//! | `call`, `descriptor` | safe wrappers: one call, a handle, a descriptor of the graph API |

#[macro_use]
mod call;
mod algorithm;
mod descriptor;
mod engine;
mod graph;
mod legacy;
mod plan;
mod proposals;
mod rank;
mod recent;
mod rules;
mod tally;
mod trial;
mod until;
mod variant_pack;

use std::{ptr::null_mut, sync::Arc};

use self::{call::Handle, proposals::Proposals};
pub use self::{
    call::Version,
    plan::Choice,
    trial::{Fate, Trial},
};
pub(crate) use self::{
    plan::{Candidate, Settled},
    proposals::Proposal,
    tally::{NO_TIME_TO_RUN, Tally},
    until::Until,
};
use crate::{
    Device, Error, Problem, Result, chain,
    gpu::Gpu,
    variant::{Info, Kind, Plan, Prepared, Query, Variant},
};

/// The version of cuDNN, if it is one that can be used.
///
/// # Errors
/// [`Error::Library`] where there is none or an old one.
pub fn version() -> Result<Version> {
    Version::found()
}

/// Readies the plan that an earlier search chose for this problem.
///
/// # Errors
/// [`Error::Unavailable`] for a plan that does not give this problem's result, as one of another
/// problem may not; [`Error::NoGpu`], a missing library, or what cuDNN refuses.
pub fn prepare(device: &Device, problem: &Problem, choice: &Choice) -> Result<Box<dyn Prepared>> {
    let (gpu, handle) = open(device)?;
    let _current = gpu.enter()?;
    let candidate = Candidate::again(&handle, problem, choice)?;
    let note = note(&candidate, problem, version()?);
    settled(gpu, problem, Some(candidate), Some(note))
}

/// Every plan that cuDNN names for a problem and no rule excludes, the likeliest first.
///
/// # Errors
/// [`Error::NoGpu`], a missing library, or what cuDNN answers.
pub(crate) fn every_plan(
    device: &Device,
    problem: &Problem,
    tally: &mut Tally,
) -> Result<Vec<Proposal>> {
    let proposed = asking(device, problem, |proposals| Ok(proposals.all(tally)))?;
    // Some problems have no plan that compiles; but then NVRTC's absence is not the reason.
    if tally.compile == 0
        && let Err(missing) = cudnn_sys::NVRTC.open()
    {
        tally.withheld = Some(format!(
            "{}: cuDNN leaves out the plans that it would compile at run time",
            chain(&missing)
        ));
    }
    Ok(proposed)
}

/// The same plans for a problem that cuDNN was not asked about: those that it takes there.
///
/// # Errors
/// As [`every_plan`].
pub(crate) fn same_plans(
    device: &Device,
    problem: &Problem,
    plans: &[Choice],
) -> Result<Vec<Proposal>> {
    asking(device, problem, |proposals| Ok(proposals.again(plans)))
}

/// Builds plans while there is time, with at most so many bytes of workspace; what became of the
/// others is told.
///
/// # Errors
/// As [`every_plan`].
pub(crate) fn build(
    device: &Device,
    problem: &Problem,
    plans: Vec<Proposal>,
    until: Until,
    workspace_cap: usize,
    tally: &mut Tally,
) -> Result<Vec<Candidate>> {
    asking(device, problem, |proposals| {
        proposals.build(plans, until, workspace_cap, tally)
    })
}

/// With a handle, and the device's context current.
fn asking<T>(
    device: &Device,
    problem: &Problem,
    work: impl FnOnce(Proposals) -> Result<T>,
) -> Result<T> {
    let (gpu, handle) = open(device)?;
    let _current = gpu.enter()?;
    work(Proposals {
        gpu,
        handle: &handle,
        problem,
    })
}

/// The device's GPU, and a handle that descriptors are made with.
fn open(device: &Device) -> Result<(&Gpu, Arc<Handle>)> {
    let Some(gpu) = device.as_gpu() else {
        return Err(Error::no_gpu("cuDNN computes on GPUs"));
    };
    Version::found()?;
    Ok((gpu, Arc::new(Handle::new(gpu, null_mut())?)))
}

fn settled(
    gpu: &Gpu,
    problem: &Problem,
    candidate: Option<Candidate>,
    note: Option<String>,
) -> Result<Box<dyn Prepared>> {
    let candidate = candidate.map(Arc::new);
    Ok(Box::new(Settled::new(gpu, problem, candidate, note)?))
}

/// Name, version and workspace of a plan, in words.
pub(crate) fn note(candidate: &Candidate, problem: &Problem, version: Version) -> String {
    let bytes = candidate.workspace(problem);
    format!(
        "{}, cuDNN {version}, {bytes} bytes of workspace",
        candidate.choice
    )
}

/// The variant `cudnn`.
pub(crate) struct Cudnn(Info);

impl Cudnn {
    pub(crate) fn new() -> Self {
        Cudnn(Info {
            // What cuDNN 9 for CUDA 13 serves.
            min_arch: 75,
            judged: false,
            hash: crate::sources::hash_of_passes(),
            ..Info::new(
                "cudnn",
                "cudnn",
                "the plan that cuDNN's heuristics think best",
                "NVIDIA cuDNN",
                Kind::Baseline,
            )
        })
    }
}

// SAFETY: what it prepares keeps to the workspace that cuDNN asks for.
unsafe impl Variant for Cudnn {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        match rules::refuses(query.problem) {
            Some(why) => Err(why),
            None => Ok(Plan {
                us: Some(rank::microseconds(query.problem, query.limits)),
                ..Plan::default()
            }),
        }
    }

    fn open(&self) -> Result<()> {
        Version::found().map(drop)
    }

    fn library(&self) -> Result<Option<String>> {
        Version::found().map(|version| Some(format!("cuDNN-{version}")))
    }

    fn prepare(&self, device: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        let problem = query.problem;
        let (gpu, handle) = open(device)?;
        if problem.n() == 0 {
            return settled(gpu, problem, None, None);
        }
        let _current = gpu.enter()?;
        let proposals = Proposals {
            gpu,
            handle: &handle,
            problem,
        };
        let mut tally = Tally::default();
        let first = proposals.first(&mut tally)?;
        let candidate = first.ok_or_else(|| Error::Unsupported {
            variant: self.0.name.clone(),
            problem: problem.to_string(),
            why: format!("cuDNN has no plan for it: {tally}"),
        })?;
        let note = format!(
            "{}, the first of its heuristics",
            note(&candidate, problem, version()?)
        );
        settled(gpu, problem, Some(candidate), Some(note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;

    #[test]
    fn it_says_no_with_a_reason_and_needs_no_library_for_it() {
        let limits = Limits::of_chip("h200").unwrap();
        let ask = |text: &str| {
            let problem: Problem = text.parse().unwrap();
            let query = Query::new(&problem, 0, &limits);
            Cudnn::new().plan(&query)
        };
        assert!(ask("ic8ih8oc8kh3+f16+nhwc+bias+relu").unwrap().us.is_some());
        assert!(ask("ic8ih8oc8kh3+math=bf16").unwrap_err().contains("bf16"));
    }

    #[test]
    fn the_cpu_is_no_place_for_it() {
        let problem: Problem = "ic8ih8oc8kh3".parse().unwrap();
        let limits = Limits::default();
        let query = Query::new(&problem, 0, &limits);
        let prepared = Cudnn::new().prepare(&Device::cpu(), &query, Plan::default());
        assert!(matches!(prepared, Err(Error::NoGpu { .. })));
    }
}
