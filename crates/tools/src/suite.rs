//! Named sets of problems: text files, one `problem` or `name problem` per line, `#` for remarks. Some
//! are compiled into the program.

use std::path::Path;

use convforge::{Layout, Math, Problem, Storage};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    files::{file_stem, read_text},
};

/// Names and texts of files in a folder of suites/.
macro_rules! suites {
    ($folder:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("suites/", $folder, $name, ".txt")))),*]
    };
}

/// A suite's name and the text of its file.
type File = (&'static str, &'static str);

/// The suites, in reading order.
const FILES: &[File] = suites!("":
    "quick"
    "report-86"
    "report-70"
    "report-vgg"
    "report-gemv"
    "first"
    "stems"
    "vgg16"
    "resnet50"
    "batch1"
    "grouped"
    "depthwise"
    "huge"
    "nets-tenth"
    "random"
    "heldout"
);

/// Suites of a network each, which a name stands for together. scripts/draw_suites.py draws them.
const GROUPS: [(&str, &[File]); 3] = [
    (
        "nets-depthwise",
        suites!("nets/depthwise/":
            "mobilenet-v1-depthwise"
            "mobilenet-v2-depthwise"
            "mobilenet-v3-large-depthwise"
            "efficientnet-b0-depthwise"
            "convnext-t-depthwise"
            "replknet-31b-depthwise"
            "shufflenet-v2-depthwise"
        ),
    ),
    (
        "nets-grouped",
        suites!("nets/grouped/":
            "resnext50-grouped"
            "regnety-800mf-grouped"
            "regnety-1600mf-grouped"
        ),
    ),
    (
        "nets-dense",
        suites!("nets/dense/":
            "resnet18"
            "resnet50-v15"
            "efficientnet-b0"
            "convnext-t"
            "unet"
            "yolov8-n"
            "sd15-unet"
            "densenet121"
            "inception-v3"
        ),
    ),
];

/// Every suite that has a file.
fn files() -> impl Iterator<Item = &'static File> {
    FILES
        .iter()
        .chain(GROUPS.iter().flat_map(|(_, files)| *files))
}

/// One problem of a suite, or one that was asked for by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// The suite; empty for a problem that was asked for by itself.
    pub suite: String,
    /// Its name there. The batch is no part of it, so several layers may share a name.
    pub layer: String,
    /// The problem.
    pub problem: Problem,
    /// Of a model's layer the nodes that it stands for; empty for others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<String>,
}

/// A named set of problems.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Its name on the command line.
    pub name: String,
    /// What it is, from the remarks at the head of its file.
    pub about: String,
    /// Its problems.
    pub layers: Vec<Layer>,
}

impl Suite {
    /// Every suite's name, those of groups among them.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let groups = GROUPS.iter().map(|(name, _)| *name);
        groups.chain(files().map(|(name, _)| *name))
    }

    /// The suite of this name, or the layers of all suites that it stands for, each with the suite that
    /// it is of.
    ///
    /// # Errors
    /// [`Error::UnknownSuite`] with the nearest name there is.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((_, text)) = files().find(|(known, _)| *known == name) {
            let about = text.lines().filter_map(|line| line.strip_prefix("# "));
            return Ok(Suite {
                about: about.collect::<Vec<_>>().join(" "),
                layers: read_layers(Path::new(name), name, text)?,
                name: name.to_owned(),
            });
        }
        let group = GROUPS.iter().find(|(known, _)| *known == name);
        let (_, files) = group.ok_or_else(|| Error::UnknownSuite {
            name: name.to_owned(),
            close: convforge::Error::closest(name, Suite::names()),
            known: Suite::names().collect::<Vec<_>>().join(", "),
        })?;
        let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
        let mut layers = Vec::new();
        for name in &names {
            layers.extend(Suite::find(name)?.layers);
        }
        Ok(Suite {
            about: format!("The suites {}.", names.join(", ")),
            layers,
            name: name.to_owned(),
        })
    }

    /// The suite of this name, or else that of a file, which is called as the file is without its
    /// ending.
    ///
    /// # Errors
    /// [`Error::UnknownSuite`] where it is neither; [`Error::File`] that names the line.
    pub fn open(name: &str) -> Result<Self> {
        let path = Path::new(name);
        let known = Suite::names().any(|known| known == name);
        if known || !(path.exists() || name.contains('/')) {
            return Suite::find(name);
        }
        let stem = file_stem(path);
        Ok(Suite {
            layers: read_layers(path, &stem, &read_text(path)?)?,
            about: String::new(),
            name: stem,
        })
    }
}

/// The problems of a text, with their names. `place` is what errors name.
///
/// # Errors
/// [`Error::File`] with the line that cannot be read, or where there is no problem in it.
pub fn read_layers(place: &Path, suite: &str, text: &str) -> Result<Vec<Layer>> {
    let lines = (1..).zip(text.lines().map(str::trim));
    let layers = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| {
            let (layer, problem) = line.split_once(char::is_whitespace).unwrap_or(("", line));
            let problem = problem.trim().parse();
            Ok(Layer {
                suite: suite.to_owned(),
                layer: layer.to_owned(),
                problem: problem.map_err(|why: convforge::Error| {
                    Error::file(place, format!("line {number}: {why}"))
                })?,
                nodes: Vec::new(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    match layers.is_empty() {
        true => Err(Error::file(
            place,
            "has no problem: one stands in a line, after its name or alone",
        )),
        false => Ok(layers),
    }
}

impl Layer {
    /// A problem by itself.
    pub fn alone(problem: Problem) -> Self {
        Layer {
            suite: String::new(),
            layer: String::new(),
            problem,
            nodes: Vec::new(),
        }
    }

    /// `report-86 l1 mb100ic1ih86oc4oh80kh7`.
    pub fn title(&self) -> String {
        let words = [&self.suite, &self.layer, &self.problem.to_string()];
        words
            .into_iter()
            .filter(|w| !w.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Words of a problem to be replaced in each problem of a suite.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Storage; where it changes, the math becomes the storage's own.
    pub storage: Option<Storage>,
    /// Layout.
    pub layout: Option<Layout>,
    /// Math.
    pub math: Option<Math>,
    /// Images.
    pub batch: Option<usize>,
}

impl Overrides {
    /// The layers with these words replaced; what has become equal is kept once.
    ///
    /// # Errors
    /// [`convforge::Error::InvalidProblem`] where the words do not go together.
    pub fn apply(&self, layers: &[Layer]) -> Result<Vec<Layer>> {
        let mut changed = Vec::new();
        for layer in layers {
            let problem = layer.problem.with(|shape| {
                shape.n = self.batch.unwrap_or(shape.n);
                shape.layout = self.layout.unwrap_or(shape.layout);
                if let Some(storage) = self.storage.filter(|s| *s != shape.storage) {
                    shape.storage = storage;
                    shape.align = shape.align.max(storage.bytes());
                    shape.math = storage.maths()[0];
                }
                shape.math = self.math.unwrap_or(shape.math);
            })?;
            let layer = Layer {
                problem,
                ..layer.clone()
            };
            if !changed.contains(&layer) {
                changed.push(layer);
            }
        }
        Ok(changed)
    }
}

/// Operations of one problem that the CPU's plain loops and its oracle get through in seconds.
pub const CPU_FLOPS: f64 = 1e8;
/// Bytes of one problem that fit any machine.
const CPU_BYTES: f64 = 64e6;

/// The layers with batches that a CPU gets through in reasonable time, what has become equal kept
/// once; and for each layer whose batch was reduced, a line that says so.
pub fn reduce_for_cpu(layers: &[Layer]) -> (Vec<Layer>, Vec<String>) {
    let mut reduced: Vec<Layer> = Vec::new();
    let mut notes = Vec::new();
    for layer in layers {
        let fits = |n: usize| {
            let problem = layer.problem.with(|shape| shape.n = n).ok()?;
            let small = n == 1 || problem.flops() <= CPU_FLOPS && problem.bytes() <= CPU_BYTES;
            small.then_some(problem)
        };
        // 1, 2, 5, 10, 20, 50, ... images below the layer's own.
        let batches = (0..9).flat_map(|e| [1, 2, 5].map(|m| m * 10usize.pow(e)));
        let smaller = || {
            batches
                .take_while(|n| *n < layer.problem.n())
                .filter_map(fits)
                .last()
        };
        let problem = fits(layer.problem.n())
            .or_else(smaller)
            .unwrap_or(layer.problem.clone());
        if problem != layer.problem {
            notes.push(format!(
                "{}: batch {} reduced to {} on the CPU",
                layer.title(),
                layer.problem.n(),
                problem.n()
            ));
        }
        let layer = Layer {
            problem,
            ..layer.clone()
        };
        if !reduced.contains(&layer) {
            reduced.push(layer);
        }
    }
    (reduced, notes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_suite_is_spelled_as_the_program_spells_it() {
        for (name, text) in files() {
            let suite = Suite::find(name).unwrap();
            assert!(!suite.about.is_empty(), "{name} does not say what it is");
            assert!(!suite.layers.is_empty());
            for layer in &suite.layers {
                assert!(
                    text.contains(&format!(" {}\n", layer.problem)),
                    "{}",
                    layer.title()
                );
                assert!(!layer.layer.is_empty());
            }
        }
    }

    #[test]
    fn every_name_is_one_suite() {
        let mut names: Vec<&str> = Suite::names().collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        assert_eq!(twice, None);
        for name in names {
            // What results say was asked for.
            assert_eq!(file_stem(Path::new(name)), name);
        }
    }

    #[test]
    fn a_group_is_the_layers_of_its_suites() {
        for (name, files) in GROUPS {
            let group = Suite::find(name).unwrap();
            let whole = files
                .iter()
                .flat_map(|(name, _)| Suite::find(name).unwrap().layers);
            assert_eq!(group.layers, whole.collect::<Vec<_>>());
            assert!(group.about.contains(files[0].0), "{}", group.about);
        }
        let dense = Suite::find("nets-dense").unwrap().layers;
        assert!(dense.iter().all(|layer| layer.problem.groups() == 1));
    }

    /// What tells layers apart, but for the number of images and what options change.
    fn shape(layer: &Layer) -> String {
        let single = layer.problem.with(|shape| shape.n = 1).unwrap().to_string();
        single.split('+').next().unwrap().to_owned()
    }

    #[test]
    fn no_layer_is_held_out_and_in_another_suite() {
        let held_out = Suite::find("heldout").unwrap().layers;
        let held_out: BTreeSet<String> = held_out.iter().map(shape).collect();
        assert!(held_out.len() > 90);
        for (name, _) in files().filter(|(name, _)| *name != "heldout") {
            for layer in Suite::find(name).unwrap().layers {
                assert!(!held_out.contains(&shape(&layer)), "{}", layer.title());
            }
        }
    }

    #[test]
    fn a_file_is_a_suite() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.txt");
        let open = |text: &str| {
            std::fs::write(&path, text).unwrap();
            Suite::open(path.to_str().unwrap())
        };
        let suite = open("# about\n\nmb1ic3ih8oc4kh3\n  stem  mb2ic3ih8oc4kh3+f16  \n").unwrap();
        let titles: Vec<String> = suite.layers.iter().map(Layer::title).collect();
        let (first, second) = (
            "mine mb1ic3ih8oc4oh6kh3",
            "mine stem mb2ic3ih8oc4oh6kh3+f16",
        );
        assert_eq!(titles, [first, second]);
        for (text, part) in [
            ("# nothing\n", "mine.txt: has no problem"),
            (
                "\na mb1ic3ih8oc4kh3 b\n",
                "mine.txt: line 2: `mb1ic3ih8oc4kh3 b` is not a problem",
            ),
            ("mb1ic0ih8oc4kh3", "mine.txt: line 1: invalid problem"),
        ] {
            let said = open(text).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
        let absent = Suite::open("no/such.txt").unwrap_err();
        assert!(crate::chain(&absent).contains("no/such.txt: cannot be read: No such file"));
    }

    #[test]
    fn an_unknown_suite_names_the_nearest() {
        let text = Suite::find("resnet5").unwrap_err().to_string();
        assert!(text.contains("did you mean `resnet50`"), "{text}");
    }

    #[test]
    fn overrides_replace_words_and_merge_what_is_equal() {
        let report = Suite::find("report-86").unwrap().layers;
        let overrides = Overrides {
            batch: Some(100),
            ..Overrides::default()
        };
        let layers = overrides.apply(&report).unwrap();
        assert_eq!(layers, report[..2]);

        let half = Overrides {
            storage: Some(Storage::F16),
            ..Overrides::default()
        };
        let gemv = half
            .apply(&Suite::find("report-gemv").unwrap().layers)
            .unwrap();
        assert_eq!(gemv.len(), 2);
        assert_eq!(gemv[0].problem.to_string(), "mb1ic25088ih1oc4096oh1kh1+f16");

        let wrong = Overrides {
            math: Some(Math::Tf32),
            ..half
        };
        assert!(wrong.apply(&report).is_err());
    }

    #[test]
    fn the_cpu_gets_smaller_batches() {
        let (layers, notes) = reduce_for_cpu(&Suite::find("report-86").unwrap().layers);
        let batches: Vec<usize> = layers.iter().map(|l| l.problem.n()).collect();
        assert_eq!(batches, [20, 10]);
        assert_eq!(notes.len(), 6);
    }

    #[test]
    fn the_words_of_recorded_comparisons_go_with_their_suites() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/record.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines();
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split(' ').skip(1);
            let (mut layers, mut overrides) = (Vec::new(), Overrides::default());
            while let (Some(option), Some(value)) = (words.next(), words.next()) {
                match option {
                    "--suite" => layers.extend(Suite::find(value).unwrap().layers),
                    "--batch" => overrides.batch = Some(value.parse().unwrap()),
                    "--storage" => overrides.storage = Some(value.parse().unwrap()),
                    "--layout" => overrides.layout = Some(value.parse().unwrap()),
                    "--math" => overrides.math = Some(value.parse().unwrap()),
                    "--also" => {}
                    _ => panic!("{line}: {option}"),
                }
            }
            let changed = overrides.apply(&layers);
            assert!(changed.is_ok_and(|layers| !layers.is_empty()), "{line}");
        }
    }
}
