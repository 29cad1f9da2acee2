//! `cargo bench --bench host`: the host's time of one `Conv::run`, for the first configuration of every
//! variant, beside that of the bare driver calls that enqueue the same kernels. Arguments narrow it
//! to variants with one of them in their names.
//!
//! The problems are so small that the GPU keeps up. Both sides enqueue in batches, in turn; what
//! is shown are medians of the batches, and for the run the tenth and ninetieth of a hundred.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/recording.rs"]
mod recording;

use std::{process::ExitCode, time::Instant};

use convforge::{Buffer, Conv, Device, Element, Operands, Storage, Stream, Workspace, variants};
use recording::Recording;

/// Of which each variant takes the first that it can do.
const PROBLEMS: [&str; 7] = [
    "mb1ic1ih16oc8kh5",
    "mb1ic1ih16oc8kh5+f16",
    "mb1ic8ih16oc16kh3ph1+f16+nhwc",
    "mb1ic3ih16oc16kh3ph1+math=tf32",
    "mb1ic3ih16oc16kh3ph1+math=f16acc",
    "mb1ic64ih1oc32kh1",
    "mb1ic4ih40oc16oh34kh7+f16",
];
/// Runs of a batch: fewer than a stream's queue has room for.
const RUNS: u32 = 200;
/// Batches of each side, after one that warms up.
const BATCHES: usize = 51;

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<(), Failure> {
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    let device = Device::gpu(0)?;
    println!("host time of one run on {device}");
    println!("variant                        calls   bare us    run us     (p10 to p90)  ratio");
    for variant in variants::all() {
        let info = variant.info();
        let named = names.is_empty() || names.iter().any(|name| info.name.contains(name.as_str()));
        if !named || common::device_of(&**variant, &Ok(device.clone()))? != device {
            continue;
        }
        let conv = match common::conv(&device, &(variant.clone(), 0), &PROBLEMS) {
            Ok(conv) => conv,
            Err(_) => {
                println!("{:30} can do none of the problems", info.name);
                continue;
            }
        };
        match conv.problem().storage() {
            Storage::F32 => line::<f32>(&conv)?,
            Storage::F16 => line::<half::f16>(&conv)?,
            Storage::Bf16 => line::<half::bf16>(&conv)?,
        }
    }
    Ok(())
}

fn line<T: Element>(conv: &Conv) -> Result<(), Failure> {
    let (device, problem) = (conv.device(), conv.problem());
    let stream = device.stream()?;
    let Some(queue) = stream.as_gpu() else {
        return Ok(());
    };
    let x = device.upload(&vec![T::zeroed(); problem.x_len()])?;
    let w = device.upload(&vec![T::zeroed(); problem.w_len()])?;
    let packed = conv.pack(&w, &stream)?;
    let mut y = device.alloc::<T>(problem.y_len())?;
    let mut workspace = conv.workspace(&stream)?;
    let run = |y: &mut Buffer<T>, workspace: &mut Workspace| {
        let operands = Operands::new(&x, &w, y).packed(packed.as_ref());
        conv.run_with(operands, workspace, &stream)
    };
    run(&mut y, &mut workspace)?;
    let recording = Recording::of(queue, || run(&mut y, &mut workspace))?;

    let _current = queue.gpu().enter()?;
    let mut times = [Vec::new(), Vec::new()];
    for batch in 0..=BATCHES {
        let ran = batch_us(&stream, || Ok(run(&mut y, &mut workspace)?))?;
        // SAFETY: all that was recorded is alive, and the context current.
        let bare = batch_us(&stream, || Ok(unsafe { recording.enqueue(queue) }?))?;
        if batch > 0 {
            times[0].push(ran);
            times[1].push(bare);
        }
    }
    times
        .iter_mut()
        .for_each(|times| times.sort_by(f64::total_cmp));
    let [ran, bare] = &times;
    let of = |times: &[f64], percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{:30} {:5} {:9.2} {:9.2} ({:6.2} to {:6.2}) {:6.2}",
        conv.name(),
        recording.len(),
        of(bare, 50),
        of(ran, 50),
        of(ran, 10),
        of(ran, 90),
        of(ran, 50) / of(bare, 50),
    );
    Ok(())
}

/// Microseconds of the host for one of the runs of a batch; the GPU's rest is waited for outside.
fn batch_us(
    stream: &Stream,
    mut enqueue: impl FnMut() -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let began = Instant::now();
    for _ in 0..RUNS {
        enqueue()?;
    }
    let took = began.elapsed();
    stream.synchronize()?;
    Ok(took.as_secs_f64() * 1e6 / f64::from(RUNS))
}
