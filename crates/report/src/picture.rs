//! PNG and PDF of a drawing, with DejaVu Sans in place of `sans-serif`.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb::Database};

use crate::error::OutputError;

/// Pixels per unit of the SVG.
const SCALE: f32 = 2.0;

/// A picture of `svg`, of two pixels per unit.
pub(crate) fn png(svg: &str) -> Result<Vec<u8>, OutputError> {
    let tree = tree(svg)?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let size = size.ok_or_else(|| OutputError::Picture("it has no size".to_owned()))?;
    let mut pixels = Pixmap::new(size.width(), size.height())
        .ok_or_else(|| OutputError::Picture("it is too large".to_owned()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| OutputError::Picture(error.to_string()))
}

/// A page of the size of `svg`, in which the font is embedded.
pub(crate) fn pdf(svg: &str) -> Result<Vec<u8>, OutputError> {
    let tree = tree(svg)?;
    let (conversion, page) =
        (svg2pdf::ConversionOptions::default(), svg2pdf::PageOptions::default());
    svg2pdf::to_pdf(&tree, conversion, page)
        .map_err(|error| OutputError::Picture(error.to_string()))
}

fn tree(svg: &str) -> Result<Tree, OutputError> {
    let mut fonts = Database::new();
    for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
        fonts.load_font_data(font.to_vec());
    }
    fonts.set_sans_serif_family("DejaVu Sans");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    Tree::from_str(svg, &options).map_err(|error| OutputError::Picture(error.to_string()))
}
