//! The same launches otherwise: packing alone, packing before each call, and without early launch.

#[cfg(feature = "cuda")]
use convforge::gpu::{self, Graph};
use convforge::{Result, Stream, Workspace};

use super::Lane;
#[cfg(feature = "cuda")]
use super::{Filters, launches};
#[cfg(feature = "cuda")]
use crate::measure::spread::Spread;

/// Most images for which a call is timed with packing: beyond, packing is lost in the noise.
#[cfg(feature = "cuda")]
const IMAGES_WITH_PACKING: usize = 100;
/// Most images for which a call is timed without early launch, which gains parts of a microsecond.
#[cfg(feature = "cuda")]
const IMAGES_IN_ORDER: usize = 16;

/// Medians of what is timed beside the calls as they are; none where there is nothing to time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variations {
    /// Packing a filter.
    pub(super) pack_us: Option<f64>,
    /// Packing a filter and the call.
    pub(super) with_pack_us: Option<f64>,
    /// The call, with each kernel after the one ahead of it has ended.
    pub(super) serial_us: Option<f64>,
}

impl Lane<'_> {
    /// Each in graphs over all sets, as many samples as the calls themselves have.
    #[cfg(feature = "cuda")]
    pub(super) fn variations(
        &self,
        workspace: &mut Workspace,
        stream: &Stream,
    ) -> Result<Variations> {
        let mut found = Variations::default();
        let Some(queue) = stream.as_gpu() else {
            return Ok(found);
        };
        let images = self.conv.problem().n();
        // Constant memory is packed by the host's calls, outside of graphs.
        if let Some(Filters::Sets { .. }) = self.packed {
            let sets = self.operands.len();
            let count = launches(self.pack_us.unwrap_or_default(), sets);
            let packs = queue.capture(|_| self.pack_each(count, stream, |_| Ok(())));
            found.pack_us = self.median(packs.ok(), (stream, queue), count)?;
            if images <= IMAGES_WITH_PACKING {
                let both = queue.capture(|_| {
                    self.pack_each(self.launches, stream, |operands| {
                        // SAFETY: as in `launch`.
                        unsafe { self.conv.run_raw(operands, workspace, stream) }
                    })
                });
                found.with_pack_us = self.median(both.ok(), (stream, queue), self.launches)?;
            }
        }
        if images <= IMAGES_IN_ORDER {
            let serial = queue.capture_in_order(|_| self.launch(workspace, stream));
            found.serial_us = self.median(serial.ok().flatten(), (stream, queue), self.launches)?;
        }
        Ok(found)
    }

    #[cfg(not(feature = "cuda"))]
    pub(super) fn variations(&self, _: &mut Workspace, _: &Stream) -> Result<Variations> {
        Ok(Variations::default())
    }

    /// Enqueues `count` times packing a set's filter to where it lies already, and `after`.
    #[cfg(feature = "cuda")]
    fn pack_each(
        &self,
        count: usize,
        stream: &Stream,
        mut after: impl FnMut(&convforge::RawOperands) -> Result<()>,
    ) -> Result<()> {
        for operands in self.operands.iter().cycle().take(count) {
            let packed = operands.packed.cast_mut();
            // SAFETY: the filter and the arena outlive the lane; the same filter is written again.
            unsafe { self.conv.pack_into(operands.w, packed, stream)? };
            after(operands)?;
        }
        Ok(())
    }

    /// Median of one of a graph's `count` calls; none without a graph, as where the variant cannot
    /// be captured.
    #[cfg(feature = "cuda")]
    fn median(
        &self,
        graph: Option<Graph>,
        (stream, queue): (&Stream, &gpu::Stream),
        count: usize,
    ) -> Result<Option<f64>> {
        let Some(graph) = graph else {
            return Ok(None);
        };
        let mut samples = Vec::new();
        // The first one warms up.
        for _ in 0..=self.samples.len() {
            let from = stream.mark()?;
            // SAFETY: as in `capture`.
            unsafe { graph.launch(queue)? };
            samples.push(stream.mark()?.us_since(&from)? / count as f64);
        }
        Ok(Spread::of(&samples[1..]).map(|spread| spread.median_us))
    }
}
