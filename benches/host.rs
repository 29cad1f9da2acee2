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

use std::{fmt, process::ExitCode, sync::Arc, time::Instant};

use common::{drawn, with_element};
use convforge::{
    Buffer, Conv, Device, Element, Error, Operands, Stream, Workspace, variant::Variant, variants,
};
use convforge_check::Domain;
use recording::Recording;

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
    let mut left_out = Vec::new();
    for variant in variants::all() {
        let info = variant.info();
        let named = names.is_empty() || names.iter().any(|name| info.name.contains(name.as_str()));
        if !named || common::device_of(&**variant, &Ok(device.clone()))? != device {
            continue;
        }
        match conv(&device, variant)? {
            Ok(conv) => with_element!(conv.problem().storage(), line(&conv))?,
            Err(why) => {
                println!("{:30} not measured: {why}", info.name);
                left_out.extend(why.is_failure.then_some(&*info.name));
            }
        }
    }
    match left_out[..] {
        [] => Ok(()),
        _ => Err(format!(
            "without a problem in benches/host-problems.txt: {}",
            left_out.join(", ")
        )
        .into()),
    }
}

/// Why a variant is not measured.
struct Refusal {
    why: String,
    /// Neither the chip nor a missing library is what keeps it.
    is_failure: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// The variant's first configuration on the first of the problems that it can do.
fn conv(device: &Device, variant: &Arc<dyn Variant>) -> Result<Result<Conv, Refusal>, Failure> {
    let mut refusal = Refusal {
        why: "there is no problem".to_owned(),
        is_failure: true,
    };
    for problem in common::host_problems() {
        match Conv::with_variant(device, &problem, variant.clone(), 0) {
            Ok(conv) => return Ok(Ok(conv)),
            Err(error @ (Error::Library { .. } | Error::Unsupported { .. })) => {
                refusal.is_failure = !matches!(error, Error::Library { .. });
                refusal.why = error.to_string();
            }
            Err(error) => return Err(error.into()),
        }
    }
    let limits = device.limits();
    let domain = Domain::of(&**variant, &limits)[0];
    if let Some(why) = drawn::unable_here(&domain) {
        refusal = Refusal {
            why,
            is_failure: false,
        };
    }
    Ok(Err(refusal))
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
