//! Recording a queue of work; what was recorded, launched as one.

use std::{cell::Cell, marker::PhantomData, ptr};

use cuda_sys::{
    CUgraph, CUgraphExec,
    edges::{self, EdgeData, Node},
};

use super::{Gpu, Stream, call::check};
use crate::Result;

/// Work that [`Stream::capture`] recorded, with the buffers it uses by their addresses. It keeps none of
/// them alive: [`launch`](Self::launch) says who does.
#[derive(Debug)]
pub struct Graph {
    gpu: Gpu,
    executable: CUgraphExec,
    // The driver forbids launching one graph from two threads at once.
    _not_sync: PhantomData<Cell<()>>,
}

// SAFETY: the driver's graphs may move between threads.
unsafe impl Send for Graph {}

impl Graph {
    /// Makes `recorded` launchable. It stays the caller's.
    pub(super) fn instantiate(gpu: &Gpu, recorded: CUgraph) -> Result<Self> {
        let mut executable = ptr::null_mut();
        // SAFETY: the graph is alive; it writes one handle, which `drop` destroys.
        unsafe { cu!(cuGraphInstantiateWithFlags(&mut executable, recorded, 0)) }?;
        Ok(Graph {
            gpu: gpu.clone(),
            executable,
            _not_sync: PhantomData,
        })
    }

    /// The GPU it was recorded on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Queues the whole of it on `stream`, a stream of the same GPU. Launches of one graph run one
    /// after another.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// Everything that the recorded work uses is still there and stays so until the work is done
    /// (dropping a buffer waits, as always): buffers; of a convolution also itself, its packed
    /// filter and its workspace, in which since then nobody reserved more, or tried to. A graph knows them by
    /// address only, and such an address may since belong to anything, memory of the host included.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        let _current = stream.enter()?;
        // SAFETY: graph and stream are alive, no other thread has the graph, and the caller
        // answers for the buffers.
        unsafe { cu!(cuGraphLaunch(self.executable, stream.handle())) }
    }

    /// Brings it to the device ahead of time, so that the first launch is as fast as the others.
    ///
    /// # Errors
    /// What the driver answers.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let _current = stream.enter()?;
        // SAFETY: graph and stream are alive, and no other thread has the graph; nothing runs.
        unsafe { cu!(cuGraphUpload(self.executable, stream.handle())) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(_current) = self.gpu.enter() {
            // SAFETY: made in `instantiate`, destroyed once; the driver lets a launch finish.
            let _ = unsafe { cuda_sys::cuGraphExecDestroy(self.executable) };
        }
    }
}

impl Stream {
    /// Records what `work` queues on this stream, without running it.
    ///
    /// Whatever `work` answers, and also if it panics, the stream is an ordinary queue again
    /// afterwards. Inside, on this thread, allocating and waiting for the stream are errors that
    /// spoil the recording; this stream's copies from and to the host are refused, since a graph
    /// could outlive their memory. A buffer's plain copies happen at once and are not recorded.
    ///
    /// On every thread, what waits for the whole device spoils the recording:
    /// [`Gpu::synchronize`], and dropping a [`Workspace`](crate::Workspace) with a handle of cuBLAS or
    /// cuDNN.
    ///
    /// # Errors
    /// What `work` answers, or the driver.
    pub fn capture(&self, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Graph> {
        let _current = self.enter()?;
        let recorded = Recorded::of(self, work)?;
        Graph::instantiate(self.gpu(), recorded.0)
    }

    /// As [`capture`](Self::capture), but nothing begins before what was queued ahead of it has
    /// ended, where kernels otherwise may (programmatic dependent launch). None where no kernel may,
    /// so that the graph would be that of `capture`.
    ///
    /// # Errors
    /// What `work` answers, or the driver; one older than 12.3 cannot tell.
    pub fn capture_in_order(
        &self,
        work: impl FnOnce(&Stream) -> Result<()>,
    ) -> Result<Option<Graph>> {
        let _current = self.enter()?;
        let recorded = Recorded::of(self, work)?;
        match recorded.put_in_order()? {
            true => Graph::instantiate(self.gpu(), recorded.0).map(Some),
            false => Ok(None),
        }
    }
}

/// What was recorded, to be made launchable.
struct Recorded(CUgraph);

impl Recorded {
    fn of(stream: &Stream, work: impl FnOnce(&Stream) -> Result<()>) -> Result<Self> {
        let recording = Recording::begin(stream)?;
        work(stream)?;
        recording.end().map(Recorded)
    }

    /// Replaces each dependency that lets a kernel begin early by an ordinary one; whether there was
    /// any.
    fn put_in_order(&self) -> Result<bool> {
        let (get, remove, add) = (
            "cuGraphGetEdges",
            "cuGraphRemoveDependencies",
            "cuGraphAddDependencies",
        );
        let mut count = 0;
        let [mut from, mut to] = [const { Vec::<Node>::new() }; 2];
        let mut data = Vec::<EdgeData>::new();
        // SAFETY: the graph is alive; without room for edges their number is written.
        check(get, unsafe {
            edges::get(
                self.0,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
                &mut count,
            )
        })?;
        from.resize(count, ptr::null_mut());
        to.resize(count, ptr::null_mut());
        data.resize(count, EdgeData::default());
        // SAFETY: there is room for as many edges as the graph has.
        check(get, unsafe {
            edges::get(
                self.0,
                from.as_mut_ptr(),
                to.as_mut_ptr(),
                data.as_mut_ptr(),
                &mut count,
            )
        })?;
        let is_early = |i: &usize| data[*i] != EdgeData::default();
        let early: Vec<usize> = (0..count).filter(is_early).collect();
        let of = |nodes: &[Node]| early.iter().map(|i| nodes[*i]).collect::<Vec<_>>();
        let (from, to) = (of(&from), of(&to));
        let data: Vec<EdgeData> = early.iter().map(|i| data[*i]).collect();
        if early.is_empty() {
            return Ok(false);
        }
        // SAFETY: these are edges of the graph, as many of each; added, they have no annotation.
        unsafe {
            check(
                remove,
                edges::remove(
                    self.0,
                    from.as_ptr(),
                    to.as_ptr(),
                    data.as_ptr(),
                    data.len(),
                ),
            )?;
            check(
                add,
                edges::add(self.0, from.as_ptr(), to.as_ptr(), ptr::null(), data.len()),
            )?;
        }
        Ok(true)
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // SAFETY: it was recorded here, and is no longer needed.
        let _ = unsafe { cuda_sys::cuGraphDestroy(self.0) };
    }
}

/// A stream that is being recorded; dropping it ends the recording and throws it away.
struct Recording<'a> {
    stream: &'a Stream,
}

impl<'a> Recording<'a> {
    fn begin(stream: &'a Stream) -> Result<Self> {
        // Other threads may allocate and wait meanwhile; only this one may not.
        let mode = cuda_sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive; `drop` or `end` ends the recording on this same thread.
        unsafe { cu!(cuStreamBeginCapture(stream.handle(), mode)) }?;
        Ok(Recording { stream })
    }

    /// What was recorded; the caller destroys it.
    fn end(self) -> Result<CUgraph> {
        let this = std::mem::ManuallyDrop::new(self);
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is being recorded; it writes one handle.
        unsafe { cu!(cuStreamEndCapture(this.stream.handle(), &mut graph)) }?;
        Ok(graph)
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        let mut graph = ptr::null_mut();
        // SAFETY: as in `end`; a spoiled recording leaves no graph.
        unsafe {
            let _ = cuda_sys::cuStreamEndCapture(self.stream.handle(), &mut graph);
            if !graph.is_null() {
                let _ = cuda_sys::cuGraphDestroy(graph);
            }
        }
    }
}
