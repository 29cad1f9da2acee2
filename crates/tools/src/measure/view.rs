//! How rows are shown: variants side by side, or the configurations of one as a sweep.

use serde::{Deserialize, Serialize};

use super::{Environment, Look, Row, chart, curve, sweep, table};
use crate::{Result, suite::Layer};

/// What rows were measured for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum View {
    /// Variants side by side: one table and chart per problem.
    #[default]
    Compare,
    /// The configurations of a variant: one table and chart per problem and variant.
    Sweep,
}

/// Rows of one problem that belong together.
#[derive(Clone, Debug)]
pub struct Part {
    /// What they were measured for.
    pub view: View,
    /// What the table is called.
    pub title: String,
    /// The rows.
    pub rows: Vec<Row>,
}

impl View {
    /// The subcommand that measures so.
    pub fn word(self) -> &'static str {
        match self {
            View::Compare => "compare",
            View::Sweep => "sweep",
        }
    }

    /// What the table of a problem is called in which a variant stands.
    pub fn title(self, layer: &Layer, variant: &str) -> String {
        match self {
            View::Compare => layer.title(),
            View::Sweep => format!("{} {variant}", layer.title()),
        }
    }

    /// The rows of one problem, table by table.
    pub fn parts(self, layer: &Layer, rows: &[Row]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for row in rows {
            let title = self.title(layer, &row.variant);
            match parts.iter_mut().find(|part| part.title == title) {
                Some(part) => part.rows.push(row.clone()),
                None => parts.push(Part {
                    view: self,
                    title,
                    rows: vec![row.clone()],
                }),
            }
        }
        parts
    }
}

impl Part {
    /// The rows as a table, and below it why some have no time: of variants the best first, of
    /// configurations in the order of their numbers.
    pub fn table(&self, look: Look) -> String {
        self.lines().text(look)
    }

    /// The table in Markdown.
    pub fn markdown(&self) -> String {
        self.lines().markdown()
    }

    /// The rows as an SVG: bars, best first; of configurations that are numbers a curve. Below, what
    /// has no time, and why.
    ///
    /// # Errors
    /// None that drawing into memory is known to have.
    pub fn chart(&self, environment: &Environment) -> Result<String> {
        match self.view {
            View::Compare => chart::chart(&self.title, &self.rows, environment),
            View::Sweep => curve::curve(&self.title, &self.rows, environment),
        }
    }

    fn lines(&self) -> table::Lines<'_> {
        match self.view {
            View::Compare => table::compared(&self.rows),
            View::Sweep => sweep::Sweep::of(&self.rows).lines(),
        }
    }
}
