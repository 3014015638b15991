//! Why a figure or a page is not written.

use std::path::PathBuf;

/// A figure or page that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The drawing failed.
    #[error("cannot draw: {0}")]
    Drawing(String),
    /// The program was built without it.
    #[error(
        "this program was built without PNG and PDF; write SVG, or build it with the feature `pictures`"
    )]
    NoPictures,
    /// The drawing cannot be made a picture.
    #[error("cannot make a picture of the drawing: {0}")]
    Picture(String),
    /// The file cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}
