//! A call of the older convolution API with its descriptors, settled on one problem.

use std::{ffi::c_void, ptr};

use cudnn_sys::{
    cudnnActivationDescriptor_t, cudnnActivationMode_t, cudnnConvolutionDescriptor_t,
    cudnnConvolutionFwdAlgo_t, cudnnConvolutionMode_t, cudnnDataType_t, cudnnFilterDescriptor_t,
    cudnnMathType_t, cudnnNanPropagation_t, cudnnTensorDescriptor_t, cudnnTensorFormat_t,
};

use super::{
    call::Handle,
    graph::{Operand, data_type},
    legacy::Choice,
    rules::{Form, padding, strides},
};
use crate::{Activation, Layout, Problem, Result};

/// Owns one of the older API's descriptors.
macro_rules! owned {
    ($name:ident, $raw:ty, $create:ident, $destroy:ident) => {
        struct $name($raw);

        // SAFETY: descriptors belong to no thread, and are only read once they are set.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            fn new() -> Result<Self> {
                let mut made = $name(ptr::null_mut());
                // SAFETY: it writes one descriptor, which `drop` destroys.
                unsafe { cudnn!($create(&mut made.0)) }?;
                Ok(made)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if !self.0.is_null() {
                    // SAFETY: made in `new`, destroyed once.
                    let _ = unsafe { cudnn_sys::$destroy(self.0) };
                }
            }
        }
    };
}

owned!(
    Tensor,
    cudnnTensorDescriptor_t,
    cudnnCreateTensorDescriptor,
    cudnnDestroyTensorDescriptor
);
owned!(
    Filter,
    cudnnFilterDescriptor_t,
    cudnnCreateFilterDescriptor,
    cudnnDestroyFilterDescriptor
);
owned!(
    Shape,
    cudnnConvolutionDescriptor_t,
    cudnnCreateConvolutionDescriptor,
    cudnnDestroyConvolutionDescriptor
);
owned!(
    Curve,
    cudnnActivationDescriptor_t,
    cudnnCreateActivationDescriptor,
    cudnnDestroyActivationDescriptor
);

/// A size that the older API's rules or [`Problem`] keep within an i32.
fn int(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn tensor(layout: Layout, dims: [usize; 4], data: cudnnDataType_t) -> Result<Tensor> {
    let made = Tensor::new()?;
    let [n, c, h, w] = dims.map(int);
    let [sn, sc, sh, sw] = strides(layout, dims).map(int);
    // SAFETY: the descriptor is alive; the rest are numbers.
    unsafe {
        cudnn!(cudnnSetTensor4dDescriptorEx(
            made.0, data, n, c, h, w, sn, sc, sh, sw
        ))
    }?;
    Ok(made)
}

fn filter(problem: &Problem, data: cudnnDataType_t) -> Result<Filter> {
    let made = Filter::new()?;
    let format = match problem.layout() {
        Layout::Nchw => cudnnTensorFormat_t::CUDNN_TENSOR_NCHW,
        Layout::Nhwc => cudnnTensorFormat_t::CUDNN_TENSOR_NHWC,
    };
    let dims = [
        problem.k(),
        problem.c() / problem.groups(),
        problem.r(),
        problem.s(),
    ];
    let [k, c, r, s] = dims.map(int);
    // SAFETY: the descriptor is alive; the rest are numbers.
    unsafe { cudnn!(cudnnSetFilter4dDescriptor(made.0, data, format, k, c, r, s)) }?;
    Ok(made)
}

fn shape(problem: &Problem, choice: Choice) -> Result<Shape> {
    let made = Shape::new()?;
    let [[top, left], _] = padding(problem).map(|side| side.map(int));
    let ([u, v], [dh, dw]) = (problem.stride().map(int), problem.dilation().map(int));
    let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
    let compute = match choice.form {
        Form::Half => cudnnDataType_t::CUDNN_DATA_HALF,
        Form::Plain | Form::Fused | Form::Sums => cudnnDataType_t::CUDNN_DATA_FLOAT,
    };
    let (groups, math) = (int(problem.groups()), cudnnMathType_t(choice.math));
    // SAFETY: the descriptor is alive; the rest are numbers.
    unsafe {
        cudnn!(cudnnSetConvolution2dDescriptor(
            made.0, top, left, u, v, dh, dw, mode, compute
        ))?;
        cudnn!(cudnnSetConvolutionGroupCount(made.0, groups))?;
        cudnn!(cudnnSetConvolutionMathType(made.0, math))?;
    }
    Ok(made)
}

/// What [`Form::Fused`] needs on top.
struct Fusion {
    bias: Tensor,
    curve: Curve,
    residual: bool,
}

impl Fusion {
    fn new(problem: &Problem) -> Result<Self> {
        let float = cudnnDataType_t::CUDNN_DATA_FLOAT;
        let bias = tensor(problem.layout(), [1, problem.k(), 1, 1], float)?;
        let curve = Curve::new()?;
        let mode = match problem.epilogue().activation {
            Activation::Relu => cudnnActivationMode_t::CUDNN_ACTIVATION_RELU,
            _ => cudnnActivationMode_t::CUDNN_ACTIVATION_IDENTITY,
        };
        let nan = cudnnNanPropagation_t::CUDNN_PROPAGATE_NAN;
        // SAFETY: the descriptor is alive; the rest are numbers.
        unsafe { cudnn!(cudnnSetActivationDescriptor(curve.0, mode, nan, 0.0)) }?;
        Ok(Fusion {
            bias,
            curve,
            residual: problem.epilogue().residual,
        })
    }
}

/// An algorithm settled on one problem.
pub(super) struct Algorithm {
    algorithm: cudnnConvolutionFwdAlgo_t,
    x: Tensor,
    w: Filter,
    shape: Shape,
    y: Tensor,
    fusion: Option<Fusion>,
    alpha: f32,
    workspace: usize,
}

impl Algorithm {
    /// # Errors
    /// What cuDNN refuses.
    pub(super) fn build(handle: &Handle, problem: &Problem, choice: Choice) -> Result<Self> {
        let (p, data) = (problem, data_type(problem.storage()));
        let mut made = Algorithm {
            algorithm: cudnnConvolutionFwdAlgo_t(choice.algorithm),
            x: tensor(p.layout(), [p.n(), p.c(), p.h(), p.w()], data)?,
            w: filter(p, data)?,
            shape: shape(p, choice)?,
            y: tensor(p.layout(), [p.n(), p.k(), p.p(), p.q()], data)?,
            fusion: (choice.form == Form::Fused)
                .then(|| Fusion::new(p))
                .transpose()?,
            // The fused call has the factor where the plain one has it.
            alpha: if choice.form.finishes() {
                1.0
            } else {
                p.epilogue().scale
            },
            workspace: 0,
        };
        // SAFETY: all descriptors are alive; it writes one size.
        unsafe {
            cudnn!(cudnnGetConvolutionForwardWorkspaceSize(
                handle.raw(),
                made.x.0,
                made.w.0,
                made.shape.0,
                made.y.0,
                made.algorithm,
                &mut made.workspace
            ))
        }?;
        Ok(made)
    }

    /// Bytes of workspace.
    pub(super) fn workspace(&self) -> usize {
        self.workspace
    }

    /// Enqueues the convolution on the handle's stream.
    ///
    /// # Safety
    /// As [`Engine::launch`](super::engine::Engine::launch).
    pub(super) unsafe fn launch(
        &self,
        handle: &Handle,
        address: impl Fn(Operand) -> *mut c_void,
        workspace: *mut c_void,
    ) -> Result<()> {
        let (x, w, y) = (
            address(Operand::X),
            address(Operand::W),
            address(Operand::Result),
        );
        let alpha = ptr::from_ref(&self.alpha).cast();
        let (zero, one) = (0_f32, 1_f32);
        let (zero, one) = (ptr::from_ref(&zero).cast(), ptr::from_ref(&one).cast());
        let Some(fusion) = &self.fusion else {
            // SAFETY: the descriptors are alive and the caller vouches for the addresses; the
            // factors are read before it returns.
            return unsafe {
                cudnn!(cudnnConvolutionForward(
                    handle.raw(),
                    alpha,
                    self.x.0,
                    x,
                    self.w.0,
                    w,
                    self.shape.0,
                    self.algorithm,
                    workspace,
                    self.workspace,
                    zero,
                    self.y.0,
                    y
                ))
            };
        };
        // Without a residual its factor is 0, and y itself stands for it, unread.
        let (beta, z) = if fusion.residual {
            (one, address(Operand::Residual))
        } else {
            (zero, y)
        };
        // SAFETY: as above.
        unsafe {
            cudnn!(cudnnConvolutionBiasActivationForward(
                handle.raw(),
                alpha,
                self.x.0,
                x,
                self.w.0,
                w,
                self.shape.0,
                self.algorithm,
                workspace,
                self.workspace,
                beta,
                self.y.0,
                z,
                fusion.bias.0,
                address(Operand::Bias),
                fusion.curve.0,
                self.y.0,
                y
            ))
        }
    }
}
