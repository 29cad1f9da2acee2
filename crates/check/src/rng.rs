//! splitmix64: small, and the same on every platform.

/// How far apart the states of two neighbours in a sequence are.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Scrambles 64 bits so that neighbouring inputs give unrelated outputs.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The random number at a place of the sequence that a seed begins, from 0 on.
pub fn random_at(seed: u64, place: u64) -> u64 {
    mix(seed.wrapping_add(place.wrapping_mul(STEP)))
}

/// A sequence of random numbers.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(mix(seed))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number under `end`, or 0; the bias of the remainder does not matter here.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % (end as u64).max(1)) as usize
    }

    /// A number from `first` to `last`, or `first` where that is the larger one.
    pub(crate) fn within(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last.saturating_sub(first).saturating_add(1))
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there is at least one.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_published_code() {
        // <https://prng.di.unimi.it/splitmix64.c>
        let first = [0, 1, 2].map(|place| random_at(1_234_567, place));
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(first, published);
    }
}
