//! `cargo bench`: the suite `quick`, checked and timed with the code of `convforge compare`.
//! `cargo bench -- depthwise` takes only what has that word in its name: suite, layer, problem or
//! variant.

use std::sync::atomic::AtomicBool;

use convforge::{Device, chain};
use convforge_tools::{
    Contender, Contenders, Error,
    measure::{self, Ceilings, Look, Options, Status, View},
    suite::Suite,
};

fn main() -> Result<(), Error> {
    // Cargo adds `--bench`; what is no option is a filter.
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let fits = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str()));

    let (device, no_gpu) = Device::best();
    if let Some(why) = no_gpu {
        println!("{}\nThe CPU backend runs instead.", chain(&why));
    }
    let options = Options {
        ceilings: Ceilings::measure(&device).ok(),
        ..Options::of(&device)
    };
    let all = Contenders::new();
    let mut failed = false;
    for layer in Suite::find("quick")?.layers {
        let contenders: Vec<Contender> = all
            .on(device.is_gpu())
            .filter(|variant| fits(&format!("{} {}", layer.title(), variant.info().name)))
            .map(|variant| variant.clone().into())
            .collect();
        if contenders.is_empty() {
            continue;
        }
        let never = AtomicBool::new(false);
        let rows = measure::compare(&device, &layer, &contenders, &options, &never, &mut |_| {});
        failed |= rows.iter().any(|row| row.status == Status::Failed);
        for part in View::Compare.parts(&layer, &rows) {
            println!("\n{}\n{}", part.title, part.table(Look::default()));
        }
    }
    std::process::exit(failed.into())
}
