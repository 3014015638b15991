//! Freshness control in files.

use rand::{Rng, SeedableRng};

use super::QdiscConfig;
use crate::router::{
    AnyScheduler, AoiShare, Class, Classifier, Discipline, FqCodelParams, Guard, Ifc, IfilParams,
    Packet, QdiscError, SchedulerParams, TdmParams,
};
use crate::unit::Packets;

/// Freshness control with its parts. In a file:
///
/// ```toml
/// queue = { discipline = "ifc", scheduler = "sdm", aoi_share = 0.5, credit = "64kB",
///           classifier = "update", aoi = "ifil",
///           drop_averse = { discipline = "fq_codel", limit = "1000p" } }
/// ```
///
/// Every key is optional; these are the defaults. `credit` belongs to the scheduler `sdm`, and
/// `frame`, such as `"100ms"`, to `tdm`. The paper's queue of the drop-averse class is a FIFO:
/// `"fifo"`, or its limit such as `"1000p"`. A TCP stream fills it, so each drop-averse packet is
/// delayed by the whole queue; [`FqCodel`](crate::router::FqCodel) keeps that delay near its target
/// and separate for each flow.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "file::Table", into = "file::Table"))]
pub struct IfcConfig {
    /// The scheduler.
    pub scheduler: SchedulerParams,
    /// The share γ of the AoI class.
    pub aoi_share: AoiShare,
    /// Which packets are updates.
    pub classifier: Classifier,
    /// The queue of the AoI class.
    pub aoi: QdiscConfig,
    /// The queue of the drop-averse class.
    pub drop_averse: QdiscConfig,
}

impl IfcConfig {
    pub(in crate::router) fn build<P: Packet, R: Rng + SeedableRng>(
        &self,
        rng: &mut R,
    ) -> Result<Ifc<Discipline<P>, Discipline<P>, AnyScheduler>, QdiscError> {
        let least = TdmParams::MIN_FRAME;
        if let SchedulerParams::Tdm(TdmParams { frame }) = self.scheduler
            && frame < least
        {
            return Err(QdiscError::ShortFrame { frame, least });
        }
        let aoi = self.aoi.build_part(Class::Aoi.name(), rng)?;
        let drop_averse = self.drop_averse.build_part(Class::DropAverse.name(), rng)?;
        let scheduler = self.scheduler.build(self.aoi_share);
        let ifc = Ifc::new(self.classifier.clone(), aoi, drop_averse, scheduler);
        // Without a guard no randomness is drawn for it.
        Ok(if self.classifier.needs_guard() { ifc.with_guard(Guard::new(rng)) } else { ifc })
    }
}

impl Default for IfcConfig {
    fn default() -> Self {
        // Fewer than FQ-CoDel's own default: together with IFIL's 2000 updates they fit into the
        // 4096 packets that the kernel holds for a router in user space.
        let limit = Packets::new(1000);
        Self {
            scheduler: SchedulerParams::default(),
            aoi_share: AoiShare::default(),
            classifier: Classifier::default(),
            aoi: QdiscConfig::Ifil(IfilParams::default()),
            drop_averse: QdiscConfig::FqCodel(FqCodelParams { limit, ..FqCodelParams::default() }),
        }
    }
}

/// Freshness control in a file: a flat table, with the parameters of the schedulers next to the
/// rest.
#[cfg(feature = "serde")]
mod file {
    use super::*;
    use crate::router::ifc::{Credit, SdmParams};
    use crate::unit::Span;

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub(super) struct Table {
        scheduler: Name,
        aoi_share: AoiShare,
        #[serde(skip_serializing_if = "Option::is_none")]
        credit: Option<Credit>,
        #[serde(skip_serializing_if = "Option::is_none")]
        frame: Option<Span>,
        classifier: Classifier,
        aoi: QdiscConfig,
        drop_averse: QdiscConfig,
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Name {
        Sdm,
        Tdm,
    }

    /// A parameter of the scheduler that was not chosen.
    #[derive(Debug, thiserror::Error)]
    #[error("`{parameter}` means nothing to `{chosen}`; leave it out, or choose `{other}`")]
    pub(super) struct WrongScheduler {
        parameter: &'static str,
        chosen: &'static str,
        other: &'static str,
    }

    impl Default for Table {
        fn default() -> Self {
            let mut table = Self::from(IfcConfig::default());
            // The default scheduler's parameter would mean nothing to the other one.
            table.credit = None;
            table
        }
    }

    impl TryFrom<Table> for IfcConfig {
        type Error = WrongScheduler;

        fn try_from(table: Table) -> Result<Self, WrongScheduler> {
            let Table { scheduler, aoi_share, credit, frame, classifier, aoi, drop_averse } = table;
            let scheduler = match (scheduler, credit, frame) {
                (Name::Sdm, credit, None) => {
                    SchedulerParams::Sdm(SdmParams { credit: credit.unwrap_or_default() })
                }
                (Name::Tdm, None, frame) => SchedulerParams::Tdm(
                    frame.map_or_else(TdmParams::default, |frame| TdmParams { frame }),
                ),
                (Name::Sdm, _, Some(_)) => {
                    return Err(WrongScheduler { parameter: "frame", chosen: "sdm", other: "tdm" });
                }
                (Name::Tdm, Some(_), _) => {
                    return Err(WrongScheduler {
                        parameter: "credit",
                        chosen: "tdm",
                        other: "sdm",
                    });
                }
            };
            Ok(Self { scheduler, aoi_share, classifier, aoi, drop_averse })
        }
    }

    impl From<IfcConfig> for Table {
        fn from(config: IfcConfig) -> Self {
            let (scheduler, credit, frame) = match config.scheduler {
                SchedulerParams::Sdm(SdmParams { credit }) => (Name::Sdm, Some(credit), None),
                SchedulerParams::Tdm(TdmParams { frame }) => (Name::Tdm, None, Some(frame)),
            };
            let IfcConfig { aoi_share, classifier, aoi, drop_averse, .. } = config;
            Self { scheduler, aoi_share, credit, frame, classifier, aoi, drop_averse }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::{Backlog, Header, Qdisc};
    use crate::unit::{Bytes, Span, Time};
    use alloc::string::ToString;
    use rand_pcg::Pcg64;

    #[derive(Debug)]
    struct Update;

    impl Packet for Update {
        fn size(&self) -> Bytes {
            Bytes::new(1024)
        }
    }

    fn build(config: IfcConfig) -> Result<Discipline<Update>, QdiscError> {
        QdiscConfig::Ifc(config.into()).build(&mut Pcg64::seed_from_u64(0))
    }

    #[test]
    fn the_default_replaces_only_our_own_updates_and_has_fq_codel_for_other_traffic() {
        let limit = Packets::new(1000);
        let fq_codel = QdiscConfig::FqCodel(FqCodelParams { limit, ..<_>::default() });
        assert_eq!(IfcConfig::default().drop_averse, fq_codel);
        let Ok(Discipline::Ifc(mut ifc)) = build(IfcConfig::default()) else { panic!("no ifc") };
        assert_eq!(ifc.aoi_share(), AoiShare::HALF);
        let mut class_of = |header| ifc.classify(Time::ZERO, &header, Bytes::new(100)).class;
        assert_eq!(class_of(Header::default()), Class::DropAverse);
        let update = Header { is_update: true, ..Header::default() };
        assert_eq!(class_of(update), Class::Aoi);
        assert_eq!(ifc.backlog(), Backlog::default());
    }

    #[test]
    fn a_senseless_part_is_refused_with_its_place_and_a_remedy() {
        let frame = SchedulerParams::Tdm(TdmParams { frame: Span::ZERO });
        let message = build(IfcConfig { scheduler: frame, ..<_>::default() }).unwrap_err();
        assert!(message.to_string().contains("`frame` is 0ns; give at least 1ms"), "{message}");
        for (limit, remedy) in [
            (Packets::ZERO, "`aoi`: `limit` is zero"),
            (Packets::MAX, "`aoi`: `limit` is 18446744073709551615p, and each flow"),
        ] {
            let aoi = QdiscConfig::Ifil(IfilParams { limit, ..<_>::default() });
            let message = build(IfcConfig { aoi, ..<_>::default() }).unwrap_err().to_string();
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn the_queue_of_a_host_is_no_part_of_it() {
        let drop_averse = QdiscConfig::Dual(Default::default());
        let message = build(IfcConfig { drop_averse, ..<_>::default() }).unwrap_err().to_string();
        assert!(message.contains("`dual` is all of a host's queue"), "{message}");
    }

    #[cfg(feature = "serde")]
    mod in_files {
        use super::*;
        use crate::router::{Credit, HoldParams, Isolation, Limit, SdmParams};
        use alloc::string::String;

        fn read(text: &str) -> Result<QdiscConfig, String> {
            #[derive(serde::Deserialize)]
            struct File {
                queue: QdiscConfig,
            }
            let file = toml::from_str::<File>(&alloc::format!("queue = {text}"));
            file.map(|file| file.queue).map_err(|error| error.to_string())
        }

        #[test]
        fn every_part_can_be_said_and_what_is_written_reads_back() {
            let sdm = read(
                r#"{ discipline = "ifc", scheduler = "sdm", aoi_share = 0.3, credit = "unlimited",
                     classifier = "dscp=46", aoi = { discipline = "ifil", limit = "5p", isolate = "flow",
                             hold = { update_period = "1ms", output_period = "1.9ms" } },
                     drop_averse = "64kB" }"#,
            );
            let expected = IfcConfig {
                scheduler: SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited }),
                aoi_share: AoiShare::new(0.3).unwrap(),
                classifier: "dscp=46".parse().unwrap(),
                aoi: QdiscConfig::Ifil(IfilParams {
                    limit: Packets::new(5),
                    isolate: Some(Isolation::Flow),
                    hold: Some(HoldParams {
                        update_period: Span::from_millis(1),
                        output_period: Span::from_micros(1900),
                    }),
                }),
                drop_averse: QdiscConfig::Fifo { limit: Limit::Bytes(Bytes::new(64_000)) },
            };
            assert_eq!(sdm, Ok(QdiscConfig::Ifc(expected.clone().into())));
            let frame = Span::from_millis(20);
            let tdm = IfcConfig {
                scheduler: SchedulerParams::Tdm(TdmParams { frame }),
                aoi_share: AoiShare::ONE,
                ..IfcConfig::default()
            };
            let text =
                r#"{ discipline = "ifc", scheduler = "tdm", frame = "20ms", aoi_share = 1 }"#;
            assert_eq!(read(text), Ok(QdiscConfig::Ifc(tdm.clone().into())));
            for config in [expected, tdm] {
                let config = QdiscConfig::Ifc(config.into());
                let written = toml::to_string(&config).unwrap();
                assert_eq!(toml::from_str(&written), Ok(config), "{written}");
            }
        }

        #[test]
        fn what_makes_no_sense_is_explained() {
            for (text, explanation) in [
                (r#"{ discipline = "ifc", frame = "1ms" }"#, "`frame` means nothing to `sdm`"),
                (
                    r#"{ discipline = "ifc", scheduler = "tdm", credit = "1kB" }"#,
                    "`credit` means nothing to `tdm`; leave it out, or choose `sdm`",
                ),
                (r#"{ discipline = "ifc", aoi_share = 1.5 }"#, "`1.5` is no share of a link"),
                (r#"{ discipline = "ifc", gamma = 0.5 }"#, "unknown field `gamma`"),
                (r#"{ discipline = "ifc", classifier = "best" }"#, "`best` is not a test"),
                (r#"{ discipline = "ifil", limit = "64kB" }"#, "is not a number of packets"),
            ] {
                let message = read(text).unwrap_err();
                assert!(message.contains(explanation), "{text}: {message}");
            }
        }
    }
}
