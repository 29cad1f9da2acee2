//! Where to run.

use std::str::FromStr;

use convforge::Device;

use crate::failure::Failure;

/// `cpu`, `gpu` or `gpu:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceName {
    Cpu,
    Gpu(usize),
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = match text {
            "cpu" => return Ok(DeviceName::Cpu),
            "gpu" => Some(0),
            _ => text
                .strip_prefix("gpu:")
                .and_then(|number| number.parse().ok()),
        };
        ordinal
            .map(DeviceName::Gpu)
            .ok_or("a device is `cpu`, `gpu` or `gpu:1`".to_owned())
    }
}

#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Where to run: cpu, gpu, or gpu:1 for the second GPU [default: the first GPU; the CPU where
    /// there is none]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
}

impl DeviceArgs {
    /// The device, and why it is not a GPU where none was found.
    pub fn open(&self) -> Result<(Device, Option<convforge::Error>), Failure> {
        let opened = match self.device {
            Some(DeviceName::Cpu) => (Device::cpu(), None),
            Some(DeviceName::Gpu(ordinal)) => (Device::gpu(ordinal)?, None),
            None => Device::best(),
        };
        #[cfg(feature = "cuda")]
        if let Some(note) = translated(opened.0.limits().arch) {
            eprintln!("note: {note}");
        }
        Ok(opened)
    }
}

/// What to know of kernels that the driver translates where a build could have had machine code.
#[cfg(feature = "cuda")]
fn translated(arch: u32) -> Option<&'static str> {
    (arch == 90 && convforge::kernels::are_translated(arch)).then_some(
        "this build has no machine code for sm_90: the driver translates kernels when they are first \
         used, which takes seconds each; build again with CONVFORGE_ARCHS=90a (Cargo does not by itself \
         where a GPU has come)",
    )
}

#[cfg(all(test, feature = "cuda"))]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_of_what_another_build_has() {
        let ptx_alone = convforge::kernels::are_translated(90);
        assert_eq!(translated(90).is_some(), ptx_alone);
        // The CPU; machine code or nothing; PTX in every build
        for arch in [0, 80, 100] {
            assert_eq!(translated(arch), None, "{arch}");
        }
    }
}
