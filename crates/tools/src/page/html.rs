//! What sections share: tables with their cells, figures, and the page around everything.

use std::borrow::Cow;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::measure::{duration, table::times};

/// A column's name, and what it means where the name does not say it.
pub struct Column {
    name: Cow<'static, str>,
    meaning: &'static str,
}

pub fn column(name: impl Into<Cow<'static, str>>, meaning: &'static str) -> Column {
    let name = name.into();
    Column { name, meaning }
}

/// What stands in a table: text, or a number that is sorted as such.
pub enum Cell {
    Text(Markup),
    /// Text that may take several lines.
    Prose(Cow<'static, str>),
    Number {
        value: f64,
        shown: String,
    },
    /// As a number, on a ground that says better or worse.
    Rated {
        value: f64,
        shown: String,
        better: bool,
    },
    Nothing,
}

impl Cell {
    pub fn text(text: impl maud::Render) -> Self {
        Cell::Text(html! { (text) })
    }

    /// The name of a variant.
    pub fn name(name: &str) -> Self {
        Cell::Text(code(name))
    }

    pub fn number(value: Option<f64>, shown: impl FnOnce(f64) -> String) -> Self {
        value
            .filter(|value| value.is_finite())
            .map_or(Cell::Nothing, |value| Cell::Number {
                value,
                shown: shown(value),
            })
    }

    /// A time in microseconds.
    pub fn time(us: Option<f64>) -> Self {
        Self::number(us, duration)
    }

    /// `1.05`.
    pub fn times(value: Option<f64>) -> Self {
        Self::number(value, times)
    }

    /// `62.3 %`.
    pub fn percent(value: Option<f64>) -> Self {
        Self::number(value, |value| format!("{value:.1} %"))
    }

    /// A factor that is better above 1; within 3 % of it, as it is shown, it is neither.
    pub fn gain(value: Option<f64>) -> Self {
        match value {
            Some(value) if !within_noise(value) => Cell::Rated {
                value,
                shown: times(value),
                better: value > 1.0,
            },
            value => Self::times(value),
        }
    }
}

impl maud::Render for Cell {
    fn render(&self) -> Markup {
        match self {
            Cell::Text(text) => html! { td.text { (text) } },
            Cell::Prose(text) => html! { td.text.prose { (text) } },
            Cell::Nothing => html! { td { "–" } },
            Cell::Number { value, shown } => html! { td data-value=(exact(*value)) { (shown) } },
            Cell::Rated {
                value,
                shown,
                better,
            } => {
                let class = if *better { "better" } else { "worse" };
                html! { td class=(class) data-value=(exact(*value)) { (shown) } }
            }
        }
    }
}

/// Whether a factor is within 3 % of 1, as it is shown.
pub fn within_noise(factor: f64) -> bool {
    ((factor - 1.0) * 100.0).round().abs() <= 3.0
}

/// Seven digits: more than was measured, and enough to find the number in its file.
fn exact(value: f64) -> f64 {
    format!("{value:.6e}").parse().unwrap_or(value)
}

/// The name of a variant, which may be broken behind its words.
pub fn code(name: &str) -> Markup {
    html! {
        code {
            @for (i, word) in name.split_inclusive(['_', ':']).enumerate() {
                @if i > 0 { wbr; }
                (word)
            }
        }
    }
}

/// Letters of a reason that are shown at once.
const REASON: usize = 200;

/// Why there is no time; of a long reason the first clause, the rest opens.
pub fn why(reason: Option<&str>) -> Markup {
    let reason = reason.unwrap_or("was not timed");
    let long = (reason.len() > REASON).then(|| reason.split_once(": "));
    html! {
        @match long.flatten() {
            Some((first, rest)) => { details { summary { (first) } (rest) } }
            None => (reason),
        }
    }
}

/// A line of a table. Its first cell heads it.
pub struct Line {
    /// `ours`, `cudnn`, `others`, or nothing.
    pub class: &'static str,
    pub cells: Vec<Cell>,
}

/// A table that can be sorted by each of its columns and scrolls by itself. `keys` are attributes by
/// which programs find it.
pub fn table(caption: &str, keys: &[(&str, &str)], columns: &[Column], lines: &[Line]) -> Markup {
    let keys: String = keys
        .iter()
        .map(|(key, value)| format!(" data-{key}=\"{}\"", html! { (value) }.into_string()))
        .collect();
    let text = |column: usize| {
        let mut cells = lines.iter().filter_map(|line| line.cells.get(column));
        cells.any(|cell| matches!(cell, Cell::Text(_) | Cell::Prose(_)))
    };
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            (PreEscaped(format!("<table{keys}>")))
            caption { (caption) }
            thead {
                tr {
                    @for (i, Column { name, meaning }) in columns.iter().enumerate() {
                        th.text[text(i)] scope="col" {
                            button type="button" title=[(!meaning.is_empty()).then_some(meaning)] {
                                (name)
                            }
                        }
                    }
                }
            }
            tbody {
                @for line in lines {
                    tr class=[(!line.class.is_empty()).then_some(line.class)] {
                        @for cell in &line.cells { (cell) }
                    }
                }
            }
            (PreEscaped("</table>"))
        }
    }
}

/// A drawing with what explains it.
pub fn figure(drawing: &Markup, caption: &Markup) -> Markup {
    html! { figure { (drawing) figcaption { (caption) } } }
}

/// A colour with its meaning.
pub fn key(variable: &str, meaning: &str) -> Markup {
    html! { span.key style=(format!("--key:var(--{variable})")) { (meaning) } " " }
}

/// A section with its place in the table of contents.
pub struct Section {
    pub id: &'static str,
    pub title: &'static str,
    pub body: Markup,
}

/// The sentence in the place of what is not there.
pub fn missing(what: &str) -> Markup {
    html! { p.missing { (what) } }
}

/// The whole page. Its policy forbids it to fetch anything.
pub fn page(title: &str, head: &Markup, sections: &[Section]) -> Markup {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                  img-src data:";
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                nav aria-label="Contents" {
                    ol {
                        @for section in sections {
                            li { a href=(format!("#{}", section.id)) { (section.title) } }
                        }
                    }
                    button #theme type="button" { "Theme: system" }
                }
                main {
                    header { h1 { (title) } (head) }
                    @for Section { id, title, body } in sections {
                        section id=(id) { h2 { (title) } (body) }
                    }
                }
                script { (PreEscaped(include_str!("page.js"))) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_numbers_are_kept() {
        let line = Line {
            class: "",
            cells: vec![
                Cell::name("a<b_c"),
                Cell::time(Some(1234.567891)),
                Cell::time(None),
            ],
        };
        let columns = [
            column("variant", ""),
            column("time", "a \"median\""),
            column("x", ""),
        ];
        let text = table("c & d", &[("problem", "\">")], &columns, &[line]).into_string();
        for part in [
            "<code>a&lt;b_<wbr>c</code>",
            "data-value=\"1234.568\">1.23 ms<",
            "<td>–</td>",
            "a &quot;median&quot;",
            "c &amp; d",
            "data-problem=\"&quot;&gt;\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn a_long_reason_opens_behind_its_first_clause() {
        assert_eq!(why(Some("no: such")).into_string(), "no: such");
        assert_eq!(why(None).into_string(), "was not timed");
        let long = why(Some(&format!("no plan: {}", "x".repeat(REASON)))).into_string();
        assert!(
            long.starts_with("<details><summary>no plan</summary>xxx"),
            "{long}"
        );
        let endless = "x".repeat(2 * REASON);
        assert_eq!(why(Some(&endless)).into_string(), endless);
    }

    #[test]
    fn a_gain_within_the_noise_is_none() {
        let class = |value| maud::Render::render(&Cell::gain(Some(value))).into_string();
        assert!(class(1.2).contains("better") && class(0.8).contains("worse"));
        assert!(!class(1.034).contains("class") && class(1.036).contains("better"));
    }
}
