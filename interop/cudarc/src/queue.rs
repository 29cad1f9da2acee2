//! A stream of cudarc's that convolutions run on.

use std::{ffi::c_void, sync::Arc};

use convforge::{
    Conv, Device, Element, Error, Filter, Packed, Result, Stream, View, ViewMut, Workspace, gpu,
};
use cudarc::driver::{CudaContext, CudaStream, DevicePtr, SyncOnDrop};

use crate::Operands;

/// A stream of cudarc's with the workspace of the convolutions that run on it. Work is enqueued
/// behind what the stream has, in its order.
///
/// One of the per-thread default stream belongs to the thread that made it.
#[derive(Debug)]
pub struct Queue {
    // It stands on the stream, so it goes first.
    workspace: Workspace,
    line: Line,
}

/// One stream in the words of both crates.
#[derive(Debug)]
struct Line {
    device: Device,
    // It stands on cudarc's, so it goes first.
    ours: Stream,
    theirs: Arc<CudaStream>,
}

impl Queue {
    /// The stream as it is, and an empty workspace for it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another GPU than `device`, or of a context that is not
    /// its primary one; [`Error::Unavailable`] where `device` is no GPU; or what the driver answers.
    pub fn new(device: &Device, stream: &Arc<CudaStream>) -> Result<Self> {
        let Some(gpu) = device.as_gpu() else {
            return Err(Error::Unavailable(format!(
                "CUDA stream on {device}: name the GPU with Device::gpu({})",
                stream.context().ordinal()
            )));
        };
        let context = stream.context();
        if context.ordinal() != gpu.ordinal() || !context.is_primary() {
            return Err(Error::WrongDevice {
                what: "the stream",
                expected: format!("the primary context of {device}"),
                found: spelled(context),
            });
        }
        // SAFETY: `theirs` keeps the stream alive, and nobody gets a clone of `ours` but the
        // workspace; both go before it.
        let ours = unsafe { gpu::Stream::from_raw(gpu, stream.cu_stream().cast::<c_void>())? };
        let ours = Stream::from(ours);
        Ok(Queue {
            workspace: Workspace::new(&ours)?,
            line: Line {
                device: device.clone(),
                ours,
                theirs: stream.clone(),
            },
        })
    }

    /// The GPU.
    pub fn device(&self) -> &Device {
        &self.line.device
    }

    /// cudarc's stream.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.line.theirs
    }

    /// Bytes of workspace that it holds, for the largest of its convolutions.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace.bytes()
    }

    /// Takes the workspace and the library's handle that `conv` needs, so that [`run`](Self::run)
    /// only enqueues: before a graph is captured.
    ///
    /// # Errors
    /// As [`Workspace::reserve`].
    pub fn reserve(&mut self, conv: &Conv) -> Result<()> {
        self.workspace.reserve(conv, &self.line.ours)
    }

    /// Re-arranges a filter for `conv`, once; none where the variant uses it as it is. Enqueued: what
    /// runs on other streams has to wait for it.
    ///
    /// # Errors
    /// As [`Conv::pack`].
    pub fn pack<T: Element>(&self, conv: &Conv, w: &impl DevicePtr<T>) -> Result<Option<Packed>> {
        let (w, _reads_w) = self.line.view(FILTER, w)?;
        conv.pack(w, &self.line.ours)
    }

    /// The form that `conv` takes of a filter whose forms are kept, as [`Filter::packed`].
    ///
    /// # Errors
    /// As [`Filter::packed`].
    pub fn packed<T: Element>(
        &self,
        filter: &Filter,
        conv: &Conv,
        w: &impl DevicePtr<T>,
    ) -> Result<Option<Arc<Packed>>> {
        let (w, _reads_w) = self.line.view(FILTER, w)?;
        filter.packed(conv, w, &self.line.ours)
    }

    /// Enqueues y = conv(x, w). The first call of a convolution may take workspace
    /// ([`reserve`](Self::reserve)); later ones only enqueue.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for an operand of another context; otherwise as [`Conv::run`].
    pub fn run<T: Element>(&mut self, conv: &Conv, operands: Operands<T>) -> Result<()> {
        self.reserve(conv)?;
        let Queue { workspace, line } = self;
        // The guards tell cudarc, when they are dropped, that the stream now uses the memory.
        let (x, _reads_x) = line.view("the input (x)", operands.x)?;
        let (w, _reads_w) = line.view(FILTER, operands.w)?;
        let bias = operands.bias.map(|bias| line.view("the bias", bias));
        let (bias, _reads_bias) = bias.transpose()?.unzip();
        let residual = operands.residual.map(|r| line.view("the residual", r));
        let (residual, _reads_residual) = residual.transpose()?.unzip();

        line.check("the output (y)", operands.y.stream().context())?;
        let len = operands.y.len();
        let (y, _writes_y) = operands.y.device_ptr_mut(&line.theirs);
        // SAFETY: as in `view`, and what is written is borrowed for writing.
        let y = unsafe { ViewMut::from_raw(&line.device, y as *mut c_void, len)? };

        let mut all = convforge::Operands::new(x, w, y).packed(operands.packed);
        if let Some(bias) = bias {
            all = all.bias(bias);
        }
        if let Some(residual) = residual {
            all = all.residual(residual);
        }
        conv.run_with(all, workspace, &line.ours)
    }
}

impl Line {
    /// Memory that work on the stream is to read, and what tells cudarc that it does.
    fn view<'a, T: Element>(
        &'a self,
        what: &'static str,
        memory: &'a (impl DevicePtr<T> + ?Sized),
    ) -> Result<(View<'a, T>, SyncOnDrop<'a>)> {
        self.check(what, memory.stream().context())?;
        let len = memory.len();
        let (address, guard) = memory.device_ptr(&self.theirs);
        // SAFETY: so many elements of the device's memory, as cudarc's own calls take them from
        // `DevicePtr`. The guard's event is behind the work that is queued before it is dropped, and
        // cudarc frees and hands on the memory behind that event.
        let view = unsafe { View::from_raw(&self.device, address as *const c_void, len)? };
        Ok((view, guard))
    }

    /// Refuses memory of another context, whose addresses mean nothing on this stream.
    fn check(&self, what: &'static str, found: &Arc<CudaContext>) -> Result<()> {
        if found == self.theirs.context() {
            return Ok(());
        }
        Err(Error::WrongDevice {
            what,
            expected: self.device.to_string(),
            found: spelled(found),
        })
    }
}

/// What errors call it.
const FILTER: &str = "the filter (w)";

/// A context in words.
fn spelled(context: &CudaContext) -> String {
    let kind = if context.is_primary() {
        "the primary"
    } else {
        "another"
    };
    format!("{kind} context of GPU {}", context.ordinal())
}
