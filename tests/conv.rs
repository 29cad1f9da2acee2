//! What a convolution promises, kept by every configuration of every variant, on a problem of its
//! own domain.
//!
//! | trial | promise |
//! | --- | --- |
//! | recorded | its first run can be recorded in a graph, and replayed on other inputs |
//! | shared | several threads run it, and others of the same kernels in other sizes, on streams of their own at the same time |
//! | elsewhere | what lies on another device is refused |
//! | viewed | it reads and writes the middle of larger buffers as it does whole ones |
//! | packed once | one packed filter serves every batch, and every configuration that arranges it alike; another filter's is refused |
//! | infinities | a handwritten row without a caveat makes what an fp32 loop makes of an infinity, a NaN and a number near the largest |
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use std::thread;

use bytemuck::Pod;
use common::{
    Answer,
    drawn::{self, SEED, Wanted},
    poison, with_element,
};
use convforge::{
    Buffer, Conv, Device, Element, Error, Operands, Packed, Problem, Result, Storage, Stream, View,
    ViewMut, Workspace, chain,
    variant::{Configured, Kind},
    variants,
};
use convforge_check::{Data, Domain, Tensor};
use libtest_mimic::{Arguments, Completion, Failed};

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| chain(&why));
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let trials = common::trials(&gpu, "recorded", recorded)
        .chain(common::trials(&gpu, "shared", shared))
        .chain(common::trials(&gpu, "elsewhere", elsewhere))
        .chain(common::trials(&gpu, "viewed", viewed))
        .chain(common::trials(&gpu, "packed once", packed_once))
        .chain(common::trials(&gpu, "infinities", infinities));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn values<T: Pod>(problem: &Problem, tensor: Tensor, seed: u64) -> Vec<T> {
    common::values(problem, Data::Normal, tensor, seed)
}

fn bytes<T: Element>(y: &Buffer<T>, stream: &Stream) -> Result<Vec<u8>> {
    Ok(bytemuck::cast_slice(&y.to_vec(stream)?).to_vec())
}

/// What a convolution only reads, but for the input.
struct Inputs<T: Element> {
    w: Buffer<T>,
    bias: Buffer<f32>,
    residual: Buffer<T>,
}

impl<T: Element> Inputs<T> {
    fn new(device: &Device, problem: &Problem) -> Result<Self> {
        Ok(Inputs {
            w: device.upload(&values(problem, Tensor::W, SEED))?,
            bias: device.upload(&values(problem, Tensor::Bias, SEED))?,
            residual: device.upload(&values(problem, Tensor::Residual, SEED))?,
        })
    }

    fn operands<'a>(
        &'a self,
        problem: &Problem,
        (x, y): (impl Into<View<'a, T>>, impl Into<ViewMut<'a, T>>),
        packed: Option<&'a Packed>,
    ) -> Operands<'a, T> {
        let mut operands = Operands::new(x, &self.w, y);
        if problem.epilogue().bias {
            operands = operands.bias(&self.bias);
        }
        if problem.epilogue().residual {
            operands = operands.residual(&self.residual);
        }
        operands.packed(packed)
    }
}

/// One run by itself, in bytes.
fn alone<T: Element>(
    conv: &Conv,
    inputs: &Inputs<T>,
    x: &Buffer<T>,
    packed: Option<&Packed>,
) -> Result<Vec<u8>, Failed> {
    let stream = conv.device().stream()?;
    let mut workspace = conv.workspace(&stream)?;
    let mut y = conv.device().upload(&poison(conv.problem().y_len()))?;
    let operands = inputs.operands(conv.problem(), (x, &mut y), packed);
    conv.run_with(operands, &mut workspace, &stream)?;
    let y = bytes(&y, &stream)?;
    let shows = y.iter().any(|byte| *byte != y[0]);
    common::ensure(shows, "all outputs are equal, which shows nothing")?;
    Ok(y)
}

#[cfg(not(feature = "cuda"))]
fn recorded(_: &Device, _: &Configured) -> Answer {
    Ok(Completion::ignored_with("the CPU records nothing"))
}

#[cfg(feature = "cuda")]
fn recorded(device: &Device, configured: &Configured) -> Answer {
    let conv = match drawn::ready(device, configured, Wanted::ANY) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    with_element!(conv.problem().storage(), replayed(&conv))
}

#[cfg(feature = "cuda")]
fn replayed<T: Element>(conv: &Conv) -> Answer {
    let (device, problem) = (conv.device(), conv.problem());
    let stream = device.stream()?;
    let Some(queue) = stream.as_gpu() else {
        return Ok(Completion::ignored_with("the CPU records nothing"));
    };
    let inputs = Inputs::<T>::new(device, problem)?;
    let packed = conv.pack(&inputs.w, &stream)?;
    stream.synchronize()?;
    let mut x = device.upload(&values(problem, Tensor::X, SEED))?;
    // Libraries load their kernels in the first run, which cannot be recorded; what a handwritten row
    // launches is loaded before.
    if conv.variant().info().kind != Kind::Kernel {
        alone(conv, &inputs, &x, packed.as_ref())?;
    }

    let mut workspace = conv.workspace(&stream)?;
    let nothing = poison(problem.y_len());
    let mut y = device.upload(&nothing)?;
    let graph = queue.capture(|_| {
        let operands = inputs.operands(problem, (&x, &mut y), packed.as_ref());
        conv.run_with(operands, &mut workspace, &stream)
    })?;
    let untouched = bytes(&y, &stream)? == bytemuck::cast_slice::<T, u8>(&nothing);
    common::ensure(untouched, "it ran while it was recorded")?;
    let mut pairs = Vec::new();
    for seed in [1, 2] {
        let values = values(problem, Tensor::X, seed);
        x.copy_from(&values, &stream)?;
        pairs.push((values, alone(conv, &inputs, &x, packed.as_ref())?));
    }
    for round in 0..3 {
        for (values, expected) in &pairs {
            x.copy_from(values, &stream)?;
            y.copy_from(&nothing, &stream)?;
            // SAFETY: the buffers, the packed filter and the workspace are alive.
            unsafe { graph.launch(queue)? };
            let same = bytes(&y, &stream)? == *expected;
            common::ensure(same, &format!("replay {round} gives another output"))?;
        }
    }
    // Twice, so that kernels that begin early have one ahead of them.
    let in_order = queue.capture_in_order(|_| {
        (0..2).try_for_each(|_| {
            let operands = inputs.operands(problem, (&x, &mut y), packed.as_ref());
            conv.run_with(operands, &mut workspace, &stream)
        })
    });
    let in_order = match in_order {
        Err(Error::Library { .. }) => None, // a driver from before 12.3
        answer => answer?,
    };
    if let (Some(graph), Some((_, expected))) = (in_order, pairs.last()) {
        y.copy_from(&nothing, &stream)?;
        // SAFETY: as above.
        unsafe { graph.launch(queue)? };
        let same = bytes(&y, &stream)? == *expected;
        common::ensure(same, "in order it gives another output")?;
    }
    Ok(Completion::Completed)
}

fn shared(device: &Device, configured: &Configured) -> Answer {
    let first = match drawn::ready(device, configured, Wanted::ANY) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    // One of another size: what a launch asks of its kernel differs.
    let problem = first.problem().clone();
    let other = drawn::ready_for(device, configured, Wanted::ANY, |other| {
        other.storage() == problem.storage() && other.w_len() != problem.w_len()
    });
    let convs: Vec<Conv> = [Some(first), other.ok()].into_iter().flatten().collect();
    with_element!(problem.storage(), by_threads(&convs))
}

/// Runs that a thread queues before it waits.
const ROUNDS: usize = 8;

/// A convolution, and what its runs read.
struct Prepared<'a, T: Element> {
    conv: &'a Conv,
    inputs: Inputs<T>,
    packed: Option<Packed>,
}

impl<T: Element> Prepared<'_, T> {
    /// Whether all of several runs, queued together, give what is expected.
    fn repeats(&self, x: &Buffer<T>, expected: &[u8]) -> Result<bool> {
        let (device, problem) = (self.conv.device(), self.conv.problem());
        let stream = device.stream()?;
        let mut workspace = self.conv.workspace(&stream)?;
        let outputs = (0..ROUNDS).map(|_| device.upload(&poison(problem.y_len())));
        let mut outputs = outputs.collect::<Result<Vec<Buffer<T>>>>()?;
        for y in &mut outputs {
            let operands = self.inputs.operands(problem, (x, y), self.packed.as_ref());
            self.conv.run_with(operands, &mut workspace, &stream)?;
        }
        for y in &outputs {
            if bytes(y, &stream)? != expected {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn by_threads<T: Element>(convs: &[Conv]) -> Answer {
    let mut prepared = Vec::new();
    for conv in convs {
        let inputs = Inputs::<T>::new(conv.device(), conv.problem())?;
        let stream = conv.device().stream()?;
        let packed = conv.pack(&inputs.w, &stream)?;
        stream.synchronize()?;
        prepared.push(Prepared {
            conv,
            inputs,
            packed,
        });
    }
    // Each thread with an input of its own.
    let mut runs = Vec::new();
    for seed in 1..=4 {
        for one in &prepared {
            let values = values(one.conv.problem(), Tensor::X, seed);
            let x = one.conv.device().upload(&values)?;
            let expected = alone(one.conv, &one.inputs, &x, one.packed.as_ref())?;
            runs.push((one, x, expected));
        }
    }
    let right = thread::scope(|scope| {
        let threads: Vec<_> = runs
            .iter()
            .map(|(one, x, expected)| scope.spawn(move || one.repeats(x, expected)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.collect::<Vec<_>>()
    });
    for thread in right {
        let right = thread.map_err(|_| "a thread panicked")??;
        common::ensure(right, "beside other threads it gives another output")?;
    }
    Ok(Completion::Completed)
}

/// What the TF32 split of a number from there on would make infinite, and others that no sum hides.
const EXTREMES: [f32; 4] = [
    f32::INFINITY,
    f32::NAN,
    f32::from_bits(0x7f7f_f000),
    -f32::MAX,
];

fn infinities(device: &Device, configured: &Configured) -> Answer {
    let info = configured.info();
    if info.kind != Kind::Kernel || info.caveat.is_some() {
        return Ok(Completion::ignored_with("says itself what becomes of them"));
    }
    let plain = |problem: &Problem| {
        let word = problem.to_string();
        problem.storage() == Storage::F32 && !word.contains("math=")
    };
    let limits = device.limits();
    let domain = Domain::new(configured, &limits);
    if !Wanted::ANY.problems(domain).any(|problem| plain(&problem)) {
        let why = drawn::unable_here(&domain);
        let why = why.unwrap_or_else(|| "makes no fp32 sums of f32".to_owned());
        return Ok(Completion::ignored_with(why));
    }
    let conv = match drawn::ready_for(device, configured, Wanted::ANY, plain) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    let problem = conv.problem();
    let loops = Conv::with_variant(&Device::cpu(), problem, variants::find("cpu_direct")?)?;
    let kinds = |conv: &Conv, x: &[f32], w: &[f32]| -> Result<Vec<&'static str>, Failed> {
        let device = conv.device();
        let mut inputs = Inputs::<f32>::new(device, problem)?;
        inputs.w = device.upload(w)?;
        let stream = device.stream()?;
        let packed = conv.pack(&inputs.w, &stream)?;
        stream.synchronize()?;
        let y = alone(conv, &inputs, &device.upload(x)?, packed.as_ref())?;
        let y = y.chunks_exact(4).map(bytemuck::pod_read_unaligned);
        Ok(y.map(kind).collect())
    };
    for extreme in EXTREMES {
        for of_filter in [false, true] {
            let mut x: Vec<f32> = values(problem, Tensor::X, SEED);
            let mut w: Vec<f32> = values(problem, Tensor::W, SEED);
            let tensor = if of_filter { &mut w } else { &mut x };
            let middle = tensor.len() / 2;
            tensor[middle] = extreme;
            let same = kinds(&conv, &x, &w)? == kinds(&loops, &x, &w)?;
            let which = if of_filter { "weight" } else { "input" };
            common::ensure(
                same,
                &format!("{problem}: of the {which} {extreme} it makes others"),
            )?;
        }
    }
    Ok(Completion::Completed)
}

fn kind(v: f32) -> &'static str {
    match v {
        v if v.is_nan() => "NaN",
        v if v.is_finite() => "finite",
        v if v > 0.0 => "infinite",
        _ => "negative infinite",
    }
}

fn elsewhere(device: &Device, configured: &Configured) -> Answer {
    let other = match device.is_gpu() {
        true => Ok(Device::cpu()),
        false => Device::gpu(0),
    };
    let other = match other {
        Ok(other) => other,
        Err(why) => {
            let why = format!("no other device: {}", chain(&why));
            return Ok(Completion::ignored_with(why));
        }
    };
    let conv = match drawn::ready(device, configured, Wanted::ANY) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    with_element!(conv.problem().storage(), misplaced(&conv, &other))
}

/// Each thing in turn is on the other device.
fn misplaced<T: Element>(conv: &Conv, other: &Device) -> Answer {
    let problem = conv.problem();
    let devices = [conv.device(), other];
    let [here, there] = [devices[0].stream()?, devices[1].stream()?];
    let both = |tensor| -> Result<[Buffer<T>; 2]> {
        let values: Vec<T> = values(problem, tensor, SEED);
        Ok([devices[0].upload(&values)?, devices[1].upload(&values)?])
    };
    let (x, w, residual) = (both(Tensor::X)?, both(Tensor::W)?, both(Tensor::Residual)?);
    let values = values::<f32>(problem, Tensor::Bias, SEED);
    let bias = [devices[0].upload(&values)?, devices[1].upload(&values)?];
    let [mut y, mut y_there] = [devices[0], devices[1]].map(|d| d.alloc::<T>(problem.y_len()));
    let (y, y_there) = (y.as_mut()?, y_there.as_mut()?);
    let packed = conv.pack(&w[0], &here)?;
    let mut workspace = conv.workspace(&here)?;

    for misplaced in ["input", "filter", "output", "bias", "residual"] {
        let at = |what: &str| usize::from(what == misplaced);
        let y = if misplaced == "output" {
            &mut *y_there
        } else {
            &mut *y
        };
        let mut operands = Operands::new(&x[at("input")], &w[at("filter")], y);
        if problem.epilogue().bias {
            operands = operands.bias(&bias[at("bias")]);
        } else if misplaced == "bias" {
            continue;
        }
        if problem.epilogue().residual {
            operands = operands.residual(&residual[at("residual")]);
        } else if misplaced == "residual" {
            continue;
        }
        operands = operands.packed(packed.as_ref());
        refused(misplaced, conv.run_with(operands, &mut workspace, &here))?;
    }
    refused("filter to pack", conv.pack(&w[1], &here).map(drop))?;
    refused("stream to pack on", conv.pack(&w[0], &there).map(drop))?;
    refused("workspace's stream", conv.workspace(&there).map(drop))?;
    let mut strange = Workspace::new(&there)?;
    let inputs = Inputs::<T>::new(devices[0], problem)?;
    for (what, workspace, stream) in [
        ("stream", &mut workspace, &there),
        ("workspace", &mut strange, &here),
    ] {
        let operands = inputs.operands(problem, (&x[0], &mut *y), packed.as_ref());
        refused(what, conv.run_with(operands, workspace, stream))?;
    }
    Ok(Completion::Completed)
}

fn refused(what: &str, result: Result<()>) -> Result<(), Failed> {
    match result {
        Err(Error::WrongDevice { .. }) => Ok(()),
        other => Err(format!("the {what} is on another device: {other:?}").into()),
    }
}

fn viewed(device: &Device, configured: &Configured) -> Answer {
    let conv = match drawn::ready(device, configured, Wanted::ANY) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    with_element!(conv.problem().storage(), in_the_middle(&conv))
}

/// Bytes on both sides of a tensor, as many as the largest alignment has.
const AROUND: usize = 4096;

fn in_the_middle<T: Element>(conv: &Conv) -> Answer {
    let (device, problem) = (conv.device(), conv.problem());
    let inputs = Inputs::<T>::new(device, problem)?;
    let stream = device.stream()?;
    let packed = conv.pack(&inputs.w, &stream)?;
    stream.synchronize()?;
    let x = values(problem, Tensor::X, SEED);
    let expected = alone(conv, &inputs, &device.upload(&x)?, packed.as_ref())?;

    let gap = AROUND / size_of::<T>();
    let x = device.upload(&[poison(gap), x, poison(gap)].concat())?;
    let mut y = device.upload(&poison::<T>(2 * gap + problem.y_len()))?;
    let middle = |len: usize| gap..gap + len;
    let parts = (
        x.view(middle(problem.x_len()))?,
        y.view_mut(middle(problem.y_len()))?,
    );
    let operands = inputs.operands(problem, parts, packed.as_ref());
    conv.run_with(operands, &mut conv.workspace(&stream)?, &stream)?;

    let y = bytes(&y, &stream)?;
    let (front, rest) = y.split_at(AROUND);
    let (inside, rear) = rest.split_at(expected.len());
    common::ensure(
        inside == expected,
        "in the middle of a buffer it gives another output",
    )?;
    let untouched = front.iter().chain(rear).all(|byte| *byte == 0xff);
    common::ensure(untouched, "it wrote around its output")?;
    Ok(Completion::Completed)
}

/// A problem with other numbers of images, as far as the variant can do them.
fn batches(domain: &Domain, problem: &Problem) -> Vec<Problem> {
    let numbers = [1, 3, 100, problem.n(), problem.n() + 1, 2 * problem.n()];
    let batches = numbers.map(|n| problem.with(|shape| shape.n = n).ok());
    let able = batches.into_iter().flatten();
    able.filter(|batch| domain.has(batch)).collect()
}

fn packed_once(device: &Device, configured: &Configured) -> Answer {
    let limits = device.limits();
    let domain = Domain::new(configured, &limits);
    let packing = drawn::packing(domain);
    let Some(any) = packing.first() else {
        let why = drawn::unable_here(&domain);
        let why = why.unwrap_or_else(|| "packs none of its filters".to_owned());
        return Ok(Completion::ignored_with(why));
    };
    let mut served = packing.iter().map(|problem| batches(&domain, problem));
    let Some(batches) = served.find(|batches| batches.len() >= 3) else {
        return Err(format!("packs the filter of {any}, for few numbers of images").into());
    };
    let problem = &batches[0];
    let conv = |problem: &Problem| Conv::with_variant(device, problem, configured.clone());
    let convs = batches.iter().map(conv);
    let convs = match convs.collect::<Result<Vec<Conv>>>() {
        Err(missing @ Error::Library { .. }) => {
            return drawn::missing(&missing);
        }
        convs => convs?,
    };
    let strange = packing
        .iter()
        .find(|other| other.storage() == problem.storage() && other.w_len() != problem.w_len());
    let strange = strange.map(conv).transpose()?;
    with_element!(problem.storage(), one_for_all(&convs, strange.as_ref()))?;
    for (config, problem) in drawn::packed_alike(domain, &packing) {
        let variant = configured.variant.clone();
        let other = Conv::with_variant(device, &problem, Configured { variant, config })?;
        let convs = [conv(&problem)?, other];
        with_element!(problem.storage(), one_for_all(&convs, None))?;
    }
    Ok(Completion::Completed)
}

/// What the first of them packs serves the others; what `strange` packs serves none.
fn one_for_all<T: Element>(convs: &[Conv], strange: Option<&Conv>) -> Answer {
    let device = convs[0].device();
    let stream = device.stream()?;
    let filter = |conv: &Conv| device.upload(&values::<T>(conv.problem(), Tensor::W, SEED));
    let w = filter(&convs[0])?;
    let packed = convs[0].pack(&w, &stream)?;
    let strange = match strange {
        Some(strange) => strange.pack(&filter(strange)?, &stream)?,
        None => None,
    };
    stream.synchronize()?;
    for conv in convs {
        let problem = conv.problem();
        let inputs = Inputs::<T>::new(device, problem)?;
        let x = device.upload(&values(problem, Tensor::X, SEED))?;
        let own = conv.pack(&inputs.w, &stream)?;
        stream.synchronize()?;
        let expected = alone(conv, &inputs, &x, own.as_ref())?;
        let same = alone(conv, &inputs, &x, packed.as_ref())? == expected;
        let packed_by = format!("{} for {}", convs[0].name(), convs[0].problem());
        let wrong = format!(
            "with a filter packed by {packed_by}, {} gives another output for {problem}",
            conv.name()
        );
        common::ensure(same, &wrong)?;

        let mut workspace = conv.workspace(&stream)?;
        let mut y = device.alloc::<T>(problem.y_len())?;
        if let Some(strange) = &strange {
            let operands = inputs.operands(problem, (&x, &mut y), Some(strange));
            match conv.run_with(operands, &mut workspace, &stream) {
                Err(Error::Operand { .. }) => {}
                other => return Err(format!("took another filter, packed: {other:?}").into()),
            }
        }
        let operands = inputs.operands(problem, (&x, &mut y), None);
        match conv.run_with(operands, &mut workspace, &stream) {
            Err(Error::Operand { .. }) => {}
            other => return Err(format!("took no packed filter: {other:?}").into()),
        }
    }
    Ok(Completion::Completed)
}
