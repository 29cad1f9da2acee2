//! Whose memory it is that a filter is packed from or to, or that a workspace is made of.

use std::{
    ffi::c_void,
    ptr::{null, null_mut},
    sync::Arc,
};

use convforge::{
    Conv, Device, Error, Result, Workspace,
    variant::{Args, Info, Kind, Packing, Plan, Prepared, Query, Variant},
};

use crate::{devices, problem};

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
        Conv::with_variant(device, &problem(), Arc::new(packs), 0).unwrap()
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
