//! What ptxas said of a file's kernels, judged.

use std::path::Path;

/// Serialised wgmma (C7510 to C7514) is many times slower than it looks, and so is a pipeline whose
/// setmaxnreg was dropped (C7508).
const REFUSED: [&str; 6] = ["C7508", "C7510", "C7511", "C7512", "C7513", "C7514"];

/// What ptxas says of single kernels that spill; they are counted instead.
const COUNTED: [&str; 3] = ["lmem", "Local memory used", "Registers are spilled"];

/// The warnings that a report is worth, spills in one for the file.
///
/// # Errors
/// The first line that says that a kernel is not what its source says.
pub(crate) fn judge(source: &Path, report: &str) -> Result<Vec<String>, String> {
    let source = source.display();
    let spilled = |line: &str| -> Option<u32> {
        let before = line.split_once(" bytes spill stores")?.0;
        before.split_whitespace().last()?.parse().ok()
    };
    let kernels: Vec<u32> = report.lines().filter_map(spilled).collect();
    let spilling = kernels.iter().filter(|bytes| **bytes > 0).count();
    let mut warnings = Vec::new();
    if spilling > 0 {
        warnings.push(format!(
            "{source}: {spilling} of {} kernels spill registers, at most {} bytes",
            kernels.len(),
            kernels.iter().max().unwrap_or(&0)
        ));
    }
    for line in report.lines().map(str::trim) {
        if REFUSED.iter().any(|code| line.contains(code)) {
            return Err(format!("{source}: {line}"));
        }
        if line.contains("warning") && !COUNTED.iter().any(|words| line.contains(words)) {
            warnings.push(format!("{source}: {line}"));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(report: &str) -> Result<Vec<String>, String> {
        judge(Path::new("a.cu"), report)
    }

    #[test]
    fn spills_are_one_warning() {
        let report = "ptxas info    : Function properties for f\n\
             \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
             ptxas warning : Registers are spilled to local memory in function 'g', 24 bytes\n\
             \x20   24 bytes stack frame, 24 bytes spill stores, 20 bytes spill loads\n\
             \x20   8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\n";
        let told = "a.cu: 2 of 3 kernels spill registers, at most 24 bytes";
        assert_eq!(judged(report).unwrap(), [told]);
    }

    #[test]
    fn other_warnings_pass_through() {
        let report = "a.cu(3): warning #177-D: variable \"x\" was declared but never referenced\n";
        assert_eq!(
            judged(report).unwrap(),
            [format!("a.cu: {}", report.trim())]
        );
        assert!(
            judged("ptxas info : Used 40 registers\n")
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn kernels_that_are_not_what_they_say_fail() {
        for code in REFUSED {
            let line = format!("ptxas info    : ({code}) Potential Performance Loss: ... in 'f'");
            let why = judged(&format!("ptxas info : Used 40 registers\n{line}\n")).unwrap_err();
            assert_eq!(why, format!("a.cu: {line}"));
        }
    }
}
