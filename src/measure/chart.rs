//! Rows as an SVG chart: one horizontal bar per variant, best first.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    Environment, Row, Status,
    table::{duration, rank},
};
use crate::{Error, Result};

const WIDTH: i32 = 1000;
const MARGIN: i32 = 20;
const FONT: &str = "sans-serif";
/// Height of ordinary text.
const SIZE: i32 = 14;
/// Width that a letter may take: an SVG does not say how wide its text becomes elsewhere.
const LETTER: f64 = 0.6 * SIZE as f64;
/// What plotters divides the height of a font by.
const FONT_UNITS: f64 = 1.24;
/// Distance of lines of text, and of bars.
const LINE: i32 = 20;
const STEP: i32 = 28;
const BAR: i32 = 16;
/// Width of a number on the axis.
const LABEL: i32 = 60;
/// Right of the bars, for their numbers.
const NUMBERS: i32 = 300;
/// Bars of which the longest is so many times the shortest are drawn to a logarithmic scale.
const LOGARITHMIC: f64 = 15.0;

const OURS: RGBColor = RGBColor(46, 110, 180);
const CUDNN: RGBColor = RGBColor(222, 118, 20);
const OTHERS: RGBColor = RGBColor(150, 150, 150);
const INK: RGBColor = RGBColor(30, 30, 30);
const FAINT: RGBColor = RGBColor(225, 225, 225);
const FLOOR: RGBColor = RGBColor(190, 30, 45);

/// The rows of one problem as an SVG: medians with whiskers from the tenth to the ninetieth
/// percentile, the floor as a line, cuDNN in a colour of its own; below, what has no time, and why.
///
/// # Errors
/// None that drawing into memory is known to have.
pub fn chart(title: &str, rows: &[Row], environment: &Environment) -> Result<String> {
    let mut timed: Vec<&Row> = rows.iter().filter(|row| row.median_us.is_some()).collect();
    timed.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    let remarks = remarks(rows);
    let head = MARGIN + 3 * LINE + 10;
    let foot = head + STEP * timed.len() as i32;
    let below = foot + 3 * LINE;
    let height = below + LINE * remarks.len() as i32 + MARGIN;

    let mut svg = String::new();
    let canvas = Canvas(
        SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area(),
    );
    canvas.0.fill(&WHITE).map_err(failed)?;
    let title_at = (MARGIN, MARGIN + SIZE);
    canvas.text(title, title_at, HPos::Left, SIZE + 4, &INK)?;
    let lines = [about(environment), legend(rows)];
    for (line, text) in (1..).zip(lines) {
        let at = (MARGIN, title_at.1 + line * LINE + 4);
        canvas.text(&text, at, HPos::Left, SIZE - 1, &INK)?;
    }
    if let Some(scale) = Scale::of(&timed) {
        canvas.axis(&scale, head, foot)?;
        for (i, row) in (0..).zip(&timed) {
            canvas.bar(&scale, row, head + STEP * i + STEP / 2)?;
        }
        canvas.floor(
            &scale,
            timed.iter().find_map(|row| row.floor_us),
            head,
            foot,
        )?;
    }
    for (i, text) in (0..).zip(&remarks) {
        canvas.text(text, (MARGIN, below + LINE * i), HPos::Left, SIZE - 1, &INK)?;
    }
    canvas.0.present().map_err(failed)?;
    drop(canvas);
    Ok(svg)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Check(format!("the chart could not be drawn: {error}"))
}

fn about(environment: &Environment) -> String {
    let mut words = vec![environment.device.clone()];
    words.extend(environment.driver.iter().map(|v| format!("driver {v}")));
    let libraries = environment.libraries.iter();
    words.extend(libraries.map(|(name, version)| format!("{name} {version}")));
    words.extend(environment.date.split('T').next().map(str::to_owned));
    words.join(", ")
}

fn legend(rows: &[Row]) -> String {
    let cold = rows.iter().any(|row| row.cold);
    let cache = if cold { "cold" } else { "warm" };
    let mut text = format!("Median time of a call, {cache} cache; whiskers: p10 to p90");
    if rows.iter().any(|row| row.floor_us.is_some()) {
        text += "; red line: floor";
    }
    if rows.iter().any(|row| row.cudnn_us.is_some()) {
        text += "; orange: cuDNN";
    }
    text
}

/// What has no time, in lines that fit.
fn remarks(rows: &[Row]) -> Vec<String> {
    let mut lines = Vec::new();
    let letters = (f64::from(WIDTH - 2 * MARGIN) / (LETTER * 0.93)) as usize;
    for row in rows.iter().filter(|row| row.median_us.is_none()) {
        let reason = row.reason.as_deref().unwrap_or("not timed");
        let text = format!("{} {}: {reason}", row.name(), row.status.word());
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + word.chars().count() >= letters {
                lines.push(std::mem::replace(&mut line, "    ".to_owned()));
            }
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.extend(word.chars().take(letters));
        }
        lines.push(line);
    }
    lines
}

/// From microseconds to pixels.
struct Scale {
    left: i32,
    right: i32,
    least: f64,
    most: f64,
    logarithmic: bool,
}

impl Scale {
    /// Room for all bars and their names; none for no bars.
    fn of(timed: &[&Row]) -> Option<Self> {
        let ends = |row: &&Row| [row.floor_us, row.median_us, row.p10_us, row.p90_us];
        let times = || timed.iter().flat_map(ends).flatten().filter(|us| *us > 0.0);
        let (least, most) = (times().reduce(f64::min)?, times().reduce(f64::max)?);
        let letters = timed.iter().map(|row| row.name().chars().count()).max()?;
        let logarithmic = most > LOGARITHMIC * least;
        Some(Scale {
            left: MARGIN + ((letters as f64 * LETTER) as i32).min(WIDTH * 2 / 5) + 10,
            right: WIDTH - MARGIN - NUMBERS,
            least: if logarithmic { least / 1.6 } else { 0.0 },
            most: most * 1.02,
            logarithmic,
        })
    }

    fn x(&self, us: f64) -> i32 {
        let share = match self.logarithmic {
            true => (us.max(self.least) / self.least).ln() / (self.most / self.least).ln(),
            false => us / self.most,
        };
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    /// Round numbers, far enough apart for their labels.
    fn ticks(&self) -> Vec<f64> {
        let mut ticks: Vec<f64> = Vec::new();
        for us in self.round_numbers() {
            let last = ticks.last().map_or(i32::MIN, |last| self.x(*last) + LABEL);
            if self.x(us) >= last {
                ticks.push(us);
            }
        }
        ticks
    }

    fn round_numbers(&self) -> Vec<f64> {
        let decades = (-3..13).map(|power| 10f64.powi(power));
        let mut round = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * d));
        if self.logarithmic {
            let inside = |us: &f64| (self.least..=self.most).contains(us);
            return round.filter(inside).collect();
        }
        let step = round.find(|step| *step >= self.most / 5.0);
        let step = step.unwrap_or(self.most);
        let steps = (0..).map(|i| f64::from(i) * step);
        steps.take_while(|us| *us <= self.most).collect()
    }
}

struct Canvas<'a>(DrawingArea<SVGBackend<'a>, plotters::coord::Shift>);

impl Canvas<'_> {
    /// Text beside a point, at half its height.
    fn text(
        &self,
        text: &str,
        at: (i32, i32),
        side: HPos,
        size: i32,
        color: &RGBColor,
    ) -> Result<()> {
        let style = (FONT, f64::from(size) * FONT_UNITS)
            .into_font()
            .color(color);
        let style = style.pos(Pos::new(side, VPos::Center));
        self.0.draw_text(text, &style, at).map_err(failed)
    }

    fn line(&self, from: (i32, i32), to: (i32, i32), style: impl Into<ShapeStyle>) -> Result<()> {
        self.0
            .draw(&PathElement::new([from, to], style))
            .map_err(failed)
    }

    fn axis(&self, scale: &Scale, head: i32, foot: i32) -> Result<()> {
        for us in scale.ticks() {
            let x = scale.x(us);
            let label = if us > 0.0 {
                duration(us)
            } else {
                "0".to_owned()
            };
            self.line((x, head), (x, foot), FAINT)?;
            let at = (x, foot + LINE / 2 + 2);
            self.text(&label, at, HPos::Center, SIZE - 2, &INK)?;
        }
        self.line((scale.left, head), (scale.left, foot), INK)?;
        if scale.logarithmic {
            let at = (scale.right + 10, foot + LINE / 2 + 2);
            self.text("logarithmic scale", at, HPos::Left, SIZE - 2, &INK)?;
        }
        Ok(())
    }

    fn bar(&self, scale: &Scale, row: &Row, y: i32) -> Result<()> {
        let Some(median) = row.median_us else {
            return Ok(());
        };
        let color = match row.family() {
            "cudnn" => CUDNN,
            "cublas" | "cpu" => OTHERS,
            _ => OURS,
        };
        let corners = [(scale.left, y - BAR / 2), (scale.x(median), y + BAR / 2)];
        let bar = Rectangle::new(corners, color.filled());
        self.0.draw(&bar).map_err(failed)?;
        if let (Some(p10), Some(p90)) = (row.p10_us, row.p90_us) {
            let (from, to) = (scale.x(p10), scale.x(p90));
            self.line((from, y), (to, y), INK)?;
            for x in [from, to] {
                self.line((x, y - 4), (x, y + 4), INK)?;
            }
        }
        self.text(&row.name(), (scale.left - 8, y), HPos::Right, SIZE, &INK)?;
        let mut numbers = vec![duration(median)];
        numbers.extend(row.floor_us.map(|us| format!("{:.2} x floor", median / us)));
        let speedup = row.speedup_vs_cudnn.filter(|_| color != CUDNN);
        numbers.extend(speedup.map(|times| format!("{times:.2} x cuDNN's speed")));
        if row.status != Status::Passed {
            numbers = vec![row.status.word().to_owned()];
        }
        let at = (scale.right + 10, y);
        self.text(&numbers.join(", "), at, HPos::Left, SIZE - 2, &INK)
    }

    fn floor(&self, scale: &Scale, floor: Option<f64>, head: i32, foot: i32) -> Result<()> {
        let Some(x) = floor.map(|us| scale.x(us)) else {
            return Ok(());
        };
        self.line((x, head - 6), (x, foot), FLOOR.stroke_width(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Device,
        measure::{Contender, Options, compare},
        suite::Layer,
        variant,
    };

    fn rows() -> Vec<Row> {
        let all = variant::all().iter();
        let contenders = all.map(|v| Contender {
            variant: v.clone(),
            config: 0,
        });
        let mut options = Options::of(&Device::Cpu);
        options.samples = 5;
        compare(
            &Device::Cpu,
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
        let environment = Environment::of(&Device::Cpu, Vec::new());
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

    #[test]
    fn ticks_are_round_and_inside() {
        let scale = |least, most, logarithmic| Scale {
            left: 100,
            right: 700,
            least,
            most,
            logarithmic,
        };
        let linear = scale(0.0, 870.0, false);
        assert_eq!(linear.ticks(), [0.0, 200.0, 400.0, 600.0, 800.0]);
        assert_eq!([linear.x(0.0), linear.x(870.0)], [100, 700]);
        let logarithmic = scale(30.0, 1200.0, true);
        assert_eq!(logarithmic.ticks(), [50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert_eq!([logarithmic.x(1.0), logarithmic.x(1200.0)], [100, 700]);
    }
}
