//! What charts share: the sheet with its head and remarks, and the scale of times.

use std::borrow::Cow;

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use textwrap::{Options, WordSplitter, wrap};

use super::{Environment, Row, table::duration};
use crate::{Error, Result};

pub const WIDTH: i32 = 1000;
pub const MARGIN: i32 = 20;
const FONT: &str = "sans-serif";
/// Height of ordinary text.
pub const SIZE: i32 = 14;
/// Width that a letter may take: an SVG does not say how wide its text becomes elsewhere.
pub const LETTER: f64 = 0.6 * SIZE as f64;
/// What plotters divides the height of a font by.
const FONT_UNITS: f64 = 1.24;
/// Distance of lines of text.
pub const LINE: i32 = 20;
/// Numbers of which the largest is so many times the least are drawn to a logarithmic scale.
const LOGARITHMIC: f64 = 15.0;

pub const OURS: RGBColor = RGBColor(46, 110, 180);
pub const INK: RGBColor = RGBColor(30, 30, 30);
pub const FAINT: RGBColor = RGBColor(225, 225, 225);
pub const FLOOR: RGBColor = RGBColor(190, 30, 45);
pub const CUDNN: RGBColor = RGBColor(222, 118, 20);
pub const OTHERS: RGBColor = RGBColor(150, 150, 150);

/// Whose a row is, as a colour.
pub fn color(row: &Row) -> RGBColor {
    match row.family() {
        "cudnn" => CUDNN,
        "cublas" | "cpu" => OTHERS,
        _ => OURS,
    }
}

/// Text of a size, anchored at half its height.
pub fn font(side: HPos, size: i32, color: &RGBColor) -> TextStyle<'static> {
    let style = (FONT, f64::from(size) * FONT_UNITS).into_font();
    style.color(color).pos(Pos::new(side, VPos::Center))
}

pub fn failed(error: impl std::fmt::Display) -> Error {
    Error::Drawing(error.to_string())
}

/// A sheet with a title, lines of text below it, room for `high` pixels of drawing, and remarks at
/// the foot. `draw` is given the canvas and where the drawing begins.
pub fn sheet(
    title: &str,
    lines: &[String],
    high: i32,
    remarks: &[String],
    draw: impl FnOnce(&Canvas, i32) -> Result<()>,
) -> Result<String> {
    let head = MARGIN + (lines.len() as i32 + 1) * LINE + 10;
    let below = head + high;
    let height = below + LINE * remarks.len() as i32 + MARGIN;

    let mut svg = String::new();
    let canvas = Canvas(
        SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area(),
    );
    canvas.0.fill(&WHITE).map_err(failed)?;
    let title_at = (MARGIN, MARGIN + SIZE);
    canvas.text(title, title_at, HPos::Left, SIZE + 4)?;
    for (line, text) in (1..).zip(lines) {
        let at = (MARGIN, title_at.1 + line * LINE + 4);
        canvas.text(text, at, HPos::Left, SIZE - 1)?;
    }
    draw(&canvas, head)?;
    for (i, text) in (0..).zip(remarks) {
        canvas.text(text, (MARGIN, below + LINE * i), HPos::Left, SIZE - 1)?;
    }
    canvas.0.present().map_err(failed)?;
    drop(canvas);
    Ok(svg)
}

pub struct Canvas<'a>(pub DrawingArea<SVGBackend<'a>, Shift>);

impl Canvas<'_> {
    /// Text beside a point, at half its height.
    pub fn text(&self, text: &str, at: (i32, i32), side: HPos, size: i32) -> Result<()> {
        let style = font(side, size, &INK);
        self.0.draw_text(text, &style, at).map_err(failed)
    }

    pub fn line(
        &self,
        from: (i32, i32),
        to: (i32, i32),
        style: impl Into<ShapeStyle>,
    ) -> Result<()> {
        self.0
            .draw(&PathElement::new([from, to], style))
            .map_err(failed)
    }
}

/// Device, driver, libraries and day.
pub fn about(environment: &Environment) -> String {
    let mut words = vec![environment.device.clone()];
    words.extend(environment.driver.iter().map(|v| format!("driver {v}")));
    let libraries = environment.libraries.iter();
    words.extend(libraries.map(|(name, version)| format!("{name} {version}")));
    words.push(environment.day().to_owned());
    words.join(", ")
}

/// What the marks are; `spread` is drawn from the tenth to the ninetieth percentile.
pub fn legend(rows: &[Row], spread: &str) -> String {
    let cold = rows.iter().any(|row| row.cold);
    let cache = if cold { "cold" } else { "warm" };
    let mut text = format!("Median time of a call, {cache} cache; {spread}: p10 to p90");
    if rows.iter().any(|row| row.floor_us.is_some()) {
        text += "; red line: floor";
    }
    if rows.iter().any(|row| row.cudnn_us.is_some()) {
        text += "; orange: cuDNN";
    }
    text
}

/// What has no time, in lines that fit.
pub fn remarks(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let letters = (f64::from(WIDTH - 2 * MARGIN) / (LETTER * 0.93)) as usize;
    let options = Options::new(letters)
        .subsequent_indent("    ")
        .word_splitter(WordSplitter::NoHyphenation);
    for row in rows.iter().filter(|row| row.median_us.is_none()) {
        let reason = row.reason.as_deref().unwrap_or("not timed");
        let text = format!("{} {}: {reason}", row.name(), row.status.word());
        lines.extend(wrap(&text, &options).into_iter().map(Cow::into_owned));
    }
    lines
}

/// Every time that a chart of these rows shows.
pub fn shown<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<f64> {
    let ends = |row: &Row| [row.floor_us, row.median_us, row.p10_us, row.p90_us];
    rows.into_iter().flat_map(ends).flatten().collect()
}

/// A time on an axis.
pub fn tick(us: f64) -> String {
    match us {
        0.0 => "0".to_owned(),
        us => duration(us),
    }
}

/// From numbers to shares of a chart's side: from zero or, where they differ much, logarithmic.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub least: f64,
    pub most: f64,
    pub logarithmic: bool,
}

impl Scale {
    /// Room for all of the numbers; none where there are none.
    pub fn of(numbers: &[f64]) -> Option<Self> {
        let numbers = || numbers.iter().copied().filter(|number| *number > 0.0);
        let (least, most) = (numbers().reduce(f64::min)?, numbers().reduce(f64::max)?);
        let logarithmic = most > LOGARITHMIC * least;
        Some(Scale {
            least: if logarithmic { least / 1.6 } else { 0.0 },
            most: most * 1.02,
            logarithmic,
        })
    }

    /// Room for all of the numbers and around them, logarithmic however near they are.
    pub fn logarithmic(numbers: &[f64]) -> Option<Self> {
        let scale = Scale::of(numbers)?;
        let least = numbers.iter().copied().filter(|number| *number > 0.0);
        Some(Scale {
            least: least.fold(f64::INFINITY, f64::min) / 2.0,
            most: scale.most * 2.0,
            logarithmic: true,
        })
    }

    /// 0 for the least, 1 for the most.
    pub fn share(&self, number: f64) -> f64 {
        match self.logarithmic {
            true => (number.max(self.least) / self.least).ln() / (self.most / self.least).ln(),
            false => number / self.most,
        }
    }

    /// Those of ascending numbers that are at least so much of the side apart.
    pub fn apart(&self, share: f64, numbers: &[f64]) -> Vec<f64> {
        let mut kept: Vec<f64> = Vec::new();
        for number in numbers {
            let last = kept.last().map_or(f64::MIN, |last| self.share(*last));
            if self.share(*number) >= last + share {
                kept.push(*number);
            }
        }
        kept
    }

    /// Round numbers, at least so much of the side apart.
    pub fn ticks(&self, share: f64) -> Vec<f64> {
        self.apart(share, &self.round_numbers())
    }

    fn round_numbers(&self) -> Vec<f64> {
        let decades = (-12..13).map(|power| 10f64.powi(power));
        let mut round = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * d));
        if self.logarithmic {
            let inside = |number: &f64| (self.least..=self.most).contains(number);
            return round.filter(inside).collect();
        }
        let step = round.find(|step| *step >= self.most / 5.0);
        let step = step.unwrap_or(self.most);
        let steps = (0..).map(|i| f64::from(i) * step);
        steps.take_while(|number| *number <= self.most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        let linear = Scale::of(&[500.0, 852.0]).unwrap();
        assert!(!linear.logarithmic);
        assert_eq!(linear.ticks(0.1), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!([0.0, linear.most].map(|us| linear.share(us)), [0.0, 1.0]);

        let logarithmic = Scale::of(&[48.0, 1150.0]).unwrap();
        assert!(logarithmic.logarithmic);
        assert_eq!(logarithmic.ticks(0.1), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        let ends = [1.0, logarithmic.most].map(|us| logarithmic.share(us));
        assert_eq!(ends, [0.0, 1.0]);
        assert!(Scale::of(&[]).is_none());

        let near = Scale::logarithmic(&[2.8e-8, 2.9e-8]).unwrap();
        let spelled: Vec<String> = near.ticks(0.1).iter().map(|v| format!("{v:.0e}")).collect();
        assert_eq!(spelled, ["2e-8", "5e-8"]);
    }
}
