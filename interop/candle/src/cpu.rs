//! Calls on the CPU.

use std::{cell::RefCell, ops::Deref};

use candle_core::{CpuStorage, DType, Layout, Result, Storage, WithDType, bail};
use convforge::{Device, Element, Filter, Operands, Stream, Workspace};
use half::{bf16, f16};

use crate::{
    error,
    op::{Op, align_of, range},
};

/// A tensor's memory, and where its elements are in it.
type Part<'a> = (&'a CpuStorage, &'a Layout);

/// Computes the output of a call.
pub(crate) fn forward(op: &Op, x: Part, w: Part) -> Result<CpuStorage> {
    match op.layer.weight().dtype() {
        DType::F32 => typed::<f32>(op, x, w),
        DType::F16 => typed::<f16>(op, x, w),
        DType::BF16 => typed::<bf16>(op, x, w),
        other => bail!("convforge has no {other:?}"),
    }
}

fn typed<T: WithDType + Element>(op: &Op, x: Part, w: Part) -> Result<CpuStorage> {
    let (x, w) = (elements::<T>(x)?, elements::<T>(w)?);
    let mut y = vec![T::zero(); op.y_len()];
    match op.bias() {
        None => run(op, x, w, None, &mut y)?,
        Some(bias) => {
            let (storage, layout) = bias.storage_and_layout();
            let Storage::Cpu(storage) = storage.deref() else {
                bail!("a bias on another device");
            };
            run(op, x, w, Some(elements((storage, layout))?), &mut y)?;
        }
    }
    Ok(T::to_cpu_storage_owned(y))
}

fn elements<'a, T: WithDType>((storage, layout): Part<'a>) -> Result<&'a [T]> {
    Ok(&storage.as_slice()?[range(layout)?])
}

thread_local! {
    /// What the convolutions of this thread run on, made by the first one.
    static LANE: RefCell<Option<Lane>> = const { RefCell::new(None) };
}

struct Lane {
    stream: Stream,
    workspace: Workspace,
}

impl Lane {
    fn new() -> convforge::Result<Self> {
        let stream = Device::cpu().stream()?;
        let workspace = Workspace::new(&stream)?;
        Ok(Lane { stream, workspace })
    }
}

fn run<T: Element>(op: &Op, x: &[T], w: &[T], bias: Option<&[f32]>, y: &mut [T]) -> Result<()> {
    let addresses = [x.as_ptr(), w.as_ptr(), y.as_ptr()].map(|address| address as usize);
    let bias_address = bias.map(|bias| bias.as_ptr() as usize);
    let conv = op.conv(
        &Device::cpu(),
        align_of(addresses.into_iter().chain(bias_address)),
    )?;

    // Taken out meanwhile: the pool that computes may give this thread another call to do.
    let kept = LANE.take();
    let mut lane = kept.map_or_else(Lane::new, Ok).map_err(error)?;
    let Lane { stream, workspace } = &mut lane;
    let mut launch = || -> convforge::Result<()> {
        workspace.reserve(&conv, stream)?;
        let once = Filter::new();
        let packed = op
            .layer
            .filter()
            .unwrap_or(&once)
            .packed(&conv, w, stream)?;
        let mut operands = Operands::new(x, w, &mut *y).packed(packed.as_deref());
        if let Some(bias) = bias {
            operands = operands.bias(bias);
        }
        conv.run_with(operands, workspace, stream)
    };
    let answer = launch().map_err(error);
    LANE.set(Some(lane));
    answer
}
