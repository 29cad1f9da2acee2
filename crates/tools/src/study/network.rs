//! One variant running the network: checked, then timed, its logits judged.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use convforge::{
    Conv, Device, Error::Interrupted, Math, Operands, Stream, Workspace, variant::Kind,
};

use super::{LayerTimes, NetworkRow};
use crate::{
    Contender, Error, Result,
    measure::{Ending, Spread, Stage, Status, checked},
    net::{Network, Outcome, SIDE, check_size, classes, idx, weights::Weights},
};

/// What is classified, with which weights, and what is known of the answer.
#[derive(Clone, Copy, Debug)]
pub struct NetworkData<'a> {
    /// The weights.
    pub weights: &'a Weights,
    /// The images, 86x86.
    pub images: &'a idx::Images,
    /// Their classes; none where images or weights are made up, since accuracy means nothing then.
    pub labels: Option<&'a idx::Labels>,
    /// The right logits, ten per image.
    pub expected: Option<&'a [f32]>,
}

/// How the network is measured.
#[derive(Clone, Debug)]
pub struct NetworkOptions {
    /// The batch: the first images of the data.
    pub images: usize,
    /// How often it is run, at least once.
    pub runs: usize,
    /// After so long no further run begins.
    pub budget: Duration,
    /// Seed of the data of the check.
    pub seed: u64,
}

impl Default for NetworkOptions {
    fn default() -> Self {
        NetworkOptions {
            images: 100,
            runs: 5,
            budget: Duration::from_secs(60),
            seed: 1,
        }
    }
}

/// Images of the batch on which a kernel is checked before the network runs, where the logits of the
/// whole batch are judged as well.
const CHECKED_IMAGES: usize = 64;

/// How far a logit may be from the expected one, relative to the largest of its image. Measured
/// (docs/network.md): fp32 6.3e-7, f16 7.3e-4, f16acc 5.0e-3. The check of the convolutions is the
/// strict one; this one shows what goes wrong in large batches only, whole images then.
fn bound(math: Math) -> f64 {
    match math {
        Math::Fp32 => 1e-3,
        Math::Tf32 | Math::F16 => 1e-2,
        // How good their sums are is what the study reports.
        Math::Bf16 | Math::F16Acc => 0.25,
    }
}

/// Checks the convolutions, then runs the network on one batch and each convolution by itself, in
/// turns. Nothing is planned, opened or loaded in a timed region: all of it ran once before. What is
/// done for each image, or once per call, is inside. Op times are of plain launches: those of small
/// batches have some microseconds of the host's in them, which the graphs of
/// [`measure::time`](crate::measure::time) do not.
///
/// Each convolution passes the check that `compare` asks for. Where the logits are judged after it,
/// a handwritten kernel is checked on at most 64 images: it runs the same code for any batch. A
/// library, which plans for the batch, and a run without expected logits are checked on all.
///
/// `progress` hears what is being done. Once `stop` is set, the row ends as interrupted.
pub fn network(
    device: &Device,
    data: &NetworkData,
    contender: &Contender,
    math: Math,
    options: &NetworkOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> NetworkRow {
    let mut row = NetworkRow {
        variant: contender.name(),
        math: math.to_string(),
        images: options.images,
        status: Status::Passed,
        reason: None,
        layers: Vec::new(),
        total: None,
        accuracy: None,
        logit_deviation: None,
        runs: 0,
    };
    let mut go_on = |doing: &str| {
        progress(doing);
        match stop.load(Ordering::Relaxed) {
            true => Err(Interrupted.into()),
            false => Ok(()),
        }
    };
    let ended = measure(
        &mut row,
        device,
        data,
        (contender, math),
        options,
        &mut go_on,
    );
    if let Err(Ending { status, reason }) = ended {
        row.status = status;
        row.reason = Some(reason);
    }
    row
}

/// Fills the row, last of all. `go_on` hears what is done next, and refuses once it is to stop.
fn measure(
    row: &mut NetworkRow,
    device: &Device,
    data: &NetworkData,
    (contender, math): (&Contender, Math),
    options: &NetworkOptions,
    go_on: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<(), Ending> {
    let n = options.images;
    let pixels = pixels(data, n)?;
    go_on("planning")?;
    let mut network = Network::new(device, data.weights, contender, math)?;
    let mut layers = network.layers(n)?;
    for conv in &layers.convs {
        go_on(&format!("checking {}", conv.name()))?;
        check(conv, data.expected.is_some(), options.seed)?;
    }

    go_on("warming up")?;
    network.run(&mut layers, pixels, &mut Outcome::default())?;
    let stream = device.stream()?;
    let filters = [&data.weights.conv1, &data.weights.conv2];
    let alone = |i: usize| {
        let x = layers.x[i].to_vec(&stream)?;
        Alone::new(&layers.convs[i], x, filters[i])
    };
    let mut alone = [alone(0)?, alone(1)?];

    let mut runs = Runs::default();
    let began = Instant::now();
    let found = loop {
        let done = runs.totals.len();
        go_on(&format!("run {} of {}", done + 1, options.runs))?;
        let mut outcome = Outcome::default();
        network.run(&mut layers, pixels, &mut outcome)?;
        runs.add(&outcome, &layers.convs, &mut alone)?;
        let found = judged(&outcome, data, math)?;
        if done + 1 >= options.runs || began.elapsed() >= options.budget {
            break found;
        }
    };

    let stages = network.stages(&mut layers)?;
    row.layers = runs.layers(&layers.convs, stages);
    row.total = Spread::of(&runs.totals);
    (row.accuracy, row.logit_deviation) = found;
    row.runs = runs.totals.len();
    Ok(())
}

/// Microseconds of each run: of all of it, and of each layer within it and alone.
#[derive(Default)]
struct Runs {
    totals: Vec<f64>,
    within: [Vec<f64>; 2],
    alone: [Vec<f64>; 2],
}

impl Runs {
    /// Keeps the times of a run of the network, and runs each layer alone.
    fn add(&mut self, outcome: &Outcome, convs: &[Conv; 2], alone: &mut [Alone; 2]) -> Result<()> {
        self.totals.push(outcome.total_us);
        for i in 0..2 {
            self.within[i].push(outcome.op_us[i]);
            self.alone[i].push(alone[i].run(&convs[i])?);
        }
        Ok(())
    }

    fn layers(&self, convs: &[Conv; 2], stages: [Vec<Stage>; 2]) -> Vec<LayerTimes> {
        let times = self.within.iter().zip(&self.alone);
        let layers = convs.iter().zip(stages).zip(times);
        layers
            .map(|((conv, stages), (within, alone))| LayerTimes {
                problem: conv.problem().clone(),
                chose: conv.name(),
                op: Spread::of(within).unwrap_or_default(),
                stages,
                layer: Spread::of(alone).unwrap_or_default(),
            })
            .collect()
    }
}

/// The pixels of the first `n` images.
fn pixels<'a>(data: &NetworkData<'a>, n: usize) -> Result<&'a [u8]> {
    check_size(data.images)?;
    let count = data.labels.map_or(data.images.count, |labels| {
        labels.values.len().min(data.images.count)
    });
    if n == 0 || n > count {
        return Err(Error::Input(format!(
            "a batch of {n} cannot be taken of {count} images with their labels"
        )));
    }
    Ok(&data.images.pixels[..n * SIDE * SIDE])
}

/// Checks a convolution; `judged` says that the logits of the whole batch are judged later.
fn check(conv: &Conv, judged: bool, seed: u64) -> Result<(), Ending> {
    let info = conv.variant().info();
    let plans_for_batch = info.kind == Kind::Baseline;
    if !judged || plans_for_batch || conv.problem().n() <= CHECKED_IMAGES {
        return checked(conv, info.arithmetic, seed);
    }
    let problem = conv.problem().with(|shape| shape.n = CHECKED_IMAGES)?;
    let chunk = Conv::with_variant(conv.device(), &problem, conv.configured().clone())?;
    checked(&chunk, info.arithmetic, seed)
}

/// Accuracy and deviation of one run's logits, as far as the answer is known.
fn judged(
    outcome: &Outcome,
    data: &NetworkData,
    math: Math,
) -> Result<(Option<f64>, Option<f64>), Ending> {
    let right = |logits: &[f32], labels: &idx::Labels| {
        let pairs = classes(logits).into_iter().zip(&labels.values);
        pairs.filter(|(class, label)| class == *label).count()
    };
    let count = outcome.logits.len();
    let correct = data.labels.map(|labels| right(&outcome.logits, labels));
    let accuracy = correct.map(|correct| (correct * 10) as f64 / count as f64);
    let Some(expected) = data.expected else {
        return Ok((accuracy, None));
    };
    let deviation = outcome.deviation(expected)?;
    if deviation > bound(math) {
        return Err(Ending::failed(format!(
            "a logit is {deviation:.1e} of its image's largest from the expected one; {:.0e} is \
             allowed in {math}",
            bound(math)
        )));
    }
    // In fp32 the logits agree to six digits, and no image stands so close between two classes.
    let wanted = data.labels.map(|labels| right(&expected[..count], labels));
    if math == Math::Fp32 && correct != wanted {
        return Err(Ending::failed(format!(
            "{} of {} images are classified right; with the expected logits {} are",
            correct.unwrap_or_default(),
            count / 10,
            wanted.unwrap_or_default()
        )));
    }
    Ok((accuracy, Some(deviation)))
}

/// One convolution by itself, as the reports' "Layer Time" has it.
struct Alone<'a> {
    x: Vec<f32>,
    w: &'a [f32],
    y: Vec<f32>,
    stream: Stream,
    /// Keeps the library's handles; its memory is taken and given back in each run.
    workspace: Workspace,
}

impl<'a> Alone<'a> {
    /// Makes the handles, and runs once: the host's memory is touched then.
    fn new(conv: &Conv, x: Vec<f32>, w: &'a [f32]) -> Result<Self> {
        let stream = conv.device().stream()?;
        let mut alone = Alone {
            y: vec![0.0; conv.problem().y_len()],
            x,
            w,
            workspace: Workspace::new(&stream)?,
            stream,
        };
        alone.run(conv)?;
        Ok(alone)
    }

    /// Microseconds for allocating, copying in, packing the filter where the variant wants that, the
    /// kernels, copying out and freeing.
    fn run(&mut self, conv: &Conv) -> Result<f64> {
        let (device, stream) = (conv.device(), &self.stream);
        let start = Instant::now();
        let x = device.upload(&self.x)?;
        let w = device.upload(self.w)?;
        let mut y = device.alloc(conv.problem().y_len())?;
        self.workspace.reserve(conv, stream)?;
        let packed = conv.pack(&w, stream)?;
        let operands = Operands::new(&x, &w, &mut y).packed(packed.as_ref());
        conv.run_with(operands, &mut self.workspace, stream)?;
        y.copy_to(&mut self.y, stream)?;
        self.workspace.release(stream)?;
        drop((x, w, y, packed));
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Contenders;
    use crate::net::resize::resize;

    const IMAGES: usize = 3;

    fn contender(name: &str) -> Contender {
        let named = name.parse().unwrap();
        Contenders::new().named(&named).unwrap()
    }

    fn run(
        math: Math,
        labels: bool,
        expected: Option<&[f32]>,
        images: usize,
        stopped: bool,
    ) -> NetworkRow {
        let weights = Weights::synthetic(1);
        let (images_28, classes) = idx::Images::synthetic(IMAGES, 1).unwrap();
        let data = NetworkData {
            weights: &weights,
            images: &resize(&images_28, SIDE).unwrap(),
            labels: labels.then_some(&classes),
            expected,
        };
        let options = NetworkOptions {
            images,
            runs: 2,
            ..NetworkOptions::default()
        };
        let stop = AtomicBool::new(stopped);
        network(
            &Device::cpu(),
            &data,
            &contender("cpu_gemm"),
            math,
            &options,
            &stop,
            &mut |_| {},
        )
    }

    /// The right logits, from the plain loops.
    fn expected() -> Vec<f32> {
        let (images, _) = idx::Images::synthetic(IMAGES, 1).unwrap();
        let images = resize(&images, SIDE).unwrap();
        let weights = Weights::synthetic(1);
        let mut network = Network::new(
            &Device::cpu(),
            &weights,
            &contender("cpu_direct"),
            Math::Fp32,
        )
        .unwrap();
        let outcome = network.classify(&images, IMAGES, &mut |_| true);
        outcome.unwrap().logits
    }

    #[test]
    fn a_row_has_every_time_and_no_accuracy_of_made_up_images() {
        let row = run(Math::Fp32, false, None, 2, false);
        assert_eq!((row.status, row.reason), (Status::Passed, None));
        assert_eq!((row.runs, row.layers.len()), (2, 2));
        for layer in &row.layers {
            assert_eq!((layer.problem.n(), &*layer.chose), (2, "cpu_gemm"));
            assert!(layer.op.median_us > 0.0 && layer.layer.median_us > 0.0);
        }
        let total = row.total.unwrap().median_us;
        assert!(total > row.layers.iter().map(|l| l.op.p10_us).sum());
        assert_eq!((row.accuracy, row.logit_deviation), (None, None));
    }

    #[test]
    fn logits_are_judged() {
        let right = expected();
        let row = run(Math::Fp32, true, Some(&right), IMAGES, false);
        assert_eq!(row.reason, None);
        assert!(row.accuracy.is_some() && row.logit_deviation.unwrap() < 1e-5);

        // Of the last image, which a check of the first ones would not see.
        let mut wrong = right.clone();
        wrong[(IMAGES - 1) * 10] += 1.0 + wrong[(IMAGES - 1) * 10].abs();
        let row = run(Math::Fp32, true, Some(&wrong), IMAGES, false);
        assert_eq!(row.status, Status::Failed);
        assert!(row.layers.is_empty() && row.total.is_none());
        assert!(row.reason.unwrap().contains("a logit is"));

        let row = run(Math::Fp32, true, Some(&right[1..]), IMAGES, false);
        assert_eq!(row.status, Status::Failed);
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let row = run(Math::F16Acc, false, None, 2, false);
        assert_eq!(row.status, Status::Unsupported);
        assert!(row.reason.is_some() && row.layers.is_empty());
        let row = run(Math::Fp32, false, None, IMAGES + 1, false);
        assert_eq!(row.status, Status::Failed);
        assert!(row.reason.unwrap().contains("a batch of 4"));
        let row = run(Math::Fp32, false, None, 0, false);
        assert_eq!(row.status, Status::Failed);
        let row = run(Math::Fp32, false, None, 2, true);
        assert_eq!(row.status, Status::Skipped);
        assert_eq!(row.reason, Some(Interrupted.to_string()));
    }
}
