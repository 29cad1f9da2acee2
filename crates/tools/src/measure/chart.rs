//! Rows as an SVG chart: one horizontal bar per variant, best first.

use plotters::{prelude::*, style::text_anchor::HPos};

use super::{
    Environment, Row, Status,
    canvas::{
        CUDNN, Canvas, FAINT, FLOOR, INK, LETTER, LINE, MARGIN, SIZE, Scale, WIDTH, about, color,
        failed, legend, remarks, sheet, shown, tick,
    },
    table::{duration, rank},
};
use crate::Result;

/// Distance of bars, and their height.
const STEP: i32 = 28;
const BAR: i32 = 16;
/// Width of a number on the axis.
const LABEL: i32 = 60;
/// Right of the bars, for their numbers.
const NUMBERS: i32 = 300;

/// The rows of one problem as an SVG: medians with whiskers from the tenth to the ninetieth
/// percentile, the floor as a line, cuDNN in a colour of its own; below, what has no time, and why.
pub(super) fn chart(title: &str, rows: &[Row], environment: &Environment) -> Result<String> {
    let mut timed: Vec<&Row> = rows.iter().filter(|row| row.median_us.is_some()).collect();
    let rank = |row: &Row| rank(row.median_us, row.status);
    timed.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let lines = [about(environment), legend(rows, "whiskers")];
    let high = STEP * timed.len() as i32;
    sheet(
        title,
        &lines,
        high + 3 * LINE,
        &remarks(rows),
        |canvas, head| {
            let Some(axis) = Axis::of(&timed) else {
                return Ok(());
            };
            let foot = head + high;
            axis.draw(canvas, head, foot)?;
            for (i, row) in (0..).zip(&timed) {
                axis.bar(canvas, row, head + STEP * i + STEP / 2)?;
            }
            match timed.iter().find_map(|row| row.floor_us) {
                Some(us) => {
                    let x = axis.x(us);
                    canvas.line((x, head - 6), (x, foot), FLOOR.stroke_width(2))
                }
                None => Ok(()),
            }
        },
    )
}

/// From microseconds to pixels.
struct Axis {
    left: i32,
    right: i32,
    scale: Scale,
}

impl Axis {
    /// Room for all bars and their names; none for no bars.
    fn of(timed: &[&Row]) -> Option<Self> {
        let letters = timed.iter().map(|row| row.label().chars().count()).max()?;
        Some(Axis {
            left: MARGIN + ((letters as f64 * LETTER) as i32).min(WIDTH * 2 / 5) + 10,
            right: WIDTH - MARGIN - NUMBERS,
            scale: Scale::of(&shown(timed.iter().copied()))?,
        })
    }

    fn x(&self, us: f64) -> i32 {
        self.left + (self.scale.share(us) * f64::from(self.right - self.left)).round() as i32
    }

    fn draw(&self, canvas: &Canvas, head: i32, foot: i32) -> Result<()> {
        let apart = f64::from(LABEL) / f64::from(self.right - self.left);
        for us in self.scale.ticks(apart) {
            let x = self.x(us);
            canvas.line((x, head), (x, foot), FAINT)?;
            let at = (x, foot + LINE / 2 + 2);
            canvas.text(&tick(us), at, HPos::Center, SIZE - 2)?;
        }
        canvas.line((self.left, head), (self.left, foot), INK)?;
        if self.scale.logarithmic {
            let at = (self.right + 10, foot + LINE / 2 + 2);
            canvas.text("logarithmic scale", at, HPos::Left, SIZE - 2)?;
        }
        Ok(())
    }

    fn bar(&self, canvas: &Canvas, row: &Row, y: i32) -> Result<()> {
        let Some(median) = row.median_us else {
            return Ok(());
        };
        let color = color(row);
        let corners = [(self.left, y - BAR / 2), (self.x(median), y + BAR / 2)];
        let bar = Rectangle::new(corners, color.filled());
        canvas.0.draw(&bar).map_err(failed)?;
        if let (Some(p10), Some(p90)) = (row.p10_us, row.p90_us) {
            let (from, to) = (self.x(p10), self.x(p90));
            canvas.line((from, y), (to, y), INK)?;
            for x in [from, to] {
                canvas.line((x, y - 4), (x, y + 4), INK)?;
            }
        }
        canvas.text(&row.label(), (self.left - 8, y), HPos::Right, SIZE)?;
        let mut numbers = vec![duration(median)];
        numbers.extend(row.floor_us.map(|us| format!("{:.2} x floor", median / us)));
        let speedup = row.speedup_vs_cudnn.filter(|_| color != CUDNN);
        numbers.extend(speedup.map(|times| format!("{times:.2} x cuDNN's speed")));
        if row.status != Status::Passed {
            numbers = vec![row.status.word().to_owned()];
        }
        let at = (self.right + 10, y);
        canvas.text(&numbers.join(", "), at, HPos::Left, SIZE - 2)
    }
}

#[cfg(test)]
mod tests {
    use convforge::{Device, variants};

    use super::*;
    use crate::{
        Contender,
        measure::{Options, compare},
        suite::Layer,
    };

    fn rows() -> Vec<Row> {
        let contenders = variants::all().iter().cloned().map(Contender::from);
        let mut options = Options::of(&Device::cpu());
        options.samples = 5;
        compare(
            &Device::cpu(),
            &Layer::alone("mb1ic2ih6oc3kh3".parse().unwrap()),
            &contenders.collect::<Vec<_>>(),
            &options,
            &Default::default(),
            &mut |_| {},
        )
    }

    #[test]
    fn every_row_is_named_once() {
        let mut rows = rows();
        rows[0].floor_us = Some(0.1);
        let environment = Environment::of(&Device::cpu(), Vec::new());
        let svg = chart("a < b", &rows, &environment).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("a &lt; b"));
        for row in &rows {
            let lines = svg
                .lines()
                .filter(|l| l.split(' ').next() == Some(&row.name()));
            assert_eq!(lines.count(), 1, "{}: {svg}", row.name());
        }
        assert!(chart("none", &[], &environment).is_ok());
    }
}
