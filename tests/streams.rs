//! Two filters on two streams: what one stream computes is not the other's business, whatever a
//! variant keeps per device (a filter in constant memory) or per stream (a library's handle).
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

mod common;

use common::{Answer, Configured};
use convforge::{Buffer, Conv, Device, Operands, Packed, Result, Stream, Workspace};
use libtest_mimic::{Arguments, Completion};

/// The first that a variant can do is taken.
const PROBLEMS: [&str; 4] = [
    "mb24ic4ih40oc16oh34kh7",
    "mb24ic4ih40oc16oh34kh7+math=f16",
    "mb24ic4ih40oc16oh34kh7+math=f16acc",
    "mb3ic4096ih1oc1024oh1kh1",
];

/// Runs on each stream, alternating. None is waited for before the last.
const ROUNDS: usize = 12;

fn main() {
    let mut arguments = Arguments::from_args();
    let gpu = Device::gpu(0).map_err(|why| why.to_string());
    if gpu.is_ok() {
        arguments.test_threads.get_or_insert(1);
    }
    let trials = common::trials(&gpu, "two filters", two_filters).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

/// A stream with its own filter, and what it has computed.
struct Lane {
    stream: Stream,
    workspace: Workspace,
    filter: Buffer<f32>,
    packed: Option<Packed>,
    outputs: Vec<Buffer<f32>>,
}

impl Lane {
    fn new(device: &Device, conv: &Conv, factor: f32) -> Result<Self> {
        let problem = conv.problem();
        let stream = device.stream()?;
        let filter: Vec<f32> = (0..problem.w_len())
            .map(|i| factor * ((i % 5) as f32 - 2.0))
            .collect();
        let filter = device.upload(&filter)?;
        let packed = conv.pack(&filter, &stream)?;
        stream.synchronize()?;
        Ok(Lane {
            workspace: conv.workspace(&stream)?,
            stream,
            filter,
            packed,
            outputs: Vec::new(),
        })
    }

    fn run(&mut self, device: &Device, conv: &Conv, x: &Buffer<f32>) -> Result<()> {
        let mut y = device.alloc::<f32>(conv.problem().y_len())?;
        let mut operands = Operands::new(x, &self.filter, &mut y);
        if let Some(packed) = &self.packed {
            operands = operands.packed(packed);
        }
        conv.run_with(operands, &mut self.workspace, &self.stream)?;
        self.outputs.push(y);
        Ok(())
    }
}

fn two_filters(device: &Device, configured: &Configured) -> Answer {
    let conv = match common::conv(device, configured, &PROBLEMS) {
        Ok(conv) => conv,
        Err(answer) => return answer,
    };
    let problem = conv.problem();
    let x: Vec<f32> = (0..problem.x_len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let x = device.upload(&x)?;

    // The second filter is the first times -2, so whole numbers make its outputs exact as well.
    let mut lanes = [
        Lane::new(device, &conv, 1.0)?,
        Lane::new(device, &conv, -2.0)?,
    ];
    // Alone first.
    lanes[0].run(device, &conv, &x)?;
    let alone = lanes[0].outputs[0].to_vec(&lanes[0].stream)?;
    if alone.iter().all(|v| *v == 0.0) {
        return Err("every output is zero, which shows nothing".into());
    }
    for _ in 0..ROUNDS {
        for lane in &mut lanes {
            lane.run(device, &conv, &x)?;
        }
    }
    for (lane, factor) in lanes.iter().zip([1.0, -2.0]) {
        lane.stream.synchronize()?;
        for (round, output) in lane.outputs.iter().enumerate() {
            let output = output.to_vec(&lane.stream)?;
            let wrong = output
                .iter()
                .zip(&alone)
                .filter(|(y, v)| **y != factor * **v);
            match wrong.count() {
                0 => {}
                count => {
                    return Err(format!(
                        "{count} outputs of run {round} with the filter times {factor} are wrong"
                    )
                    .into());
                }
            }
        }
    }
    Ok(Completion::Completed)
}
