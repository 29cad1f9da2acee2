//! A convolution, and what follows it, as one of cuDNN's operation graphs.

use std::{mem, sync::Arc};

use cudnn_sys::{
    cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Type,
    cudnnBackendDescriptorType_t as Kind, cudnnConvolutionMode_t, cudnnDataType_t,
    cudnnPointwiseMode_t,
};

use super::{
    call::Handle,
    descriptor::Descriptor,
    rules::{Form, Step, layout, padding, steps, strides},
};
use crate::{Activation, Problem, Result, Storage, gpu::Gpu};

/// What a tensor of a graph is called in a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    X = 1,
    W,
    /// y, or the sums in the workspace.
    Result,
    Residual,
    Bias,
    Scale,
}

/// Tensors between two operations are numbered from here on.
const FIRST_VIRTUAL: i64 = 16;

/// A finalized operation graph.
pub(super) struct Graph {
    descriptor: Descriptor,
    /// What a launch must give an address of.
    operands: Vec<Operand>,
    form: Form,
    /// The epilogue's factor, which a launch passes by its address.
    scale: f32,
    // What the descriptors were made of stays as long as they do: operations, then their tensors.
    _parts: Vec<Descriptor>,
    _handle: Arc<Handle>,
}

impl Graph {
    /// # Errors
    /// What cuDNN refuses.
    pub(super) fn new(handle: &Arc<Handle>, problem: &Problem, form: Form) -> Result<Self> {
        let mut draft = Draft {
            gpu: handle.gpu(),
            problem,
            operands: Vec::new(),
        };
        let steps = if form == Form::Fused {
            steps(problem)
        } else {
            Vec::new()
        };
        let (x, w) = (draft.x()?, draft.w()?);
        let mut value = draft.result(form, 0, steps.len())?;
        let (convolution, shape) = draft.convolution(form, [&x, &w, &value])?;
        let mut operations = vec![convolution];
        let mut parts = vec![x, w, shape];
        for (i, step) in steps.iter().enumerate() {
            let other = draft.other(step)?;
            let result = draft.result(form, i + 1, steps.len())?;
            let (operation, pointwise) = draft.pointwise(step, &value, other.as_ref(), &result)?;
            operations.push(operation);
            parts.push(pointwise);
            parts.push(mem::replace(&mut value, result));
            parts.extend(other);
        }
        parts.push(value);
        let descriptor =
            Descriptor::new(handle.gpu(), Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?
                .link(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?
                .handle(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle)?
                .finalize()?;
        operations.extend(parts);
        Ok(Graph {
            descriptor,
            operands: draft.operands,
            form,
            scale: problem.epilogue().scale,
            _parts: operations,
            _handle: handle.clone(),
        })
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    pub(super) fn operands(&self) -> &[Operand] {
        &self.operands
    }

    pub(super) fn form(&self) -> Form {
        self.form
    }

    pub(super) fn scale(&self) -> &f32 {
        &self.scale
    }

    pub(super) fn gpu(&self) -> &Gpu {
        self._handle.gpu()
    }

    pub(super) fn handle(&self) -> &Handle {
        &self._handle
    }
}

/// cuDNN's name for a storage.
pub(super) fn data_type(storage: Storage) -> cudnnDataType_t {
    match storage {
        Storage::F32 => cudnnDataType_t::CUDNN_DATA_FLOAT,
        Storage::F16 => cudnnDataType_t::CUDNN_DATA_HALF,
        Storage::Bf16 => cudnnDataType_t::CUDNN_DATA_BFLOAT16,
    }
}

/// How a tensor of a graph comes by its values.
enum Place {
    Address(Operand),
    /// [`Operand::Result`], in the workspace.
    Workspace,
    /// From one operation to the next, never stored.
    Virtual(i64),
    /// One number, read on the host at each launch.
    Value(Operand),
}

/// A graph being made.
struct Draft<'a> {
    gpu: &'a Gpu,
    problem: &'a Problem,
    operands: Vec<Operand>,
}

impl Draft<'_> {
    fn x(&mut self) -> Result<Descriptor> {
        let p = self.problem;
        let dims = [p.n(), p.c(), p.h(), p.w()];
        self.packed(Place::Address(Operand::X), dims, data_type(p.storage()))
    }

    /// The channels of one group: how many groups there are, cuDNN sees by comparing with x.
    fn w(&mut self) -> Result<Descriptor> {
        let p = self.problem;
        let dims = [p.k(), p.c() / p.groups(), p.r(), p.s()];
        self.packed(Place::Address(Operand::W), dims, data_type(p.storage()))
    }

    /// What operation `index` gives: the last one stores it.
    fn result(&mut self, form: Form, index: usize, last: usize) -> Result<Descriptor> {
        let p = self.problem;
        let dims = [p.n(), p.k(), p.p(), p.q()];
        if index < last {
            // Nothing is rounded before the end.
            let place = Place::Virtual(FIRST_VIRTUAL + index as i64);
            return self.packed(place, dims, cudnnDataType_t::CUDNN_DATA_FLOAT);
        }
        if form.finishes() {
            return self.packed(Place::Workspace, dims, cudnnDataType_t::CUDNN_DATA_FLOAT);
        }
        self.packed(
            Place::Address(Operand::Result),
            dims,
            data_type(p.storage()),
        )
    }

    /// The second operand of a step.
    fn other(&mut self, step: &Step) -> Result<Option<Descriptor>> {
        let p = self.problem;
        let float = cudnnDataType_t::CUDNN_DATA_FLOAT;
        match step {
            Step::Residual => {
                let dims = [p.n(), p.k(), p.p(), p.q()];
                self.packed(
                    Place::Address(Operand::Residual),
                    dims,
                    data_type(p.storage()),
                )
            }
            Step::Bias => self.packed(Place::Address(Operand::Bias), [1, p.k(), 1, 1], float),
            Step::Scale => self.packed(Place::Value(Operand::Scale), [1; 4], float),
            Step::Activate(_) => return Ok(None),
        }
        .map(Some)
    }

    /// A tensor without gaps, in the graph's layout.
    fn packed(
        &mut self,
        place: Place,
        dims: [usize; 4],
        data: cudnnDataType_t,
    ) -> Result<Descriptor> {
        let (operand, id) = match place {
            Place::Address(operand) | Place::Value(operand) => (Some(operand), operand as i64),
            Place::Workspace => (Some(Operand::Result), Operand::Result as i64),
            Place::Virtual(id) => (None, id),
        };
        self.operands.extend(operand);
        // No engine asks for more than 16 bytes. A bias is aligned to its own 4 bytes at least.
        let align = match place {
            Place::Address(Operand::Bias) => self.problem.align().clamp(4, 16),
            Place::Address(_) => self.problem.align().min(16),
            Place::Workspace | Place::Virtual(_) | Place::Value(_) => 16,
        };
        let int = |values: [usize; 4]| values.map(|value| value as i64);
        let mut tensor = Descriptor::new(self.gpu, Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?
            .set_enum(
                Name::CUDNN_ATTR_TENSOR_DATA_TYPE,
                Type::CUDNN_TYPE_DATA_TYPE,
                data.0,
            )?
            .set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &int(dims))?
            .set(
                Name::CUDNN_ATTR_TENSOR_STRIDES,
                &int(strides(layout(self.problem), dims)),
            )?
            .set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[id])?
            .set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[align as i64])?;
        tensor = match place {
            Place::Address(_) | Place::Workspace => tensor,
            Place::Virtual(_) => tensor.set(Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL, &[true])?,
            Place::Value(_) => tensor.set(Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE, &[true])?,
        };
        tensor.finalize()
    }

    /// The convolution, and the descriptor of its shape.
    fn convolution(&self, form: Form, xwy: [&Descriptor; 3]) -> Result<(Descriptor, Descriptor)> {
        let p = self.problem;
        let compute = match form {
            Form::Half => cudnnDataType_t::CUDNN_DATA_HALF,
            Form::Plain | Form::Fused | Form::Sums => cudnnDataType_t::CUDNN_DATA_FLOAT,
        };
        let mode = cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
        let int = |values: [usize; 2]| values.map(|value| value as i64);
        let [before, after] = padding(p);
        let shape = Descriptor::new(self.gpu, Kind::CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)?
            .set_enum(
                Name::CUDNN_ATTR_CONVOLUTION_COMP_TYPE,
                Type::CUDNN_TYPE_DATA_TYPE,
                compute.0,
            )?
            .set_enum(
                Name::CUDNN_ATTR_CONVOLUTION_CONV_MODE,
                Type::CUDNN_TYPE_CONVOLUTION_MODE,
                mode.0,
            )?
            .set(Name::CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, &[2_i64])?
            .set(Name::CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, &int(before))?
            .set(Name::CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, &int(after))?
            .set(Name::CUDNN_ATTR_CONVOLUTION_DILATIONS, &int(p.dilation()))?
            .set(
                Name::CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                &int(p.stride()),
            )?
            .finalize()?;
        let [x, w, y] = xwy;
        let kind = Kind::CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
        let operation = Descriptor::new(self.gpu, kind)?
            .link(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, [x])?
            .link(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, [w])?
            .link(Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, [y])?
            .link(
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                [&shape],
            )?
            .set(
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                &[form.alpha(p)],
            )?
            .set(
                Name::CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                &[0_f32],
            )?
            .finalize()?;
        Ok((operation, shape))
    }

    /// A step, and the descriptor of what it does.
    fn pointwise(
        &self,
        step: &Step,
        x: &Descriptor,
        other: Option<&Descriptor>,
        y: &Descriptor,
    ) -> Result<(Descriptor, Descriptor)> {
        let mode = match step {
            Step::Scale => cudnnPointwiseMode_t::CUDNN_POINTWISE_MUL,
            Step::Residual | Step::Bias => cudnnPointwiseMode_t::CUDNN_POINTWISE_ADD,
            Step::Activate(mode) => *mode,
        };
        let float = cudnnDataType_t::CUDNN_DATA_FLOAT;
        let mut what = Descriptor::new(self.gpu, Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?
            .set_enum(
                Name::CUDNN_ATTR_POINTWISE_MODE,
                Type::CUDNN_TYPE_POINTWISE_MODE,
                mode.0,
            )?
            .set_enum(
                Name::CUDNN_ATTR_POINTWISE_MATH_PREC,
                Type::CUDNN_TYPE_DATA_TYPE,
                float.0,
            )?;
        let clipped = self.problem.epilogue().activation == Activation::Relu6;
        if clipped && matches!(step, Step::Activate(_)) {
            what = what.set(Name::CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, &[6_f64])?;
        }
        let what = what.finalize()?;
        let mut operation =
            Descriptor::new(self.gpu, Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?
                .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, [&what])?
                .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC, [x])?
                .link(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, [y])?;
        if let Some(other) = other {
            operation = operation.link(Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC, [other])?;
        }
        Ok((operation.finalize()?, what))
    }
}
