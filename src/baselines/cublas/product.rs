//! A convolution as matrix products: which form serves a problem, and where its matrices lie.
//!
//! Unrolling writes down, for every output pixel, the R elements that its sums read. That matrix
//! times the filter is the convolution. With N images at a time, P output pixels per image, G
//! groups, and K output channels and R products per group, three forms of C = op(A) B serve:
//!
//! | form | A | B | C | m, n, k |
//! | --- | --- | --- | --- | --- |
//! | rows: NHWC, or a filter as large as the image | filter `[G][K][R]`, transposed | unrolled `[N P][G][R]` | `[N P][G][K]` | K, N P, R |
//! | wide: NCHW, or groups of few channels in NHWC | unrolled `[G][R][N P]` | filter `[G][K][R]` | `[G][K][N P]` | N P, K, R |
//! | batched: NCHW | unrolled `[G][R][N][P]`, or x as `[N][G][R][P]` | filter `[G][K][R]` | `[N][G][K][P]` | P, K, R |
//!
//! The brackets are row-major, as the tensors lie. cuBLAS counts by columns: its m x n matrix of
//! leading dimension `ld` is n lines of m neighbours, `ld` elements apart; so each form reads as if
//! transposed. The last bracket is what cuBLAS calls a column, the distance of the dimension before
//! it the leading dimension; every other dimension is a batch with a stride.
//!
//! Rows and batched leave the sums in y's own order. Wide makes one large product of many small
//! ones, whose columns are aligned, but needs a pass to permute them.
//!
//! Tensor cores read a reduction in words of 16 bytes, and cuBLAS takes kernels of half the speed
//! where it does not divide into them. So R counts zeros that fill up the last word, both in the
//! unrolled matrix and in the filter, which is packed for that.

use std::ops::RangeInclusive;

use crate::{Layout, Math, Padding, Problem, Storage, kernels::ffi};

/// Start of every region of the workspace, and of cuBLAS's own part of it, in bytes.
pub(super) const ALIGN: usize = 256;
/// Most pixels of one product, unless one image has more. Products gain nothing from being longer,
/// and this keeps them far from 2^31, where cuBLAS's counters end, and from 65535 tiles, where
/// some grids do.
const MAX_PIXELS: usize = 1 << 22;
/// Most elements of an image's matrices, as of every tensor.
const MAX_ELEMENTS: usize = 1 << 46;
/// Fewest pixels of an image that fill a tile of cuBLAS's, so that images by themselves waste
/// little of it.
const TILE: usize = 128;
/// Output channels of a group from which on rows are faster than wide with its pass: with fewer,
/// cuBLAS's product takes up to ten times as long.
const ROWS: usize = 8;
/// Output channels for which cuBLAS's fp32 kernels for one long product are so much faster than
/// those for many short ones that wide gains more than its pass costs.
const NARROW: RangeInclusive<usize> = 2..=4;

/// How the sums of several images are laid out as products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Rows,
    Wide,
    Batched,
}

/// A problem settled as products.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub form: Form,
    /// Whether x is the unrolled matrix as it lies.
    pub direct: bool,
    /// What A and B are made of.
    pub operand: Storage,
    /// What C is made of.
    pub sum: Storage,
    /// Whether it was asked for though its lines begin off the words that tensor cores read, so that the
    /// default configuration takes another form.
    pub misaligned: bool,
    /// Whether C is y; otherwise a pass follows.
    pub in_place: bool,
    /// Bytes of workspace per image: operands that are not the input as it lies, ...
    pub columns_bytes: usize,
    /// ... C where it is not y, ...
    pub product_bytes: usize,
    /// ... and C widened to f32.
    pub sums_bytes: usize,
    images: usize,
    pixels: usize,
    width: usize,
    groups: usize,
    channels: usize,
    pub reduction: usize,
    /// The reduction with the zeros that fill it up.
    pub depth: usize,
}

/// `calls` times `batch` products of one shape, each with its own offsets into A, B and C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gemm {
    /// Whether A is the filter, transposed, and B the unrolled matrix; otherwise they are the
    /// other way round and nothing is transposed.
    pub filter_first: bool,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub lda: usize,
    pub ldb: usize,
    pub ldc: usize,
    /// Products of one call.
    pub batch: Batch,
    /// Calls.
    pub calls: Batch,
}

/// How many, and how far apart in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub count: usize,
    pub a: usize,
    pub b: usize,
    pub c: usize,
}

impl Batch {
    const ONE: Batch = Batch {
        count: 1,
        a: 0,
        b: 0,
        c: 0,
    };
}

/// What operands are rounded or widened to. Under `Fp32` even 16-bit operands are widened: tensor
/// cores would multiply them exactly, but truncate the sums.
fn operand(math: Math) -> Storage {
    match math {
        Math::Fp32 | Math::Tf32 => Storage::F32,
        Math::F16 | Math::F16Acc => Storage::F16,
        Math::Bf16 => Storage::Bf16,
    }
}

/// What a problem is settled by.
struct Case<'a> {
    problem: &'a Problem,
    operand: Storage,
    pixels: usize,
    /// Output channels of a group.
    channels: usize,
    /// Whether the filter has one tap, and as many pixels come out as there are.
    point: bool,
    /// Whether the only pixel reads the whole image: a fully connected layer.
    whole: bool,
    /// Whether nothing is done to the sums, and cuBLAS has the types to store them in y.
    storable: bool,
}

impl<'a> Case<'a> {
    fn new(problem: &'a Problem) -> Self {
        let operand = operand(problem.math());
        let storable = problem.epilogue().is_identity()
            && match problem.math() {
                Math::F16Acc => problem.storage() == Storage::F16,
                _ => problem.storage() == Storage::F32 || problem.storage() == operand,
            };
        let unpadded = problem.pad() == Padding::default();
        let (filter, image) = ([problem.r(), problem.s()], [problem.h(), problem.w()]);
        Case {
            problem,
            operand,
            pixels: problem.p() * problem.q(),
            channels: problem.k() / problem.groups(),
            point: unpadded && filter == [1, 1] && [problem.p(), problem.q()] == image,
            whole: unpadded && filter == image,
            storable,
        }
    }

    fn is_nhwc(&self) -> bool {
        self.problem.layout() == Layout::Nhwc
    }

    /// Whether columns begin at multiples of so many bytes, where that matters: tensor cores want 16, and
    /// make do with 8.
    fn is_aligned(&self, bytes: usize) -> bool {
        self.problem.math() == Math::Fp32
            || (self.pixels * self.operand.bytes()).is_multiple_of(bytes)
    }

    /// The form for many images.
    fn form_of_many(&self, wanted: Option<Form>) -> Form {
        let groups = self.problem.groups();
        match wanted {
            _ if self.is_nhwc() && groups > 1 && self.channels < ROWS && !self.point => Form::Wide,
            _ if self.is_nhwc() || self.whole => Form::Rows,
            Some(form) => form,
            None => {
                // Where a pass follows anyway, permuting is free; groups would multiply the calls.
                let narrow = self.problem.math() == Math::Fp32 && NARROW.contains(&self.channels);
                let fills = self.pixels >= TILE && groups == 1 && self.storable && !narrow;
                if (self.point && self.is_aligned(8)) || (fills && self.is_aligned(16)) {
                    Form::Batched
                } else {
                    Form::Wide
                }
            }
        }
    }

    /// The form for as many images as there are, where many have that one.
    fn form(&self, many: Form) -> Form {
        match many {
            // With one image, wide and batched are the same, and batched needs no permuting.
            Form::Wide if self.problem.n() <= 1 && !self.is_nhwc() => Form::Batched,
            many => many,
        }
    }

    /// Whether x is the unrolled matrix as it lies, for many images of this form.
    fn is_direct(&self, many: Form) -> bool {
        match many {
            // In NHWC the channels of a group are neighbours at one pixel only.
            Form::Rows if self.is_nhwc() => {
                self.point || (self.whole && self.problem.groups() == 1)
            }
            Form::Rows => true,
            Form::Wide => false,
            Form::Batched => self.point,
        }
    }

    /// Whether lines of the batched form begin off the words that tensor cores read.
    fn is_misaligned(&self, form: Form, direct: bool) -> bool {
        // With one image, what is unrolled is the default's.
        let differs = direct || self.problem.n() > 1;
        let word = if self.point { 8 } else { 16 };
        form == Form::Batched && differs && !self.is_aligned(word)
    }

    /// The reduction with the zeros that fill it up.
    fn depth(&self, direct: bool) -> usize {
        // As measured: zeros that TF32 multiplies for few output channels gain nothing, and for one
        // channel cuBLAS does not take tensor cores.
        let fill = !direct
            && match self.problem.math() {
                Math::Fp32 => false,
                Math::Tf32 => self.channels >= 64,
                Math::F16 | Math::Bf16 | Math::F16Acc => self.channels > 1,
            };
        let word = if fill { 16 / self.operand.bytes() } else { 1 };
        self.problem.reduction().next_multiple_of(word)
    }

    /// What C is made of.
    fn sum(&self, in_place: bool) -> Storage {
        match self.problem.math() {
            _ if in_place => self.problem.storage(),
            Math::F16Acc => Storage::F16,
            _ => Storage::F32,
        }
    }
}

/// Bytes of a region of the workspace, if it is there.
fn region(there: bool, elements: usize, of: Storage) -> usize {
    if there {
        (elements * of.bytes()).next_multiple_of(ALIGN)
    } else {
        0
    }
}

impl Gemm {
    /// Refuses matrices that cuBLAS cannot count.
    fn check(&self) -> Result<(), String> {
        let sizes = [self.m, self.n, self.k, self.lda, self.ldb, self.ldc];
        match sizes.into_iter().max() {
            Some(size) if size > i32::MAX as usize => Err(format!(
                "has a matrix with {size} rows or columns; cuBLAS counts them in 32 bits"
            )),
            _ => Ok(()),
        }
    }
}

impl Product {
    /// The form that was asked for, or the one that should be fastest; or why there is none.
    pub fn new(problem: &Problem, wanted: Option<Form>) -> Result<Self, String> {
        let case = Case::new(problem);
        let (groups, reduction) = (problem.groups(), problem.reduction());
        let unrolled = (groups * reduction).checked_mul(case.pixels);
        if unrolled.is_none_or(|elements| elements > MAX_ELEMENTS) {
            return Err("has an unrolled image of more than 2^46 elements".to_owned());
        }
        // One filter serves every number of images, so its rows are filled up as for many.
        let many = case.form_of_many(wanted);
        let form = case.form(many);
        if wanted.is_some_and(|wanted| wanted != form) {
            return Err(
                "comes in one form for this problem, the default configuration's".to_owned(),
            );
        }
        let direct = case.is_direct(many);
        let depth = case.depth(direct);
        let in_place = case.storable && form != Form::Wide;
        let (operand, sum) = (case.operand, case.sum(in_place));
        let columns = match direct {
            true => problem.c() * problem.h() * problem.w(),
            false => groups * depth * case.pixels,
        };
        let output = problem.k() * case.pixels;
        let product = Product {
            form,
            direct,
            operand,
            sum,
            misaligned: wanted.is_some() && case.is_misaligned(form, direct),
            in_place,
            columns_bytes: region(!direct || operand != problem.storage(), columns, operand),
            product_bytes: region(!in_place, output, sum),
            sums_bytes: region(!in_place && sum != Storage::F32, output, Storage::F32),
            images: problem.n(),
            pixels: case.pixels,
            width: problem.q(),
            groups,
            channels: case.channels,
            reduction,
            depth,
        };
        product.gemm(1).check()?;
        Ok(product)
    }

    /// Bytes of the filter, where it must be packed: in the operands' type, with its rows filled up.
    pub fn packed_bytes(&self, storage: Storage) -> usize {
        if self.operand == storage && self.depth == self.reduction {
            return 0;
        }
        self.filters() * self.depth * self.operand.bytes()
    }

    /// Rows of the filter: output channels.
    pub fn filters(&self) -> usize {
        self.groups * self.channels
    }

    /// Bytes of workspace that one image takes.
    pub fn bytes_per_image(&self) -> usize {
        self.columns_bytes + self.product_bytes + self.sums_bytes
    }

    /// How many images to take at a time, given so many bytes: at least one.
    pub fn chunk(&self, bytes: usize) -> usize {
        let images = self.images.max(1);
        let fit = bytes.checked_div(self.bytes_per_image()).unwrap_or(images);
        let most = fit.min(MAX_PIXELS / self.pixels).clamp(1, images);
        // A multiple of 8 images aligns the columns of the wide form; rounds of equal size leave
        // no straggler.
        let step = if most >= 8 { 8 } else { 1 };
        let most = if most < images {
            most - most % step
        } else {
            most
        };
        let even = images.div_ceil(images.div_ceil(most));
        even.next_multiple_of(step).min(most)
    }

    /// The products of so many images.
    pub fn gemm(&self, images: usize) -> Gemm {
        match self.form {
            Form::Rows => self.rows(images),
            Form::Wide => self.wide(images),
            Form::Batched => self.batched(images),
        }
    }

    fn rows(&self, images: usize) -> Gemm {
        let (g, k, r) = (self.groups, self.channels, self.depth);
        Gemm {
            filter_first: true,
            m: k,
            n: images * self.pixels,
            k: r,
            lda: r,
            ldb: g * r,
            ldc: g * k,
            batch: Batch {
                count: g,
                a: k * r,
                b: r,
                c: k,
            },
            calls: Batch::ONE,
        }
    }

    fn wide(&self, images: usize) -> Gemm {
        let (g, k, r) = (self.groups, self.channels, self.depth);
        let np = images * self.pixels;
        Gemm {
            filter_first: false,
            m: np,
            n: k,
            k: r,
            lda: np,
            ldb: r,
            ldc: np,
            batch: Batch {
                count: g,
                a: r * np,
                b: k * r,
                c: k * np,
            },
            calls: Batch::ONE,
        }
    }

    fn batched(&self, images: usize) -> Gemm {
        let (g, k, r, p) = (self.groups, self.channels, self.depth, self.pixels);
        // Distance between the rows of the unrolled matrix, and between its images.
        let (row, image) = if self.direct {
            (p, g * r * p)
        } else {
            (images * p, p)
        };
        let groups = Batch {
            count: g,
            a: r * row,
            b: k * r,
            c: k * p,
        };
        let images = Batch {
            count: images,
            a: image,
            b: 0,
            c: g * k * p,
        };
        // What there is more of goes into one call.
        let (batch, calls) = if groups.count > images.count {
            (groups, images)
        } else {
            (images, groups)
        };
        Gemm {
            filter_first: false,
            m: p,
            n: k,
            k: r,
            lda: row,
            ldb: r,
            ldc: p,
            batch,
            calls,
        }
    }

    /// Where the sums of so many images lie in C.
    pub fn strides(&self, images: usize) -> ffi::cf_strides {
        let (p, all) = (self.pixels, self.filters());
        let (image, channel, pixel) = match self.form {
            Form::Rows => (p * all, 1, all),
            Form::Wide => (p, images * p, 1),
            Form::Batched => (all * p, p, 1),
        };
        ffi::cf_strides {
            image: image as i64,
            channel: channel as i64,
            row: (self.width * pixel) as i64,
            column: pixel as i64,
        }
    }
}
