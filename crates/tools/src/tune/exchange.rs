//! Tuning results of several problems in one file: the texts of their records, one after the other.

use std::collections::BTreeSet;

use convforge::{tuning::Record, variants};

/// What a text of records has.
#[derive(Debug, Default, PartialEq)]
pub struct Exchanged {
    /// The records that can be read.
    pub records: Vec<Record>,
    /// Why others cannot.
    pub notes: Vec<String>,
    /// Lines of variants that this program does not have. They are kept: another one may.
    pub foreign: usize,
    /// Those variants' names.
    pub foreign_names: BTreeSet<String>,
}

/// How records begin, of this version of their form or another, and how their last line does.
const HEAD: &str = "convforge tuning ";
const LAST: &str = "sum ";

/// Reads as much of a text as is records. What stands between them is a note, and spoils none.
pub fn read(text: &str) -> Exchanged {
    let mut read = Exchanged::default();
    let mut part = String::new();
    let mut begin = 1;
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with(HEAD) {
            read.take(begin, &part);
            part.clear();
        }
        if part.is_empty() {
            begin = number;
        }
        part += line;
        part += "\n";
        if line.starts_with(LAST) {
            read.take(begin, &part);
            part.clear();
        }
    }
    read.take(begin, &part);
    read
}

impl Exchanged {
    /// A record that begins in this line, or why it is none.
    fn take(&mut self, begin: usize, part: &str) {
        if part.trim().is_empty() {
            return;
        }
        match part.parse::<Record>() {
            Ok(record) => self.take_record(record),
            Err(why) => self.notes.push(format!("line {begin}: {why}")),
        }
    }

    fn take_record(&mut self, record: Record) {
        for line in &record.lines {
            let name = line.name.split(':').next().unwrap_or_default();
            if variants::find(name).is_err() {
                self.foreign += 1;
                self.foreign_names.insert(name.to_owned());
            }
        }
        self.records.push(record);
    }
}
