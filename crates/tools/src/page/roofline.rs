//! A layer's roofline: what memory and arithmetic allow, and every variant as a point below.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{GROUND, LINE, QUIET, WIDTH, sheet, shortened, spread, text, width};
use crate::{
    Result,
    measure::{
        canvas::{Canvas, FAINT, FLOOR, INK, Scale, failed},
        table::significant,
    },
};

const HEAD: i32 = 12;
const LEFT: i32 = 46;
const LETTERS: usize = 25;
/// Least distances of ticks.
const APART: (i32, i32) = (36, 24);

/// A variant.
pub struct Point {
    pub name: String,
    pub color: RGBColor,
    /// Operations per byte.
    pub intensity: f64,
    /// Whether its bytes were counted; otherwise they are the problem's fewest.
    pub counted: bool,
    /// 10^12 operations per second.
    pub tflops: f64,
}

/// What the device did at best.
pub struct Roof {
    /// 10^12 bytes per second.
    pub memory: f64,
    /// What it is called, and 10^12 operations per second; the first is the problem's own.
    pub arithmetic: Vec<(String, f64)>,
}

/// Points under a roof, both axes logarithmic; none without points.
pub fn roofline(title: &str, roof: &Roof, points: &[Point]) -> Result<Option<Markup>> {
    let bounds = |numbers: &[f64]| {
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = numbers.iter().copied().fold(0.0, f64::max);
        [least, most]
    };
    let ridges = roof.arithmetic.iter().map(|(_, rate)| rate / roof.memory);
    let across: Vec<f64> = points.iter().map(|p| p.intensity).chain(ridges).collect();
    let rates = roof.arithmetic.iter().map(|(_, rate)| *rate);
    let up: Vec<f64> = points
        .iter()
        .map(|point| point.tflops)
        .chain(rates)
        .collect();
    let ([west, east], [south, north]) = (bounds(&across), bounds(&up));
    if points.is_empty() || west <= 0.0 || south <= 0.0 {
        return Ok(None);
    }
    let logarithmic = |least, most| Scale {
        least,
        most,
        logarithmic: true,
    };
    let (across, up) = (
        logarithmic(west / 8.0, east * 2.5),
        logarithmic(south / 2.0, north * 1.5),
    );

    let mut labels: Vec<(String, f64, f64, RGBColor)> = points
        .iter()
        .map(|p| (shortened(&p.name, LETTERS), p.intensity, p.tflops, p.color))
        .collect();
    for (name, rate) in &roof.arithmetic {
        let label = format!("{name} {} TFLOP/s", significant(*rate));
        labels.push((label, across.most, *rate, FLOOR));
    }
    let room = labels
        .iter()
        .map(|(name, ..)| width(name))
        .max()
        .unwrap_or(0);
    let right = WIDTH - room - 26;
    let foot = HEAD + (LINE * labels.len() as i32).max(300);
    let x = |v: f64| LEFT + (across.share(v) * f64::from(right - LEFT)).round() as i32;
    let y = |v: f64| foot - (up.share(v) * f64::from(foot - HEAD)).round() as i32;

    let drawing = sheet(title, foot + 2 * LINE + 8, |canvas| {
        axes(canvas, (&across, &up), (right, foot), &x, &y)?;
        // Where the roof enters the drawing: from the left, or from below.
        let entry = across.least.max(up.least / roof.memory);
        for (i, (_, rate)) in (0..).zip(&roof.arithmetic) {
            let ridge = rate / roof.memory;
            let color = if i == 0 { FLOOR } else { QUIET };
            let style = color.stroke_width(if i == 0 { 2 } else { 1 });
            canvas.line((x(ridge), y(*rate)), (right, y(*rate)), style)?;
            canvas.line(
                (x(entry), y(entry * roof.memory)),
                (x(ridge), y(*rate)),
                style,
            )?;
        }
        let memory = format!("memory {} TB/s", significant(roof.memory));
        let (from, to) = (x(entry).max(LEFT) + 6, x(entry) + 6 + width(&memory));
        let share = f64::from(to - LEFT) / f64::from(right - LEFT);
        let over = across.least * (across.most / across.least).powf(share) * roof.memory;
        let above = y(over.min(north)).max(HEAD) - LINE;
        text(canvas, &memory, (from, above.max(HEAD)), HPos::Left, &FLOOR)?;

        let wanted: Vec<i32> = labels.iter().map(|(_, _, tflops, _)| y(*tflops)).collect();
        let places = spread(&wanted, LINE, (HEAD, foot));
        for ((name, intensity, tflops, color), place) in labels.iter().zip(places) {
            let point = (x(*intensity).min(right), y(*tflops));
            let path = [point, (right + 4, place), (right + 18, place)];
            let path = PathElement::new(path, color.mix(0.35));
            canvas.0.draw(&path).map_err(failed)?;
            text(canvas, name, (right + 22, place), HPos::Left, &INK)?;
        }
        for point in points {
            let at = (x(point.intensity), y(point.tflops));
            canvas
                .0
                .draw(&Circle::new(at, 4, point.color.filled()))
                .map_err(failed)?;
            if !point.counted {
                canvas
                    .0
                    .draw(&Circle::new(at, 2, GROUND.filled()))
                    .map_err(failed)?;
            }
        }
        Ok(())
    });
    drawing.map(Some)
}

fn axes(
    canvas: &Canvas,
    (across, up): (&Scale, &Scale),
    (right, foot): (i32, i32),
    x: &impl Fn(f64) -> i32,
    y: &impl Fn(f64) -> i32,
) -> Result<()> {
    for v in up.ticks(f64::from(APART.1) / f64::from(foot - HEAD)) {
        canvas.line((LEFT, y(v)), (right, y(v)), FAINT)?;
        text(
            canvas,
            &v.to_string(),
            (LEFT - 5, y(v)),
            HPos::Right,
            &QUIET,
        )?;
    }
    for v in across.ticks(f64::from(APART.0) / f64::from(right - LEFT)) {
        canvas.line((x(v), HEAD), (x(v), foot), FAINT)?;
        text(
            canvas,
            &v.to_string(),
            (x(v), foot + LINE / 2 + 3),
            HPos::Center,
            &QUIET,
        )?;
    }
    let at = (4, foot + LINE + LINE / 2 + 4);
    text(
        canvas,
        "TFLOP/s over FLOP per byte, both to a log scale",
        at,
        HPos::Left,
        &QUIET,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::canvas::OURS;

    #[test]
    fn every_variant_is_a_point_with_its_name() {
        let point = |i: i32| Point {
            name: format!("variant_{i}"),
            color: OURS,
            intensity: 11.5,
            counted: i % 2 == 0,
            tflops: 0.5 * f64::from(i),
        };
        let points: Vec<Point> = (1..30).map(point).collect();
        let roof = Roof {
            memory: 4.5,
            arithmetic: vec![("fp32".to_owned(), 65.9)],
        };
        let svg = roofline("t", &roof, &points)
            .unwrap()
            .unwrap()
            .into_string();
        for point in &points {
            assert_eq!(
                svg.matches(&format!(">{}<", point.name)).count(),
                1,
                "{svg}"
            );
        }
        // Those that were not counted are hollow.
        assert_eq!(svg.matches("<circle").count(), 29 + 15);
        assert!(
            svg.contains("fp32 65.9 TFLOP/s") && svg.contains("memory 4.50 TB/s"),
            "{svg}"
        );
        assert!(roofline("t", &roof, &[]).unwrap().is_none());
    }
}
