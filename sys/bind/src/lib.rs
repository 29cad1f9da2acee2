//! Build-time helper of convforge's sys crates: from a C header to Rust bindings whose library is
//! opened at the first call.
//!
//! bindgen reads the header; then every foreign function is replaced by one of the same name that
//! looks its symbol up when it is first called and returns an error value where the library or
//! the symbol is missing:
//!
//! ```text
//! pub unsafe fn cuInit(Flags: c_uint) -> Result<CUresult, Missing>
//! ```
//!
//! bindgen's own dynamic loading does not serve: it resolves all symbols at once, which an older
//! library does not survive, and panics on a missing one. The generated code names two things
//! that the including crate has in scope: `LIBRARY`, a static
//! `convforge_cuda_sys::loader::Library`, and the module `loader` itself.
//!
//! Headers of the project's own kernels, which are linked, are bound by [`Cuda::bind_headers`].

use std::{
    env,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{FnArg, ForeignItem, Item, ItemForeignMod, Pat, ReturnType, Signature};

/// What to take from which headers; anything not named here, nor used by what is, stays out.
#[derive(Debug)]
pub struct Spec<'a> {
    /// Headers, as they stand between the angle brackets of an `#include`.
    pub headers: &'a [&'a str],
    /// Functions, by the name that a C program writes. Where a macro of the header turns
    /// `cuMemAlloc` into `cuMemAlloc_v2`, the Rust function is `cuMemAlloc`, its symbol
    /// `cuMemAlloc_v2`.
    pub functions: &'a [&'a str],
    /// Types that no function's signature mentions (enums of attribute values, say).
    pub types: &'a [&'a str],
    /// Macros that are plain numbers.
    pub constants: &'a [&'a str],
}

/// Writes the bindings to `out`. `clang_args` say where the headers are, `libclang` the folder of
/// libclang, or nothing to have it looked for on the system.
///
/// # Errors
/// A text for the person who builds: libclang is missing, a header cannot be read, or it lacks a
/// function.
pub fn generate(
    spec: &Spec<'_>,
    clang_args: &[String],
    libclang: Option<&Path>,
    out: &Path,
) -> Result<(), String> {
    load_libclang(libclang)?;
    let includes: String = spec
        .headers
        .iter()
        .map(|name| format!("#include <{name}>\n"))
        .collect();
    let mut builder = bindgen::Builder::default()
        .header_contents("convforge_bind.h", &includes)
        .clang_args(clang_args)
        // An enum of Rust with a value that it does not list is undefined behaviour, and a newer
        // library may well return one.
        .default_enum_style(bindgen::EnumVariation::NewType {
            is_bitfield: false,
            is_global: false,
        })
        .generate_comments(false)
        .layout_tests(false)
        .formatter(bindgen::Formatter::None);
    for function in spec.functions {
        builder = builder.allowlist_function(format!("{function}(_v[0-9]+)?"));
    }
    for name in spec.types {
        builder = builder.allowlist_type(name);
    }
    for name in spec.constants {
        builder = builder.allowlist_var(name);
    }
    let generated = builder
        .generate()
        .map_err(|why| format!("{} could not be read: {why}", spec.headers.join(", ")))?;
    let mut file = syn::parse_file(&generated.to_string())
        .map_err(|why| format!("bindgen wrote what is not Rust: {why}"))?;

    let mut declared = Vec::new();
    let mut items = Vec::new();
    for item in file.items {
        match item {
            Item::ForeignMod(block) => declared.extend(functions(block)),
            other => items.push(other),
        }
    }
    let mut missing = Vec::new();
    for name in spec.functions {
        match chosen(name, &declared) {
            Some(signature) => {
                let code = syn::parse2(lazy_function(name, signature));
                items.push(code.map_err(|why| format!("{name}: {why}"))?);
            }
            None => missing.push(*name),
        }
    }
    if !missing.is_empty() {
        return Err(format!(
            "{} lacks {}: the toolkit is too old, or a newer one renamed them",
            spec.headers.join(", "),
            missing.join(", ")
        ));
    }
    file.items = items;
    fs::write(out, file.into_token_stream().to_string())
        .map_err(|why| format!("{}: {why}", out.display()))
}

/// What convforge-cuda-sys found, as the build script of a crate that depends on it sees it.
#[derive(Debug)]
pub struct Cuda {
    /// The toolkit's folder.
    pub root: PathBuf,
    /// Its compiler.
    pub nvcc: PathBuf,
    /// `CUDA_VERSION` of cuda.h: 13000 for 13.0.
    pub version: u32,
    /// The folder of cudart_static; empty where the toolkit has none.
    pub lib: PathBuf,
    /// The folders of the toolkit's headers.
    pub include: Vec<PathBuf>,
    /// Where toolkit.py installs, be it there or not.
    pub cache: PathBuf,
    /// libclang's arguments for these headers.
    pub clang_args: Vec<String>,
    libclang: Option<PathBuf>,
}

impl Cuda {
    /// Reads Cargo's metadata.
    ///
    /// # Errors
    /// The caller is no build script of a crate that depends on convforge-cuda-sys.
    pub fn from_metadata() -> Result<Self, String> {
        let read = |key: &str| {
            let name = format!("DEP_CONVFORGE_CUDA_{key}");
            env::var(&name).map_err(|why| {
                format!(
                    "{name}: {why}; convforge-cuda-sys sets it, for packages whose [dependencies] \
                     name it"
                )
            })
        };
        Ok(Cuda {
            root: PathBuf::from(read("ROOT")?),
            nvcc: PathBuf::from(read("NVCC")?),
            lib: PathBuf::from(read("LIB")?),
            version: read("VERSION")?
                .parse()
                .map_err(|why| format!("CUDA's version: {why}"))?,
            include: env::split_paths(&read("INCLUDE")?).collect(),
            cache: PathBuf::from(read("CACHE")?),
            clang_args: read("CLANG_ARGS")?.split('\t').map(str::to_owned).collect(),
            libclang: Some(read("LIBCLANG")?)
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
        })
    }

    /// [`generate`] to `bindings.rs` in Cargo's `OUT_DIR`.
    ///
    /// # Errors
    /// As [`generate`].
    pub fn bind(&self, spec: &Spec<'_>) -> Result<(), String> {
        generate(
            spec,
            &self.clang_args,
            self.libclang.as_deref(),
            &bindings_file(),
        )
    }

    /// Binds what plain C headers of one's own declare, functions that are linked as usual, to
    /// `bindings.rs` in Cargo's `OUT_DIR`. What they include is left out: the including module has
    /// it in scope.
    ///
    /// # Errors
    /// libclang is missing, or a header cannot be read.
    pub fn bind_headers(&self, headers: &[&str], includes: &[PathBuf]) -> Result<(), String> {
        load_libclang(self.libclang.as_deref())?;
        let folders = includes
            .iter()
            .map(|folder| format!("-I{}", folder.display()));
        let mut builder = bindgen::Builder::default()
            .headers(headers.iter().copied())
            .clang_args(&self.clang_args)
            .clang_args(folders)
            .allowlist_recursively(false)
            .derive_default(true)
            .prepend_enum_name(false)
            .formatter(bindgen::Formatter::None);
        for header in headers {
            println!("cargo::rerun-if-changed={header}");
            // However clang came to it: by its path, or from another header beside it.
            let name = header.rsplit('/').next().unwrap_or(header);
            builder = builder.allowlist_file(format!("(.*/)?{}", name.replace('.', "\\.")));
        }
        let bindings = builder
            .generate()
            .map_err(|why| format!("{} could not be read: {why}", headers.join(", ")))?;
        let out = bindings_file();
        bindings
            .write_to_file(&out)
            .map_err(|why| format!("{}: {why}", out.display()))
    }
}

/// The file that the including crate includes.
pub fn bindings_file() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs")
}

/// Whether this is docs.rs, which has no toolkit; the crate then has `cfg(no_toolkit)`.
pub fn no_toolkit() -> bool {
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    println!("cargo::rustc-check-cfg=cfg(no_toolkit)");
    let none = env::var_os("DOCS_RS").is_some();
    if none {
        println!("cargo::rustc-cfg=no_toolkit");
    }
    none
}

/// On docs.rs, puts `src/stub.rs` in the place of the bindings; says whether that was so.
///
/// # Errors
/// The file cannot be copied.
pub fn stub_on_docs_rs() -> Result<bool, String> {
    let there = no_toolkit();
    if there {
        println!("cargo::rerun-if-changed=src/stub.rs");
        fs::copy("src/stub.rs", bindings_file()).map_err(|why| format!("src/stub.rs: {why}"))?;
    }
    Ok(there)
}

/// Stands for [`Cuda::bind_headers`] where there is [`no_toolkit`]. rustdoc does not look into
/// functions, so the names that the headers define are enough: types without fields, and numbers.
///
/// # Errors
/// A header cannot be read, or the bindings cannot be written.
pub fn stub_of_headers(headers: &[&str]) -> Result<(), String> {
    let mut stub = String::new();
    for header in headers {
        println!("cargo::rerun-if-changed={header}");
        let text = fs::read_to_string(header).map_err(|why| format!("{header}: {why}"))?;
        stub.extend(text.lines().filter_map(stub_of_line));
    }
    let out = bindings_file();
    fs::write(&out, stub).map_err(|why| format!("{}: {why}", out.display()))
}

/// Of a line that begins the definition of a type, or is that of a number.
fn stub_of_line(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Some(match words[..] {
        ["typedef", "struct", name, "{"] => {
            format!("#[derive(Clone, Copy, Debug, Default)]\npub struct {name};\n")
        }
        ["typedef", "enum", name, "{", ..] => format!("pub type {name} = u32;\n"),
        ["#define", name, number, ..] => {
            number.parse::<u32>().ok()?;
            format!("pub const {name}: u32 = {number};\n")
        }
        ["typedef", ..] => {
            // typedef void (*name)(...);
            let (_, rest) = line.split_once("(*")?;
            let (name, _) = rest.split_once(')')?;
            format!("pub type {name} = Option<unsafe extern \"C\" fn()>;\n")
        }
        _ => return None,
    })
}

/// How to come by a part of the toolkit: by the script that this package carries, or as people do
/// `otherwise`.
pub fn remedy(need: &str, otherwise: &str) -> String {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/toolkit.py");
    format!("mend it:  python3 {script} --need {need}\nor {otherwise}")
}

/// Runs a build script; what went wrong is told without the noise of a panic.
pub fn run(script: impl FnOnce() -> Result<(), String>) {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(why) = script() {
        eprintln!("\n{why}\n");
        std::process::exit(1);
    }
}

/// Loads libclang, so that its absence is an error and not bindgen's panic.
fn load_libclang(folder: Option<&Path>) -> Result<(), String> {
    if let Some(folder) = folder {
        // SAFETY: build scripts call this from their only thread.
        unsafe { env::set_var("LIBCLANG_PATH", folder) };
    }
    clang_sys::load().map_err(|why| {
        format!(
            "libclang, which reads C headers for bindgen, was not found: {why}\n\
             {}\n\
             or set LIBCLANG_PATH to the folder of a libclang.so",
            remedy(
                "libclang",
                "install your system's libclang (Debian and Ubuntu: libclang-dev)"
            )
        )
    })
}

fn functions(block: ItemForeignMod) -> impl Iterator<Item = Signature> {
    block.items.into_iter().filter_map(|item| match item {
        ForeignItem::Fn(function) => Some(function.sig),
        _ => None,
    })
}

/// The declaration that a C program gets by writing `name`. A header that declares the plain name
/// means that one; where a macro has renamed it, only the versioned one is declared.
fn chosen<'a>(name: &str, declared: &'a [Signature]) -> Option<&'a Signature> {
    let version = |signature: &Signature| {
        let ident = signature.ident.to_string();
        match ident.strip_prefix(name)? {
            "" => Some(u32::MAX),
            suffix => suffix.strip_prefix("_v")?.parse().ok(),
        }
    };
    declared
        .iter()
        .filter(|s| version(s).is_some())
        .max_by_key(|s| version(s))
}

/// The function `name` that looks the symbol of `signature` up.
fn lazy_function(name: &str, signature: &Signature) -> TokenStream {
    let symbol = CString::new(signature.ident.to_string()).unwrap_or_default();
    let name = format_ident!("{name}");
    let inputs = &signature.inputs;
    let arguments = inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => match &*typed.pat {
            Pat::Ident(ident) => Some(&ident.ident),
            _ => None,
        },
        FnArg::Receiver(_) => None,
    });
    let types = inputs.iter().filter_map(|input| match input {
        FnArg::Typed(typed) => Some(&typed.ty),
        FnArg::Receiver(_) => None,
    });
    let output = match &signature.output {
        ReturnType::Default => quote!(()),
        ReturnType::Type(_, output) => quote!(#output),
    };
    quote! {
        pub unsafe fn #name(#inputs) -> Result<#output, loader::Missing> {
            static SYMBOL: loader::Symbol = loader::Symbol::new(&LIBRARY, #symbol);
            let address = SYMBOL.address()?;
            let function: unsafe extern "C" fn(#(#types),*) -> #output =
                unsafe { ::std::mem::transmute(address) };
            Ok(unsafe { function(#(#arguments),*) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(text: &str) -> Signature {
        syn::parse_str(text).unwrap()
    }

    #[test]
    fn the_symbol_is_the_one_that_c_would_call() {
        let declared = [
            "fn a_v2()",
            "fn b()",
            "fn b_v2()",
            "fn c_v2()",
            "fn c_v3()",
            "fn a_via()",
        ]
        .map(signature);
        let symbol = |name| chosen(name, &declared).map(|s| s.ident.to_string());
        assert_eq!(symbol("a").as_deref(), Some("a_v2"));
        assert_eq!(symbol("b").as_deref(), Some("b"));
        assert_eq!(symbol("c").as_deref(), Some("c_v3"));
        assert_eq!(symbol("d"), None);
    }

    #[test]
    fn a_function_looks_its_symbol_up() {
        let declared = signature("fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> CUresult");
        let code = lazy_function("cuMemAlloc", &declared).to_string();
        assert!(code.contains("pub unsafe fn cuMemAlloc (address : * mut u64 , bytes : usize)"));
        assert!(code.contains("c\"cuMemAlloc_v2\""));
        assert!(code.contains("Result < CUresult , loader :: Missing >"));
    }

    #[test]
    fn a_stub_has_the_names_that_a_header_defines() {
        let stub = |line| stub_of_line(line).unwrap_or_default();
        assert!(stub("typedef struct cf_row {").ends_with("pub struct cf_row;\n"));
        assert_eq!(
            stub("typedef enum cf_a { CF_B = 0 } cf_a;"),
            "pub type cf_a = u32;\n"
        );
        assert_eq!(
            stub("#define CF_C 64 /* bytes */"),
            "pub const CF_C: u32 = 64;\n"
        );
        let function = "pub type cf_f = Option<unsafe extern \"C\" fn()>;\n";
        assert_eq!(
            stub("typedef void (*cf_f)(void *user, const char *name);"),
            function
        );
        for other in [
            "#define CF_H",
            "} cf_row;",
            "int32_t cf_g(void);",
            "#ifdef __cplusplus",
            "",
        ] {
            assert_eq!(stub(other), "");
        }
    }
}
