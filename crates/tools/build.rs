//! Compiles the ceilings and clocks of measurements and the network of the accuracy study, and binds their
//! headers.

#[cfg(not(feature = "cuda"))]
fn main() {}

#[cfg(feature = "cuda")]
fn main() {
    convforge_bind::run(|| {
        const HEADERS: [&str; 3] = ["csrc/ceilings.h", "csrc/clock.h", "csrc/network.h"];
        if convforge_bind::no_toolkit() {
            return convforge_bind::stub_of_headers(&HEADERS);
        }
        let cuda = convforge_bind::Cuda::from_metadata()?;
        // The library's headers, which its build script tells by `links`.
        let library = std::env::var("DEP_CONVFORGE_INCLUDE")
            .map_err(|why| format!("DEP_CONVFORGE_INCLUDE, which convforge sets: {why}"))?;
        cuda.bind_headers(&HEADERS, &["csrc".into(), library.clone().into()])?;
        // CUDA's runtime is linked by the library.
        convforge_nvcc::Kernels::new(&cuda)
            .include("csrc")
            .include(library)
            .compile(
                "convforge_tools_kernels",
                &["ceilings", "clock", "net", "net_fused"]
                    .map(|name| format!("csrc/{name}.cu").into()),
            )
    });
}
