//! One problem, several contenders: each checked, those that passed timed round by round.

use std::{
    borrow::{Borrow, BorrowMut},
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use convforge::{Conv, Device, Error, Problem, variant::Arithmetic};
use convforge_check::{self as check, Measured, Outcome};

#[cfg(feature = "cudnn")]
use super::row::COMPLETE;
use super::{
    configs::{Chosen, with_fastest},
    entry::Status,
    options::Options,
    rounds::{Extent, in_turns},
    row::Row,
    timing::Timing,
};
#[cfg(feature = "cudnn")]
use crate::cudnn;
use crate::{
    Contender, Range, chain,
    suite::{CPU_FLOPS, Layer},
};

impl Row {
    pub(super) fn new(
        layer: &Layer,
        contender: &Contender,
        device: &Device,
        options: &Options,
    ) -> Self {
        Row {
            suite: layer.suite.clone(),
            layer: layer.layer.clone(),
            problem: layer.problem.clone(),
            math: layer.problem.math().to_string(),
            variant: contender.variant(),
            config: contender.config(),
            found: false,
            tried: None,
            chose: None,
            arithmetic: contender.arithmetic(),
            status: Status::Passed,
            reason: None,
            median_us: None,
            p10_us: None,
            p90_us: None,
            samples: 0,
            how: None,
            cold: device.is_gpu() && !options.warm,
            stages: Vec::new(),
            floor_us: options
                .ceilings
                .map(|ceilings| ceilings.floor_us(&layer.problem)),
            tflops: None,
            gbs: None,
            workspace_bytes: None,
            pack_us: None,
            plan: None,
            cudnn_variant: None,
            cudnn_us: None,
            cudnn_plan: None,
            speedup_vs_cudnn: None,
            cudnn_search: None,
            cudnn_any_us: None,
            cudnn_any_plan: None,
            cudnn_any_why: None,
            source: contender.source(),
            with_pack_us: None,
            serial_us: None,
            sm_mhz: None,
            floor_split_us: options
                .ceilings
                .and_then(|ceilings| ceilings.floor_split_us(&layer.problem)),
            floor_by: options
                .ceilings
                .map(|ceilings| ceilings.floor_by(&layer.problem).to_owned()),
            before_us: None,
            took_s: None,
        }
    }

    fn ends(mut self, status: Status, reason: impl ToString) -> Self {
        self.status = status;
        self.reason = Some(reason.to_string());
        self
    }

    /// Says how far the search went that it stands on, and which faster plan of cuDNN's is no baseline.
    #[cfg(feature = "cudnn")]
    fn tell(&mut self, found: convforge::cudnn::Found) {
        let search = found.incomplete.unwrap_or_else(|| COMPLETE.to_owned());
        self.cudnn_search = Some(search);
        if let Some(wrong) = found.wrong {
            self.cudnn_any_us = Some(wrong.us);
            self.cudnn_any_plan = Some(wrong.choice.to_string());
            self.cudnn_any_why = Some(wrong.why);
        }
    }

    fn timed(mut self, timing: Timing, conv: &Conv, interrupted: bool) -> Self {
        let median = timing.median_us();
        self.reason = interrupted.then(|| Error::Interrupted.to_string());
        self.p10_us = Some(timing.quantile(0.1));
        self.p90_us = Some(timing.quantile(0.9));
        self.samples = timing.samples_us.len();
        self.how = Some(timing.how);
        self.workspace_bytes = Some(timing.workspace_bytes);
        self.pack_us = timing.pack_us;
        self.with_pack_us = timing.with_pack_us;
        self.serial_us = timing.serial_us;
        self.sm_mhz = timing.sm_mhz;
        self.plan = conv.note();
        self.median_us = Some(median);
        self.stages = timing.stages;
        self.find_rates();
        self
    }
}

/// Checks every contender on the problem, then times those that passed, side by side. `progress`
/// hears what is being done. Once `stop` is set, what is being done is finished, and the rest is
/// skipped as interrupted.
pub fn compare(
    device: &Device,
    layer: &Layer,
    contenders: &[Contender],
    options: &Options,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&str),
) -> Vec<Row> {
    let _layer = Range::enter(&layer.problem.to_string());
    let mut comparison = Comparison {
        device,
        layer,
        options,
        stop,
        rows: Vec::new(),
        ready: Vec::new(),
    };
    let chosen = comparison.configured(contenders, progress);
    let with_found: Vec<Contender> = chosen.iter().map(|one| one.contender.clone()).collect();
    comparison.check(&with_found, progress);
    check::forget_memory();
    progress("timing");
    comparison.time();
    beside_cudnn(&mut comparison.rows);
    let mut rows = comparison.rows;
    for (row, chosen) in rows.iter_mut().zip(chosen) {
        (row.found, row.tried) = (chosen.found, chosen.tried);
    }
    rows
}

/// One problem, and what became of its contenders so far.
struct Comparison<'a> {
    device: &'a Device,
    layer: &'a Layer,
    options: &'a Options,
    stop: &'a AtomicBool,
    rows: Vec<Row>,
    /// The convolutions that passed, with the places of their rows.
    ready: Vec<(usize, Conv)>,
}

/// A contender's convolution, and how many seconds it took to make: of cuDNN to find.
struct Made {
    conv: convforge::Result<Conv>,
    took_s: f64,
}

impl Comparison<'_> {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The contenders, with those of other configurations where these are asked for.
    fn configured(&self, contenders: &[Contender], progress: &mut dyn FnMut(&str)) -> Vec<Chosen> {
        let asked = || contenders.iter().cloned().map(Chosen::asked).collect();
        if !self.options.fastest_configs {
            return asked();
        }
        progress("finding the fastest configurations");
        let (device, problem) = (self.device, &self.layer.problem);
        let found = with_fastest(device, problem, contenders, self.options, self.stop);
        // That there is no memory for the operands is said by who times them.
        found.unwrap_or_else(|_| asked())
    }

    /// Makes a row for each contender. Those that search come first, as they try plans that ask for much memory:
    /// before any answer of the oracle is kept, so that all that are checked share the answers.
    fn check(&mut self, contenders: &[Contender], progress: &mut dyn FnMut(&str)) {
        check::forget_memory();
        let mut found = Vec::new();
        for contender in contenders {
            found.push((contender.searches() && !self.stopped()).then(|| {
                let doing = format!("finding {}", contender.name());
                progress(&doing);
                let _range = Range::enter(&doing);
                self.made(contender)
            }));
        }
        let mut answers = check::Answers::new(self.device);
        for (contender, found) in contenders.iter().zip(found) {
            let mut row = Row::new(self.layer, contender, self.device, self.options);
            if self.stopped() {
                self.rows
                    .push(row.ends(Status::Skipped, Error::Interrupted));
                continue;
            }
            let doing = format!("checking {}", contender.name());
            progress(&doing);
            let _range = Range::enter(&doing);
            let made = found.unwrap_or_else(|| self.made(contender));
            let row = match self.checked(contender, made, &mut row, &mut answers) {
                Ok(conv) => {
                    self.ready.push((self.rows.len(), conv));
                    row
                }
                Err(Ending { status, reason }) => row.ends(status, reason),
            };
            self.rows.push(row);
        }
    }

    fn made(&self, contender: &Contender) -> Made {
        let began = Instant::now();
        Made {
            conv: contender.conv(self.device, &self.layer.problem),
            took_s: began.elapsed().as_secs_f64(),
        }
    }

    /// Checks what was made, unless it has passed by another name, as what a pick chose often has.
    fn checked(
        &self,
        contender: &Contender,
        made: Made,
        row: &mut Row,
        answers: &mut check::Answers,
    ) -> Result<Conv, Ending> {
        let began = Instant::now();
        let conv = made.conv.map_err(Ending::from).and_then(|conv| {
            row.chose = contender.is_pick().then(|| conv.name());
            row.source.clone_from(&conv.variant().info().hash);
            match self.ready.iter().any(|(_, passed)| is_same(passed, &conv)) {
                true => Ok(conv),
                false => self.judged(contender, conv, answers),
            }
        });
        #[cfg(feature = "cudnn")]
        if let Some(found) = cudnn::found(contender, self.device, &self.layer.problem) {
            row.tell(found);
        }
        let took_s = made.took_s + began.elapsed().as_secs_f64();
        row.took_s = Some((took_s * 1e3).round() / 1e3);
        conv
    }

    fn judged(
        &self,
        contender: &Contender,
        conv: Conv,
        answers: &mut check::Answers,
    ) -> Result<Conv, Ending> {
        let options = thoroughness(self.device, &self.layer.problem, contender.arithmetic());
        let mut outcome = check::beside(&conv, self.options.seed, &options, answers);
        // It may want the memory that answers take.
        if matches!(outcome, Outcome::Skipped(_)) && answers.forget() {
            outcome = check::beside(&conv, self.options.seed, &options, answers);
        }
        Ending::unless_passed(outcome)?;
        Ok(conv)
    }

    /// Times what passed, and puts that into its rows.
    fn time(&mut self) {
        let (device, problem) = (self.device, &self.layer.problem);
        let ready = mem::take(&mut self.ready);
        let (places, convs): (Vec<usize>, Vec<Conv>) = ready.into_iter().unzip();
        let all = Extent::All;
        let timings = match in_turns(device, problem, &convs, self.options, self.stop, all) {
            Ok(timings) => timings,
            // Without memory for the operands none of them can be timed; the check stands.
            Err(error) => {
                for place in places {
                    self.rows[place].reason = Some(chain(&error));
                }
                return;
            }
        };
        for ((place, conv), timing) in places.into_iter().zip(&convs).zip(timings) {
            let row = self.rows[place].clone();
            self.rows[place] = match timing {
                Ok(Timing {
                    wrong: Some(why), ..
                }) => row.ends(Status::Failed, why),
                Ok(timing) => row.timed(timing, conv, self.stopped()),
                Err(Error::Interrupted) => row.ends(Status::Skipped, Error::Interrupted),
                Err(error) => row.ends(Status::Failed, error),
            };
        }
    }
}

/// Whether two convolutions of one problem are the same variant, to the letter: not the library's cuDNN and
/// the one that searches.
fn is_same(one: &Conv, other: &Conv) -> bool {
    Arc::ptr_eq(one.variant(), other.variant()) && one.config() == other.config()
}

/// What becomes of a contender that is not timed, and why.
#[derive(Debug)]
pub(crate) struct Ending {
    pub status: Status,
    pub reason: String,
}

impl Ending {
    /// A result that is wrong.
    pub(crate) fn failed(reason: String) -> Self {
        Ending {
            status: Status::Failed,
            reason,
        }
    }

    /// What a check that passed measured, or how its contender ends.
    pub(crate) fn unless_passed(outcome: Outcome) -> Result<Vec<Measured>, Self> {
        let (status, reason) = match outcome {
            Outcome::Passed(measured) => return Ok(measured),
            Outcome::Failed(why) => (Status::Failed, why),
            Outcome::Unsupported(why) => (Status::Unsupported, why),
            Outcome::Skipped(why) => (Status::Skipped, why),
        };
        Err(Ending { status, reason })
    }
}

impl From<Error> for Ending {
    /// How a contender ends whose convolution could not be made or run.
    fn from(error: Error) -> Self {
        let (status, reason) = match error {
            Error::Unsupported { why, .. } | Error::NoVariant { why, .. } => {
                (Status::Unsupported, why)
            }
            Error::Library { .. } | Error::OutOfMemory { .. } | Error::Interrupted => {
                (Status::Skipped, chain(&error))
            }
            error => (Status::Failed, chain(&error)),
        };
        Ending { status, reason }
    }
}

impl From<crate::Error> for Ending {
    fn from(error: crate::Error) -> Self {
        match error {
            crate::Error::Convforge(error) => error.into(),
            error => Ending::failed(chain(&error)),
        }
    }
}

/// Checks a convolution as thoroughly as a time demands.
pub(crate) fn checked(conv: &Conv, arithmetic: Arithmetic, seed: u64) -> Result<(), Ending> {
    let options = thoroughness(conv.device(), conv.problem(), arithmetic);
    Ending::unless_passed(check::conv(conv, seed, &options)).map(drop)
}

/// What is checked before a time is printed.
pub(crate) fn thoroughness(
    device: &Device,
    problem: &Problem,
    arithmetic: Arithmetic,
) -> check::Options {
    check::Options::affordable(device, problem, arithmetic, CPU_FLOPS)
}

/// Puts the time of cuDNN at its best beside everyone's on one problem that has none yet: of its
/// fastest variant that passed. Where its plans were not all tried, nobody is faster by a number.
pub(crate) fn beside_cudnn<R: BorrowMut<Row>>(rows: &mut [R]) {
    let theirs = rows
        .iter()
        .map(Borrow::borrow)
        .filter(|row| row.family() == "cudnn");
    let timed = theirs.filter_map(|row| Some((row.median_us?, row)));
    let best = timed.min_by(|(a, _), (b, _)| a.total_cmp(b));
    let best = best.map(|(us, row)| (us, row.name(), row.plan.clone(), row.cudnn_search.clone()));
    for row in rows.iter_mut().map(BorrowMut::borrow_mut) {
        if let (None, Some((us, name, plan, search))) = (row.cudnn_us, &best) {
            row.cudnn_us = Some(*us);
            row.cudnn_variant = Some(name.clone());
            row.cudnn_plan = plan.clone();
            row.cudnn_search = search.clone();
        }
        let both = row.cudnn_us.zip(row.median_us);
        let both = both.filter(|_| !row.is_search_incomplete());
        row.speedup_vs_cudnn = both.map(|(them, us)| them / us);
    }
}

#[cfg(test)]
mod tests {
    use convforge::variants;
    use convforge_check::Data;

    use super::*;
    use crate::measure::COMPLETE;

    /// A row of this variant; without a time it did not pass.
    fn row(name: &str, median_us: Option<f64>) -> Row {
        let contender = variants::find("cpu_direct").unwrap().into();
        let layer = Layer::alone("mb1ic3ih8oc4kh3".parse().unwrap());
        let row = Row::new(
            &layer,
            &contender,
            &Device::cpu(),
            &Options::of(&Device::cpu()),
        );
        let row = Row {
            variant: name.to_owned(),
            plan: Some(format!("plan of {name}")),
            median_us,
            ..row
        };
        match median_us {
            Some(_) => row,
            None => row.ends(Status::Failed, "wrong"),
        }
    }

    #[test]
    fn what_a_pick_chose_is_the_same_as_by_its_own_name() {
        let (device, problem) = (Device::cpu(), "mb1ic2ih5oc2kh3".parse().unwrap());
        let conv = |pick: &str| Conv::new(&device, &problem, &pick.parse().unwrap()).unwrap();
        let rule = conv("rule");
        let others = ["cpu_direct", "cpu_gemm"].map(conv);
        let same = others.iter().filter(|other| is_same(other, &rule));
        assert_eq!(same.map(Conv::name).collect::<Vec<_>>(), [rule.name()]);
        assert!(!is_same(&others[0], &others[1]));
    }

    #[test]
    fn everyone_stands_beside_the_fastest_of_cudnn() {
        let beside = |exact, transform| {
            let mut rows = [
                row("direct_naive", Some(50.0)),
                row("cudnn", exact),
                row("cudnn_transform", transform),
                row("cudnnlike", Some(1.0)),
            ];
            beside_cudnn(&mut rows);
            let [first, ..] = rows;
            let name = first.cudnn_variant.clone().unwrap_or_default();
            assert_eq!(first.cudnn_us.is_some(), first.cudnn_plan.is_some());
            let plan = first.cudnn_plan.unwrap_or_default();
            assert!(plan.ends_with(&name), "{plan}");
            (name, first.speedup_vs_cudnn)
        };
        let named = |name: &str, times| (name.to_owned(), times);
        let (slow, fast) = (Some(200.0), Some(100.0));
        assert_eq!(beside(slow, fast), named("cudnn_transform", Some(2.0)));
        assert_eq!(beside(fast, slow), named("cudnn", Some(2.0)));
        // What did not pass is no yardstick.
        assert_eq!(beside(slow, None), named("cudnn", Some(4.0)));
        assert_eq!(beside(None, fast), named("cudnn_transform", Some(2.0)));
        assert_eq!(beside(None, None), named("", None));
    }

    #[test]
    fn nobody_is_faster_than_a_search_that_was_cut_short() {
        let beside = |search: Option<&str>| {
            let mut rows = [row("direct_naive", Some(50.0)), row("cudnn", Some(100.0))];
            rows[1].cudnn_search = search.map(str::to_owned);
            beside_cudnn(&mut rows);
            let [first, _] = rows;
            assert_eq!(first.cudnn_us, Some(100.0));
            (first.cudnn_search, first.speedup_vs_cudnn)
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(beside(None), (None, Some(2.0)));
        assert_eq!(beside(Some(COMPLETE)), (named(COMPLETE), Some(2.0)));
        let short = "40 plans left out (no time left to run them)";
        assert_eq!(beside(Some(short)), (named(short), None));
    }

    #[test]
    fn a_transform_is_checked_on_all_data_whatever_the_size() {
        let large: Problem = "mb64ic64ih56oc64kh3ph1".parse().unwrap();
        let kinds = |arithmetic| thoroughness(&Device::cpu(), &large, arithmetic).data;
        assert_eq!(kinds(Arithmetic::Exact), [Data::Integer, Data::Normal]);
        assert_eq!(kinds(Arithmetic::Transform), Data::ALL);
    }
}
