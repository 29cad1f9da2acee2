//! The one error type: what went wrong, with the shapes and the place in words.

use std::{error, fmt::Write, ops::Range, panic::AssertUnwindSafe};

/// Everything that can go wrong, as a value. The library neither prints nor exits nor panics on
/// its caller's input.
///
/// A problem stands in it as its text, which parses to the same problem.
///
/// A message has the way out, and does not repeat that of its [`source`](std::error::Error::source), which has the
/// particulars: [`chain`] has both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text is not what it should be; `why` names the part that could not be read.
    #[error("`{text}` is not {what}: {why}")]
    Parse {
        /// What it should be: `a problem`, `a math`.
        what: &'static str,
        /// What was given.
        text: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// The numbers do not describe a convolution.
    #[error("invalid problem: {0}")]
    InvalidProblem(String),
    /// The variant cannot do the problem.
    #[error("{variant} cannot do {problem}: {why}")]
    Unsupported {
        /// The variant that was asked.
        variant: String,
        /// The problem it refused.
        problem: String,
        /// Its reason.
        why: String,
    },
    /// No variant has this name.
    #[error("there is no variant `{name}`{}", suggestion(.close))]
    UnknownVariant {
        /// The name asked for.
        name: String,
        /// The nearest name there is.
        close: Option<String>,
    },
    /// No policy has this name.
    #[error("there is no policy `{name}`{} There are {known}", asked(.close))]
    UnknownPolicy {
        /// The name asked for.
        name: String,
        /// The nearest name there is.
        close: Option<String>,
        /// Those there are.
        known: String,
    },
    /// The variant exists, but not with this configuration.
    #[error("{variant} has no configuration `{config}`; it has: {known}")]
    UnknownConfig {
        /// The variant.
        variant: String,
        /// The configuration asked for.
        config: String,
        /// Those it has.
        known: String,
    },
    /// No variant on this device can do the problem.
    #[error(
        "no variant on {device} can do {problem}: {why}; variant::plan asks each of variants::all() for \
         its own answer, or the command `convforge list --problem {problem}` all of them"
    )]
    NoVariant {
        /// The device asked.
        device: String,
        /// The problem.
        problem: String,
        /// The commonest reasons, and of which variants.
        why: String,
    },
    /// A buffer has the wrong number of elements.
    #[error("{what} holds {found} elements, but {problem} needs {expected}")]
    Length {
        /// Which operand.
        what: &'static str,
        /// Elements the problem needs.
        expected: usize,
        /// Elements the buffer has.
        found: usize,
        /// The problem.
        problem: String,
    },
    /// A copy reaches past the end of a buffer, or between buffers of different lengths.
    #[error("{what}: elements {start}..{end} of a buffer that holds {len}")]
    OutOfRange {
        /// What was to be done.
        what: &'static str,
        /// First element.
        start: usize,
        /// One past the last.
        end: usize,
        /// Elements that the buffer has.
        len: usize,
    },
    /// An operand that the problem needs was not given, or one was given that it has no use for.
    #[error("{problem} {why}")]
    Operand {
        /// The problem.
        problem: String,
        /// What is missing or superfluous.
        why: String,
    },
    /// A buffer has the wrong element type.
    #[error("{what} has elements of type {found}, but {problem} stores {expected}")]
    Storage {
        /// Which operand.
        what: &'static str,
        /// Element type of the problem.
        expected: String,
        /// Element type of the buffer.
        found: String,
        /// The problem.
        problem: String,
    },
    /// A buffer, stream or workspace belongs to another device.
    #[error("{what} is on {found}, but was to be used on {expected}")]
    WrongDevice {
        /// What was passed.
        what: &'static str,
        /// The device of the convolution.
        expected: String,
        /// The device of what was passed.
        found: String,
    },
    /// A workspace was made for another stream.
    #[error(
        "the workspace belongs to another stream; make one workspace per stream with Conv::workspace"
    )]
    WrongStream,
    /// A stream with the handle of the per-thread default stream was used on another thread than the
    /// one that took it.
    #[error(
        "the stream is another thread's default stream (handle 2, CU_STREAM_PER_THREAD), and that \
         handle names another queue on this thread; take it anew on this thread with \
         gpu::Stream::from_raw, with a workspace of its own, or share a stream that was created"
    )]
    WrongThread,
    /// An address is not a multiple of what the problem guarantees.
    #[error(
        "{what} starts at {address:#x}, which is no multiple of the {align} bytes that {problem} \
         guarantees; align it, or lower the guarantee with the word `align={natural}`"
    )]
    Misaligned {
        /// Which operand.
        what: &'static str,
        /// Its address.
        address: usize,
        /// The guaranteed alignment in bytes.
        align: usize,
        /// The largest power of two that the address is a multiple of.
        natural: usize,
        /// The problem.
        problem: String,
    },
    /// An address that cannot be what it was given for.
    #[error("{what}: {address:#x} is no memory of {device}: {why}")]
    Memory {
        /// What it was given for.
        what: &'static str,
        /// The device that it was given for.
        device: String,
        /// The address.
        address: usize,
        /// What is wrong with it.
        why: String,
        /// What the driver says of it.
        source: Option<Cause>,
    },
    /// The memory given for a workspace or a packed filter is not aligned.
    #[error("{what} starts at {address:#x}, which is no multiple of {align} bytes")]
    WorkspaceMisaligned {
        /// What it is for.
        what: &'static str,
        /// Its address.
        address: usize,
        /// What it must be a multiple of.
        align: usize,
    },
    /// The workspace is smaller than the variant needs.
    #[error(
        "{variant} needs a workspace of at least {need} bytes for {problem}; it was given {have}"
    )]
    WorkspaceTooSmall {
        /// The variant.
        variant: String,
        /// The problem.
        problem: String,
        /// Least bytes.
        need: usize,
        /// Bytes given.
        have: usize,
    },
    /// This machine has no usable GPU, or not the one asked for.
    #[error("no GPU: {why}")]
    NoGpu {
        /// What is missing, and what would mend it.
        why: String,
        /// What was looked for, or what the driver says.
        source: Option<Cause>,
    },
    /// A shared library is missing, too old, or lacks a function.
    #[error("{library} could not be used: {why}")]
    Library {
        /// The library, by its common name.
        library: &'static str,
        /// What would mend it, or what is wrong with the one that is there.
        why: String,
        /// What was looked for, and where.
        source: Option<Cause>,
    },
    /// A call of a GPU library failed.
    #[error("{call} failed: {name} ({code}): {text}")]
    Gpu {
        /// The function called.
        call: &'static str,
        /// The library's number for the error.
        code: i32,
        /// The library's name for it.
        name: String,
        /// The library's explanation.
        text: String,
    },
    /// Memory ran out.
    #[error("out of memory on {device}: {asked} bytes were asked for{}", free_of(.free, .total))]
    OutOfMemory {
        /// The device.
        device: String,
        /// Bytes asked for.
        asked: usize,
        /// Bytes free at that time.
        free: usize,
        /// Bytes in all; 0 where nobody says, as on the CPU.
        total: usize,
    },
    /// A part of a batch failed, and the rest was not begun.
    #[error(
        "{} of {chunks} ({})",
        span("chunk", .failed), span("image", .images)
    )]
    Chunk {
        /// The chunk, from 0. Where the device failed after all of them were queued it does not
        /// tell which one it was, so all are named.
        failed: Range<usize>,
        /// How many chunks there are.
        chunks: usize,
        /// The images in question, from 0.
        images: Range<usize>,
        /// What failed.
        source: Box<Error>,
    },
    /// What was asked for does not exist here.
    #[error("there is no {0}")]
    Unavailable(String),
    /// The constant memory of a kernel has no room for one more filter.
    #[error(
        "the filter has {asked} bytes, but of the {total} bytes of constant memory that this kernel \
         has on a device {free} are free, perhaps not in one piece; drop other packed filters of the \
         same kernel, or choose a variant that needs no constant memory"
    )]
    ConstantMemory {
        /// Bytes asked for.
        asked: usize,
        /// Bytes that no other filter has.
        free: usize,
        /// Bytes in all.
        total: usize,
    },
    /// Two marks in time that have nothing in common.
    #[error("marks of two devices have no common clock")]
    NoCommonClock,
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
}

/// What somebody else says of what went wrong. It is only read, so no panic leaves it half done.
pub type Cause = AssertUnwindSafe<Box<dyn error::Error + Send + Sync>>;

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The message of an error and those of its sources: `file.json: cannot be read: No such file`.
pub fn chain(error: &dyn error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

impl Error {
    /// That there is no usable GPU, for a reason of one's own.
    pub fn no_gpu(why: impl Into<String>) -> Self {
        Error::NoGpu {
            why: why.into(),
            source: None,
        }
    }

    /// What an error says was meant by an unknown name, its `close`: the candidate that differs from it in the fewest
    /// letters, if one is close at all.
    pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
        let (least, candidate) = candidates
            .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
            .min()?;
        (least <= name.len().max(3) / 2).then(|| candidate.to_owned())
    }
}

fn near(close: &Option<String>) -> String {
    close
        .iter()
        .map(|name| format!("; did you mean `{name}`?"))
        .collect()
}

/// `chunk 3`, `images 3000 to 3999`.
fn span(what: &str, range: &Range<usize>) -> String {
    match range.len() {
        0 | 1 => format!("{what} {}", range.start),
        _ => format!("{what}s {} to {}", range.start, range.end - 1),
    }
}

fn free_of(free: &usize, total: &usize) -> String {
    match total {
        0 => "; take fewer images or smaller batches".to_owned(),
        total => format!(", {free} of {total} are free"),
    }
}

/// What stands before the sentence of those that there are.
fn asked(close: &Option<String>) -> String {
    match close {
        Some(_) => near(close),
        None => ".".to_owned(),
    }
}

fn suggestion(close: &Option<String>) -> String {
    match close {
        Some(_) => near(close),
        None if cfg!(feature = "cuda") => {
            "; variants::all() has them all, or the command `convforge list` shows them".to_owned()
        }
        None => "; this build has no CUDA (feature `cuda`)".to_owned(),
    }
}
