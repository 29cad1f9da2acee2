//! Numbers as options take them.

use std::{str::FromStr, time::Duration};

/// A whole number, of which a size of a problem has its bounds told by the problem.
pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match text.parse() {
        Ok(number) => Ok(number),
        Err(_) if digits => Err(format!("{text} is too large")),
        Err(_) => Err(format!("`{text}` is no number of 0 or more")),
    }
}

/// A whole number of things of which there must be one.
pub fn positive<T: FromStr + From<u8> + PartialOrd>(text: &str) -> Result<T, String> {
    match number(text)? {
        number if number >= T::from(1) => Ok(number),
        _ => Err("it must be at least 1".to_owned()),
    }
}

/// A number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let time = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    time.ok_or_else(|| format!("`{text}` is no number of seconds, as in 0.5 or 60"))
}
