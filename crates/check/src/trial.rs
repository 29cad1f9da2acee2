//! A variant's runs on one problem with one kind of data, everything around them watched.

use std::ptr::null_mut;

use convforge::{Conv, Device, RawOperands, Result, Stream, Workspace};

#[cfg(feature = "cuda")]
use crate::oracle;
use crate::{
    Recipe, Tensor,
    fence::{Fence, Fenced, whole},
    outcome::{Trouble, wrong},
    packed::Filter,
};

/// Larger tensors are made on the GPU that reads them.
#[cfg(feature = "cuda")]
const HOST_BYTES: usize = 1 << 20;

/// The operands of a convolution in watched memory.
pub(crate) struct Trial<'a> {
    conv: &'a Conv,
    stream: &'a Stream,
    x: Input,
    w: Input,
    bias: Input,
    residual: Input,
    filter: Filter,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(conv: &'a Conv, recipe: &Recipe, stream: &'a Stream) -> Result<Self> {
        let device = conv.device();
        let align = conv.problem().align();
        let input = |tensor, align| Input::new(device, recipe, tensor, align, stream);
        let w = input(Tensor::W, align)?;
        Ok(Trial {
            conv,
            stream,
            x: input(Tensor::X, align)?,
            bias: input(Tensor::Bias, align.max(4))?,
            residual: input(Tensor::Residual, align)?,
            filter: Filter::new(conv, &w.tensor, stream)?,
            w,
        })
    }

    /// What a run is given, but for the output.
    pub(crate) fn operands(&self) -> RawOperands {
        let epilogue = self.conv.problem().epilogue();
        let mut operands =
            RawOperands::new(self.x.tensor.as_ptr(), self.w.tensor.as_ptr(), null_mut());
        if epilogue.bias {
            operands.bias = self.bias.tensor.as_ptr().cast();
        }
        if epilogue.residual {
            operands.residual = self.residual.tensor.as_ptr();
        }
        operands.packed = self.filter.as_ptr();
        operands
    }

    /// Runs from fresh poison, with so many bytes of workspace, and waits for the output.
    pub(crate) fn run(&self, workspace_bytes: usize) -> Result<Fenced, Trouble> {
        let (conv, stream) = (self.conv, self.stream);
        let (device, problem) = (conv.device(), conv.problem());
        let fenced = |bytes, align| Fenced::new(device, bytes, align, Fence::Pattern, stream);
        let mut y = fenced(problem.y_len() * problem.storage().bytes(), problem.align())?;
        let mut memory = fenced(workspace_bytes, Workspace::ALIGN)?;
        let mut operands = self.operands();
        operands.y = y.address();
        // SAFETY: `memory` outlives the workspace, and nothing else uses it.
        let mut workspace = unsafe { Workspace::from_raw(stream, memory.address(), memory.len())? };
        workspace.reserve(conv, stream)?;
        // SAFETY: every operand has the size that the problem says and outlives the stream's work,
        // which is waited for here.
        let ran = unsafe { conv.run_raw(&operands, &mut workspace, stream) };
        stream.synchronize()?;
        ran?;
        whole("the output", &y, stream)?;
        whole(
            &format!("the workspace of {workspace_bytes} bytes"),
            &memory,
            stream,
        )?;
        Ok(y)
    }

    /// After the runs: what they only read is what it was.
    pub(crate) fn check_inputs(&self) -> Result<(), Trouble> {
        for input in [&self.x, &self.w, &self.bias, &self.residual] {
            input.check(self.stream)?;
        }
        self.filter.check(self.stream)
    }
}

/// An operand that the variant only reads, and a copy to compare it with afterwards.
struct Input {
    what: &'static str,
    tensor: Fenced,
    copy: Fenced,
}

impl Input {
    fn new(
        device: &Device,
        recipe: &Recipe,
        tensor: Tensor,
        align: usize,
        stream: &Stream,
    ) -> Result<Self> {
        // The device's memory first: where there is too little, the host's is not asked for.
        let fenced = || {
            Fenced::new(
                device,
                recipe.byte_len(tensor),
                align,
                Fence::Poison,
                stream,
            )
        };
        let mut input = Input {
            what: match tensor {
                Tensor::X => "the input (x)",
                Tensor::W => "the filter (w)",
                Tensor::Bias => "the bias",
                Tensor::Residual => "the residual",
            },
            tensor: fenced()?,
            copy: fenced()?,
        };
        #[cfg(feature = "cuda")]
        if device.is_gpu() && recipe.byte_len(tensor) > HOST_BYTES {
            for memory in [&mut input.tensor, &mut input.copy] {
                // SAFETY: it has the tensor's length and lies on the stream's device.
                unsafe { oracle::make_tensor(recipe, tensor, memory.address(), stream)? };
            }
            return Ok(input);
        }
        Recipe::has_room(recipe.byte_len(tensor))?;
        let bytes = recipe.bytes(tensor);
        input.tensor.write(&bytes, stream)?;
        input.copy.write(&bytes, stream)?;
        Ok(input)
    }

    fn check(&self, stream: &Stream) -> Result<(), Trouble> {
        whole(self.what, &self.tensor, stream)?;
        match self.tensor.differences(&self.copy, stream)? {
            0 => Ok(()),
            count => wrong(format!("{} was changed in {count} words", self.what)),
        }
    }
}
