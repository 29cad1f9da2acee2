//! A layer's roofline: what memory and arithmetic allow, and every variant as a point below.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{Frame, GROUND, LINE, QUIET, WIDTH, sheet, shortened, spread, text, width};
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

/// A name beside the drawing, and the place that it is of.
struct Label {
    name: String,
    intensity: f64,
    tflops: f64,
    color: RGBColor,
}

/// Points under a roof, both axes logarithmic; none without points.
pub fn roofline(title: &str, roof: &Roof, points: &[Point]) -> Result<Option<Markup>> {
    let ridges = roof.arithmetic.iter().map(|(_, rate)| rate / roof.memory);
    let rates = roof.arithmetic.iter().map(|(_, rate)| *rate);
    let [west, east] = bounds(points.iter().map(|p| p.intensity).chain(ridges));
    let [south, north] = bounds(points.iter().map(|p| p.tflops).chain(rates));
    if points.is_empty() || west <= 0.0 || south <= 0.0 {
        return Ok(None);
    }
    let logarithmic = |least, most| Scale {
        least,
        most,
        logarithmic: true,
    };
    let across = logarithmic(west / 8.0, east * 2.5);
    let labels = labels(roof, points, across.most);
    let room = labels.iter().map(|label| width(&label.name)).max();
    let frame = Frame {
        across,
        up: logarithmic(south / 2.0, north * 1.5),
        left: LEFT,
        right: WIDTH - room.unwrap_or(0) - 26,
        head: HEAD,
        foot: HEAD + (LINE * labels.len() as i32).max(300),
    };
    let drawing = sheet(title, frame.foot + 2 * LINE + 8, |canvas| {
        axes(canvas, &frame)?;
        draw_roof(canvas, &frame, roof, north)?;
        draw_labels(canvas, &frame, &labels)?;
        points
            .iter()
            .try_for_each(|point| draw_point(canvas, &frame, point))
    });
    drawing.map(Some)
}

/// The least and the largest of these numbers.
fn bounds(numbers: impl Iterator<Item = f64>) -> [f64; 2] {
    numbers.fold([f64::INFINITY, 0.0], |[least, most], number| {
        [least.min(number), most.max(number)]
    })
}

/// Names of the points, and of the roof's level parts at their ends.
fn labels(roof: &Roof, points: &[Point], end: f64) -> Vec<Label> {
    let of_points = points.iter().map(|point| Label {
        name: shortened(&point.name, LETTERS),
        intensity: point.intensity,
        tflops: point.tflops,
        color: point.color,
    });
    let of_roof = roof.arithmetic.iter().map(|(name, rate)| Label {
        name: format!("{name} {} TFLOP/s", significant(*rate)),
        intensity: end,
        tflops: *rate,
        color: FLOOR,
    });
    of_points.chain(of_roof).collect()
}

/// The lines of memory and arithmetic, and what memory's is called; `north` is the highest of all that is
/// drawn.
fn draw_roof(canvas: &Canvas, frame: &Frame, roof: &Roof, north: f64) -> Result<()> {
    let Frame { across, up, .. } = frame;
    // Where the roof enters the drawing: from the left, or from below.
    let entry = across.least.max(up.least / roof.memory);
    let enters = (frame.x(entry), frame.y(entry * roof.memory));
    for (i, (_, rate)) in (0..).zip(&roof.arithmetic) {
        let ridge = (frame.x(rate / roof.memory), frame.y(*rate));
        let color = if i == 0 { FLOOR } else { QUIET };
        let style = color.stroke_width(if i == 0 { 2 } else { 1 });
        canvas.line(ridge, (frame.right, ridge.1), style)?;
        canvas.line(enters, ridge, style)?;
    }
    let memory = format!("memory {} TB/s", significant(roof.memory));
    // Above the line where the text ends, as the line rises.
    let (from, to) = (enters.0.max(LEFT) + 6, enters.0 + 6 + width(&memory));
    let end = across.least * (across.most / across.least).powf(frame.share_across(to - LEFT));
    let above = frame.y((end * roof.memory).min(north)).max(HEAD) - LINE;
    text(canvas, &memory, (from, above.max(HEAD)), HPos::Left, &FLOOR)
}

/// Each name at the right, with a line to its place.
fn draw_labels(canvas: &Canvas, frame: &Frame, labels: &[Label]) -> Result<()> {
    let right = frame.right;
    let wanted: Vec<i32> = labels.iter().map(|label| frame.y(label.tflops)).collect();
    let places = spread(&wanted, LINE, (HEAD, frame.foot));
    for ((label, y), place) in labels.iter().zip(wanted).zip(places) {
        let point = (frame.x(label.intensity).min(right), y);
        let path = [point, (right + 4, place), (right + 18, place)];
        let path = PathElement::new(path, label.color.mix(0.35));
        canvas.0.draw(&path).map_err(failed)?;
        let at = (right + 22, place);
        text(canvas, &label.name, at, HPos::Left, &INK)?;
    }
    Ok(())
}

/// Hollow where its bytes were not counted.
fn draw_point(canvas: &Canvas, frame: &Frame, point: &Point) -> Result<()> {
    let at = (frame.x(point.intensity), frame.y(point.tflops));
    let dot = Circle::new(at, 4, point.color.filled());
    canvas.0.draw(&dot).map_err(failed)?;
    if !point.counted {
        let hole = Circle::new(at, 2, GROUND.filled());
        canvas.0.draw(&hole).map_err(failed)?;
    }
    Ok(())
}

fn axes(canvas: &Canvas, frame: &Frame) -> Result<()> {
    let (right, foot) = (frame.right, frame.foot);
    for v in frame.up.ticks(frame.share_up(APART.1)) {
        let y = frame.y(v);
        canvas.line((LEFT, y), (right, y), FAINT)?;
        text(canvas, &v.to_string(), (LEFT - 5, y), HPos::Right, &QUIET)?;
    }
    for v in frame.across.ticks(frame.share_across(APART.0)) {
        let x = frame.x(v);
        canvas.line((x, HEAD), (x, foot), FAINT)?;
        let below = (x, foot + LINE / 2 + 3);
        text(canvas, &v.to_string(), below, HPos::Center, &QUIET)?;
    }
    let at = (4, foot + LINE + LINE / 2 + 4);
    let what = "TFLOP/s over FLOP per byte, both to a log scale";
    text(canvas, what, at, HPos::Left, &QUIET)
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
