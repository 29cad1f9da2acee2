//! `cublas_gemm`: unroll the input, multiply by the filter with cuBLAS, and finish what the product
//! left over.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `product` | which form of matrix product serves a problem, and where its matrices lie |
//! | `handle` | cuBLAS's own calls |
//! | `rank` | the estimate of its time |
//!
//! As strong as cuBLAS's GEMM lets it be: 1x1 convolutions without stride and fully connected
//! layers multiply the input as it lies; sums that nothing is done to are stored by the product
//! itself; 16-bit operands go to the tensor cores with f32 sums, unrolled to whole words. The rest
//! goes image by image in chunks, through the unrolling and finishing passes that handwritten
//! kernels use as well.
//!
//! Every address in the workspace is aligned. Where x, w or y is not (the problem's `align`, or an
//! image of 7x7 in f16), cuBLAS takes slower kernels; it says nothing.
//!
//! Configurations:
//!
//! | | |
//! | --- | --- |
//! | `auto` | batched, where images fill tiles and their sums need no pass, but for the fewest channels in fp32; otherwise wide |
//! | `wide` | one product for all images of a chunk, permuted afterwards |
//! | `batched` | NCHW: one product per image, in y's own order |
//! | `l2` | as `auto`, in chunks so small that the unrolled matrix is read from the L2 cache |

use std::{any::Any, ffi::c_void};

use self::{
    handle::{Blas, Handle},
    product::{ALIGN, Form, Product},
};
use crate::{
    Device, Error, Limits, Problem, Result, Storage, Stream,
    gpu::Gpu,
    kernels::{self, checked, ffi},
    variant::{Args, Arithmetic, Bytes, Info, Kind, Plan, Query, Variant},
};

mod handle;
mod product;
mod rank;
#[cfg(test)]
mod tests;

const CONFIGS: [&str; 4] = ["auto", "wide", "batched", "l2"];
/// cuBLAS's own scratch memory: what NVIDIA recommends for Hopper, and more than any other chip's.
const CUBLAS_BYTES: usize = 32 << 20;
/// That, wherever in the workspace its first aligned byte is.
const FIXED_BYTES: usize = CUBLAS_BYTES + ALIGN;
/// Most bytes for the images of a chunk: products this large run at cuBLAS's full speed.
const CHUNK_BYTES: usize = 1 << 30;

pub(crate) struct CublasGemm(Info);

impl CublasGemm {
    pub(crate) fn new() -> Self {
        CublasGemm(Info {
            name: "cublas_gemm".to_owned(),
            family: "cublas".to_owned(),
            idea: "unroll the input where it must be, cuBLAS matrix product, one pass for the rest"
                .to_owned(),
            source: "NVIDIA cuBLAS; reports A, D".to_owned(),
            kind: Kind::Baseline,
            arithmetic: Arithmetic::Exact,
            min_arch: 80,
            max_arch: i32::MAX as u32,
            configs: CONFIGS.map(str::to_owned).to_vec(),
        })
    }
}

/// The product of a problem, and the bytes that the images of a chunk may take; or why not.
fn settle(query: &Query) -> Result<(Product, usize), String> {
    let config = CONFIGS.get(query.config).copied().unwrap_or_default();
    let form = match config {
        "wide" => Some(Form::Wide),
        "batched" => Some(Form::Batched),
        _ => None,
    };
    let product = Product::new(query.problem, form)?;
    if config != "l2" {
        return Ok((product, CHUNK_BYTES));
    }
    // The other half is for what streams by: input, output and filter.
    let half = usize::try_from(query.limits.l2_bytes / 2).unwrap_or(usize::MAX);
    let image = product.bytes_per_image();
    if image > half {
        return Err(format!(
            "writes {image} bytes per image; half of the L2 cache is {half}"
        ));
    }
    if image.saturating_mul(query.problem.n) <= half {
        return Err("has nothing to cut: all images fit half of the L2 cache".to_owned());
    }
    Ok((product, half))
}

impl Variant for CublasGemm {
    fn info(&self) -> &Info {
        &self.0
    }

    fn supports(&self, query: &Query) -> Result<(), String> {
        settle(query).map(drop)
    }

    fn rank(&self, query: &Query) -> Option<f64> {
        let (product, _) = settle(query).ok()?;
        Some(rank::microseconds(query.problem, &product))
    }

    fn open(&self) -> Result<()> {
        handle::open()
    }

    fn plan(&self, device: &Device, query: &Query) -> Result<Box<dyn Plan>> {
        let Device::Gpu(gpu) = device else {
            return Err(Error::NoGpu("cuBLAS runs on GPUs only".to_owned()));
        };
        handle::open()?;
        let (product, chunk_bytes) = settle(query).map_err(|why| Error::Unsupported {
            variant: self.0.spelled(query.config),
            problem: Box::new(query.problem.clone()),
            why,
        })?;
        Ok(Box::new(GemmPlan {
            gpu: gpu.clone(),
            problem: query.problem.clone(),
            limits: query.limits.clone(),
            product,
            chunk_bytes,
        }))
    }
}

struct GemmPlan {
    gpu: Gpu,
    problem: Problem,
    limits: Limits,
    product: Product,
    chunk_bytes: usize,
}

impl Plan for GemmPlan {
    fn workspace(&self) -> Bytes {
        let image = self.product.bytes_per_image();
        Bytes {
            least: FIXED_BYTES + image,
            preferred: FIXED_BYTES + image * self.product.chunk(self.chunk_bytes),
        }
    }

    fn packed_bytes(&self) -> usize {
        self.product.packed_bytes(self.problem.storage)
    }

    fn handles(&self, stream: &Stream) -> Result<Box<dyn Any + Send>> {
        let Stream::Gpu(stream) = stream else {
            return Err(Error::NoGpu("cuBLAS needs a stream of a GPU".to_owned()));
        };
        // SAFETY: the workspace that keeps the handle serves this stream alone.
        Ok(Box::new(unsafe { Handle::new(&self.gpu, stream.raw()) }?))
    }

    fn note(&self) -> Option<String> {
        let source = match self.product.direct {
            true => "x as it lies",
            false => "unrolled",
        };
        let form = match self.product.form {
            Form::Rows => "",
            Form::Wide => ", wide",
            Form::Batched => ", batched",
        };
        let chunk = self.product.chunk(self.chunk_bytes);
        Some(format!(
            "{source}{form}, {chunk} of {} images at a time",
            self.problem.n
        ))
    }

    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let _current = self.gpu.enter()?;
        let (p, product) = (&self.problem, &self.product);
        let [rows, length, pitch] =
            [product.filters(), product.reduction, product.depth].map(|size| size as i64);
        let (from, to) = (code(p.storage), code(product.operand));
        // SAFETY: the caller vouches for the addresses.
        checked("pack", unsafe {
            ffi::cf_convert_rows(w, from, packed, to, rows, length, pitch, stream)
        })
    }

    unsafe fn launch(&self, mut args: Args) -> Result<()> {
        let _current = self.gpu.enter()?;
        let handle = args.handles.downcast_mut::<Handle>();
        let blas = handle.map(Handle::blas).ok_or_else(|| Error::Operand {
            problem: Box::new(self.problem.clone()),
            why: "was given a workspace without a cuBLAS handle".to_owned(),
        })?;
        let first_aligned = (args.workspace as usize).wrapping_neg() % ALIGN;
        let base = args.workspace.wrapping_byte_add(first_aligned);
        // Set at every launch, because a workspace grows into other memory.
        // SAFETY: a workspace has at least `FIXED_BYTES`, and the handle is of its stream.
        unsafe { blas.set_workspace(base, CUBLAS_BYTES) }?;

        let spare = args.workspace_bytes.saturating_sub(FIXED_BYTES);
        let chunk = self.product.chunk(spare.min(self.chunk_bytes));
        for first in (0..self.problem.n).step_by(chunk) {
            let count = chunk.min(self.problem.n - first);
            let scratch = base.wrapping_byte_add(CUBLAS_BYTES);
            // SAFETY: the caller vouches for the addresses, and `count` images fit the scratch.
            unsafe { self.images(&blas, [first, count], scratch, &mut args) }?;
        }
        Ok(())
    }
}

impl GemmPlan {
    /// Enqueues some images: where they begin, and how many.
    ///
    /// # Safety
    /// As [`Plan::launch`]; `scratch` has the bytes of `count` images.
    unsafe fn images(
        &self,
        blas: &Blas,
        [first, count]: [usize; 2],
        scratch: *mut c_void,
        args: &mut Args,
    ) -> Result<()> {
        let (p, product) = (&self.problem, &self.product);
        let call = ffi::cf_call {
            x: args.x,
            y: args.y,
            bias: args.bias,
            residual: args.residual,
            stream: args.stream,
            ..kernels::call(p, &self.limits, 0)
        };
        let columns = scratch;
        let sums = columns.wrapping_byte_add(count * product.columns_bytes);
        let widened = sums.wrapping_byte_add(count * product.product_bytes);

        let image = p.c * p.h * p.w;
        let mut unrolled = args.x.wrapping_byte_add(first * image * p.storage.bytes());
        if !product.direct {
            let [first, images, depth, pixels] =
                [first, count, product.depth, count * p.p() * p.q()].map(|size| size as i64);
            let storage = code(product.operand);
            // SAFETY: the caller's promise; the region holds the unrolled matrix of `count` images.
            checked("unroll", unsafe {
                match product.form {
                    Form::Rows => {
                        ffi::cf_unroll_rows(&call, first, images, storage, depth, columns)
                    }
                    Form::Wide | Form::Batched => ffi::cf_unroll_columns(
                        &call, first, images, storage, depth, pixels, columns,
                    ),
                }
            })?;
            args.stage(c"unroll");
            unrolled = columns;
        } else if product.operand != p.storage {
            let (from, to) = ((unrolled, p.storage), (columns, product.operand));
            // SAFETY: as above, with `count` images.
            unsafe { convert(from, to, count * image, args.stream) }?;
            args.stage(c"convert");
            unrolled = columns;
        }

        let output = p.k * p.p() * p.q();
        let c = match product.in_place {
            true => args.y.wrapping_byte_add(first * output * p.storage.bytes()),
            false => sums,
        };
        let filter = if self.packed_bytes() > 0 {
            args.packed
        } else {
            args.w
        };
        let gemm = product.gemm(count);
        let ab = if gemm.filter_first {
            [filter, unrolled]
        } else {
            [unrolled, filter]
        };
        // SAFETY: as above; the matrices are the filter, the unrolled images and their sums.
        unsafe { blas.multiply(product, p.math, &gemm, ab, c) }?;
        args.stage(c"gemm");
        if product.in_place {
            return Ok(());
        }

        let mut finished = sums;
        if product.sum != Storage::F32 {
            let (from, to) = ((sums.cast_const(), product.sum), (widened, Storage::F32));
            // SAFETY: as above, with the sums of `count` images.
            unsafe { convert(from, to, count * output, args.stream) }?;
            finished = widened;
        }
        let strides = product.strides(count);
        // SAFETY: as above.
        checked("finish", unsafe {
            ffi::cf_finish(&call, first as i64, count as i64, finished.cast(), strides)
        })?;
        args.stage(c"permute");
        Ok(())
    }
}

/// Enqueues copying elements from one type to another.
///
/// # Safety
/// Both addresses have `count` elements of their type until the stream is past this work.
unsafe fn convert(
    (src, from): (*const c_void, Storage),
    (dst, to): (*mut c_void, Storage),
    count: usize,
    stream: *mut c_void,
) -> Result<()> {
    // SAFETY: the caller's promise.
    checked("convert", unsafe {
        ffi::cf_convert(src, code(from), dst, code(to), count as i64, stream)
    })
}

/// A storage as csrc spells it.
fn code(storage: Storage) -> i32 {
    let code = match storage {
        Storage::F32 => ffi::CF_STORE_F32,
        Storage::F16 => ffi::CF_STORE_F16,
        Storage::Bf16 => ffi::CF_STORE_BF16,
    };
    code as i32
}
