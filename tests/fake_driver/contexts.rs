//! Which context is current while guards live.

use std::env;

use crate::devices;

/// Calls a function of the driver's that takes one number or address.
fn call(name: &str, argument: usize) {
    let path = env::var_os("CONVFORGE_CUDA_LIB").unwrap();
    // SAFETY: the driver is loaded already; its functions named here take one word.
    unsafe {
        let library = libloading::Library::new(path).unwrap();
        let function = library.get::<unsafe extern "C" fn(usize) -> i32>(name);
        assert_eq!(function.unwrap()(argument), 0);
    }
}

/// The ordinal of the device whose context is current on this thread. The fake driver's contexts are
/// numbered from 1 on.
fn current() -> Option<usize> {
    let mut context = 0usize;
    call("cuCtxGetCurrent", (&raw mut context).expose_provenance());
    context.checked_sub(1)
}

/// Sets the context of the device of this ordinal in the place of the current one.
fn set(ordinal: usize) {
    let mut popped = 0usize;
    call("cuCtxPopCurrent_v2", (&raw mut popped).expose_provenance());
    call("cuCtxPushCurrent_v2", ordinal + 1);
}

pub fn guards_end_in_any_order() {
    let [a, b, _] = devices();
    let (a, b) = (a.as_gpu().unwrap(), b.as_gpu().unwrap());
    assert_eq!(current(), None);
    // As scopes do.
    let first = a.enter().unwrap();
    let second = b.enter().unwrap();
    assert_eq!(current(), Some(1));
    drop(second);
    assert_eq!(current(), Some(0));
    drop(first);
    assert_eq!(current(), None);
    // The other way round.
    let first = a.enter().unwrap();
    let second = b.enter().unwrap();
    drop(first);
    assert_eq!(current(), Some(1), "another device's guard lives");
    drop(second);
    assert_eq!(current(), None, "a context was left behind");
}

/// As a library does that sets a device and leaves it: what it set goes with the guard.
pub fn a_context_that_somebody_set_goes_with_the_guard() {
    let [a, b, _] = devices();
    let outer = b.as_gpu().unwrap().enter().unwrap();
    let guard = a.as_gpu().unwrap().enter().unwrap();
    set(1);
    assert_eq!(current(), Some(1));
    drop(guard);
    assert_eq!(current(), Some(1), "the outer guard lives");
    drop(outer);
    assert_eq!(current(), None, "a context was left behind");
}

/// The latest guard takes off what is current alone, though its context stands further down as well.
pub fn a_context_that_stands_further_down_is_left() {
    let [a, b, _] = devices();
    let (a, b) = (a.as_gpu().unwrap(), b.as_gpu().unwrap());
    let outer = a.enter().unwrap();
    let middle = b.enter().unwrap();
    let inner = a.enter().unwrap();
    set(1);
    drop(inner);
    assert_eq!(current(), Some(1), "the middle guard lives");
    drop(middle);
    assert_eq!(current(), Some(0), "the outer guard lives");
    drop(outer);
    assert_eq!(current(), None, "a context was left behind");
}
