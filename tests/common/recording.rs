//! What a run enqueues, node by node: recorded in a graph of the driver's, and enqueued again by bare
//! driver calls.

use std::{
    ffi::{c_uint, c_void},
    mem, ptr,
};

use convforge::{Error, gpu::Stream};
use cudarc::driver::sys::{self, CUgraphNodeType, CUstreamCaptureMode, cudaError_enum as Code};

/// A call of the driver's that enqueues.
enum Node {
    Kernel(sys::CUDA_KERNEL_NODE_PARAMS, Cluster),
    Memset(sys::CUDA_MEMSET_NODE_PARAMS),
}

/// Blocks of a cluster along x, y and z; none where the launch asked for none.
type Cluster = Option<sys::CUlaunchAttributeValue>;

/// The nodes of a graph, in the order in which they were enqueued.
pub struct Recording {
    /// Owns the kernels' parameters.
    graph: sys::CUgraph,
    nodes: Vec<Node>,
}

impl Recording {
    /// Records what `work` enqueues on `stream`, which must be all on that one stream.
    ///
    /// # Errors
    /// What `work` answers, or what the driver does.
    pub fn of(
        stream: &Stream,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let _current = stream.gpu().enter()?;
        let handle: sys::CUstream = stream.raw().cast();
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        let mut recording = Recording {
            graph: ptr::null_mut(),
            nodes: Vec::new(),
        };
        // SAFETY: the stream is alive, and of the context that is current.
        fine(unsafe { sys::cuStreamBeginCapture_v2(handle, mode) })?;
        let worked = work();
        // SAFETY: the recording was begun here; it writes one handle, which `drop` destroys.
        fine(unsafe { sys::cuStreamEndCapture(handle, &mut recording.graph) })?;
        worked?;

        let mut count = 0;
        // SAFETY: without an array it writes the number of nodes.
        fine(unsafe { sys::cuGraphGetNodes(recording.graph, ptr::null_mut(), &mut count) })?;
        if count == 0 {
            return Ok(recording);
        }
        let mut handles = vec![ptr::null_mut(); count];
        // SAFETY: the array has room for all.
        fine(unsafe { sys::cuGraphGetNodes(recording.graph, handles.as_mut_ptr(), &mut count) })?;
        for handle in handles {
            recording.nodes.push(node(handle)?);
        }
        Ok(recording)
    }

    /// How many calls enqueue it.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Enqueues it again, by as many calls.
    ///
    /// # Errors
    /// What the driver answers.
    ///
    /// # Safety
    /// What was recorded may run again: the memory that it uses is allocated. The stream's context is
    /// current.
    pub unsafe fn enqueue(&self, stream: &Stream) -> Result<(), String> {
        let stream: sys::CUstream = stream.raw().cast();
        for node in &self.nodes {
            // SAFETY: as the caller says; the parameters are the graph's own.
            fine(unsafe {
                match node {
                    Node::Kernel(kernel, cluster) => launch(kernel, *cluster, stream),
                    Node::Memset(memset) => set(memset, stream),
                }
            })?;
        }
        Ok(())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.graph.is_null() {
            // SAFETY: it is destroyed once, and nothing else has it.
            unsafe { sys::cuGraphDestroy(self.graph) };
        }
    }
}

fn node(handle: sys::CUgraphNode) -> Result<Node, String> {
    let mut kind = CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
    // SAFETY: the node is of a graph that lives; each call writes what its type says.
    unsafe {
        fine(sys::cuGraphNodeGetType(handle, &mut kind))?;
        match kind {
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => {
                let mut kernel = mem::zeroed();
                fine(sys::cuGraphKernelNodeGetParams_v2(handle, &mut kernel))?;
                Ok(Node::Kernel(kernel, cluster(handle)?))
            }
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => {
                let mut memset = mem::zeroed();
                fine(sys::cuGraphMemsetNodeGetParams(handle, &mut memset))?;
                Ok(Node::Memset(memset))
            }
            other => Err(format!("a run recorded {other:?}, which is not known here")),
        }
    }
}

/// Of a kernel's node. Without it, blocks that copy to each other's shared memory are ended by the hardware.
unsafe fn cluster(kernel: sys::CUgraphNode) -> Result<Cluster, String> {
    let attribute = sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    // SAFETY: the node is of a graph that lives, and a kernel's; this attribute's value are numbers.
    unsafe {
        let mut value: sys::CUlaunchAttributeValue = mem::zeroed();
        fine(sys::cuGraphKernelNodeGetAttribute(
            kernel, attribute, &mut value,
        ))?;
        Ok((value.clusterDim.x > 0).then_some(value))
    }
}

/// As the runtime launches: by the extended call. A node does not say whether its kernel may begin
/// before the one ahead of it has ended, so here none may.
unsafe fn launch(
    kernel: &sys::CUDA_KERNEL_NODE_PARAMS,
    cluster: Cluster,
    stream: sys::CUstream,
) -> Code {
    let mut attribute = cluster.map(|value| sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        pad: [0; 4],
        value,
    });
    let config = sys::CUlaunchConfig {
        gridDimX: kernel.gridDimX,
        gridDimY: kernel.gridDimY,
        gridDimZ: kernel.gridDimZ,
        blockDimX: kernel.blockDimX,
        blockDimY: kernel.blockDimY,
        blockDimZ: kernel.blockDimZ,
        sharedMemBytes: kernel.sharedMemBytes,
        hStream: stream,
        attrs: attribute.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
        numAttrs: u32::from(cluster.is_some()),
    };
    let function = match kernel.func.is_null() {
        // A kernel of a library, which the driver takes for a function.
        true => kernel.kern.cast(),
        false => kernel.func,
    };
    let (arguments, extra): (*mut *mut c_void, *mut *mut c_void) =
        (kernel.kernelParams, kernel.extra);
    // SAFETY: as the caller of `enqueue` says.
    unsafe { sys::cuLaunchKernelEx(&config, function, arguments, extra) }
}

unsafe fn set(memset: &sys::CUDA_MEMSET_NODE_PARAMS, stream: sys::CUstream) -> Code {
    let (dst, len) = (memset.dst, memset.width * memset.height);
    // SAFETY: as the caller of `enqueue` says.
    unsafe {
        match memset.elementSize {
            4 => sys::cuMemsetD32Async(dst, memset.value, len, stream),
            2 => sys::cuMemsetD16Async(dst, memset.value as u16, len, stream),
            _ => sys::cuMemsetD8Async(dst, memset.value as u8, len, stream),
        }
    }
}

fn fine(code: Code) -> Result<(), String> {
    match code {
        Code::CUDA_SUCCESS => Ok(()),
        other => Err(format!("{other:?} ({})", other as c_uint)),
    }
}
