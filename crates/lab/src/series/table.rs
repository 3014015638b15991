//! Tables that grow line by line: CSV, or columns in memory.

use std::io::{self, Write};

use freshline_core::unit::Span;

/// A cell of a table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number. Integers up to 2⁵³ are exact.
    Number(f64),
    /// A number that is unknown, such as an age before the first delivery.
    Unknown,
    /// A word.
    Text(&'static str),
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Unknown, Self::Number)
    }
}

impl From<Option<Span>> for Value {
    /// In seconds.
    fn from(span: Option<Span>) -> Self {
        span.map(Span::as_secs_f64).into()
    }
}

/// Receives the lines of a table. Every line has one value per column, and a column has either
/// numbers or texts.
pub trait Table {
    /// Adds a line.
    ///
    /// # Errors
    /// Those of the output.
    fn line(&mut self, values: &[Value]) -> io::Result<()>;

    /// The last line has been added.
    ///
    /// # Errors
    /// Errors of the output.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A table with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Named<T> {
    /// Its name, such as `flow-robot`, `link-uplink` or `cell-home`.
    pub name: String,
    /// The table.
    pub table: T,
}

/// Writes a table as CSV. A number that is unknown is an empty field.
#[derive(Debug)]
pub struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    /// Writes the line of the columns' names.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(mut out: W, columns: &[&'static str]) -> io::Result<Self> {
        writeln!(out, "{}", columns.join(","))?;
        Ok(Self { out })
    }
}

impl<W: Write> Table for Csv<W> {
    fn line(&mut self, values: &[Value]) -> io::Result<()> {
        for (place, value) in values.iter().enumerate() {
            let separator = if place > 0 { "," } else { "" };
            match value {
                Value::Number(number) => write!(self.out, "{separator}{number}")?,
                Value::Unknown => self.out.write_all(separator.as_bytes())?,
                Value::Text(text) => write!(self.out, "{separator}{text}")?,
            }
        }
        writeln!(self.out)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A table in memory, column by column: 8 bytes per number.
#[derive(Debug, Clone, PartialEq)]
pub struct Columns {
    /// The names of the columns.
    pub names: Vec<&'static str>,
    /// The columns, in the order of their names, each with one value per line.
    pub columns: Vec<Column>,
}

/// A column of a table in memory.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// Numbers; NaN where one is unknown.
    Numbers(Vec<f64>),
    /// Texts; empty where one is unknown.
    Texts(Vec<&'static str>),
}

impl Columns {
    /// A table without lines.
    pub fn new(names: &[&'static str]) -> Self {
        let columns = vec![Column::Numbers(Vec::new()); names.len()];
        Self { names: names.to_vec(), columns }
    }

    /// The column with a name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        let place = self.names.iter().position(|known| *known == name)?;
        self.columns.get(place)
    }

    /// The number of lines.
    pub fn lines(&self) -> usize {
        self.columns.first().map_or(0, Column::len)
    }
}

impl Table for Columns {
    fn line(&mut self, values: &[Value]) -> io::Result<()> {
        for (column, value) in self.columns.iter_mut().zip(values) {
            column.push(*value);
        }
        Ok(())
    }
}

impl Column {
    /// The number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers(numbers) => numbers.len(),
            Self::Texts(texts) => texts.len(),
        }
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push(&mut self, value: Value) {
        match (&mut *self, value) {
            (Self::Texts(texts), Value::Text(text)) => texts.push(text),
            (Self::Texts(texts), Value::Number(_) | Value::Unknown) => texts.push(""),
            (Self::Numbers(numbers), Value::Number(number)) => numbers.push(number),
            (Self::Numbers(numbers), Value::Unknown) => numbers.push(f64::NAN),
            // The first text shows that it is a column of texts; before it, all were unknown.
            (Self::Numbers(numbers), Value::Text(text)) => {
                let mut texts = vec![""; numbers.len()];
                texts.push(text);
                *self = Self::Texts(texts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [[Value; 3]; 2] = [
        [Value::Number(0.1), Value::Number(3.0), Value::Unknown],
        [Value::Number(0.2), Value::Unknown, Value::Text("wireless")],
    ];

    #[test]
    fn a_csv_has_empty_fields_for_unknown_values_and_no_point_in_integers() {
        let mut csv = Csv::new(Vec::new(), &["time_s", "packets", "place"]).unwrap();
        LINES.iter().for_each(|line| csv.line(line).unwrap());
        let text = String::from_utf8(csv.out).unwrap();
        assert_eq!(text, "time_s,packets,place\n0.1,3,\n0.2,,wireless\n");
    }

    #[test]
    fn columns_in_memory_have_a_value_per_line_and_nan_for_unknown_numbers() {
        let mut table = Columns::new(&["time_s", "packets", "place"]);
        LINES.iter().for_each(|line| table.line(line).unwrap());
        assert_eq!(table.lines(), 2);
        assert_eq!(table.column("time_s"), Some(&Column::Numbers(vec![0.1, 0.2])));
        assert_eq!(table.column("place"), Some(&Column::Texts(vec!["", "wireless"])));
        let Some(Column::Numbers(packets)) = table.column("packets") else { panic!("{table:?}") };
        assert!(packets[0] == 3.0 && packets[1].is_nan(), "{packets:?}");
        assert_eq!(table.column("age_s"), None);
    }
}
