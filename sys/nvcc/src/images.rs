//! Which device images a build holds, and which of them a file is compiled to.

/// What a file's kernels have to be compiled for: `cf_needs` of csrc/row.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Needs {
    /// Any chip from sm_80 on.
    Sm80,
    /// sm_90 and newer.
    Sm90,
    /// sm_90 alone.
    Sm90a,
}

impl Needs {
    /// What a file says by naming the constant, as the initialiser of its row does.
    pub(crate) fn of(source: &str) -> Needs {
        let words = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words
            .filter_map(|word| match word {
                "CF_NEEDS_SM90A" => Some(Needs::Sm90a),
                "CF_NEEDS_SM90" => Some(Needs::Sm90),
                _ => None,
            })
            .max()
            .unwrap_or(Needs::Sm80)
    }
}

/// Machine code for one generation of chips, or PTX, which a driver translates for newer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// In `CONVFORGE_ARCHS`.
    word: &'static str,
    /// nvcc's `-gencode`.
    pub(crate) gencode: &'static str,
    /// Tells csrc/registry.cu, whose table of images says what each runs on.
    define: &'static str,
    /// The most that kernels in it may need.
    serves: Needs,
}

const IMAGES: [Image; 3] = [
    Image {
        word: "80",
        gencode: "arch=compute_80,code=sm_80",
        define: "CF_IMAGE_SM80",
        serves: Needs::Sm80,
    },
    // wgmma and setmaxnreg exist for sm_90a only, and only in this spelling.
    Image {
        word: "90a",
        gencode: "arch=compute_90a,code=sm_90a",
        define: "CF_IMAGE_SM90A",
        serves: Needs::Sm90a,
    },
    Image {
        word: "ptx",
        gencode: "arch=compute_90,code=compute_90",
        define: "CF_IMAGE_PTX90",
        serves: Needs::Sm90,
    },
];

/// The images of a build, in the order above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Images(Vec<Image>);

impl Images {
    /// Reads `CONVFORGE_ARCHS`; all of them where it is not set.
    pub(crate) fn parse(wanted: Option<&str>) -> Result<Images, String> {
        let Some(wanted) = wanted else {
            return Ok(Images(IMAGES.to_vec()));
        };
        let words: Vec<&str> = wanted.split(',').map(str::trim).collect();
        for word in &words {
            if !IMAGES.iter().any(|image| image.word == *word) {
                return Err(format!(
                    "CONVFORGE_ARCHS is `{wanted}`, and `{word}` is none of its words: it is a list \
                     of 80 (Ampere to Ada), 90a (Hopper) and ptx (newer chips), joined by commas; \
                     without it all three are compiled"
                ));
            }
        }
        let named = |image: &Image| words.contains(&image.word);
        Ok(Images(IMAGES.into_iter().filter(named).collect()))
    }

    /// "80-90a-ptx"
    pub(crate) fn name(&self) -> String {
        self.0.iter().map(|i| i.word).collect::<Vec<_>>().join("-")
    }

    pub(crate) fn defines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|image| format!("-D{}", image.define))
    }

    /// Those that a file is compiled to: elsewhere its kernels' bodies would be empty. Where none
    /// serves, the first one does, since nvcc compiles for something; nobody launches what is in it
    /// (`cf_compiled_for` of csrc/registry.cu).
    pub(crate) fn of(&self, needs: Needs) -> Vec<Image> {
        let serving = |image: &&Image| image.serves >= needs;
        let mut images: Vec<Image> = self.0.iter().filter(serving).copied().collect();
        if images.is_empty() {
            images.extend(self.0.first());
        }
        images
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(images: &[Image]) -> Vec<&str> {
        images.iter().map(|image| image.word).collect()
    }

    #[test]
    fn a_file_says_what_it_needs() {
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM80,"), Needs::Sm80);
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM90,"), Needs::Sm90);
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM90A,"), Needs::Sm90a);
        assert_eq!(Needs::of("CF_NEEDS_SM90AB"), Needs::Sm80);
        assert_eq!(Needs::of(""), Needs::Sm80);
    }

    #[test]
    fn files_skip_images_in_which_they_would_be_empty() {
        let all = Images::parse(None).unwrap();
        assert_eq!(words(&all.of(Needs::Sm80)), ["80", "90a", "ptx"]);
        assert_eq!(words(&all.of(Needs::Sm90)), ["90a", "ptx"]);
        assert_eq!(words(&all.of(Needs::Sm90a)), ["90a"]);
    }

    #[test]
    fn a_file_that_no_image_serves_is_compiled_to_one() {
        let some = Images::parse(Some("80,ptx")).unwrap();
        assert_eq!(words(&some.of(Needs::Sm90)), ["ptx"]);
        assert_eq!(words(&some.of(Needs::Sm90a)), ["80"]);
    }

    #[test]
    fn the_list_may_be_narrowed() {
        let images = Images::parse(Some("ptx, 80,80")).unwrap();
        assert_eq!(images.name(), "80-ptx");
        let defines: Vec<String> = images.defines().collect();
        assert_eq!(defines, ["-DCF_IMAGE_SM80", "-DCF_IMAGE_PTX90"]);
        for wrong in ["", "90", "80,,90a", "80;90a"] {
            assert!(
                Images::parse(Some(wrong))
                    .unwrap_err()
                    .contains("90a (Hopper)")
            );
        }
    }
}
