//! Figures and reports: data in, SVG, PNG, PDF or HTML out.
//!
//! ```text
//!   Figure ─► svg() ─► SVG ─► write(): SVG, PNG, PDF
//!                       └──► Page ─► HTML that loads nothing
//!   saved runs ─► Comparison ─► text, Page
//! ```
//!
//! A [`Figure`] has panels, one per quantity: [`Curves`] over a number or over labels, or [`Rows`] with marks.
//! Text that is drawn or written is escaped here; callers pass it as it is.

mod compare;
mod draw;
mod error;
mod figure;
mod number;
mod output;
mod page;
mod panels;
#[cfg(feature = "pictures")]
mod picture;
mod saved;
mod words;

pub use compare::{Comparison, Difference, Verdict};
pub use draw::svg;
pub use error::OutputError;
pub use figure::{
    Axis, Band, Curves, Figure, Mark, Panel, Point, Row, RowSeries, Rows, Scale, Series, Stroke,
};
pub use number::{interval, scaled, short};
pub use output::{Format, write};
pub use page::{Cell, Column, Fact, Page, Section, Table, utc};
pub use panels::{PanelOptions, metric_panels};
pub use saved::{SavedError, SavedMetric, SavedPoint, SavedRun};
pub use words::{capitalised, key_in_words, metric_in_words, number_with_unit, quantity_in_words};
