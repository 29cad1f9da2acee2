//! The sheet that drawings of the page share: narrow enough for a phone, in the page's own colours.

use maud::{Markup, PreEscaped, html};
use plotters::{prelude::*, style::text_anchor::HPos};

use crate::{
    Result,
    measure::canvas::{CUDNN, Canvas, FAINT, FLOOR, INK, OTHERS, OURS, Scale, failed, font, tick},
};

/// Every drawing is as wide.
pub const WIDTH: i32 = 480;
/// Height of text.
pub const SIZE: i32 = 13;
/// Distance of lines of text.
pub const LINE: i32 = 16;
/// Width that a letter may take; fonts differ, and this is of a wide one.
const LETTER: f64 = 0.65 * SIZE as f64;

/// Colours of things that have only a number, such as streams.
pub const SERIES: [RGBColor; 8] = [
    RGBColor(1, 0, 0),
    RGBColor(2, 0, 0),
    RGBColor(3, 0, 0),
    RGBColor(4, 0, 0),
    RGBColor(5, 0, 0),
    RGBColor(6, 0, 0),
    RGBColor(7, 0, 0),
    RGBColor(8, 0, 0),
];
/// What is not the point of a drawing.
pub const QUIET: RGBColor = RGBColor(9, 0, 0);
/// Behind what is hollow.
pub const GROUND: RGBColor = RGBColor(10, 0, 0);

/// The page's variable for each colour; plotters knows numbers only.
const VARIABLES: [(RGBColor, &str); 16] = [
    (OURS, "ours"),
    (CUDNN, "cudnn"),
    (OTHERS, "others"),
    (FLOOR, "floor"),
    (INK, "ink"),
    (FAINT, "faint"),
    (QUIET, "quiet"),
    (GROUND, "ground"),
    (SERIES[0], "s0"),
    (SERIES[1], "s1"),
    (SERIES[2], "s2"),
    (SERIES[3], "s3"),
    (SERIES[4], "s4"),
    (SERIES[5], "s5"),
    (SERIES[6], "s6"),
    (SERIES[7], "s7"),
];

/// The colour of a stream or layer by its number.
pub fn series(number: usize) -> RGBColor {
    SERIES[number % SERIES.len()]
}

/// The number of a curve's colour beside a line in the colour of floors: any but that which is hard to tell
/// from it.
pub fn beside_floor(curve: usize) -> usize {
    [0, 1, 2, 3, 5, 6, 7][curve % 7]
}

/// The variable of such a colour.
pub fn series_variable(number: usize) -> String {
    format!("s{}", number % SERIES.len())
}

/// A drawing of a height, with a name for those who do not see it.
pub fn sheet(title: &str, high: i32, draw: impl FnOnce(&Canvas) -> Result<()>) -> Result<Markup> {
    let mut svg = String::new();
    let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, high as u32));
    let canvas = Canvas(backend.into_drawing_area());
    draw(&canvas)?;
    canvas.0.present().map_err(failed)?;
    drop(canvas);
    Ok(themed(title, high, &svg))
}

/// The same drawing in the page's colours and font, smaller.
fn themed(title: &str, high: i32, svg: &str) -> Markup {
    let inner = svg.split_once('>').map_or("", |(_, inner)| inner);
    let inner = inner.strip_suffix("</svg>\n").unwrap_or(inner);
    let mut inner = inner.replace('\n', "");
    for noise in [
        " opacity=\"1\"",
        " font-family=\"sans-serif\"",
        " stroke=\"none\"",
        " stroke-width=\"1\"",
        " text-anchor=\"start\"",
    ] {
        inner = inner.replace(noise, "");
    }
    for (RGBColor(r, g, b), variable) in VARIABLES {
        let number = format!("\"#{r:02X}{g:02X}{b:02X}\"");
        inner = inner.replace(&number, &format!("\"var(--{variable})\""));
    }
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {high}")) role="img" {
            title { (title) }
            (PreEscaped(inner))
        }
    }
}

/// Text beside a point, at half its height.
pub fn text(
    canvas: &Canvas,
    text: &str,
    at: (i32, i32),
    side: HPos,
    color: &RGBColor,
) -> Result<()> {
    let style = font(side, SIZE, color);
    canvas.0.draw_text(text, &style, at).map_err(failed)
}

/// Microseconds along a drawing, from pixel to pixel.
pub struct TimeAxis {
    pub scale: Scale,
    pub left: i32,
    pub right: i32,
}

impl TimeAxis {
    /// Least distance of ticks.
    const APART: i32 = 64;

    /// Where a time is.
    pub fn x(&self, us: f64) -> i32 {
        self.left + (self.scale.share(us) * f64::from(self.right - self.left)).round() as i32
    }

    /// A line from the top to `foot` at each tick, its number below.
    pub fn draw(&self, canvas: &Canvas, foot: i32) -> Result<()> {
        let apart = f64::from(Self::APART) / f64::from(self.right - self.left);
        for us in self.scale.ticks(apart) {
            canvas.line((self.x(us), 2), (self.x(us), foot), FAINT)?;
            let below = (self.x(us), foot + LINE / 2 + 3);
            text(canvas, &tick(us), below, HPos::Center, &QUIET)?;
        }
        Ok(())
    }
}

/// Two scales and the rectangle that they span.
pub struct Frame {
    pub across: Scale,
    pub up: Scale,
    pub left: i32,
    pub right: i32,
    pub head: i32,
    pub foot: i32,
}

impl Frame {
    /// Where a number of the scale across is.
    pub fn x(&self, number: f64) -> i32 {
        let wide = f64::from(self.right - self.left);
        self.left + (self.across.share(number) * wide).round() as i32
    }

    /// Where a number of the scale up is.
    pub fn y(&self, number: f64) -> i32 {
        let high = f64::from(self.foot - self.head);
        self.foot - (self.up.share(number) * high).round() as i32
    }

    /// The share of its side that so many pixels across are.
    pub fn share_across(&self, pixels: i32) -> f64 {
        f64::from(pixels) / f64::from(self.right - self.left)
    }

    /// The share of its side that so many pixels up are.
    pub fn share_up(&self, pixels: i32) -> f64 {
        f64::from(pixels) / f64::from(self.foot - self.head)
    }
}

/// Pixels that a text may take.
pub fn width(text: &str) -> i32 {
    (text.chars().count() as f64 * LETTER).ceil() as i32
}

/// A name that fits into so many letters.
pub fn shortened(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    let kept: String = name.chars().take(letters.saturating_sub(1)).collect();
    kept + "…"
}

/// Heights as near to the wanted ones as goes if they are to be a distance apart, inside of a range;
/// in the order of what is wanted. Where the range is too short, they go beyond its end.
pub fn spread(wanted: &[i32], apart: i32, (top, bottom): (i32, i32)) -> Vec<i32> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|i| wanted[*i]);
    let mut places = vec![0; wanted.len()];
    let mut least = top;
    for i in &order {
        places[*i] = wanted[*i].max(least);
        least = places[*i] + apart;
    }
    let fits = apart * (wanted.len() as i32 - 1) <= bottom - top;
    let mut most = bottom;
    for i in order.iter().rev().filter(|_| fits) {
        places[*i] = places[*i].min(most);
        most = places[*i] - apart;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_colour_of_plotters_is_left() {
        let drawing = sheet("a < b", 100, |canvas| {
            for (color, _) in VARIABLES {
                canvas.line((0, 0), (9, 9), color)?;
                text(canvas, "x & y", (5, 5), HPos::Left, &color)?;
            }
            Ok(())
        });
        let svg = drawing.unwrap().into_string();
        assert!(!svg.contains('#'), "{svg}");
        assert_eq!(svg.matches("var(--").count(), 2 * VARIABLES.len());
        assert!(svg.contains("<title>a &lt; b</title>") && svg.contains("x &amp; y"));
        assert!(svg.starts_with("<svg viewBox=\"0 0 480 100\"") && svg.ends_with("</svg>"));
    }

    #[test]
    fn labels_are_apart_and_inside() {
        assert_eq!(spread(&[50, 10, 51], 10, (0, 100)), [50, 10, 60]);
        assert_eq!(spread(&[98, 99, 100], 10, (0, 100)), [80, 90, 100]);
        assert_eq!(spread(&[0, 0, 0, 0], 10, (5, 40)), [5, 15, 25, 35]);
        assert_eq!(spread(&[0, 0, 0], 10, (0, 5)), [0, 10, 20]);
        assert!(spread(&[], 10, (0, 5)).is_empty());
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("abcdef", 6), "abcdef");
        assert_eq!(shortened("abcdefg", 6), "abcde…");
    }
}
