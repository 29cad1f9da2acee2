//! Memory and streams that the library did not make.

use std::{
    ffi::c_void,
    ptr::{null, null_mut},
};

use convforge::{Device, Error, Operands, RawOperands, View, ViewMut, gpu};

use crate::{conv, devices, problem};

/// An address by which the driver knows memory of the right GPU makes a view; no other does.
pub fn memory_is_checked_and_serves() {
    let [right, other, _] = devices();
    let (here, there) = (
        right.upload(&[1f32; 8]).unwrap(),
        other.upload(&[1f32; 8]).unwrap(),
    );
    let host = [0f32; 8];
    let refused = |address: *const c_void| {
        // SAFETY: nothing is done with the view.
        match unsafe { View::<f32>::from_raw(&right, address, 4) } {
            Err(Error::Memory { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert!(refused(std::ptr::null()).contains("null"));
    assert!(refused(here.as_ptr().wrapping_byte_add(2)).contains("4 bytes"));
    assert!(refused(there.as_ptr()).contains("memory of GPU 1"));
    assert!(refused(host.as_ptr().cast()).contains("cuPointerGetAttribute"));

    let problem = problem();
    let conv = conv(&right);
    let stream = right.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    let x = right.upload(&vec![3f32; problem.x_len()]).unwrap();
    let w = right.upload(&vec![2f32; problem.w_len()]).unwrap();
    let mut y = right.upload(&vec![0f32; problem.y_len()]).unwrap();
    // SAFETY: the buffers outlive the views.
    let (x, y_view) = unsafe {
        (
            View::<f32>::from_raw(&right, x.as_ptr(), x.len()).unwrap(),
            ViewMut::<f32>::from_raw(&right, y.as_mut_ptr(), y.len()).unwrap(),
        )
    };
    let operands = Operands::new(x, &w, y_view);
    conv.run_with(operands, &mut workspace, &stream).unwrap();
    assert!(y.to_vec(&stream).unwrap().iter().all(|y| *y == 6.0));
}

pub fn streams_of_another_context() {
    let [right, other, _] = devices();
    let stream = |device: &Device| device.stream().unwrap();
    let gpu = right.as_gpu().unwrap();
    let (own, strange) = (stream(&right), stream(&other));
    // SAFETY: both streams are alive.
    let (own, strange) = unsafe {
        (
            gpu::Stream::from_raw(gpu, own.raw()),
            gpu::Stream::from_raw(gpu, strange.raw()),
        )
    };
    own.unwrap();
    let error = strange.unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}

/// Without the check the launch would read address 0.
pub fn operands_that_are_null() {
    let problem = problem();
    let [right, ..] = devices();
    let conv = conv(&right);
    let stream = right.stream().unwrap();
    let mut workspace = conv.workspace(&stream).unwrap();
    let x = right.alloc::<f32>(problem.x_len()).unwrap();
    let w = right.alloc::<f32>(problem.w_len()).unwrap();
    let mut y = right.alloc::<f32>(problem.y_len()).unwrap();
    let all = RawOperands::new(x.as_ptr(), w.as_ptr(), y.as_mut_ptr());
    let without = |lose: fn(&mut RawOperands)| {
        let mut operands = all;
        lose(&mut operands);
        operands
    };
    for (name, operands) in [
        ("input", without(|all| all.x = null())),
        ("filter", without(|all| all.w = null())),
        ("output", without(|all| all.y = null_mut())),
    ] {
        // SAFETY: what is not null is as large as the problem says.
        let error = unsafe { conv.run_raw(&operands, &mut workspace, &stream) }.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains(name) && text.contains("null address"),
            "{text}"
        );
    }
}
