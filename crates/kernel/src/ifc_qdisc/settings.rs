//! How the discipline is set, and the map in which the kernel has it: `struct settings` of `intf.h`.

use freshline_core::router::{
    AoiShare, Class, Classifier, Condition, Credit, IfcConfig, IfilParams, Limit, QdiscConfig,
    QdiscError, SchedulerParams, SdmParams, TdmParams,
};
use freshline_core::unit::{BitRate, Packets};

use crate::error::KernelError;

/// A share of one, as `law.h` counts it.
const WHOLE_SHARE: f64 = 1e6;
const UNLIMITED: u64 = u64::MAX;
/// The most rules and places that the program has room for.
const MOST_RULES: usize = 64;
const MOST_FLOWS: Packets = Packets::new(1 << 18);
const MOST_PACKETS: u64 = 1 << 16;
/// No packet is taken to be shorter where a queue's limit is in bytes.
const SHORTEST: u64 = 64;
/// Slower than this a packet takes 12 s.
const SLOWEST: BitRate = BitRate::from_bps(1000);

/// Positions in the row of numbers.
const RATE: usize = 0;
const AOI_SHARE: usize = 2;
const MOST_FLOWS_AT: usize = 5;
const MOST_PACKETS_AT: usize = 6;
/// How many numbers come before the rules, and make one.
const BEFORE_RULES: usize = 9;
const A_RULE: usize = 4;

/// Settings that the program can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    numbers: Vec<u64>,
}

impl Settings {
    /// Freshness control at this rate.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotInKernel`] where it has parts that the program has not, and
    /// [`KernelError::Queue`] or [`KernelError::SlowRate`] where it makes no sense.
    pub fn new(rate: BitRate, queue: &QdiscConfig) -> Result<Self, KernelError> {
        check_rate(rate)?;
        let QdiscConfig::Ifc(ifc) = queue else {
            return Err(KernelError::NotInKernel(format!("queue `{queue}`, only `ifc`")));
        };
        let (most_flows, (most_packets, most_bytes)) = (flows(ifc)?, drop_averse(ifc)?);
        let [scheduler, credit, frame_ns] = scheduler(ifc.scheduler)?;
        let rules = rules(&ifc.classifier)?;
        let count = rules.len() as u64;
        let mut numbers = vec![rate.as_bps(), scheduler, millionths(ifc.aoi_share), credit];
        numbers.extend([frame_ns, most_flows, most_packets, most_bytes, count]);
        numbers.extend(rules.into_iter().flatten());
        numbers.resize(BEFORE_RULES + MOST_RULES * A_RULE, 0);
        Ok(Self { numbers })
    }

    /// From the map's value, if it is what this version writes.
    pub(super) fn from_numbers(numbers: Vec<u64>) -> Option<Self> {
        let is_ours = numbers.len() == BEFORE_RULES + MOST_RULES * A_RULE;
        is_ours.then_some(Self { numbers })
    }

    /// The map's value.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    pub(super) fn rate(&self) -> BitRate {
        BitRate::from_bps(self.numbers[RATE])
    }

    pub(super) fn set_rate(&mut self, rate: BitRate) -> Result<(), KernelError> {
        check_rate(rate)?;
        self.numbers[RATE] = rate.as_bps();
        Ok(())
    }

    pub(super) fn aoi_share(&self) -> f64 {
        self.numbers[AOI_SHARE] as f64 / WHOLE_SHARE
    }

    pub(super) fn set_aoi_share(&mut self, share: AoiShare) {
        self.numbers[AOI_SHARE] = millionths(share);
    }

    /// Of how many flows an update may wait.
    pub(super) fn most_flows(&self) -> u32 {
        self.numbers[MOST_FLOWS_AT] as u32
    }

    /// How many drop-averse packets may wait.
    pub(super) fn most_packets(&self) -> u32 {
        self.numbers[MOST_PACKETS_AT] as u32
    }
}

fn check_rate(rate: BitRate) -> Result<(), KernelError> {
    if rate < SLOWEST {
        return Err(KernelError::SlowRate { rate, least: SLOWEST });
    }
    Ok(())
}

fn millionths(share: AoiShare) -> u64 {
    (share.get() * WHOLE_SHARE).round() as u64
}

fn flows(ifc: &IfcConfig) -> Result<u64, KernelError> {
    match ifc.aoi {
        QdiscConfig::Ifil(IfilParams { limit: Packets::ZERO }) => Err(QdiscError::ZeroLimit.into()),
        QdiscConfig::Ifil(IfilParams { limit }) if limit > MOST_FLOWS => {
            Err(QdiscError::TooManyFlows { limit, most: MOST_FLOWS }.into())
        }
        QdiscConfig::Ifil(IfilParams { limit }) => Ok(limit.get()),
        ref other => Err(KernelError::NotInKernel(format!("`aoi = {other}`, only `ifil`"))),
    }
}

/// How many packets, and how many bytes.
fn drop_averse(ifc: &IfcConfig) -> Result<(u64, u64), KernelError> {
    match ifc.drop_averse {
        QdiscConfig::Fifo { limit } if limit.is_zero() => Err(QdiscError::ZeroLimit.into()),
        QdiscConfig::Fifo { limit: Limit::Packets(limit) } if limit.get() > MOST_PACKETS => {
            let what = format!("room for `drop_averse = {limit}`, only for {MOST_PACKETS}p");
            Err(KernelError::NotInKernel(what))
        }
        QdiscConfig::Fifo { limit: Limit::Packets(limit) } => Ok((limit.get(), UNLIMITED)),
        QdiscConfig::Fifo { limit: Limit::Bytes(limit) } => {
            Ok(((limit.get() / SHORTEST).clamp(1, MOST_PACKETS), limit.get()))
        }
        ref other => {
            Err(KernelError::NotInKernel(format!("`drop_averse = {other}`, only a limit")))
        }
    }
}

/// Which, its credit, and its frame in ns.
fn scheduler(scheduler: SchedulerParams) -> Result<[u64; 3], KernelError> {
    match scheduler {
        SchedulerParams::Sdm(SdmParams { credit: Credit::Limited(credit) }) => {
            Ok([0, credit.get(), 0])
        }
        SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited }) => Ok([0, UNLIMITED, 0]),
        SchedulerParams::Tdm(TdmParams { frame }) if frame < TdmParams::LEAST_FRAME => {
            Err(QdiscError::ShortFrame { frame, least: TdmParams::LEAST_FRAME }.into())
        }
        SchedulerParams::Tdm(TdmParams { frame }) => Ok([1, 0, frame.as_nanos()]),
    }
}

/// As `struct rule` of `packet.h`: the condition, the class, and what the condition needs. Several ranges
/// of ports are several rules.
fn rules(classifier: &Classifier) -> Result<Vec<[u64; A_RULE]>, KernelError> {
    let mut rules = Vec::new();
    for rule in &classifier.rules {
        let class = match rule.class {
            Class::Aoi => 0,
            Class::DropAverse => 1,
        };
        match &rule.condition {
            Condition::Any => rules.push([0, class, 0, 0]),
            Condition::Protocol(number) => rules.push([1, class, u64::from(*number), 0]),
            Condition::Dscp(set) => {
                let bit = |dscp: u8| u64::from(set.contains(dscp)) << dscp;
                rules.push([2, class, (0..64).map(bit).sum(), 0]);
            }
            Condition::Port(ranges) => rules.extend(
                ranges
                    .iter()
                    .map(|range| [3, class, (*range.start()).into(), (*range.end()).into()]),
            ),
            Condition::Update => rules.push([4, class, 0, 0]),
        }
    }
    if rules.len() > MOST_RULES {
        let what = format!("room for {} rules and ranges, only for {MOST_RULES}", rules.len());
        return Err(KernelError::NotInKernel(what));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::unit::{Bytes, Span};

    fn of(ifc: IfcConfig) -> Result<Settings, KernelError> {
        Settings::new(BitRate::from_bps(20_000_000), &QdiscConfig::Ifc(ifc.into()))
    }

    #[test]
    fn the_row_is_what_the_program_reads() {
        let scheduler = SchedulerParams::Tdm(TdmParams { frame: Span::from_millis(20) });
        let classifier = "port:53,60-70=drop_averse dscp:46,1 update any".parse().unwrap();
        let drop_averse = QdiscConfig::Fifo { limit: Limit::Bytes(Bytes::new(64_000)) };
        let aoi_share = AoiShare::new(0.25).unwrap();
        let ifc = IfcConfig { scheduler, aoi_share, classifier, drop_averse, ..<_>::default() };
        let mut settings = of(ifc).unwrap();
        let expected = [20_000_000, 1, 250_000, 0, 20_000_000, 2000, 1000, 64_000, 5];
        assert_eq!(settings.numbers[..BEFORE_RULES], expected);
        let rules: Vec<_> = settings.numbers[BEFORE_RULES..].chunks(A_RULE).take(6).collect();
        let dscp = 1 << 46 | 1 << 1;
        let expected =
            [[3, 1, 53, 53], [3, 1, 60, 70], [2, 0, dscp, 0], [4, 0, 0, 0], [0; 4], [0; 4]];
        assert_eq!(rules, expected);
        settings.set_aoi_share(AoiShare::ONE);
        settings.set_rate(BitRate::from_bps(5000)).unwrap();
        assert_eq!((settings.aoi_share(), settings.rate().as_bps()), (1.0, 5000));
        assert!(settings.set_rate(BitRate::from_bps(0)).is_err());
    }

    #[test]
    fn what_the_program_has_not_is_refused_with_a_remedy() {
        let classifier =
            Classifier { rules: vec!["udp".parse::<Classifier>().unwrap().rules[0].clone(); 65] };
        let fifo = |limit| QdiscConfig::Fifo { limit };
        for (ifc, said) in [
            (IfcConfig { aoi: fifo(Limit::default()), ..<_>::default() }, "`aoi = 1000p`"),
            (IfcConfig { drop_averse: "codel".parse().unwrap(), ..<_>::default() }, "codel"),
            (IfcConfig { drop_averse: "100000p".parse().unwrap(), ..<_>::default() }, "100000p"),
            (IfcConfig { drop_averse: "0p".parse().unwrap(), ..<_>::default() }, "`limit` is zero"),
            (IfcConfig { classifier, ..<_>::default() }, "65 rules"),
        ] {
            let message = of(ifc).unwrap_err().to_string();
            assert!(message.contains(said), "{message}");
        }
        let codel = Settings::new(BitRate::from_bps(1_000_000), &"codel".parse().unwrap());
        assert!(codel.unwrap_err().to_string().contains("`freshline router run`"));
    }
}
