//! Whose memory it is that a filter is packed from or to, or that a workspace is made of; and what a
//! workspace holds.

use std::{
    ffi::c_void,
    ptr::{null, null_mut},
    sync::Arc,
};

use convforge::{
    Conv, Device, Error, Result, Workspace,
    variant::{Args, Bytes, Info, Kind, Packing, Plan, Prepared, Query, Variant},
};

use crate::{devices, driver, problem};

/// Packs a filter into so many bytes, which it does not touch.
fn packing() -> Packing {
    Packing::new(256, 1)
}

struct Packs(Info);

// SAFETY: what it readies writes nothing.
unsafe impl Variant for Packs {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default().packing(packing()))
    }

    fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Ready))
    }
}

struct Ready;

// SAFETY: as above.
unsafe impl Prepared for Ready {
    fn packing(&self) -> Option<Packing> {
        Some(packing())
    }

    unsafe fn launch(&self, _: Args) -> Result<()> {
        Ok(())
    }
}

fn refused<T>(answer: Result<T>, operand: &str, reason: &str) {
    match answer {
        Err(error @ Error::Memory { .. }) => {
            let text = convforge::chain(&error);
            assert!(text.starts_with(operand) && text.contains(reason), "{text}");
        }
        Err(other) => panic!("{operand}: {other}"),
        Ok(_) => panic!("{operand}: taken, though {reason}"),
    }
}

pub fn set_up_asks_whose_memory_it_is() {
    let [here, there, cpu] = devices();
    let ready = |device, kind| {
        let packs = Packs(Info::new("packs", "test", "nothing", "tests", kind));
        Conv::with_variant(device, &problem(), Arc::new(packs)).unwrap()
    };
    let (conv, on_cpu) = (ready(&here, Kind::Kernel), ready(&cpu, Kind::Cpu));
    let (stream, cpu_stream) = (here.stream().unwrap(), cpu.stream().unwrap());
    let [mut near, mut far] = [&here, &there].map(|device| device.alloc::<u8>(4096).unwrap());
    let mut host = cpu.alloc::<u8>(4096).unwrap();
    let w = near.as_ptr();
    let packed = near.as_mut_ptr().wrapping_byte_add(2048);

    let wrong: [(*mut c_void, &str); 3] = [
        (null_mut(), "null address"),
        (far.as_mut_ptr(), "memory of GPU 1"),
        (host.as_mut_ptr(), "cuPointerGetAttribute"),
    ];
    for (address, reason) in wrong {
        // SAFETY: nothing is done with what is refused.
        unsafe {
            refused(conv.pack_raw(address, &stream), "the filter (w)", reason);
            let answer = conv.pack_into(address, packed, &stream);
            refused(answer, "the filter (w)", reason);
            let answer = conv.pack_into(w, address, &stream);
            refused(answer, "the packed filter", reason);
            let answer = Workspace::from_raw(&stream, address, 256);
            refused(answer, "the workspace", reason);
        }
    }
    // SAFETY: the memory is there until the end, and nobody reads it.
    unsafe {
        assert!(conv.pack_raw(w, &stream).unwrap().is_some());
        conv.pack_into(w, packed, &stream).unwrap();
        Workspace::from_raw(&stream, packed, 256).unwrap();
        Workspace::from_raw(&stream, null_mut(), 0).unwrap();

        refused(
            on_cpu.pack_raw(null(), &cpu_stream),
            "the filter (w)",
            "null",
        );
        let answer = Workspace::from_raw(&cpu_stream, null_mut(), 256);
        refused(answer, "the workspace", "null address");
        Workspace::from_raw(&cpu_stream, host.as_mut_ptr(), 256).unwrap();
    }
}

/// Asks for so many bytes of workspace, and uses none.
struct Needs(Info, usize);

// SAFETY: what it readies writes nothing.
unsafe impl Variant for Needs {
    fn info(&self) -> &Info {
        &self.0
    }

    fn plan(&self, _: &Query) -> Result<Plan, String> {
        Ok(Plan::default())
    }

    fn prepare(&self, _: &Device, _: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Needing(self.1)))
    }
}

struct Needing(usize);

// SAFETY: as above.
unsafe impl Prepared for Needing {
    fn workspace(&self) -> Bytes {
        Bytes {
            least: self.0,
            preferred: self.0,
        }
    }

    unsafe fn launch(&self, _: Args) -> Result<()> {
        Ok(())
    }
}

/// To grow it gives back its memory first. Where there is no more, the convolutions that it was reserved
/// for still run.
pub fn what_a_workspace_held_stays() {
    let [device, ..] = devices();
    let problem = problem();
    let conv = |bytes| {
        let info = Info::new("needs", "test", "nothing", "tests", Kind::Kernel);
        Conv::with_variant(&device, &problem, Arc::new(Needs(info, bytes))).unwrap()
    };
    // More than the device has.
    let (small, huge) = (conv(4096), conv(2 << 30));
    let stream = device.stream().unwrap();
    let mut workspace = small.workspace(&stream).unwrap();
    let allocations = *driver("fake_allocations");
    let error = workspace.reserve(&huge, &stream).unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { asked, .. } if asked == 2 << 30),
        "{error}"
    );
    assert_eq!(workspace.bytes(), 4096);
    assert_eq!(*driver("fake_allocations"), allocations + 1);
    let [x, w] = [problem.x_len(), problem.w_len()].map(|len| device.alloc::<f32>(len).unwrap());
    let mut y = device.alloc::<f32>(problem.y_len()).unwrap();
    small.run(&x, &w, &mut y, &mut workspace, &stream).unwrap();
}
