//! Files in the order and with the threads that end soonest, and their end at the first error.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

/// A lock whose holder panicked guards nothing that a panic could leave half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cargo's permissions to keep one core busy: a build script begins with one, and shares the others
/// with the compilers that Cargo runs beside it.
pub(crate) struct Tokens {
    own: AtomicBool,
    others: jobserver::Client,
}

/// One core; back to where it came from when dropped.
enum Token<'a> {
    Own(&'a Tokens),
    Other(#[allow(dead_code, reason = "held for its drop")] jobserver::Acquired),
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if let Token::Own(tokens) = self {
            tokens.own.store(true, Ordering::Release);
        }
    }
}

impl Tokens {
    /// Cargo's, or as many as there are `jobs` where it hands none out.
    pub(crate) fn new(jobs: usize) -> Result<Tokens, String> {
        // SAFETY: Cargo opened the descriptors that CARGO_MAKEFLAGS names for this process, and
        // nothing else in it uses them.
        let cargos = unsafe { jobserver::Client::from_env() };
        let others = match cargos.filter(|client| client.try_acquire().is_ok()) {
            Some(client) => client,
            None => jobserver::Client::new(jobs.saturating_sub(1))
                .map_err(|why| format!("a pipe for job tokens: {why}"))?,
        };
        Ok(Tokens {
            own: AtomicBool::new(true),
            others,
        })
    }

    fn take(&self) -> Option<Token<'_>> {
        if self.own.swap(false, Ordering::Acquire) {
            return Some(Token::Own(self));
        }
        Some(Token::Other(self.others.try_acquire().ok()??))
    }
}

/// A file to compile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// CPU seconds, or what stands for them.
    pub(crate) expected: f64,
    /// Architectures, which nvcc can compile side by side.
    pub(crate) parts: usize,
}

/// The longest first: a long one that began last would keep one core busy alone.
fn order(jobs: &[Job]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by(|&a, &b| jobs[b].expected.total_cmp(&jobs[a].expected));
    order
}

/// Whether a file gets a thread for each of its parts: it would take longer than everything that is
/// left takes all cores together.
fn is_long(expected: f64, left: f64, cores: usize) -> bool {
    expected * cores as f64 > left
}

/// Calls `work(index, threads)` for every job, on as many threads as there are tokens, `cores` at
/// most. After an error no further job begins.
///
/// # Errors
/// The first one; `stop` is called when it happens.
pub(crate) fn run(
    jobs: &[Job],
    cores: usize,
    tokens: &Tokens,
    work: impl Fn(usize, usize) -> Result<(), String> + Sync,
    stop: impl Fn() + Sync,
) -> Result<(), String> {
    let mut order = order(jobs);
    order.reverse();
    let waiting = Mutex::new(order);
    let failure = Mutex::new(None);
    let take_one = || {
        let mut waiting = lock(&waiting);
        let left: f64 = waiting.iter().map(|&i| jobs[i].expected).sum();
        let index = waiting.pop()?;
        let threads = match is_long(jobs[index].expected, left, cores) {
            true => jobs[index].parts,
            false => 1,
        };
        Some((index, threads))
    };
    let over = || lock(&waiting).is_empty() || lock(&failure).is_some();
    let worker = || {
        while !over() {
            let Some(token) = tokens.take() else {
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let Some((index, threads)) = take_one() else {
                return;
            };
            let more: Vec<Token<'_>> = (1..threads).map_while(|_| tokens.take()).collect();
            if let Err(why) = work(index, 1 + more.len()) {
                let mut failure = lock(&failure);
                // The others fail as well, by being stopped.
                if failure.is_none() {
                    *failure = Some(why);
                    stop();
                }
            }
            drop((token, more));
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores.min(jobs.len()) {
            scope.spawn(worker);
        }
    });
    lock(&failure).take().map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(expected: &[f64]) -> Vec<Job> {
        let job = |&expected| Job { expected, parts: 3 };
        expected.iter().map(job).collect()
    }

    fn tokens(cores: usize) -> Tokens {
        Tokens {
            own: AtomicBool::new(true),
            others: jobserver::Client::new(cores - 1).unwrap(),
        }
    }

    #[test]
    fn the_longest_comes_first() {
        assert_eq!(order(&jobs(&[2.0, 9.0, 4.0, 9.0])), [1, 3, 2, 0]);
    }

    #[test]
    fn long_files_get_more_threads() {
        // 300 of 800 seconds: half of what two cores have to do, six times what sixteen have
        assert!(!is_long(300.0, 800.0, 2));
        assert!(is_long(300.0, 800.0, 16));
        // The last one, with another core idle
        assert!(is_long(3.0, 3.0, 2));
        assert!(!is_long(3.0, 3.0, 1));
    }

    #[test]
    fn every_file_is_compiled_once_and_no_more_at_a_time_than_there_are_tokens() {
        let running = Mutex::new(0);
        let done = Mutex::new(Vec::new());
        let work = |index, threads| {
            *lock(&running) += threads;
            assert!(*lock(&running) <= 2);
            thread::sleep(Duration::from_millis(5));
            *lock(&running) -= threads;
            lock(&done).push(index);
            Ok(())
        };
        run(&jobs(&[1.0; 9]), 4, &tokens(2), work, || ()).unwrap();
        let mut done = lock(&done).clone();
        done.sort_unstable();
        assert_eq!(done, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn an_error_ends_it() {
        let begun = Mutex::new(0);
        let stopped = AtomicBool::new(false);
        let work = |index, _| {
            *lock(&begun) += 1;
            match index {
                3 => Err("typo".to_owned()),
                _ => Ok(()),
            }
        };
        let stop = || stopped.store(true, Ordering::Relaxed);
        let why = run(&jobs(&[1.0, 1.0, 2.0, 3.0]), 1, &tokens(1), work, stop).unwrap_err();
        assert_eq!(why, "typo");
        assert_eq!(*lock(&begun), 1);
        assert!(stopped.into_inner());
    }
}
