//! Proving csrc/oracle.cu, the judge of large problems, by the CPU's oracle.

use convforge::{Device, Problem, RawOperands, variant::Arithmetic};

use crate::{
    Bounds, Data, Error, Expected, Recipe, Reference, Result, Tensor, Verdict,
    judge::judge,
    oracle::{Written, expected_on_gpu, judge_on_gpu, make_tensor},
    recipe::narrow,
};

/// Compares both on one problem: tensors made from a recipe, expected values and verdicts, of an output that is right and of
/// one with faults put in.
///
/// # Errors
/// [`Error::Oracle`] with what differs; no memory, or what a launch answers.
pub fn prove_oracle(device: &Device, problem: &Problem, seed: u64) -> Result<()> {
    if problem.y_len() == 0 {
        return Ok(());
    }
    for data in Data::ALL.into_iter().filter(|data| data.fits(problem)) {
        if let Some(why) = difference(device, problem, data, seed)? {
            return Err(Error::Oracle {
                problem: Box::new(problem.clone()),
                data,
                why,
            });
        }
    }
    Ok(())
}

/// What differs on data of one kind.
fn difference(device: &Device, problem: &Problem, data: Data, seed: u64) -> Result<Option<String>> {
    let stream = device.stream()?;
    let recipe = Recipe::new(problem, data, seed);
    for tensor in [Tensor::X, Tensor::W, Tensor::Bias, Tensor::Residual] {
        let ours = recipe.bytes(tensor);
        let mut made = device.alloc::<u8>(ours.len())?;
        // SAFETY: it has the tensor's length and lies on the stream's device.
        unsafe { make_tensor(&recipe, tensor, made.as_mut_ptr(), &stream)? };
        let theirs = made.to_vec(&stream)?;
        if let Some(byte) = ours.iter().zip(&theirs).position(|(a, b)| a != b) {
            return Ok(Some(format!("byte {byte} of the made {tensor:?} differs")));
        }
    }
    let tensors = recipe.tensors();
    let reference = Reference::new(problem, &tensors)?;
    let ours = reference.outputs(0..problem.y_len());
    let upload = |tensor| device.upload(&recipe.bytes(tensor));
    let (x, w) = (upload(Tensor::X)?, upload(Tensor::W)?);
    let (bias, residual) = (upload(Tensor::Bias)?, upload(Tensor::Residual)?);
    let rounded: Vec<f32> = ours.iter().map(|e| e.value as f32).collect();
    let right = narrow(problem.storage(), &rounded);
    let bounds = Bounds::new(problem, data, Arithmetic::Exact);

    for (output, is_right) in [(&right, true), (&broken(problem, &right), false)] {
        let mut y = device.upload(output)?;
        let operands = RawOperands::new(x.as_ptr(), w.as_ptr(), y.as_mut_ptr())
            .bias(bias.as_ptr().cast())
            .residual(residual.as_ptr());
        // SAFETY: all were uploaded to this device with the lengths of the problem.
        let (theirs, written, known) = unsafe {
            let all = problem.y_len();
            let known = Written::new(problem, &operands, 0, all, &stream)?;
            (
                judge_on_gpu(problem, &operands, &bounds, &stream)?,
                expected_on_gpu(problem, &operands, 0, all, &stream)?,
                known.judge(problem, operands.y, &bounds, &stream)?,
            )
        };
        let different = values(problem, data, &ours, &written);
        if different.is_some() {
            return Ok(different);
        }
        let ours = judge(&reference, output, &bounds)?;
        for theirs in [theirs, known] {
            if !agree(&ours, &theirs) || (ours.bad == 0) != is_right {
                let why = format!("the CPU finds {ours:?}, the GPU {theirs:?}");
                return Ok(Some(why));
            }
        }
    }
    Ok(None)
}

/// An output with NaN in the first element, nothing in one, and every 7th a little off.
fn broken(problem: &Problem, right: &[u8]) -> Vec<u8> {
    let mut output = right.to_vec();
    let elements = output.chunks_exact_mut(problem.storage().bytes());
    for (i, element) in elements.enumerate() {
        match i {
            0 => element.fill(0xff),
            3 => element.fill(0),
            _ if i % 7 == 0 => element[0] ^= 5,
            _ => {}
        }
    }
    output
}

/// The first output of which the oracles expect two different things.
fn values(problem: &Problem, data: Data, ours: &[Expected], theirs: &[Expected]) -> Option<String> {
    // An f64 exponential may differ in the last place, and so may what is rounded from it.
    let fuzzy = problem.epilogue().activation.is_exponential();
    let slack = match data.is_whole() && !fuzzy {
        true => 0.0,
        false => 1e-12,
    };
    let unit = if fuzzy { 1.0 / 128.0 } else { 0.0 };
    let same = |a: f64, b: f64, slack: f64| a == b || (a - b).abs() <= slack * a.abs();
    let differs = |(a, b): &(&Expected, &Expected)| {
        !same(a.value, b.value, slack)
            || !same(a.mag, b.mag, slack)
            || !same(a.sequential.into(), b.sequential.into(), unit)
    };
    let index = ours.iter().zip(theirs).position(|pair| differs(&pair))?;
    let (ours, theirs) = (ours[index], theirs[index]);
    Some(format!(
        "output {index} should be {ours:?}, the GPU says {theirs:?}"
    ))
}

/// Whether two verdicts are the same, but for the order in which sums were added up.
fn agree(ours: &Verdict, theirs: &Verdict) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs() + 1e-30;
    let counts = |v: &Verdict| (v.bad, v.nan, v.first_bad, v.nonzero, v.counted);
    counts(ours) == counts(theirs)
        && close(ours.sum_sq, theirs.sum_sq)
        && close(ours.sum_sq_sequential, theirs.sum_sq_sequential)
        && close(ours.worst, theirs.worst)
}
