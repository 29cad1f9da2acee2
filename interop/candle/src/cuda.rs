//! Calls on GPUs.

use std::{
    cell::RefCell,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::{
    CudaStorage, DType, Layout, Result, Storage, bail,
    cuda::{
        CudaDType,
        cudarc::driver::{CudaSlice, CudaStream, CudaView, DeviceRepr},
    },
};
use convforge::{Device, Element, Filter};
use convforge_cudarc::{Operands, Queue};
use half::{bf16, f16};

use crate::{
    error,
    op::{Op, align_of, range},
};

/// A tensor's memory, and where its elements are in it.
type Part<'a> = (&'a CudaStorage, &'a Layout);

/// Queues a call on the device's stream.
pub(crate) fn forward(op: &Op, x: Part, w: Part) -> Result<CudaStorage> {
    match op.layer.weight().dtype() {
        DType::F32 => typed::<f32>(op, x, w),
        DType::F16 => typed::<f16>(op, x, w),
        DType::BF16 => typed::<bf16>(op, x, w),
        other => bail!("convforge has no {other:?}"),
    }
}

fn typed<T: CudaDType + DeviceRepr + Element>(op: &Op, x: Part, w: Part) -> Result<CudaStorage> {
    // Allocations begin at multiples of 256 bytes.
    let starts = [
        range(x.1)?.start * size_of::<T>(),
        range(w.1)?.start * size_of::<T>(),
    ];
    let device = x.0.device.clone();
    let (x, w) = (elements::<T>(x)?, elements::<T>(w)?);
    // SAFETY: the call writes all of it before anything that is queued later reads it.
    let mut y = unsafe { device.alloc::<T>(op.y_len())? };
    let stream = device.cuda_stream();
    match op.bias() {
        None => run(op, align_of(starts), &stream, (&x, &w, None), &mut y)?,
        Some(bias) => {
            let (storage, layout) = bias.storage_and_layout();
            let Storage::Cuda(storage) = storage.deref() else {
                bail!("a bias on another device");
            };
            let start = range(layout)?.start * size_of::<f32>();
            let align = align_of(starts.into_iter().chain([start]));
            let bias = elements::<f32>((storage, layout))?;
            run(op, align, &stream, (&x, &w, Some(&bias)), &mut y)?;
        }
    }
    Ok(CudaStorage::wrap_cuda_slice(y, device))
}

fn elements<'a, T: CudaDType>((storage, layout): Part<'a>) -> Result<CudaView<'a, T>> {
    Ok(storage.as_cuda_slice::<T>()?.slice(range(layout)?))
}

/// Input, filter, bias.
type Read<'a, T> = (
    &'a CudaView<'a, T>,
    &'a CudaView<'a, T>,
    Option<&'a CudaView<'a, f32>>,
);

fn run<T: Element>(
    op: &Op,
    align: usize,
    stream: &Arc<CudaStream>,
    (x, w, bias): Read<T>,
    y: &mut CudaSlice<T>,
) -> Result<()> {
    let mut queue = take(stream).map_err(error)?;
    let mut launch = || -> Result<()> {
        let conv = op.conv(queue.device(), align)?;
        let once = Filter::new();
        let filter = op.layer.filter().unwrap_or(&once);
        let packed = queue.packed(filter, &conv, w).map_err(error)?;
        let mut operands = Operands::new(x, w, y).packed(packed.as_deref());
        if let Some(bias) = bias {
            operands = operands.bias(bias);
        }
        queue.run(&conv, operands).map_err(error)
    };
    // Whatever it answers: a queue that is dropped waits for the device.
    let answer = launch();
    put(queue);
    answer
}

thread_local! {
    /// Queues of this thread, the last one used last. They stay with it, as the per-thread default
    /// stream does.
    static QUEUES: RefCell<Vec<Queue>> = const { RefCell::new(Vec::new()) };
}

/// Streams of a thread that workspaces are kept for.
const MOST_QUEUES: usize = 4;

/// This thread's queue of a stream, taken out of the list.
fn take(stream: &Arc<CudaStream>) -> convforge::Result<Queue> {
    let kept = QUEUES.with_borrow_mut(|queues| {
        let found = queues.iter().position(|queue| queue.stream() == stream)?;
        Some(queues.remove(found))
    });
    match kept {
        Some(queue) => Ok(queue),
        None => Queue::new(&device(stream.context().ordinal())?, stream),
    }
}

fn put(queue: Queue) {
    let gone = QUEUES.with_borrow_mut(|queues| {
        let full = queues.len() == MOST_QUEUES;
        let gone = full.then(|| queues.remove(0));
        queues.push(queue);
        gone
    });
    drop(gone);
}

/// The GPU with this ordinal, opened once for the program.
fn device(ordinal: usize) -> convforge::Result<Device> {
    static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.iter().find(|d| d.ordinal() == Some(ordinal)) {
        return Ok(device.clone());
    }
    let device = Device::gpu(ordinal)?;
    devices.push(device.clone());
    Ok(device)
}
