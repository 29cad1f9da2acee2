//! What was right when it was checked, and wrong when it was timed, has no time.

use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use convforge::{
    Device, Result,
    variant::{Args, Info, Plan, Prepared, Query, Variant},
    variants,
};
use convforge_tools::{
    measure::{self, Options, Row, Status},
    suite::Layer,
};
use libtest_mimic::{Failed, Trial};

use crate::{info, parse};

/// Of the second, the oracle sees parts only. Behind an output is a gap, as neither fills 256 bytes.
const PROBLEMS: [&str; 2] = [
    "mb2ic5ih19iw23oc7oh19ow23kh3ph1",
    "mb4ic16ih19oc65oh19kh3ph1+nhwc",
];
/// A check runs a variant twice on each kind of data, and there are six.
const CHECKED: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Nothing,
    /// The first output is that of the second.
    Moved,
    /// The last output is not written.
    Unwritten,
    /// Every output is a little wrong.
    LittleWrong,
    /// An element behind the output is written to.
    Behind,
}

pub fn trials() -> Vec<Trial> {
    use Fault::*;
    let faults = [Nothing, Moved, Unwritten, LittleWrong, Behind];
    let all = faults
        .iter()
        .flat_map(|fault| PROBLEMS.map(|problem| (*fault, problem)));
    all.map(|(fault, problem)| {
        Trial::test(format!("timed: {fault:?} {problem}"), move || {
            caught(fault, problem)
        })
    })
    .collect()
}

/// How a variant that becomes wrong once it is checked ends.
fn row(fault: Fault, problem: &str) -> Row {
    let later = Arc::new(Later {
        info: info("later"),
        loops: variants::find("cpu_direct").expect("the plain loops"),
        fault,
    });
    let device = Device::cpu();
    let options = Options {
        samples: 5,
        ..Options::of(&device)
    };
    let (layer, never) = (Layer::alone(parse(problem)), AtomicBool::new(false));
    let later = [later.into()];
    let rows = measure::compare(&device, &layer, &later, &options, &never, &mut |_| {});
    rows[0].clone()
}

fn caught(fault: Fault, problem: &str) -> Result<(), Failed> {
    let row = row(fault, problem);
    let word = match fault {
        Fault::Nothing if row.status == Status::Passed && row.median_us.is_some() => return Ok(()),
        Fault::Nothing => "no fault",
        Fault::Moved => "the first at n 0, k 0, p 0, q 0",
        Fault::Unwritten => "left NaN",
        Fault::LittleWrong => "rms",
        Fault::Behind => "wrote behind",
    };
    let why = row.reason.clone().unwrap_or_default();
    match row.status == Status::Failed && row.median_us.is_none() && why.contains(word) {
        true => Ok(()),
        false => Err(format!("{row:?}").into()),
    }
}

/// Plain loops that get a fault after so many runs.
struct Later {
    info: Info,
    loops: Arc<dyn Variant>,
    fault: Fault,
}

// SAFETY: what is written behind the output lies in a gap between the timed sets.
unsafe impl Variant for Later {
    fn info(&self) -> &Info {
        &self.info
    }

    fn plan(&self, query: &Query) -> Result<Plan, String> {
        self.loops.plan(query)
    }

    fn prepare(&self, device: &Device, query: &Query, plan: Plan) -> Result<Box<dyn Prepared>> {
        Ok(Box::new(Ready {
            loops: self.loops.prepare(device, query, plan)?,
            outputs: query.problem.y_len(),
            fault: self.fault,
            runs: AtomicUsize::new(0),
        }))
    }
}

struct Ready {
    loops: Box<dyn Prepared>,
    outputs: usize,
    fault: Fault,
    runs: AtomicUsize,
}

// SAFETY: as above.
unsafe impl Prepared for Ready {
    unsafe fn launch(&self, args: Args) -> Result<()> {
        let (y, later) = (
            args.y.cast::<f32>(),
            self.runs.fetch_add(1, Ordering::Relaxed),
        );
        // SAFETY: an output has so many elements, and behind it is the gap of its set.
        unsafe {
            let last = y.add(self.outputs - 1);
            let left = last.read_unaligned();
            self.loops.launch(args)?;
            if later < CHECKED {
                return Ok(());
            }
            match self.fault {
                Fault::Nothing => {}
                Fault::Moved => y.write(*y.add(1)),
                Fault::Unwritten => last.write(left),
                Fault::Behind => y.add(self.outputs).write(0.0),
                Fault::LittleWrong => {
                    for v in slice::from_raw_parts_mut(y, self.outputs) {
                        *v *= 1.0 + 2f32.powi(-21);
                    }
                }
            }
        }
        Ok(())
    }
}
