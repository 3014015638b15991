//! Files that are written anew.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Puts a file in the place of another one, or where none is, once `write` has written it: whenever the process
/// ends, one of the two is there, whole. Gives what `write` makes of the file.
///
/// # Errors
/// If it cannot be written; then the former file is there.
pub(crate) fn replace<T>(
    path: &Path,
    options: &OpenOptions,
    write: impl FnOnce(File) -> io::Result<T>,
) -> io::Result<T> {
    let mut name: OsString = path.into();
    name.push(".new");
    let new = PathBuf::from(name);
    let written = write(options.open(&new)?)?;
    fs::rename(&new, path)?;
    Ok(written)
}
