//! A batch in host memory, split over 1, 2, 4 and 8 streams: on a GPU from and to pinned memory, without
//! one on the CPU, where the chunks go one after the other. With the word `timeline` it tells of each
//! run what was done when.
//!
//! `cargo run --release --example pipeline [PROBLEM] [VARIANT] [timeline]`

#[cfg(feature = "cuda")]
use convforge::gpu::PinnedBuffer;
use convforge::{Device, Error, Pick, Pipeline, Problem, pipeline::Options};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let problem = args.next().unwrap_or("mb64ic1ih86oc4kh7".to_owned());
    let pick = args.next().unwrap_or("auto".to_owned());
    let (problem, pick): (Problem, Pick) = (problem.parse()?, pick.parse()?);
    let timeline = args.next().is_some_and(|word| word == "timeline");

    let (device, why_no_gpu) = Device::best();
    if let Some(why) = why_no_gpu {
        eprintln!("{}; using {device}", convforge::chain(&why));
    }
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.as_gpu() {
        let mut x = PinnedBuffer::alloc(gpu, problem.x_len())?;
        let mut y = PinnedBuffer::alloc(gpu, problem.y_len())?;
        return run(&device, (&problem, &pick), &mut x, &mut y, timeline);
    }
    let (mut x, mut y) = (vec![0.0; problem.x_len()], vec![0.0; problem.y_len()]);
    run(&device, (&problem, &pick), &mut x, &mut y, timeline)
}

fn run(
    device: &Device,
    (problem, pick): (&Problem, &Pick),
    x: &mut [f32],
    y: &mut [f32],
    timeline: bool,
) -> Result<(), Error> {
    for (i, x) in x.iter_mut().enumerate() {
        *x = (i % 13) as f32 - 6.0;
    }
    let filter: Vec<f32> = (0..problem.w_len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let bias = vec![1.0; problem.bias_len()];
    let bias = if problem.epilogue().bias {
        &bias[..]
    } else {
        &[]
    };

    for streams in [1, 2, 4, 8] {
        let options = Options::default().streams(streams).timeline(timeline);
        // Memory, streams and the filter's copy; a run only copies images and computes.
        let mut pipeline = Pipeline::new(device, problem, pick, &filter, bias, &options)?;
        pipeline.run(x, y)?;
        let ran = pipeline.run(x, y)?;
        println!(
            "{} streams, {} chunks: {:.0} us on {device}",
            pipeline.streams(),
            pipeline.chunks(),
            ran.us
        );
        for span in &ran.spans {
            println!(
                "{:10.0} to {:10.0} us: {:?} of chunk {} on stream {}",
                span.begin_us, span.end_us, span.work, span.chunk, span.stream
            );
        }
    }
    println!("the first outputs: {:?}", &y[..y.len().min(8)]);
    Ok(())
}
