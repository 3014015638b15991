//! Disciplines as people write them, in files and in flags.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use rand::{Rng, SeedableRng};

use super::{Discipline, Fifo, Limit, Packet, ParseLimitError};

/// Which discipline, with which parameters.
///
/// In a flag it is a name, with the parameters' defaults, or a limit, which is a drop-tail queue's:
/// `fifo`, `64kB`. In a file it may also be a table, with the name as its `discipline`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "discipline", rename_all = "snake_case"))]
pub enum QdiscConfig {
    /// Drop-tail.
    Fifo {
        /// What it holds, above zero.
        limit: Limit,
    },
}

impl Default for QdiscConfig {
    fn default() -> Self {
        Self::Fifo { limit: Limit::default() }
    }
}

/// A discipline that cannot be built.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QdiscError {
    /// A queue that lets nothing through.
    #[error("`limit` is zero, and everything passes through the queue; give at least `1p`")]
    ZeroLimit,
}

impl QdiscConfig {
    /// The discipline. What randomness it needs it draws from `rng`, now; one that needs none draws
    /// none.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        _rng: &mut R,
    ) -> Result<Discipline<P>, QdiscError> {
        match self {
            Self::Fifo { limit } if limit.is_zero() => Err(QdiscError::ZeroLimit),
            Self::Fifo { limit } => Ok(Discipline::Fifo(Fifo::new(*limit))),
        }
    }
}

/// Neither the name of a discipline nor a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no discipline; write `fifo`, or the limit of a drop-tail queue: {limit}")]
pub struct ParseQdiscError {
    text: String,
    limit: ParseLimitError,
}

impl FromStr for QdiscConfig {
    type Err = ParseQdiscError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fifo" => Ok(Self::default()),
            _ => match text.parse() {
                Ok(limit) => Ok(Self::Fifo { limit }),
                Err(limit) => Err(ParseQdiscError { text: text.to_string(), limit }),
            },
        }
    }
}

impl fmt::Display for QdiscConfig {
    /// As it is written in a flag; parameters other than a drop-tail queue's limit are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo { limit } => limit.fmt(f),
        }
    }
}

/// A discipline in a file: a string as in a flag, or a table.
#[cfg(feature = "serde")]
mod reading {
    use core::fmt;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

    use super::{Limit, QdiscConfig};

    /// The table.
    #[derive(serde::Deserialize)]
    #[serde(tag = "discipline", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Fifo {
            #[serde(default)]
            limit: Limit,
        },
    }

    impl From<Table> for QdiscConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Fifo { limit } => Self::Fifo { limit },
            }
        }
    }

    impl<'de> Deserialize<'de> for QdiscConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct StringOrTable;

            impl<'de> Visitor<'de> for StringOrTable {
                type Value = QdiscConfig;

                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("a discipline or limit such as `fifo` or `100p`, or a table with `discipline`")
                }

                fn visit_str<E: Error>(self, text: &str) -> Result<QdiscConfig, E> {
                    text.parse().map_err(E::custom)
                }

                fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<QdiscConfig, A::Error> {
                    Table::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
                }
            }

            deserializer.deserialize_any(StringOrTable)
        }
    }
}
