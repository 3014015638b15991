//! The contents of a figure, independent of its drawing.

/// A figure: panels under one title.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Its title.
    pub title: String,
    /// One per quantity.
    pub panels: Vec<Panel>,
    /// A sentence below, such as the meaning of an interval.
    pub note: String,
}

/// A part of a figure, with an axis of its own for its quantity.
#[derive(Debug, Clone, PartialEq)]
pub enum Panel {
    /// Values over a number, or over labels.
    Curves(Curves),
    /// Values of things that have no order.
    Rows(Rows),
}

impl Panel {
    /// Its title.
    pub fn title(&self) -> &str {
        match self {
            Self::Curves(curves) => &curves.title,
            Self::Rows(rows) => &rows.title,
        }
    }
}

/// Values over a number, or over labels.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Curves {
    /// Its title.
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// In the order of the legend.
    pub series: Vec<Series>,
}

/// An axis. Values are in base units (`s`, `bit/s`); the drawing scales them to ms or Mbit/s.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Axis {
    /// The quantity.
    pub name: String,
    /// Its base unit; empty or `1` for a plain number.
    pub unit: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// With labels the values are places: 0 is that of the first label.
    pub labels: Vec<String>,
}

impl Axis {
    /// An axis of numbers with a scale that is chosen by their range.
    pub fn new(name: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { name: name.into(), unit: unit.into(), ..Self::default() }
    }
}

/// How an axis maps its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Logarithmic if all values are positive and the largest is at least 50 times the smallest.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Logarithmic; linear where a value is not positive.
    Log,
}

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Whether it is an expected value, for example of a paper: hollow marks.
    pub is_expected: bool,
    /// Series with the same number have the same colour.
    pub color: usize,
    /// In the order of `x`.
    pub points: Vec<Point>,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// Marks only.
    Marks,
    /// Marks, joined by lines.
    Joined,
    /// A line without marks, as for time series.
    Line,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The place.
    pub x: f64,
    /// The value; NaN where it is unknown, at which a line has a gap.
    pub y: f64,
    /// Half the width of the 95 % interval of `y`.
    pub half: Option<f64>,
}

/// Values of things that have no order: a line per thing.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rows {
    /// Its title.
    pub title: String,
    /// The quantity. Starts at zero unless it is logarithmic or has negative values.
    pub x: Axis,
    /// In the order of the legend.
    pub series: Vec<RowSeries>,
    /// From top to bottom.
    pub rows: Vec<Row>,
}

/// Values of one kind in [`Rows`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSeries {
    /// Its name in the legend.
    pub name: String,
    /// Whether it is an expected value, for example of a paper: hollow marks.
    pub is_expected: bool,
}

impl RowSeries {
    /// Measured values.
    pub fn measured(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_expected: false }
    }

    /// Expected values.
    pub fn expected(name: impl Into<String>) -> Self {
        Self { name: name.into(), is_expected: true }
    }
}

/// A line of [`Rows`].
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Its description in words.
    pub label: String,
    /// Whether the label is emphasised, as of a number that is not as expected.
    pub is_broken: bool,
    /// Its values.
    pub marks: Vec<Mark>,
}

/// A value of a [`Row`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    /// The place of its series in [`Rows::series`].
    pub series: usize,
    /// The value; `None` where only a range is known.
    pub value: Option<f64>,
    /// Half the width of its 95 % interval.
    pub half: Option<f64>,
    /// A range, such as a tolerance.
    pub band: Option<Band>,
}

/// A range of values; an infinite end is that of the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Band {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}
