//! Atomic replacement of files.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Creates or replaces a file after `write` has written the new content: whenever the process ends,
/// either the old or the new file is there, complete. Returns the result of `write`.
///
/// # Errors
/// If it cannot be written; then the former file remains.
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
