//! Disciplines as people write them, in files and in flags.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use super::{
    Codel, CodelParams, Discipline, Fifo, FqCodel, FqCodelParams, IfcConfig, Ifil, IfilParams,
    Lifo, Limit, Packet, ParseLimitError, Red, RedParams,
};
use crate::unit::{Bytes, Packets, Span};

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
    /// Last in, first out.
    Lifo {
        /// What it holds, above zero.
        limit: Limit,
    },
    /// RED.
    Red(RedParams),
    /// CoDel.
    Codel(CodelParams),
    /// FQ-CoDel.
    FqCodel(FqCodelParams),
    /// The newest packet of each flow.
    Ifil(IfilParams),
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
    /// Something else that must not be zero.
    #[error("`{field}` is zero; give more, such as `{example}`")]
    Zero {
        /// The name of the parameter.
        field: &'static str,
        /// A value that makes sense.
        example: &'static str,
    },
    /// CoDel's target lies above its interval.
    #[error("`target` ({target}) is above `interval` ({interval}); give about a twentieth of it")]
    TargetAboveInterval {
        /// The target given.
        target: Span,
        /// The interval given.
        interval: Span,
    },
    /// FQ-CoDel with too few or too many queues.
    #[error("`queues` is {queues}; give from 1 to {most}, such as 1024")]
    Queues {
        /// The number given.
        queues: u32,
        /// The largest that is taken.
        most: u32,
    },
    /// FQ-CoDel with turns that send next to nothing.
    #[error("`quantum` is {quantum}; give at least `{least}`, such as `1514B`")]
    Quantum {
        /// The quantum given.
        quantum: Bytes,
        /// The smallest that is taken.
        least: Bytes,
    },
    /// RED's thresholds are not in order.
    #[error(
        "RED needs `min` ({min}) below `max` ({max}), and `max` up to `limit` ({limit}); leave out `min` and `max` to have them follow from `limit`"
    )]
    Thresholds {
        /// The lower threshold.
        min: Bytes,
        /// The upper one.
        max: Bytes,
        /// What the queue holds.
        limit: Bytes,
    },
    /// RED's largest probability is none.
    #[error("`max_probability` is {0}; give above 0 and at most 1, such as 0.02")]
    MaxProbability(f64),
    /// RED's burst does not reach the lower threshold.
    #[error(
        "`burst` is {burst}, which is less than `min`; give at least `{least}`, or leave it out"
    )]
    BurstTooSmall {
        /// The burst given.
        burst: Packets,
        /// The smallest that is taken.
        least: Packets,
    },
    /// IFIL with a table that is too large.
    #[error("`limit` is {limit}, and each flow takes memory from the start; give at most {most}")]
    TooManyFlows {
        /// The limit given.
        limit: Packets,
        /// The largest that is taken.
        most: Packets,
    },
    /// A part of freshness control.
    #[error("`{class}`: {reason}")]
    Child {
        /// The class whose queue it is.
        class: &'static str,
        /// What is wrong with it.
        reason: Box<QdiscError>,
    },
}

impl QdiscConfig {
    /// Every discipline, with the defaults of its parameters.
    pub fn all() -> [Self; 7] {
        [
            Self::default(),
            Self::Lifo { limit: Limit::default() },
            Self::Red(RedParams::default()),
            Self::Codel(CodelParams::default()),
            Self::FqCodel(FqCodelParams::default()),
            Self::Ifil(IfilParams::default()),
            Self::Ifc(Box::default()),
        ]
    }

    /// The name in files and flags.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fifo { .. } => "fifo",
            Self::Lifo { .. } => "lifo",
            Self::Red(_) => "red",
            Self::Codel(_) => "codel",
            Self::FqCodel(_) => "fq_codel",
            Self::Ifil(_) => "ifil",
            Self::Ifc(_) => "ifc",
        }
    }

    /// The discipline. What randomness it needs it draws from `rng`, now; one that needs none draws
    /// none.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        rng: &mut R,
    ) -> Result<Discipline<P>, QdiscError> {
        Ok(match self {
            Self::Fifo { limit } => Discipline::Fifo(Fifo::new(limit.checked()?)),
            Self::Lifo { limit } => Discipline::Lifo(Lifo::new(limit.checked()?)),
            Self::Red(params) => Discipline::Red(Red::new(*params, Pcg32::from_rng(rng))?),
            Self::Codel(params) => Discipline::Codel(Codel::new(*params)?),
            Self::FqCodel(params) => Discipline::FqCodel(FqCodel::new(*params, rng)?),
            Self::Ifil(params) => Discipline::Ifil(Ifil::new(*params, rng)?),
            Self::Ifc(config) => Discipline::Ifc(Box::new(config.build(rng)?)),
        })
    }
}

/// Neither the name of a discipline nor a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no discipline; write {}, or the limit of a drop-tail queue: {limit}", names())]
pub struct ParseQdiscError {
    text: String,
    limit: ParseLimitError,
}

fn names() -> String {
    QdiscConfig::all().map(|each| alloc::format!("`{}`", each.name())).join(", ")
}

impl FromStr for QdiscConfig {
    type Err = ParseQdiscError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::all().into_iter().find(|each| each.name() == text);
        named.map_or_else(
            || match text.parse() {
                Ok(limit) => Ok(Self::Fifo { limit }),
                Err(limit) => Err(ParseQdiscError { text: text.to_string(), limit }),
            },
            Ok,
        )
    }
}

impl fmt::Display for QdiscConfig {
    /// As it is written in a flag; parameters other than a drop-tail queue's limit are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fifo { limit } => limit.fmt(f),
            _ => f.pad(self.name()),
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

    use super::{CodelParams, FqCodelParams, IfcConfig, IfilParams, Limit, QdiscConfig, RedParams};

    /// The table.
    #[derive(serde::Deserialize)]
    #[serde(tag = "discipline", rename_all = "snake_case", deny_unknown_fields)]
    enum Table {
        Fifo {
            #[serde(default)]
            limit: Limit,
        },
        Lifo {
            #[serde(default)]
            limit: Limit,
        },
        Red(RedParams),
        Codel(CodelParams),
        FqCodel(FqCodelParams),
        Ifil(IfilParams),
        Ifc(Box<IfcConfig>),
    }

    impl From<Table> for QdiscConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Fifo { limit } => Self::Fifo { limit },
                Table::Lifo { limit } => Self::Lifo { limit },
                Table::Red(params) => Self::Red(params),
                Table::Codel(params) => Self::Codel(params),
                Table::FqCodel(params) => Self::FqCodel(params),
                Table::Ifil(params) => Self::Ifil(params),
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
