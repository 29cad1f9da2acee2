//! A convolution on another crate's memory and stream: buffers and stream are cudarc's, convforge
//! only enqueues its work between cudarc's copies. Both crates use the device's primary context, so
//! addresses and streams of one are the other's.
//!
//! `cargo run --release --example cudarc_interop [PROBLEM] [VARIANT]`
//!
//! It needs a GPU. Without one it says why and exits with status 1: nothing was shown.

use std::{error::Error, ffi::c_void, process::ExitCode, ptr::null};

use convforge::{
    Conv, Device, Packed, Pick, Problem, RawOperands, Storage, Stream, Workspace, gpu,
};
use cudarc::driver::{CudaContext, DevicePtr, DevicePtrMut};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", convforge::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let problem = args.next().unwrap_or("mb8ic3ih32oc16oh32kh3ph1".to_owned());
    let pick = args.next().unwrap_or("auto".to_owned());
    let (problem, pick): (Problem, Pick) = (problem.parse()?, pick.parse()?);
    if problem.storage() != Storage::F32
        || !problem.epilogue().is_identity()
        || problem.groups() != 1
    {
        return Err("this example checks plain f32 convolutions without groups".into());
    }

    // First, because without a driver cudarc panics where convforge answers an error.
    let device = Device::gpu(0)?;
    let Some(gpu) = device.as_gpu() else {
        return Err("device 0 is no GPU".into());
    };

    // cudarc's side: context, stream, memory.
    let context = CudaContext::new(0)?;
    let theirs = context.new_stream()?;
    let x: Vec<f32> = (0..problem.x_len())
        .map(|i| (i % 13) as f32 - 6.0)
        .collect();
    let w: Vec<f32> = (0..problem.w_len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let (x_there, w_there) = (theirs.clone_htod(&x)?, theirs.clone_htod(&w)?);
    let mut y_there = theirs.alloc_zeros::<f32>(problem.y_len())?;

    // convforge's side: a plan, and scratch memory bound to cudarc's stream.
    // SAFETY: the stream is of the device's primary context and outlives `stream`.
    let ours = unsafe { gpu::Stream::from_raw(gpu, theirs.cu_stream().cast::<c_void>())? };
    let stream = Stream::from(ours);
    let conv = Conv::new(&device, &problem, &pick)?;
    let mut workspace = Workspace::new(&stream)?;
    workspace.reserve(&conv, &stream)?;
    // Where the variant packs the filter, in convforge's memory; Conv::pack_into takes another's.
    let packed;
    {
        // The guards tell cudarc, when they are dropped, that the stream now uses its buffers.
        let (x, _reads_x) = x_there.device_ptr(&theirs);
        let (w, _reads_w) = w_there.device_ptr(&theirs);
        let (y, _writes_y) = y_there.device_ptr_mut(&theirs);
        let (x, w) = (x as *const c_void, w as *const c_void);
        let operands = RawOperands::new(x, w, y as *mut c_void);
        // SAFETY: the buffers are of this device, as large as the problem says, and live until the
        // stream was waited for, as does the packed filter.
        unsafe {
            packed = conv.pack_raw(w, &stream)?;
            let operands = operands.packed(packed.as_ref().map_or(null(), Packed::as_ptr));
            conv.run_raw(&operands, &mut workspace, &stream)?;
        }
    }
    let y = theirs.clone_dtoh(&y_there)?;
    theirs.synchronize()?;

    // Small integers: every variant must give the very sums of a plain loop.
    let expected = plain_loop(&problem, &x, &w);
    let wrong = y.iter().zip(&expected).position(|(a, b)| a != b);
    if let Some(i) = wrong {
        return Err(format!("output {i} is {}, not {}", y[i], expected[i]).into());
    }
    println!(
        "{} on {device}, in cudarc's memory and on its stream: {} outputs of {problem}, all right",
        conv.name(),
        y.len()
    );
    Ok(())
}

/// The definition of a convolution, NCHW or NHWC by its strides.
fn plain_loop(p: &Problem, x: &[f32], w: &[f32]) -> Vec<f32> {
    let nchw = p.layout() == convforge::Layout::Nchw;
    let at = |[n, c, h, w]: [usize; 4], [channels, rows, columns]: [usize; 3]| match nchw {
        true => ((n * channels + c) * rows + h) * columns + w,
        false => ((n * rows + h) * columns + w) * channels + c,
    };
    let inside = |out: usize, stride: usize, tap: usize, dilation: usize, pad: usize, size| {
        let i = (out * stride + tap * dilation).checked_sub(pad)?;
        (i < size).then_some(i)
    };
    let mut y = vec![0.0; p.y_len()];
    for n in 0..p.n() {
        for (k, row, column) in
            (0..p.k() * p.p() * p.q()).map(|i| (i / (p.p() * p.q()), i / p.q() % p.p(), i % p.q()))
        {
            let mut sum = 0.0;
            for (c, r, s) in (0..p.c() * p.r() * p.s())
                .map(|i| (i / (p.r() * p.s()), i / p.s() % p.r(), i % p.s()))
            {
                let h = inside(row, p.stride()[0], r, p.dilation()[0], p.pad().top, p.h());
                let v = inside(
                    column,
                    p.stride()[1],
                    s,
                    p.dilation()[1],
                    p.pad().left,
                    p.w(),
                );
                if let (Some(h), Some(v)) = (h, v) {
                    sum += x[at([n, c, h, v], [p.c(), p.h(), p.w()])]
                        * w[at([k, c, r, s], [p.c(), p.r(), p.s()])];
                }
            }
            y[at([n, k, row, column], [p.k(), p.p(), p.q()])] = sum;
        }
    }
    y
}
