//! Pipelines of every configuration of every variant, on a batch of its own range: over any number of
//! streams, from either kind of host memory, the output is that of the whole batch at once. And both copy engines are busy at the same time.
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use common::{
    Answer,
    drawn::{self, Wanted},
    ensure, numbers, poison, with_element,
};
use convforge::{
    Conv, Device, Element, Operands, Pipeline, Problem, Result,
    pipeline::Options,
    variant::{Arithmetic, Configured},
};
use convforge_check::{Data, Tensor};
use libtest_mimic::{Arguments, Completion, Failed};

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let engines = common::trial(
        "both_copy_engines_are_busy",
        gpu.clone(),
        both_copy_engines_are_busy,
    );
    let trials = common::trials(&gpu, "in chunks", equal)
        .chain([engines])
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whole numbers, so that sums are exact whatever a library's plan for a batch of another size.
fn values<T: Element>(problem: &Problem, tensor: Tensor) -> Vec<T> {
    common::values(problem, Data::Integer, tensor, drawn::SEED)
}

/// The whole batch at once.
fn unpipelined<T: Element>(conv: &Conv, x: &[T], w: &[T]) -> Result<Vec<T>> {
    let device = conv.device();
    let stream = device.stream()?;
    let (x, w) = (device.upload(x)?, device.upload(w)?);
    let mut y = device.upload(&poison(conv.problem().y_len()))?;
    let packed = conv.pack(&w, &stream)?;
    let operands = Operands::new(&x, &w, &mut y).packed(packed.as_ref());
    let mut workspace = conv.workspace(&stream)?;
    conv.run_with(operands, &mut workspace, &stream)?;
    y.to_vec(&stream)
}

fn equal(device: &Device, configured: &Configured) -> Answer {
    if configured.info().arithmetic == Arithmetic::Transform {
        let why = "a transform's output may depend on the batch it is in";
        return Ok(Completion::ignored_with(why));
    }
    let whole = match drawn::ready(device, configured, Wanted::CHUNKS) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    with_element!(whole.problem().storage(), in_chunks(&whole, configured))
}

fn in_chunks<T: Element>(whole: &Conv, configured: &Configured) -> Answer {
    let (device, problem) = (whole.device(), whole.problem());
    let (x, w) = (values::<T>(problem, Tensor::X), values(problem, Tensor::W));
    let expected = numbers(&unpipelined(whole, &x, &w)?);
    let nothing = expected.iter().all(|y| *y == 0.0);
    ensure(!nothing, "every output is zero, which shows nothing")?;
    let options = Options::default().streams(1).chunk(problem.n().div_ceil(4));
    let one = Pipeline::with_variant(device, problem, configured.clone(), &w, &[], &options)?;
    ensure(one.rest().is_some(), "the last chunk is as large as others")?;
    for streams in [1, 2, 3, 16] {
        for timeline in [false, true] {
            let mut pipeline = one.over(streams, timeline)?;
            let mut y = poison(expected.len());
            let spans = pipeline.run(&x, &mut y)?.spans;
            let wrong = format!("{problem}: over {streams} streams the output is another");
            ensure(numbers(&y) == expected, &wrong)?;
            let pieces = if timeline { 3 * pipeline.chunks() } else { 0 };
            ensure(spans.len() == pieces, "pieces of work are missing")?;
            pinned(device, &mut pipeline, &x, &expected)?;
        }
    }
    Ok(Completion::Completed)
}

#[cfg(feature = "cuda")]
fn pinned<T: Element>(
    device: &Device,
    pipeline: &mut Pipeline<T>,
    x: &[T],
    expected: &[f32],
) -> Result<(), Failed> {
    use convforge::gpu::PinnedBuffer;

    let Some(gpu) = device.as_gpu() else {
        return Ok(());
    };
    let mut pinned_x = PinnedBuffer::alloc(gpu, x.len())?;
    pinned_x.copy_from_slice(x);
    let mut y = PinnedBuffer::alloc(gpu, expected.len())?;
    for _ in 0..3 {
        y.copy_from_slice(&poison(expected.len()));
        pipeline.run(&pinned_x, &mut y)?;
        let streams = pipeline.streams();
        let wrong = format!("from pinned memory over {streams} streams the output is another");
        ensure(numbers(&y) == expected, &wrong)?;
    }
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn pinned<T: Element>(_: &Device, _: &mut Pipeline<T>, _: &[T], _: &[f32]) -> Result<(), Failed> {
    Ok(())
}

/// Copies in and copies out overlap for more than half of the time that the shorter of the two takes
/// in all; on one stream they do not.
#[cfg(feature = "cuda")]
fn both_copy_engines_are_busy(device: &Device) -> Result<Completion, Failed> {
    use convforge::{
        Pick,
        gpu::PinnedBuffer,
        pipeline::{Span, Work},
    };

    let Some(gpu) = device.as_gpu() else {
        return Err("there is no GPU".into());
    };
    let problem: Problem = "mb2000ic1ih86oc4oh80kh7".parse()?;
    let w = values(&problem, Tensor::W);
    let options = Options::default().streams(4).timeline(true);
    let mut pipeline = Pipeline::new(device, &problem, &Pick::Kernels, &w, &[], &options)?;
    let mut x = PinnedBuffer::alloc(gpu, problem.x_len())?;
    x.copy_from_slice(&values::<f32>(&problem, Tensor::X));
    let mut y = PinnedBuffer::alloc(gpu, problem.y_len())?;
    // Spans of one direction do not overlap each other, so the sum counts no moment twice.
    let mut shares = |pipeline: &mut Pipeline<f32>| -> Result<f64> {
        pipeline.run(&x, &mut y)?;
        let spans = pipeline.run(&x, &mut y)?.spans;
        let of = |work| spans.iter().filter(move |span: &&Span| span.work == work);
        let length = |begin: f64, end: f64| (end - begin).max(0.0);
        let busy = |work| of(work).map(|s| length(s.begin_us, s.end_us)).sum::<f64>();
        let both = |a: &Span, b: &Span| length(a.begin_us.max(b.begin_us), a.end_us.min(b.end_us));
        let together: f64 = of(Work::In)
            .map(|a| of(Work::Out).map(|b| both(a, b)).sum::<f64>())
            .sum();
        Ok(together / busy(Work::In).min(busy(Work::Out)))
    };
    let several = shares(&mut pipeline)?;
    let one = shares(&mut pipeline.over(1, true)?)?;
    ensure(
        several > 0.5,
        &format!("over 4 streams only {several:.2} of the shorter direction is overlapped"),
    )?;
    ensure(
        one < 0.05,
        &format!("on one stream {one:.2} of the shorter direction seems to be overlapped"),
    )?;
    Ok(Completion::Completed)
}

#[cfg(not(feature = "cuda"))]
fn both_copy_engines_are_busy(_: &Device) -> Result<Completion, Failed> {
    Ok(Completion::ignored_with("built without the feature `cuda`"))
}
