//! The header and the library agree: names, types, numbers and layouts, in C and in C++.

mod common;

use std::{
    collections::BTreeSet,
    ffi::{c_char, c_int, c_void},
    fs,
    mem::offset_of,
    process::Command,
};

use common::{compiler, libraries, output};
use convforge_c::*;

/// How C spells a type.
trait Spelled {
    const C: &'static str;
}

/// How C declares a function of this type.
trait Declared {
    fn declare(self, name: &str) -> String;
}

macro_rules! spelled {
    ($($type:ty = $text:literal,)*) => { $(impl Spelled for $type { const C: &'static str = $text; })* };
}

spelled! {
    Status = "convforge_status",
    c_int = "int",
    usize = "size_t",
    *const c_char = "const char *",
    *const c_void = "const void *",
    *mut c_void = "void *",
    *mut usize = "size_t *",
    *mut Status = "convforge_status *",
    *const Device = "const convforge_device *",
    *mut Device = "convforge_device *",
    *mut *mut Device = "convforge_device **",
    *const Plan = "const convforge_plan *",
    *mut Plan = "convforge_plan *",
    *mut *mut Plan = "convforge_plan **",
    *const Workspace = "const convforge_workspace *",
    *mut Workspace = "convforge_workspace *",
    *mut *mut Workspace = "convforge_workspace **",
    *const Operands = "const convforge_operands *",
}

macro_rules! declared {
    ($(($($argument:ident)*))*) => { $(
        impl<R: Spelled, $($argument: Spelled),*> Declared
            for unsafe extern "C" fn($($argument),*) -> R
        {
            fn declare(self, name: &str) -> String {
                let arguments: &[&str] = &[$($argument::C),*];
                format!("{} {name}({});\n", R::C, arguments.join(", "))
            }
        }
    )* };
}

declared! { (A) (A B) (A B C) (A B C D) (A B C D E) }

/// `functions!(f(_, _))`: each function's name, and its declaration in C by its type in Rust.
macro_rules! functions {
    ($($name:ident($($argument:tt)*)),* $(,)?) => {
        vec![$((
            stringify!($name),
            Declared::declare($name as unsafe extern "C" fn($($argument)*) -> _, stringify!($name)),
        )),*]
    };
}

fn functions() -> Vec<(&'static str, String)> {
    let mut all = functions![
        convforge_last_error(_),
        convforge_device_open(_, _),
        convforge_device_close(_),
        convforge_plan_create(_, _, _, _),
        convforge_plan_destroy(_),
        convforge_plan_name(_),
        convforge_plan_reason(_),
        convforge_plan_bytes(_, _, _),
        convforge_workspace_create(_, _, _, _, _),
        convforge_workspace_reserve(_, _),
        convforge_workspace_destroy(_),
        convforge_pack(_, _, _, _),
        convforge_run(_, _, _),
    ];
    let _: extern "C" fn() -> *const c_char = convforge_version;
    let version = "const char *convforge_version(void);\n";
    all.push(("convforge_version", version.to_owned()));
    all
}

/// Every number of the header as Rust has it.
fn numbers() -> Vec<(&'static str, usize)> {
    let status = [
        ("CONVFORGE_OK", Status::Ok),
        ("CONVFORGE_BAD_ARGUMENT", Status::Argument),
        ("CONVFORGE_BAD_HANDLE", Status::Handle),
        ("CONVFORGE_BAD_TEXT", Status::Text),
        ("CONVFORGE_BAD_PROBLEM", Status::Problem),
        ("CONVFORGE_UNKNOWN", Status::Unknown),
        ("CONVFORGE_UNSUPPORTED", Status::Unsupported),
        ("CONVFORGE_BAD_OPERAND", Status::Operand),
        ("CONVFORGE_MISALIGNED", Status::Misaligned),
        ("CONVFORGE_WORKSPACE_TOO_SMALL", Status::Workspace),
        ("CONVFORGE_WRONG_DEVICE", Status::Device),
        ("CONVFORGE_WRONG_THREAD", Status::Thread),
        ("CONVFORGE_BUSY", Status::Busy),
        ("CONVFORGE_NO_GPU", Status::NoGpu),
        ("CONVFORGE_LIBRARY", Status::Library),
        ("CONVFORGE_GPU", Status::Gpu),
        ("CONVFORGE_OUT_OF_MEMORY", Status::Memory),
        ("CONVFORGE_INTERNAL", Status::Internal),
    ];
    let what = [
        ("CONVFORGE_X", What::X),
        ("CONVFORGE_W", What::W),
        ("CONVFORGE_Y", What::Y),
        ("CONVFORGE_BIAS", What::Bias),
        ("CONVFORGE_RESIDUAL", What::Residual),
        ("CONVFORGE_PACKED", What::Packed),
        ("CONVFORGE_WORKSPACE_LEAST", What::WorkspaceLeast),
        ("CONVFORGE_WORKSPACE", What::Workspace),
    ];
    let mut all = vec![("CONVFORGE_ALIGN", convforge::Workspace::ALIGN)];
    all.extend(status.map(|(name, status)| (name, status as usize)));
    all.extend(what.map(|(name, what)| (name, what as usize)));
    all
}

/// C refuses to declare a function twice with two types, and Rust's compiler says the second.
#[test]
fn the_header_says_what_the_library_is() {
    let mut source = "#include <convforge.h>\n".to_owned();
    for (_, declaration) in functions() {
        source += &declaration;
    }
    let mut claims: Vec<String> = numbers()
        .iter()
        .map(|(name, number)| format!("{name} == {number}"))
        .collect();
    claims.push("CONVFORGE_CPU == -1".to_owned());
    claims.push(format!(
        "sizeof(convforge_status) == {}",
        size_of::<Status>()
    ));
    claims.push(format!(
        "sizeof(convforge_operands) == {}",
        size_of::<Operands>()
    ));
    for (field, offset) in [
        ("x", offset_of!(Operands, x)),
        ("w", offset_of!(Operands, w)),
        ("y", offset_of!(Operands, y)),
        ("packed", offset_of!(Operands, packed)),
        ("bias", offset_of!(Operands, bias)),
        ("residual", offset_of!(Operands, residual)),
    ] {
        claims.push(format!("offsetof(convforge_operands, {field}) == {offset}"));
    }
    for (number, claim) in claims.iter().enumerate() {
        source += &format!("typedef char claim_{number}[({claim}) ? 1 : -1]; /* {claim} */\n");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agree.c");
    fs::write(&file, source).unwrap();
    for cxx in [false, true] {
        output(compiler(cxx).args(["-fsyntax-only"]).arg(&file));
    }
}

/// Nothing of Rust, of the kernels (`cf_`) or of CUDA's runtime is there to be met by a program's own.
#[test]
fn the_shared_library_exports_the_headers_functions_alone() {
    let library = libraries().join("libconvforge_c.so");
    let listed = output(
        Command::new("nm")
            .args(["-D", "--defined-only"])
            .arg(library),
    );
    let exported: BTreeSet<&str> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let functions = functions();
    let ours: BTreeSet<&str> = functions.iter().map(|(name, _)| *name).collect();
    assert_eq!(exported, ours);
    let header = fs::read_to_string(common::package().join("include/convforge.h")).unwrap();
    let words = header.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    let called: BTreeSet<&str> = words
        .filter(|word| word.starts_with("convforge_") && header.contains(&format!("{word}(")))
        .collect();
    assert_eq!(called, ours);
}

#[test]
fn the_version_is_the_packages() {
    // SAFETY: a constant text.
    let version = unsafe { std::ffi::CStr::from_ptr(convforge_version()) };
    assert_eq!(version.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
}
