//! What a profiler counted; `scripts/profile.sh` makes the file.

use std::{collections::BTreeMap, path::Path};

use convforge::Problem;
use serde::{Deserialize, Serialize};

use crate::{Result, files::read_json};

/// Counters of variants on problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// `NVIDIA H200`.
    pub device: String,
    /// Version of NVIDIA's driver.
    pub driver: String,
    /// The profiler with its version: `ncu 2025.3.1`.
    pub tool: String,
    /// Hash of the kernels' sources.
    pub csrc: String,
    /// When, in UTC.
    pub date: String,
    /// One per variant, problem and kernel.
    pub rows: Vec<ProfileRow>,
}

/// One kernel of a variant on a problem, one launch of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProfileRow {
    /// The variant with its configuration.
    pub variant: String,
    /// The problem.
    pub problem: Problem,
    /// The kernel's name without template arguments.
    pub kernel: String,
    /// How often it ran in one call of the variant.
    pub launches: usize,
    /// What was counted; of several launches the sum of times and bytes, the time-weighted mean of
    /// shares.
    pub counters: Counters,
    /// Lines of source where warps wait most: `outputs.cuh:42`, with the share in percent of all
    /// samples of waiting warps.
    #[serde(default)]
    pub hot_lines: BTreeMap<String, f64>,
    /// Lines of source that leave the most threads idle, with the share in percent of all places for
    /// threads in executed instructions.
    #[serde(default)]
    pub divergent_lines: BTreeMap<String, f64>,
}

/// One kernel's counters; percentages are of the peak. A counter that could not be read is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Duration under the profiler, clocks not locked.
    pub duration_us: Option<f64>,
    /// SM throughput, ncu's speed of light.
    pub sm_pct: Option<f64>,
    /// Memory throughput, ncu's speed of light.
    pub memory_pct: Option<f64>,
    /// L1 and shared memory.
    pub l1_pct: Option<f64>,
    /// L2.
    pub l2_pct: Option<f64>,
    /// Device memory.
    pub dram_pct: Option<f64>,
    /// Bytes read from device memory.
    pub dram_read_bytes: Option<f64>,
    /// Bytes written to it.
    pub dram_write_bytes: Option<f64>,
    /// Instructions issued, of the issue slots.
    pub issue_pct: Option<f64>,
    /// The FMA pipe.
    pub fma_pct: Option<f64>,
    /// The integer pipe.
    pub alu_pct: Option<f64>,
    /// The load and store pipe.
    pub lsu_pct: Option<f64>,
    /// The tensor pipe.
    pub tensor_pct: Option<f64>,
    /// Warps resident, of the most possible.
    pub occupancy_pct: Option<f64>,
    /// What registers and shared memory allow.
    pub theoretical_occupancy_pct: Option<f64>,
    /// Registers of a thread.
    pub registers: Option<f64>,
    /// Shared memory of a block, static and dynamic.
    pub shared_bytes: Option<f64>,
    /// Threads active per instruction, of 32.
    pub active_threads: Option<f64>,
    /// Instructions executed by warps.
    pub instructions: Option<f64>,
    /// Sectors per request of global loads, of 4 or more.
    pub load_sectors: Option<f64>,
    /// Extra passes through shared memory for bank conflicts, in percent of all.
    pub bank_conflict_pct: Option<f64>,
    /// The most frequent reason for a warp to wait: `long_scoreboard`.
    pub stall: Option<String>,
    /// Its share of all waiting.
    pub stall_pct: Option<f64>,
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// [`Error::File`](crate::Error::File) with what is wrong with it.
    pub fn read(path: &Path) -> Result<Self> {
        read_json(path, "is no file of scripts/profile.sh")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As scripts/profile.sh writes it: a counter that the chip does not have is not there.
    const FILE: &str = r#"{
        "device": "NVIDIA H200", "driver": "580.1", "tool": "ncu 2025.3.1", "csrc": "12ab",
        "date": "2026-11-21T10:00:00Z",
        "rows": [{
            "variant": "fused_shared:tile=16", "problem": "mb1ic3ih8oc4oh6kh3", "kernel": "fused",
            "launches": 2, "counters": {"duration_us": 12.5, "registers": 40.0, "stall": "wait"},
            "hot_lines": {"shared.cu:42": 61.5}
        }]
    }"#;

    #[test]
    fn what_was_not_counted_is_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        std::fs::write(&path, FILE).unwrap();
        let [row] = &Profile::read(&path).unwrap().rows[..] else {
            panic!("not one row")
        };
        assert_eq!(row.counters.duration_us, Some(12.5));
        assert_eq!(row.counters.sm_pct, None);
        assert_eq!(row.hot_lines["shared.cu:42"], 61.5);
        assert!(row.divergent_lines.is_empty());

        std::fs::write(&path, "{}").unwrap();
        let why = Profile::read(&path).unwrap_err().to_string();
        assert!(why.contains("is no file of scripts/profile.sh"), "{why}");
    }
}
