//! How tables look where they are printed.

use textwrap::{Options, WordSplitter, fill};

/// What the place that a table is printed to allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Whether the fastest and the failed are marked by colours.
    pub color: bool,
    /// Characters in a line; none where lines may be of any length, as in a file or a pipe.
    pub width: Option<usize>,
}

impl Look {
    /// Lines of text wrapped between words, each behind `indent`, and further lines of one a bit
    /// deeper.
    pub fn paragraph(self, indent: &str, text: &str) -> String {
        let Some(width) = self.width else {
            return format!("{indent}{}", text.replace('\n', &format!("\n{indent}  ")));
        };
        let deeper = format!("{indent}  ");
        let options = Options::new(width)
            .initial_indent(indent)
            .subsequent_indent(&deeper)
            .break_words(false)
            .word_splitter(WordSplitter::NoHyphenation);
        let mut lines = text.lines();
        let first = fill(lines.next().unwrap_or_default(), &options);
        let options = options.initial_indent(&deeper);
        let more = lines.map(|line| format!("\n{}", fill(line, &options)));
        first + &more.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole() {
        let text = "small_fma, small_mma unsupported: takes NCHW";
        let any = Look::default();
        assert_eq!(any.paragraph("  ", text), format!("  {text}"));
        let narrow = Look {
            width: Some(20),
            ..any
        };
        let said = narrow.paragraph(
            "  ",
            &format!("{text}\npolicy:per-layer is_longer_than_a_line"),
        );
        let lines = [
            "  small_fma,",
            "    small_mma",
            "    unsupported:",
            "    takes NCHW",
            "    policy:per-layer",
            "    is_longer_than_a_line",
        ];
        assert_eq!(said, lines.join("\n"));
    }
}
