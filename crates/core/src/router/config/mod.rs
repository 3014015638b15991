//! Disciplines in files and in flags.

mod dual;
mod ifc;

pub use dual::DualConfig;
pub use ifc::IfcConfig;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg32;

use super::{
    Codel, CodelParams, Discipline, Drr, DrrParams, Fifo, FqCodel, FqCodelParams, Hold, Ifil,
    IfilHosts, IfilParams, Isolation, Lifo, Limit, Packet, ParseLimitError, QdiscError, Red,
    RedParams,
};
use crate::unit::Bytes;

/// A discipline and its parameters.
///
/// In a flag it is a name, with default parameters, or a limit, which is a drop-tail queue's:
/// `fifo`, `64kB`. In a file it may also be a table, with the name as its `discipline`.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(tag = "discipline", rename_all = "snake_case"))]
pub enum QdiscConfig {
    /// Drop-tail.
    Fifo {
        /// Its capacity, above zero.
        limit: Limit,
    },
    /// Last in, first out.
    Lifo {
        /// Its capacity, above zero.
        limit: Limit,
    },
    /// RED.
    Red(RedParams),
    /// CoDel.
    Codel(CodelParams),
    /// One drop-tail queue per flow.
    Drr(DrrParams),
    /// FQ-CoDel.
    FqCodel(FqCodelParams),
    /// The newest packet of each flow.
    Ifil(IfilParams),
    /// Freshness control.
    Ifc(Box<IfcConfig>),
    /// The dual transmit queue of a host.
    Dual(Box<DualConfig>),
}

impl Default for QdiscConfig {
    fn default() -> Self {
        Self::Fifo { limit: Limit::default() }
    }
}

impl QdiscConfig {
    /// Every discipline, with the defaults of its parameters.
    pub fn all() -> [Self; 9] {
        [
            Self::default(),
            Self::Lifo { limit: Limit::default() },
            Self::Red(RedParams::default()),
            Self::Codel(CodelParams::default()),
            Self::Drr(DrrParams::default()),
            Self::FqCodel(FqCodelParams::default()),
            Self::Ifil(IfilParams::default()),
            Self::Ifc(Box::default()),
            Self::Dual(Box::default()),
        ]
    }

    /// The name in files and flags.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Fifo { .. } => "fifo",
            Self::Lifo { .. } => "lifo",
            Self::Red(_) => "red",
            Self::Codel(_) => "codel",
            Self::Drr(_) => "drr",
            Self::FqCodel(_) => "fq_codel",
            Self::Ifil(_) => "ifil",
            Self::Ifc(_) => "ifc",
            Self::Dual(_) => "dual",
        }
    }

    /// Builds the discipline. It draws its random numbers from `rng` now; a discipline without
    /// randomness draws none.
    pub fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        rng: &mut R,
    ) -> Result<Discipline<P>, QdiscError> {
        Ok(match self {
            Self::Fifo { limit } => Discipline::Fifo(Fifo::new(limit.checked()?)),
            Self::Lifo { limit } => Discipline::Lifo(Lifo::new(limit.checked()?)),
            Self::Red(params) => Discipline::Red(Red::new(*params, Pcg32::from_rng(rng))?),
            Self::Codel(params) => Discipline::Codel(Codel::new(*params)?),
            Self::Drr(params) => Discipline::Drr(Drr::new(*params, rng)?),
            Self::FqCodel(params) => Discipline::FqCodel(FqCodel::new(*params, rng)?),
            Self::Ifil(params) => {
                let updates = match params.isolate.unwrap_or_default() {
                    Isolation::Host => Discipline::IfilHosts(IfilHosts::new(*params, rng)?),
                    Isolation::Flow => Discipline::Ifil(Ifil::new(*params, rng)?),
                };
                match params.hold {
                    Some(hold) => Discipline::Hold(Box::new(Hold::new(updates, hold)?)),
                    None => updates,
                }
            }
            Self::Ifc(config) => Discipline::Ifc(Box::new(config.build(rng)?)),
            Self::Dual(config) => Discipline::Dual(Box::new(config.build(rng)?)),
        })
    }

    /// Whether it can be built.
    ///
    /// # Errors
    /// Those of [`QdiscConfig::build`].
    pub fn check(&self) -> Result<(), QdiscError> {
        struct Nothing;
        impl Packet for Nothing {
            fn size(&self) -> Bytes {
                Bytes::ZERO
            }
        }
        self.build::<Nothing, _>(&mut Pcg32::new(0, 0)).map(drop)
    }

    /// Builds the discipline as a part of another one, in which it is called `class`.
    pub(super) fn build_part<P: Packet, R: Rng + SeedableRng>(
        &self,
        class: &'static str,
        rng: &mut R,
    ) -> Result<Discipline<P>, QdiscError> {
        let part = match self {
            Self::Dual(_) => Err(QdiscError::NestedDual),
            part => part.build(rng),
        };
        part.map_err(|reason| QdiscError::Child { class, reason: reason.into() })
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
    use alloc::boxed::Box;

    use serde::{Deserialize, Deserializer};

    use super::{
        CodelParams, DrrParams, DualConfig, FqCodelParams, IfcConfig, IfilParams, Limit,
        QdiscConfig, RedParams,
    };
    use crate::reading::string_or_table;

    /// The table.
    #[derive(Deserialize)]
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
        Drr(DrrParams),
        FqCodel(FqCodelParams),
        Ifil(IfilParams),
        Ifc(Box<IfcConfig>),
        Dual(Box<DualConfig>),
    }

    impl From<Table> for QdiscConfig {
        fn from(table: Table) -> Self {
            match table {
                Table::Fifo { limit } => Self::Fifo { limit },
                Table::Lifo { limit } => Self::Lifo { limit },
                Table::Red(params) => Self::Red(params),
                Table::Codel(params) => Self::Codel(params),
                Table::Drr(params) => Self::Drr(params),
                Table::FqCodel(params) => Self::FqCodel(params),
                Table::Ifil(params) => Self::Ifil(params),
                Table::Ifc(config) => Self::Ifc(config),
                Table::Dual(config) => Self::Dual(config),
            }
        }
    }

    impl<'de> Deserialize<'de> for QdiscConfig {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let expected =
                "a discipline or limit such as `fifo` or `100p`, or a table with `discipline`";
            string_or_table::<Table, _, _, _>(deserializer, expected, str::parse)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::Qdisc;
    use crate::unit::{Span, Time};
    use rand_pcg::Pcg64;

    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1024)
        }
    }

    #[test]
    fn in_a_flag_a_discipline_is_its_name_or_a_limit() {
        for config in QdiscConfig::all() {
            assert_eq!(config.name().parse(), Ok(config.clone()));
            assert_eq!(config.to_string().parse(), Ok(config));
        }
        let limit = Limit::Bytes(Bytes::new(64_000));
        assert_eq!("64kB".parse(), Ok(QdiscConfig::Fifo { limit }));
        let refusal = "cake".parse::<QdiscConfig>().unwrap_err().to_string();
        for config in QdiscConfig::all() {
            assert!(refusal.contains(config.name()), "{refusal}");
        }
    }

    #[test]
    fn each_discipline_shows_all_packets_that_it_queues() {
        for config in QdiscConfig::all() {
            let mut discipline = config.build::<Update, _>(&mut Pcg64::new(7, 7)).unwrap();
            for ms in 0..5 {
                let now = Time::ZERO + Span::from_millis(ms);
                discipline.enqueue(now, Update, &mut |_| {});
            }
            discipline.dequeue(Time::ZERO + Span::from_millis(5), &mut |_| {});
            let mut seen = 0;
            discipline.each_queued(&mut |_| seen += 1);
            assert_eq!(seen, discipline.backlog().packets.get(), "{config}");
        }
    }

    #[test]
    fn only_those_that_need_randomness_draw_it() {
        for config in QdiscConfig::all() {
            let mut rng = Pcg64::new(7, 7);
            let discipline = config.build::<Update, _>(&mut rng).unwrap();
            assert_eq!(discipline.backlog(), Default::default());
            let draws = rng != Pcg64::new(7, 7);
            let is_random = !matches!(
                config,
                QdiscConfig::Fifo { .. } | QdiscConfig::Lifo { .. } | QdiscConfig::Codel(_)
            );
            assert_eq!(draws, is_random);
        }
    }

    #[cfg(feature = "serde")]
    mod in_files {
        use super::*;
        use crate::unit::{BitRate, Packets, Span};

        #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        struct File {
            queue: QdiscConfig,
        }

        fn read(queue: &str) -> Result<QdiscConfig, toml::de::Error> {
            toml::from_str::<File>(&alloc::format!("queue = {queue}")).map(|file| file.queue)
        }

        #[test]
        fn a_name_or_a_table_alone_has_the_defaults_and_all_are_written_back() {
            for config in QdiscConfig::all() {
                let name = config.name();
                assert_eq!(read(&alloc::format!("\"{name}\"")).as_ref(), Ok(&config));
                assert_eq!(
                    read(&alloc::format!("{{ discipline = \"{name}\" }}")).as_ref(),
                    Ok(&config)
                );
                let file = File { queue: config };
                let written = toml::to_string(&file).unwrap();
                assert_eq!(toml::from_str::<File>(&written).unwrap(), file, "{written}");
            }
        }

        #[test]
        fn a_table_names_its_parameters() {
            let fq_codel = read(
                r#"{
                    discipline = "fq_codel", limit = "1000p", memory = "4MiB", queues = 64,
                    quantum = "300B", target = "10ms", interval = "200ms", max_packet = "9kB",
                    ecn = false,
                }"#,
            );
            let expected = FqCodelParams {
                limit: Packets::new(1000),
                memory: Bytes::new(4 << 20),
                queues: 64,
                quantum: Bytes::new(300),
                target: Span::from_millis(10),
                interval: Span::from_millis(200),
                max_packet: Bytes::new(9000),
                ecn: false,
            };
            assert_eq!(fq_codel, Ok(QdiscConfig::FqCodel(expected)));

            let drr = read(
                r#"{ discipline = "drr", limit = "640p", memory = "1MB", queues = 16, quantum = "3kB" }"#,
            );
            let limit = Limit::Packets(Packets::new(640));
            let expected = DrrParams {
                limit,
                memory: Bytes::new(1_000_000),
                packets: None,
                queues: 16,
                quantum: Bytes::new(3000),
            };
            assert_eq!(drr, Ok(QdiscConfig::Drr(expected)));

            let codel = read(r#"{ discipline = "codel", limit = "64kB", ecn = true }"#);
            let limit = Limit::Bytes(Bytes::new(64_000));
            let expected = CodelParams { limit, ecn: true, ..CodelParams::default() };
            assert_eq!(codel, Ok(QdiscConfig::Codel(expected)));
        }

        #[test]
        fn what_red_is_not_told_follows_from_what_it_is() {
            let red = |table: &str| match read(table) {
                Ok(QdiscConfig::Red(params)) => params,
                other => panic!("{other:?}"),
            };
            assert_eq!(
                red(r#"{ discipline = "red", limit = "120kB" }"#),
                RedParams::with_limit(Bytes::new(120_000))
            );
            // Mininet's settings of RED.
            let told = red(r#"{
                    discipline = "red", limit = "1MB", min = "30kB", max = "35kB",
                    average_packet = "1500B", burst = "20p", bandwidth = "100mbit",
                    max_probability = 1.0, ecn = true,
                }"#);
            let expected = RedParams {
                min: Bytes::new(30_000),
                max: Bytes::new(35_000),
                max_probability: 1.0,
                burst: Packets::new(20),
                average_packet: Bytes::new(1500),
                bandwidth: Some(BitRate::from_mbps(100)),
                ecn: true,
                ..RedParams::with_limit(Bytes::new(1_000_000))
            };
            assert_eq!(told, expected);
        }

        #[test]
        fn a_senseless_value_is_refused_with_its_name_and_a_remedy() {
            for (table, remedy) in [
                (r#"{ discipline = "lifo", limit = "0p" }"#, "`limit` is zero"),
                (r#"{ discipline = "codel", limit = "0B" }"#, "`limit` is zero"),
                (r#"{ discipline = "codel", target = "0s" }"#, "`target` is zero; give more"),
                (
                    r#"{ discipline = "codel", target = "200ms" }"#,
                    "`target` (200ms) is above `interval` (100ms); give",
                ),
                (r#"{ discipline = "drr", limit = "0p" }"#, "`limit` is zero"),
                (r#"{ discipline = "drr", queues = 0 }"#, "`queues` is 0; give from 1 to"),
                (r#"{ discipline = "drr", quantum = "1B" }"#, "`quantum` is 1B; give at"),
                (r#"{ discipline = "fq_codel", limit = "0p" }"#, "`limit` is zero"),
                (
                    r#"{ discipline = "ifil", hold = { update_period = "1ms", output_period = "0s" } }"#,
                    "`output_period` is zero; give more",
                ),
                (r#"{ discipline = "fq_codel", memory = "0B" }"#, "`memory` is zero"),
                (r#"{ discipline = "fq_codel", interval = "1ms" }"#, "is above `interval` (1ms)"),
                (r#"{ discipline = "fq_codel", queues = 0 }"#, "`queues` is 0; give from 1 to"),
                (r#"{ discipline = "fq_codel", queues = 65537 }"#, "`queues` is 65537; give"),
                (r#"{ discipline = "fq_codel", quantum = "99B" }"#, "`quantum` is 99B; give at"),
                (r#"{ discipline = "red", limit = "0B" }"#, "`limit` is zero"),
                (r#"{ discipline = "red", limit = "8B" }"#, "`min` is zero; give more"),
                (r#"{ discipline = "red", min = "200kB" }"#, "`min` (200000B) below `max`"),
                (r#"{ discipline = "red", max = "1MB" }"#, "up to `limit` (400000B); leave out"),
                (r#"{ discipline = "red", average_packet = "0B" }"#, "`average_packet` is zero"),
                (r#"{ discipline = "red", bandwidth = "0bit" }"#, "`bandwidth` is zero"),
                (
                    r#"{ discipline = "red", max_probability = 0.0 }"#,
                    "`max_probability` is 0; give",
                ),
                (r#"{ discipline = "red", max_probability = nan }"#, "`max_probability` is NaN"),
                (r#"{ discipline = "red", burst = "33p" }"#, "`burst` is 33p, which is less than"),
            ] {
                let built = read(table).unwrap().build::<Update, _>(&mut Pcg64::new(7, 7));
                let message = built.err().expect(table).to_string();
                assert!(message.contains(remedy), "{table}: {message}");
            }
        }

        #[test]
        fn what_is_misspelt_is_refused() {
            for (queue, explanation) in [
                (r#"{ discipline = "codel", quantum = "1kB" }"#, "unknown field `quantum`"),
                (r#"{ discipline = "red", minimum = "1kB" }"#, "unknown field `minimum`"),
                (r#"{ discipline = "cake" }"#, "unknown variant `cake`"),
                (r#""cake""#, "`cake` is no discipline; write `fifo`"),
                (r#"{ discipline = "fq_codel", limit = "1MB" }"#, "not a number of packets"),
            ] {
                let message = read(queue).unwrap_err().to_string();
                assert!(message.contains(explanation), "{queue}: {message}");
            }
        }
    }
}
