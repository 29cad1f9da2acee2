//! Horizontal bars, one per line.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{LINE, QUIET, TimeAxis, WIDTH, sheet, shortened, text, width};
use crate::{
    Result,
    measure::canvas::{FLOOR, INK, Scale, failed},
};

/// Distance of bars, and their height.
const STEP: i32 = 19;
const BAR: i32 = 10;
/// Letters of a name; the table beside has all of them.
const LETTERS: usize = 27;
/// For the numbers right of the bars.
const NUMBERS: i32 = 70;

/// A line: pieces of time that follow each other.
pub struct Bar {
    pub name: String,
    /// Microseconds, with colours.
    pub pieces: Vec<(f64, RGBColor)>,
    /// From the tenth to the ninetieth percentile.
    pub whisker: Option<[f64; 2]>,
    pub number: String,
}

/// The bars, and a line through all of them where `floor_us` is; none without bars. Times far apart
/// are drawn to a logarithmic scale, unless bars have pieces.
pub fn bars(title: &str, bars: &[Bar], floor_us: Option<f64>) -> Result<Option<Markup>> {
    let total = |bar: &Bar| bar.pieces.iter().map(|(us, _)| us).sum::<f64>();
    let ends = |bar: &Bar| {
        [
            Some(total(bar)),
            bar.whisker.map(|w| w[0]),
            bar.whisker.map(|w| w[1]),
        ]
    };
    let shown: Vec<f64> = bars
        .iter()
        .flat_map(ends)
        .chain([floor_us])
        .flatten()
        .collect();
    let Some(mut scale) = Scale::of(&shown).filter(|_| !bars.is_empty()) else {
        return Ok(None);
    };
    if bars.iter().any(|bar| bar.pieces.len() > 1) {
        (scale.least, scale.logarithmic) = (0.0, false);
    }
    let names: Vec<String> = bars
        .iter()
        .map(|bar| shortened(&bar.name, LETTERS))
        .collect();
    let left = names.iter().map(|name| width(name)).max().unwrap_or(0) + 10;
    let logarithmic = scale.logarithmic;
    let axis = TimeAxis {
        scale,
        left,
        right: WIDTH - NUMBERS,
    };
    let x = |us| axis.x(us);
    let foot = 4 + STEP * bars.len() as i32;

    let drawing = sheet(title, foot + LINE + 8, |canvas| {
        axis.draw(canvas, foot)?;
        // Below the names no tick has its number.
        if logarithmic {
            text(
                canvas,
                "log scale",
                (2, foot + LINE / 2 + 3),
                HPos::Left,
                &QUIET,
            )?;
        }
        for ((i, bar), name) in (0..).zip(bars).zip(&names) {
            let y = 4 + STEP * i + STEP / 2;
            let mut from = 0.0;
            for (us, color) in &bar.pieces {
                let corners = [
                    (x(from).max(left), y - BAR / 2),
                    (x(from + us), y + BAR / 2),
                ];
                let piece = Rectangle::new(corners, color.filled());
                canvas.0.draw(&piece).map_err(failed)?;
                from += us;
            }
            if let Some([low, high]) = bar.whisker {
                canvas.line((x(low), y), (x(high), y), INK)?;
            }
            text(canvas, name, (left - 6, y), HPos::Right, &INK)?;
            text(canvas, &bar.number, (WIDTH - 2, y), HPos::Right, &INK)?;
        }
        match floor_us {
            Some(us) => canvas.line((x(us), 0), (x(us), foot), FLOOR.stroke_width(2)),
            None => Ok(()),
        }
    });
    drawing.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::canvas::OURS;

    fn bar(name: &str, pieces: &[f64]) -> Bar {
        Bar {
            name: name.to_owned(),
            pieces: pieces.iter().map(|us| (*us, OURS)).collect(),
            whisker: None,
            number: "7 us".to_owned(),
        }
    }

    fn drawn(list: &[Bar]) -> String {
        bars("t", list, Some(1.0)).unwrap().unwrap().into_string()
    }

    #[test]
    fn far_apart_is_logarithmic_but_never_for_pieces() {
        let whole = drawn(&[bar("a", &[1.0]), bar("b", &[100.0])]);
        assert!(whole.contains("log scale") && whole.matches("<rect").count() == 2);
        let pieces = drawn(&[bar("a", &[1.0]), bar("b", &[50.0, 50.0])]);
        assert!(!pieces.contains("log scale") && pieces.matches("<rect").count() == 3);
    }

    #[test]
    fn nothing_makes_no_drawing() {
        assert!(bars("t", &[], Some(1.0)).unwrap().is_none());
    }
}
