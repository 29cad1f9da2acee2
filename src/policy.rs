//! Choices by measurement, one variant per kind of layer: text files compiled into the program, one
//! `condition variant` per line, `#` for remarks.
//!
//! A condition is `else`, which always fits, or a size of the problem (`n c h w k r s groups`)
//! against a number, as in `k<=4`, `r=7`, `c>=64`. A variant may have its configuration, as in
//! `fused_shared:tile=24`. The first line wins whose condition fits and whose variant can do the
//! problem.

use std::{fmt, str::FromStr};

use crate::{Error, Problem, Result};

/// The files, in reading order.
const FILES: [(&str, &str); 3] = [
    ("per-layer", include_str!("policies/per-layer.txt")),
    ("report-b", include_str!("policies/report-b.txt")),
    ("report-e", include_str!("policies/report-e.txt")),
];

/// A named list of which variant does which layer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// Its name: `policy:per-layer` is the one called `per-layer`.
    pub name: &'static str,
    /// What it is, from the remarks at the head of its file.
    pub about: String,
    /// Its lines, first come first served.
    pub rules: Vec<Rule>,
}

/// One line of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Nothing where it always fits.
    condition: Option<Condition>,
    /// The variant that does such layers.
    pub variant: String,
    /// One of its configurations, or nothing for its first.
    pub config: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    size: &'static str,
    sign: Sign,
    number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    AtMost,
    AtLeast,
    Equal,
}

/// A size that conditions may name: its letter, what it is called, and where it stands.
type Size = (&'static str, &'static str, fn(&Problem) -> usize);

const SIZES: [Size; 8] = [
    ("n", "images", |p| p.n()),
    ("c", "input channels", |p| p.c()),
    ("h", "input rows", |p| p.h()),
    ("w", "input columns", |p| p.w()),
    ("k", "output channels", |p| p.k()),
    ("r", "filter rows", |p| p.r()),
    ("s", "filter columns", |p| p.s()),
    ("groups", "groups", |p| p.groups()),
];

const SIGNS: [(&str, Sign); 3] = [
    ("<=", Sign::AtMost),
    (">=", Sign::AtLeast),
    ("=", Sign::Equal),
];

impl Policy {
    /// Every policy's name.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The policy of this name.
    ///
    /// # Errors
    /// [`Error::UnknownPolicy`] with the nearest name there is.
    pub fn find(name: &str) -> Result<Self> {
        let found = FILES.iter().find(|(known, _)| *known == name);
        let (name, text) = found.ok_or_else(|| Error::UnknownPolicy {
            name: name.to_owned(),
            close: Error::closest(name, Policy::names()),
            known: Policy::names().collect::<Vec<_>>().join(", "),
        })?;
        Policy::read(name, text)
    }

    fn read(name: &'static str, text: &str) -> Result<Self> {
        let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
        let about: Vec<_> = lines().filter_map(|line| line.strip_prefix("# ")).collect();
        let rules = lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::parse)
            .collect::<Result<_>>()?;
        Ok(Policy {
            name,
            about: about.join(" "),
            rules,
        })
    }

    /// The lines whose condition fits, in order.
    pub fn fitting(&self, problem: &Problem) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.fits(problem))
    }
}

impl Rule {
    /// Whether the condition fits.
    pub fn fits(&self, problem: &Problem) -> bool {
        let Some(condition) = &self.condition else {
            return true;
        };
        let size = SIZES.iter().find(|(letter, ..)| *letter == condition.size);
        size.is_some_and(|(_, _, of)| {
            let size = of(problem);
            match condition.sign {
                Sign::AtMost => size <= condition.number,
                Sign::AtLeast => size >= condition.number,
                Sign::Equal => size == condition.number,
            }
        })
    }
}

impl FromStr for Rule {
    type Err = Error;

    /// One line: `k<=4 direct_naive`, `else fused_shared:tile=24`. Whether there is such a variant
    /// is seen when it is chosen.
    fn from_str(line: &str) -> Result<Self> {
        let error = |why: &str| Error::Parse {
            what: "a line of a policy",
            text: line.to_owned(),
            why: format!(
                "{why}; a line of a policy reads `k<=4 direct_naive` or `else fused_shared`"
            ),
        };
        let (condition, variant) = line
            .split_once(char::is_whitespace)
            .ok_or_else(|| error("it has one word"))?;
        let condition = match condition {
            "else" => None,
            text => {
                let (sign_text, sign) = SIGNS
                    .into_iter()
                    .find(|(sign, _)| text.contains(sign))
                    .ok_or_else(|| error("its condition has none of <= >= ="))?;
                let (size, number) = text.split_once(sign_text).unwrap_or((text, ""));
                let (size, ..) = SIZES
                    .into_iter()
                    .find(|(letter, ..)| *letter == size)
                    .ok_or_else(|| error("its condition names no size"))?;
                Some(Condition {
                    size,
                    sign,
                    number: number
                        .parse()
                        .map_err(|_| error("its condition has no number"))?,
                })
            }
        };
        let (variant, config) = match variant.trim().split_once(':') {
            Some((variant, config)) => (variant, Some(config.to_owned())),
            None => (variant.trim(), None),
        };
        Ok(Rule {
            condition,
            variant: variant.to_owned(),
            config,
        })
    }
}

/// `groups` as they stand behind a number of them.
fn counted(words: &str, number: usize) -> &str {
    match number {
        1 => words.strip_suffix('s').unwrap_or(words),
        _ => words,
    }
}

impl fmt::Display for Rule {
    /// In words: `direct_naive for at most 4 output channels`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.variant)?;
        if let Some(config) = &self.config {
            write!(f, ":{config}")?;
        }
        let Some(condition) = &self.condition else {
            return f.write_str(" otherwise");
        };
        let sign = match condition.sign {
            Sign::AtMost => "at most",
            Sign::AtLeast => "at least",
            Sign::Equal => "exactly",
        };
        let size = SIZES.iter().find(|(letter, ..)| *letter == condition.size);
        let words = size.map_or(condition.size, |(_, words, _)| words);
        write!(
            f,
            " for {sign} {} {}",
            condition.number,
            counted(words, condition.number)
        )
    }
}

impl fmt::Display for Policy {
    /// Its lines in words.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (i, rule) in self.rules.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{rule}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_names_what_there_is_and_ends() {
        for name in Policy::names() {
            let policy = Policy::find(name).unwrap();
            assert!(!policy.about.is_empty(), "{name} does not say why");
            assert_eq!(policy.rules.last().unwrap().condition, None, "{name}");
            #[cfg(feature = "cuda")]
            for rule in &policy.rules {
                let variant = crate::variants::find(&rule.variant).unwrap();
                if let Some(config) = &rule.config {
                    variant.info().config(config).unwrap();
                }
            }
        }
    }

    #[test]
    fn the_first_line_that_fits_comes_first() {
        let policy = Policy::find("report-e").unwrap();
        let first = |text: &str| {
            let rule = policy.fitting(&text.parse().unwrap()).next().unwrap();
            rule.config.clone().unwrap()
        };
        assert_eq!(first("ic1ih70oc12oh66kh5"), "tile=16");
        assert_eq!(first("ic12ih33oc24oh29kh5"), "tile=24");
        assert_eq!(
            policy.to_string(),
            "fused_shared:tile=16 for at most 12 output channels, fused_shared:tile=24 otherwise"
        );
    }

    #[test]
    fn lines_that_say_nothing_are_errors() {
        let rule = |line: &str| line.parse::<Rule>();
        let configured = rule("c>=64 fused_shared:tile=24").unwrap();
        assert_eq!(configured.variant, "fused_shared");
        assert_eq!(configured.config.as_deref(), Some("tile=24"));
        assert_eq!(
            configured.to_string(),
            "fused_shared:tile=24 for at least 64 input channels"
        );
        let exact = rule("r=7 direct_naive").unwrap();
        assert!(exact.fits(&"ic1ih86oc4oh80kh7".parse().unwrap()));
        assert!(!exact.fits(&"ic1ih86oc4kh5".parse().unwrap()));
        for (line, why) in [
            ("direct_naive", "one word"),
            ("k<4 direct_naive", "<= >= ="),
            ("m<=4 direct_naive", "names no size"),
            ("k<=four direct_naive", "no number"),
        ] {
            let text = rule(line).unwrap_err().to_string();
            assert!(text.contains(why), "{text}");
        }
    }

    #[test]
    fn an_unknown_policy_names_the_nearest() {
        let text = Policy::find("perlayer").unwrap_err().to_string();
        assert!(
            text.contains(
                "no policy `perlayer`; did you mean `per-layer`? There are per-layer, report-b"
            ),
            "{text}"
        );
    }
}
