//! What the tests share: C's compilers, and calls of the door from Rust.
#![allow(dead_code)]

pub mod odd;

use std::{
    env,
    ffi::{CStr, CString, c_int, c_void},
    path::{Path, PathBuf},
    process::Command,
    ptr::{null, null_mut},
};

use convforge_c::*;

/// Two elements, once each: the smallest problem there is work for.
pub const SMALL: &str = "mb1ic1ih1oc1kh1+align=4";
/// The variant of plain loops, which starts no thread.
pub const PLAIN: &str = "cpu_direct";

/// The ordinal of the CPU.
pub const CPU: c_int = -1;

/// Where Cargo put the libraries.
pub fn libraries() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

pub fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A compiler that lets nothing pass, as C or C++.
pub fn compiler(cxx: bool) -> Command {
    let mut command = Command::new(if cxx { "c++" } else { "cc" });
    let dialect: &[&str] = match cxx {
        true => &["-x", "c++", "-std=c++11"],
        false => &["-x", "c", "-std=c99"],
    };
    command
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"])
        .arg(package().join("include"))
        .args(dialect);
    command
}

/// Runs a command and gives what it printed; fails with what it said where it fails.
pub fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The code and text of the thread's last failure.
pub fn last_error() -> (Status, String) {
    let mut status = Status::Ok;
    // SAFETY: the status is ours; the text stays until the next failure.
    let text = unsafe { CStr::from_ptr(convforge_last_error(&mut status)) };
    (status, text.to_str().unwrap().to_owned())
}

/// A handle, or the code and text of why there is none.
pub type Made<T> = Result<*mut T, (Status, String)>;

fn made<T>(call: impl FnOnce(*mut *mut T) -> Status) -> Made<T> {
    let mut handle = 8 as *mut T;
    match call(&mut handle) {
        Status::Ok => {
            assert!(!handle.is_null());
            Ok(handle)
        }
        status => {
            assert!(handle.is_null());
            assert_eq!(last_error().0, status);
            assert!(!last_error().1.is_empty());
            Err(last_error())
        }
    }
}

pub fn device(ordinal: c_int) -> Made<Device> {
    // SAFETY: the address is written to.
    made(|out| unsafe { convforge_device_open(ordinal, out) })
}

pub fn plan(device: *const Device, problem: &str, pick: Option<&str>) -> Made<Plan> {
    let problem = CString::new(problem).unwrap();
    let pick = pick.map(|pick| CString::new(pick).unwrap());
    let pick = pick.as_ref().map_or(null(), |pick| pick.as_ptr());
    // SAFETY: the texts end with a zero; the handle is the test's.
    made(|out| unsafe { convforge_plan_create(device, problem.as_ptr(), pick, out) })
}

/// One that allocates what it needs.
pub fn workspace(plan: *const Plan, stream: *mut c_void) -> Made<Workspace> {
    // SAFETY: the handle is the test's, and the stream is one.
    made(|out| unsafe { convforge_workspace_create(plan, stream, null_mut(), 0, out) })
}

/// One in memory of the test's.
pub fn workspace_in(plan: *const Plan, memory: *mut c_void, bytes: usize) -> Made<Workspace> {
    // SAFETY: the handle and the memory are the test's.
    made(|out| unsafe { convforge_workspace_create(plan, null_mut(), memory, bytes, out) })
}

pub fn bytes(plan: *const Plan, what: What) -> usize {
    let mut bytes = 0;
    // SAFETY: the handle is the test's.
    let status = unsafe { convforge_plan_bytes(plan, what as c_int, &mut bytes) };
    assert_eq!(status, Status::Ok);
    bytes
}

/// Handles as C has them, that go between threads.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub *mut T);

// SAFETY: the header says so of every function that takes one.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn get(&self) -> *mut T {
        self.0
    }
}

/// Memory as aligned as a workspace must be.
#[repr(align(128))]
pub struct Aligned([u8; Self::BYTES]);

impl Aligned {
    pub const BYTES: usize = 1 << 16;

    pub fn new() -> Box<Self> {
        Box::new(Aligned([0; Self::BYTES]))
    }

    pub fn address(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }
}

/// Addresses of slices, as C would give them.
pub fn operands(x: &[f32], w: &[f32], y: &mut [f32]) -> Operands {
    Operands {
        x: x.as_ptr().cast(),
        w: w.as_ptr().cast(),
        y: y.as_mut_ptr().cast(),
        packed: null(),
        bias: null(),
        residual: null(),
    }
}

/// A plan on the CPU, and what it needs; destroyed with it.
pub struct Ready {
    pub device: *mut Device,
    pub plan: *mut Plan,
    pub workspace: *mut Workspace,
}

impl Ready {
    pub fn new(problem: &str, pick: Option<&str>) -> Self {
        let device = device(CPU).unwrap();
        Self::of(device, plan(device, problem, pick).unwrap())
    }

    pub fn odd(odd: odd::Odd) -> Self {
        let device = device(CPU).unwrap();
        Self::of(device, plan_of(odd.conv(SMALL), "for a test"))
    }

    fn of(device: *mut Device, plan: *mut Plan) -> Self {
        let workspace = workspace(plan, null_mut()).unwrap();
        Ready {
            device,
            plan,
            workspace,
        }
    }

    pub fn run(&self, operands: &Operands) -> Status {
        // SAFETY: the handles are alive, and the tests' operands as large as the problem says.
        unsafe { convforge_run(self.plan, self.workspace, operands) }
    }
}

impl Drop for Ready {
    fn drop(&mut self) {
        // SAFETY: each is destroyed once; the device first, which the plan keeps alive.
        unsafe {
            assert_eq!(convforge_device_close(self.device), Status::Ok);
            assert_eq!(convforge_plan_destroy(self.plan), Status::Ok);
            assert_eq!(convforge_workspace_destroy(self.workspace), Status::Ok);
        }
    }
}

/// Nothing was made, and the reason has this code and says this.
#[track_caller]
pub fn refused<T>(made: Made<T>, status: Status, part: &str) {
    let (code, text) = made.unwrap_err();
    assert_eq!(code, status, "{text}");
    assert!(text.contains(part), "`{part}` is not in: {text}");
}
