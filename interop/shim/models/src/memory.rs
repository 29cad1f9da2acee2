//! Memory of the device that a body of code takes.

use candle_core::{Device, Result};

/// Bytes that `body` took at most beyond what was held before, its answer included; none on the CPU.
#[cfg(not(feature = "cuda"))]
pub(crate) fn peak<R>(_: &Device, body: impl FnOnce() -> Result<R>) -> Result<(R, Option<usize>)> {
    Ok((body()?, None))
}

/// Bytes that `body` took at most beyond what was held before, its answer included; none on the CPU.
///
/// candle's tensors come from the device's pool, which counts its most; what convforge and the
/// libraries take beside it (workspaces, packed filters, handles) they keep, so it is counted after.
#[cfg(feature = "cuda")]
pub(crate) fn peak<R>(
    device: &Device,
    body: impl FnOnce() -> Result<R>,
) -> Result<(R, Option<usize>)> {
    use candle_core::cuda::cudarc::driver::{result, sys::CUmemPool_attribute};
    use candle_core::cuda::{WrapErr, cudarc::driver::result::mem_pool};

    let Device::Cuda(cuda) = device else {
        return Ok((body()?, None));
    };
    let stream = cuda.cuda_stream();
    let context = stream.context();
    // SAFETY: the device's own number; it has a pool, as candle's allocations are from it.
    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device()) }.w()?;
    let read = |what| {
        let mut bytes = 0u64;
        // SAFETY: these attributes are one u64.
        unsafe { mem_pool::get_attribute(pool, what, (&raw mut bytes).cast()) }.w()?;
        Ok::<_, candle_core::Error>(bytes as usize)
    };
    let beside = || {
        stream.synchronize().w()?;
        let (free, total) = context.mem_get_info().w()?;
        let reserved = read(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        Ok::<_, candle_core::Error>(total - free - reserved)
    };
    let before = beside()?;
    let held = read(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    let mut none = 0u64;
    let most = CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
    // SAFETY: a u64, of which only 0 may be written: it begins to count anew.
    unsafe { mem_pool::set_attribute(pool, most, (&raw mut none).cast()) }.w()?;
    let answer = body()?;
    let after = beside()?;
    let peak = read(most)?.saturating_sub(held) + after.saturating_sub(before);
    Ok((answer, Some(peak)))
}
