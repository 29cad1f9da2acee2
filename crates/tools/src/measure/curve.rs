//! The configurations of one variant on one problem as an SVG: time against the configuration's
//! number, or bars where configurations have no number.

use std::ops::Range;

use plotters::{
    coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter},
    prelude::*,
    style::text_anchor::HPos,
};

use super::{
    Environment, Row,
    canvas::{
        Canvas, FAINT, FLOOR, INK, LINE, MARGIN, OURS, SIZE, Scale, WIDTH, about, failed, font,
        legend, remarks, sheet, shown, tick,
    },
    chart::chart,
    sweep::{Sweep, name},
    table::duration,
};
use crate::Result;

/// Height of the drawing.
const HIGH: i32 = 420;
/// Least distance of what is written along the axes, as shares of their lengths.
const APART: [f64; 2] = [0.03, 0.05];

const BEST: RGBColor = RGBColor(30, 140, 70);

/// The rows of every configuration of a variant on one problem, the default's first, as an SVG. Where
/// configurations are `key=number`: medians as a line over the numbers, in a band from the tenth to
/// the ninetieth percentile, the fastest green, the default hollow, the floor as a line; otherwise a
/// chart of bars. Below, what has no time, and why.
pub(super) fn curve(title: &str, rows: &[Row], environment: &Environment) -> Result<String> {
    let sweep = Sweep::of(rows);
    let Some(curve) = Curve::of(&sweep, rows) else {
        return chart(title, rows, environment);
    };
    let best_and_default = [("fastest", sweep.best), ("default", sweep.default)];
    let said = best_and_default.into_iter().filter_map(|(word, row)| {
        let time = duration(row?.median_us?);
        Some(format!("{word}: {}, {time}", name(row?)))
    });
    let said: Vec<String> = said.chain(curve.scales()).collect();
    let lines = [about(environment), legend(rows, "band"), said.join("; ")];
    sheet(
        title,
        &lines,
        HIGH + LINE,
        &remarks(rows),
        |canvas, head| curve.draw(canvas, head),
    )
}

/// A configuration's number with its times.
struct Point<'a> {
    number: f64,
    row: &'a Row,
    p10_us: f64,
    median_us: f64,
    p90_us: f64,
}

struct Curve<'a> {
    sweep: &'a Sweep<'a>,
    key: &'a str,
    /// Ascending.
    points: Vec<Point<'a>>,
    numbers: Axis,
    times: Axis,
}

impl<'a> Curve<'a> {
    /// None where configurations have no numbers, or fewer than two have times.
    fn of(sweep: &'a Sweep<'a>, rows: &'a [Row]) -> Option<Self> {
        let (key, numbers) = sweep.numbers.as_ref()?;
        let point = |(number, row): (&u64, &&'a Row)| {
            let median_us = row.median_us?;
            Some(Point {
                number: *number as f64,
                row,
                p10_us: row.p10_us.unwrap_or(median_us),
                median_us,
                p90_us: row.p90_us.unwrap_or(median_us),
            })
        };
        let points: Vec<Point> = numbers.iter().zip(&sweep.rows).filter_map(point).collect();
        if points.len() < 2 {
            return None;
        }
        let ticks: Vec<f64> = points.iter().map(|point| point.number).collect();
        let (numbers, times) = (Scale::of(&ticks)?, Scale::of(&shown(rows))?);
        Some(Curve {
            sweep,
            key,
            points,
            numbers: Axis {
                scale: numbers,
                ticks: numbers.apart(APART[0], &ticks),
                label: |number| number.to_string(),
            },
            times: Axis {
                scale: times,
                ticks: times.ticks(APART[1]),
                label: tick,
            },
        })
    }

    /// What the axes do not say.
    fn scales(&self) -> Option<String> {
        let named = [("times", &self.times), (self.key, &self.numbers)];
        let named = named.iter().filter(|(_, axis)| axis.scale.logarithmic);
        let words: Vec<&str> = named.map(|(word, _)| *word).collect();
        (!words.is_empty()).then(|| format!("{} to a logarithmic scale", words.join(" and ")))
    }

    fn draw(&self, canvas: &Canvas, head: i32) -> Result<()> {
        let (left, right) = (MARGIN, WIDTH - MARGIN);
        let area = canvas.0.clone().shrink((left, head), (right - left, HIGH));
        let mut plot = ChartBuilder::on(&area)
            .margin_top(LINE / 2)
            .margin_right(MARGIN)
            .x_label_area_size(3 * LINE)
            .y_label_area_size(5 * LINE)
            .build_cartesian_2d(self.numbers.clone(), self.times.clone())
            .map_err(failed)?;
        plot.configure_mesh()
            .x_desc(self.key)
            .axis_desc_style(font(HPos::Center, SIZE, &INK))
            .x_label_style(font(HPos::Center, SIZE - 2, &INK))
            .y_label_style(font(HPos::Right, SIZE - 2, &INK))
            .axis_style(INK)
            .bold_line_style(FAINT)
            .draw()
            .map_err(failed)?;

        let line = |time: fn(&Point) -> f64| self.points.iter().map(move |p| (p.number, time(p)));
        let band = line(|p| p.p10_us).chain(line(|p| p.p90_us).rev());
        let band = Polygon::new(band.collect::<Vec<_>>(), OURS.mix(0.2));
        plot.draw_series([band]).map_err(failed)?;
        let medians: Vec<(f64, f64)> = line(|p| p.median_us).collect();
        let medians = PathElement::new(medians, OURS.stroke_width(2));
        plot.draw_series([medians]).map_err(failed)?;
        if let Some(us) = self.points.iter().find_map(|point| point.row.floor_us) {
            let ends = [0.0, self.numbers.scale.most].map(|number| (number, us));
            let floor = PathElement::new(ends, FLOOR.stroke_width(2));
            plot.draw_series([floor]).map_err(failed)?;
        }
        let is = |one: Option<&Row>, row| one.is_some_and(|one| std::ptr::eq(one, row));
        for point in &self.points {
            let best = is(self.sweep.best, point.row);
            let color = if best { BEST } else { OURS };
            let at = (point.number, point.median_us);
            plot.draw_series([Circle::new(at, 5, color.filled())])
                .map_err(failed)?;
            if is(self.sweep.default, point.row) {
                plot.draw_series([Circle::new(at, 3, WHITE.filled())])
                    .map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// A scale with its numbers for plotters.
#[derive(Clone)]
struct Axis {
    scale: Scale,
    ticks: Vec<f64>,
    label: fn(f64) -> String,
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, number: &f64, (from, to): (i32, i32)) -> i32 {
        from + (self.scale.share(*number) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight().allow_light_points() {
            true => Vec::new(),
            false => self.ticks.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.scale.least..self.scale.most
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, number: &f64) -> String {
        (self.label)(*number)
    }
}

#[cfg(test)]
mod tests {
    use convforge::Device;

    use super::*;
    use crate::measure::sweep::tests::example;

    fn svg(configs: &[(&str, Option<f64>)]) -> String {
        let environment = Environment::of(&Device::cpu(), Vec::new());
        curve("a < b", &example(configs), &environment).unwrap()
    }

    #[test]
    fn numbers_make_a_curve() {
        let svg = svg(&[
            ("tile=16", Some(200.0)),
            ("tile=4", Some(400.0)),
            ("tile=8", Some(180.0)),
            ("tile=32", None),
        ]);
        // The three points, and the hole of the default.
        assert_eq!(svg.matches("<circle").count(), 4, "{svg}");
        assert_eq!(svg.matches("<polygon").count(), 1, "{svg}");
        let xs: Vec<&str> = svg
            .lines()
            .filter(|line| line.starts_with("<polyline"))
            .collect();
        assert!(!xs.is_empty());
        for text in [
            "a &lt; b",
            "fastest: tile=8, 180 us; default: tile=16, 200 us",
            "cpu_direct:tile=32 unsupported: needs more",
        ] {
            assert!(svg.contains(text), "{svg}");
        }
    }

    #[test]
    fn what_has_no_numbers_or_one_time_makes_bars() {
        let bars = |svg: &str| !svg.contains("<circle") && svg.contains("whiskers");
        let words = [("block=8x8", Some(2.0)), ("block=4x4", Some(1.0))];
        assert!(bars(&svg(&words)));
        assert!(bars(&svg(&[("tile=4", Some(1.0)), ("tile=8", None)])));
        assert!(bars(&svg(&[("tile=4", None)])));
    }

    #[test]
    fn numbers_far_apart_are_drawn_too() {
        let many: Vec<String> = (0..64).map(|i| format!("images={}", 1 + i * i)).collect();
        let many: Vec<(&str, Option<f64>)> = (1..)
            .zip(&many)
            .map(|(i, config)| (&**config, Some(f64::from(i).powi(3))))
            .collect();
        assert_eq!(svg(&many).matches("<circle").count(), 65);
        assert!(svg(&[("n=0", Some(1.0)), ("n=7", Some(2.0))]).contains("<circle"));
    }
}
