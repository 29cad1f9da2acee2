//! A folder of SVG charts.

use std::{fs, path::Path};

use convforge::measure::{Environment, Part};

use crate::failure::Failure;

/// Makes the folder.
pub fn make(folder: &Path) -> Result<(), Failure> {
    fs::create_dir_all(folder).map_err(|error| wrong(folder, error))
}

/// Draws the chart of a table.
pub fn write(folder: &Path, part: &Part, environment: &Environment) -> Result<(), Failure> {
    let path = folder.join(file_name(&part.title));
    fs::write(&path, part.chart(environment)?).map_err(|error| wrong(&path, error))
}

fn wrong(path: &Path, why: std::io::Error) -> Failure {
    Failure::Error(format!("{}: {why}", path.display()).into())
}

/// `report-86-l1-mb100ic1ih86oc4oh80kh7.svg`: a layer may be there with several batches.
fn file_name(title: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._+=".contains(c);
    let name = title.chars().map(|c| if fits(c) { c } else { '-' });
    name.collect::<String>() + ".svg"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_title_without_what_file_systems_dislike() {
        let name = file_name("vgg16 a/b mb1ic1ih3oc1oh3kh1+f16");
        assert_eq!(name, "vgg16-a-b-mb1ic1ih3oc1oh3kh1+f16.svg");
    }
}
