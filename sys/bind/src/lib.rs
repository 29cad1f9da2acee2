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

use std::{
    env,
    ffi::CString,
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
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
    fs::write(out, prettyplease::unparse(&file)).map_err(|why| format!("{}: {why}", out.display()))
}

/// What convforge-cuda-sys found, as the build script of a crate that depends on it sees it.
#[derive(Debug)]
pub struct Cuda {
    /// `CUDA_VERSION` of cuda.h: 13000 for 13.0.
    pub version: u32,
    /// The folders of the toolkit's headers.
    pub include: Vec<PathBuf>,
    /// Where scripts/toolkit.py installs, be it there or not.
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
            env::var(&name).map_err(|why| format!("{name}, which convforge-cuda-sys sets: {why}"))
        };
        Ok(Cuda {
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
}

/// The file that the including crate includes.
pub fn bindings_file() -> PathBuf {
    PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("bindings.rs")
}

/// On docs.rs, which has no toolkit, puts `src/stub.rs` in the place of the bindings; says whether
/// that was so.
///
/// # Errors
/// The file cannot be copied.
pub fn stub_on_docs_rs() -> Result<bool, String> {
    println!("cargo::rerun-if-env-changed=DOCS_RS");
    let there = env::var_os("DOCS_RS").is_some();
    if there {
        fs::copy("src/stub.rs", bindings_file()).map_err(|why| format!("src/stub.rs: {why}"))?;
    }
    Ok(there)
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
            "libclang, which reads the CUDA headers, was not found: {why}\n\
             mend it with:  python3 scripts/toolkit.py --need libclang\n\
             or install your system's libclang, or set LIBCLANG_PATH to its folder"
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
}
