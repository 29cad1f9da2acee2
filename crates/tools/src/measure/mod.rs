//! Timing, shared by the command and the benches: checked first, then timed, side by side.
//!
//! A GPU's variant is captured once as a graph of many launches, so that the host's part vanishes,
//! and device events around the graph give the time. Inputs, filters and outputs rotate among sets
//! of buffers that together exceed twice the L2, so every launch reads device memory (`cold`);
//! with one set they may stay in the L2 (`warm`). Variants are interleaved round by round, each round
//! beginning with another one, so that a change of clocks touches all of them alike. A round, or a tenth
//! of a second of it, is queued as a whole: the GPU does not wait for the host between two graphs. Behind that it rests,
//! as large products on tensor cores otherwise draw all the power that the board may, and slow down.
//!
//! On the CPU the same rounds are timed by the host's clock, with fewer samples and one set.

pub(crate) mod canvas;
mod ceilings;
mod chart;
mod clock;
mod compare;
mod configs;
mod csv;
mod curve;
mod entry;
mod environment;
mod floor;
mod lane;
mod look;
mod model_totals;
mod options;
mod profile;
#[cfg(feature = "cudnn")]
mod referee;
mod report;
mod rounds;
mod row;
mod spread;
mod stages;
mod sweep;
pub(crate) mod table;
mod timing;
mod trace;
mod view;

pub use compare::compare;
pub(crate) use compare::{Ending, beside_cudnn, checked};
pub(crate) use configs::{SAMPLES as TRIAL_SAMPLES, trials};
pub use entry::Status;
pub(crate) use entry::{Entry, put};
pub use environment::{Clocks, Environment, Library, Load, cpu_name, driver_version, libraries};
pub use floor::Ceilings;
pub(crate) use lane::sample_us;
pub use look::Look;
pub use model_totals::{Best, FASTEST, ModelLayer, ModelTotals, Sum};
pub use options::{LEAST_SAMPLES, Options};
pub use profile::profile;
#[cfg(feature = "cudnn")]
pub(crate) use referee::Referee;
pub(crate) use report::has;
pub use report::{ClockLog, Format, Report};
pub use rounds::time;
pub use row::{COMPLETE, Row};
pub use spread::Spread;
pub(crate) use spread::median;
pub(crate) use stages::stages;
pub(crate) use table::{Line, Lines, or_dash, rank, times};
pub use table::{bytes, duration};
pub use timing::{How, Stage, Timing};
pub use trace::{Event, write_trace};
pub use view::{Part, View};
