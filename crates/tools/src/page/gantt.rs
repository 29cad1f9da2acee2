//! What each engine did over time: copies in, kernels, copies out, a line per stream.

use maud::Markup;
use plotters::{prelude::*, style::text_anchor::HPos};

use super::sheet::{LINE, TimeAxis, WIDTH, series, sheet, text};
use crate::{
    Result,
    measure::canvas::{INK, Scale, failed},
    study::{Span, Work},
};

const LEFT: i32 = 78;
/// Between engines.
const GAP: i32 = 12;

const ENGINES: [(Work, &str); 3] = [
    (Work::In, "copy in"),
    (Work::Kernel, "kernels"),
    (Work::Out, "copy out"),
];

/// The spans of one run; none without spans.
pub fn gantt(title: &str, spans: &[Span]) -> Result<Option<Markup>> {
    let ends: Vec<f64> = spans.iter().map(|span| span.end_us).collect();
    let (Some(mut scale), Some(last)) = (Scale::of(&ends), spans.iter().map(|s| s.stream).max())
    else {
        return Ok(None);
    };
    (scale.least, scale.logarithmic) = (0.0, false);
    let step = (48 / (last as i32 + 1)).clamp(4, 16);
    let lane = step * (last as i32 + 1);
    let axis = TimeAxis {
        scale,
        left: LEFT,
        right: WIDTH - 24,
    };
    let foot = ENGINES.len() as i32 * (lane + GAP);

    let drawing = sheet(title, foot + LINE + 8, |canvas| {
        axis.draw(canvas, foot)?;
        for (i, (work, name)) in (0..).zip(ENGINES) {
            let top = GAP / 2 + i * (lane + GAP);
            text(canvas, name, (LEFT - 6, top + lane / 2), HPos::Right, &INK)?;
            for span in spans.iter().filter(|span| span.work == work) {
                let y = top + step * span.stream as i32;
                let (from, to) = (axis.x(span.begin_us), axis.x(span.end_us));
                // A pixel between neighbours shows where one ends.
                let corners = [(from, y), ((to - 1).max(from + 1), y + step - 1)];
                let piece = Rectangle::new(corners, series(span.stream).filled());
                canvas.0.draw(&piece).map_err(failed)?;
            }
        }
        Ok(())
    });
    drawing.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_span_is_a_piece() {
        let span =
            |stream, work, begin_us| Span::new(stream, stream, work, [begin_us, begin_us + 10.0]);
        let spans = [
            span(0, Work::In, 0.0),
            span(0, Work::Kernel, 10.0),
            span(1, Work::In, 10.0),
            span(0, Work::Out, 20.0),
        ];
        let svg = gantt("t", &spans).unwrap().unwrap().into_string();
        assert_eq!(svg.matches("<rect").count(), 4, "{svg}");
        assert_eq!(svg.matches("var(--s1)").count(), 1, "{svg}");
        assert!(gantt("t", &[]).unwrap().is_none());
    }
}
