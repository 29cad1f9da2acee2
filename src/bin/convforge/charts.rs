//! A folder of SVG charts, one per problem.

use std::{fs, path::Path};

use convforge::{
    measure::{self, Environment, Row},
    suite::Layer,
};

use crate::failure::Failure;

/// Makes the folder.
pub fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| wrong(folder, error))
}

/// Draws the chart of one problem.
pub fn write(
    folder: &Path,
    layer: &Layer,
    rows: &[Row],
    environment: &Environment,
) -> Result<(), Failure> {
    let path = folder.join(file_name(layer));
    let svg = measure::chart(&layer.title(), rows, environment)?;
    fs::write(&path, svg).map_err(|error| wrong(&path, error))
}

fn wrong(path: &Path, why: std::io::Error) -> Failure {
    Failure::Error(format!("{}: {why}", path.display()).into())
}

/// `report-86-l1-mb100ic1ih86oc4oh80kh7.svg`: a layer may be there with several batches.
fn file_name(layer: &Layer) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._+=".contains(c);
    let title: String = layer.title();
    let name = title.chars().map(|c| if fits(c) { c } else { '-' });
    name.collect::<String>() + ".svg"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_title_without_what_file_systems_dislike() {
        let layer = Layer {
            suite: "vgg16".to_owned(),
            layer: "a/b".to_owned(),
            problem: "mb1ic1ih3oc1kh1+f16".parse().unwrap(),
        };
        assert!(file_name(&layer).starts_with("vgg16-a-b-mb1ic1ih3oc1"));
        assert!(file_name(&layer).ends_with("+f16.svg"));
    }
}
