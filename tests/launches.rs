//! A run only enqueues: for every configuration of every variant, on a problem of its own range, a run
//! allocates nothing on the heap and makes no call of the driver's but those that enqueue its kernels;
//! also with pooling, which most rows leave to a pass behind them, where it is taken. Of a handwritten
//! row it is the first run of its plan; of cuBLAS and cuDNN, which load their kernels then, the second.
//! What a process loaded stays loaded, so each trial has a process of its own.
//!
//! Calls of the driver's are counted by CUPTI, which comes with CUDA's toolkits; its folder must be
//! on the loader's path. Of cuBLAS and cuDNN no more is asked than that they neither allocate nor
//! wait: some of cuDNN's engines set their kernels' attributes in every run.

#[cfg(not(feature = "cuda"))]
fn main() {
    println!("built without the feature `cuda`: nothing to test");
}

#[cfg(feature = "cuda")]
mod common;
#[cfg(feature = "cuda")]
#[path = "common/recording.rs"]
mod recording;

#[cfg(feature = "cuda")]
fn main() {
    cases::run();
}

#[cfg(feature = "cuda")]
mod cases {
    use std::{
        alloc::{GlobalAlloc, Layout, System},
        cell::{Cell, RefCell},
        env,
        ffi::{CStr, c_void},
        process::Command,
        ptr,
    };

    use convforge::{
        Buffer, Conv, Device, Element, Error, Operands, Stream, Workspace,
        variant::{Configured, Kind},
    };
    use convforge_check::Domain;
    use cudarc::cupti::sys::{self, CUpti_ApiCallbackSite, CUpti_CallbackDomain, CUptiResult};
    use libtest_mimic::{Arguments, Completion, Trial};

    use super::{
        common::{
            self, Answer,
            drawn::{self, Wanted},
            with_element,
        },
        recording::Recording,
    };

    /// Nothing but the host's memory: which context is current, and addresses put into the copy of a
    /// tensor map that a kernel is given.
    const HARMLESS: [&str; 2] = ["cuCtxGetCurrent", "cuTensorMapReplaceAddress"];

    const PLAIN: &str = "only enqueues";
    const POOLING: &str = "only enqueues, pooling too";

    /// Set for the process of one trial.
    const ALONE: &str = "CONVFORGE_TRIAL_ALONE";

    pub fn run() {
        let mut arguments = Arguments::from_args();
        // Each holds a context on the GPU.
        let threads = arguments.test_threads.unwrap_or(8);
        arguments.test_threads = Some(threads.min(8));
        let gpu = Device::gpu(0).map_err(|why| convforge::chain(&why));
        let trials = |what, test| common::trials(&gpu, what, test);
        let all: Vec<Trial> = if env::var_os(ALONE).is_some() {
            trials(PLAIN, |device, configured| {
                only_enqueues(device, configured, Wanted::ZEROS)
            })
            .chain(trials(POOLING, pooling_too))
            .collect()
        } else {
            trials(PLAIN, |_, configured| alone(configured, PLAIN))
                .chain(trials(POOLING, |_, configured| alone(configured, POOLING)))
                .collect()
        };
        libtest_mimic::run(&arguments, all).exit();
    }

    /// The trial in a process of its own.
    fn alone(configured: &Configured, what: &str) -> Answer {
        let name = format!("{} {what}", configured.name());
        let mut process = Command::new(env::current_exe()?);
        process.args(["--exact", &name]).env(ALONE, "1");
        let output = process.output()?;
        let told = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{told}{}", String::from_utf8_lossy(&output.stderr)).into());
        }
        if told.contains("1 passed; 0 failed; 0 ignored;") {
            return Ok(Completion::Completed);
        }
        match told.split_once("... ignored") {
            Some((_, why)) => {
                let why = why.lines().next().unwrap_or_default();
                Ok(Completion::ignored_with(why.trim_start_matches([',', ' '])))
            }
            None => Err(format!("not one trial: {told}").into()),
        }
    }

    fn pooling_too(device: &Device, configured: &Configured) -> Answer {
        let limits = device.limits();
        let why = drawn::pools_nothing(Domain::new(configured, &limits));
        match why {
            Some(why) => Ok(Completion::ignored_with(why)),
            None => only_enqueues(device, configured, Wanted::POOLED),
        }
    }

    fn only_enqueues(device: &Device, configured: &Configured, wanted: Wanted) -> Answer {
        let conv = match drawn::ready(device, configured, wanted) {
            Ok(conv) => conv,
            Err(answer) => return answer,
        };
        with_element!(conv.problem().storage(), counted(&conv))
    }

    fn counted<T: Element>(conv: &Conv) -> Answer {
        let (device, problem) = (conv.device(), conv.problem());
        let stream = device.stream()?;
        let Some(queue) = stream.as_gpu() else {
            return Ok(Completion::ignored_with("the CPU enqueues nothing"));
        };
        // SAFETY: it only looks for the library.
        if !unsafe { sys::is_culib_present() } {
            let why = "no libcupti on the loader's path";
            return match common::gpu_is_required() {
                true => Err(why.into()),
                false => Ok(Completion::ignored_with(why)),
            };
        }
        // Zeros, so that the output is zeros and nothing else.
        let x = device.upload(&vec![T::zeroed(); problem.x_len()])?;
        let w = device.upload(&vec![T::zeroed(); problem.w_len()])?;
        let bias = device.upload(&vec![0f32; problem.bias_len()])?;
        let packed = conv.pack(&w, &stream)?;
        let mut y = device.upload(&common::poison::<T>(problem.y_len()))?;
        let mut workspace = conv.workspace(&stream)?;
        let run = |y: &mut Buffer<T>, workspace: &mut Workspace| {
            let mut operands = Operands::new(&x, &w, y);
            if problem.epilogue().bias {
                operands = operands.bias(&bias);
            }
            conv.run_with(operands.packed(packed.as_ref()), workspace, &stream)
        };
        stream.synchronize()?;
        // As in a program that keeps the context current; where it is not, a run enters and leaves it.
        let _current = queue.gpu().enter()?;
        // Libraries load their kernels in the first run; what a handwritten row launches is loaded.
        if conv.variant().info().kind != Kind::Kernel {
            run(&mut y, &mut workspace)?;
            stream.synchronize()?;
        }

        let calls = Calls::subscribe()?;
        let allocations = ALLOCATIONS.get();
        let done = run(&mut y, &mut workspace);
        let allocations = ALLOCATIONS.get() - allocations;
        let calls = calls.made()?;
        done?;
        let zeros = vec![0; problem.y_len() * size_of::<T>()];
        common::ensure(bytes(&y, &stream)? == zeros, "zeros give something else")?;
        let recording = Recording::of(queue, || run(&mut y, &mut workspace));
        let recording = recording.map_err(|why| convforge::chain(&*why))?;
        let enqueued = recording.len();

        let told = || format!("{}: {calls:?}", conv.name());
        if conv.variant().info().kind == Kind::Kernel {
            let (enqueueing, others): (Vec<&String>, _) =
                calls.iter().partition(|call| enqueues(call));
            let only = others.iter().all(|call| HARMLESS.contains(&call.as_str()));
            common::ensure(only, &format!("more than enqueueing: {}", told()))?;
            let as_many = enqueueing.len() == enqueued && enqueued > 0;
            common::ensure(as_many, &format!("{enqueued} recorded: {}", told()))?;
        }
        let heavy = |call: &String| {
            let words = ["Alloc", "Free", "Synchronize", "Load", "SetAttribute"];
            let own = conv.variant().info().name == "cudnn" && call.contains("SetAttribute");
            !own && words.iter().any(|word| call.contains(word))
        };
        common::ensure(!calls.iter().any(heavy), &told())?;
        common::ensure(
            allocations == 0,
            &format!("{allocations} allocations on the heap"),
        )?;

        // What the benchmark of host time stands a run beside.
        y.copy_from(&common::poison(problem.y_len()), &stream)?;
        // SAFETY: all that was recorded is alive, and the context current.
        unsafe { recording.enqueue(queue) }?;
        let same = bytes(&y, &stream)? == zeros;
        common::ensure(same, "bare driver calls give another output")?;
        Ok(Completion::Completed)
    }

    fn bytes<T: Element>(y: &Buffer<T>, stream: &Stream) -> Result<Vec<u8>, Error> {
        Ok(bytemuck::cast_slice(&y.to_vec(stream)?).to_vec())
    }

    fn enqueues(call: &str) -> bool {
        let words = ["cuLaunchKernel", "cuMemset", "cuMemcpy"];
        words.iter().any(|word| call.starts_with(word))
    }

    thread_local! {
        /// Of this thread, since it began.
        static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
        /// Names of the driver's functions that this thread called.
        static CALLED: RefCell<Vec<&'static CStr>> = const { RefCell::new(Vec::new()) };
    }

    struct Counting;

    #[global_allocator]
    static COUNTING: Counting = Counting;

    // SAFETY: it is the system's allocator.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            ALLOCATIONS.set(ALLOCATIONS.get() + 1);
            // SAFETY: as the caller says.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
            // SAFETY: as the caller says.
            unsafe { System.dealloc(memory, layout) }
        }
    }

    /// A count of driver calls, from here until it is asked.
    struct Calls(sys::CUpti_SubscriberHandle);

    impl Calls {
        fn subscribe() -> Result<Self, String> {
            // So that noting a call allocates nothing.
            CALLED.with_borrow_mut(|called| {
                called.clear();
                called.reserve(1000);
            });
            let mut subscriber = ptr::null_mut();
            let driver = CUpti_CallbackDomain::CUPTI_CB_DOMAIN_DRIVER_API;
            // SAFETY: the callback is what CUPTI's header says; it writes one handle.
            unsafe {
                fine(sys::cuptiSubscribe(
                    &mut subscriber,
                    Some(note),
                    ptr::null_mut(),
                ))?;
                let calls = Calls(subscriber);
                fine(sys::cuptiEnableDomain(1, subscriber, driver))?;
                Ok(calls)
            }
        }

        fn made(self) -> Result<Vec<String>, String> {
            drop(self);
            Ok(CALLED.with_borrow(|called| {
                let text = |name: &&CStr| name.to_string_lossy().into_owned();
                called.iter().map(text).collect()
            }))
        }
    }

    impl Drop for Calls {
        fn drop(&mut self) {
            // SAFETY: it was subscribed, and is taken back once.
            unsafe { sys::cuptiUnsubscribe(self.0) };
        }
    }

    unsafe extern "C" fn note(
        _user: *mut c_void,
        _domain: CUpti_CallbackDomain,
        _function: sys::CUpti_CallbackId,
        data: *const c_void,
    ) {
        // SAFETY: of this domain, data are these; names are constant strings.
        let (site, name) = unsafe {
            let data = &*data.cast::<sys::CUpti_CallbackData>();
            (data.callbackSite, CStr::from_ptr(data.functionName))
        };
        if matches!(site, CUpti_ApiCallbackSite::CUPTI_API_ENTER) {
            CALLED.with_borrow_mut(|called| called.push(name));
        }
    }

    fn fine(result: CUptiResult) -> Result<(), String> {
        match result {
            CUptiResult::CUPTI_SUCCESS => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}
