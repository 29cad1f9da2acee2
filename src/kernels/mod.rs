//! The handwritten kernels: the rows of csrc/kernels.def as variants.
//!
//! Public is what kernels of other crates, compiled against csrc's headers, need to be called with
//! the library's types: [`CProblem`], [`CArgs`], [`checked`], [`storage`]; and [`are_translated`].
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
    Device, Error, Limits, Math, Problem, Result,
    gpu::Gpu,
    variant::{
        self, Args, Bytes, ConstantPart, Info, Kind, Packing, Plan, Prepared, Query, Space, Variant,
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
            hash: crate::sources::hash_of_row(&name),
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

/// Whether the driver has to translate this build's kernels for a chip of this
/// [`arch`](crate::Limits::arch), when each is first used: it has PTX for it and no machine code.
pub fn are_translated(arch: u32) -> bool {
    // SAFETY: the function only reads its argument.
    unsafe { ffi::cf_translated_for(arch as i32) != 0 }
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
             built: all is every chip)",
            text(ffi::cf_compiled_archs())
        ))
    }
}

/// As for tensors and in cuBLAS's row: with it, whatever rows count of one image, in bytes and with padding, fits
/// 64 bits.
const MOST_UNROLLED: u128 = 1 << 46;

/// Elements of the matrix that one image's windows make.
fn unrolled(problem: &Problem) -> u128 {
    let sizes = [
        problem.groups(),
        problem.reduction(),
        problem.p(),
        problem.q(),
    ];
    sizes.iter().map(|&size| size as u128).product()
}

/// A row's plan, and what it is the plan of. All of it is public to whoever asks for plans, and
/// [`Variant::prepare`] may be handed any: a row readies its own alone, and by the sizes that stand here.
struct Planned {
    row: *const ffi::cf_row,
    problem: Problem,
    config: usize,
    limits: Limits,
    state: State,
    workspace: Bytes,
    packing: Option<Packing>,
    note: Option<String>,
}

// SAFETY: the row is a constant of this program.
unsafe impl Send for Planned {}
// SAFETY: as above.
unsafe impl Sync for Planned {}

impl Planned {
    fn is_of(&self, row: &ffi::cf_row, query: &Query) -> bool {
        ptr::eq(self.row, row)
            && self.problem == *query.problem
            && self.config == query.config
            && self.limits == *query.limits
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
        // Rows index their tables by the one and divide by the others.
        self.info.check_config(query.config)?;
        query.limits.check_gpu()?;
        if unrolled(query.problem) > MOST_UNROLLED {
            return Err("has an unrolled image of more than 2^46 elements".to_owned());
        }
        let functions = &self.row.functions;
        let Some(plan) = functions.plan else {
            return Err("has no plan".to_owned());
        };
        let mut question = ffi::cf_query {
            problem: CProblem::new(query.problem).0,
            device: c::device(query.limits),
            config: query.config as i32,
        };
        // Of no image nothing is ever launched; what rows divide by may be the number of images.
        question.problem.n = question.problem.n.max(1);
        let mut state = State::new(functions.state_bytes as usize);
        let mut ask = |question: &ffi::cf_query| {
            let mut answer = ffi::cf_plan::default();
            let mut why = [0 as c_char; 512];
            // SAFETY: the state has the bytes and the alignment that the row asks for; the reason is a
            // string of at most the given size.
            let able = unsafe {
                plan(
                    question,
                    state.as_mut_ptr(),
                    &mut answer,
                    why.as_mut_ptr(),
                    why.len() as u64,
                )
            };
            match able {
                // SAFETY: as above.
                0 => Err(unsafe { text(why.as_ptr()) }),
                _ => Ok(answer),
            }
        };
        let answer = match ask(&question) {
            // Sums in f32 are more than was asked for.
            Err(why) if query.problem.math() == Math::F16Acc => {
                question.problem.math = ffi::CF_MATH_F16 as i32;
                ask(&question).or(Err(why))
            }
            answer => answer,
        }?;
        let constant = self.constant.is_some();
        let packing = (answer.packed_bytes > 0).then_some(Packing {
            bytes: answer.packed_bytes as usize,
            layout: answer.filter_layout,
            space: match answer.filter_in_constant != 0 && constant {
                true => Space::Constant,
                false => Space::Global,
            },
        });
        let workspace = Bytes {
            least: answer.workspace_least as usize,
            preferred: answer.workspace_preferred.max(answer.workspace_least) as usize,
        };
        // SAFETY: the row ends it by a zero.
        let note = Some(unsafe { text(answer.note.as_ptr()) }).filter(|note| !note.is_empty());
        let planned = Planned {
            row: self.row,
            problem: query.problem.clone(),
            config: query.config,
            limits: query.limits.clone(),
            state,
            workspace,
            packing,
            note: note.clone(),
        };
        Ok(Plan {
            workspace,
            packing,
            us: (answer.us >= 0.0).then(|| answer.us.max(memory_us(query))),
            note,
            state: Box::new(planned),
        })
    }

    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        let Some(gpu) = device.as_gpu() else {
            return Err(Error::no_gpu(format!(
                "{} is a CUDA kernel",
                self.info.name
            )));
        };
        let planned = plan.state.downcast::<Planned>().ok();
        let planned = planned.filter(|planned| planned.is_of(self.row, query));
        let Some(mut planned) = planned else {
            return Err(variant::not_its_plan(&self.info, query));
        };
        if let Some(prepare) = self.row.functions.prepare {
            let _current = gpu.enter()?;
            // SAFETY: the row's own plan filled the state.
            checked("prepare", unsafe { prepare(planned.state.as_mut_ptr()) })?;
        }
        let in_constant = |packing: Packing| packing.space == Space::Constant;
        let in_constant = planned.packing.is_some_and(in_constant);
        Ok(Box::new(RowPlan {
            functions: &self.row.functions,
            gpu: gpu.clone(),
            constant: self.constant.clone().filter(|_| in_constant),
            planned: *planned,
        }))
    }
}

struct RowPlan {
    functions: &'static ffi::cf_functions,
    gpu: Gpu,
    planned: Planned,
    constant: Option<Arc<ConstantMemory>>,
}

// SAFETY: as `Row`'s plan says, launches keep within these sizes.
unsafe impl Prepared for RowPlan {
    fn workspace(&self) -> Bytes {
        self.planned.workspace
    }

    fn packing(&self) -> Option<Packing> {
        self.planned.packing
    }

    fn note(&self) -> Option<String> {
        self.planned.note.clone()
    }

    fn constant_part(&self) -> Result<Box<dyn ConstantPart>> {
        match (&self.constant, self.planned.packing) {
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
            pack(self.planned.state.as_ptr(), w, packed, stream)
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
        let state = self.planned.state.as_ptr();
        // SAFETY: the caller vouches for the addresses; `stage` outlives the call.
        checked("launch", unsafe { launch(state, &addresses) })
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
        let hopper = archs.split(", ").any(|arch| ["90a", "ptx"].contains(&arch));
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
    fn what_has_no_machine_code_is_translated() {
        // SAFETY: a constant string.
        let archs = unsafe { text(ffi::cf_compiled_archs()) };
        let has = |word| archs.split(", ").any(|arch| arch == word);
        assert_eq!(are_translated(90), has("ptx") && !has("90a"), "{archs}");
        assert_eq!(are_translated(100), has("ptx"), "{archs}");
        assert!(!are_translated(80), "{archs}");
    }

    #[test]
    fn a_driver_that_cannot_translate_is_told_a_way_out() {
        let why = checked("prepare", 222).unwrap_err().to_string();
        assert!(why.contains("UnsupportedPtxVersion"), "{why}");
        assert!(why.contains("CONVFORGE_ARCHS=90a"), "{why}");
        let other = checked("prepare", 2).unwrap_err().to_string();
        assert!(!other.contains("CONVFORGE_ARCHS"), "{other}");
    }

    #[test]
    fn ptx_is_for_hopper_and_newer() {
        // SAFETY: a constant string.
        let archs = unsafe { text(ffi::cf_compiled_archs()) };
        let ptx = archs.split(", ").any(|arch| arch == "ptx");
        let [tma, wgmma] = [ffi::CF_NEEDS_SM90, ffi::CF_NEEDS_SM90A].map(|needs| needs as i32);
        assert_eq!(not_compiled(tma, 120).is_none(), ptx, "{archs}");
        if ptx {
            assert_eq!(not_compiled(wgmma, 90), None);
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
