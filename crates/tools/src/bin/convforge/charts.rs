//! A folder of SVG charts.

use std::{fs, path::Path};

use convforge_tools::{
    Error,
    files::{file_name, write_whole},
    measure::{Environment, Part},
};

use crate::failure::Failure;

/// Makes the folder.
pub fn make(folder: &Path) -> Result<(), Failure> {
    let made = fs::create_dir_all(folder);
    Ok(made.map_err(|why| Error::file_because(folder, "cannot be made", why))?)
}

/// Draws the chart of a table.
pub fn write(folder: &Path, part: &Part, environment: &Environment) -> Result<(), Failure> {
    // A layer may be there with several batches, which its title tells apart.
    let path = folder.join(file_name(&part.title, "svg"));
    Ok(write_whole(&path, part.chart(environment)?)?)
}
