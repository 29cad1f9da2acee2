//! A variant that packs its filter, into memory of the caller's or into constant memory of its own,
//! and what the checker says when it does that wrong.

use std::{
    any::{Any, TypeId},
    ffi::c_void,
    ptr::NonNull,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use convforge::{
    Device, Error, Layout, Problem, Result, Storage, Stream,
    variant::{Args, Bytes, ConstantPart, Info, Packing, Plan, Prepared, Query, Space, Variant},
};
use convforge_check::{Options, Outcome, case};
use libtest_mimic::{Failed, Trial};

use crate::{info, parse};

/// 64 weights: packed, they fill a part of constant memory.
const PROBLEM: &str = "mb3ic1ih2oc64kh1";

pub fn trials() -> Vec<Trial> {
    use Fault::*;
    let all = [Nothing, Differs, Changed, WrittenBehind, WrittenBefore];
    let global = all.map(|fault| (fault, Space::Global, 0));
    let constant = [all.as_slice(), &[ReadBehind, ReadBefore]].concat();
    let constant = constant
        .into_iter()
        .map(|fault| (fault, Space::Constant, 3));
    let mut trials: Vec<Trial> = (global.into_iter().chain(constant))
        .map(|(fault, space, parts)| {
            Trial::test(format!("packed: {fault:?} in {space:?}"), move || {
                caught(fault, space, parts)
            })
        })
        .collect();
    trials.push(Trial::test("packed: little constant memory", little_room));
    trials
}

/// What the check says of a packer with this fault.
fn outcome(fault: Fault, space: Space, parts: usize) -> Outcome {
    let packer = Packer {
        fault,
        space,
        memory: Arc::new(Memory::new(parts)),
        ..Packer::new("packer")
    };
    let variant = Arc::new(packer).into();
    let problem = parse(PROBLEM);
    case(&Device::cpu(), &variant, &problem, 1, &Options::default())
}

fn caught(fault: Fault, space: Space, parts: usize) -> Result<(), Failed> {
    match outcome(fault, space, parts) {
        Outcome::Passed(_) if fault == Fault::Nothing => Ok(()),
        Outcome::Failed(why) if why.contains("packed filter") => Ok(()),
        // Poison that was used.
        Outcome::Failed(why)
            if matches!(fault, Fault::ReadBehind | Fault::ReadBefore) && why.contains("NaN") =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}").into()),
    }
}

/// Without room for neighbours a filter is checked alone; without any it cannot be tried.
fn little_room() -> Result<(), Failed> {
    for parts in [1, 2] {
        caught(Fault::Nothing, Space::Constant, parts)?;
        caught(Fault::Changed, Space::Constant, parts)?;
    }
    match outcome(Fault::Nothing, Space::Constant, 0) {
        Outcome::Skipped(why) if why.contains("constant memory") => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// Packing twice gives two different things.
    Differs,
    /// A launch writes to the packed filter.
    Changed,
    WrittenBehind,
    WrittenBefore,
    ReadBehind,
    ReadBefore,
}

/// Packs its filter back to front, wants a workspace and a handle, refuses epilogues; f32, one channel
/// in, a filter of one tap: y = x * w.
pub struct Packer {
    info: Info,
    fault: Fault,
    space: Space,
    memory: Arc<Memory>,
}

impl Packer {
    pub fn new(name: &str) -> Self {
        Packer {
            info: info(name),
            fault: Fault::Nothing,
            space: Space::Global,
            memory: Arc::new(Memory::new(0)),
        }
    }
}

/// What a library would have for each stream.
struct Handle;

const WORKSPACE: Bytes = Bytes {
    least: 128,
    preferred: 1000,
};

// SAFETY: where a fault writes elsewhere, it is to fences of the checker and other parts of the same
// memory.
unsafe impl Variant for Packer {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let problem = query.problem;
        if !problem.epilogue().is_identity() {
            return Err("it fuses no epilogue".to_owned());
        }
        if problem.reduction() != 1 || problem.groups() > 1 || problem.storage() != Storage::F32 {
            return Err("it does one product per output".to_owned());
        }
        if problem.layout() != Layout::Nchw
            || [problem.p(), problem.q()] != [problem.h(), problem.w()]
        {
            return Err("its output is as large as its input".to_owned());
        }
        let packing = Packing::new(4 * problem.k(), 0).space(self.space);
        Ok(Plan::default().workspace(WORKSPACE).packing(packing))
    }

    fn prepare(&self, _: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Ready {
            problem: query.problem.clone(),
            packing: plan.packing,
            fault: self.fault,
            memory: self.memory.clone(),
            packs: AtomicUsize::new(0),
        }))
    }
}

struct Ready {
    problem: Problem,
    packing: Option<Packing>,
    fault: Fault,
    memory: Arc<Memory>,
    packs: AtomicUsize,
}

// SAFETY: as above.
unsafe impl Prepared for Ready {
    fn workspace(&self) -> Bytes {
        WORKSPACE
    }

    fn packing(&self) -> Option<Packing> {
        self.packing
    }

    fn handle_type(&self) -> Option<TypeId> {
        Some(TypeId::of::<Handle>())
    }

    fn handle(&self, _: &Stream) -> Result<Box<dyn Any + Send>> {
        Ok(Box::new(Handle))
    }

    fn constant_part(&self) -> Result<Box<dyn ConstantPart>> {
        let bytes = 4 * self.problem.k();
        let index = self.memory.take(bytes)?;
        let memory = self.memory.clone();
        Ok(Box::new(Part { memory, index }))
    }

    unsafe fn pack(&self, w: *const c_void, packed: *mut c_void, _: *mut c_void) -> Result<()> {
        let last = self.problem.k() - 1;
        let (w, packed) = (w.cast::<f32>(), packed.cast::<f32>());
        for i in 0..=last {
            // SAFETY: a filter of so many f32, and as many bytes for it.
            unsafe { packed.add(i).write(w.add(last - i).read_unaligned()) };
        }
        if self.fault == Fault::Differs {
            let count = self.packs.fetch_add(1, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { packed.write(count as f32) };
        }
        Ok(())
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        if !args.handle.is_some_and(|handle| handle.is::<Handle>()) {
            return Err(Error::Unavailable("handle of this variant's".to_owned()));
        }
        let (k, pixels) = (self.problem.k(), self.problem.h() * self.problem.w());
        let packed = args.packed.cast::<f32>().cast_mut();
        // SAFETY: the sizes are those asked for above. What lies around the packed filter is the
        // checker's, or another part of the same memory.
        unsafe {
            args.workspace
                .cast::<u8>()
                .write_bytes(0, args.workspace_bytes);
            match self.fault {
                Fault::Changed => *packed += 1.0,
                Fault::WrittenBehind => *packed.add(k) = 7.0,
                Fault::WrittenBefore => *packed.sub(1) = 7.0,
                _ => {}
            }
            let strange = match self.fault {
                Fault::ReadBehind => *packed.add(k),
                Fault::ReadBefore => *packed.sub(1),
                _ => 0.0,
            };
            for i in 0..self.problem.y_len() {
                let (image, filter, pixel) = (i / pixels / k, i / pixels % k, i % pixels);
                let x = *args.x.cast::<f32>().add(image * pixels + pixel);
                // Nothing, unless it is no number.
                let w = *packed.add(k - 1 - filter) + 0.0 * strange;
                *args.y.cast::<f32>().add(i) = x * w;
            }
        }
        Ok(())
    }
}

/// Bytes of a part.
const PART: usize = 256;

/// Constant memory of so many parts, with one more on each side that nobody gets.
struct Memory {
    memory: NonNull<[u8]>,
    taken: Mutex<Vec<bool>>,
}

// SAFETY: it owns its bytes; who has a part has it alone.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(parts: usize) -> Self {
        let bytes = vec![0u128; (parts + 2) * PART / 16].into_boxed_slice();
        let memory = NonNull::from(Box::leak(bytes));
        let len = memory.len() * 16;
        Memory {
            memory: NonNull::slice_from_raw_parts(memory.cast(), len),
            taken: Mutex::new(vec![false; parts]),
        }
    }

    fn take(&self, bytes: usize) -> Result<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let free = taken.iter().position(|taken| !taken);
        let index = free.filter(|_| bytes <= PART);
        let index = index.ok_or_else(|| Error::ConstantMemory {
            asked: bytes,
            free: taken.iter().filter(|taken| !**taken).count() * PART,
            total: taken.len() * PART,
        })?;
        taken[index] = true;
        Ok(index)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let blocks = self.memory.len() / 16;
        let blocks = NonNull::slice_from_raw_parts(self.memory.cast::<u128>(), blocks);
        // SAFETY: it was leaked in `new`.
        drop(unsafe { Box::from_raw(blocks.as_ptr()) });
    }
}

struct Part {
    memory: Arc<Memory>,
    index: usize,
}

// SAFETY: each part has an index of its own, `PART` bytes apart, and `Memory::take` gives out no
// more of them than that; here work is done when it is queued.
unsafe impl ConstantPart for Part {
    fn address(&self) -> *mut c_void {
        let begin = self.memory.memory.as_ptr().cast::<c_void>();
        begin.wrapping_byte_add((self.index + 1) * PART)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut taken = self
            .memory
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        taken[self.index] = false;
    }
}
