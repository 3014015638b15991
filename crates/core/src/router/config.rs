//! Disciplines as people write them, in files and in flags.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use rand::{Rng, SeedableRng};

use alloc::boxed::Box;

use super::{Discipline, Fifo, FlowHash, IfcConfig, Ifil, Limit, Packet, ParseLimitError};
use crate::unit::Packets;

const IFIL_LIMIT: Packets = Packets::new(10_000);

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
    /// The newest packet of each flow.
    Ifil {
        /// Of how many flows it holds a packet, above zero and at most [`Ifil::MAX_LIMIT`].
        limit: Packets,
    },
    /// Freshness control.
    Ifc(Box<IfcConfig>),
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
    /// A table that is too large.
    #[error(
        "`limit` is {limit}, and every flow takes memory from the start; give one of at most {most}"
    )]
    LimitTooLarge {
        /// The limit given.
        limit: Packets,
        /// The largest.
        most: Packets,
    },
    /// Intervals without length.
    #[error("`frame` is zero; give a length above zero, such as `100ms`")]
    ZeroFrame,
    /// A part of a discipline.
    #[error("`{class}`: {reason}")]
    Child {
        /// The class whose queue it is.
        class: &'static str,
        /// What is wrong with it.
        reason: Box<QdiscError>,
    },
}

impl QdiscConfig {
    /// IFIL with its default limit, 10000 flows: the paper's "moderate" size.
    pub const IFIL: Self = Self::Ifil { limit: IFIL_LIMIT };

    /// The discipline. What randomness it needs it draws from `rng`, now; one that needs none draws
    /// none.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        rng: &mut R,
    ) -> Result<Discipline<P>, QdiscError> {
        match self {
            Self::Fifo { limit } if limit.is_zero() => Err(QdiscError::ZeroLimit),
            Self::Fifo { limit } => Ok(Discipline::Fifo(Fifo::new(*limit))),
            Self::Ifil { limit: Packets::ZERO } => Err(QdiscError::ZeroLimit),
            Self::Ifil { limit } if *limit > Ifil::<P>::MAX_LIMIT => {
                Err(QdiscError::LimitTooLarge { limit: *limit, most: Ifil::<P>::MAX_LIMIT })
            }
            Self::Ifil { limit } => Ok(Discipline::Ifil(Ifil::new(*limit, FlowHash::draw(rng)))),
            Self::Ifc(config) => Ok(Discipline::Ifc(Box::new(config.build(rng)?))),
        }
    }
}

/// Neither the name of a discipline nor a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no discipline; write `fifo`, `ifil`, `ifc`, or the limit of a drop-tail queue: {limit}"
)]
pub struct ParseQdiscError {
    text: String,
    limit: ParseLimitError,
}

impl FromStr for QdiscConfig {
    type Err = ParseQdiscError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "fifo" => Ok(Self::default()),
            "ifil" => Ok(Self::IFIL),
            "ifc" => Ok(Self::Ifc(Box::default())),
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
            Self::Ifil { .. } => f.write_str("ifil"),
            Self::Ifc(_) => f.write_str("ifc"),
        }
    }
}

/// A discipline in a file: a string as in a flag, or a table.
#[cfg(feature = "serde")]
mod reading {
    use core::fmt;

    use serde::de::value::MapAccessDeserializer;
    use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

    use alloc::boxed::Box;

    use super::{IFIL_LIMIT, IfcConfig, Limit, Packets, QdiscConfig};

    /// The table.
    #[derive(serde::Deserialize)]
    #[serde(tag = "discipline", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Fifo {
            #[serde(default)]
            limit: Limit,
        },
        Ifil {
            #[serde(default = "ifil_limit")]
            limit: Packets,
        },
        Ifc(Box<IfcConfig>),
    }

    fn ifil_limit() -> Packets {
        IFIL_LIMIT
    }

    impl From<Table> for QdiscConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Fifo { limit } => Self::Fifo { limit },
                Table::Ifil { limit } => Self::Ifil { limit },
                Table::Ifc(config) => Self::Ifc(config),
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
