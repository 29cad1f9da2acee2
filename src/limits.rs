//! What a kernel may use of a device.

/// What a kernel may use; read once per device. Those of other chips are made from
/// [`of_chip`](Self::of_chip)'s, or from the default, which is nothing of anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Limits {
    /// Compute capability times ten: 90 for 9.0. 0 for the CPU.
    pub arch: u32,
    /// Streaming multiprocessors; threads for the CPU.
    pub sm_count: u32,
    /// Shared memory of one block in bytes, with opt-in.
    pub shared_per_block: u32,
    /// Shared memory of one multiprocessor in bytes.
    pub shared_per_sm: u32,
    /// 32-bit registers of one multiprocessor.
    pub registers_per_sm: u32,
    /// Bytes of L2 cache.
    pub l2_bytes: u64,
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Highest clock of the multiprocessors in kHz.
    pub clock_khz: u32,
    /// Highest clock of the memory in kHz; it moves data twice in each.
    pub memory_clock_khz: u32,
    /// Width of the memory in bits.
    pub memory_bits: u32,
}

impl Limits {
    /// Whether these are a GPU's.
    pub fn is_gpu(&self) -> bool {
        self.arch > 0
    }

    /// Clocks of a multiprocessor in a microsecond, at its highest.
    pub fn clocks_per_us(&self) -> f64 {
        f64::from(self.clock_khz) / 1e3
    }

    /// Bytes that the memory's pins move in a microsecond.
    pub fn bytes_per_us(&self) -> f64 {
        2.0 * f64::from(self.memory_clock_khz) / 1e3 * f64::from(self.memory_bits) / 8.0
    }

    /// Refuses what kernels cannot be planned for: they divide by these numbers, and multiply them in
    /// 32 bits.
    #[cfg(feature = "cuda")]
    pub(crate) fn check_gpu(&self) -> Result<(), String> {
        /// Far more than any chip has.
        const MOST: u32 = 1 << 20;
        let numbers = [
            ("multiprocessors", self.sm_count),
            ("bytes of shared memory in a block", self.shared_per_block),
            ("bytes of shared memory", self.shared_per_sm),
            ("registers", self.registers_per_sm),
        ];
        let strange = numbers.iter().find(|(_, n)| !(1..=MOST).contains(n));
        match strange {
            Some((what, number)) => {
                Err(format!("cannot be planned for a GPU with {number} {what}"))
            }
            None => Ok(()),
        }
    }

    /// The chips that [`of_chip`](Self::of_chip) knows.
    pub const CHIPS: [&str; 5] = ["h200", "h100", "a100", "l40s", "rtx4090"];

    /// What a chip of this name tells of itself, for planning without one: an H200, an H100 (both
    /// SXM), an A100 of 80 GB, an L40S, an RTX 4090.
    pub fn of_chip(name: &str) -> Option<Self> {
        let [
            arch,
            sm_count,
            shared_per_block,
            shared_per_sm,
            l2_mib,
            memory_gib,
            mhz,
            memory_mhz,
            bits,
        ] = match name {
            "h200" => [90, 132, 232_448, 233_472, 60, 140, 1980, 3201, 6144],
            "h100" => [90, 132, 232_448, 233_472, 50, 79, 1980, 2619, 5120],
            "a100" => [80, 108, 166_912, 167_936, 40, 79, 1410, 1593, 5120],
            "l40s" => [89, 142, 101_376, 102_400, 96, 44, 2520, 9001, 384],
            "rtx4090" => [89, 128, 101_376, 102_400, 72, 23, 2520, 10501, 384],
            _ => return None,
        };
        Some(Limits {
            arch,
            sm_count,
            shared_per_block,
            shared_per_sm,
            registers_per_sm: 65536,
            l2_bytes: u64::from(l2_mib) << 20,
            memory_bytes: u64::from(memory_gib) << 30,
            clock_khz: mhz * 1000,
            memory_clock_khz: memory_mhz * 1000,
            memory_bits: bits,
        })
    }
}
