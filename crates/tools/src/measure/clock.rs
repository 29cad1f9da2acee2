//! The clock of a GPU's multiprocessors under load, counted by a kernel right behind each sample. What
//! the driver tells of clocks when asked may be their limit, whatever they run at.

use convforge::{Device, Result, Stream};

#[cfg(feature = "cuda")]
use crate::{ffi, measure::spread::median};
#[cfg(feature = "cuda")]
use convforge::{gpu::DeviceBuffer, kernels::checked};

/// A place for each sample's count. On the CPU there is none.
pub(super) struct ClockCounter {
    /// Clocks and nanoseconds of each.
    #[cfg(feature = "cuda")]
    counted: Option<DeviceBuffer<u64>>,
}

impl ClockCounter {
    pub(super) fn new(device: &Device, samples: usize) -> Result<Self> {
        #[cfg(feature = "cuda")]
        return Ok(ClockCounter {
            counted: match device.as_gpu() {
                Some(gpu) => Some(DeviceBuffer::alloc(gpu, 2 * samples)?),
                None => None,
            },
        });
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (device, samples);
            Ok(ClockCounter {})
        }
    }

    /// Counts behind what is queued; samples that it has no place for are not counted.
    #[cfg(feature = "cuda")]
    pub(super) fn enqueue(&self, sample: usize, stream: &Stream) -> Result<()> {
        let Some(counted) = &self.counted else {
            return Ok(());
        };
        if 2 * sample + 2 > counted.len() {
            return Ok(());
        }
        let at = counted.address() as *mut u64;
        let _current = counted.gpu().enter()?;
        // SAFETY: two words of the buffer, which is on the stream's device; freeing it waits.
        let code = unsafe { ffi::cf_count_clocks(at.wrapping_add(2 * sample), stream.raw()) };
        checked("cf_count_clocks", code)
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn enqueue(&self, _: usize, _: &Stream) -> Result<()> {
        Ok(())
    }

    /// The median in MHz over the first samples.
    #[cfg(feature = "cuda")]
    pub(super) fn mhz(&self, samples: usize, stream: &Stream) -> Result<Option<f64>> {
        let Some(counted) = &self.counted else {
            return Ok(None);
        };
        stream.synchronize()?;
        let counts = counted.download_range(0..counted.len().min(2 * samples))?;
        Ok(median_mhz(&counts))
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn mhz(&self, _: usize, _: &Stream) -> Result<Option<f64>> {
        Ok(None)
    }
}

/// Of pairs of clocks and nanoseconds.
#[cfg(feature = "cuda")]
fn median_mhz(counts: &[u64]) -> Option<f64> {
    let pairs = counts.chunks_exact(2).filter(|pair| pair[1] > 0);
    let mut mhz: Vec<f64> = pairs
        .map(|pair| pair[0] as f64 * 1e3 / pair[1] as f64)
        .collect();
    mhz.sort_by(f64::total_cmp);
    (!mhz.is_empty()).then(|| median(&mhz))
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn clocks_over_nanoseconds_are_megahertz() {
        assert_eq!(
            median_mhz(&[99_000, 50_000, 90_000, 50_000, 0, 0]),
            Some(1890.0)
        );
        assert_eq!(median_mhz(&[0, 0]), None);
    }
}
