//! The batch, split into chunks, and what computes them.

use std::{ops::Range, sync::Arc};

use crate::{Buffer, Conv, Element, Error, Filter, Packed, Problem, Result, Workspace};

/// The batch, its chunks, and what computes them: the same over any number of streams.
pub(super) struct Batch<T: Element> {
    pub(super) problem: Problem,
    /// Images in every chunk but a smaller last one.
    pub(super) chunk: usize,
    pub(super) whole: Ready,
    /// For the last chunk, where it is smaller.
    pub(super) rest: Option<Ready>,
    pub(super) filter: Buffer<T>,
    pub(super) bias: Option<Buffer<f32>>,
}

/// What computes a chunk.
pub(super) struct Ready {
    pub(super) conv: Conv,
    /// Where its variant packs the filter; whole and rest share one if they pack it alike.
    pub(super) packed: Option<Arc<Packed>>,
}

/// Chunks of a large batch. While the first is copied in and computed nothing is copied out: so much
/// of the time is lost, and the more chunks, the less. On the other hand each one costs an engine the
/// change from one copy to the next, some microseconds. With 32 an H200 takes 5 % longer than its
/// copies out alone (docs/streams.md); they give 1, 2, 4, 8 and 16 streams equal shares.
const CHUNKS: usize = 32;
/// Bytes of the larger of a chunk's input and output, at least: to copy them takes longer than the
/// host takes to queue a chunk.
const LEAST_BYTES: usize = 2 << 20;

impl<T: Element> Batch<T> {
    /// Cuts the batch of `problem` into chunks of so many images, or as many as seem right. `conv` chooses
    /// what computes a whole chunk; also the rest, where what was chosen does not take so few images.
    pub(super) fn new(
        problem: &Problem,
        conv: impl Fn(&Problem) -> Result<Conv>,
        filter: &[T],
        bias: &[f32],
        chunk: Option<usize>,
    ) -> Result<Self> {
        let chunk = chunk_images(problem, chunk)?;
        check_len(problem, "the filter (w)", filter.len(), problem.w_len())?;
        check_len(problem, "the bias", bias.len(), problem.bias_len())?;
        // The buffers are the pipeline's own, so they are aligned as buffers are.
        let images = |n: usize| {
            problem.with(|shape| {
                shape.n = n;
                shape.align = shape.align.min(Workspace::ALIGN);
            })
        };
        let whole = conv(&images(chunk)?)?;
        let device = whole.device().clone();
        let rest = match problem.n() % chunk {
            0 => None,
            n => Some(rest_of(&whole, &images(n)?, conv)?),
        };
        let filter = device.upload(filter)?;
        let (stream, forms) = (device.stream()?, Filter::new());
        let ready = |conv: Conv| -> Result<Ready> {
            let packed = forms.packed(&conv, &filter, &stream)?;
            Ok(Ready { conv, packed })
        };
        Ok(Batch {
            problem: problem.clone(),
            chunk,
            whole: ready(whole)?,
            rest: rest.map(ready).transpose()?,
            filter,
            bias: match bias {
                [] => None,
                bias => Some(device.upload(bias)?),
            },
        })
    }

    pub(super) fn chunks(&self) -> usize {
        self.problem.n().div_ceil(self.chunk)
    }

    /// The smaller last chunk, if this is one.
    pub(super) fn rest_of(&self, chunk: usize) -> Option<&Ready> {
        self.rest.as_ref().filter(|_| chunk + 1 == self.chunks())
    }

    pub(super) fn failed(&self, failed: Range<usize>, error: Error) -> Error {
        let first = failed.start * self.chunk;
        Error::Chunk {
            chunks: self.chunks(),
            images: first..(failed.end * self.chunk).min(self.problem.n()),
            failed,
            source: Box::new(error),
        }
    }
}

/// By what computes a whole chunk; by what is chosen anew where that does not take so few images.
fn rest_of(whole: &Conv, rest: &Problem, conv: impl Fn(&Problem) -> Result<Conv>) -> Result<Conv> {
    match Conv::with_variant(whole.device(), rest, whole.configured().clone()) {
        Err(Error::Unsupported { .. }) => conv(rest),
        other => other,
    }
}

/// Images in a chunk, at least 1.
fn chunk_images(problem: &Problem, chunk: Option<usize>) -> Result<usize> {
    if problem.epilogue().residual {
        return Err(refuse(
            problem,
            "adds a residual, which a pipeline does not copy; leave it out, or run the whole batch \
             with Conv::run_with",
        ));
    }
    let n = problem.n().max(1);
    match chunk {
        Some(0) => Err(refuse(
            problem,
            "cannot be split into chunks of 0 images; they have at least one",
        )),
        Some(images) => Ok(images.min(n)),
        None => {
            let image = problem.x_len().max(problem.y_len()) / n * problem.storage().bytes();
            let least = LEAST_BYTES.div_ceil(image.max(1));
            Ok(n.div_ceil(CHUNKS).max(least).min(n))
        }
    }
}

pub(super) fn refuse(problem: &Problem, why: &str) -> Error {
    Error::Operand {
        problem: problem.to_string(),
        why: why.to_owned(),
    }
}

pub(super) fn check_len(
    problem: &Problem,
    what: &'static str,
    found: usize,
    expected: usize,
) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        expected,
        found,
        problem: problem.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;
    use crate::{
        Device, Pipeline,
        variant::{Args, Configured, Info, Kind, Packing, Plan, Prepared, Query, Variant},
    };

    /// Multiplies by one weight. Configuration 0 takes three images or more; each packs the weight in its
    /// own way.
    struct Choosy(Info);

    fn choosy() -> Arc<dyn Variant> {
        let mut info = Info::new("choosy", "choosy", "multiplies", "here", Kind::Cpu);
        info.configs = ["many", "few"].map(str::to_owned).to_vec();
        Arc::new(Choosy(info))
    }

    // SAFETY: what it readies keeps to one f32 of each image, of the filter, and of the packed one.
    unsafe impl Variant for Choosy {
        fn info(&self) -> &Info {
            &self.0
        }

        fn plan(&self, query: &Query) -> Result<Plan, String> {
            match (query.config, query.problem.n()) {
                (0, ..3) => Err("takes three images or more".to_owned()),
                (config, _) => Ok(Plan::default().packing(Packing::new(4, config as u64))),
            }
        }

        fn prepare(&self, _: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
            let (images, added) = (query.problem.n(), query.config as f32);
            let packing = plan.packing;
            Ok(Box::new(Multiply {
                images,
                added,
                packing,
            }))
        }
    }

    struct Multiply {
        images: usize,
        /// What is added to the weight where it is packed.
        added: f32,
        packing: Option<Packing>,
    }

    // SAFETY: as above.
    unsafe impl Prepared for Multiply {
        fn packing(&self) -> Option<Packing> {
            self.packing
        }

        unsafe fn pack(&self, w: *const c_void, packed: *mut c_void, _: *mut c_void) -> Result<()> {
            // SAFETY: one f32 each.
            unsafe { packed.cast::<f32>().write(*w.cast::<f32>() + self.added) };
            Ok(())
        }

        unsafe fn launch(&self, args: Args) -> Result<()> {
            let (x, y) = (args.x.cast::<f32>(), args.y.cast::<f32>());
            // SAFETY: one f32, and one of each image.
            unsafe {
                let weight = *args.packed.cast::<f32>() - self.added;
                (0..self.images).for_each(|i| y.add(i).write(weight * *x.add(i)));
            }
            Ok(())
        }
    }

    #[test]
    fn the_rest_is_chosen_anew_where_it_is_refused() {
        let variant = choosy();
        let problem: Problem = "mb7ic1ih1oc1kh1+align=4".parse().unwrap();
        let conv = |few: usize| {
            let variant = variant.clone();
            move |problem: &Problem| {
                let config = if problem.n() < 3 { few } else { 0 };
                let variant = variant.clone();
                Conv::with_variant(&Device::cpu(), problem, Configured { variant, config })
            }
        };
        let batch = Batch::new(&problem, conv(1), &[2f32], &[], Some(3)).unwrap();
        let mut pipeline = Pipeline::over_streams(Arc::new(batch), 2, false).unwrap();
        let rest = pipeline.rest().unwrap();
        assert_eq!((rest.problem().n(), rest.config()), (1, 1));
        assert_eq!(pipeline.conv().config(), 0);
        let (x, mut y) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [0.0; 7]);
        pipeline.run(&x, &mut y).unwrap();
        assert_eq!(y, x.map(|x| 2.0 * x));

        // Who names the configuration is told.
        let refused = Batch::new(&problem, conv(0), &[2f32], &[], Some(3));
        let error = refused.err().unwrap();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        // Where it is not refused, both are the same, and so is the packed filter.
        let problem = problem.with(|shape| shape.n = 9).unwrap();
        let batch = Batch::new(&problem, conv(1), &[2f32], &[], Some(6)).unwrap();
        let rest = batch.rest.unwrap();
        assert_eq!(rest.conv.config(), 0);
        let [whole, rest] = [batch.whole.packed, rest.packed].map(Option::unwrap);
        assert!(Arc::ptr_eq(&whole, &rest));
    }
}
