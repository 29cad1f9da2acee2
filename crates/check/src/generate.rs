//! Random valid problems: the i-th of a seed, the same on every machine.
//!
//! | one in | shape |
//! | --- | --- |
//! | 12 | 1x1 filter |
//! | 12 | one pixel, or an image of a few: the filter is as large as the image |
//! | 12 | depthwise, with 1 to 3 outputs per channel |
//! | 8 | grouped |
//! | 8 | deep: up to 600 channels over a small image |
//! | 4 | few channels over a larger image, as in a first layer |
//! | the rest | anything |
//!
//! Half of all sizes are a tile edge (4, 8, 16, 32, 64, or a multiple, give or take 1), the others
//! uniform. Height and width are drawn apart, as are filter sides, strides (up to 3), dilations (up
//! to 3, mostly 1) and the four paddings (each less than the filter spans, but of one in eight that
//! have any up to twice as much and 8 more). One in 24 has no image at all. Storage is f32 for half; the math is the storage's own for half, else any that goes with
//! it; layouts are even; alignment is 16 bytes for half, else from one element to 128 bytes. Half
//! have an epilogue, of any parts. What would take too much work is drawn again.

use std::ops::RangeInclusive;

use convforge::{Activation, Epilogue, Layout, Padding, Pool, Problem, Shape, Storage};

use crate::rng::{Rng, mix};

/// What random problems are drawn from. The default is meant for every variant; a family that does
/// only part of it can ask for problems of its own kind.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Most floating-point operations.
    pub flops: f64,
    /// Images; now and then there are none.
    pub images: RangeInclusive<usize>,
    /// Input channels of one group.
    pub channels: RangeInclusive<usize>,
    /// Output channels of one group.
    pub filters: RangeInclusive<usize>,
    /// Height and width of an image.
    pub side: RangeInclusive<usize>,
    /// Height and width of a filter.
    pub filter_side: RangeInclusive<usize>,
    /// Storages.
    pub storages: Vec<Storage>,
    /// Layouts.
    pub layouts: Vec<Layout>,
    /// Whether there are strides, dilations and groups.
    pub steps: bool,
    /// Whether there are epilogues.
    pub epilogues: bool,
}

impl Default for Profile {
    fn default() -> Self {
        Profile {
            flops: 2e7,
            images: 1..=5,
            channels: 1..=600,
            filters: 1..=260,
            side: 1..=100,
            filter_side: 1..=11,
            storages: vec![Storage::F32, Storage::F32, Storage::F16, Storage::Bf16],
            layouts: vec![Layout::Nchw, Layout::Nhwc],
            steps: true,
            epilogues: true,
        }
    }
}

impl Profile {
    /// The `index`-th problem of a seed. A profile that asks for the impossible gets the smallest
    /// problem there is.
    pub fn problem(&self, seed: u64, index: u64) -> Problem {
        let mut rng = Rng::new(mix(seed) ^ index);
        let tries = match self.storages.is_empty() || self.layouts.is_empty() {
            true => 0,
            false => 10_000,
        };
        let drawn = (0..tries).find_map(|_| {
            let problem = Problem::new(self.draw(&mut rng)).ok()?;
            self.allows(&problem).then_some(problem)
        });
        drawn.unwrap_or_else(|| {
            Problem::new(Shape::new(1, [1; 3], 1, [1; 2])).expect("a single product")
        })
    }

    /// Whether a problem takes no more work and memory than it should.
    pub(crate) fn allows(&self, problem: &Problem) -> bool {
        let elements = problem.x_len() + problem.w_len() + problem.residual_len();
        problem.flops() <= self.flops && elements as f64 <= self.flops
    }

    fn draw(&self, rng: &mut Rng) -> Shape {
        let Sizes {
            channels,
            filters,
            groups,
            side,
            filter_side,
            covering,
        } = self.sizes(rng);
        let [h, w] = [edge(rng, &side), edge(rng, &side)];
        let mut taps = || rng.within(*filter_side.start(), *filter_side.end());
        let [r, s] = if covering { [h, w] } else { [taps(), taps()] };
        let n = if rng.one_in(24) {
            0
        } else {
            rng.within(*self.images.start(), *self.images.end())
        };
        let [c, k] = [channels, filters].map(|of_group| groups.saturating_mul(of_group));
        let mut shape = Shape::new(n, [c, h, w], k, [r, s]);
        shape.groups = groups;
        if self.steps && rng.one_in(3) {
            shape.stride = [rng.within(1, 3), rng.within(1, 3)];
        }
        if self.steps && rng.one_in(6) {
            shape.dilation = [rng.within(1, 3), rng.within(1, 3)];
        }
        if rng.one_in(3) == covering {
            // Less than the filter spans, or as may be.
            let beyond = rng.one_in(8);
            let mut pad = |k: usize, dilation: usize| {
                let spanned = k.saturating_sub(1).saturating_mul(dilation);
                let most = match beyond {
                    true => spanned.saturating_mul(2).saturating_add(8),
                    false => spanned,
                };
                rng.below(most.saturating_add(1))
            };
            let (down, across) = (shape.dilation[0], shape.dilation[1]);
            shape.pad = Padding {
                top: pad(r, down),
                bottom: pad(r, down),
                left: pad(s, across),
                right: pad(s, across),
            };
        }
        shape.layout = rng.pick(&self.layouts);
        shape.storage = rng.pick(&self.storages);
        let maths = shape.storage.maths();
        shape.math = if rng.one_in(2) {
            maths[0]
        } else {
            rng.pick(maths)
        };
        if rng.one_in(2) {
            let natural = shape.storage.bytes();
            shape.align = rng.pick(&[natural, natural, 4, 8, 32, 128]);
        }
        if self.epilogues && rng.one_in(2) {
            shape.epilogue = epilogue(rng);
        }
        shape
    }

    /// Of one of the kinds in the table above.
    fn sizes(&self, rng: &mut Rng) -> Sizes {
        let few = |range: &RangeInclusive<usize>, most: usize| {
            *range.start()..=most.min(*range.end()).max(*range.start())
        };
        let mut sizes = Sizes {
            channels: edge(rng, &few(&self.channels, 130)),
            filters: edge(rng, &few(&self.filters, 130)),
            groups: 1,
            side: few(&self.side, 70),
            filter_side: few(&self.filter_side, 5),
            covering: false,
        };
        match rng.below(24) {
            0..2 => sizes.filter_side = few(&self.filter_side, 1),
            2..4 => {
                // The filter must be one that the profile has.
                let most = *few(&self.filter_side, 7).end();
                sizes.side = few(&self.side, if rng.one_in(2) { 1 } else { most });
                sizes.covering = filter_covers(&self.filter_side, &sizes.side);
                sizes.channels = edge(rng, &self.channels);
                sizes.filters = edge(rng, &self.filters);
            }
            4..6 if self.steps => {
                sizes.groups = edge(rng, &(1..=130));
                sizes.channels = *self.channels.start();
                sizes.filters = rng.within(*self.filters.start(), *few(&self.filters, 3).end());
            }
            6..9 if self.steps => {
                sizes.groups = rng.within(2, 8);
                sizes.channels = edge(rng, &few(&self.channels, 40));
                sizes.filters = edge(rng, &few(&self.filters, 40));
            }
            9..12 => {
                sizes.channels = edge(rng, &self.channels);
                sizes.filters = edge(rng, &self.filters);
                sizes.side = few(&self.side, 12);
            }
            12..18 => {
                sizes.channels = rng.within(*self.channels.start(), *few(&self.channels, 4).end());
                sizes.filters = edge(rng, &few(&self.filters, 40));
                sizes.side = self.side.clone();
                sizes.filter_side = self.filter_side.clone();
            }
            _ => {}
        }
        sizes
    }
}

/// What the kinds of shapes differ in.
struct Sizes {
    /// Of one group, as are the filters.
    channels: usize,
    filters: usize,
    groups: usize,
    side: RangeInclusive<usize>,
    filter_side: RangeInclusive<usize>,
    /// Whether the filter is as large as the image.
    covering: bool,
}

/// Whether every image of these sizes can have a filter of its own size.
fn filter_covers(filter: &RangeInclusive<usize>, side: &RangeInclusive<usize>) -> bool {
    filter.contains(side.start()) && filter.contains(side.end())
}

/// A size, half the time at a tile edge.
fn edge(rng: &mut Rng, range: &RangeInclusive<usize>) -> usize {
    let (first, last) = (*range.start(), *range.end());
    if rng.one_in(2) {
        return rng.within(first, last);
    }
    let tile = rng.pick(&[4, 8, 16, 32, 64]);
    let near = tile * rng.within(1, 3) + rng.below(3) - 1;
    if range.contains(&near) {
        near
    } else {
        rng.within(first, last)
    }
}

fn epilogue(rng: &mut Rng) -> Epilogue {
    let pool = rng.one_in(3).then(|| Pool {
        window: [rng.within(1, 3), rng.within(1, 3)],
        stride: [rng.within(1, 3), rng.within(1, 3)],
        ceil: rng.one_in(2),
    });
    Epilogue {
        scale: rng.pick(&[1.0, 1.0, 1.0, 0.5, 2.0, -1.0]),
        bias: rng.one_in(2),
        residual: rng.one_in(3),
        activation: rng.pick(&[
            Activation::None,
            Activation::None,
            Activation::Relu,
            Activation::Relu,
            Activation::Relu6,
            Activation::Tanh,
            Activation::Sigmoid,
            Activation::Silu,
        ]),
        pool,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn everything_is_drawn_and_nothing_is_too_large() {
        let profile = Profile::default();
        let problems: Vec<Problem> = (0..2000).map(|i| profile.problem(5, i)).collect();
        let share = |what: &str, least: usize, is: &dyn Fn(&Problem) -> bool| {
            let count = problems.iter().filter(|p| is(p)).count();
            assert!(count >= least, "{what}: {count} of 2000");
        };
        share("empty", 30, &|p| p.n() == 0);
        share("one pixel", 20, &|p| p.h() == 1 && p.w() == 1);
        share("1x1 filter", 100, &|p| p.r() == 1 && p.s() == 1);
        share("filter as large as the image", 50, &|p| {
            p.p() == 1 && p.q() == 1 && p.r() > 1
        });
        share("h and w differ", 1000, &|p| p.h() != p.w());
        share("r and s differ", 1000, &|p| p.r() != p.s());
        share("stride", 300, &|p| p.stride() != [1, 1]);
        share("dilation", 150, &|p| p.dilation() != [1, 1]);
        share("four paddings", 100, &|p| {
            p.pad().top != p.pad().bottom && p.pad().left != p.pad().right
        });
        share("padding beyond the filter", 40, &|p| {
            let spanned = (p.r() - 1) * p.dilation()[0];
            p.pad().top > spanned || p.pad().bottom > spanned
        });
        share("depthwise", 80, &|p| p.groups() > 1 && p.c() == p.groups());
        share("multiplier", 40, &|p| {
            p.groups() > 1 && p.c() == p.groups() && p.k() > p.c()
        });
        share("grouped", 80, &|p| p.groups() > 1 && p.c() > p.groups());
        share("deep", 100, &|p| p.c() > 200);
        share("K over 1000", 60, &|p| p.reduction() > 1000);
        share("7x7 and larger", 100, &|p| p.r() > 6 && p.s() > 6);
        share("epilogue", 800, &|p| !p.epilogue().is_identity());
        share("pooling", 200, &|p| p.epilogue().pool.is_some());
        share("one element aligned", 200, &|p| {
            p.align() == p.storage().bytes()
        });
        for storage in Storage::ALL {
            for math in storage.maths() {
                share("math", 60, &|p| p.storage() == storage && p.math() == *math);
            }
        }
        let different: HashSet<String> = problems.iter().map(Problem::to_string).collect();
        assert!(different.len() > 1900);
        assert!(problems.iter().all(|p| p.flops() <= profile.flops));
        let total: f64 = problems.iter().map(|p| p.flops()).sum();
        assert!(total < 1.2e10, "{total:e} operations in all");
    }

    #[test]
    fn any_profile_is_answered() {
        let narrow = Profile {
            channels: 0..=0,
            ..Profile::default()
        };
        #[allow(clippy::reversed_empty_ranges)]
        let backward = Profile {
            side: 50..=3,
            ..Profile::default()
        };
        let endless = Profile {
            channels: 1..=usize::MAX,
            filters: usize::MAX..=usize::MAX,
            filter_side: 0..=usize::MAX,
            ..Profile::default()
        };
        let nothing = Profile {
            storages: Vec::new(),
            ..Profile::default()
        };
        for profile in [narrow, backward, endless, nothing] {
            for index in 0..3 {
                assert!(profile.problem(1, index).flops() <= profile.flops);
            }
        }
    }

    #[test]
    fn a_seed_means_the_same_everywhere() {
        let profile = Profile::default();
        let first: Vec<String> = (0..3).map(|i| profile.problem(1, i).to_string()).collect();
        assert_eq!(first[0], "mb3ic13ih1oc192oh1kh1+f16+nhwc");
        assert_eq!(
            first[1],
            "g8mb3ic40ih35iw4oc264oh34ow4kh3kw2dh0dw2ph0pw1+math=f16+align=32+scale=0.5+bias+tanh"
        );
    }
}
