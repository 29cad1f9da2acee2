use std::{
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::*;
use crate::{
    Device, Error, Operands, Problem,
    variant::{Args, Configured, Info, Kind, Packing, Plan, Prepared, Query, Variant},
};

/// A filter of one tap, packed as it is, in arrangements that differ by name alone.
struct Copier {
    info: Info,
    packs: Arc<AtomicUsize>,
}

impl Copier {
    fn new() -> Arc<Self> {
        let mut info = Info::new("copier", "copier", "copies", "here", Kind::Cpu);
        info.configs = (0..8).map(|layout| format!("layout={layout}")).collect();
        let packs = Arc::default();
        Arc::new(Copier { info, packs })
    }

    fn packs(&self) -> usize {
        self.packs.load(Ordering::Relaxed)
    }
}

// SAFETY: it packs one f32 into the four bytes it asks for, and reads and writes one of each operand.
unsafe impl Variant for Copier {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        let packing = Packing::new(4, query.config as u64);
        Ok(Plan::default().packing(packing))
    }

    fn prepare(&self, _: &Device, _: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        let packs = self.packs.clone();
        let packing = plan.packing;
        Ok(Box::new(Ready { packs, packing }))
    }
}

struct Ready {
    packs: Arc<AtomicUsize>,
    packing: Option<Packing>,
}

// SAFETY: as above.
unsafe impl Prepared for Ready {
    fn packing(&self) -> Option<Packing> {
        self.packing
    }

    unsafe fn pack(&self, w: *const c_void, packed: *mut c_void, _: *mut c_void) -> Result<()> {
        self.packs.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(10));
        // SAFETY: one f32 each.
        unsafe { packed.cast::<f32>().write(w.cast::<f32>().read()) };
        Ok(())
    }

    unsafe fn launch(&self, args: Args) -> Result<()> {
        // SAFETY: one f32 each.
        unsafe {
            let product = *args.x.cast::<f32>() * *args.packed.cast::<f32>();
            args.y.cast::<f32>().write(product);
        }
        Ok(())
    }
}

fn conv(variant: &Arc<Copier>, images: usize, layout: usize) -> Conv {
    let problem: Problem = format!("mb{images}ic1ih1oc1kh1+align=4").parse().unwrap();
    let configured = Configured {
        variant: variant.clone(),
        config: layout,
    };
    Conv::with_variant(&Device::cpu(), &problem, configured).unwrap()
}

#[test]
fn batches_share_a_form_and_arrangements_do_not() {
    let (variant, filter) = (Copier::new(), Filter::new());
    let stream = Device::cpu().stream().unwrap();
    let w = [3.0_f32];
    let form = |images, layout| {
        let conv = conv(&variant, images, layout);
        let form = filter.packed(&conv, &w[..], &stream).unwrap().unwrap();
        if images == 1 {
            let mut y = [0.0_f32];
            let operands = Operands::new(&[2.0_f32][..], &w[..], &mut y[..]).packed(&*form);
            let mut workspace = conv.workspace(&stream).unwrap();
            conv.run_with(operands, &mut workspace, &stream).unwrap();
            assert_eq!(y, [6.0]);
        }
        form
    };
    let one = form(1, 0);
    assert!(Arc::ptr_eq(&one, &form(64, 0)));
    assert_eq!((variant.packs(), filter.bytes()), (1, 4));
    assert!(!Arc::ptr_eq(&one, &form(1, 1)));
    assert!(Arc::ptr_eq(&one, &form(2, 0)));
    assert_eq!((variant.packs(), filter.bytes()), (2, 8));
}

#[test]
fn a_filter_at_an_address_has_the_same_forms() {
    let (variant, filter) = (Copier::new(), Filter::new());
    let stream = Device::cpu().stream().unwrap();
    let conv = conv(&variant, 1, 0);
    let w = [3.0_f32];
    let packed = |address: &f32| {
        let address = std::ptr::from_ref(address).cast();
        // SAFETY: one f32, there until it is packed.
        unsafe { filter.packed_raw(&conv, address, &stream) }
    };
    let first = packed(&w[0]).unwrap().unwrap();
    // SAFETY: one f32, which the form holds.
    assert_eq!(unsafe { *first.as_ptr().cast::<f32>() }, 3.0);
    let again = packed(&w[0]).unwrap().unwrap();
    let of_a_view = filter.packed(&conv, &w[..], &stream).unwrap().unwrap();
    assert!(Arc::ptr_eq(&first, &again) && Arc::ptr_eq(&first, &of_a_view));
    assert_eq!(variant.packs(), 1);

    filter.clear();
    // SAFETY: nothing is read there.
    let refused = unsafe { filter.packed_raw(&conv, std::ptr::null(), &stream) };
    assert!(matches!(refused, Err(Error::Memory { .. })));
    assert_eq!(filter.bytes(), 0);
}

#[test]
fn the_form_leaves_that_was_not_used_the_longest() {
    let (variant, filter) = (Copier::new(), Filter::new());
    let stream = Device::cpu().stream().unwrap();
    let form = |layout| {
        let conv = conv(&variant, 1, layout);
        filter.packed(&conv, &[1.0_f32][..], &stream).unwrap();
        (variant.packs(), filter.bytes())
    };
    for layout in 0..Filter::MOST {
        assert_eq!(form(layout), (layout + 1, 4 * (layout + 1)));
    }
    assert_eq!(form(0), (Filter::MOST, 4 * Filter::MOST));
    // Takes the place of form 1.
    assert_eq!(form(7), (Filter::MOST + 1, 4 * Filter::MOST));
    assert_eq!(form(0), (Filter::MOST + 1, 4 * Filter::MOST));
    assert_eq!(form(1), (Filter::MOST + 2, 4 * Filter::MOST));
}

#[test]
fn threads_pack_once() {
    let (variant, filter, together) = (Copier::new(), Filter::new(), Barrier::new(8));
    thread::scope(|scope| {
        for images in 1..9 {
            let (variant, filter, together) = (&variant, &filter, &together);
            scope.spawn(move || {
                let stream = Device::cpu().stream().unwrap();
                let conv = conv(variant, images, 0);
                together.wait();
                filter.packed(&conv, &[1.0_f32][..], &stream).unwrap();
            });
        }
    });
    assert_eq!(variant.packs(), 1);
}

#[test]
fn changed_weights_are_packed_again() {
    let (variant, filter) = (Copier::new(), Filter::new());
    let stream = Device::cpu().stream().unwrap();
    let conv = conv(&variant, 1, 0);
    let first = filter.packed(&conv, &[1.0_f32][..], &stream).unwrap();
    filter.clear();
    assert_eq!(filter.bytes(), 0);
    let second = filter.packed(&conv, &[2.0_f32][..], &stream).unwrap();
    let value = |form: Option<Arc<Packed>>| {
        let form = form.unwrap();
        // SAFETY: one f32, which the form holds.
        unsafe { *form.as_ptr().cast::<f32>() }
    };
    assert_eq!((value(first), value(second)), (1.0, 2.0));
}

#[test]
fn an_error_leaves_no_form() {
    let (variant, filter) = (Copier::new(), Filter::new());
    let stream = Device::cpu().stream().unwrap();
    let conv = conv(&variant, 1, 0);
    assert!(filter.packed(&conv, &[1.0_f32; 2][..], &stream).is_err());
    assert_eq!(filter.bytes(), 0);
    assert!(filter.packed(&conv, &[1.0_f32][..], &stream).is_ok());
}

#[test]
fn a_filter_used_as_it_is_has_no_form() {
    let filter = Filter::new();
    let stream = Device::cpu().stream().unwrap();
    let problem: Problem = "mb1ic1ih1oc1kh1+align=4".parse().unwrap();
    let named = "cpu_direct".parse().unwrap();
    let conv = Conv::new(&Device::cpu(), &problem, &named).unwrap();
    let form = filter.packed(&conv, &[1.0_f32][..], &stream).unwrap();
    assert!(form.is_none());
    // One that does not fit is refused all the same.
    assert!(filter.packed(&conv, &[1.0_f32; 2][..], &stream).is_err());
}
