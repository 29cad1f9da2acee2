//! Options that several subcommands share.

mod device;
mod problems;
mod search;
mod shard;
mod variants;

pub use device::DeviceArgs;
pub use problems::ProblemArgs;
pub use search::SearchArgs;
pub use shard::Shard;
pub use variants::{Configs, VariantArgs, no_variant};
