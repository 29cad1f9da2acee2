//! The streams with their buffers, and the order in which work is queued.

use super::{
    batch::Batch,
    timeline::{Span, Timeline, Work},
};
use crate::{
    Buffer, Conv, Element, Error, Mark, Operands, Problem, Result, Stream, Workspace,
    device::HostCopies,
};

/// What one run took.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Timing {
    /// Microseconds from the first copy's beginning to the last one's end, by events.
    pub us: f64,
    /// What was done when; empty unless [`Options::timeline`](super::Options::timeline) asked for it.
    pub spans: Vec<Span>,
}

/// What every stream has, and what a run leaves behind.
pub(super) struct Lanes<T: Element> {
    lanes: Vec<Lane<T>>,
    /// For the last chunk, where it is smaller: buffers have the length that the problem says.
    rest: Option<Tensors<T>>,
    begin: Mark,
    timeline: Option<Timeline>,
}

/// What one stream has. A chunk finds it free: the one before is ahead of it in the stream.
struct Lane<T: Element> {
    workspace: Workspace,
    tensors: Tensors<T>,
    end: Mark,
}

struct Tensors<T: Element> {
    x: Buffer<T>,
    y: Buffer<T>,
}

impl<T: Element> Tensors<T> {
    fn of(conv: &Conv) -> Result<Self> {
        let (device, problem) = (conv.device(), conv.problem());
        Ok(Tensors {
            x: device.alloc(problem.x_len())?,
            y: device.alloc(problem.y_len())?,
        })
    }
}

impl<T: Element> Lanes<T> {
    pub fn new(batch: &Batch<T>, streams: &[Stream], timeline: bool) -> Result<Self> {
        let lane = |stream: &Stream| {
            let mut workspace = batch.whole.conv.workspace(stream)?;
            if let Some(rest) = &batch.rest {
                workspace.reserve(&rest.conv, stream)?;
            }
            Ok(Lane {
                workspace,
                tensors: Tensors::of(&batch.whole.conv)?,
                end: stream.mark()?,
            })
        };
        let timeline = timeline.then(|| Timeline::new(batch.chunks(), &streams[0]));
        Ok(Lanes {
            lanes: streams.iter().map(lane).collect::<Result<_>>()?,
            rest: (batch.rest.as_ref())
                .map(|rest| Tensors::of(&rest.conv))
                .transpose()?,
            begin: streams[0].mark()?,
            timeline: timeline.transpose()?,
        })
    }

    /// Queues all chunks, or as many as there is time for before `stopped` answers true.
    ///
    /// Each copy out comes after the next chunk's copy in and kernels. On a device that makes no
    /// difference to pinned memory, since every stream keeps its own order; but a copy to ordinary
    /// memory waits, for its own kernels first, and the next chunk's kernels run meanwhile.
    pub fn queue<'host>(
        &mut self,
        batch: &Batch<T>,
        streams: &[Stream],
        copies: &HostCopies<'_, 'host>,
        (x, y): (&'host [T], &'host mut [T]),
        stopped: &dyn Fn() -> bool,
    ) -> Result<()> {
        let chunk_of = |len: fn(&Problem) -> usize| len(batch.whole.conv.problem());
        let mut x = x.chunks(chunk_of(Problem::x_len));
        let mut y = y.chunks_mut(chunk_of(Problem::y_len));
        let chunks = batch.chunks();
        // With one stream a copy out must come first: the next chunk needs its buffers.
        let behind = usize::from(self.lanes.len() > 1);
        streams[0].move_mark(&mut self.begin)?;
        for chunk in 0..chunks + behind {
            if let Some(x) = x.next() {
                if stopped() {
                    return Err(Error::Interrupted);
                }
                self.compute(batch, streams, copies, chunk, x)
                    .map_err(|error| batch.failed(chunk..chunk + 1, error))?;
            }
            if let Some(chunk) = chunk.checked_sub(behind)
                && let Some(y) = y.next()
            {
                self.copy_out(batch, streams, copies, chunk, y)
                    .map_err(|error| batch.failed(chunk..chunk + 1, error))?;
            }
        }
        for (lane, stream) in self.lanes.iter_mut().zip(streams) {
            stream.move_mark(&mut lane.end)?;
        }
        Ok(())
    }

    fn compute<'host>(
        &mut self,
        batch: &Batch<T>,
        streams: &[Stream],
        copies: &HostCopies<'_, 'host>,
        chunk: usize,
        x: &'host [T],
    ) -> Result<()> {
        let index = chunk % self.lanes.len();
        let stream = &streams[index];
        let Lane {
            workspace, tensors, ..
        } = &mut self.lanes[index];
        let (ready, tensors) = match (batch.rest_of(chunk), &mut self.rest) {
            (Some(ready), Some(rest)) => (ready, rest),
            _ => (&batch.whole, tensors),
        };
        note(&mut self.timeline, stream, chunk, Work::In, |_| {
            copies.upload(index, x, &mut tensors.x, 0)
        })?;
        note(&mut self.timeline, stream, chunk, Work::Kernel, |stream| {
            let mut operands = Operands::new(&tensors.x, &batch.filter, &mut tensors.y);
            if let Some(bias) = &batch.bias {
                operands = operands.bias(bias);
            }
            let operands = operands.packed(ready.packed.as_deref());
            ready.conv.run_with(operands, workspace, stream)
        })
    }

    fn copy_out<'host>(
        &mut self,
        batch: &Batch<T>,
        streams: &[Stream],
        copies: &HostCopies<'_, 'host>,
        chunk: usize,
        y: &'host mut [T],
    ) -> Result<()> {
        let index = chunk % self.lanes.len();
        let tensors = match (batch.rest_of(chunk), &self.rest) {
            (Some(_), Some(rest)) => rest,
            _ => &self.lanes[index].tensors,
        };
        let stream = &streams[index];
        note(&mut self.timeline, stream, chunk, Work::Out, |_| {
            copies.download(index, &tensors.y, 0, y)
        })
    }

    /// What the run took that was queued last, and has been waited for.
    pub fn timing(&self, batch: &Batch<T>) -> Result<Timing> {
        let mut us = 0f64;
        if batch.chunks() > 0 {
            for lane in &self.lanes {
                us = us.max(lane.end.us_since(&self.begin)?);
            }
        }
        let spans = match &self.timeline {
            Some(timeline) => timeline.spans(self.lanes.len(), &self.begin)?,
            None => Vec::new(),
        };
        Ok(Timing { us, spans })
    }
}

/// Does a piece of work, with its times put down where there is a timeline.
fn note(
    timeline: &mut Option<Timeline>,
    stream: &Stream,
    chunk: usize,
    work: Work,
    piece: impl FnOnce(&Stream) -> Result<()>,
) -> Result<()> {
    let Some(timeline) = timeline else {
        return piece(stream);
    };
    let [begin, end] = timeline.marks(chunk, work);
    stream.move_mark(begin)?;
    piece(stream)?;
    stream.move_mark(end)
}
