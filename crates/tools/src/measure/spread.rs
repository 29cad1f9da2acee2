//! The middle of samples, and how far they spread.

use serde::{Deserialize, Serialize};

/// A median with its spread, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median_us: f64,
    /// A tenth of the samples are faster.
    pub p10_us: f64,
    /// A tenth of the samples are slower.
    pub p90_us: f64,
}

impl Spread {
    /// Of samples in any order; none where there are none.
    pub fn of(samples_us: &[f64]) -> Option<Self> {
        let mut sorted = samples_us.to_vec();
        sorted.sort_by(f64::total_cmp);
        (!sorted.is_empty()).then(|| Spread {
            median_us: median(&sorted),
            p10_us: quantile(&sorted, 0.1),
            p90_us: quantile(&sorted, 0.9),
        })
    }
}

/// The one of ascending samples that `share` of them do not exceed; there is at least one.
pub(crate) fn quantile(samples: &[f64], share: f64) -> f64 {
    samples[(share * (samples.len() - 1) as f64).round() as usize]
}

/// The middle of ascending samples, of an even number the mean of both; there is at least one.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let count = samples.len();
    (samples[(count - 1) / 2] + samples[count / 2]) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_does_not_ask_for_order() {
        assert_eq!(Spread::of(&[]), None);
        let spread = Spread::of(&[3.0, 1.0, 2.0, 4.0]).unwrap();
        assert_eq!((spread.median_us, spread.p10_us), (2.5, 1.0));
        assert_eq!(spread.p90_us, 4.0);
    }
}
