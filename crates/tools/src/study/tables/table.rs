//! A table for people, and what goes into one.

use crate::measure::{Lines, Look};

/// One table of a study.
#[derive(Clone, Debug)]
pub struct Table<'a> {
    /// What it is called.
    pub title: String,
    pub(super) lines: Lines<'a>,
    /// A variant, and the times of its kernels.
    pub(super) stages: Vec<(String, String)>,
}

impl Table<'_> {
    /// For a terminal, and below it why some have no time.
    pub fn text(&self, look: Look) -> String {
        let stages = self.stages.iter();
        let stages = stages.map(|(name, stages)| {
            let text = format!("{name}: {stages}");
            format!("\n{}", look.paragraph("  ", &text))
        });
        self.lines.text(look) + &stages.collect::<String>()
    }

    /// In Markdown.
    pub fn markdown(&self) -> String {
        let stages = self.stages.iter().enumerate().map(|(i, (name, stages))| {
            let gap = if i == 0 { "\n" } else { "" };
            format!("{gap}- `{name}`: {stages}\n")
        });
        self.lines.markdown() + &stages.collect::<String>()
    }
}

/// Rows that are alike together, in the order of the first of each.
pub(super) fn groups<R>(rows: &[R], alike: impl Fn(&R, &R) -> bool) -> Vec<Vec<&R>> {
    let mut groups: Vec<Vec<&R>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| alike(group[0], row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}
