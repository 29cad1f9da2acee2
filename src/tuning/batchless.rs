//! A problem's text without its number of images, which tells what belongs together.

/// A problem's text in parts: `g32mb64ic128ih56` is `g32`, `ic128ih56` and 64 images. Ordered by what
/// comes before the images, then by what follows, then by their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Batchless<'a> {
    before: &'a str,
    after: &'a str,
    pub(super) images: usize,
}

impl<'a> Batchless<'a> {
    /// Of a problem's canonical text; none of any other text.
    pub(super) fn of(problem: &'a str) -> Option<Self> {
        let (before, rest) = problem.split_once("mb")?;
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let (images, after) = rest.split_at(end);
        Some(Batchless {
            before,
            after,
            images: images.parse().ok()?,
        })
    }

    /// With another number of images.
    pub(super) fn with(self, images: usize) -> Self {
        Batchless { images, ..self }
    }

    /// Whether it differs in the number of images only.
    pub(super) fn is_like(&self, other: &Batchless) -> bool {
        (self.before, self.after) == (other.before, other.after)
    }

    /// The text that all of them share: a folder's name, as a problem's text has no other letters than
    /// `a-z0-9+=.x-`.
    pub(super) fn shared(&self) -> String {
        format!("{}{}", self.before, self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Problem;

    #[test]
    fn every_problem_has_its_images_once() {
        for text in ["mb1ic3ih8oc4kh3", "g32mb64ic128ih56oc128kh3ph1+f16+nhwc"] {
            let problem: Problem = text.parse().unwrap();
            let text = problem.to_string();
            let parts = Batchless::of(&text).unwrap();
            assert_eq!(parts.images, problem.n());
            assert!(!parts.shared().contains("mb"));
            let other = problem.with(|shape| shape.n = 7).unwrap().to_string();
            let other = Batchless::of(&other).unwrap();
            assert!(parts.is_like(&other) && other == parts.with(7));
        }
        assert_eq!(Batchless::of("ic3ih8"), None);
        assert_eq!(Batchless::of("mb99999999999999999999ic3"), None);
    }
}
