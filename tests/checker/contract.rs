//! What `Conv` says to operands that do not fit, shown by a variant that packs its filter, wants a
//! workspace and refuses epilogues.

use std::{ffi::c_void, sync::Arc};

use convforge::{
    Conv, Device, Error, Operands, Pick, RawOperands, Result, Storage, Workspace,
    check::{self, Options, Outcome},
    variant::{Args, Bytes, Info, Plan, Query, Variant},
};
use half::f16;
use libtest_mimic::{Failed, Trial};

use crate::{info, parse};

pub fn trials() -> Vec<Trial> {
    CONTRACT
        .iter()
        .map(|(name, test)| Trial::test(*name, move || Ok(test()?)))
        .collect()
}

/// Packs its filter back to front, wants a workspace, refuses epilogues; f32, one pixel, one channel
/// in and out: y = x * w.
struct Packer(Info);

impl Variant for Packer {
    fn info(&self) -> &Info {
        &self.0
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        let problem = query.problem;
        if !problem.epilogue.is_none() {
            return Err("it fuses no epilogue".to_owned());
        }
        if problem.reduction() != 1 || problem.k != 1 || problem.storage != Storage::F32 {
            return Err("it does one product per output".to_owned());
        }
        Ok(())
    }

    fn plan(&self, _: &Device, query: &Query) -> Result<Box<dyn Plan>> {
        Ok(Box::new(PackerPlan {
            outputs: query.problem.y_len(),
        }))
    }
}

struct PackerPlan {
    outputs: usize,
}

impl Plan for PackerPlan {
    fn workspace(&self) -> Bytes {
        Bytes {
            least: 128,
            preferred: 1000,
        }
    }

    fn packed_bytes(&self) -> usize {
        4
    }

    unsafe fn pack(&self, w: *const c_void, packed: *mut c_void, _: *mut c_void) -> Result<()> {
        // SAFETY: a filter of one f32, and as many bytes for it.
        unsafe {
            let mut bytes = w.cast::<[u8; 4]>().read_unaligned();
            bytes.reverse();
            packed.cast::<[u8; 4]>().write(bytes);
        }
        Ok(())
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        // SAFETY: the sizes are those asked for above.
        unsafe {
            args.workspace
                .cast::<u8>()
                .write_bytes(0, args.workspace_bytes);
            let mut bytes = args.packed.cast::<[u8; 4]>().read();
            bytes.reverse();
            let w = f32::from_ne_bytes(bytes);
            for i in 0..self.outputs {
                *args.y.cast::<f32>().add(i) = *args.x.cast::<f32>().add(i) * w;
            }
        }
        Ok(())
    }
}

const SMALL: &str = "mb2ic1ih3oc1kh1";

fn packer(problem: &str) -> Result<Conv> {
    let variant = Arc::new(Packer(info("packer")));
    Conv::with_variant(&Device::Cpu, &parse(problem), variant, 0)
}

/// A name and a test.
type Test = (&'static str, fn() -> Result<(), Problems>);

/// Failures of these tests: a text, or an error that should not have been.
#[derive(Debug)]
struct Problems(String);

impl From<Error> for Problems {
    fn from(error: Error) -> Self {
        Problems(error.to_string())
    }
}

impl From<Problems> for Failed {
    fn from(problems: Problems) -> Self {
        problems.0.into()
    }
}

/// The result must be an error of this kind, whose text has all of these words.
macro_rules! refuses {
    ($result:expr, $kind:pat, $($word:expr),+) => {
        match $result {
            Ok(_) => return Err(Problems(format!("{} was accepted", stringify!($result)))),
            Err(error @ $kind) => {
                let text = error.to_string();
                $(if !text.contains($word) {
                    return Err(Problems(format!("`{text}` does not say `{}`", $word)));
                })+
            }
            Err(error) => return Err(Problems(format!("another error: {error:?}"))),
        }
    };
}

const CONTRACT: &[Test] = &[
    (
        "contract: a variant that packs and wants a workspace passes",
        || {
            let variant: Arc<dyn Variant> = Arc::new(Packer(info("packer")));
            match check::case(
                &Device::Cpu,
                &variant,
                0,
                &parse(SMALL),
                1,
                &Options::default(),
            ) {
                Outcome::Passed(measured) if measured.len() == 4 => {}
                other => return Err(Problems(format!("{other:?}"))),
            }
            let refused = parse("mb2ic1ih3oc1kh1+relu");
            match check::case(&Device::Cpu, &variant, 0, &refused, 1, &Options::default()) {
                Outcome::Unsupported(why) if why == "it fuses no epilogue" => Ok(()),
                other => Err(Problems(format!("{other:?}"))),
            }
        },
    ),
    ("contract: an empty batch", || {
        let variant: Arc<dyn Variant> = Arc::new(Packer(info("packer")));
        match check::case(
            &Device::Cpu,
            &variant,
            0,
            &parse("mb0ic1ih3oc1kh1"),
            1,
            &Options::default(),
        ) {
            Outcome::Passed(_) => Ok(()),
            other => Err(Problems(format!("{other:?}"))),
        }
    }),
    ("contract: what a variant refuses", || {
        refuses!(
            packer("mb2ic1ih3oc1kh1+relu"),
            Error::Unsupported { .. },
            "packer",
            "mb2ic1ih3oc1oh3kh1+relu",
            "it fuses no epilogue"
        );
        Ok(())
    }),
    ("contract: the packed filter", || {
        let (conv, other) = (packer(SMALL)?, packer("mb5ic1ih3oc1kh1")?);
        let stream = Device::Cpu.stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let x = Device::Cpu.upload(&[1f32; 18])?;
        let w = Device::Cpu.upload(&[3f32])?;
        let mut y = Device::Cpu.upload(&[0f32; 18])?;
        let run = conv.run(&x, &w, &mut y, &mut workspace, &stream);
        refuses!(
            run,
            Error::Operand { .. },
            "mb2ic1ih3oc1oh3kh1",
            "Conv::pack"
        );
        let packed = other.pack(&w, &stream)?.expect("a packed filter");
        let operands = Operands::new(&x, &w, &mut y).packed(&packed);
        let run = conv.run_with(operands, &mut workspace, &stream);
        refuses!(
            run,
            Error::Operand { .. },
            "mb5ic1ih3oc1oh3kh1",
            "mb2ic1ih3oc1oh3kh1"
        );
        let packed = conv.pack(&w, &stream)?.expect("a packed filter");
        let operands = Operands::new(&x, &w, &mut y).packed(&packed);
        conv.run_with(operands, &mut workspace, &stream)?;
        if y.to_vec(&stream)? != [3f32; 18] {
            return Err(Problems(format!("{:?}", y.to_vec(&stream)?)));
        }
        let long = Device::Cpu.upload(&[3f32; 2])?;
        refuses!(
            conv.pack(&long, &stream),
            Error::Length { .. },
            "filter",
            "2",
            "1"
        );
        Ok(())
    }),
    ("contract: the workspace", || {
        let conv = packer(SMALL)?;
        let (stream, other) = (Device::Cpu.stream()?, Device::Cpu.stream()?);
        let x = Device::Cpu.upload(&[1f32; 18])?;
        let w = Device::Cpu.upload(&[3f32])?;
        let mut y = Device::Cpu.upload(&[0f32; 18])?;
        let packed = conv.pack(&w, &stream)?.expect("a packed filter");
        let mut run = |workspace: &mut Workspace| {
            let operands = Operands::new(&x, &w, &mut y).packed(&packed);
            conv.run_with(operands, workspace, &stream)
        };
        refuses!(
            run(&mut Workspace::new(&stream)?),
            Error::WorkspaceTooSmall { .. },
            "128",
            "given 0"
        );
        refuses!(
            Workspace::new(&stream)?.limit(100).reserve(&conv, &stream),
            Error::WorkspaceTooSmall { .. },
            "at least 128 bytes",
            "given 100"
        );
        refuses!(
            run(&mut conv.workspace(&other)?),
            Error::WrongStream,
            "another stream"
        );
        refuses!(
            conv.workspace(&stream)?.reserve(&conv, &other),
            Error::WrongStream,
            "another stream"
        );

        let mut limited = Workspace::new(&stream)?.limit(500);
        limited.reserve(&conv, &stream)?;
        run(&mut limited)?;
        if limited.bytes() != 500 || conv.workspace(&stream)?.bytes() != 1000 {
            return Err(Problems(format!("{} bytes", limited.bytes())));
        }

        let mut memory = Device::Cpu.alloc::<u8>(256)?;
        let address = memory.as_mut_ptr();
        // SAFETY: 64 bytes of a buffer that outlives the workspace; the same below.
        let mut small = unsafe { Workspace::from_raw(&stream, address, 64)? };
        refuses!(
            small.reserve(&conv, &stream),
            Error::WorkspaceTooSmall { .. },
            "given 64"
        );
        refuses!(run(&mut small), Error::WorkspaceTooSmall { .. }, "given 64");
        drop(small);
        let odd = address.wrapping_byte_add(8);
        refuses!(
            // SAFETY: as above.
            unsafe { Workspace::from_raw(&stream, odd, 128) }.map(drop),
            Error::WorkspaceMisaligned { .. },
            "128 bytes"
        );
        // SAFETY: as above.
        let mut borrowed = unsafe { Workspace::from_raw(&stream, address, 256)? };
        refuses!(
            run(&mut borrowed),
            Error::Operand { .. },
            "Workspace::reserve"
        );
        borrowed.reserve(&conv, &stream)?;
        run(&mut borrowed)?;
        Ok(())
    }),
    ("contract: lengths and types", || {
        let problem = parse("mb2ic3ih5oc4kh3+bias+residual");
        let conv = Conv::new(&Device::Cpu, &problem, &Pick::Rule)?;
        let stream = Device::Cpu.stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let zeros = |len: usize| Device::Cpu.upload(&vec![0f32; len]);
        let (x, w, bias, residual) = (zeros(150)?, zeros(108)?, zeros(4)?, zeros(72)?);
        let (short, mut y, mut short_y) = (zeros(3)?, zeros(72)?, zeros(71)?);
        let name = "mb2ic3ih5oc4oh3kh3";
        for (what, operands) in [
            (
                "input",
                Operands::new(&short, &w, &mut y)
                    .bias(&bias)
                    .residual(&residual),
            ),
            (
                "filter",
                Operands::new(&x, &short, &mut zeros(72)?)
                    .bias(&bias)
                    .residual(&residual),
            ),
            (
                "output",
                Operands::new(&x, &w, &mut short_y)
                    .bias(&bias)
                    .residual(&residual),
            ),
            (
                "bias",
                Operands::new(&x, &w, &mut zeros(72)?)
                    .bias(&short)
                    .residual(&residual),
            ),
            (
                "residual",
                Operands::new(&x, &w, &mut zeros(72)?)
                    .bias(&bias)
                    .residual(&short),
            ),
        ] {
            let run = conv.run_with(operands, &mut workspace, &stream);
            refuses!(run, Error::Length { .. }, name, what);
        }
        let run = conv.run_with(
            Operands::new(&x, &w, &mut y).bias(&bias),
            &mut workspace,
            &stream,
        );
        refuses!(run, Error::Operand { .. }, name, "needs a residual");
        let operands = Operands::new(&x, &w, &mut y).residual(&residual);
        let run = conv.run_with(operands, &mut workspace, &stream);
        refuses!(run, Error::Operand { .. }, name, "needs a bias");
        let halves = |len: usize| Device::Cpu.upload(&vec![f16::ZERO; len]);
        let (x16, w16, mut y16, residual16) =
            (halves(150)?, halves(108)?, halves(72)?, halves(72)?);
        let operands = Operands::new(&x16, &w16, &mut y16)
            .bias(&bias)
            .residual(&residual16);
        let run = conv.run_with(operands, &mut workspace, &stream);
        refuses!(run, Error::Storage { .. }, name, "f16", "f32");

        let plain = Conv::new(&Device::Cpu, &parse("mb2ic3ih5oc4kh3"), &Pick::Rule)?;
        workspace.reserve(&plain, &stream)?;
        let operands = Operands::new(&x, &w, &mut y).residual(&residual);
        let run = plain.run_with(operands, &mut workspace, &stream);
        refuses!(run, Error::Operand { .. }, name, "no use for a residual");
        let operands = Operands::new(&x, &w, &mut y).bias(&bias);
        let run = plain.run_with(operands, &mut workspace, &stream);
        refuses!(run, Error::Operand { .. }, name, "no use for a bias");
        Ok(())
    }),
    ("contract: alignment of plain addresses", || {
        let problem = parse("mb2ic3ih5oc4kh3");
        let conv = Conv::new(&Device::Cpu, &problem, &Pick::Rule)?;
        let stream = Device::Cpu.stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let x = Device::Cpu.alloc::<f32>(150 + 4)?;
        let w = Device::Cpu.alloc::<f32>(108)?;
        let mut y = Device::Cpu.alloc::<f32>(72)?;
        let odd = x.as_ptr().wrapping_byte_add(4);
        let operands = RawOperands::new(odd, w.as_ptr(), y.as_mut_ptr());
        // SAFETY: the buffers are large enough and outlive the run; the same below.
        let run = unsafe { conv.run_raw(&operands, &mut workspace, &stream) };
        refuses!(
            run,
            Error::Misaligned { .. },
            "input",
            "16 bytes",
            "align=4"
        );
        let fewer = Conv::new(&Device::Cpu, &problem.with(|s| s.align = 4)?, &Pick::Rule)?;
        workspace.reserve(&fewer, &stream)?;
        // SAFETY: as above.
        unsafe { fewer.run_raw(&operands, &mut workspace, &stream)? };
        Ok(())
    }),
    ("contract: bound operands", || {
        let problem = parse("mb2ic3ih5oc4kh3+bias");
        let conv = Conv::new(&Device::Cpu, &problem, &Pick::Rule)?;
        let stream = Device::Cpu.stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let x = Device::Cpu.upload(&vec![1f32; 150])?;
        let w = Device::Cpu.upload(&vec![2f32; 108])?;
        let bias = Device::Cpu.upload(&[0.5f32; 4])?;
        let mut y = Device::Cpu.upload(&[0f32; 72])?;
        let unbound = conv.bind(Operands::new(&x, &w, &mut y)).map(drop);
        refuses!(unbound, Error::Operand { .. }, "needs a bias");
        let mut bound = conv.bind(Operands::new(&x, &w, &mut y).bias(&bias))?;
        bound.run(&mut workspace, &stream)?;
        bound.run(&mut workspace, &stream)?;
        drop(bound);
        let y = y.to_vec(&stream)?;
        if y != [54.5f32; 72] {
            return Err(Problems(format!("{y:?}")));
        }
        Ok(())
    }),
    ("contract: names", || {
        let choose = |text: &str| {
            Conv::new(
                &Device::Cpu,
                &parse(SMALL),
                &text.parse::<Pick>().expect("a pick"),
            )
            .map(drop)
        };
        let first = convforge::variants::all()
            .last()
            .expect("a variant")
            .info()
            .name
            .clone();
        let close = first[1..].to_owned();
        refuses!(
            choose(&close),
            Error::UnknownVariant { .. },
            "did you mean",
            first.as_str()
        );
        refuses!(
            choose("qqqqqqqqqqq"),
            Error::UnknownVariant { .. },
            "convforge list"
        );
        let config = format!("{first}:size=99");
        refuses!(choose(&config), Error::UnknownConfig { .. }, "size=99");
        Ok(())
    }),
];
