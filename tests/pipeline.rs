//! Pipelines of every variant: over any number of streams, from either kind of host memory, the
//! output is that of the whole batch at once. And both copy engines are busy at the same time.
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use common::{Answer, Configured};
use convforge::{
    Conv, Device, Operands, Pipeline, Problem, Result, pipeline::Options, variant::Arithmetic,
};
use convforge_check::{Data, Recipe, Tensor};
use libtest_mimic::{Arguments, Completion, Failed};

/// The first that a variant can do is taken.
const PROBLEMS: [&str; 4] = [
    "mb25ic4ih40oc16oh34kh7",
    "mb25ic4ih40oc16oh34kh7+math=f16",
    "mb25ic4ih40oc16oh34kh7+math=f16acc",
    "mb3ic4096ih1oc1024oh1kh1",
];

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| why.to_string());
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let engines = common::trial(
        "both_copy_engines_are_busy",
        gpu.clone(),
        both_copy_engines_are_busy,
    );
    let trials = common::trials(&gpu, "cut", equal)
        .chain([engines])
        .collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whole numbers, so that sums are exact whatever a library's plan for a batch of another size.
fn values(problem: &Problem, tensor: Tensor) -> Vec<f32> {
    let bytes = Recipe::new(problem, Data::Integer, 1).bytes(tensor);
    let values = bytes.chunks_exact(4);
    values
        .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
        .collect()
}

/// The whole batch at once.
fn unpipelined(device: &Device, conv: &Conv, x: &[f32], w: &[f32]) -> Result<Vec<f32>> {
    let stream = device.stream()?;
    let (x, w) = (device.upload(x)?, device.upload(w)?);
    let mut y = device.alloc(conv.problem().y_len())?;
    let packed = conv.pack(&w, &stream)?;
    let operands = Operands::new(&x, &w, &mut y).packed(packed.as_ref());
    let mut workspace = conv.workspace(&stream)?;
    conv.run_with(operands, &mut workspace, &stream)?;
    y.to_vec(&stream)
}

fn equal(device: &Device, configured: &Configured) -> Answer {
    if configured.0.info().arithmetic == Arithmetic::Transform {
        let why = "a transform's output may depend on the batch it is in";
        return Ok(Completion::ignored_with(why));
    }
    let whole = match common::conv(device, configured, &PROBLEMS) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    let problem = whole.problem();
    let (x, w) = (values(problem, Tensor::X), values(problem, Tensor::W));
    let expected = unpipelined(device, &whole, &x, &w)?;
    if expected.iter().all(|y| *y == 0.0) {
        return Err("every output is zero, which shows nothing".into());
    }
    // Of 25 images the last chunk has fewer.
    let options = Options {
        streams: 1,
        chunk: Some(problem.n().div_ceil(4)),
        timeline: false,
    };
    let one = Pipeline::with_variant(device, problem, configured.clone(), &w, &[], &options)?;
    for streams in [1, 2, 3, 16] {
        for timeline in [false, true] {
            let mut pipeline = one.over(streams, timeline)?;
            let mut y = vec![f32::NAN; expected.len()];
            let spans = pipeline.run(&x, &mut y)?.spans;
            let wrong = format!("over {streams} streams the output is another");
            ensure(y == expected, &wrong)?;
            let pieces = if timeline { 3 * pipeline.chunks() } else { 0 };
            ensure(spans.len() == pieces, "pieces of work are missing")?;
            pinned(device, &mut pipeline, &x, &expected)?;
        }
    }
    Ok(Completion::Completed)
}

#[cfg(feature = "cuda")]
fn pinned(
    device: &Device,
    pipeline: &mut Pipeline<f32>,
    x: &[f32],
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
        y.fill(f32::NAN);
        pipeline.run(&pinned_x, &mut y)?;
        let streams = pipeline.streams();
        let wrong = format!("from pinned memory over {streams} streams the output is another");
        ensure(y[..] == expected[..], &wrong)?;
    }
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn pinned(_: &Device, _: &mut Pipeline<f32>, _: &[f32], _: &[f32]) -> Result<(), Failed> {
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
    let options = Options {
        streams: 4,
        chunk: None,
        timeline: true,
    };
    let mut cut = Pipeline::new(device, &problem, &Pick::Kernels, &w, &[], &options)?;
    let mut x = PinnedBuffer::alloc(gpu, problem.x_len())?;
    x.copy_from_slice(&values(&problem, Tensor::X));
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
    let several = shares(&mut cut)?;
    let one = shares(&mut cut.over(1, true)?)?;
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

fn ensure(holds: bool, otherwise: &str) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
