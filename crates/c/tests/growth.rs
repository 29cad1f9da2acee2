//! Runs keep nothing. In a process of its own, as its memory is measured.

mod common;

use std::{fs, ptr::null};

use common::{Aligned, Ready, SMALL, bytes, operands};
use convforge_c::*;

/// Pages that the process holds, in bytes.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Also of runs that fail, and of handles made and destroyed.
#[test]
fn a_million_runs_keep_nothing() {
    let ready = Ready::new(SMALL, None);
    let (x, w) = ([3f32; 4], [2f32; 4]);
    let mut packed = Aligned::new();
    let packed = packed.address();
    let mut y = [0f32; 4];
    // SAFETY: the handles are alive, and everything is as large as it must be.
    unsafe {
        let answer = convforge_pack(ready.plan, ready.workspace, w.as_ptr().cast(), packed);
        assert_eq!(answer, Status::Ok);
    }
    let mut operands = operands(&x, &w, &mut y);
    if bytes(ready.plan, What::Packed) > 0 {
        operands.packed = packed;
    }
    let wrong = Operands {
        x: null(),
        ..operands
    };
    let round = |runs: usize| {
        for _ in 0..runs {
            assert_eq!(ready.run(&operands), Status::Ok);
        }
        for _ in 0..runs / 100 {
            assert_eq!(ready.run(&wrong), Status::Operand);
            drop(Ready::new(SMALL, None));
        }
    };
    round(10_000);
    let before = resident();
    round(1_000_000);
    let grown = resident().saturating_sub(before);
    assert!(grown < 1 << 20, "{grown} bytes");
    assert_eq!(y[0], 6.0);
}
