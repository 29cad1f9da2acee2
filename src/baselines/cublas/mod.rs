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

use std::{
    any::{Any, TypeId},
    ffi::c_void,
};

use self::{
    handle::{Blas, Handle},
    product::{ALIGN, Form, Product},
};
use crate::{
    Device, Error, Limits, Problem, Result, Storage, Stream,
    gpu::Gpu,
    kernels::{CProblem, addresses, checked, ffi, storage as code},
    variant::{self, Args, Bytes, Info, Kind, Packing, Plan, Prepared, Query, Variant},
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
            min_arch: 80,
            configs: CONFIGS.map(str::to_owned).to_vec(),
            hash: crate::sources::hash_of_passes(),
            ..Info::new(
                "cublas_gemm",
                "cublas",
                "unroll the input where it must be, cuBLAS matrix product, one pass for the rest",
                "NVIDIA cuBLAS; reports A, D",
                Kind::Baseline,
            )
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
    if image.saturating_mul(query.problem.n()) <= half {
        return Err("has nothing to split: all images fit half of the L2 cache".to_owned());
    }
    Ok((product, half))
}

/// What a plan settles, and of which question: the product, the bytes that the images of a chunk may take,
/// and how the filter is packed.
struct Settled {
    problem: Problem,
    config: usize,
    limits: Limits,
    product: Product,
    chunk_bytes: usize,
    packing: Option<Packing>,
}

impl Settled {
    fn is_of(&self, query: &Query) -> bool {
        self.problem == *query.problem
            && self.config == query.config
            && self.limits == *query.limits
    }

    fn workspace(&self) -> Bytes {
        let image = self.product.bytes_per_image();
        Bytes {
            least: FIXED_BYTES + image,
            preferred: FIXED_BYTES + image * self.product.chunk(self.chunk_bytes),
        }
    }
}

// SAFETY: what it prepares keeps to the workspace that `Settled` tells; tests/variants.rs fences it.
unsafe impl Variant for CublasGemm {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let (product, chunk_bytes) = settle(query)?;
        let bytes = product.packed_bytes(query.problem.storage());
        // Rows of this length, in this type.
        let layout = (product.depth as u64) << 2 | code(product.operand) as u64;
        let packing = (bytes > 0).then(|| Packing::new(bytes, layout));
        let settled = Settled {
            problem: query.problem.clone(),
            config: query.config,
            limits: query.limits.clone(),
            product,
            chunk_bytes,
            packing,
        };
        Ok(Plan {
            workspace: settled.workspace(),
            packing,
            us: rank::microseconds(query.problem, &settled.product, query.limits),
            state: Box::new(settled),
            ..Plan::default()
        })
    }

    fn open(&self) -> Result<()> {
        handle::open()
    }

    fn library(&self) -> Result<Option<String>> {
        handle::version().map(|version| Some(format!("cuBLAS-{version}")))
    }

    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        let Some(gpu) = device.as_gpu() else {
            return Err(Error::no_gpu("cuBLAS runs on GPUs only"));
        };
        let settled = plan.state.downcast::<Settled>().ok();
        let Some(settled) = settled.filter(|settled| settled.is_of(query)) else {
            return Err(variant::not_its_plan(&self.0, query));
        };
        handle::open()?;
        let plan = GemmPlan {
            gpu: gpu.clone(),
            c_problem: CProblem::new(query.problem),
            settled: *settled,
        };
        plan.prepare_passes()?;
        Ok(Box::new(plan))
    }
}

struct GemmPlan {
    gpu: Gpu,
    c_problem: CProblem,
    settled: Settled,
}

// SAFETY: as above.
unsafe impl Prepared for GemmPlan {
    fn workspace(&self) -> Bytes {
        self.settled.workspace()
    }

    fn packing(&self) -> Option<Packing> {
        self.settled.packing
    }

    fn handle_type(&self) -> Option<TypeId> {
        Some(TypeId::of::<Handle>())
    }

    fn handle(&self, stream: &Stream) -> Result<Box<dyn Any + Send>> {
        let Some(stream) = stream.as_gpu() else {
            return Err(Error::no_gpu("cuBLAS needs a stream of a GPU"));
        };
        // SAFETY: the workspace that keeps the handle serves this stream alone.
        Ok(Box::new(unsafe { Handle::new(&self.gpu, stream.raw()) }?))
    }

    fn note(&self) -> Option<String> {
        let product = &self.settled.product;
        let source = match product.direct {
            true => "x as it lies",
            false => "unrolled",
        };
        let form = match product.form {
            Form::Rows => "",
            Form::Wide => ", wide",
            Form::Batched => ", batched",
        };
        let chunk = product.chunk(self.settled.chunk_bytes);
        Some(format!(
            "{source}{form}, {chunk} of {} images at a time",
            self.settled.problem.n()
        ))
    }

    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let _current = self.gpu.enter()?;
        let (p, product) = (&self.settled.problem, &self.settled.product);
        let [rows, length, pitch] =
            [product.filters(), product.reduction, product.depth].map(|size| size as i64);
        let (from, to) = (code(p.storage()), code(product.operand));
        // SAFETY: the caller vouches for the addresses.
        checked("pack", unsafe {
            ffi::cf_convert_rows(w, from, packed, to, rows, length, pitch, stream)
        })
    }

    unsafe fn launch(&self, mut args: Args) -> Result<()> {
        let _current = self.gpu.enter()?;
        let handle = args
            .handle
            .take()
            .and_then(|any| any.downcast_mut::<Handle>());
        let handle = handle.ok_or_else(|| Error::Operand {
            problem: self.settled.problem.to_string(),
            why: "was given a workspace without a cuBLAS handle".to_owned(),
        })?;
        let first_aligned = (args.workspace as usize).wrapping_neg() % ALIGN;
        let base = args.workspace.wrapping_byte_add(first_aligned);
        // SAFETY: a workspace has at least `FIXED_BYTES`, and the handle is of its stream.
        let blas = unsafe { handle.with_workspace(base, CUBLAS_BYTES) }?;

        let Settled {
            problem,
            product,
            chunk_bytes,
            ..
        } = &self.settled;
        let spare = args.workspace_bytes.saturating_sub(FIXED_BYTES);
        let chunk = product.chunk(spare.min(*chunk_bytes));
        for first in (0..problem.n()).step_by(chunk) {
            let count = chunk.min(problem.n() - first);
            let scratch = base.wrapping_byte_add(CUBLAS_BYTES);
            let images = Chunk::new(product, [first, count], scratch);
            // SAFETY: the caller vouches for the addresses, and `count` images fit the scratch.
            unsafe { self.images(&blas, &images, &mut args) }?;
        }
        Ok(())
    }
}

/// Images that are taken at a time, and the regions of the workspace for them.
struct Chunk {
    /// The first image, and how many there are.
    first: usize,
    count: usize,
    /// Operands that are not the input as it lies, ...
    columns: *mut c_void,
    /// ... sums that are not the output, ...
    sums: *mut c_void,
    /// ... and these widened to f32.
    widened: *mut c_void,
}

impl Chunk {
    fn new(product: &Product, [first, count]: [usize; 2], scratch: *mut c_void) -> Self {
        let sums = scratch.wrapping_byte_add(count * product.columns_bytes);
        Chunk {
            first,
            count,
            columns: scratch,
            sums,
            widened: sums.wrapping_byte_add(count * product.product_bytes),
        }
    }
}

impl GemmPlan {
    /// Readies the passes around the product, and those that pack.
    fn prepare_passes(&self) -> Result<()> {
        let _current = self.gpu.enter()?;
        let (product, problem) = (&self.settled.product, &self.c_problem.0);
        let (x, operand) = (code(self.settled.problem.storage()), code(product.operand));
        let (sum, f32) = (code(product.sum), code(Storage::F32));
        // SAFETY: the context is current; they read the problem and nothing else.
        let passes = unsafe {
            [
                match product.form {
                    _ if product.direct => 0,
                    Form::Rows => ffi::cf_prepare_unroll_rows(problem, operand),
                    Form::Wide | Form::Batched => ffi::cf_prepare_unroll_columns(problem, operand),
                },
                ffi::cf_prepare_convert(x, operand),
                ffi::cf_prepare_convert(sum, f32),
                match product.in_place {
                    true => 0,
                    false => ffi::cf_prepare_finish(problem, product.strides(1)),
                },
            ]
        };
        (passes.into_iter()).try_for_each(|code| checked("prepare", code))
    }

    /// Enqueues some images.
    ///
    /// # Safety
    /// As [`Prepared::launch`]; the chunk's regions are its own until the stream is past this work.
    unsafe fn images(&self, blas: &Blas, chunk: &Chunk, args: &mut Args) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let unrolled = self.unroll(chunk, args)?;
            self.multiply(blas, chunk, unrolled, args)?;
            match self.settled.product.in_place {
                true => Ok(()),
                false => self.finish(chunk, args),
            }
        }
    }

    /// Enqueues what writes the unrolled matrix, and says where it lies: the input where it is that as it
    /// lies.
    ///
    /// # Safety
    /// As [`images`](Self::images).
    unsafe fn unroll(&self, chunk: &Chunk, args: &mut Args) -> Result<*const c_void> {
        let (p, product) = (&self.settled.problem, &self.settled.product);
        let Chunk { first, count, .. } = *chunk;
        let image = p.c() * p.h() * p.w();
        let x = args
            .x
            .wrapping_byte_add(first * image * p.storage().bytes());
        if !product.direct {
            let (problem, addresses) = (&self.c_problem.0, &addresses(args));
            let [first, images, depth, pixels] =
                [first, count, product.depth, count * p.p() * p.q()].map(|size| size as i64);
            let (storage, columns) = (code(product.operand), chunk.columns);
            // SAFETY: the caller's promise; the region holds the unrolled matrix of `count` images.
            checked("unroll", unsafe {
                match product.form {
                    Form::Rows => ffi::cf_unroll_rows(
                        problem, addresses, first, images, storage, depth, columns,
                    ),
                    Form::Wide | Form::Batched => ffi::cf_unroll_columns(
                        problem, addresses, first, images, storage, depth, pixels, columns,
                    ),
                }
            })?;
            args.stage(c"unroll");
        } else if product.operand != p.storage() {
            let (from, to) = ((x, p.storage()), (chunk.columns, product.operand));
            // SAFETY: as above, with `count` images.
            unsafe { convert(from, to, count * image, args.stream) }?;
            args.stage(c"convert");
        } else {
            return Ok(x);
        }
        Ok(chunk.columns)
    }

    /// Enqueues the product, into the output or into sums that are to be finished.
    ///
    /// # Safety
    /// As [`images`](Self::images); `unrolled` is of the chunk's images.
    unsafe fn multiply(
        &self,
        blas: &Blas,
        chunk: &Chunk,
        unrolled: *const c_void,
        args: &mut Args,
    ) -> Result<()> {
        let (p, product) = (&self.settled.problem, &self.settled.product);
        let output = p.k() * p.p() * p.q();
        let c = match product.in_place {
            true => args
                .y
                .wrapping_byte_add(chunk.first * output * p.storage().bytes()),
            false => chunk.sums,
        };
        let filter = if self.settled.packing.is_some() {
            args.packed
        } else {
            args.w
        };
        let gemm = product.gemm(chunk.count);
        let ab = if gemm.filter_first {
            [filter, unrolled]
        } else {
            [unrolled, filter]
        };
        // SAFETY: the caller's promise; the matrices are the filter, the unrolled images and their sums.
        unsafe { blas.multiply(product, p.math(), &gemm, ab, c) }?;
        args.stage(c"gemm");
        Ok(())
    }

    /// Enqueues the pass that makes outputs of the sums.
    ///
    /// # Safety
    /// As [`images`](Self::images).
    unsafe fn finish(&self, chunk: &Chunk, args: &mut Args) -> Result<()> {
        let (p, product) = (&self.settled.problem, &self.settled.product);
        let Chunk { first, count, .. } = *chunk;
        let mut finished = chunk.sums;
        if product.sum != Storage::F32 {
            let from = (chunk.sums.cast_const(), product.sum);
            let (to, output) = ((chunk.widened, Storage::F32), p.k() * p.p() * p.q());
            // SAFETY: the caller's promise; the regions hold the sums of `count` images.
            unsafe { convert(from, to, count * output, args.stream) }?;
            finished = chunk.widened;
        }
        let strides = product.strides(count);
        // SAFETY: as above.
        checked("finish", unsafe {
            ffi::cf_finish(
                &self.c_problem.0,
                &addresses(args),
                first as i64,
                count as i64,
                finished.cast(),
                strides,
            )
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
