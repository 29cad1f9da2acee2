//! Two filters on two streams: what one stream computes is not the other's business, whatever a
//! variant keeps per device (a filter in constant memory) or per stream (a library's handle).
//!
//! Without a GPU its variants are `ignored`, with the reason; `CONVFORGE_REQUIRE_GPU=1` makes that a
//! failure.

use std::{env, sync::Arc};

use convforge::{
    Buffer, Conv, Device, Error, Operands, Packed, Problem, Result, Stream, Workspace,
    variant::{self, Kind, Query, Variant},
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

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
    let trial = |variant: &Arc<dyn Variant>| {
        let device = match variant.info().kind {
            Kind::Cpu => Ok(Device::Cpu),
            _ => gpu.clone(),
        };
        let variant = variant.clone();
        let name = variant.info().name.clone();
        Trial::ignorable_test(name, move || match &device {
            Ok(device) => two_filters(device, &variant),
            Err(why) if required() => Err(why.into()),
            Err(why) => Ok(Completion::ignored_with(why)),
        })
    };
    let trials = variant::all().iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn required() -> bool {
    env::var_os("CONVFORGE_REQUIRE_GPU").is_some_and(|value| value != "0")
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

fn two_filters(device: &Device, variant: &Arc<dyn Variant>) -> Result<Completion, Failed> {
    let limits = device.limits();
    let problems = PROBLEMS.map(|text| text.parse::<Problem>().expect("a problem"));
    let supported = problems.iter().find(|problem| {
        let query = Query {
            problem,
            config: 0,
            limits: &limits,
        };
        variant::supports(&**variant, device, &query).is_ok()
    });
    let Some(problem) = supported else {
        return Ok(Completion::ignored_with("can do none of the problems"));
    };
    let conv = match Conv::with_variant(device, problem, variant.clone(), 0) {
        // A library that is not there, or that has no such plan.
        Err(error @ (Error::Library { .. } | Error::Unsupported { .. })) => {
            return Ok(Completion::ignored_with(error.to_string()));
        }
        conv => conv?,
    };
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
