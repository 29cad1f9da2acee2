//! The compilers that run, so that they can be ended: nvcc leaves its own children behind when it
//! is killed, and one of them may go on for minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Read},
    process::{Command, ExitStatus},
    sync::Mutex,
};

use crate::queue::lock;

/// What a program wrote, and the CPU seconds that it took with its children.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) said: String,
    pub(crate) cpu_seconds: f64,
}

#[derive(Default)]
pub(crate) struct Children(Mutex<State>);

#[derive(Default)]
struct State {
    running: BTreeSet<u32>,
    stopped: bool,
}

impl Children {
    /// Runs a program to its end.
    ///
    /// # Errors
    /// It does not start, or everything was stopped before.
    pub(crate) fn run(&self, mut command: Command) -> io::Result<Ended> {
        let (mut reader, writer) = io::pipe()?;
        command.stdout(writer.try_clone()?).stderr(writer);
        let mut child = {
            let mut state = lock(&self.0);
            if state.stopped {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let child = command.spawn()?;
            state.running.insert(child.id());
            child
        };
        // It holds the other end of the pipe.
        drop(command);
        let mut said = Vec::new();
        let read = reader.read_to_end(&mut said);
        let cpu_seconds = cpu_seconds(child.id()).unwrap_or_default();
        lock(&self.0).running.remove(&child.id());
        let status = child.wait()?;
        read?;
        Ok(Ended {
            status,
            said: String::from_utf8_lossy(&said).into_owned(),
            cpu_seconds,
        })
    }

    /// Ends all of them and all that they started.
    pub(crate) fn stop(&self) {
        let mut state = lock(&self.0);
        state.stopped = true;
        let doomed = with_descendants(&state.running, &parents());
        if !doomed.is_empty() {
            let pids = doomed.iter().map(u32::to_string);
            // The shell has it built in, where there may be no program. Without either they end by themselves.
            let mut kill = Command::new("sh");
            kill.args(["-c", "kill -KILL \"$@\"", "sh"]).args(pids);
            let _ = kill.output();
        }
    }
}

/// The fields of /proc/PID/stat behind the program's name, which may hold blanks.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// Of a process and of those of its children that ended; Linux counts hundredths.
fn cpu_seconds(pid: u32) -> Option<f64> {
    let fields = stat(pid)?;
    let ticks = fields
        .get(11..15)?
        .iter()
        .filter_map(|t| t.parse::<u64>().ok());
    Some(ticks.sum::<u64>() as f64 / 100.0)
}

/// The parent of every process.
fn parents() -> BTreeMap<u32, u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, stat(pid)?.get(1)?.parse().ok()?)))
        .collect()
}

/// Parents come before their children, whose end would let them go on with the next step.
fn with_descendants(of: &BTreeSet<u32>, parents: &BTreeMap<u32, u32>) -> Vec<u32> {
    let mut found: Vec<u32> = of.iter().copied().collect();
    let mut next = 0;
    while let Some(&one) = found.get(next) {
        let is_new = |(pid, parent): &(&u32, &u32)| **parent == one && !found.contains(pid);
        let children: Vec<u32> = parents.iter().filter(is_new).map(|(pid, _)| *pid).collect();
        found.extend(children);
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::{thread, time::Duration};

    #[test]
    fn descendants_are_found() {
        // Numbers of processes begin again after the largest.
        let parents = BTreeMap::from([(2, 3), (3, 9), (9, 1), (5, 1), (6, 5), (10, 9)]);
        let found = with_descendants(&BTreeSet::from([9]), &parents);
        assert_eq!(found, [9, 3, 10, 2]);
    }

    #[test]
    fn a_program_says_what_it_says() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let ended = Children::default().run(command).unwrap();
        assert_eq!(ended.said, "one\ntwo\n");
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.cpu_seconds < 60.0);
    }

    #[test]
    fn grandchildren_are_stopped_too() {
        let children = Children::default();
        // The pipe stays open for as long as the inner program runs.
        let begin = || {
            let mut command = Command::new("sh");
            command.args(["-c", "sh -c 'sleep 600; true'; true"]);
            children.run(command)
        };
        thread::scope(|scope| {
            let running = scope.spawn(begin);
            // Both shells and the innermost program: one that begins while the others are ended is not seen.
            while with_descendants(&lock(&children.0).running, &parents()).len() < 3 {
                thread::sleep(Duration::from_millis(10));
            }
            children.stop();
            assert!(!running.join().unwrap().unwrap().status.success());
        });
        assert!(begin().is_err(), "nothing starts after that");
    }
}
