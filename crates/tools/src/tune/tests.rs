use convforge::{
    Device, Tuner,
    tuning::{Record, Store},
};

use super::*;
use crate::{
    measure::{self, Options},
    suite::Layer,
};

#[test]
fn a_comparison_is_a_record_and_only_what_is_whole_is_kept() {
    let device = Device::cpu();
    let folder = tempfile::tempdir().unwrap();
    let tuner = Tuner::new(std::time::Duration::ZERO).store(Store::at(folder.path()));
    let layer = Layer::alone("mb1ic2ih5oc2kh3".parse().unwrap());
    let missing = tuner.wanted(&device, &layer.problem).unwrap().missing;
    let options = Options::of(&device);
    let go_on = std::sync::atomic::AtomicBool::new(false);
    let rows = measure::compare(
        &device,
        &layer,
        &contenders(&missing),
        &options,
        &go_on,
        &mut |_| {},
    );
    assert_eq!(rows.len(), missing.len());
    let first = &missing[0];
    let took = line(first, &rows[0]).unwrap();
    assert_eq!(
        (&*took.name, took.outcome.us().is_some()),
        (&*first.name(), true)
    );
    let of = |edit: &dyn Fn(&mut Row)| {
        let mut row = rows[0].clone();
        edit(&mut row);
        line(first, &row).map(|line| line.outcome)
    };
    let interrupted = convforge::Error::Interrupted.to_string();
    assert_eq!(of(&|row| row.reason = Some(interrupted.clone())), None);
    assert_eq!(of(&|row| row.status = Status::Skipped), None);
    assert_eq!(of(&|row| row.status = Status::Failed), Some(Outcome::Wrong));
    assert_eq!(
        of(&|row| row.how = Some(How::Launches)),
        Some(Outcome::Wrong)
    );
}

#[test]
fn of_a_file_everything_is_read_that_is_a_record() {
    let record = |text: &str, name: &str| {
        let mut record = Record::new(&text.parse().unwrap(), "a model", Default::default());
        record.put(format!("{name} 1.000us 0.1% x").parse().unwrap());
        record
    };
    let (one, two) = (
        record("ic3ih8oc4kh3", "cpu_direct"),
        record("ic4ih8oc4kh3", "cpu_no_more"),
    );
    let damaged = record("ic5ih8oc4kh3", "cpu_direct")
        .to_string()
        .replace("1.000", "2.000");
    let later = one.to_string().replace("tuning 1", "tuning 2");
    let read = read(&format!("a remark\n{one}{damaged}{later}{two}behind\n"));
    assert_eq!(read.records, [one, two]);
    assert_eq!((read.foreign, read.foreign_names.len()), (1, 1));
    assert!(read.foreign_names.contains("cpu_no_more"));
    let starts = ["line 1: ", "line 8: ", "line 14: ", "line 26: "];
    assert_eq!(read.notes.len(), starts.len(), "{:?}", read.notes);
    for (note, start) in read.notes.iter().zip(starts) {
        assert!(note.starts_with(start), "{note}");
    }
    assert_eq!(super::read(""), Exchanged::default());
}
