//! Pipelines on the CPU: how batches are split, and how runs end.

use std::{
    error::Error as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use convforge::{
    Conv, Device, Element, Error, Operands, Pick, Pipeline, Problem, Result,
    pipeline::Options,
    variant::{Args, Info, Kind, Plan, Prepared, Query, Variant},
};
use convforge_check::{Data, Recipe, Tensor};

fn problem(text: &str) -> Problem {
    text.parse().unwrap()
}

fn options(streams: usize, chunk: Option<usize>) -> Options {
    Options::default().streams(streams).chunk(chunk)
}

fn values<T: Element>(problem: &Problem, tensor: Tensor) -> Vec<T> {
    let bytes = Recipe::new(problem, Data::Normal, 1).bytes(tensor);
    let mut values = vec![T::zeroed(); bytes.len() / size_of::<T>()];
    bytemuck::cast_slice_mut(&mut values).copy_from_slice(&bytes);
    values
}

/// The whole batch at once, without a pipeline.
fn unpipelined<T: Element>(problem: &Problem, pick: &Pick) -> Vec<T> {
    let device = Device::cpu();
    // A pipeline's buffers are its own, those here are only so much aligned.
    let problem = &problem.with(|shape| shape.align = 16).unwrap();
    let conv = Conv::new(&device, problem, pick).unwrap();
    let stream = device.stream().unwrap();
    let upload = |tensor| device.upload(&values::<T>(problem, tensor)).unwrap();
    let (x, w) = (upload(Tensor::X), upload(Tensor::W));
    let bias = device
        .upload(&values::<f32>(problem, Tensor::Bias))
        .unwrap();
    let packed = conv.pack(&w, &stream).unwrap();
    let mut y = device.alloc::<T>(problem.y_len()).unwrap();
    let mut operands = Operands::new(&x, &w, &mut y);
    if problem.epilogue().bias {
        operands = operands.bias(&bias);
    }
    operands = operands.packed(packed.as_ref());
    let mut workspace = conv.workspace(&stream).unwrap();
    conv.run_with(operands, &mut workspace, &stream).unwrap();
    y.to_vec(&stream).unwrap()
}

fn pipeline<T: Element>(problem: &Problem, pick: &Pick, options: &Options) -> Result<Pipeline<T>> {
    let (w, bias) = (values(problem, Tensor::W), values(problem, Tensor::Bias));
    Pipeline::new(&Device::cpu(), problem, pick, &w, &bias, options)
}

fn equal<T: Element + PartialEq + std::fmt::Debug>(text: &str) {
    let problem = problem(text);
    let x: Vec<T> = values(&problem, Tensor::X);
    for pick in ["cpu_direct", "cpu_gemm"].map(|name| name.parse::<Pick>().unwrap()) {
        let expected = unpipelined::<T>(&problem, &pick);
        for (streams, chunk) in [
            (1, None),
            (1, Some(1)),
            (2, Some(2)),
            (3, Some(2)),
            (2, Some(3)),
            (16, Some(1)),
            (4, Some(100)),
        ] {
            let options = options(streams, chunk);
            let mut pipeline = pipeline::<T>(&problem, &pick, &options).unwrap();
            // Twice, since the buffers are used again.
            for _ in 0..2 {
                let mut y = vec![T::zeroed(); problem.y_len()];
                bytemuck::cast_slice_mut::<T, u8>(&mut y).fill(0xff);
                let ran = pipeline.run(&x, &mut y).unwrap();
                assert!(ran.us >= 0.0 && ran.spans.is_empty());
                assert_eq!(y, expected, "{text} with {pick}, {options:?}");
            }
        }
    }
}

#[test]
fn every_cut_gives_what_the_whole_batch_does() {
    equal::<f32>("mb7ic3ih9oc4kh3ph1");
    equal::<f32>("mb7ic3ih9oc4kh3+bias+relu+pool=2");
    equal::<half::f16>("mb5ic4ih7oc4kh3+f16+nhwc+bias");
    equal::<half::bf16>("g2mb4ic4ih7oc4kh3+bf16+align=1024");
}

#[test]
fn an_empty_batch_is_done_at_once() {
    let problem = problem("mb0ic3ih9oc4kh3");
    let mut pipeline = pipeline::<f32>(&problem, &Pick::Rule, &Options::default()).unwrap();
    assert_eq!((pipeline.chunks(), pipeline.streams()), (0, 1));
    assert_eq!(pipeline.run(&[], &mut []).unwrap().us, 0.0);
}

#[test]
fn chunks_are_many_but_not_small() {
    let chunks = |text: &str| {
        let problem = problem(text);
        let pipeline = pipeline::<f32>(&problem, &Pick::Rule, &options(1, None)).unwrap();
        (pipeline.chunk(), pipeline.chunks())
    };
    assert_eq!(chunks("mb10000ic1ih86oc4oh80kh7"), (313, 32));
    // 2 MiB of output each.
    assert_eq!(chunks("mb100ic1ih86oc4oh80kh7"), (21, 5));
    assert_eq!(chunks("mb3ic1ih8oc1kh3"), (3, 1));
    assert_eq!(chunks("mb1ic64ih224oc64kh3ph1"), (1, 1));
}

#[test]
fn what_cannot_be_cut_is_refused() {
    let refused = |text: &str, options: &Options| {
        let filter = [0f32; 9];
        Pipeline::new(
            &Device::cpu(),
            &problem(text),
            &Pick::Rule,
            &filter,
            &[],
            options,
        )
        .err()
        .unwrap()
        .to_string()
    };
    let plain = "mb4ic1ih8oc1kh3";
    assert!(refused(plain, &options(0, None)).contains("over 0 streams"));
    assert!(refused(plain, &options(1, Some(0))).contains("chunks of 0 images"));
    let residual = refused("mb4ic1ih8oc1kh3+residual", &options(1, None));
    assert!(residual.contains("adds a residual"), "{residual}");
    let half = refused("mb4ic1ih8oc1kh3+f16", &options(1, None));
    assert!(
        half.contains("type f32") && half.contains("stores f16"),
        "{half}"
    );
}

#[test]
fn lengths_that_do_not_fit_are_named() {
    let problem = problem("mb4ic1ih8oc1kh3+bias");
    let make = |w: usize, bias: usize| {
        let (w, bias) = (vec![0f32; w], vec![0f32; bias]);
        Pipeline::new(
            &Device::cpu(),
            &problem,
            &Pick::Rule,
            &w,
            &bias,
            &Options::default(),
        )
    };
    let text = make(8, 1).err().unwrap().to_string();
    assert!(text.contains("the filter (w) holds 8 elements") && text.contains("needs 9"));
    let text = make(9, 0).err().unwrap().to_string();
    assert!(text.contains("the bias holds 0 elements") && text.contains("needs 1"));
    let mut pipeline = make(9, 1).unwrap();
    for (x, y, what) in [
        (255, 144, "the input (x) holds 255"),
        (256, 145, "the output (y) holds 145"),
    ] {
        let text = pipeline
            .run(&vec![0.0; x], &mut vec![0.0; y])
            .unwrap_err()
            .to_string();
        assert!(text.contains(what), "{text}");
    }
}

#[test]
fn the_timeline_has_every_piece_in_its_order() {
    let problem = problem("mb5ic1ih8oc1kh3");
    let x: Vec<f32> = values(&problem, Tensor::X);
    let mut y = vec![0.0; problem.y_len()];
    let pipeline = pipeline::<f32>(&problem, &Pick::Rule, &options(2, Some(2))).unwrap();
    let ran = pipeline.over(2, true).unwrap().run(&x, &mut y).unwrap();
    let places: Vec<(usize, usize)> = ran.spans.iter().map(|s| (s.chunk, s.stream)).collect();
    assert_eq!(
        places,
        [
            (0, 0),
            (0, 0),
            (0, 0),
            (1, 1),
            (1, 1),
            (1, 1),
            (2, 0),
            (2, 0),
            (2, 0)
        ]
    );
    for span in &ran.spans {
        assert!(0.0 <= span.begin_us && span.begin_us <= span.end_us && span.end_us <= ran.us);
    }
    for chunk in ran.spans.chunks(3) {
        assert!(chunk[0].end_us <= chunk[1].begin_us && chunk[1].end_us <= chunk[2].begin_us);
    }
}

/// Writes how often it was launched to every output, and does something at one launch.
struct Counting {
    info: Info,
    at: usize,
    then: fn(&AtomicBool) -> Result<()>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    launches: AtomicUsize,
    images: Mutex<Vec<usize>>,
    stop: AtomicBool,
}

struct Ready {
    problem: Problem,
    at: usize,
    then: fn(&AtomicBool) -> Result<()>,
    shared: Arc<Shared>,
}

// SAFETY: what it readies writes the output.
unsafe impl Variant for Counting {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Ready {
            problem: query.problem.clone(),
            at: self.at,
            then: self.then,
            shared: self.shared.clone(),
        }))
    }
}

// SAFETY: as above.
unsafe impl Prepared for Ready {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        let launch = self.shared.launches.fetch_add(1, Ordering::Relaxed);
        self.shared.images.lock().unwrap().push(self.problem.n());
        if launch == self.at {
            (self.then)(&self.shared.stop)?;
        }
        let y = args.y.cast::<f32>();
        for i in 0..self.problem.y_len() {
            // SAFETY: the output is as large as the problem says.
            unsafe { y.add(i).write(launch as f32) };
        }
        Ok(())
    }
}

/// A pipeline of 10 images in chunks of 3 that does something at one launch, counted from 0.
fn at(launch: usize, then: fn(&AtomicBool) -> Result<()>) -> (Pipeline<f32>, Arc<Shared>) {
    let shared = Arc::new(Shared::default());
    let variant = Arc::new(Counting {
        info: Info::new("counting", "test", "", "", Kind::Cpu),
        at: launch,
        then,
        shared: shared.clone(),
    });
    let problem = problem("mb10ic1ih3oc1kh1");
    let options = options(2, Some(3));
    let cpu = Device::cpu();
    let pipeline = Pipeline::with_variant(&cpu, &problem, variant, &[1.0], &[], &options);
    (pipeline.unwrap(), shared)
}

fn no_luck() -> Error {
    Error::Unavailable("luck".to_owned())
}

#[test]
fn an_error_stops_the_rest_and_has_its_place() {
    let (mut pipeline, shared) = at(2, |_| Err(no_luck()));
    let mut y = vec![-1.0; 90];
    let error = pipeline.run(&[0.0; 90], &mut y).unwrap_err();
    assert_eq!(error.to_string(), "chunk 2 of 4 (images 6 to 8)");
    let why = error.source().expect("what failed");
    assert_eq!(why.to_string(), "there is no luck");
    assert_eq!(*shared.images.lock().unwrap(), [3, 3, 3]);
    assert!(y[54..].iter().all(|y| *y == -1.0));
    // The next run is a run like any other.
    pipeline.run(&[0.0; 90], &mut y).unwrap();
    let firsts: Vec<f32> = y.chunks(9).map(|image| image[0]).collect();
    assert_eq!(firsts, [3., 3., 3., 4., 4., 4., 5., 5., 5., 6.]);
}

#[test]
fn a_run_ends_when_it_is_stopped() {
    let (mut pipeline, shared) = at(2, |stop| {
        stop.store(true, Ordering::Relaxed);
        Ok(())
    });
    let mut y = vec![-1.0; 90];
    let error = pipeline
        .run_until(&[0.0; 90], &mut y, &shared.stop)
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(*shared.images.lock().unwrap(), [3, 3, 3]);
    assert!(y[81..].iter().all(|y| *y == -1.0));
}

#[test]
fn the_last_image_alone_is_one_image() {
    let (mut pipeline, _) = at(3, |_| Err(no_luck()));
    assert_eq!((pipeline.chunks(), pipeline.chunk()), (4, 3));
    let failed = pipeline.run(&[0.0; 90], &mut [-1.0; 90]).unwrap_err();
    assert_eq!(failed.to_string(), "chunk 3 of 4 (image 9)");
}
