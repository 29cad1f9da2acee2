//! Curves over a number, each named at its right end.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{LINE, QUIET, WIDTH, sheet, shortened, spread, text, width};
use crate::{
    Result,
    measure::canvas::{Canvas, FAINT, INK, Scale, failed, tick},
};

const HEAD: i32 = 10;
/// Where the drawing ends below, unless more names have to stand beside it.
const FOOT: i32 = 250;
const LEFT: i32 = 70;
const LETTERS: usize = 24;
/// Least distances of ticks.
const APART: (i32, i32) = (36, 26);

/// A curve; where it is the only one it needs no name.
pub struct Curve {
    pub name: String,
    pub color: RGBColor,
    /// The number below and what is drawn over it, ascending.
    pub points: Vec<(f64, f64)>,
    /// From the tenth to the ninetieth percentile of each point; empty where there is none.
    pub band: Vec<[f64; 2]>,
}

/// A time that holds for all numbers.
pub struct Level {
    pub name: String,
    pub color: RGBColor,
    pub us: f64,
}

/// What is drawn over a number.
#[derive(Clone, Copy, PartialEq)]
pub enum Over {
    /// Microseconds, to a log scale where they differ much.
    Time,
    /// Errors, to a log scale.
    Error,
}

impl Over {
    fn scale(self, numbers: &[f64]) -> Option<Scale> {
        match self {
            Over::Time => Scale::of(numbers),
            Over::Error => Scale::logarithmic(numbers),
        }
    }

    fn tick(self, number: f64) -> String {
        match self {
            Over::Time => tick(number),
            Over::Error => format!("{number:.0e}"),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Over::Time => "time",
            Over::Error => "error",
        }
    }
}

/// Curves of something over numbers called `what`; none without points.
pub fn lines(
    title: &str,
    (over, what): (Over, &str),
    curves: &[Curve],
    levels: &[Level],
) -> Result<Option<Markup>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let mut numbers: Vec<f64> = points().map(|(number, _)| *number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let bands = curves.iter().flat_map(|curve| curve.band.iter().flatten());
    let times = points().map(|(_, us)| us).chain(bands);
    let times: Vec<f64> = times
        .copied()
        .chain(levels.iter().map(|level| level.us))
        .collect();
    let (Some(across), Some(up)) = (Scale::of(&numbers), over.scale(&times)) else {
        return Ok(None);
    };

    let ends = curves
        .iter()
        .filter_map(|curve| Some((&curve.name, *curve.points.last()?, curve.color)));
    let marks = levels
        .iter()
        .map(|level| (&level.name, (f64::INFINITY, level.us), level.color));
    let labels: Vec<(String, (f64, f64), RGBColor)> = ends
        .chain(marks)
        .filter(|(name, ..)| !name.is_empty())
        .map(|(name, end, color)| (shortened(name, LETTERS), end, color))
        .collect();
    let room = labels
        .iter()
        .map(|(name, ..)| width(name))
        .max()
        .unwrap_or(0);
    let right = WIDTH - room - 16;
    let foot = FOOT.max(HEAD + LINE * labels.len() as i32);
    let x = |number: f64| LEFT + (across.share(number) * f64::from(right - LEFT)).round() as i32;
    let y = |us: f64| foot - (up.share(us) * f64::from(foot - HEAD)).round() as i32;

    let drawing = sheet(title, foot + 2 * LINE + 8, |canvas| {
        for us in up.ticks(f64::from(APART.1) / f64::from(foot - HEAD)) {
            canvas.line((LEFT, y(us)), (right, y(us)), FAINT)?;
            let at = (LEFT - 6, y(us));
            text(canvas, &over.tick(us), at, HPos::Right, &QUIET)?;
        }
        for number in across.apart(f64::from(APART.0) / f64::from(right - LEFT), &numbers) {
            canvas.line((x(number), foot), (x(number), foot + 4), QUIET)?;
            let at = (x(number), foot + LINE / 2 + 5);
            text(canvas, &number.to_string(), at, HPos::Center, &QUIET)?;
        }
        canvas.line((LEFT, foot), (right, foot), QUIET)?;
        let remark = match (across.logarithmic, up.logarithmic) {
            (false, false) => what.to_owned(),
            (true, false) => format!("{what}, to a log scale"),
            (false, true) => format!("{what} ({} to a log scale)", over.word()),
            (true, true) => format!("{what}, as {} to a log scale", over.word()),
        };
        let at = ((LEFT + right) / 2, foot + LINE + LINE / 2 + 5);
        text(canvas, &remark, at, HPos::Center, &QUIET)?;

        for Level { us, color, .. } in levels {
            canvas.line((LEFT, y(*us)), (right, y(*us)), *color)?;
        }
        for curve in curves {
            draw(canvas, curve, &x, &y)?;
        }
        let wanted: Vec<i32> = labels.iter().map(|(_, (_, us), _)| y(*us)).collect();
        // None so low that it meets the last number below.
        let places = spread(&wanted, LINE, (HEAD, foot - LINE / 2));
        let last = numbers.last().copied().unwrap_or_default();
        for (((name, (end, _), color), wanted), place) in labels.iter().zip(&wanted).zip(places) {
            if *end < last {
                let style = color.mix(0.35);
                canvas.line((x(*end), *wanted), (right + 9, place), style)?;
            } else if (place - wanted).abs() > 2 {
                canvas.line((right + 1, *wanted), (right + 9, place), *color)?;
            }
            text(canvas, name, (right + 12, place), HPos::Left, &INK)?;
        }
        Ok(())
    });
    drawing.map(Some)
}

fn draw(
    canvas: &Canvas,
    curve: &Curve,
    x: &impl Fn(f64) -> i32,
    y: &impl Fn(f64) -> i32,
) -> Result<()> {
    let numbers = || curve.points.iter().map(|(number, _)| x(*number));
    let low = numbers().zip(curve.band.iter().map(|band| y(band[0])));
    let high = numbers().zip(curve.band.iter().map(|band| y(band[1])));
    let mut band: Vec<(i32, i32)> = low.collect();
    band.extend(high.collect::<Vec<_>>().into_iter().rev());
    if !band.is_empty() {
        let band = Polygon::new(band, curve.color.mix(0.2));
        canvas.0.draw(&band).map_err(failed)?;
    }
    let points: Vec<(i32, i32)> = curve.points.iter().map(|(n, us)| (x(*n), y(*us))).collect();
    let path = PathElement::new(points.clone(), curve.color.stroke_width(2));
    canvas.0.draw(&path).map_err(failed)?;
    for point in points {
        let dot = Circle::new(point, 3, curve.color.filled());
        canvas.0.draw(&dot).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::canvas::{FLOOR, OURS};

    #[test]
    fn a_curve_has_its_points_and_its_name_once() {
        let curve = Curve {
            name: "pinned".to_owned(),
            color: OURS,
            points: vec![(1.0, 400.0), (2.0, 300.0), (4.0, 250.0)],
            band: vec![[390.0, 410.0]; 3],
        };
        let level = Level {
            name: "copies in".to_owned(),
            color: FLOOR,
            us: 240.0,
        };
        let drawing = lines("t", (Over::Time, "streams"), &[curve], &[level])
            .unwrap()
            .unwrap();
        let svg = drawing.into_string();
        assert_eq!(svg.matches("<circle").count(), 3, "{svg}");
        for name in [">pinned<", ">copies in<", ">streams<"] {
            assert_eq!(svg.matches(name).count(), 1, "{name}: {svg}");
        }
        assert!(
            lines("t", (Over::Time, "streams"), &[], &[])
                .unwrap()
                .is_none()
        );
    }
}
