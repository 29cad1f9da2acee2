//! Which device images a build holds, and which of them a file is compiled to.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

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
    /// Of a source. A further file of a row, `row/x.cu`, needs what `row.cu` does.
    pub(crate) fn of_file(path: &Path) -> Result<Needs, String> {
        let row = path.parent().map(|folder| folder.with_extension("cu"));
        let row = row.filter(|row| row.is_file());
        let path = row.as_deref().unwrap_or(path);
        let source = fs::read_to_string(path);
        let source = source.map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(Needs::of(&source))
    }

    /// What a file says by naming the constant in its code, as the initialiser of its row does.
    fn of(source: &str) -> Needs {
        let code = without_comments(source);
        let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
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

/// A source with a blank for each comment. A quote holds none.
fn without_comments(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(['/', '"']) {
        let (before, here) = rest.split_at(at);
        code.push_str(before);
        let (kept, length) = if let Some(line) = here.strip_prefix("//") {
            (" ", 2 + line.find('\n').unwrap_or(line.len()))
        } else if let Some(block) = here.strip_prefix("/*") {
            let end = block.find("*/");
            (" ", 2 + end.map_or(block.len(), |end| end + 2))
        } else if here.starts_with('"') {
            let length = quoted(here);
            (&here[..length], length)
        } else {
            ("/", 1)
        };
        code.push_str(kept);
        rest = &here[length..];
    }
    code + rest
}

/// Bytes of the string literal that a text begins with, its quotes among them. It ends with its line.
fn quoted(text: &str) -> usize {
    let mut escaped = true; // the first quote opens it
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\n' => return at,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// Device code of a build: machine code for one generation of chips, or PTX, which a driver
/// translates at first use. What each runs on, csrc/registry.cu knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Image {
    Sm80,
    Sm90a,
    Ptx90,
}

impl Image {
    const ALL: [Image; 3] = [Image::Sm80, Image::Sm90a, Image::Ptx90];

    /// In `CONVFORGE_ARCHS`.
    fn word(self) -> &'static str {
        match self {
            Image::Sm80 => "80",
            Image::Sm90a => "90a",
            Image::Ptx90 => "ptx",
        }
    }

    /// Tells csrc/registry.cu.
    fn define(self) -> &'static str {
        match self {
            Image::Sm80 => "-DCF_IMAGE_SM80",
            Image::Sm90a => "-DCF_IMAGE_SM90A",
            Image::Ptx90 => "-DCF_IMAGE_PTX90",
        }
    }

    /// The most that kernels in it may need.
    fn serves(self) -> Needs {
        match self {
            Image::Sm80 => Needs::Sm80,
            Image::Sm90a | Image::Ptx90 => Needs::Sm90a,
        }
    }

    /// Of a GPU that nvidia-smi calls `capability`, "9.0"; nothing for one that is too old.
    fn of_chip(capability: &str) -> Option<Image> {
        let (major, minor) = capability.trim().split_once('.')?;
        let chip: u32 = format!("{major}{minor}").parse().ok()?;
        match chip {
            ..80 => None,
            80..90 => Some(Image::Sm80),
            90 => Some(Image::Sm90a),
            _ => Some(Image::Ptx90),
        }
    }

    /// The architecture that nvcc compiles a file for, and what it makes of that. wgmma and
    /// setmaxnreg exist in 90a only. Others come out the same for 90, which PTX is made from as
    /// well: one compilation serves both.
    fn target(self, needs: Needs) -> (&'static str, &'static str) {
        match self {
            Image::Sm80 => ("compute_80", "sm_80"),
            Image::Sm90a if needs == Needs::Sm90a => ("compute_90a", "sm_90a"),
            Image::Sm90a => ("compute_90", "sm_90"),
            Image::Ptx90 if needs == Needs::Sm90a => ("compute_90a", "compute_90a"),
            Image::Ptx90 => ("compute_90", "compute_90"),
        }
    }
}

/// In `CONVFORGE_ARCHS`, for every image.
const ALL: &str = "all";
/// In `CONVFORGE_ARCHS`, for the GPUs that are here.
const NATIVE: &str = "native";

/// The images of a build, in the order above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Images(Vec<Image>);

impl Images {
    /// Reads `CONVFORGE_ARCHS`; all of them where it is not set, since what is built may run
    /// anywhere.
    pub(crate) fn from_variable(wanted: Option<&str>) -> Result<Images, String> {
        match wanted.map(str::trim) {
            None | Some(ALL) => Ok(Images(Image::ALL.to_vec())),
            Some(NATIVE) => Ok(Images::native(&capabilities())),
            Some(list) => Images::parse(list),
        }
    }

    /// Those for the chips that are named, one a line; and where none is Hopper PTX, which takes nobody's
    /// time in the assembler, so that every row can be planned, as tests do for chips that are not here.
    fn native(capabilities: &str) -> Images {
        let mut chips: BTreeSet<Image> = capabilities.lines().filter_map(Image::of_chip).collect();
        if !chips.contains(&Image::Sm90a) {
            chips.insert(Image::Ptx90);
        }
        Images(chips.into_iter().collect())
    }

    fn parse(list: &str) -> Result<Images, String> {
        let words: Vec<&str> = list.split(',').map(str::trim).collect();
        let known = |word: &&&str| Image::ALL.iter().any(|image| image.word() == **word);
        if let Some(word) = words.iter().find(|word| !known(word)) {
            return Err(format!(
                "CONVFORGE_ARCHS is `{list}`, and `{word}` is none of its words: it is a list of \
                 80 (Ampere to Ada), 90a (Hopper) and ptx (Hopper and newer chips, translated by the \
                 driver), joined by commas, or native (the GPUs of this machine) or all, as without it"
            ));
        }
        let named = |image: &Image| words.contains(&image.word());
        Ok(Images(Image::ALL.into_iter().filter(named).collect()))
    }

    /// Whether all device code is left to the driver.
    pub(crate) fn are_ptx_alone(&self) -> bool {
        self.0 == [Image::Ptx90]
    }

    /// "80-90a-ptx"
    pub(crate) fn name(&self) -> String {
        let words: Vec<&str> = self.0.iter().map(|image| image.word()).collect();
        words.join("-")
    }

    pub(crate) fn defines(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|image| image.define())
    }

    /// nvcc's flags for the images that a file is compiled to, one for each compilation: in others
    /// its kernels' bodies would be empty. Where no image serves, the first one does, since nvcc
    /// compiles for something; nobody launches what is in it (`cf_compiled_for`). PTX of what runs on
    /// sm_90 alone is for builds without its machine code.
    pub(crate) fn gencodes(&self, needs: Needs) -> Vec<String> {
        let hopper = needs == Needs::Sm90a && self.0.contains(&Image::Sm90a);
        let serving =
            |image: &&Image| image.serves() >= needs && !(hopper && **image == Image::Ptx90);
        let mut images: Vec<&Image> = self.0.iter().filter(serving).collect();
        if images.is_empty() {
            images.extend(self.0.first());
        }
        let targets: Vec<_> = images.iter().map(|image| image.target(needs)).collect();
        targets
            .chunk_by(|a, b| a.0 == b.0)
            .map(|same| {
                let codes: Vec<&str> = same.iter().map(|(_, code)| *code).collect();
                format!("-gencode=arch={},code=[{}]", same[0].0, codes.join(","))
            })
            .collect()
    }
}

/// The compute capabilities of the GPUs that are here, one a line; nothing where nobody knows.
fn capabilities() -> String {
    let mut asked = Command::new("nvidia-smi");
    asked.args(["--query-gpu=compute_cap", "--format=csv,noheader"]);
    match asked.output() {
        Ok(answer) if answer.status.success() => {
            String::from_utf8_lossy(&answer.stdout).into_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_it_needs() {
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM80,"), Needs::Sm80);
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM90,"), Needs::Sm90);
        assert_eq!(Needs::of("nullptr,\n    CF_NEEDS_SM90A,"), Needs::Sm90a);
        assert_eq!(Needs::of("CF_NEEDS_SM90AB"), Needs::Sm80);
        assert_eq!(Needs::of(""), Needs::Sm80);
    }

    #[test]
    fn a_comment_says_nothing() {
        for comment in [
            "// CF_NEEDS_SM90\n",
            "/* CF_NEEDS_SM90\n */",
            "x; /* \" */ // CF_NEEDS_SM90",
            "/*/ CF_NEEDS_SM90 */",
            "// never closed: \" /*\n/* CF_NEEDS_SM90",
        ] {
            assert_eq!(Needs::of(comment), Needs::Sm80, "{comment}");
        }
        for code in [
            "// a row\nCF_NEEDS_SM90,",
            "/* a row */ CF_NEEDS_SM90, // sm_90",
            "\"a // b\", CF_NEEDS_SM90",
            r#""a \" /* b", CF_NEEDS_SM90"#,
            "case '\"':\n CF_NEEDS_SM90",
            "a / b, CF_NEEDS_SM90",
        ] {
            assert_eq!(Needs::of(code), Needs::Sm90, "{code}");
        }
    }

    #[test]
    fn a_further_file_needs_what_its_row_does() {
        let folder = tempfile::tempdir().unwrap();
        let (row, further) = (
            folder.path().join("mma.cu"),
            folder.path().join("mma/f16.cu"),
        );
        fs::create_dir(further.parent().unwrap()).unwrap();
        fs::write(&further, "CF_NEEDS_SM90A").unwrap();
        assert_eq!(
            Needs::of_file(&further),
            Ok(Needs::Sm90a),
            "no row is beside it"
        );
        fs::write(&row, "CF_NEEDS_SM90").unwrap();
        assert_eq!(Needs::of_file(&further), Ok(Needs::Sm90));
        assert_eq!(Needs::of_file(&row), Ok(Needs::Sm90));
        fs::remove_file(&further).unwrap();
        fs::remove_file(&row).unwrap();
        assert!(Needs::of_file(&further).unwrap_err().contains("f16.cu"));
    }

    const GENERAL: &str = "-gencode=arch=compute_80,code=[sm_80]";
    const HOPPER: &str = "-gencode=arch=compute_90a,code=[sm_90a]";
    const BOTH: &str = "-gencode=arch=compute_90,code=[sm_90,compute_90]";
    const PTX: &str = "-gencode=arch=compute_90,code=[compute_90]";
    const HOPPER_PTX: &str = "-gencode=arch=compute_90a,code=[compute_90a]";

    #[test]
    fn files_skip_images_in_which_they_would_be_empty() {
        let all = Images::from_variable(None).unwrap();
        assert_eq!(all.gencodes(Needs::Sm80), [GENERAL, BOTH]);
        assert_eq!(all.gencodes(Needs::Sm90), [BOTH]);
        assert_eq!(all.gencodes(Needs::Sm90a), [HOPPER]);
    }

    #[test]
    fn a_file_that_no_image_serves_is_compiled_to_one() {
        let some = Images::parse("80").unwrap();
        assert_eq!(some.gencodes(Needs::Sm90), [GENERAL]);
        assert_eq!(some.gencodes(Needs::Sm90a), [GENERAL]);
    }

    #[test]
    fn ptx_alone_has_every_file() {
        let ptx = Images::parse("ptx").unwrap();
        assert!(ptx.are_ptx_alone());
        assert_eq!(ptx.gencodes(Needs::Sm80), [PTX]);
        assert_eq!(ptx.gencodes(Needs::Sm90), [PTX]);
        assert_eq!(ptx.gencodes(Needs::Sm90a), [HOPPER_PTX]);
        let both = Images::parse("80,ptx").unwrap();
        assert!(!both.are_ptx_alone());
        assert_eq!(both.gencodes(Needs::Sm80), [GENERAL, PTX]);
        assert_eq!(both.gencodes(Needs::Sm90a), [HOPPER_PTX]);
    }

    #[test]
    fn native_is_what_runs_on_the_gpus_that_are_here() {
        let native = |capabilities| Images::native(capabilities).name();
        assert_eq!(native("9.0\n9.0\n"), "90a");
        assert_eq!(native("8.9\n9.0\n8.0\n"), "80-90a");
        assert_eq!(native("12.0\n"), "ptx");
        assert_eq!(native("9.0\n10.3\n"), "90a-ptx");
        // None, too old, or an answer that is none
        for nothing in ["", "7.5\n", "[N/A]\n"] {
            assert_eq!(native(nothing), "ptx", "{nothing}");
        }
        assert_eq!(native("7.5\n8.6\n"), "80-ptx");
    }

    /// Cargo hands that of .cargo/config.toml to tests, too.
    #[test]
    fn the_checkouts_default_is_a_word() {
        let set = std::env::var("CONVFORGE_ARCHS").ok();
        assert!(Images::from_variable(set.as_deref()).is_ok(), "{set:?}");
    }

    #[test]
    fn the_list_may_be_narrowed() {
        let images = Images::parse("ptx, 80,80").unwrap();
        assert_eq!(images.name(), "80-ptx");
        let defines: Vec<&str> = images.defines().collect();
        assert_eq!(defines, ["-DCF_IMAGE_SM80", "-DCF_IMAGE_PTX90"]);
        for wrong in ["", "90", "80,,90a", "80;90a", "80,native", "all,ptx"] {
            let why = Images::from_variable(Some(wrong)).unwrap_err();
            assert!(why.contains("90a (Hopper)"), "{why}");
        }
        assert_eq!(
            Images::from_variable(Some("all")),
            Images::from_variable(None)
        );
    }
}
