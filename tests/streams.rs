//! Two filters on two streams: what one stream computes is not the other's business, whatever a
//! variant keeps per device (a filter in constant memory) or per stream (a library's handle). Every
//! configuration of every variant meets a problem of its own range.
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use common::{
    Answer,
    drawn::{self, Wanted},
    numbers, poison, with_element,
};
use convforge::{
    Buffer, Conv, Device, Element, Operands, Packed, Result, Stream, Workspace, variant::Configured,
};
use convforge_check::{Data, Tensor};
use libtest_mimic::{Arguments, Completion};

/// Runs on each stream, alternating. None is waited for before the last.
const ROUNDS: usize = 12;

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let trials = common::trials(&gpu, "two filters", two_filters).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// A stream with its own filter, and an output for each run, since nothing may wait between them.
struct Lane<T: Element> {
    stream: Stream,
    workspace: Workspace,
    filter: Buffer<T>,
    packed: Option<Packed>,
    outputs: Vec<Buffer<T>>,
}

impl<T: Element> Lane<T> {
    fn new(conv: &Conv, filter: &[T]) -> Result<Self> {
        let stream = conv.device().stream()?;
        let filter = conv.device().upload(filter)?;
        let packed = conv.pack(&filter, &stream)?;
        stream.synchronize()?;
        let nothing = poison(conv.problem().y_len());
        let outputs = (0..ROUNDS).map(|_| conv.device().upload(&nothing));
        Ok(Lane {
            workspace: conv.workspace(&stream)?,
            filter,
            packed,
            outputs: outputs.collect::<Result<_>>()?,
            stream,
        })
    }

    fn run(&mut self, conv: &Conv, x: &Buffer<T>, round: usize) -> Result<()> {
        let y = &mut self.outputs[round];
        let operands = Operands::new(x, &self.filter, y).packed(self.packed.as_ref());
        conv.run_with(operands, &mut self.workspace, &self.stream)
    }
}

fn two_filters(device: &Device, configured: &Configured) -> Answer {
    let conv = match drawn::ready(device, configured, Wanted::SUMS) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    with_element!(conv.problem().storage(), alternating(&conv))
}

fn alternating<T: Element>(conv: &Conv) -> Answer {
    let values = |tensor| common::values::<T>(conv.problem(), Data::Integer, tensor, drawn::SEED);
    let x = conv.device().upload(&values(Tensor::X))?;
    // Whole numbers, so that the sums of either filter are exact, and each other's negatives.
    let filter = values(Tensor::W);
    let mut lanes = [
        Lane::new(conv, &filter)?,
        Lane::new(conv, &negated(&filter))?,
    ];
    // Alone first.
    lanes[0].run(conv, &x, 0)?;
    let alone = lanes[0].outputs[0].to_vec(&lanes[0].stream)?;
    if numbers(&alone).iter().all(|y| *y == 0.0) {
        return Err("every output is zero, which shows nothing".into());
    }
    let alone = [numbers(&alone), numbers(&negated(&alone))];
    for round in 0..ROUNDS {
        for lane in &mut lanes {
            lane.run(conv, &x, round)?;
        }
    }
    for (lane, (expected, filter)) in lanes.iter().zip(alone.iter().zip(["", "negated "])) {
        lane.stream.synchronize()?;
        for (round, output) in lane.outputs.iter().enumerate() {
            let output = numbers(&output.to_vec(&lane.stream)?);
            let wrong = output.iter().zip(expected).filter(|(y, v)| y != v).count();
            let why = format!("{wrong} outputs of run {round} with the {filter}filter are wrong");
            common::ensure(wrong == 0, &why)?;
        }
    }
    Ok(Completion::Completed)
}

fn negated<T: Element>(values: &[T]) -> Vec<T> {
    let mut values = values.to_vec();
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
    // The sign is the highest bit of the last byte.
    let elements = bytes.chunks_exact_mut(size_of::<T>());
    elements.for_each(|element| element[size_of::<T>() - 1] ^= 0x80);
    values
}
