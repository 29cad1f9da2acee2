//! What a convolution refuses before it launches.

use std::{ffi::c_void, ptr::null};

use super::{Conv, FILTER, Operands, PACKED, Packed, Workspace};
use crate::{Element, Error, Result, Stream, View, variant::RawOperands};

impl Conv {
    pub(super) fn check_operands<T: Element>(&self, operands: Operands<T>) -> Result<RawOperands> {
        let problem = &self.problem;
        let Operands {
            x,
            w,
            mut y,
            bias,
            residual,
            packed,
        } = operands;
        self.check_presence(bias.is_some(), residual.is_some())?;
        self.check_view("the input (x)", &x, problem.x_len())?;
        self.check_view(FILTER, &w, problem.w_len())?;
        self.device.expect("the output (y)", y.device())?;
        self.check_storage::<T>("the output (y)")?;
        self.check_len("the output (y)", y.len(), problem.y_len())?;
        if let Some(residual) = &residual {
            self.check_view("the residual", residual, problem.residual_len())?;
        }
        if let Some(bias) = &bias {
            self.device.expect("the bias", bias.device())?;
            self.check_len("the bias", bias.len(), problem.bias_len())?;
        }
        if let Some(packed) = packed {
            self.device.expect(PACKED, &packed.device)?;
            if self.key.as_ref() != Some(&packed.key) {
                let wanted = self.key.as_ref().map_or_else(
                    || format!("{} uses filters as they are", self.name()),
                    |key| format!("this convolution takes {key}"),
                );
                return Err(self.operand_error(format!(
                    "was given a filter packed as {}; {wanted}",
                    packed.key
                )));
            }
        }
        let pointer = |b: Option<*const c_void>| b.unwrap_or(null());
        Ok(RawOperands::new(x.as_ptr(), w.as_ptr(), y.as_mut_ptr())
            .bias(pointer(bias.map(|bias| bias.as_ptr())).cast())
            .residual(pointer(residual.map(|residual| residual.as_ptr())))
            .packed(pointer(packed.map(Packed::as_ptr))))
    }

    /// Refuses operands that are missing, or that the problem has no use for.
    fn check_presence(&self, bias: bool, residual: bool) -> Result<()> {
        let epilogue = self.problem.epilogue();
        for (what, wanted, given) in [
            ("a bias", epilogue.bias, bias),
            ("a residual", epilogue.residual, residual),
        ] {
            if wanted != given && self.problem.n() > 0 {
                let state = if wanted { "needs" } else { "has no use for" };
                return Err(self.operand_error(format!("{state} {what}")));
            }
        }
        Ok(())
    }

    pub(super) fn check_raw(&self, raw: &RawOperands) -> Result<()> {
        self.check_presence(!raw.bias.is_null(), !raw.residual.is_null())?;
        if self.key.is_some() && raw.packed.is_null() {
            return Err(self.operand_error(format!(
                "needs its filter packed for {}: call Conv::pack once per filter",
                self.name()
            )));
        }
        let tensors = [
            ("the input (x)", raw.x),
            (FILTER, raw.w),
            ("the output (y)", raw.y.cast_const()),
        ];
        let missing = tensors.iter().find(|(_, address)| address.is_null());
        if let Some((what, _)) = missing
            && self.problem.n() > 0
        {
            return Err(self.operand_error(format!("needs {what}, and was given a null address")));
        }
        for (what, address) in tensors.into_iter().chain([("the residual", raw.residual)]) {
            self.check_align(what, address, self.problem.align())?;
        }
        self.check_align(PACKED, raw.packed, Workspace::ALIGN)?;
        self.check_align("the bias", raw.bias.cast(), self.problem.align().max(4))
    }

    pub(super) fn check_stream(&self, stream: &Stream) -> Result<()> {
        self.device.expect("the stream", &stream.device())?;
        stream.check_thread()
    }

    pub(super) fn check_align(
        &self,
        what: &'static str,
        address: *const c_void,
        align: usize,
    ) -> Result<()> {
        let address = address as usize;
        if address.is_multiple_of(align) {
            return Ok(());
        }
        if what == PACKED {
            return Err(Error::WorkspaceMisaligned {
                what,
                address,
                align,
            });
        }
        Err(Error::Misaligned {
            what,
            address,
            align,
            natural: 1 << address.trailing_zeros(),
            problem: self.problem.to_string(),
        })
    }

    pub(super) fn check_view<T: Element>(
        &self,
        what: &'static str,
        view: &View<T>,
        expected: usize,
    ) -> Result<()> {
        self.device.expect(what, view.device())?;
        self.check_storage::<T>(what)?;
        self.check_len(what, view.len(), expected)
    }

    fn check_storage<T: Element>(&self, what: &'static str) -> Result<()> {
        if T::STORAGE == self.problem.storage() {
            return Ok(());
        }
        Err(Error::Storage {
            what,
            expected: self.problem.storage().to_string(),
            found: T::STORAGE.to_string(),
            problem: self.problem.to_string(),
        })
    }

    fn check_len(&self, what: &'static str, found: usize, expected: usize) -> Result<()> {
        if found == expected {
            return Ok(());
        }
        let problem = self.problem.to_string();
        Err(Error::Length {
            what,
            expected,
            found,
            problem,
        })
    }

    pub(super) fn operand_error(&self, why: String) -> Error {
        Error::Operand {
            problem: self.problem.to_string(),
            why,
        }
    }

    pub(super) fn too_small(&self, have: usize) -> Error {
        Error::WorkspaceTooSmall {
            variant: self.name(),
            problem: self.problem.to_string(),
            need: self.prepared.workspace().least,
            have,
        }
    }
}
