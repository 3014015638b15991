//! The flags that choose a law.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ValueEnum, value_parser};
use freshline_core::source::{
    AcpParams, AcpPlusParams, EpochEnd, Estimates, EstimatorParams, LawConfig, LawError, LawName,
    LazyParams, Limits, MinAgeGain, RateBounds, SendTime, TenthParams, Tie,
};
use freshline_core::unit::{BitRate, UpdateRate};
use miette::miette;

use crate::failure::Failure;

/// At this rate an opening of 100 to 200 bytes takes up to 2 s, which is less than the lifetime of
/// its cookie.
const MIN_BANDWIDTH: BitRate = BitRate::from_bps(1_000);

/// How acks become age, backlog and Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EstimatesName {
    /// As in the papers: time averages over the epoch, gaps between acks, losses as observed.
    Printed,
    /// Backlog at departure, gaps by the monitor's clock, losses bridged.
    Departure,
}

/// The action when mean age or mean backlog did not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TieName {
    /// Ask for one more update in transit (acp: for κ more).
    Increase,
    /// Keep the backlog as it is.
    Hold,
    /// Repeat the previous change, as the listings do.
    Repeat,
}

/// When an epoch of acp ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EpochName {
    /// At t_k + 10·T, with T at the start of the epoch, as published.
    Fixed,
    /// At t_k + 10·T, with T at the newest ack.
    Moving,
}

/// When lazy sends its next update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SendTimeName {
    /// One smoothed round trip after the previous update, fixed when that one was sent, as
    /// published.
    Fixed,
    /// One smoothed round trip after the previous update, moved by each ack.
    Moving,
}

/// Settings of individual laws.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Settings {
    /// Set the step κ of acp, in updates [default: 1].
    #[arg(long, value_name = "UPDATES", value_parser = positive, help_heading = "Rate")]
    kappa: Option<f64>,
    /// Estimate age, backlog and Z in this way (acp+d, acp+ and acp) [default: departure for acp+d,
    /// printed for the others].
    #[arg(long, value_enum, value_name = "SET", help_heading = "Rate")]
    estimates: Option<EstimatesName>,
    /// Choose the action when mean age or mean backlog did not change (acp+d, acp+ and acp)
    /// [default: increase].
    #[arg(long, value_enum, value_name = "ACTION", help_heading = "Rate")]
    tie: Option<TieName>,
    /// End an epoch of acp at this time [default: fixed].
    #[arg(long, value_enum, value_name = "END", help_heading = "Rate")]
    epoch: Option<EpochName>,
    /// Set the length of an epoch: in updates with acp+d and acp+, in multiples of T = min(srtt, Z)
    /// with acp [default: 10].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=100_000), help_heading = "Rate")]
    epoch_length: Option<u32>,
    /// Send the next update of lazy at this time [default: fixed].
    #[arg(long, value_enum, value_name = "TIME", help_heading = "Rate")]
    send_time: Option<SendTimeName>,
    /// Keep this mean number of updates queued (tenth): a larger one raises the throughput, up to
    /// the maximum rate [default: 0.14].
    #[arg(long, value_name = "UPDATES", value_parser = positive, help_heading = "Rate")]
    target_queue: Option<f64>,
}

/// A law and its settings.
#[derive(Debug, clap::Args)]
pub(crate) struct LawArgs {
    /// Decide by this law when to send.
    #[arg(long, value_parser = law_name(), default_value = "acp+d", help_heading = "Rate")]
    law: LawName,
    /// Send at this rate with --law fixed, such as 50/s.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    rate: Option<UpdateRate>,
    #[command(flatten)]
    settings: Settings,
    /// Raise the rate only if that lowers the mean age by at least this time; 0 permits every rate
    /// [default: 0.5ms, or 1 % of the base delay (half of the minimum RTT) if that is larger; not
    /// with --law fixed].
    #[arg(long, visible_alias = "worth", value_name = "TIME", help_heading = "Rate")]
    min_age_gain: Option<MinAgeGain>,
    /// Do not send more than this on average, such as 200kbit, with all headers from IP on; acks in
    /// the reverse direction are not counted.
    #[arg(long, value_name = "RATE", help_heading = "Rate")]
    max_bandwidth: Option<BitRate>,
    /// Do not send less often than this. With --law tenth, a value of 0.5/s or less drops to as
    /// little as a third of it while losses last.
    #[arg(long, value_name = "RATE", default_value_t = RateBounds::default().floor, help_heading = "Rate")]
    min_rate: UpdateRate,
    /// Do not send more states per second than this; a state of several updates counts once.
    #[arg(long, value_name = "RATE", default_value_t = RateBounds::default().ceiling, help_heading = "Rate")]
    max_rate: UpdateRate,
}

impl LawArgs {
    /// The limits of the law from the first packet on. Session openings may be sent once every 2 s
    /// regardless.
    pub(crate) fn limits(&self) -> Result<Limits, Failure> {
        if self.law == LawName::Fixed && self.min_age_gain.is_some() {
            return Err(usage(
                "--min-age-gain belongs to laws that find the rate, not to --law fixed",
            ));
        }
        if let Some(rate) = self.max_bandwidth.filter(|rate| *rate < MIN_BANDWIDTH) {
            return Err(usage(&format!(
                "--max-bandwidth {rate} is too low to keep a session open; give at least \
                 {MIN_BANDWIDTH}"
            )));
        }
        Ok(Limits {
            max_rate: Some(self.rate.unwrap_or(self.max_rate)),
            min_age_gain: self.min_age_gain.unwrap_or_default(),
            max_bandwidth: self.max_bandwidth,
        })
    }

    /// A warning for users of this law.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        (self.law == LawName::Tenth).then_some(
            "--law tenth: many sources behind a short queue can still overload a path \
             (docs/fresher.md, \"Safety\")",
        )
    }

    /// Whether the law has control epochs.
    pub(crate) fn has_epochs(&self) -> bool {
        self.law.has_epochs()
    }

    /// The law with its settings.
    pub(crate) fn config(&self) -> Result<LawConfig, Failure> {
        if self.rate.is_some() != (self.law == LawName::Fixed) {
            return Err(usage("--rate and --law fixed belong together"));
        }
        if self.min_rate > self.max_rate {
            return Err(usage("--min-rate is above --max-rate"));
        }
        self.settings.check("--law", &[self.law])?;
        let config = match self.rate {
            Some(rate) => LawConfig::Fixed { rate },
            None => self.settings.config(self.law).map_err(|error| usage(&error.to_string()))?,
        };
        // The limits lower the ceiling, unless states take several updates.
        let ceiling = self.max_rate.clamp(RateBounds::default().ceiling, UpdateRate::MAX);
        let bounds = RateBounds { floor: self.min_rate, ceiling };
        Ok(config.within(bounds))
    }
}

impl Settings {
    /// Rejects a setting that none of `laws`, given by `flag`, has.
    pub(crate) fn check(&self, flag: &str, laws: &[LawName]) -> Result<(), Failure> {
        use LawName::{Acp, AcpPlus, AcpPlusD, Lazy, Tenth};
        let settings: [(&str, bool, &[LawName]); 7] = [
            ("--kappa", self.kappa.is_some(), &[Acp]),
            ("--estimates", self.estimates.is_some(), &[AcpPlusD, AcpPlus, Acp]),
            ("--tie", self.tie.is_some(), &[AcpPlusD, AcpPlus, Acp]),
            ("--epoch", self.epoch.is_some(), &[Acp]),
            ("--epoch-length", self.epoch_length.is_some(), &[AcpPlusD, AcpPlus, Acp]),
            ("--send-time", self.send_time.is_some(), &[Lazy]),
            ("--target-queue", self.target_queue.is_some(), &[Tenth]),
        ];
        for (setting, is_given, owners) in settings {
            if is_given && !owners.iter().any(|owner| laws.contains(owner)) {
                let owners: Vec<_> = owners.iter().map(|owner| owner.as_str()).collect();
                return Err(usage(&format!("{setting} belongs to {flag} {}", owners.join(", "))));
            }
        }
        Ok(())
    }

    /// The configuration of `law` with those settings that apply to it; not for `fixed`, which
    /// needs a rate.
    pub(crate) fn config(&self, law: LawName) -> Result<LawConfig, LawError> {
        let mut config = LawConfig::with_defaults(law)?;
        match &mut config {
            LawConfig::AcpPlusD(params) | LawConfig::AcpPlus(params) => self.set_acp_plus(params),
            LawConfig::Acp(params) => self.set_acp(params),
            LawConfig::Tenth(TenthParams { target_queue, .. }) => {
                *target_queue = self.target_queue.unwrap_or(*target_queue);
            }
            LawConfig::Lazy(LazyParams { send_time, .. }) => {
                *send_time = match self.send_time {
                    Some(SendTimeName::Moving) => SendTime::Moving,
                    _ => SendTime::Fixed,
                };
            }
            LawConfig::Fixed { .. } => {}
        }
        Ok(config)
    }

    fn set_acp_plus(&self, params: &mut AcpPlusParams) {
        params.tie = self.tie();
        params.epoch_updates = self.epoch_length.unwrap_or(params.epoch_updates);
        params.estimator = self.estimator(params.estimator);
    }

    fn set_acp(&self, params: &mut AcpParams) {
        params.step = self.kappa.unwrap_or(params.step);
        params.tie = self.tie();
        params.epoch_end = match self.epoch {
            Some(EpochName::Moving) => EpochEnd::Moving,
            _ => EpochEnd::Fixed,
        };
        params.epoch_factor = self.epoch_length.unwrap_or(params.epoch_factor);
        params.estimator = self.estimator(params.estimator);
    }

    fn tie(&self) -> Tie {
        match self.tie {
            None | Some(TieName::Increase) => Tie::Increase,
            Some(TieName::Hold) => Tie::Hold,
            Some(TieName::Repeat) => Tie::Repeat,
        }
    }

    fn estimator(&self, default: EstimatorParams) -> EstimatorParams {
        match self.estimates {
            None => default,
            Some(EstimatesName::Printed) => EstimatorParams::of(Estimates::Printed),
            Some(EstimatesName::Departure) => EstimatorParams::of(Estimates::Departure),
        }
    }
}

/// Reads the name of a law; `--help` lists them all.
pub(crate) fn law_name() -> impl TypedValueParser<Value = LawName> {
    let names = LawName::ALL.map(|law| PossibleValue::new(law.as_str()).help(law.summary()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<LawName>())
}

fn usage(message: &str) -> Failure {
    Failure::Usage(miette!("{message}"))
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if f64::is_finite(number) && number > 0.0 => Ok(number),
        _ => Err("give a number above 0, such as 0.25".to_owned()),
    }
}
