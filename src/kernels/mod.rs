//! The handwritten kernels: the rows of csrc/kernels.def as variants.
//!
//! Public is what kernels of other crates, compiled against csrc's headers, need to be called with
//! the library's types: [`CProblem`], [`CArgs`], [`checked`], [`storage`].
//!
//! | file | what it holds |
//! | --- | --- |
//! | `mod` | a row as a [`Variant`], its plans ready to launch |
//! | `state` | the memory that a row's plan lies in |
//! | `constant` | who has which part of a row's constant memory |
//! | `c` | problems, devices and errors in C |
//! | `ffi` | the C interface itself |

mod c;
mod constant;
pub(crate) mod ffi;
mod state;

use std::{
    ffi::{CStr, c_char, c_void},
    ptr,
    sync::Arc,
};

use self::{c::text, constant::ConstantMemory, state::State};
pub use c::{CArgs, CProblem, checked, storage};

use crate::{
    Device, Error, Result,
    gpu::Gpu,
    variant::{
        Args, Bytes, ConstantPart, Info, Kind, Packing, Plan, Prepared, Query, Space, Variant,
    },
};

/// Every row, in the order of the table.
pub(crate) fn rows() -> impl Iterator<Item = Arc<dyn Variant>> {
    // SAFETY: the table is a constant array that ends with a null.
    let table = unsafe { ffi::cf_rows() };
    (0..)
        // SAFETY: `take_while` stops at the null, before the end of the array.
        .map(move |i| (i, unsafe { *table.add(i) }))
        .take_while(|(_, row)| !row.is_null())
        .map(|(i, row)| {
            // SAFETY: rows are constants of this program, and the index is one of theirs.
            let (row, ranked) = unsafe { (&*row, ffi::cf_is_ranked(i as u64) != 0) };
            Arc::new(Row::new(row, ranked)) as Arc<dyn Variant>
        })
}

struct Row {
    row: &'static ffi::cf_row,
    info: Info,
    /// For those that pack filters into it.
    constant: Option<Arc<ConstantMemory>>,
}

// SAFETY: the row is a constant of this program.
unsafe impl Send for Row {}
// SAFETY: as above.
unsafe impl Sync for Row {}

impl Row {
    fn new(row: &'static ffi::cf_row, ranked: bool) -> Self {
        let mut configs = Vec::new();
        let mut next = row.configs;
        // SAFETY: a row's strings are constants, and its configurations end with a null.
        let [name, family, idea, source, caveat] = unsafe {
            while !next.is_null() && !(*next).is_null() {
                configs.push(text(*next));
                next = next.add(1);
            }
            [row.name, row.family, row.idea, row.source, row.caveat].map(|chars| text(chars))
        };
        let (min_arch, max_arch) = match row.needs as u32 {
            ffi::CF_NEEDS_SM90A => (90, 90),
            ffi::CF_NEEDS_SM90 => (90, u32::MAX),
            _ => (80, u32::MAX),
        };
        let info = Info {
            caveat: (!caveat.is_empty()).then_some(caveat),
            min_arch,
            max_arch,
            configs,
            ranked,
            hash: crate::variants::hash_of_row(&name),
            ..Info::new(&name, &family, &idea, &source, Kind::Kernel)
        };
        let constant = row.functions.constant_memory.map(ConstantMemory::new);
        Row {
            row,
            info,
            constant: constant.map(Arc::new),
        }
    }
}

/// Why this build has no kernels for the device, whatever the row's own limits.
fn not_compiled(needs: i32, arch: u32) -> Option<String> {
    // SAFETY: the functions only read their arguments and answer with a constant string.
    unsafe {
        if ffi::cf_compiled_for(needs, arch as i32) != 0 {
            return None;
        }
        Some(format!(
            "was not compiled for sm_{arch}: this build has {} (CONVFORGE_ARCHS chooses, when it is \
             built)",
            text(ffi::cf_compiled_archs())
        ))
    }
}

/// What the memory's pins take at least to move input, output and residual, in microseconds: no estimate
/// is less. A packed filter may be smaller than it is stored.
fn memory_us(query: &Query) -> f64 {
    let problem = query.problem;
    let elements = problem.elements_read() + problem.y_len() + problem.residual_len();
    match query.limits.bytes_per_us() {
        speed if speed > 0.0 => (elements * problem.storage().bytes()) as f64 / speed,
        _ => 0.0,
    }
}

// SAFETY: a row's plan tells the sizes that its launches keep within; tests/variants.rs fences them.
unsafe impl Variant for Row {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        if let Some(why) = not_compiled(self.row.needs, query.limits.arch) {
            return Err(why);
        }
        let functions = &self.row.functions;
        let Some(plan) = functions.plan else {
            return Err("has no plan".to_owned());
        };
        let floor_us = memory_us(query);
        let mut query = ffi::cf_query {
            problem: CProblem::new(query.problem).0,
            device: c::device(query.limits),
            config: query.config as i32,
        };
        // Of no image nothing is ever launched; what rows divide by may be the number of images.
        query.problem.n = query.problem.n.max(1);
        let mut state = State::new(functions.state_bytes as usize);
        let mut answer = ffi::cf_plan::default();
        let mut why = [0 as c_char; 512];
        // SAFETY: the state has the bytes and the alignment that the row asks for; the reason is a
        // string of at most the given size.
        let able = unsafe {
            plan(
                &query,
                state.as_mut_ptr(),
                &mut answer,
                why.as_mut_ptr(),
                why.len() as u64,
            )
        };
        if able == 0 {
            // SAFETY: as above.
            return Err(unsafe { text(why.as_ptr()) });
        }
        let constant = self.constant.is_some();
        let packing = (answer.packed_bytes > 0).then_some(Packing {
            bytes: answer.packed_bytes as usize,
            layout: answer.filter_layout,
            space: match answer.filter_in_constant != 0 && constant {
                true => Space::Constant,
                false => Space::Global,
            },
        });
        Ok(Plan {
            workspace: Bytes {
                least: answer.workspace_least as usize,
                preferred: answer.workspace_preferred.max(answer.workspace_least) as usize,
            },
            packing,
            us: (answer.us >= 0.0).then_some(answer.us.max(floor_us)),
            state: Box::new(state),
        })
    }

    fn prepare(&self, device: &Device, _: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        let Some(gpu) = device.as_gpu() else {
            return Err(Error::NoGpu(format!("{} is a CUDA kernel", self.info.name)));
        };
        let Ok(mut state) = plan.state.downcast::<State>() else {
            return Err(Error::Unavailable(format!(
                "{}: the plan is another variant's",
                self.info.name
            )));
        };
        if let Some(prepare) = self.row.functions.prepare {
            let _current = gpu.enter()?;
            // SAFETY: the row's own plan filled the state.
            checked("prepare", unsafe { prepare(state.as_mut_ptr()) })?;
        }
        let constant = self.constant.clone();
        Ok(Box::new(RowPlan {
            functions: &self.row.functions,
            gpu: gpu.clone(),
            state: *state,
            workspace: plan.workspace,
            packing: plan.packing,
            constant: constant.filter(|_| {
                plan.packing
                    .is_some_and(|packing| packing.space == Space::Constant)
            }),
        }))
    }
}

struct RowPlan {
    functions: &'static ffi::cf_functions,
    gpu: Gpu,
    state: State,
    workspace: Bytes,
    packing: Option<Packing>,
    constant: Option<Arc<ConstantMemory>>,
}

// SAFETY: as `Row`'s plan says, launches keep within these sizes.
unsafe impl Prepared for RowPlan {
    fn workspace(&self) -> Bytes {
        self.workspace
    }

    fn packing(&self) -> Option<Packing> {
        self.packing
    }

    fn constant_part(&self) -> Result<Box<dyn ConstantPart>> {
        match (&self.constant, self.packing) {
            (Some(constant), Some(packing)) => constant.take(&self.gpu, packing.bytes),
            _ => Err(Error::Unavailable(
                "constant memory: this variant packs no filter into it".to_owned(),
            )),
        }
    }

    unsafe fn pack(
        &self,
        w: *const c_void,
        packed: *mut c_void,
        stream: *mut c_void,
    ) -> Result<()> {
        let Some(pack) = self.functions.pack else {
            return Ok(());
        };
        let _current = self.gpu.enter()?;
        // SAFETY: the caller vouches for the addresses.
        checked("pack", unsafe {
            pack(self.state.as_ptr(), w, packed, stream)
        })
    }

    unsafe fn launch(&self, mut args: Args) -> Result<()> {
        let Some(launch) = self.functions.launch else {
            return Ok(());
        };
        let _current = self.gpu.enter()?;
        let mut addresses = addresses(&args);
        let mut stage = args.stage.take();
        if let Some(stage) = &mut stage {
            addresses.stage = Some(stage_ended);
            addresses.stage_user = ptr::from_mut(stage).cast();
        }
        // SAFETY: the caller vouches for the addresses; `stage` outlives the call.
        checked("launch", unsafe { launch(self.state.as_ptr(), &addresses) })
    }
}

/// Tells the closure of a launch that a stage has ended.
extern "C" fn stage_ended(user: *mut c_void, name: *const c_char) {
    // SAFETY: `launch` passed the closure, which outlives the call; names are constant strings.
    let (stage, name) = unsafe {
        (
            &mut *user.cast::<&mut dyn FnMut(&CStr)>(),
            CStr::from_ptr(name),
        )
    };
    stage(name);
}

/// The addresses of a launch in C, without its stages.
pub(crate) fn addresses(args: &Args) -> ffi::cf_args {
    ffi::cf_args {
        x: args.x,
        w: args.w,
        packed: args.packed,
        y: args.y,
        bias: args.bias,
        residual: args.residual,
        workspace: args.workspace,
        workspace_bytes: args.workspace_bytes as u64,
        stream: args.stream,
        ..ffi::cf_args::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_compiled_is_refused() {
        // SAFETY: a constant string.
        let archs = unsafe { text(ffi::cf_compiled_archs()) };
        let hopper = archs.split(", ").any(|arch| arch == "90a");
        let [any, tma, wgmma] =
            [ffi::CF_NEEDS_SM80, ffi::CF_NEEDS_SM90, ffi::CF_NEEDS_SM90A].map(|needs| needs as i32);
        assert_eq!(not_compiled(wgmma, 90).is_none(), hopper, "{archs}");
        for (needs, arch) in [(any, 75), (tma, 80), (wgmma, 80), (wgmma, 100)] {
            let why = not_compiled(needs, arch).unwrap();
            assert!(
                why.contains(&format!("sm_{arch}")) && why.contains(&archs),
                "{why}"
            );
        }
    }

    #[test]
    fn a_failed_call_of_the_runtime_is_not_the_next_ones() {
        unsafe extern "C" {
            fn cudaPeekAtLastError() -> i32;
        }
        // SAFETY: the table is a constant array of constants, and not empty.
        let functions = unsafe { &(**ffi::cf_rows()).functions };
        let mut state = State::new(functions.state_bytes as usize);
        // Readies a kernel that no plan chose.
        // SAFETY: the memory is the state's, of zeros, which are a state without a kernel.
        let error = unsafe { functions.prepare.unwrap()(state.as_mut_ptr()) };
        assert_ne!(error, 0);
        // SAFETY: it only reads.
        let kept = unsafe { cudaPeekAtLastError() };
        // Without a device this call fails like all others.
        if Device::gpu(0).is_ok() {
            assert_eq!(kept, 0);
        }
    }
}
