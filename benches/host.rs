//! `cargo bench --bench host`: the host's time of one `Conv::run`, for the first configuration of every
//! variant, beside that of the bare driver calls that enqueue the same kernels. Arguments narrow it
//! to variants with one of them in their names. With `benches/inside.c` before it, a library's variant
//! is also held beside its library's own calls and the bare calls that enqueue the rest.
//!
//! The problems are so small that the GPU keeps up. Both sides enqueue in batches, in turn; what
//! is shown are medians of the batches, and for the run the tenth and ninetieth of a hundred.

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "../tests/common/recording.rs"]
mod recording;

use std::{ffi::c_int, fmt, process::ExitCode, sync::Arc, time::Instant};

use common::{drawn, with_element};
use convforge::{
    Buffer, Conv, Device, Element, Error, Operands, Stream, Workspace, chain, gpu,
    variant::{Kind, Variant},
    variants,
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
            eprintln!("error: {}", chain(&*error));
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
    let inside = Inside::find();
    let more = inside
        .as_ref()
        .map_or("", |_| "   library    others  ratio");
    println!(
        "variant                        calls   bare us    run us     (p10 to p90)  ratio{more}"
    );
    let mut left_out = Vec::new();
    for variant in variants::all() {
        let info = variant.info();
        let named = names.is_empty() || names.iter().any(|name| info.name.contains(name.as_str()));
        if !named || common::device_of(variant.info(), &Ok(device.clone()))? != device {
            continue;
        }
        match conv(&device, variant)? {
            Ok(conv) => with_element!(conv.problem().storage(), line(&conv, inside.as_ref()))?,
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
        match Conv::with_variant(device, &problem, variant.clone()) {
            Ok(conv) => return Ok(Ok(conv)),
            Err(error @ (Error::Library { .. } | Error::Unsupported { .. })) => {
                refusal.is_failure = !matches!(error, Error::Library { .. });
                refusal.why = chain(&error);
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

/// What `benches/inside.c` offers.
struct Inside {
    us: unsafe extern "C" fn() -> f64,
    skip: unsafe extern "C" fn(c_int),
}

impl Inside {
    /// Where it was put before this program.
    fn find() -> Option<Self> {
        let program = libloading::os::unix::Library::this();
        // SAFETY: these are their types, and they stay as long as the program.
        unsafe {
            Some(Inside {
                us: *program.get("inside_us").ok()?,
                skip: *program.get("inside_skip").ok()?,
            })
        }
    }

    /// Microseconds that libraries' own calls took since this was asked last.
    fn us(&self) -> f64 {
        // SAFETY: it only reads and writes a number, and this program has one thread.
        unsafe { (self.us)() }
    }

    /// What `work` enqueues on a stream besides libraries' own calls.
    fn others(
        &self,
        queue: &gpu::Stream,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Recording, Failure> {
        // SAFETY: as above.
        unsafe { (self.skip)(1) };
        let recording = Recording::of(queue, work);
        // SAFETY: as above.
        unsafe { (self.skip)(0) };
        recording
    }
}

fn line<T: Element>(conv: &Conv, inside: Option<&Inside>) -> Result<(), Failure> {
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
    let inside = inside.filter(|_| conv.variant().info().kind == Kind::Baseline);
    let others = match inside {
        Some(inside) => Some(inside.others(queue, || run(&mut y, &mut workspace))?),
        None => None,
    };

    let _current = queue.gpu().enter()?;
    let enqueue = |recording: &Recording| {
        // SAFETY: all that was recorded is alive, and the context current.
        batch_us(&stream, || Ok(unsafe { recording.enqueue(queue) }?))
    };
    let own = || inside.map_or(0.0, |inside| inside.us() / f64::from(RUNS));
    let mut times = Times::default();
    for batch in 0..=BATCHES {
        own();
        let ran = batch_us(&stream, || Ok(run(&mut y, &mut workspace)?))?;
        let own = own();
        let bare = enqueue(&recording)?;
        let others = others.as_ref().map_or(Ok(0.0), enqueue)?;
        if batch > 0 {
            times.note([ran, bare, own, others]);
        }
    }
    times.print(conv, recording.len(), inside.is_some());
    Ok(())
}

/// Of each batch: of a run, of all bare calls, of the library's own calls, of the bare calls besides.
#[derive(Default)]
struct Times([Vec<f64>; 4]);

impl Times {
    fn note(&mut self, batch: [f64; 4]) {
        for (times, us) in self.0.iter_mut().zip(batch) {
            times.push(us);
        }
    }

    fn print(mut self, conv: &Conv, calls: usize, with_library: bool) {
        for times in &mut self.0 {
            times.sort_by(f64::total_cmp);
        }
        let of = |times: &[f64], percent: usize| times[(times.len() - 1) * percent / 100];
        let [ran, bare, own, others] = self.0.each_ref().map(|times| of(times, 50));
        let [p10, p90] = [10, 90].map(|percent| of(&self.0[0], percent));
        print!(
            "{:30} {calls:5} {bare:9.2} {ran:9.2} ({p10:6.2} to {p90:6.2}) {:6.2}",
            conv.name(),
            ran / bare,
        );
        match with_library {
            true => println!(" {own:9.2} {others:9.2} {:6.2}", ran / (own + others)),
            false => println!(),
        }
    }
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
