//! Problems of a configuration's own range, drawn for what a test wants, so that none is left out: a test with a
//! list of problems leaves out the next row that does none of them. `tests/reach.rs` sees to it that each
//! configuration has some, for an H200.

use convforge::{
    Activation, Conv, Device, Epilogue, Error, Limits, Pool, Problem, Result, Shape, chain,
    variant::{Configured, Packing, Space},
};
use convforge_check::Domain;
use libtest_mimic::Completion;

use super::{Answer, gpu_is_required};

/// Problems and their data are drawn from this seed.
pub const SEED: u64 = 1;
/// Of so many that are drawn.
pub const DRAWS: u64 = 20_000;
/// Of a library more are tried, since it refuses some that its plan takes.
const TRIES: usize = 20;
/// Problems that are looked through for filters that are packed.
const FIRST: usize = 200;
/// Outputs of an image: fewer show little.
const LEAST_OUTPUTS: usize = 16;
/// Outputs: a test with more takes long.
const MOST_OUTPUTS: usize = 1 << 20;
/// Floating-point operations: a launch with far fewer is over before the next one begins.
const LEAST_FLOPS: f64 = 4e6;
/// Bytes of a filter in constant memory, which leave room for others.
const MOST_CONSTANT: usize = 8 << 10;

/// What a test wants of a problem.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Changes what was drawn.
    edit: fn(&mut Shape),
    /// What else the configuration has to do.
    able: fn(&Domain, &Problem) -> bool,
}

impl Wanted {
    /// Anything.
    pub const ANY: Self = Wanted {
        edit: |_| {},
        able: |_, _| true,
    };

    /// Zeros give zeros, without a residual.
    pub const ZEROS: Self = Wanted {
        edit: |shape| {
            shape.epilogue = Epilogue {
                bias: true,
                activation: Activation::Relu,
                ..Epilogue::default()
            }
        },
        ..Self::ANY
    };

    /// The same with pooling, which most rows leave to a pass behind them.
    pub const POOLED: Self = Wanted {
        edit: |shape| {
            (Self::ZEROS.edit)(shape);
            shape.epilogue.pool = Some(POOL);
        },
        ..Self::ANY
    };

    /// Sums as they are, of enough work for launches to overlap.
    pub const SUMS: Self = Wanted {
        edit: |shape| shape.epilogue = Epilogue::default(),
        able: |_, problem| problem.flops() >= LEAST_FLOPS,
    };

    /// Sums as they are, of a batch that is split into chunks of a quarter, of which the last has fewer images.
    pub const CHUNKS: Self = Wanted {
        edit: |shape| {
            (Self::SUMS.edit)(shape);
            // A last chunk of as many images as were drawn.
            shape.n = 4 * (shape.n + 2) + 1;
        },
        able: |domain, problem| {
            let chunk = problem.n().div_ceil(4);
            let mut parts = [chunk, problem.n() % chunk].into_iter();
            parts.all(|images| {
                let part = problem.with(|shape| shape.n = images);
                part.is_ok_and(|part| images > 0 && domain.has(&part))
            })
        },
    };

    /// What a configuration can do of it.
    pub fn problems<'a>(self, domain: Domain<'a>) -> impl Iterator<Item = Problem> + use<'a> {
        domain
            .problems(SEED, DRAWS)
            .filter_map(move |drawn| drawn.with(self.edit).ok())
            .filter(move |problem| {
                let outputs = problem.y_len();
                outputs <= MOST_OUTPUTS
                    && outputs >= LEAST_OUTPUTS * problem.n().max(1)
                    && leaves_constant_memory(&domain, problem)
                    && (self.able)(&domain, problem)
            })
    }
}

const POOL: Pool = Pool {
    window: [2, 2],
    stride: [2, 2],
    ceil: true,
};

/// Whether the configuration does the problem, and leaves room in constant memory.
fn leaves_constant_memory(domain: &Domain, problem: &Problem) -> bool {
    domain.plan(problem).is_ok_and(|plan| {
        let packed = plan.packing;
        packed.is_none_or(|p| p.space != Space::Constant || p.bytes <= MOST_CONSTANT)
    })
}

/// Why a configuration pools nothing: it is drawn no problem with pooling, and refuses what it does without.
pub fn pools_nothing(domain: Domain) -> Option<String> {
    let mut said = None;
    for plain in Wanted::ZEROS.problems(domain).take(TRIES) {
        if let Ok(pooled) = plain.with(Wanted::POOLED.edit) {
            said = Some(domain.plan(&pooled).err()?);
        }
    }
    let mut drawn = domain.problems(SEED, DRAWS / 10);
    said.filter(|_| drawn.all(|problem| problem.epilogue().pool.is_none()))
}

/// Problems whose filter a configuration packs, of the first that are drawn for it.
pub fn packing(domain: Domain) -> Vec<Problem> {
    let first = Wanted::ANY.problems(domain).take(FIRST);
    first
        .filter(|problem| packing_of(&domain, problem).is_some())
        .collect()
}

/// For each other configuration of the variant that arranges the filter of one of these problems alike, its index and
/// the first such problem.
pub fn packed_alike(domain: Domain, problems: &[Problem]) -> Vec<(usize, Problem)> {
    let others = Domain::of(domain.variant, domain.limits).into_iter();
    let others = others.filter(|other| other.config != domain.config);
    others
        .filter_map(|other| {
            let is_alike = |problem: &&Problem| {
                let packing = packing_of(&domain, problem);
                packing.is_some() && packing == packing_of(&other, problem)
            };
            Some((other.config, problems.iter().find(is_alike)?.clone()))
        })
        .collect()
}

fn packing_of(domain: &Domain, problem: &Problem) -> Option<Packing> {
    domain.plan(problem).ok()?.packing
}

/// An H200's, so that what is planned is the same on every machine.
pub fn nominal() -> Limits {
    Limits::of_chip("h200").expect("a chip that is known")
}

/// Why a configuration does nothing on this chip, where that lies with the chip: kernels that it is not compiled
/// for, or an H200 does what is refused here.
pub fn unable_here(domain: &Domain) -> Option<String> {
    let h200 = nominal();
    let there = Domain {
        limits: &h200,
        ..*domain
    };
    let mut refused = None;
    for problem in there.problems(SEED, DRAWS).take(TRIES) {
        refused = Some(domain.plan(&problem).err()?);
    }
    refused.or_else(|| {
        // A build without kernels for an H200.
        let smallest = Problem::new(Shape::new(1, [1; 3], 1, [1; 2])).expect("a single product");
        let why = domain.plan(&smallest).err()?;
        let chip = ["is for sm_", "was not compiled for sm_"];
        chip.iter()
            .any(|words| why.starts_with(words))
            .then_some(why)
    })
}

/// The configuration on the first of its problems that it can be readied for, or what the trial ends with.
pub fn ready(device: &Device, configured: &Configured, wanted: Wanted) -> Result<Conv, Answer> {
    ready_for(device, configured, wanted, |_| true)
}

/// The same of the problems for which `also` holds.
pub fn ready_for(
    device: &Device,
    configured: &Configured,
    wanted: Wanted,
    also: impl Fn(&Problem) -> bool,
) -> Result<Conv, Answer> {
    let limits = device.limits();
    let domain = Domain::new(configured, &limits);
    let mut refused = "none is drawn for it".to_owned();
    for problem in wanted.problems(domain).filter(also).take(TRIES) {
        match Conv::with_variant(device, &problem, configured.clone()) {
            Ok(conv) => return Ok(conv),
            Err(error @ Error::Library { .. }) => return Err(missing(&error)),
            // A library that has no such plan.
            Err(error @ Error::Unsupported { .. }) => refused = error.to_string(),
            Err(error) => return Err(Err(error.into())),
        }
    }
    Err(match unable_here(&domain) {
        Some(why) => Ok(Completion::ignored_with(why)),
        None => Err(format!("can do none of the problems: {refused}").into()),
    })
}

/// What a trial ends with for want of a library.
pub fn missing(library: &Error) -> Answer {
    match gpu_is_required() {
        true => Err(chain(library).into()),
        false => Ok(Completion::ignored_with(chain(library))),
    }
}
