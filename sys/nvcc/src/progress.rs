//! What is being compiled, for the person who waits.
//!
//! Cargo keeps a build script's output to itself, but for -vv and failures. So where Cargo's own
//! messages go to a terminal, these go there too; everywhere else (a log, an editor, CI) to this
//! script's standard error, for Cargo to show or not.

use std::{
    env,
    fs::File,
    io::{IsTerminal, Write},
    os::unix::process::parent_id,
    path::Path,
    time::Instant,
};

pub(crate) struct Progress {
    terminal: Option<File>,
    begun: Instant,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            terminal: terminal(),
            begun: Instant::now(),
        }
    }

    pub(crate) fn say(&self, text: &str) {
        match &self.terminal {
            // Cargo's own progress bar is on the line, and comes back by itself.
            Some(terminal) => {
                let mut terminal: &File = terminal;
                let _ = writeln!(terminal, "\r\x1b[K        {text}");
            }
            None => eprintln!("{text}"),
        }
    }

    pub(crate) fn begins(&self, source: &Path, number: usize, of: usize, took: Option<f64>) {
        let source = source.display();
        let took = took.map_or_else(String::new, |s| format!(" ({s:.0} s of CPU the last time)"));
        self.say(&format!("nvcc {number:2}/{of} {source}{took}"));
    }

    pub(crate) fn ends(&self, files: usize, cpu_seconds: f64) {
        let seconds = self.begun.elapsed().as_secs_f64();
        self.say(&format!(
            "nvcc made {files} objects in {seconds:.0} s, {cpu_seconds:.0} s of CPU"
        ));
    }
}

/// Where Cargo's messages go, if that is a terminal and nobody asked for less.
fn terminal() -> Option<File> {
    let is = |name, value| env::var(name).is_ok_and(|v| v == value);
    if is("CARGO_TERM_QUIET", "true")
        || is("CARGO_TERM_PROGRESS_WHEN", "never")
        || is("TERM", "dumb")
    {
        return None;
    }
    let cargos = format!("/proc/{}/fd/2", parent_id());
    let file = File::options().write(true).open(cargos).ok()?;
    file.is_terminal().then_some(file)
}
