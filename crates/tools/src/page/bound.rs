//! What bounds a kernel, from its counters.
//!
//! A unit bounds a kernel if it is busy for the share of the time that stands beside it below; of
//! several, the one that is furthest above its share. If none is, warps wait, and what for most is
//! said; where occupancy is low that is said as well. A busiest unit above 60 % is no bound, but not
//! mere latency either, and neither is a multiprocessor whose throughput, which is that of its busiest
//! unit, exceeds all units that were counted. What is said has the number it is derived from; a kernel
//! without counters gets no sentence.

use crate::study::Counters;

/// Units with the percentage from which on they bound a kernel. Throughputs (memory, L1, L2) come
/// nearer to their peak in practice than a pipe does, whose instructions need operands in turn.
type Unit = (&'static str, fn(&Counters) -> Option<f64>, f64);
const UNITS: [Unit; 8] = [
    ("device memory", |c| c.dram_pct, 80.0),
    ("the L2", |c| c.l2_pct, 80.0),
    ("L1 and shared memory", |c| c.l1_pct, 80.0),
    ("the tensor cores", |c| c.tensor_pct, 70.0),
    ("the FMA units", |c| c.fma_pct, 70.0),
    ("integer arithmetic", |c| c.alu_pct, 70.0),
    ("the load and store units", |c| c.lsu_pct, 70.0),
    ("the issue of instructions", |c| c.issue_pct, 80.0),
];
/// Of the busiest unit: from here on it is a good part of the time, if not all.
const NEAR: f64 = 60.0;
/// Points that the throughput of a multiprocessor is above its counted units if another one is busier.
const UNCOUNTED: f64 = 5.0;
/// Occupancy in percent below which a multiprocessor has too few warps: less than a quarter.
const FEW_WARPS: f64 = 25.0;
/// Points that the occupancy may stay below what registers and shared memory allow.
const MISSED: f64 = 20.0;

/// What bounds a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// `device memory`, `latency`: a word or two.
    pub by: &'static str,
    /// The same with the counters that say so.
    pub sentence: String,
}

/// What the counters say; none where none of a unit's was read.
pub fn bound(counters: &Counters) -> Option<Bound> {
    let busy = UNITS.iter().filter_map(|(unit, share, least)| {
        let share = share(counters).filter(|share| share.is_finite())?;
        Some((*unit, share, *least))
    });
    let busy: Vec<(&str, f64, f64)> = busy.collect();
    let over = busy.iter().filter(|(_, share, least)| share >= least);
    let most = over.max_by(|a, b| (a.1 / a.2).total_cmp(&(b.1 / b.2)));
    let (by, mut sentence) = match most {
        Some((unit, share, _)) => {
            let sentence = format!("Bound by {unit}, at {share:.0} % of the peak");
            (*unit, sentence)
        }
        None => {
            let (unit, share, _) = busy.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
            let uncounted = counters.sm_pct.filter(|sm| *sm >= share + UNCOUNTED);
            let mut text =
                format!("No counted unit is at its limit; the busiest, {unit}, is at {share:.0} %");
            if let Some(sm) = uncounted {
                text += &format!(
                    ", but the multiprocessor at {sm:.0} %: a unit that is not counted here is busier"
                );
            }
            let warps = few_warps(counters);
            let by = match uncounted.unwrap_or(*share) >= NEAR {
                true if uncounted.is_some() => "no counted unit",
                true => "no single unit",
                false if warps.is_some() => "latency, with few warps",
                false => "latency",
            };
            text.extend(warps.map(|warps| format!("; {warps}")));
            (by, text)
        }
    };
    if let (None, Some(stall), Some(share)) = (most, &counters.stall, counters.stall_pct) {
        sentence += &format!("; {share:.0} % of the waiting is for {}", reason(stall));
    }
    for remark in remarks(counters) {
        sentence += &format!("; {remark}");
    }
    Some(Bound {
        by,
        sentence: sentence + ".",
    })
}

/// That there are too few warps, and why.
fn few_warps(counters: &Counters) -> Option<String> {
    let occupancy = counters.occupancy_pct.filter(|share| *share < FEW_WARPS)?;
    let mut text = format!("only {occupancy:.0} % of the possible warps are there");
    if let Some(possible) = counters.theoretical_occupancy_pct {
        if possible - occupancy >= MISSED {
            text += &format!(" where {possible:.0} % would fit: the grid has too few blocks");
        } else if let Some(registers) = counters.registers {
            text += &format!(", and {possible:.0} % fit, with {registers:.0} registers per thread");
            let shared = counters.shared_bytes.filter(|bytes| *bytes > 0.0);
            if let Some(bytes) = shared {
                text += &format!(" and {:.1} KiB of shared memory per block", bytes / 1024.0);
            }
        }
    }
    Some(text)
}

/// Work that need not be, each where it is much.
fn remarks(counters: &Counters) -> Vec<String> {
    let conflicts = counters.bank_conflict_pct.filter(|share| *share >= 20.0);
    let threads = counters.active_threads.filter(|threads| *threads < 28.0);
    let sectors = counters.load_sectors.filter(|sectors| *sectors > 16.0);
    [
        conflicts.map(|share| {
            format!("{share:.0} % of the passes through shared memory are bank conflicts")
        }),
        threads.map(|threads| format!("{threads:.1} of a warp's 32 threads are active")),
        sectors.map(|sectors| {
            format!("a global load touches {sectors:.1} sectors of 32 bytes, more than any that is contiguous")
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A stall of Nsight Compute's in words.
fn reason(stall: &str) -> String {
    let words = match stall {
        "long_scoreboard" => "reads of global memory",
        "short_scoreboard" => "reads of shared memory",
        "lg_throttle" => "room in the queue to global memory",
        "mio_throttle" => "room in the queue for memory input and output",
        "math_pipe_throttle" => "an arithmetic unit",
        "barrier" => "other warps at a barrier",
        "wait" => "the fixed time of the instruction before",
        "not_selected" => "the scheduler, which took another warp",
        "no_instruction" => "instructions to be fetched",
        "imc_miss" => "constants to be fetched",
        "dispatch_stall" => "the dispatcher",
        "drain" => "stores at the kernel's end",
        "membar" => "a memory fence",
        other => return other.to_owned(),
    };
    format!("{words} ({stall})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(edit: impl FnOnce(&mut Counters)) -> Counters {
        let mut counters = Counters::default();
        edit(&mut counters);
        counters
    }

    fn by(edit: impl FnOnce(&mut Counters)) -> &'static str {
        bound(&counters(edit)).unwrap().by
    }

    #[test]
    fn a_unit_at_its_limit_bounds() {
        assert_eq!(by(|c| c.dram_pct = Some(91.0)), "device memory");
        assert_eq!(by(|c| c.l2_pct = Some(85.0)), "the L2");
        assert_eq!(by(|c| c.l1_pct = Some(80.0)), "L1 and shared memory");
        assert_eq!(by(|c| c.tensor_pct = Some(70.0)), "the tensor cores");
        assert_eq!(by(|c| c.fma_pct = Some(75.0)), "the FMA units");
        assert_eq!(by(|c| c.alu_pct = Some(71.0)), "integer arithmetic");
        assert_eq!(by(|c| c.lsu_pct = Some(90.0)), "the load and store units");
        assert_eq!(
            by(|c| c.issue_pct = Some(88.0)),
            "the issue of instructions"
        );
    }

    #[test]
    fn of_several_the_one_furthest_over_its_share() {
        let both = counters(|c| (c.dram_pct, c.fma_pct) = (Some(82.0), Some(90.0)));
        assert_eq!(bound(&both).unwrap().by, "the FMA units");
        let near = counters(|c| (c.dram_pct, c.fma_pct) = (Some(79.9), Some(70.0)));
        assert_eq!(bound(&near).unwrap().by, "the FMA units");
    }

    #[test]
    fn without_one_it_is_latency() {
        let waiting = counters(|c| {
            (c.fma_pct, c.dram_pct) = (Some(30.0), Some(41.0));
            c.occupancy_pct = Some(60.0);
            (c.stall, c.stall_pct) = (Some("long_scoreboard".to_owned()), Some(55.4));
        });
        let found = bound(&waiting).unwrap();
        assert_eq!(found.by, "latency");
        assert_eq!(
            found.sentence,
            "No counted unit is at its limit; the busiest, device memory, is at 41 %; 55 % of the waiting \
             is for reads of global memory (long_scoreboard)."
        );
        assert_eq!(by(|c| c.lsu_pct = Some(65.0)), "no single unit");
        let few = counters(|c| {
            c.fma_pct = Some(30.0);
            (c.occupancy_pct, c.theoretical_occupancy_pct) = (Some(18.0), Some(18.8));
            (c.registers, c.shared_bytes) = (Some(168.0), Some(2048.0));
        });
        let found = bound(&few).unwrap();
        assert_eq!(found.by, "latency, with few warps");
        assert!(
            found
                .sentence
                .contains("168 registers per thread and 2.0 KiB"),
            "{found:?}"
        );
        let grid = counters(|c| {
            c.fma_pct = Some(30.0);
            (c.occupancy_pct, c.theoretical_occupancy_pct) = (Some(6.0), Some(100.0));
        });
        assert!(bound(&grid).unwrap().sentence.contains("too few blocks"));
    }

    #[test]
    fn a_unit_that_was_not_counted_is_not_passed_over() {
        let shared_unroll = counters(|c| {
            (c.sm_pct, c.issue_pct, c.alu_pct) = (Some(75.75), Some(61.84), Some(35.7));
        });
        let found = bound(&shared_unroll).unwrap();
        assert_eq!(found.by, "no counted unit");
        assert!(
            found
                .sentence
                .contains("is at 62 %, but the multiprocessor at 76 %"),
            "{found:?}"
        );
        // The throughput is that of the issue itself.
        let naive = counters(|c| (c.sm_pct, c.issue_pct) = (Some(73.14), Some(73.29)));
        assert_eq!(bound(&naive).unwrap().by, "no single unit");
    }

    #[test]
    fn waste_is_said_with_its_number() {
        let waste = counters(|c| {
            c.l1_pct = Some(93.0);
            (c.bank_conflict_pct, c.active_threads) = (Some(48.0), Some(16.0));
        });
        let sentence = bound(&waste).unwrap().sentence;
        assert!(
            sentence.contains("93 %") && sentence.contains("48 %"),
            "{sentence}"
        );
        assert!(sentence.contains("16.0 of a warp's 32"), "{sentence}");
    }

    #[test]
    fn no_counters_no_sentence() {
        assert_eq!(bound(&Counters::default()), None);
        let only = counters(|c| (c.duration_us, c.occupancy_pct) = (Some(7.0), Some(10.0)));
        assert_eq!(bound(&only), None);
        assert_eq!(bound(&counters(|c| c.dram_pct = Some(f64::NAN))), None);
    }
}
