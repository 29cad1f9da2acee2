//! The person at the other end: progress, colours, Ctrl-C, JSON.

use std::{
    env,
    io::{self, IsTerminal, Write},
    process::{self, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use convforge_tools::measure::Look;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use terminal_size::terminal_size;

use crate::failure::Failure;

/// Exit status after Ctrl-C.
pub const INTERRUPTED: u8 = 130;

/// Set by Ctrl-C; work that takes long looks at it between its steps.
static STOP: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C asks the work to stop, and a second one ends the program.
pub fn catch_interrupts() {
    let on_signal = || {
        if STOP.swap(true, Ordering::Relaxed) {
            process::exit(INTERRUPTED.into());
        }
        let said = "Interrupted: what has begun is finished; Ctrl-C again ends at once.";
        let _ = writeln!(io::stderr().lock(), "{said}");
    };
    // Without a handler Ctrl-C ends the program at once, which is bearable.
    let _ = ctrlc::set_handler(on_signal);
}

/// Set once Ctrl-C was pressed.
pub fn stop() -> &'static AtomicBool {
    &STOP
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The exit status of work that ended, or that Ctrl-C ended.
pub fn exit_code(failed: bool) -> ExitCode {
    match interrupted() {
        true => ExitCode::from(INTERRUPTED),
        false if failed => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// How tables look on standard output: plain and unwrapped where it is no terminal, so that each row is
/// a line for grep; otherwise as wide as the terminal, or as COLUMNS says.
pub fn look() -> Look {
    if !io::stdout().is_terminal() {
        return Look::default();
    }
    let columns = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let size = || terminal_size().map(|(width, _)| width.0.into());
    Look {
        color: env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        width: columns.or_else(size).filter(|width| *width > 0),
    }
}

/// Prints one JSON value to standard output.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    Ok(())
}

/// That there is no GPU, and what happens instead.
pub fn no_gpu(why: &convforge::Error) -> String {
    let why = convforge_tools::chain(why);
    let why = why.trim_start_matches("no GPU: ");
    format!("No GPU was found: {why}\nThe CPU backend runs instead.")
}

/// Standard output.
#[cfg(not(test))]
pub fn out() -> impl Write {
    io::stdout().lock()
}

/// Nothing: what tests print belongs to no one.
#[cfg(test)]
pub fn out() -> impl Write {
    io::sink()
}

/// A remark for people: beside the output where that is for a program.
pub fn remark(text: &str, output_is_for_people: bool) -> io::Result<()> {
    match output_is_for_people {
        true => writeln!(out(), "{text}"),
        false => writeln!(io::stderr().lock(), "{text}"),
    }
}

/// A bar on a terminal's standard error, shown once the work takes longer than a second.
pub struct Progress {
    bar: ProgressBar,
    start: Instant,
    shown: bool,
}

impl Progress {
    /// A bar of `steps`.
    pub fn new(steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::hidden());
        let template = "{bar:30} {pos}/{len} {elapsed} left {eta}  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress {
            bar,
            start: Instant::now(),
            shown: false,
        }
    }

    /// Says what is being done.
    pub fn say(&mut self, text: &str) {
        if !self.shown && self.start.elapsed() > Duration::from_secs(1) {
            self.shown = true;
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_message(text.to_owned());
    }

    /// One step is done.
    pub fn step(&mut self) {
        self.bar.inc(1);
    }

    /// Prints without tearing the bar.
    pub fn print(&self, text: &str) -> io::Result<()> {
        self.bar.suspend(|| writeln!(out(), "{text}"))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
