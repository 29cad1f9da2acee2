//! One convolution with bias and ReLU, on the first GPU or, where there is none, on the CPU.
//!
//! `cargo run --release --example convolve [PROBLEM] [VARIANT]`

use convforge::{Conv, Device, Error, Operands, Pick, Problem};

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let problem = args
        .next()
        .unwrap_or("mb8ic3ih32oc16oh32kh3ph1+bias+relu".to_owned());
    let pick = args.next().unwrap_or("auto".to_owned());
    let (problem, pick): (Problem, Pick) = (problem.parse()?, pick.parse()?);

    let (device, why_no_gpu) = Device::best();
    if let Some(why) = why_no_gpu {
        eprintln!("{}; using {device}", convforge::chain(&why));
    }

    // Everything is decided here; `run` only checks its operands and enqueues.
    let conv = Conv::new(&device, &problem, &pick)?;
    let stream = device.stream()?;
    let mut workspace = conv.workspace(&stream)?;

    let x: Vec<f32> = (0..problem.x_len())
        .map(|i| (i % 13) as f32 - 6.0)
        .collect();
    let w: Vec<f32> = (0..problem.w_len()).map(|i| (i % 7) as f32 - 3.0).collect();
    let (x, w) = (device.upload(&x)?, device.upload(&w)?);
    let bias = device.upload(&vec![1f32; problem.bias_len()])?;
    let mut y = device.alloc::<f32>(problem.y_len())?;

    // Once per filter; `None` where the variant uses it as it is.
    let packed = conv.pack(&w, &stream)?;
    let mut operands = Operands::new(&x, &w, &mut y).packed(packed.as_ref());
    if problem.epilogue().bias {
        operands = operands.bias(&bias);
    }
    conv.run_with(operands, &mut workspace, &stream)?;

    let y = y.to_vec(&stream)?;
    println!(
        "{} on {device}: {} outputs of {problem}",
        conv.name(),
        y.len()
    );
    println!("the first ones: {:?}", &y[..y.len().min(8)]);
    Ok(())
}
