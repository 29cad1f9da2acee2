//! A problem by one flag per size, for those who would rather not learn its text form.

use std::str::FromStr;

use convforge::{Padding, Problem, Shape};

use crate::{failure::Failure, numbers::number};

/// `3`, or `3x2` where height and width differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair([usize; 2]);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (h, w) = text.split_once('x').unwrap_or((text, text));
        match (number(h), number(w)) {
            (Ok(h), Ok(w)) => Ok(Pair([h, w])),
            (Err(why), _) | (_, Err(why)) => Err(format!("{why}; it reads `2`, or `2x1` for both")),
        }
    }
}

/// Where the flags stand in the help.
const HEADING: &str = "A problem by its sizes, beside --problem";

#[derive(clap::Args)]
pub struct ShapeArgs {
    /// Images [default: 2]
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    n: Option<usize>,
    /// Input channels, over all groups
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires_all = ["h", "k", "r"])]
    c: Option<usize>,
    /// Input height
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    h: Option<usize>,
    /// Input width [default: the height]
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    w: Option<usize>,
    /// Output channels, over all groups
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    k: Option<usize>,
    /// Filter height
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    r: Option<usize>,
    /// Filter width [default: the height]
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    s: Option<usize>,
    /// Step, or HxW where the two differ [default: 1]
    #[arg(help_heading = HEADING, long, value_name = "STEP", allow_negative_numbers = true)]
    #[arg(requires = "c")]
    stride: Option<Pair>,
    /// Zeros around the image on all sides, or HxW for above and below, left and right [default: 0]
    #[arg(help_heading = HEADING, long, value_name = "PIXELS", allow_negative_numbers = true)]
    #[arg(requires = "c")]
    pad: Option<Pair>,
    /// Distance between filter taps, 1 for a dense filter, or HxW [default: 1]
    #[arg(help_heading = HEADING, long, value_name = "STEP", allow_negative_numbers = true)]
    #[arg(requires = "c")]
    dilation: Option<Pair>,
    /// Groups; both channel counts must be multiples of it [default: 1]
    #[arg(help_heading = HEADING, long, value_parser = number::<usize>, allow_negative_numbers = true)]
    #[arg(requires = "c")]
    groups: Option<usize>,
}

impl ShapeArgs {
    /// The problem, if there is one.
    pub fn problem(&self) -> Result<Option<Problem>, Failure> {
        // Each of the four requires the others.
        let (Some(c), Some(h), Some(k), Some(r)) = (self.c, self.h, self.k, self.r) else {
            return Ok(None);
        };
        let ones = Pair([1; 2]);
        let Pair([down, across]) = self.pad.unwrap_or(Pair([0; 2]));
        let image = [c, h, self.w.unwrap_or(h)];
        let shape = Shape {
            stride: self.stride.unwrap_or(ones).0,
            dilation: self.dilation.unwrap_or(ones).0,
            pad: Padding {
                top: down,
                left: across,
                bottom: down,
                right: across,
            },
            groups: self.groups.unwrap_or(1),
            ..Shape::new(self.n.unwrap_or(2), image, k, [r, self.s.unwrap_or(r)])
        };
        Ok(Some(Problem::new(shape)?))
    }

    /// Whether none was given.
    pub fn is_empty(&self) -> bool {
        self.c.is_none()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        shape: ShapeArgs,
    }

    fn read(flags: &str) -> Result<Option<String>, String> {
        let words = ["convforge"].into_iter().chain(flags.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        match cli.shape.problem() {
            Ok(problem) => Ok(problem.map(|p| p.to_string())),
            Err(Failure::Usage(why)) => Err(why),
            Err(_) => Err("another failure".to_owned()),
        }
    }

    #[test]
    fn flags_spell_a_problem() {
        assert_eq!(read(""), Ok(None));
        for (flags, text) in [
            ("--c 3 --h 8 --k 4 --r 3", "mb2ic3ih8oc4oh6kh3"),
            (
                "--n 64 --c 64 --h 56 --k 64 --r 3 --pad 1",
                "mb64ic64ih56oc64oh56kh3ph1",
            ),
            (
                "--n 1 --c 4 --h 20 --w 17 --k 8 --r 3 --s 5 --stride 2x3 --groups 2",
                "g2mb1ic4ih20iw17oc8oh9ow5kh3kw5sh2sw3",
            ),
            (
                "--c 4 --h 19 --k 8 --r 3 --dilation 2 --pad 2x0",
                "mb2ic4ih19oc8oh19ow15kh3dh1ph2pw0",
            ),
        ] {
            assert_eq!(read(flags), Ok(Some(text.to_owned())));
            // The text form is the same problem.
            let problem: Problem = text.parse().unwrap();
            assert_eq!(problem.to_string(), text);
        }
    }

    #[test]
    fn what_is_missing_or_no_size_is_named() {
        for (flags, part) in [
            ("--c 3 --h 8 --k 4", "--r <R>"),
            ("--stride 2", "--c <C>"),
            ("--c -3 --h 8 --k 4 --r 3", "`-3` is no number"),
            ("--c 3 --h 8 --k 4 --r 3 --pad 1x", "`` is no number"),
            ("--c 99999999999999999999 --h 8 --k 4 --r 3", "is too large"),
            ("--c 0 --h 8 --k 4 --r 3", "input channels (ic) is 0"),
            ("--c 3 --h 8 --k 4 --r 9", "larger than the padded image"),
        ] {
            let why = read(flags).unwrap_err();
            assert!(why.contains(part), "{flags}: {why}");
        }
    }
}
