//! The settings of the discipline, and their form in the kernel's map: `struct settings` of
//! `intf.h`.

use freshline_core::link::{Cells, Framing};
use freshline_core::router::{
    AoiShare, Class, Classifier, CodelParams, Credit, Ends, FqCodelParams, IfcConfig, IfilParams,
    Isolation, Limit, Literal, QdiscConfig, QdiscError, Rule, SchedulerParams, SdmParams,
    TdmParams, Test,
};
use freshline_core::unit::{BitRate, Bytes, Packets, Span};

use crate::error::KernelError;

/// A share of 100 % in the units of `law.h`.
const WHOLE_SHARE: f64 = 1e6;
const UNLIMITED: u64 = u64::MAX;
/// The maximum numbers of rules, flows and drop-averse packets that the program has room for.
const MAX_RULES: usize = 64;
const MAX_FLOWS: Packets = Packets::new(1 << 18);
const MAX_PACKETS: u64 = 1 << 16;
/// The maximum number of lanes; more queues than this share lanes.
const MAX_LANES: u32 = 1 << 16;
/// The maximum of CoDel's interval: its square in ns must fit in 64 bits.
const MAX_INTERVAL: Span = Span::from_secs(4);
/// The quantum of a single lane, in bytes, which does not take turns with others.
const NO_TURNS: u64 = 1 << 30;
/// The assumed minimum size of a packet, in bytes, if a queue's limit is in bytes.
const SHORTEST: u64 = 64;
/// The minimum rate, at which a full-sized packet takes 12 s.
const SLOWEST: BitRate = BitRate::from_bps(1000);

/// Stands for the device's own rate.
const LINE_RATE: u64 = 0;

/// Indices in the row of numbers.
const RATE: usize = 0;
const AOI_SHARE: usize = 2;
const MAX_FLOWS_AT: usize = 5;
const MAX_PACKETS_AT: usize = 6;
const LANES_AT: usize = 8;
const BY_HOST: usize = 17;
const RULES_COUNT: usize = 18;
/// The number of numbers before the rules, and per rule.
const BEFORE_RULES: usize = 19;
const A_RULE: usize = 5;

/// Settings that the program supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    numbers: Vec<u64>,
}

impl Settings {
    /// Freshness control at `rate`, for a link that adds `framing` to each packet. Without a rate
    /// it runs at the device's own rate, and `framing` has no effect.
    ///
    /// # Errors
    ///
    /// [`KernelError::NotInKernel`] if the program does not support a part of the queue, and
    /// [`KernelError::Queue`] or [`KernelError::SlowRate`] if the queue or the rate is invalid.
    pub fn new(
        rate: Option<BitRate>,
        framing: Framing,
        queue: &QdiscConfig,
    ) -> Result<Self, KernelError> {
        rate.map_or(Ok(()), check_rate)?;
        let QdiscConfig::Ifc(ifc) = queue else {
            return Err(KernelError::NotInKernel(format!("queue `{queue}`, only `ifc`")));
        };
        queue.check()?;
        let ((max_flows, is_by_host), lanes) = (flows(ifc)?, Lanes::of(&ifc.drop_averse)?);
        let [scheduler, credit, frame_ns] = scheduler(ifc.scheduler)?;
        let rules = rules(&ifc.classifier)?;
        let count = rules.len() as u64;
        let mut numbers = vec![
            rate.map_or(LINE_RATE, BitRate::as_bps),
            scheduler,
            millionths(ifc.aoi_share),
            credit,
        ];
        numbers.extend([frame_ns, max_flows]);
        numbers.extend(lanes.to_numbers());
        numbers.extend(framing_numbers(framing));
        numbers.extend([is_by_host.into(), count]);
        numbers.extend(rules.into_iter().flatten());
        numbers.resize(BEFORE_RULES + MAX_RULES * A_RULE, 0);
        Ok(Self { numbers })
    }

    /// From the map's value; `None` if another version wrote it.
    pub(super) fn from_numbers(numbers: Vec<u64>) -> Option<Self> {
        let is_ours = numbers.len() == BEFORE_RULES + MAX_RULES * A_RULE;
        is_ours.then_some(Self { numbers })
    }

    /// The rules in the program's form: the number of rows, and the rows of five numbers each
    /// (`struct rule` of `packet.h`).
    pub fn rules(&self) -> &[u64] {
        let count = self.numbers[RULES_COUNT] as usize;
        &self.numbers[RULES_COUNT..BEFORE_RULES + count * A_RULE]
    }

    /// The map's value.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
    }

    /// The rate of the shaper; `None` for the device's own rate.
    pub(super) fn rate(&self) -> Option<BitRate> {
        Some(self.numbers[RATE]).filter(|rate| *rate != LINE_RATE).map(BitRate::from_bps)
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

    /// The maximum number of flows with a queued update.
    pub(super) fn max_flows(&self) -> u32 {
        self.numbers[MAX_FLOWS_AT] as u32
    }

    /// Whether updates take turns by source host.
    pub(super) fn is_by_host(&self) -> bool {
        self.numbers[BY_HOST] != 0
    }

    /// The number of lanes for drop-averse packets.
    pub(super) fn lanes(&self) -> u32 {
        self.numbers[LANES_AT] as u32
    }

    /// The maximum number of queued drop-averse packets.
    pub(super) fn max_packets(&self) -> u32 {
        self.numbers[MAX_PACKETS_AT] as u32
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

/// The maximum number of flows with a queued update, and whether updates take turns by host.
fn flows(ifc: &IfcConfig) -> Result<(u64, bool), KernelError> {
    match ifc.aoi {
        QdiscConfig::Ifil(IfilParams { limit: Packets::ZERO, .. }) => {
            Err(QdiscError::ZeroLimit.into())
        }
        QdiscConfig::Ifil(IfilParams { limit, .. }) if limit > MAX_FLOWS => {
            Err(QdiscError::TooManyFlows { limit, most: MAX_FLOWS }.into())
        }
        QdiscConfig::Ifil(IfilParams { hold: Some(_), .. }) => {
            Err(KernelError::NotInKernel("`hold` of `ifil`".into()))
        }
        QdiscConfig::Ifil(IfilParams { limit, isolate, hold: None }) => {
            Ok((limit.get(), isolate.unwrap_or_default() == Isolation::Host))
        }
        ref other => Err(KernelError::NotInKernel(format!("`aoi = {other}`, only `ifil`"))),
    }
}

/// The queues of drop-averse packets, in the form of `lanes.h`.
#[derive(Debug, Clone, Copy, Default)]
struct Lanes {
    max_packets: u64,
    max_bytes: u64,
    lanes: u64,
    quantum: u64,
    drops_longest: bool,
    target_ns: u64,
    interval_ns: u64,
    max_packet: u64,
}

impl Lanes {
    fn of(queue: &QdiscConfig) -> Result<Self, KernelError> {
        match *queue {
            QdiscConfig::Fifo { limit } => Self::one(limit),
            QdiscConfig::Codel(CodelParams { limit, target, interval, max_packet, .. }) => {
                Self::one(limit)?.with_codel(target, interval, max_packet)
            }
            QdiscConfig::FqCodel(FqCodelParams {
                limit,
                memory,
                queues,
                quantum,
                target,
                interval,
                max_packet,
                ..
            }) => Self {
                max_bytes: memory.get(),
                lanes: queues.min(MAX_LANES).into(),
                quantum: quantum.get(),
                drops_longest: true,
                ..Self::one(Limit::Packets(limit))?
            }
            .with_codel(target, interval, max_packet),
            ref other => Err(KernelError::NotInKernel(format!(
                "`drop_averse = {other}`, only `fq_codel`, `codel` or a limit"
            ))),
        }
    }

    /// A single lane, which drops arriving packets beyond its limit.
    fn one(limit: Limit) -> Result<Self, KernelError> {
        let (max_packets, max_bytes) = match limit {
            limit if limit.is_zero() => return Err(QdiscError::ZeroLimit.into()),
            Limit::Packets(limit) if limit.get() > MAX_PACKETS => {
                let what = format!("room for `drop_averse = {limit}`, only for {MAX_PACKETS}p");
                return Err(KernelError::NotInKernel(what));
            }
            Limit::Packets(limit) => (limit.get(), UNLIMITED),
            Limit::Bytes(limit) => ((limit.get() / SHORTEST).clamp(1, MAX_PACKETS), limit.get()),
        };
        Ok(Self { max_packets, max_bytes, lanes: 1, quantum: NO_TURNS, ..Self::default() })
    }

    fn with_codel(
        self,
        target: Span,
        interval: Span,
        max_packet: Bytes,
    ) -> Result<Self, KernelError> {
        if interval > MAX_INTERVAL {
            let what = format!("CoDel with `interval = {interval}`, only up to {MAX_INTERVAL}");
            return Err(KernelError::NotInKernel(what));
        }
        Ok(Self {
            target_ns: target.as_nanos(),
            interval_ns: interval.as_nanos(),
            max_packet: max_packet.get(),
            ..self
        })
    }

    fn to_numbers(self) -> [u64; 8] {
        [
            self.max_packets,
            self.max_bytes,
            self.lanes,
            self.quantum,
            self.drops_longest.into(),
            self.target_ns,
            self.interval_ns,
            self.max_packet,
        ]
    }
}

/// The framing as a `struct framing` of `law.h`.
fn framing_numbers(Framing { overhead, mpu, cells }: Framing) -> [u64; 3] {
    let cells = match cells {
        Cells::None => 0,
        Cells::Atm => 1,
        Cells::Ptm => 2,
    };
    [overhead.get(), mpu.get(), cells]
}

/// The scheduler: its kind, the credit of SDM in bytes, and the frame of TDM in ns.
fn scheduler(scheduler: SchedulerParams) -> Result<[u64; 3], KernelError> {
    match scheduler {
        SchedulerParams::Sdm(SdmParams { credit: Credit::Limited(credit) }) => {
            Ok([0, credit.get(), 0])
        }
        SchedulerParams::Sdm(SdmParams { credit: Credit::Unlimited }) => Ok([0, UNLIMITED, 0]),
        SchedulerParams::Tdm(TdmParams { frame }) if frame < TdmParams::MIN_FRAME => {
            Err(QdiscError::ShortFrame { frame, least: TdmParams::MIN_FRAME }.into())
        }
        SchedulerParams::Tdm(TdmParams { frame }) => Ok([1, 0, frame.as_nanos()]),
    }
}

/// A test in a `struct rule` of `packet.h`.
mod condition {
    pub(super) const ANY: u64 = 0;
    pub(super) const PROTOCOL: u64 = 1;
    pub(super) const DSCP: u64 = 2;
    pub(super) const PORT: u64 = 3;
    pub(super) const IS_UPDATE: u64 = 4;
    pub(super) const ADDRESS: u64 = 5;
    /// The ends at which a port or an address is tested.
    pub(super) const SOURCE: u64 = 1 << 8;
    pub(super) const DESTINATION: u64 = 1 << 9;
    /// The test must not hold.
    pub(super) const NOT: u64 = 1 << 10;
}

/// The result if a test holds, in a `struct rule` of `packet.h`.
mod outcome {
    pub(super) const AOI: u64 = 0;
    pub(super) const DROP_AVERSE: u64 = 1;
    pub(super) const FORCED_AOI: u64 = 2;
    /// The next row must hold, too.
    pub(super) const AND: u64 = 3;
}

/// The rules as rows of `struct rule` of `packet.h`: the condition, the outcome, and three
/// parameters of the condition. Each test of each alternative is a row. A list of ranges or
/// prefixes becomes several alternatives, or several tests if it is negated.
fn rules(classifier: &Classifier) -> Result<Vec<[u64; A_RULE]>, KernelError> {
    let too_many = || {
        let what = format!("room for more than {MAX_RULES} tests in the rules of `--classify`");
        KernelError::NotInKernel(what)
    };
    let mut rows = Vec::new();
    for Rule { matches, class, force } in &classifier.rules {
        let outcome = match class {
            Class::Aoi if *force => outcome::FORCED_AOI,
            Class::Aoi => outcome::AOI,
            Class::DropAverse => outcome::DROP_AVERSE,
        };
        for literals in matches.alternatives(MAX_RULES).ok_or_else(too_many)? {
            let mut chains = vec![Vec::new()];
            for literal in literals {
                let tests = tests(literal);
                if literal.holds {
                    let with = |chain: &Vec<_>| {
                        let chain = chain.clone();
                        tests.iter().map(move |test| [chain.as_slice(), &[*test]].concat())
                    };
                    chains = chains.iter().flat_map(with).collect();
                } else {
                    chains.iter_mut().for_each(|chain| chain.extend(&tests));
                }
                if chains.iter().map(Vec::len).sum::<usize>() > MAX_RULES {
                    return Err(too_many());
                }
            }
            for chain in chains {
                let last = chain.len() - 1;
                rows.extend(chain.into_iter().enumerate().map(
                    |(at, [condition, from, to, length])| {
                        let outcome = if at == last { outcome } else { outcome::AND };
                        [condition, outcome, from, to, length]
                    },
                ));
            }
        }
    }
    if rows.len() > MAX_RULES { Err(too_many()) } else { Ok(rows) }
}

/// The condition of each value of a test, and its parameters.
fn tests(Literal { test, holds }: Literal<'_>) -> Vec<[u64; A_RULE - 1]> {
    let at = |ends| match ends {
        Ends::Either => condition::SOURCE | condition::DESTINATION,
        Ends::Source => condition::SOURCE,
        Ends::Destination => condition::DESTINATION,
    };
    let mut tests: Vec<_> = match test {
        Test::Always => vec![[condition::ANY, 0, 0, 0]],
        Test::Update => vec![[condition::IS_UPDATE, 0, 0, 0]],
        Test::Protocol(number) => vec![[condition::PROTOCOL, (*number).into(), 0, 0]],
        Test::Dscp(set) => vec![[condition::DSCP, set.bits(), 0, 0]],
        Test::Port(ends, ranges) => {
            let of = |range: &std::ops::RangeInclusive<u16>| {
                let (from, to) = (*range.start(), *range.end());
                [condition::PORT | at(*ends), from.into(), to.into(), 0]
            };
            ranges.iter().map(of).collect()
        }
        Test::Address(ends, prefixes) => {
            let of = |prefix: &freshline_core::router::Prefix| {
                let bits = u128::from(prefix.address());
                let halves = [(bits >> 64) as u64, bits as u64];
                [condition::ADDRESS | at(*ends), halves[0], halves[1], prefix.length().into()]
            };
            prefixes.iter().map(of).collect()
        }
    };
    if !holds {
        tests.iter_mut().for_each(|test| test[0] |= condition::NOT);
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use freshline_core::router::HoldParams;
    use freshline_core::unit::{Bytes, Span};

    fn of(ifc: IfcConfig) -> Result<Settings, KernelError> {
        let framing = "overhead 44 mpu 84 atm".parse().unwrap();
        Settings::new(Some(BitRate::from_bps(20_000_000)), framing, &QdiscConfig::Ifc(ifc.into()))
    }

    #[test]
    fn the_row_is_what_the_program_reads() {
        let scheduler = SchedulerParams::Tdm(TdmParams { frame: Span::from_millis(20) });
        let classifier =
            "port=53,60-70 as drop_averse; dscp=46,1; update; not src=10.0.0.0/8 and udp force"
                .parse()
                .unwrap();
        let drop_averse = QdiscConfig::Fifo { limit: Limit::Bytes(Bytes::new(64_000)) };
        let aoi_share = AoiShare::new(0.25).unwrap();
        let ifc = IfcConfig { scheduler, aoi_share, classifier, drop_averse, ..<_>::default() };
        let mut settings = of(ifc).unwrap();
        let fifo = [1000, 64_000, 1, NO_TURNS, 0, 0, 0, 0];
        let expected = [20_000_000, 1, 250_000, 0, 20_000_000, 2000];
        let expected = [&expected[..], &fifo, &[44, 84, 1, 1, 6]].concat();
        assert_eq!(settings.numbers[..BEFORE_RULES], expected);
        let rules: Vec<_> = settings.numbers[BEFORE_RULES..].chunks(A_RULE).take(7).collect();
        let dscp = 1 << 46 | 1 << 1;
        let network = 0xffff_0a00_0000;
        let expected = [
            [0x303, 1, 53, 53, 0],
            [0x303, 1, 60, 70, 0],
            [2, 0, dscp, 0, 0],
            [4, 0, 0, 0, 0],
            [0x505, 3, 0, network, 104],
            [1, 2, 17, 0, 0],
            [0; 5],
        ];
        assert_eq!(rules, expected);
        settings.set_aoi_share(AoiShare::ONE);
        settings.set_rate(BitRate::from_bps(5000)).unwrap();
        assert_eq!((settings.aoi_share(), settings.rate()), (1.0, Some(BitRate::from_bps(5000))));
        assert!(settings.set_rate(BitRate::from_bps(0)).is_err());
    }

    #[test]
    fn without_a_rate_the_device_has_its_own_until_one_is_set() {
        let queue = QdiscConfig::Ifc(Box::default());
        let mut settings = Settings::new(None, Framing::default(), &queue).unwrap();
        assert_eq!((settings.numbers[RATE], settings.rate()), (0, None));
        let rate = BitRate::from_mbps(1);
        settings.set_rate(rate).unwrap();
        assert_eq!(settings.rate(), Some(rate));
    }

    #[test]
    fn updates_take_turns_by_host_unless_by_flow_is_asked_for() {
        for (isolate, is_by_host) in
            [(None, true), (Some(Isolation::Host), true), (Some(Isolation::Flow), false)]
        {
            let aoi = QdiscConfig::Ifil(IfilParams { isolate, ..<_>::default() });
            let settings = of(IfcConfig { aoi, ..<_>::default() }).unwrap();
            assert_eq!(settings.is_by_host(), is_by_host);
        }
    }

    #[test]
    fn other_traffic_has_fq_codel_by_default_or_codel_or_a_fifo() {
        let (target, interval) = (5_000_000, 100_000_000);
        let fq_codel = [1000, 32 << 20, 1024, 1514, 1, target, interval, 1514];
        let codel = [1000, UNLIMITED, 1, NO_TURNS, 0, target, interval, 1514];
        let fifo = [100, UNLIMITED, 1, NO_TURNS, 0, 0, 0, 0];
        let named = |name: &str| IfcConfig { drop_averse: name.parse().unwrap(), ..<_>::default() };
        for (ifc, expected) in
            [(IfcConfig::default(), fq_codel), (named("codel"), codel), (named("100p"), fifo)]
        {
            assert_eq!(of(ifc).unwrap().numbers[MAX_PACKETS_AT..MAX_PACKETS_AT + 8], expected);
        }
    }

    #[test]
    fn what_the_program_has_not_is_refused_with_a_remedy() {
        let classifier =
            Classifier { rules: vec!["udp".parse::<Classifier>().unwrap().rules[0].clone(); 65] };
        let fifo = |limit| QdiscConfig::Fifo { limit };
        let second = Span::from_secs(1);
        let hold = Some(HoldParams { update_period: second, output_period: second });
        let holding = QdiscConfig::Ifil(IfilParams { hold, ..<_>::default() });
        for (ifc, said) in [
            (IfcConfig { aoi: fifo(Limit::default()), ..<_>::default() }, "`aoi = 1000p`"),
            (IfcConfig { aoi: holding, ..<_>::default() }, "`hold` of `ifil`"),
            (IfcConfig { drop_averse: "red".parse().unwrap(), ..<_>::default() }, "red"),
            (IfcConfig { drop_averse: "100000p".parse().unwrap(), ..<_>::default() }, "100000p"),
            (IfcConfig { drop_averse: "0p".parse().unwrap(), ..<_>::default() }, "`limit` is zero"),
            (IfcConfig { classifier, ..<_>::default() }, "more than 64 tests"),
        ] {
            let message = of(ifc).unwrap_err().to_string();
            assert!(message.contains(said), "{message}");
        }
        let codel = Settings::new(
            Some(BitRate::from_bps(1_000_000)),
            Framing::default(),
            &"codel".parse().unwrap(),
        );
        assert!(codel.unwrap_err().to_string().contains("`freshline router run`"));
    }
}
