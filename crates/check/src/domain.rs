//! Random problems that one variant can do, however few of all problems these are.
//!
//! Nothing here knows what a variant is made for. Problems are drawn from kinds of shapes that
//! kernels are made for, from each in turn, and those that the variant refuses are left out. Of
//! what is left, in every second one a size is moved as far as the variant goes: faults live where
//! it is about to refuse.

use std::sync::LazyLock;

use convforge::{
    Activation, Layout, Limits, Math, Padding, Problem, Shape, Storage,
    variant::{self, Configured, Query, Variant},
};

use crate::{
    Profile,
    rng::{Rng, mix},
};

/// What one configuration of a variant can do on a device with these limits.
#[derive(Clone, Copy)]
pub struct Domain<'a> {
    /// The variant.
    pub variant: &'a dyn Variant,
    /// Index into its configurations; 0 where it has none.
    pub config: usize,
    /// The device's limits.
    pub limits: &'a Limits,
}

impl<'a> Domain<'a> {
    /// Those of all configurations of a variant.
    pub fn of(variant: &'a dyn Variant, limits: &'a Limits) -> Vec<Self> {
        (0..variant.info().configs.len().max(1))
            .map(|config| Domain {
                variant,
                config,
                limits,
            })
            .collect()
    }

    /// That of a variant in one of its configurations.
    pub fn new(configured: &'a Configured, limits: &'a Limits) -> Self {
        Domain {
            variant: &*configured.variant,
            config: configured.config,
            limits,
        }
    }

    /// What the variant would do with a problem.
    ///
    /// # Errors
    /// Why it cannot do it, as a clause that follows its name.
    pub fn plan(&self, problem: &Problem) -> Result<variant::Plan, String> {
        let query = Query::new(problem, self.config, self.limits);
        let on_gpu = self.variant.info().kind != variant::Kind::Cpu;
        variant::plan(self.variant, on_gpu, &query)
    }

    /// Whether the variant can do a problem.
    pub fn has(&self, problem: &Problem) -> bool {
        self.plan(problem).is_ok()
    }

    /// The `index`-th problem that is drawn from a seed; none where the variant cannot do it.
    pub fn problem(&self, seed: u64, index: u64) -> Option<Problem> {
        let kinds = KINDS.len() as u64;
        let (profile, edit) = &KINDS[(index % kinds) as usize];
        let mut rng = Rng::new(mix(seed) ^ mix(index));
        let drawn = profile.problem(seed, index).with(edit).ok()?;
        let fits = |problem: &Problem| profile.allows(problem) && self.has(problem);
        if !fits(&drawn) {
            return None;
        }
        Some(match rng.one_in(2) {
            true => at_the_limit(drawn, &mut rng, fits),
            false => drawn,
        })
    }

    /// The problems among the first `draws` of a seed that the variant can do.
    pub fn problems(&self, seed: u64, draws: u64) -> impl Iterator<Item = Problem> + use<'a> {
        let domain = *self;
        (0..draws).filter_map(move |index| domain.problem(seed, index))
    }
}

impl std::fmt::Debug for Domain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let name = self.variant.info().spelled(self.config);
        f.debug_tuple("Domain").field(&name).finish()
    }
}

/// Of how many problems [`coverage`] is a share.
pub const COVERAGE_PROBLEMS: u64 = 1000;

/// The share of the generator's problems that a variant can do, with any of its configurations, on
/// a device with these limits.
pub fn coverage(variant: &dyn Variant, limits: &Limits) -> f64 {
    let profile = Profile::default();
    let domains = Domain::of(variant, limits);
    let can = |index: &u64| {
        let problem = profile.problem(1, *index);
        domains.iter().any(|domain| domain.has(&problem))
    };
    (0..COVERAGE_PROBLEMS).filter(can).count() as f64 / COVERAGE_PROBLEMS as f64
}

/// What is drawn, and how it is changed afterwards.
type Kind = (Profile, fn(&mut Shape));

/// Kinds of shapes that kernels are made for.
static KINDS: LazyLock<[Kind; 16]> = LazyLock::new(|| {
    let all = Profile {
        flops: 1e7,
        ..Profile::default()
    };
    let few_channels = Profile {
        channels: 1..=16,
        filters: 1..=32,
        filter_side: 1..=7,
        steps: false,
        ..all.clone()
    };
    // First layers, and those that widen few channels.
    let stems = Profile {
        channels: 1..=32,
        filters: 65..=512,
        ..few_channels.clone()
    };
    let pixels = Profile {
        channels: 1..=4096,
        filters: 1..=1024,
        side: 1..=1,
        filter_side: 1..=1,
        steps: false,
        ..all.clone()
    };
    let short = Profile {
        filter_side: 1..=7,
        ..all.clone()
    };
    // What is done in chunks of images has several of them only here.
    let batches = Profile {
        flops: 6e7,
        images: 100..=2000,
        channels: 1..=4,
        filters: 1..=4,
        side: 4..=40,
        filter_side: 1..=7,
        steps: false,
        ..all.clone()
    };
    let any = |_: &mut Shape| {};
    [
        (all.clone(), any),
        (few_channels.clone(), any),
        (few_channels.clone(), tidy),
        (few_channels, few_even_channels),
        (stems, any),
        (all.clone(), tiles),
        (pixels, any),
        (batches, any),
        (all.clone(), one_row),
        (all.clone(), depthwise),
        (all.clone(), any_depthwise),
        (short.clone(), grouped),
        (short, any_grouped),
        (all.clone(), many_channels),
        (all.clone(), three_columns),
        (all, tensor_cores),
    ]
});

/// No padding, even rows, a square filter, nothing unusual before or after the sums.
fn tidy(shape: &mut Shape) {
    shape.pad = Padding::default();
    shape.w += shape.w % 2;
    shape.s = shape.r;
    shape.math = shape.storage.maths()[0];
    shape.align = shape.align.max(16);
    shape.epilogue.pool = None;
    if shape.epilogue.activation.is_exponential() {
        shape.epilogue.activation = Activation::Relu;
    }
}

/// The same, with channels and filters in powers of two.
fn few_even_channels(shape: &mut Shape) {
    tidy(shape);
    shape.c = shape.c.next_power_of_two();
    shape.k = shape.k.next_power_of_two();
}

/// Channels and filters of each group in whole tiles of 8, as tensor cores take them.
fn tiles(shape: &mut Shape) {
    let whole = |count: usize| (count / shape.groups).next_multiple_of(8) * shape.groups;
    (shape.c, shape.k) = (whole(shape.c), whole(shape.k));
    shape.align = shape.align.max(16);
}

/// A filter of its own for each channel, as networks have them.
fn depthwise(shape: &mut Shape) {
    let side = [3, 5, 7][shape.r % 3];
    (shape.r, shape.s) = (side, side);
    // Every second one is of even width, or under large filters a multiple of 4, and padded by half the filter;
    // of these some have any number of channels.
    let is_padded = (shape.h / 4 + shape.k).is_multiple_of(2);
    shape.c = match shape.c {
        few @ 0..8 => few.max(2),
        many if is_padded && shape.k.is_multiple_of(3) => many,
        many => many.next_multiple_of(8),
    };
    (shape.groups, shape.k) = (shape.c, shape.c);
    shape.stride = [shape.stride[0].min(2); 2];
    shape.dilation = [1, 1];
    if is_padded {
        shape.w = shape.w.next_multiple_of(if side > 3 { 4 } else { 2 });
        shape.pad = Padding {
            top: side / 2,
            bottom: side / 2,
            left: side / 2,
            right: side / 2,
        };
    }
    shape.math = shape.storage.maths()[0];
    shape.align = shape.align.max(16);
    shape.epilogue.pool = None;
}

/// A filter of its own for each channel, or a few, whatever they are: of one row or column, far larger
/// than the others, with steps as large as filters.
fn any_depthwise(shape: &mut Shape) {
    let multiplier = 1 + shape.k % 4;
    (shape.groups, shape.k) = (shape.c, shape.c.saturating_mul(multiplier));
    if shape.math == Math::F16Acc {
        shape.math = shape.storage.maths()[0];
    }
    let around = |side: usize, before: usize| Padding {
        top: side / 2,
        bottom: side / 2,
        left: before,
        right: before / 2,
    };
    match (shape.h + shape.w) % 8 {
        0 => {
            let side = 2 * shape.r + 13;
            (shape.r, shape.s) = (side, side);
            shape.pad = around(side * shape.dilation[0], side * shape.dilation[1] / 2);
        }
        1 => shape.r = 1,
        2 => shape.s = 1,
        3 => shape.stride = [shape.r, shape.s],
        4 => shape.stride[1] += shape.s,
        5 => {
            shape.dilation[0] += 4;
            shape.pad = around(shape.r * shape.dilation[0], shape.s * shape.dilation[1] / 2);
        }
        _ => {}
    }
}

/// Groups of few channels, as many out as in, with the math that goes with the storage on tensor
/// cores, and fp32.
fn grouped(shape: &mut Shape) {
    let channels = [4, 8, 16, 32, 2, 1][shape.c % 6];
    shape.groups = (shape.k % 24 + 2).next_multiple_of(8 / channels.min(8));
    (shape.c, shape.k) = (shape.groups * channels, shape.groups * channels);
    // Every second one is as networks have them.
    if shape.h.is_multiple_of(2) {
        shape.r = [3, 5, 7][shape.r % 3];
        shape.s = shape.r;
        shape.stride = [shape.stride[0].min(2); 2];
        shape.dilation = [1, 1];
    }
    // Most of all are 3x3, with outputs as large as inputs; here every second one, of even width
    // and in whole vectors.
    if (shape.h / 4 + shape.w / 2).is_multiple_of(2) {
        shape.w += shape.w % 2;
        shape.align = shape.align.max(16);
        (shape.r, shape.s) = (3, 3);
        shape.stride = [1, 1];
        shape.pad = Padding {
            top: 1,
            bottom: 1,
            left: 1,
            right: 1,
        };
    }
    shape.math = match shape.storage {
        Storage::F32 if shape.w.is_multiple_of(2) => Math::Tf32,
        other => other.maths()[0],
    };
    if shape.layout == Layout::Nhwc {
        shape.align = shape.align.max(16);
    }
    shape.epilogue.pool = None;
}

/// Channels of a group in multiples of 8, or of 4 in f32, in 16 bits and their own math, in TF32 or fp32,
/// as wgmma takes them.
fn many_channels(shape: &mut Shape) {
    tiles(shape);
    shape.math = match shape.storage {
        Storage::F32 => {
            shape.c += shape.w % 2 * 4 * shape.groups;
            [Math::Tf32, Math::Fp32][shape.w % 4 / 2]
        }
        other => other.maths()[0],
    };
    shape.epilogue.pool = None;
    // Every second one is as networks have them, in output channels of any number.
    if shape.h.is_multiple_of(2) {
        let kind = shape.r % 5;
        let side = [1, 3, 5, 7, 1][kind];
        (shape.r, shape.s) = (side, side);
        shape.pad = Padding {
            top: side / 2,
            bottom: side / 2,
            left: side / 2,
            right: side / 2,
        };
        shape.stride = [shape.stride[0].min(2); 2];
        shape.dilation = [1, 1];
        // 1x1 filters often give more channels than they take.
        if side == 1 && !shape.w.is_multiple_of(4) {
            shape.k = shape.k.saturating_mul(4);
        }
        shape.k += shape.w % 3 * shape.groups;
        if kind == 4 {
            two_tiles(shape);
        }
    }
}

/// Small planes that copies bring as they lie, and more output channels than a tile has.
fn two_tiles(shape: &mut Shape) {
    shape.layout = Layout::Nchw;
    (shape.groups, shape.stride) = (1, [1, 1]);
    (shape.h, shape.w) = ((shape.h % 16).max(2), (shape.w % 8 * 2).max(2));
    shape.k = 130 + shape.k % 63 * 2;
}

/// A filter of three columns that keeps the width of planes or halves it, to rows that are even, as tensor
/// cores multiply what they store.
fn three_columns(shape: &mut Shape) {
    shape.layout = Layout::Nchw;
    shape.math = match shape.storage {
        Storage::F32 => Math::Tf32,
        other => other.maths()[0],
    };
    shape.align = shape.align.max(16);
    shape.epilogue.pool = None;
    let step = shape.stride[0].min(2);
    shape.w = shape.w.next_multiple_of([2 * step, 8][shape.h % 2]);
    shape.s = 3;
    // In steps of 2 no tap reads a column behind the last one.
    (shape.pad.left, shape.pad.right) = (1, if step == 2 { shape.k % 2 } else { 1 });
    shape.stride = [step, step];
    shape.dilation[1] = 1;
}

/// Any shape in the math of tensor cores, filters up to 11x11 and of one row among them.
fn tensor_cores(shape: &mut Shape) {
    shape.math = match shape.storage {
        Storage::F32 => [Math::Tf32, Math::F16, Math::Bf16][shape.w % 3],
        other => other.maths()[0],
    };
    shape.epilogue.pool = None;
    let taps = 1 + shape.k % 11;
    match (shape.h + shape.w) % 4 {
        0 => (shape.r, shape.s) = (taps, 1 + shape.c % 11),
        1 => (shape.r, shape.s) = (1, taps),
        _ => return,
    }
    shape.pad = Padding {
        top: shape.r * shape.dilation[0] / 2,
        bottom: shape.r * shape.dilation[0],
        left: shape.s * shape.dilation[1],
        right: shape.s * shape.dilation[1] / 2,
    };
}

/// Groups whatever they are: of 3, 6, 24, 40 or 80 channels as networks have them or of any number, as
/// many out as in or not, with filters of one tap and beyond 7x7, and steps as large as filters.
fn any_grouped(shape: &mut Shape) {
    let channels = [3, 6, 24, 40, 80, 1 + shape.c % 64][shape.c % 6];
    let filters = match shape.w % 3 {
        0 => 1 + shape.k % 80,
        _ => channels,
    };
    shape.groups = 2 + shape.k % 7;
    (shape.c, shape.k) = (shape.groups * channels, shape.groups * filters);
    match (shape.h + shape.w) % 8 {
        0 => {
            (shape.r, shape.s) = (2 * shape.r + 7, shape.s + 4);
            shape.pad = Padding {
                top: shape.r * shape.dilation[0],
                bottom: shape.r / 2,
                left: shape.s * shape.dilation[1] / 2,
                right: shape.s * shape.dilation[1],
            };
        }
        1 => (shape.r, shape.s) = (1, 1),
        2 => shape.stride = [shape.r, shape.s + 1],
        3 => shape.dilation = [shape.dilation[0] + 3, 2],
        _ => {}
    }
}

/// Signals: images and filters of one row.
fn one_row(shape: &mut Shape) {
    (shape.h, shape.r) = (1, 1);
    (shape.pad.top, shape.pad.bottom) = (0, 0);
    shape.stride[0] = 1;
}

/// A size, and how it is set.
type Size = (fn(&Shape) -> usize, fn(&mut Shape, usize));

/// Images, channels and filters of a group, height and width of image and filter.
const SIZES: [Size; 7] = [
    (|s| s.n, |s, n| s.n = n),
    (|s| s.c / s.groups, |s, c| s.c = c.saturating_mul(s.groups)),
    (|s| s.k / s.groups, |s, k| s.k = k.saturating_mul(s.groups)),
    (|s| s.h, |s, h| s.h = h),
    (|s| s.w, |s, w| s.w = w),
    (|s| s.r, |s, r| s.r = r),
    (|s| s.s, |s, s_| s.s = s_),
];

/// The problem with one of its sizes as large, now and then as small, as it may become.
fn at_the_limit(problem: Problem, rng: &mut Rng, fits: impl Fn(&Problem) -> bool) -> Problem {
    let (size, set) = rng.pick(&SIZES);
    let grows = !rng.one_in(4);
    // Without an image there is nothing to see.
    let with = |value: usize| {
        let changed = problem.with(|shape| set(shape, value)).ok();
        changed.filter(|problem| problem.n() > 0 && fits(problem))
    };
    let next = |value: usize| match grows {
        true => value.saturating_mul(2).max(1),
        false => value / 2,
    };
    // The last value that fits, and the first one that does not.
    let mut inside = (size(problem.shape()), problem.clone());
    let mut outside = next(inside.0);
    while let Some(further) = with(outside) {
        inside = (outside, further);
        outside = next(outside);
    }
    while inside.0.abs_diff(outside) > 1 {
        let middle = inside.0.midpoint(outside);
        match with(middle) {
            Some(further) => inside = (middle, further),
            None => outside = middle,
        }
    }
    inside.1
}

#[cfg(test)]
mod tests {
    use convforge::{
        Device, Error,
        variant::{Info, Plan, Prepared},
    };

    use super::*;

    /// Takes an even number of channels, from 6 to 50.
    struct Fussy(Info);

    // SAFETY: nothing of it is ever ready.
    unsafe impl Variant for Fussy {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, query: &Query) -> Result<Plan, String> {
            let c = query.problem.c();
            match c.is_multiple_of(2) && (6..=50).contains(&c) {
                true => Ok(Plan::default()),
                false => Err("takes other channels".to_owned()),
            }
        }

        fn prepare(&self, _: &Device, _: &Query, _: Plan) -> convforge::Result<Box<dyn Prepared>> {
            Err(Error::Interrupted)
        }
    }

    fn fussy() -> Fussy {
        Fussy(Info::new("fussy", "test", "", "", variant::Kind::Cpu))
    }

    #[test]
    fn problems_are_such_as_the_variant_can_do_up_to_its_limits() {
        let (variant, limits) = (fussy(), Limits::default());
        let domain = Domain::of(&variant, &limits)[0];
        let problems: Vec<Problem> = domain.problems(1, 3000).collect();
        assert!(problems.len() > 500, "{}", problems.len());
        assert!(problems.iter().all(|problem| domain.has(problem)));
        let at = |c: usize| problems.iter().filter(|p| p.c() == c).count();
        // Nothing is drawn as often as what lies at the limit.
        for c in [6, 50] {
            assert!(at(c) > 2 * at(26), "{c}: {}, 26: {}", at(c), at(26));
        }
        let again: Vec<Problem> = domain.problems(1, 3000).collect();
        assert_eq!(problems, again);
    }

    #[test]
    fn a_size_ends_where_the_next_one_is_refused() {
        let fits = |problem: &Problem| problem.w() <= 77;
        let start: Problem = "mb1ic3ih9oc4kh3".parse().unwrap();
        let mut widest = 0;
        for seed in 0..100 {
            let problem = at_the_limit(start.clone(), &mut Rng::new(seed), |p| {
                fits(p) && p.flops() < 1e6
            });
            assert!(fits(&problem));
            widest = widest.max(problem.w());
        }
        assert_eq!(widest, 77);
    }
}
