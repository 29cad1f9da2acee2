//! Curves over a number, each named at its right end.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{Frame, LINE, QUIET, WIDTH, sheet, shortened, spread, text, width};
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

/// A name beside the drawing, and the place that it is of.
struct Label {
    name: String,
    /// Infinity for a level, which goes on to the right.
    number: f64,
    us: f64,
    color: RGBColor,
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
    let times = times.chain(levels.iter().map(|level| &level.us));
    let times: Vec<f64> = times.copied().collect();
    let (Some(across), Some(up)) = (Scale::of(&numbers), over.scale(&times)) else {
        return Ok(None);
    };

    let labels = labels(curves, levels);
    let room = labels.iter().map(|label| width(&label.name)).max();
    let frame = Frame {
        across,
        up,
        left: LEFT,
        right: WIDTH - room.unwrap_or(0) - 16,
        head: HEAD,
        foot: FOOT.max(HEAD + LINE * labels.len() as i32),
    };
    let drawing = sheet(title, frame.foot + 2 * LINE + 8, |canvas| {
        axes(canvas, &frame, (over, what), &numbers)?;
        for Level { us, color, .. } in levels {
            let y = frame.y(*us);
            canvas.line((LEFT, y), (frame.right, y), *color)?;
        }
        for curve in curves {
            draw(canvas, &frame, curve)?;
        }
        let last = numbers.last().copied().unwrap_or_default();
        draw_labels(canvas, &frame, &labels, last)
    });
    drawing.map(Some)
}

/// Names of what has one: curves at their ends, levels.
fn labels(curves: &[Curve], levels: &[Level]) -> Vec<Label> {
    let label = |name: &str, (number, us), color| Label {
        name: shortened(name, LETTERS),
        number,
        us,
        color,
    };
    let ends = curves
        .iter()
        .filter_map(|curve| Some(label(&curve.name, *curve.points.last()?, curve.color)));
    let marks = levels
        .iter()
        .map(|level| label(&level.name, (f64::INFINITY, level.us), level.color));
    let named = ends.chain(marks).filter(|label| !label.name.is_empty());
    named.collect()
}

fn axes(canvas: &Canvas, frame: &Frame, (over, what): (Over, &str), numbers: &[f64]) -> Result<()> {
    let Frame {
        across,
        up,
        right,
        foot,
        ..
    } = *frame;
    for us in up.ticks(frame.share_up(APART.1)) {
        let y = frame.y(us);
        canvas.line((LEFT, y), (right, y), FAINT)?;
        text(canvas, &over.tick(us), (LEFT - 6, y), HPos::Right, &QUIET)?;
    }
    for number in across.apart(frame.share_across(APART.0), numbers) {
        let x = frame.x(number);
        canvas.line((x, foot), (x, foot + 4), QUIET)?;
        let at = (x, foot + LINE / 2 + 5);
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
    text(canvas, &remark, at, HPos::Center, &QUIET)
}

fn draw(canvas: &Canvas, frame: &Frame, curve: &Curve) -> Result<()> {
    let numbers = || curve.points.iter().map(|(number, _)| frame.x(*number));
    let low = numbers().zip(curve.band.iter().map(|band| frame.y(band[0])));
    let high = numbers().zip(curve.band.iter().map(|band| frame.y(band[1])));
    let mut band: Vec<(i32, i32)> = low.collect();
    band.extend(high.collect::<Vec<_>>().into_iter().rev());
    if !band.is_empty() {
        let band = Polygon::new(band, curve.color.mix(0.2));
        canvas.0.draw(&band).map_err(failed)?;
    }
    let place = |(number, us): &(f64, f64)| (frame.x(*number), frame.y(*us));
    let points: Vec<(i32, i32)> = curve.points.iter().map(place).collect();
    let path = PathElement::new(points.clone(), curve.color.stroke_width(2));
    canvas.0.draw(&path).map_err(failed)?;
    for point in points {
        let dot = Circle::new(point, 3, curve.color.filled());
        canvas.0.draw(&dot).map_err(failed)?;
    }
    Ok(())
}

/// Each name at the right, with a line to its place where that is elsewhere; `last` is the last number that
/// a curve reaches.
fn draw_labels(canvas: &Canvas, frame: &Frame, labels: &[Label], last: f64) -> Result<()> {
    let right = frame.right;
    let wanted: Vec<i32> = labels.iter().map(|label| frame.y(label.us)).collect();
    // None so low that it meets the last number below.
    let places = spread(&wanted, LINE, (HEAD, frame.foot - LINE / 2));
    for ((label, wanted), place) in labels.iter().zip(wanted).zip(places) {
        let beside = (right + 9, place);
        if label.number < last {
            let style = label.color.mix(0.35);
            canvas.line((frame.x(label.number), wanted), beside, style)?;
        } else if (place - wanted).abs() > 2 {
            canvas.line((right + 1, wanted), beside, label.color)?;
        }
        let at = (right + 12, place);
        text(canvas, &label.name, at, HPos::Left, &INK)?;
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
