//! What a measurement depends on beside the code: device, libraries, date, clocks.

use std::{collections::BTreeMap, process::Command};

use convforge::Device;
#[cfg(feature = "cuda")]
use convforge::{chain, gpu::Gpu};
use serde::{Deserialize, Serialize};

use super::Ceilings;

/// Where and when a report was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this crate.
    pub convforge: String,
    /// Hash of the kernels' sources.
    pub csrc: String,
    /// The device that was measured: `NVIDIA H200`, `CPU (2 threads)`.
    pub device: String,
    /// Name of the GPU; none where the CPU was measured.
    pub gpu: Option<String>,
    /// Its compute capability times ten.
    pub arch: Option<u32>,
    /// Its number of multiprocessors.
    pub sm_count: Option<u32>,
    /// Version of NVIDIA's driver.
    pub driver: Option<String>,
    /// Versions of the libraries that were found.
    pub libraries: BTreeMap<String, String>,
    /// The host's processor.
    pub cpu: String,
    /// Threads that the CPU variants use.
    pub threads: usize,
    /// When it was begun, in UTC.
    pub date: String,
    /// What was asked for, without paths.
    pub options: Vec<String>,
    /// What the device did at best in this run, where that was measured.
    #[serde(default)]
    pub ceilings: Option<Ceilings>,
    /// Where the GPU is in its machine: `00000000:19:00.0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pci: Option<String>,
    /// Which card it is, by its maker: `GPU-1d7a...`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// What the GPU ran at, in a report that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// What a GPU ran at under load: clocks of the multiprocessors as they were counted right behind samples,
/// the others as nvidia-smi told them after each problem's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The lowest clock of the multiprocessors, of medians over a variant's samples on a problem.
    pub least_sm_mhz: f64,
    /// The highest.
    pub most_sm_mhz: f64,
    /// The highest clock of the memory.
    pub memory_mhz: f64,
    /// The highest temperature in degrees Celsius.
    pub celsius: f64,
    /// The most power drawn.
    pub watts: f64,
}

impl Load {
    /// What two parts of a run ran at.
    pub(crate) fn and(&self, other: &Load) -> Load {
        Load {
            least_sm_mhz: self.least_sm_mhz.min(other.least_sm_mhz),
            most_sm_mhz: self.most_sm_mhz.max(other.most_sm_mhz),
            memory_mhz: self.memory_mhz.max(other.memory_mhz),
            celsius: self.celsius.max(other.celsius),
            watts: self.watts.max(other.watts),
        }
    }
}

impl Environment {
    /// This machine, now.
    pub fn of(device: &Device, options: Vec<String>) -> Self {
        let limits = device.limits();
        let found = |library: Library| Some((library.name.to_owned(), library.version.ok()?));
        Environment {
            convforge: env!("CARGO_PKG_VERSION").to_owned(),
            csrc: convforge::CSRC_HASH.to_owned(),
            device: device.name(),
            gpu: device.is_gpu().then(|| device.name()),
            arch: device.is_gpu().then_some(limits.arch),
            sm_count: device.is_gpu().then_some(limits.sm_count),
            driver: driver_version(),
            libraries: libraries().into_iter().filter_map(found).collect(),
            cpu: cpu_name(),
            threads: rayon::current_num_threads(),
            date: date(),
            options,
            ceilings: None,
            pci: ask(device, "pci.bus_id"),
            uuid: ask(device, "uuid"),
            load: None,
        }
    }

    /// What makes times of two reports incomparable, if anything does.
    pub fn differs_from(&self, other: &Environment) -> Option<&'static str> {
        let pairs = [
            ("device", self.device == other.device),
            ("driver", self.driver == other.driver),
            ("version of convforge", self.convforge == other.convforge),
            ("hash of csrc", self.csrc == other.csrc),
            ("library", self.libraries == other.libraries),
        ];
        pairs
            .into_iter()
            .find_map(|(what, same)| (!same).then_some(what))
    }

    /// The day of its date.
    pub(crate) fn day(&self) -> &str {
        self.date.split('T').next().unwrap_or_default()
    }

    /// What runs are ordered by. Two of one second differ in what was asked for.
    pub(crate) fn stamp(&self) -> (&str, &str, &[String]) {
        (&self.date, &self.csrc, &self.options)
    }
}

/// A shared library that is opened at run time.
#[derive(Clone, Debug)]
pub struct Library {
    /// Its name, for people.
    pub name: &'static str,
    /// Its version, or why it cannot be used.
    pub version: Result<String, String>,
}

/// The libraries of this build: the driver's, cuBLAS, cuDNN and the NVRTC that it opens.
pub fn libraries() -> Vec<Library> {
    #[allow(unused_mut, reason = "a build without CUDA has none")]
    let mut libraries = Vec::new();
    #[cfg(feature = "cuda")]
    {
        libraries.push(Library {
            name: "CUDA driver",
            version: Gpu::driver_version().map_err(why_not),
        });
        // SAFETY: the function takes no argument.
        let cublas = unsafe { cublas_sys::cublasLtGetVersion() };
        libraries.push(Library {
            name: "cuBLAS",
            version: cublas.map(|v| dotted(v as u64)).map_err(missing),
        });
    }
    #[cfg(feature = "cudnn")]
    libraries.extend([
        Library {
            name: "cuDNN",
            version: convforge::cudnn::version()
                .map(|version| version.to_string())
                .map_err(why_not),
        },
        // cuDNN opens it by itself, and without it has fewer plans.
        Library {
            name: "NVRTC",
            version: cudnn_sys::nvrtc_version()
                .map(|(major, minor)| format!("{major}.{minor}"))
                .map_err(missing),
        },
    ]);
    libraries
}

#[cfg(feature = "cuda")]
fn why_not(error: convforge::Error) -> String {
    match error {
        convforge::Error::Library {
            why,
            source: Some(tried),
            ..
        } => format!("{why}: {}", chain(&**tried)),
        convforge::Error::Library { why, .. } => why,
        error => chain(&error),
    }
}

#[cfg(feature = "cuda")]
fn missing(missing: cublas_sys::loader::Missing) -> String {
    format!("{}: {}", missing.remedy, missing.tried)
}

/// 130100 is 13.1.0.
#[cfg(feature = "cuda")]
fn dotted(version: u64) -> String {
    format!(
        "{}.{}.{}",
        version / 10_000,
        version / 100 % 100,
        version % 100
    )
}

/// Version of NVIDIA's kernel driver: 580.82.07.
pub fn driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let dots = |word: &&str| word.contains('.') && word.starts_with(|c: char| c.is_ascii_digit());
    text.lines()
        .next()?
        .split_whitespace()
        .find(dots)
        .map(str::to_owned)
}

/// The processor, as Linux calls it.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    name.map_or("unknown", |(_, name)| name).trim().to_owned()
}

fn date() -> String {
    let format = time::format_description::well_known::Rfc3339;
    let now = time::OffsetDateTime::now_utc().replace_nanosecond(0);
    now.ok()
        .and_then(|now| now.format(&format).ok())
        .unwrap_or_default()
}

/// What nvidia-smi tells of a GPU.
fn ask(device: &Device, query: &str) -> Option<String> {
    let id = device.ordinal()?.to_string();
    let output = Command::new("nvidia-smi")
        .arg(format!("--query-gpu={query}"))
        .args(["--format=csv,noheader,nounits", "-i", &id])
        .output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// What a GPU runs at, as nvidia-smi tells it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// Clock of the multiprocessors.
    pub sm_mhz: f64,
    /// Clock of the memory.
    pub memory_mhz: f64,
    /// Temperature in degrees Celsius.
    pub celsius: f64,
    /// Power drawn.
    pub watts: f64,
}

impl Clocks {
    /// The clocks now; none on the CPU, or where nvidia-smi does not answer.
    pub fn read(device: &Device) -> Option<Self> {
        let text = ask(device, "clocks.sm,clocks.mem,temperature.gpu,power.draw")?;
        let numbers: Vec<f64> = text
            .split(", ")
            .filter_map(|word| word.trim().parse().ok())
            .collect();
        let [sm_mhz, memory_mhz, celsius, watts] = numbers[..] else {
            return None;
        };
        Some(Clocks {
            sm_mhz,
            memory_mhz,
            celsius,
            watts,
        })
    }
}
