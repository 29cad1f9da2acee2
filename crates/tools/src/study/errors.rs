//! How far the results of variants are from f64, side by side.
//!
//! Every variant passes the whole check, on every kind of data; those on which sums are rounded are
//! kept. A variant that did not pass has no numbers. All of one problem get the same operands, and so
//! does a sequential loop of fp32 multiply-adds, which the numbers stand beside.

use std::sync::atomic::{AtomicBool, Ordering};

use convforge::{Device, Error::Interrupted, Problem};
use convforge_check::{self as check, Data, Deviation, Measured, sequential};
use serde::{Deserialize, Serialize};

use crate::{
    Contender, Result,
    measure::{Ending, Entry, Status},
    suite::Layer,
};

/// The data whose errors are kept: whole numbers leave none.
pub const ERROR_DATA: [Data; 3] = [Data::Normal, Data::Positive, Data::Wide];

/// How far one variant's results on one problem are from f64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorRow {
    /// The suite's name.
    pub suite: String,
    /// The layer's name in the suite.
    pub layer: String,
    /// The problem, with its math.
    pub problem: Problem,
    /// Its math.
    pub math: String,
    /// The variant.
    pub variant: String,
    /// Its configuration.
    pub config: Option<String>,
    /// What the variant chose inside: the name of a library's plan.
    pub plan: Option<String>,
    /// Seed of the data.
    pub seed: u64,
    /// What became of it. It passed if it passed the check on every kind of data.
    pub status: Status,
    /// Why it did not pass.
    pub reason: Option<String>,
    /// One per kind of data; empty where it did not pass.
    pub data: Vec<DataErrors>,
}

/// Errors on one kind of data, all relative to the sum of |x w|.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataErrors {
    /// The data.
    pub data: Data,
    /// Against f64 of the operands as they are stored.
    pub stored: Deviation,
    /// Against f64 of the operands as the math rounds them, which leaves what the sums lose; none in
    /// fp32, and none in tf32, where it is up to a variant how operands are rounded.
    pub rounded: Option<Deviation>,
    /// The sequential fp32 loop against f64, operands as they are stored.
    pub sequential: Deviation,
}

impl ErrorRow {
    fn new(layer: &Layer, contender: &Contender, seed: u64) -> Self {
        ErrorRow {
            suite: layer.suite.clone(),
            layer: layer.layer.clone(),
            problem: layer.problem.clone(),
            math: layer.problem.math().to_string(),
            variant: contender.variant(),
            config: contender.config(),
            plan: None,
            seed,
            status: Status::Passed,
            reason: None,
            data: Vec::new(),
        }
    }

    /// `fused_shared:tile=24`.
    pub fn name(&self) -> String {
        match &self.config {
            Some(config) => format!("{}:{config}", self.variant),
            None => self.variant.clone(),
        }
    }

    /// Its errors on such data, if it passed.
    pub fn on(&self, data: Data) -> Option<&DataErrors> {
        self.data.iter().find(|errors| errors.data == data)
    }

    /// Whether it is of this layer.
    pub(super) fn is_of(&self, layer: &Layer) -> bool {
        (&self.suite, &self.layer, &self.problem) == (&layer.suite, &layer.layer, &layer.problem)
    }

    fn ends(mut self, ending: &Ending) -> Self {
        self.status = ending.status;
        self.reason = Some(ending.reason.clone());
        self
    }
}

impl Entry for ErrorRow {
    fn is_same(&self, other: &Self) -> bool {
        let work = |row: &Self| (row.suite.clone(), row.layer.clone(), row.name());
        work(self) == work(other) && self.problem == other.problem
    }

    fn status(&self) -> Status {
        self.status
    }

    fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }
}

/// Checks every contender on the problem and keeps how far those that passed are from f64: a row for
/// each. `progress` hears what is being done. Once `stop` is set, the rest is skipped as interrupted.
pub fn errors(
    device: &Device,
    layer: &Layer,
    contenders: &[Contender],
    seed: u64,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Vec<ErrorRow> {
    let options = check::Options {
        stored: true,
        ..check::Options::default()
    };
    let mut go_on = |doing: &str| {
        progress(doing);
        match stop.load(Ordering::Relaxed) {
            true => Err(Interrupted.into()),
            false => Ok(()),
        }
    };
    let rows = contenders
        .iter()
        .map(|contender| ErrorRow::new(layer, contender, seed));
    let of_loop = |data| {
        let deviation = sequential(device, &layer.problem, data, seed, &options)?;
        Ok((data, deviation))
    };
    let loops: Result<Vec<_>> =
        go_on("the sequential loop").and_then(|()| ERROR_DATA.into_iter().map(of_loop).collect());
    let loops = match loops {
        Ok(loops) => loops,
        Err(error) => {
            let ending = Ending::from(error);
            return rows.map(|row| row.ends(&ending)).collect();
        }
    };
    let mut measure = |row: &mut ErrorRow, contender: &Contender| -> Result<(), Ending> {
        go_on(&format!("checking {}", contender.name()))?;
        let conv = contender.conv(device, &layer.problem)?;
        row.plan = conv.note();
        let measured = Ending::unless_passed(check::conv(&conv, seed, &options))?;
        row.data = beside_loops(&layer.problem, &measured, &loops);
        Ok(())
    };
    let measured =
        rows.zip(contenders)
            .map(|(mut row, contender)| match measure(&mut row, contender) {
                Ok(()) => row,
                Err(ending) => row.ends(&ending),
            });
    measured.collect()
}

/// What the check measured on each kind of data, beside the loop's.
fn beside_loops(
    problem: &Problem,
    measured: &[Measured],
    loops: &[(Data, Deviation)],
) -> Vec<DataErrors> {
    let of = |(data, sequential): &(Data, Deviation)| {
        let measured = measured.iter().find(|measured| measured.data == *data)?;
        Some(DataErrors {
            data: *data,
            stored: measured.stored?,
            rounded: check::rounds(problem).then(|| Deviation::of(&measured.verdict)),
            sequential: *sequential,
        })
    };
    loops.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use convforge::{
        Math, Result,
        variant::{Arithmetic, Info, Plan, Prepared, Query, Variant},
        variants,
    };

    use super::*;

    const PROBLEM: &str = "mb2ic5ih12oc8kh3";

    fn contender(name: &str) -> Contender {
        variants::find(name).unwrap().into()
    }

    fn rows(problem: &str, contenders: &[Contender], stopped: bool) -> Vec<ErrorRow> {
        let layer = Layer::alone(problem.parse().unwrap());
        let stop = AtomicBool::new(stopped);
        errors(&Device::cpu(), &layer, contenders, 5, &stop, &mut |_| {})
    }

    /// The CPU's loops, fed with operands rounded to another math: right for that math and wrong by a
    /// known amount for the one it says it does.
    struct Rounded {
        info: Info,
        plain: Arc<dyn Variant>,
        math: Math,
    }

    // SAFETY: what it prepares is the library's own, for a problem of the same sizes.
    unsafe impl Variant for Rounded {
        fn info(&self) -> &Info {
            &self.info
        }

        fn plan(&self, _: &Query) -> Result<Plan, String> {
            Ok(Plan::default())
        }

        fn prepare(&self, device: &Device, query: &Query, _: Plan) -> Result<Box<dyn Prepared>> {
            let problem = query.problem.with(|shape| shape.math = self.math)?;
            let query = Query::new(&problem, query.config, query.limits);
            let plan = self.plain.plan(&query).expect("it can do any");
            self.plain.prepare(device, &query, plan)
        }
    }

    fn rounded(math: Math) -> Contender {
        let plain = variants::find("cpu_direct").unwrap();
        let mut info = plain.info().clone();
        info.name = "rounded".to_owned();
        // What f16 has no exponents for, a transform is not fed with.
        info.arithmetic = Arithmetic::Transform;
        Arc::new(Rounded { info, plain, math }).into()
    }

    #[test]
    fn the_plain_loop_is_as_far_as_the_sequential_one() {
        let [row] = &rows(PROBLEM, &[contender("cpu_direct")], false)[..] else {
            panic!("one variant, one row")
        };
        assert_eq!((row.status, row.reason.as_deref()), (Status::Passed, None));
        assert_eq!((row.seed, &*row.math), (5, "fp32"));
        let kinds: Vec<Data> = row.data.iter().map(|errors| errors.data).collect();
        assert_eq!(kinds, ERROR_DATA);
        for errors in &row.data {
            assert_eq!(errors.rounded, None);
            // It adds in the same order, but not by multiply-adds that round once.
            let share = errors.stored.rms / errors.sequential.rms;
            assert!((0.8..1.25).contains(&share), "{errors:?}");
        }
    }

    #[test]
    fn an_error_that_is_known_is_found() {
        let tf32 = format!("{PROBLEM}+math=tf32");
        let ours = &rows(&tf32, &[rounded(Math::F16)], false)[0];
        let theirs = &rows(
            &format!("{PROBLEM}+math=f16"),
            &[contender("cpu_direct")],
            false,
        )[0];
        // Of wide data f16 has a narrower range.
        for data in [Data::Normal, Data::Positive] {
            let (ours, theirs) = (ours.on(data).unwrap(), theirs.on(data).unwrap());
            assert_eq!(ours.stored, theirs.stored);
            assert_eq!(ours.sequential, theirs.sequential);
            assert!(ours.stored.rms > 100.0 * theirs.rounded.unwrap().rms);
            assert_eq!(ours.rounded, None);
        }
    }

    #[test]
    fn of_what_did_not_pass_nothing_is_kept_but_why() {
        let contenders = [rounded(Math::Bf16), contender("cpu_direct")];
        let found = rows(PROBLEM, &contenders, false);
        assert_eq!(
            [found[0].status, found[1].status],
            [Status::Failed, Status::Passed]
        );
        assert!(found[0].data.is_empty() && found[0].reason.is_some());
        let stopped = rows(PROBLEM, &contenders, true);
        for row in &stopped {
            assert_eq!(row.status, Status::Skipped);
            assert!(row.data.is_empty() && !row.is_whole());
        }
    }
}
