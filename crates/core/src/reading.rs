//! Reads laws and disciplines that a file may give as a string or as a table.

use core::fmt;
use core::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Reads a `T`: a string by `read`, a table as a `Table`. `expected` describes valid values in the
/// error for anything else.
pub(crate) fn string_or_table<'de, Table, T, E, D>(
    deserializer: D,
    expected: &'static str,
    read: fn(&str) -> Result<T, E>,
) -> Result<T, D::Error>
where
    Table: Deserialize<'de> + Into<T>,
    E: fmt::Display,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(StringOrTable { expected, read, table: PhantomData::<Table> })
}

struct StringOrTable<Table, T, E> {
    expected: &'static str,
    read: fn(&str) -> Result<T, E>,
    table: PhantomData<Table>,
}

impl<'de, Table, T, E> Visitor<'de> for StringOrTable<Table, T, E>
where
    Table: Deserialize<'de> + Into<T>,
    E: fmt::Display,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<Refusal: Error>(self, text: &str) -> Result<T, Refusal> {
        (self.read)(text).map_err(Refusal::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        Table::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
    }
}
