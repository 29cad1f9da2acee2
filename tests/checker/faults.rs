//! Variants broken on purpose: each fault must be caught on the problems that show it.

use std::{
    ffi::c_void,
    slice,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use convforge::{
    Device, Layout, Math, Problem, Result, Storage,
    variant::{Args, Arithmetic, Bytes, Info, Plan, Prepared, Query, Variant},
};
use convforge_check::{Options, Outcome, Tensors, case, narrow, position, widen};
use half::{bf16, f16};
use libtest_mimic::{Failed, Trial};

use crate::{info, parse};

pub fn trials() -> Vec<Trial> {
    all()
        .map(|(fault, problem)| {
            Trial::test(format!("{fault:?} {problem}"), move || {
                caught(fault, problem, &info("loops"))
            })
        })
        .collect()
}

/// Every fault with each problem that shows it.
pub fn all() -> impl Iterator<Item = (Fault, &'static str)> {
    FAULTS
        .iter()
        .flat_map(|(fault, problems)| problems.iter().map(move |problem| (*fault, *problem)))
}

/// What is wrong with a variant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    Nothing,
    NothingWritten,
    LastElementUnwritten,
    NanInOneElement,
    OneWrongTile,
    WrittenPastTheEnd,
    WrittenBeforeTheStart,
    WorkspaceOverrun,
    InputModified,
    SecondRunDiffers,
    Tf32OperandsUnderFp32,
    Bf16OperandsUnderF16,
    F16AccumulationUnderF16,
    SumCutTowardZero,
    /// Multiplies x / 3 by w, and the sum by 3: no more wrong on real data than any sum in fp32.
    SumOfThirds,
    SubnormalsAreZero,
    /// Rounds an operand to the 11 bits of TF32: the low part is forgotten.
    LowPartOfInputsForgotten,
    LowPartOfWeightsForgotten,
    /// Takes an operand for two f16, the second one scaled: 22 bits, and the range of f16.
    PartsAreF16,
    FractionsCutOff,
    RowsAndColumnsSwapped,
    WrongGroup,
    BiasForgotten,
    PoolingNotClipped,
    TruncatedOutput,
}

const PLAIN: &str = "mb2ic5ih19iw23oc7oh19ow23kh3ph1";

/// With channels of both kinds: where an input has a low part and where a weight has.
const PARTS: &[&str] = &[
    PLAIN,
    "mb2ic64ih9oc8kh3+nhwc+bias",
    "g4mb2ic12ih9oc8kh1",
    "mb1ic600ih5oc8kh5+relu6",
];

/// Each fault and the problems that show it; nothing being wrong must pass all of them.
const FAULTS: &[(Fault, &[&str])] = {
    use Fault::*;
    &[
        (
            Nothing,
            &[PLAIN, "mb1ic5ih19iw23oc4kh3kw5+f16+nhwc+bias+residual+silu"],
        ),
        (NothingWritten, &[PLAIN, "mb1ic1ih1oc1kh1"]),
        (
            LastElementUnwritten,
            &[PLAIN, "mb1ic8ih9oc8kh3+bf16+nhwc+align=2"],
        ),
        (NanInOneElement, &[PLAIN, "mb1ic8ih9oc8kh3+f16+relu"]),
        (OneWrongTile, &[PLAIN, "mb4ic8ih70oc8kh3+f16+nhwc"]),
        (WrittenPastTheEnd, &[PLAIN, "mb1ic8ih9oc3kh3+f16+align=2"]),
        (
            WrittenBeforeTheStart,
            &[PLAIN, "mb1ic8ih9oc3kh3+bf16+align=128"],
        ),
        (WorkspaceOverrun, &[PLAIN]),
        (InputModified, &[PLAIN, "mb1ic8ih9oc3kh3+f16"]),
        (SecondRunDiffers, &[PLAIN, "mb1ic8ih9oc3kh3+f16"]),
        (
            Tf32OperandsUnderFp32,
            &[
                PLAIN,
                "mb2ic64ih9oc8kh3",
                "mb1ic1ih20oc2kh1",
                "mb1ic600ih5oc8kh5",
            ],
        ),
        (
            Bf16OperandsUnderF16,
            &["mb2ic16ih9oc8kh3+f16", "mb2ic64ih9oc8kh3+math=f16"],
        ),
        (
            F16AccumulationUnderF16,
            &[
                "mb2ic16ih9oc8kh3+f16",
                "mb2ic64ih9oc8kh3+math=f16",
                "mb1ic3ih40oc8kh3+math=f16",
            ],
        ),
        // No output is far off: only the error of all of them together shows it.
        (
            SumCutTowardZero,
            &["mb2ic16ih9oc8kh3", "mb1ic64ih9oc8kh3+nhwc"],
        ),
        // Only whole numbers show it.
        (SumOfThirds, &[PLAIN, "mb2ic64ih9oc8kh3+nhwc+bias+relu"]),
        (
            SubnormalsAreZero,
            &[
                "mb2ic16ih9oc8kh3+f16",
                "mb2ic16ih9oc9kh3+f16+nhwc+bias+residual+relu",
                "mb2ic64ih9oc8kh3+math=f16",
                "mb2ic8ih9oc8kh3+f16+math=fp32+scale=0.5",
            ],
        ),
        (LowPartOfInputsForgotten, PARTS),
        (LowPartOfWeightsForgotten, PARTS),
        (
            PartsAreF16,
            &["mb2ic64ih9oc8kh3", "mb2ic64ih9oc8kh3+nhwc+bias+relu"],
        ),
        (FractionsCutOff, &[PLAIN, "mb2ic16ih9oc8kh3+f16"]),
        (
            RowsAndColumnsSwapped,
            &[PLAIN, "mb1ic8ih9oc3kh5+bf16+nhwc+tanh"],
        ),
        (
            WrongGroup,
            &["g4mb2ic8ih9oc12kh3", "g6mb1ic6ih9oc12kh3+f16+nhwc"],
        ),
        (
            BiasForgotten,
            &["mb2ic5ih9oc7kh3+bias", "mb2ic300ih9oc7kh3+f16+bias+relu"],
        ),
        (
            PoolingNotClipped,
            &[
                "mb2ic3ih7oc8kh3ph1+pool=2ceil",
                "mb2ic3ih8oc8kh3ph1+f16+pool=3s2ceil",
            ],
        ),
        (
            TruncatedOutput,
            &["mb2ic5ih9oc7kh3+f16", "mb2ic5ih9oc7kh3+bf16+relu"],
        ),
    ]
};

fn ensure(holds: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if holds {
        Ok(())
    } else {
        Err(otherwise.into().into())
    }
}

/// What the check says of loops with this fault that say this of themselves.
pub fn outcome(fault: Fault, problem: &Problem, info: &Info) -> Outcome {
    let info = info.clone();
    let variant = Arc::new(Loops { info, fault }).into();
    case(&Device::cpu(), &variant, problem, 1, &Options::default())
}

/// The loops pass unbroken, and not with this fault.
pub fn caught(fault: Fault, problem: &str, info: &Info) -> Result<(), Failed> {
    let problem = parse(problem);
    let run = |fault| outcome(fault, &problem, info);
    if !matches!(run(Fault::Nothing), Outcome::Passed(_)) {
        return Err(format!("unbroken: {:?}", run(Fault::Nothing)).into());
    }
    match run(fault) {
        Outcome::Passed(_) if fault == Fault::Nothing => Ok(()),
        Outcome::Failed(why) => {
            let name = &info.name;
            let again = format!("convforge check --variant {name} --problem {problem} --seed 1");
            ensure(
                why.contains(&again),
                format!("no command to see it again: {why}"),
            )?;
            let everywhere = why.contains("no single output is far off");
            ensure(everywhere || fault != Fault::SumCutTowardZero, &*why)?;
            // No other data has operands that small.
            let subnormal = why.contains("subnormal data");
            ensure(subnormal || fault != Fault::SubnormalsAreZero, &*why)?;
            // No other data is so large and so small.
            let extreme = why.contains("extreme data");
            ensure(extreme || fault != Fault::PartsAreF16, &*why)?;
            let forgotten = matches!(
                fault,
                Fault::LowPartOfInputsForgotten | Fault::LowPartOfWeightsForgotten
            );
            // Of a transform's whole numbers only a bound is asked.
            let whole = why.contains("integer data") || info.arithmetic == Arithmetic::Transform;
            ensure(whole || !forgotten, why)
        }
        other => Err(format!("not caught: {other:?}").into()),
    }
}

/// Plain loops with a fault put in.
struct Loops {
    info: Info,
    fault: Fault,
}

/// What a launch may use.
const WORKSPACE: Bytes = Bytes {
    least: 64,
    preferred: 256,
};

// SAFETY: what is written beyond the operands lands in fences of the checker, which expects it.
unsafe impl Variant for Loops {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default().workspace(WORKSPACE))
    }

    fn prepare(&self, _: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        let (problem, fault) = (query.problem.clone(), self.fault);
        Ok(Box::new(Ready {
            problem,
            fault,
            runs: AtomicUsize::new(0),
        }))
    }
}

struct Ready {
    problem: Problem,
    fault: Fault,
    runs: AtomicUsize,
}

// SAFETY: as above.
unsafe impl Prepared for Ready {
    fn workspace(&self) -> Bytes {
        WORKSPACE
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        let (problem, storage) = (&self.problem, self.problem.storage());
        let operand = |address: *const c_void, len: usize, storage: Storage| {
            if len == 0 {
                return Vec::new();
            }
            // SAFETY: a launch's addresses are as large as the problem says.
            let bytes = unsafe { slice::from_raw_parts(address.cast(), len * storage.bytes()) };
            widen(storage, bytes)
        };
        let tensors = Tensors {
            x: operand(args.x, problem.x_len(), storage),
            w: operand(args.w, problem.w_len(), storage),
            bias: operand(args.bias.cast(), problem.bias_len(), Storage::F32),
            residual: operand(args.residual, problem.residual_len(), storage),
        };
        let outputs: Vec<f32> = (0..problem.y_len())
            .map(|i| self.output(&tensors, i))
            .collect();
        let mut bytes = narrow(storage, &outputs);
        if self.fault == Fault::TruncatedOutput {
            cut_off(storage, &outputs, &mut bytes);
        }

        let size = storage.bytes();
        let y = args.y.cast::<u8>();
        let second = self.runs.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let mut skip = 0;
        match self.fault {
            Fault::NothingWritten => skip = bytes.len(),
            Fault::LastElementUnwritten => skip = size,
            Fault::NanInOneElement => bytes[size * (outputs.len() / 2)..][..size].fill(0xff),
            Fault::SecondRunDiffers if second => bytes[0] ^= 1,
            _ => {}
        }
        // SAFETY: `bytes` is as long as the output. The writes beyond the output, the workspace and
        // into the input land in fences and buffers of the checker, which expects them here.
        unsafe {
            y.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len() - skip);
            match self.fault {
                Fault::WrittenPastTheEnd => y.add(bytes.len()).write_bytes(0, size),
                Fault::WrittenBeforeTheStart => y.sub(size).write_bytes(0, size),
                Fault::InputModified => args.x.cast_mut().cast::<u8>().write_bytes(1, size),
                Fault::WorkspaceOverrun => {
                    args.workspace
                        .cast::<u8>()
                        .write_bytes(0, args.workspace_bytes + 1);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Rounds toward zero instead of to nearest.
fn cut_off(storage: Storage, values: &[f32], bytes: &mut [u8]) {
    for (value, bytes) in values.iter().zip(bytes.chunks_exact_mut(2)) {
        let nearest = u16::from_ne_bytes([bytes[0], bytes[1]]);
        let rounded = match storage {
            Storage::F16 => f16::from_bits(nearest).to_f32(),
            _ => bf16::from_bits(nearest).to_f32(),
        };
        if rounded.abs() > value.abs() {
            bytes.copy_from_slice(&(nearest - 1).to_ne_bytes());
        }
    }
}

/// The sum of two f16, of which the second stands for 2^-11 of itself.
fn in_f16_parts(v: f32) -> f32 {
    let high = f16::from_f32(v).to_f32();
    high + f16::from_f32((v - high) * 2048.0).to_f32() / 2048.0
}

/// a + b, rounded toward zero.
fn cut_sum(a: f32, b: f32) -> f32 {
    let exact = f64::from(a) + f64::from(b);
    let nearest = exact as f32;
    let too_far = f64::from(nearest).abs() > exact.abs();
    f32::from_bits(nearest.to_bits() - u32::from(too_far))
}

impl Ready {
    fn output(&self, tensors: &Tensors, index: usize) -> f32 {
        let problem = &self.problem;
        let [n, k, row, column] = position(problem, index);
        let Some(pool) = problem.epilogue().pool else {
            return match self.fault {
                // The pixels of one tile come out moved by one.
                Fault::OneWrongTile if n == 0 && k == 1 && row < 16 && column < 16 => {
                    self.pixel(tensors, n, k, row, column + 1)
                }
                _ => self.pixel(tensors, n, k, row, column),
            };
        };
        let mut best = f32::NEG_INFINITY;
        for p in (0..pool.window[0]).map(|i| row * pool.stride[0] + i) {
            for q in (0..pool.window[1]).map(|i| column * pool.stride[1] + i) {
                let inside = p < problem.p() && q < problem.q();
                if inside {
                    best = best.max(self.pixel(tensors, n, k, p, q));
                } else if self.fault == Fault::PoolingNotClipped {
                    best = best.max(0.0);
                }
            }
        }
        best
    }

    fn pixel(&self, tensors: &Tensors, n: usize, k: usize, p: usize, q: usize) -> f32 {
        let problem = &self.problem;
        let channels = problem.c() / problem.groups();
        let mut group = k / (problem.k() / problem.groups());
        if self.fault == Fault::WrongGroup {
            group = (group + 1) % problem.groups();
        }
        let math = match self.fault {
            Fault::Tf32OperandsUnderFp32 => Math::Tf32,
            Fault::Bf16OperandsUnderF16 => Math::Bf16,
            Fault::F16AccumulationUnderF16 => Math::F16Acc,
            _ => problem.math(),
        };
        let rounded = |fault, v: f32| match self.fault == fault {
            true => f32::from_bits((v.to_bits() + 0x1000) & !0x1fff),
            false => v,
        };
        let round = |v: f32| match (self.fault, math) {
            (Fault::FractionsCutOff, _) => v.trunc(),
            (Fault::SubnormalsAreZero, _) if v.abs() < f16::MIN_POSITIVE.to_f32() => 0.0,
            (_, Math::Tf32) => f32::from_bits(v.to_bits() & !0x1fff),
            (_, Math::F16 | Math::F16Acc) => f16::from_f32(v).to_f32(),
            (_, Math::Bf16) => bf16::from_f32(v).to_f32(),
            (Fault::PartsAreF16, _) => in_f16_parts(v),
            (_, Math::Fp32) => v,
        };
        let mut sum = 0.0;
        for c in 0..channels {
            for r in 0..problem.r() {
                for s in 0..problem.s() {
                    let h = (p * problem.stride()[0] + r * problem.dilation()[0])
                        .wrapping_sub(problem.pad().top);
                    let w = (q * problem.stride()[1] + s * problem.dilation()[1])
                        .wrapping_sub(problem.pad().left);
                    if h >= problem.h() || w >= problem.w() {
                        continue;
                    }
                    let (tap_r, tap_s) = match self.fault {
                        Fault::RowsAndColumnsSwapped => (s, r),
                        _ => (r, s),
                    };
                    let x = self.at(
                        [problem.c(), problem.h(), problem.w()],
                        [n, group * channels + c, h, w],
                    );
                    let f = self.at([channels, problem.r(), problem.s()], [k, c, tap_r, tap_s]);
                    let mut value = round(tensors.x[x]);
                    if self.fault == Fault::SumOfThirds {
                        value /= 3.0;
                    }
                    value = rounded(Fault::LowPartOfInputsForgotten, value);
                    let weight = rounded(Fault::LowPartOfWeightsForgotten, round(tensors.w[f]));
                    let product = value * weight;
                    sum = match self.fault {
                        Fault::SumCutTowardZero => cut_sum(sum, product),
                        _ => sum + product,
                    };
                    if math == Math::F16Acc {
                        sum = f16::from_f32(sum).to_f32();
                    }
                }
            }
        }
        if self.fault == Fault::SumOfThirds {
            sum *= 3.0;
        }
        let epilogue = problem.epilogue();
        let mut v = epilogue.scale * sum;
        if epilogue.bias && self.fault != Fault::BiasForgotten {
            v += tensors.bias[k];
        }
        if epilogue.residual {
            v += tensors.residual[self.at([problem.k(), problem.p(), problem.q()], [n, k, p, q])];
        }
        use convforge::Activation::*;
        match epilogue.activation {
            None => v,
            Relu => v.max(0.0),
            Relu6 => v.clamp(0.0, 6.0),
            Tanh => v.tanh(),
            Sigmoid => 1.0 / (1.0 + (-v).exp()),
            Silu => v / (1.0 + (-v).exp()),
        }
    }

    fn at(&self, [c, h, w]: [usize; 3], at: [usize; 4]) -> usize {
        match self.problem.layout() {
            Layout::Nchw => ((at[0] * c + at[1]) * h + at[2]) * w + at[3],
            Layout::Nhwc => ((at[0] * h + at[2]) * w + at[3]) * c + at[1],
        }
    }
}
