//! What `Conv` says to operands that do not fit, shown by a variant that packs its filter, wants a
//! workspace and refuses epilogues.

use std::sync::Arc;

use convforge::{
    Conv, Device, Error, Operands, Pick, RawOperands, Result, Workspace, chain, variants,
};
use convforge_check::{Options, Outcome, case};
use half::f16;
use libtest_mimic::{Failed, Trial};

use crate::{packed::Packer, parse};

pub fn trials() -> Vec<Trial> {
    CONTRACT
        .iter()
        .map(|(name, test)| Trial::test(*name, move || Ok(test()?)))
        .collect()
}

const SMALL: &str = "mb2ic1ih3oc1kh1";

fn packer(problem: &str) -> Result<Conv> {
    named_packer("packer", problem)
}

fn named_packer(name: &str, problem: &str) -> Result<Conv> {
    let variant = Arc::new(Packer::new(name));
    Conv::with_variant(&Device::cpu(), &parse(problem), variant)
}

/// What the check says of it.
fn checked(problem: &str) -> Outcome {
    let variant = Arc::new(Packer::new("packer")).into();
    let options = Options::default();
    case(&Device::cpu(), &variant, &parse(problem), 1, &options)
}

/// A name and a test.
type Test = (&'static str, fn() -> Result<(), Problems>);

/// Failures of these tests: a text, or an error that should not have been.
#[derive(Debug)]
struct Problems(String);

impl From<Error> for Problems {
    fn from(error: Error) -> Self {
        Problems(chain(&error))
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
            match checked(SMALL) {
                Outcome::Passed(measured) if measured.len() == 5 => {}
                other => return Err(Problems(format!("{other:?}"))),
            }
            match checked("mb2ic1ih3oc1kh1+relu") {
                Outcome::Unsupported(why) if why == "it fuses no epilogue" => Ok(()),
                other => Err(Problems(format!("{other:?}"))),
            }
        },
    ),
    ("contract: an empty batch", || {
        match checked("mb0ic1ih3oc1kh1") {
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
        let conv = packer(SMALL)?;
        let stream = Device::cpu().stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let x = Device::cpu().upload(&[1f32; 18])?;
        let w = Device::cpu().upload(&[3f32])?;
        let mut y = Device::cpu().upload(&[0f32; 18])?;
        let run = conv.run(&x, &w, &mut y, &mut workspace, &stream);
        refuses!(
            run,
            Error::Operand { .. },
            "mb2ic1ih3oc1oh3kh1",
            "Conv::pack"
        );
        // Of another variant, and of more filters.
        let two = Device::cpu().upload(&[3f32; 2])?;
        for (packed, word) in [
            (
                named_packer("stranger", SMALL)?.pack(&w, &stream)?,
                "stranger",
            ),
            (packer("mb2ic1ih3oc2kh1")?.pack(&two, &stream)?, "2 filters"),
        ] {
            let packed = packed.expect("a packed filter");
            let operands = Operands::new(&x, &w, &mut y).packed(&packed);
            let run = conv.run_with(operands, &mut workspace, &stream);
            let name = "mb2ic1ih3oc1oh3kh1";
            refuses!(run, Error::Operand { .. }, name, word, "by packer");
        }
        // One filter serves other numbers of images, and other sizes of them.
        for problem in [SMALL, "mb5ic1ih3oc1kh1", "mb2ic1ih7oc1kh1"] {
            let packed = packer(problem)?.pack(&w, &stream)?;
            let packed = packed.expect("a packed filter");
            let mut y = Device::cpu().upload(&[0f32; 18])?;
            let operands = Operands::new(&x, &w, &mut y).packed(&packed);
            conv.run_with(operands, &mut workspace, &stream)?;
            if y.to_vec(&stream)? != [3f32; 18] {
                return Err(Problems(format!("{:?}", y.to_vec(&stream)?)));
            }
        }
        refuses!(
            conv.pack(&two, &stream),
            Error::Length { .. },
            "filter",
            "2",
            "1"
        );
        Ok(())
    }),
    ("contract: the workspace", || {
        let conv = packer(SMALL)?;
        let (stream, other) = (Device::cpu().stream()?, Device::cpu().stream()?);
        let x = Device::cpu().upload(&[1f32; 18])?;
        let w = Device::cpu().upload(&[3f32])?;
        let mut y = Device::cpu().upload(&[0f32; 18])?;
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

        let mut memory = Device::cpu().alloc::<u8>(256)?;
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
        let conv = Conv::new(&Device::cpu(), &problem, &Pick::Rule)?;
        let stream = Device::cpu().stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let zeros = |len: usize| Device::cpu().upload(&vec![0f32; len]);
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
        let halves = |len: usize| Device::cpu().upload(&vec![f16::ZERO; len]);
        let (x16, w16, mut y16, residual16) =
            (halves(150)?, halves(108)?, halves(72)?, halves(72)?);
        let operands = Operands::new(&x16, &w16, &mut y16)
            .bias(&bias)
            .residual(&residual16);
        let run = conv.run_with(operands, &mut workspace, &stream);
        refuses!(run, Error::Storage { .. }, name, "f16", "f32");

        let plain = Conv::new(&Device::cpu(), &parse("mb2ic3ih5oc4kh3"), &Pick::Rule)?;
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
        let conv = Conv::new(&Device::cpu(), &problem, &Pick::Rule)?;
        let stream = Device::cpu().stream()?;
        let mut workspace = conv.workspace(&stream)?;
        let x = Device::cpu().alloc::<f32>(150 + 4)?;
        let w = Device::cpu().alloc::<f32>(108)?;
        let mut y = Device::cpu().alloc::<f32>(72)?;
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
        let fewer = Conv::new(&Device::cpu(), &problem.with(|s| s.align = 4)?, &Pick::Rule)?;
        workspace.reserve(&fewer, &stream)?;
        // SAFETY: as above.
        unsafe { fewer.run_raw(&operands, &mut workspace, &stream)? };
        Ok(())
    }),
    ("contract: names", || {
        let choose = |text: &str| {
            Conv::new(
                &Device::cpu(),
                &parse(SMALL),
                &text.parse::<Pick>().expect("a pick"),
            )
            .map(drop)
        };
        let first = variants::all()
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
