//! What was done when, from events around each piece of work.

use crate::{Mark, Result, Stream};

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Work {
    /// A copy to the device.
    In,
    /// The kernels.
    Kernel,
    /// A copy from the device.
    Out,
}

/// One piece of work of a run, by events.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Span {
    /// Its stream, from 0.
    pub stream: usize,
    /// Its chunk, from 0.
    pub chunk: usize,
    /// What was done.
    pub work: Work,
    /// Microseconds from the run's beginning.
    pub begin_us: f64,
    /// As `begin_us`.
    pub end_us: f64,
}

impl Span {
    /// Of a chunk on a stream, in microseconds from the run's beginning.
    pub fn new(stream: usize, chunk: usize, work: Work, [begin_us, end_us]: [f64; 2]) -> Self {
        Span {
            stream,
            chunk,
            work,
            begin_us,
            end_us,
        }
    }
}

/// In the order in which a chunk goes through them.
const WORKS: [Work; 3] = [Work::In, Work::Kernel, Work::Out];

/// Two marks for each piece of work of each chunk, made once.
pub(super) struct Timeline {
    marks: Vec<[[Mark; 2]; 3]>,
}

impl Timeline {
    pub fn new(chunks: usize, stream: &Stream) -> Result<Self> {
        let both = || -> Result<[Mark; 2]> { Ok([stream.mark()?, stream.mark()?]) };
        let marks = (0..chunks).map(|_| Ok([both()?, both()?, both()?]));
        Ok(Timeline {
            marks: marks.collect::<Result<_>>()?,
        })
    }

    /// Where the piece begins and ends.
    pub fn marks(&mut self, chunk: usize, work: Work) -> &mut [Mark; 2] {
        &mut self.marks[chunk][work as usize]
    }

    /// Every piece of a run that is done, in the order of the chunks.
    pub fn spans(&self, streams: usize, run: &Mark) -> Result<Vec<Span>> {
        let mut spans = Vec::with_capacity(self.marks.len() * WORKS.len());
        for (chunk, marks) in self.marks.iter().enumerate() {
            for (work, [begin, end]) in WORKS.into_iter().zip(marks) {
                spans.push(Span {
                    stream: chunk % streams,
                    chunk,
                    work,
                    begin_us: begin.us_since(run)?,
                    end_us: end.us_since(run)?,
                });
            }
        }
        cut_waiting(&mut spans);
        Ok(spans)
    }
}

/// Leaves of each span what its engine spent on it. A stream reaches a copy, and its first event,
/// while the engine is still busy with another stream's; the copy's own time begins when that one
/// ends. The same goes for kernels that fill the device.
fn cut_waiting(spans: &mut [Span]) {
    for work in WORKS {
        let mut same: Vec<&mut Span> = spans.iter_mut().filter(|s| s.work == work).collect();
        same.sort_by(|a, b| a.end_us.total_cmp(&b.end_us));
        let mut free = 0f64;
        for span in same {
            span.begin_us = span.begin_us.max(free);
            free = span.end_us;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_for_another_stream_is_no_work() {
        let span = |chunk, work, begin_us, end_us| Span {
            stream: chunk,
            chunk,
            work,
            begin_us,
            end_us,
        };
        let mut spans = [
            span(1, Work::In, 1.0, 20.0),
            span(0, Work::In, 0.0, 10.0),
            span(0, Work::Out, 12.0, 40.0),
            span(2, Work::In, 25.0, 30.0),
        ];
        cut_waiting(&mut spans);
        let times = spans.map(|s| (s.begin_us, s.end_us));
        assert_eq!(
            times,
            [(10.0, 20.0), (0.0, 10.0), (12.0, 40.0), (25.0, 30.0)]
        );
    }
}
