//! What the types promise to be, whatever the features: values that move between threads, that can be
//! told apart and shown.

use std::{
    collections::HashSet,
    error::Error as _,
    fmt::Debug,
    hash::Hash,
    io,
    panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe},
};

use convforge::{
    Buffer, Conv, Device, Element, Epilogue, Error, HostCopies, Limits, Mark, Operands, Packed,
    Pick, Pipeline, Problem, RawOperands, Shape, Stream, View, ViewMut, Workspace, chain,
    pipeline::{Options, Timing},
    policy::Policy,
    variant::{Args, Info, Plan},
};

fn sent<T: Send + Debug>() {}
fn shared<T: Send + Sync + Debug>() {}
fn identified<T: Eq + Hash + Clone + Debug>() {}

/// Documented in the crate's notes on threads.
#[test]
fn threads() {
    shared::<Problem>();
    shared::<Shape>();
    shared::<Pick>();
    shared::<Policy>();
    shared::<Limits>();
    shared::<Info>();
    shared::<Plan>();
    shared::<Device>();
    shared::<Stream>();
    shared::<Mark>();
    shared::<Buffer<f32>>();
    shared::<View<f32>>();
    shared::<ViewMut<f32>>();
    shared::<Operands<f32>>();
    shared::<Packed>();
    shared::<Conv>();
    shared::<Options>();
    shared::<Timing>();
    shared::<Error>();
    // One thread at a time.
    sent::<Workspace>();
    sent::<Pipeline<f32>>();
    fn shown<T: Debug>() {}
    shown::<Args>();
    shown::<RawOperands>();
    shown::<HostCopies>();
}

#[cfg(feature = "cuda")]
#[test]
fn threads_of_a_gpu() {
    use convforge::gpu::{
        DeviceBuffer, Entered, Event, Gpu, Graph, Pending, PinnedBuffer, ProfilerRange, Stream,
    };
    use convforge::kernels::{CArgs, CProblem};
    shared::<Gpu>();
    shared::<Stream>();
    shared::<Event>();
    shared::<DeviceBuffer<f32>>();
    shared::<PinnedBuffer<f32>>();
    shared::<Pending<PinnedBuffer<f32>>>();
    sent::<Graph>();
    fn shown<T: Debug>() {}
    shown::<CArgs>();
    shown::<CProblem>();
    shown::<Entered>();
    shown::<ProfilerRange>();
}

#[test]
fn a_library_error_can_be_carried_by_any_other() {
    fn carried<T: std::error::Error + Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}
    carried::<Error>();
    let inner = Error::Unavailable("luck".to_owned());
    let error = Error::Chunk {
        failed: 1..2,
        chunks: 4,
        images: 10..20,
        source: Box::new(inner),
    };
    assert_eq!(error.to_string(), "chunk 1 of 4 (images 10 to 19)");
    assert_eq!(error.source().unwrap().to_string(), "there is no luck");
    assert_eq!(
        chain(&error),
        "chunk 1 of 4 (images 10 to 19): there is no luck"
    );
    let missing = Error::Library {
        library: "cuBLAS",
        why: "install it".to_owned(),
        source: Some(AssertUnwindSafe(io::Error::other("no such file").into())),
    };
    assert_eq!(missing.to_string(), "cuBLAS could not be used: install it");
    assert!(missing.source().unwrap().is::<io::Error>());
}

#[test]
fn problems_are_keys() {
    identified::<Problem>();
    identified::<Shape>();
    identified::<Epilogue>();
    identified::<Device>();
    identified::<Limits>();
    identified::<Pick>();
    let texts = [
        "ic8ih8oc8kh3",
        "ic8ih8oc8kh3+bias",
        "ic8ih8oc8kh3+relu",
        "ic8ih8oc8kh3+scale=0",
        "ic8ih8oc8kh3+scale=-0",
        "ic8ih8oc8kh3+pool=2",
    ];
    let problems = || texts.iter().map(|text| text.parse::<Problem>().unwrap());
    // Equal problems print alike, and others do not.
    let printed: HashSet<String> = problems().map(|problem| problem.to_string()).collect();
    let set: HashSet<Problem> = problems().chain(problems()).collect();
    assert_eq!((set.len(), printed.len()), (texts.len(), texts.len()));
    let no_number = Epilogue {
        scale: f32::NAN,
        ..Epilogue::default()
    };
    assert_eq!(no_number, no_number);
}

/// Nobody else can say how large an element is.
#[test]
fn elements_are_as_large_as_their_storage() {
    fn check<T: Element>() {
        assert_eq!(size_of::<T>(), T::STORAGE.bytes());
    }
    check::<f32>();
    check::<half::f16>();
    check::<half::bf16>();
}
