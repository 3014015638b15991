//! The settings of the page, and the scenario that they make.

use freshline_core::source::{LawConfig, LawName};
use freshline_core::unit::{BitRate, Bytes, Span, UpdateRate};
use freshline_lab::scenario::{Scenario, ScenarioError};
use freshline_lab::world::Sizes;
use serde::{Deserialize, Serialize};

/// The values of the page's controls. Each field has the range that its description states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The seed of all randomness, at most 2⁵³ − 1, which JavaScript has exactly.
    pub seed: u64,
    /// The number of sources, from 1 to 8.
    pub sources: u32,
    /// The rate of the bottleneck in kbit/s, from 50 to 20,000.
    pub bottleneck_kbit: u32,
    /// The propagation delay of the whole path in one direction in ms, from 1 to 500.
    pub delay_ms: f64,
    /// The delay behind the bottleneck varies by this number of ms in either direction: from 0 to
    /// [`Settings::MAX_JITTER`] of the delay. It does not reorder packets.
    pub jitter_ms: f64,
    /// The fraction of packets lost behind the bottleneck, from 0 to 0.5.
    pub loss: f64,
    /// The law of all sources.
    #[serde(with = "law_name")]
    pub law: LawName,
    /// Updates per second and source of the law `fixed`, from 1 to 1,000. Other laws ignore it.
    pub rate: f64,
    /// The queue in front of the bottleneck.
    pub queue: Queue,
    /// The traffic that shares the bottleneck with the updates.
    pub cross_traffic: CrossTraffic,
}

/// The queue in front of the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queue {
    /// Drop-tail, 100 packets.
    Fifo,
    /// The newest packet first, 100 packets.
    Lifo,
    /// FQ-CoDel.
    FqCodel,
    /// Freshness control: of each source the newest update, which shares the link with all else.
    Ifc,
}

/// The traffic that shares the bottleneck with the updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrossTraffic {
    /// Nothing.
    None,
    /// A TCP stream with CUBIC that always has data to send.
    Tcp,
}

/// Settings without a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadSettings(String);

impl std::fmt::Display for BadSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadSettings {}

impl From<ScenarioError> for BadSettings {
    fn from(error: ScenarioError) -> Self {
        Self(error.to_string())
    }
}

impl Settings {
    /// The fraction of the delay that jitter may be at most, which is the fraction behind the
    /// bottleneck. The rest is between the sources and the queue.
    pub const MAX_JITTER: f64 = 0.8;

    /// Reads the settings from JSON, and checks them.
    ///
    /// # Errors
    /// [`BadSettings`] names the field and its range.
    pub fn parse(json: &str) -> Result<Self, BadSettings> {
        let settings: Self =
            serde_json::from_str(json).map_err(|error| BadSettings(error.to_string()))?;
        settings.check()?;
        Ok(settings)
    }

    /// Checks that each field is in its range.
    ///
    /// # Errors
    /// [`BadSettings`] names the field and its range.
    pub fn check(&self) -> Result<(), BadSettings> {
        let max_jitter = Self::MAX_JITTER * self.delay_ms;
        let max_seed = (1u64 << 53) - 1;
        let ranges = [
            ("seed", self.seed as f64, [0.0, max_seed as f64]),
            ("sources", f64::from(self.sources), [1.0, 8.0]),
            ("bottleneck_kbit", f64::from(self.bottleneck_kbit), [50.0, 20_000.0]),
            ("delay_ms", self.delay_ms, [1.0, 500.0]),
            ("jitter_ms", self.jitter_ms, [0.0, max_jitter]),
            ("loss", self.loss, [0.0, 0.5]),
            ("rate", self.rate, [1.0, 1_000.0]),
        ];
        match ranges.into_iter().find(|(_, value, [min, max])| !(*min..=*max).contains(value)) {
            None => Ok(()),
            Some((field, value, [min, max])) => {
                Err(BadSettings(format!("`{field}` is {value}; give it from {min} to {max}")))
            }
        }
    }

    /// The law, with the rate of `fixed`.
    pub fn law_config(&self) -> LawConfig {
        let fixed = || LawConfig::Fixed { rate: UpdateRate::saturating(self.rate) };
        LawConfig::with_defaults(self.law).unwrap_or_else(|_| fixed())
    }

    /// The updates per second and source that the bottleneck carries, if nothing else uses it.
    pub fn capacity(&self) -> f64 {
        let sizes = Sizes::of_our_protocol(Bytes::new(PAYLOAD));
        let bits = (sizes.payload + sizes.overhead).get() * 8;
        self.bottleneck().as_bps() as f64 / bits as f64 / f64::from(self.sources)
    }

    /// The rate of the bottleneck.
    pub fn bottleneck(&self) -> BitRate {
        BitRate::from_bps(u64::from(self.bottleneck_kbit) * 1000)
    }

    /// The delays before and behind the bottleneck's queue, and the jitter of the second.
    pub fn delays(&self) -> Delays {
        let ms = |ms: f64| Span::from_nanos((ms * 1e6).round() as u64);
        let behind = ms(self.delay_ms * Self::MAX_JITTER);
        let jitter = ms(self.jitter_ms).min(behind);
        Delays { before: ms(self.delay_ms * (1.0 - Self::MAX_JITTER)), behind, jitter }
    }

    /// The scenario as a file for `freshline lab run`, with a run of `duration` of which `warm_up`
    /// does not count.
    pub fn toml(&self, duration: &str, warm_up: &str) -> String {
        let Delays { before, behind, jitter } = self.delays();
        let Self { seed, sources, bottleneck_kbit, loss, rate, .. } = self;
        let queue = match self.queue {
            Queue::Fifo => "100p",
            Queue::Lifo => "lifo",
            Queue::FqCodel => "fq_codel",
            Queue::Ifc => "ifc",
        };
        let law = self.law;
        let rate = match law {
            LawName::Fixed => format!(", rate = \"{rate}/s\""),
            _ => String::new(),
        };
        let tcp = match self.cross_traffic {
            CrossTraffic::None => "",
            CrossTraffic::Tcp => TCP,
        };
        format!(
            r#"title = "Sources, one bottleneck and a monitor"
duration = "{duration}"
warm_up = "{warm_up}"
seed = {seed}

[[link]]
name = "access"
forward = {{ delay = "{before}" }}

[[link]]
name = "bottleneck"
forward = {{ rate = "{bottleneck_kbit}kbit", delay = "{behind}", jitter = "{jitter}", loss = {loss:?}, queue = "{queue}" }}
reverse = {{ delay = "{behind}" }}

[[flow]]
name = "source"
count = {sources}
path = ["access", "bottleneck"]
start_spread = "50ms"
updates = {{ law = "{law}"{rate}, payload = "{PAYLOAD}B", sizes = "exponential" }}
{tcp}"#
        )
    }

    /// The scenario for [`Settings::toml`].
    ///
    /// # Errors
    /// [`BadSettings`], with the lab's reason.
    pub fn scenario(&self, duration: &str, warm_up: &str) -> Result<Scenario, BadSettings> {
        self.check()?;
        Ok(Scenario::parse(&*self.toml(duration, warm_up))?)
    }
}

/// The delays of the path in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delays {
    /// Before the bottleneck.
    pub before: Span,
    /// Behind it.
    pub behind: Span,
    /// The jitter of the second.
    pub jitter: Span,
}

/// The state in each update, in bytes, on average: sizes are exponentially distributed, so that updates
/// meet each other in the queue as those of independent sources do, and not always in the same order.
const PAYLOAD: u64 = 1000;

const TCP: &str = r#"
[[flow]]
name = "tcp"
path = ["access", "bottleneck"]
tcp = { control = "cubic" }
"#;

/// A law as its name in files.
mod law_name {
    use freshline_core::source::LawName;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(law: &LawName, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(law.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<LawName, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            seed: 1,
            sources: 2,
            bottleneck_kbit: 1000,
            delay_ms: 50.0,
            jitter_ms: 5.0,
            loss: 0.01,
            law: LawName::Fixed,
            rate: 20.0,
            queue: Queue::Fifo,
            cross_traffic: CrossTraffic::None,
        }
    }

    #[test]
    fn every_choice_of_the_page_makes_a_scenario() {
        for law in LawName::ALL {
            for queue in [Queue::Fifo, Queue::Lifo, Queue::FqCodel, Queue::Ifc] {
                for cross_traffic in [CrossTraffic::None, CrossTraffic::Tcp] {
                    let chosen = Settings { law, queue, cross_traffic, ..settings() };
                    let json = serde_json::to_string(&chosen).unwrap();
                    assert_eq!(Settings::parse(&json).unwrap(), chosen);
                    let scenario = chosen.scenario("60s", "10s").unwrap();
                    let flows = 1 + usize::from(cross_traffic == CrossTraffic::Tcp);
                    assert_eq!(scenario.flows.len(), flows);
                }
            }
        }
    }

    #[test]
    fn the_extremes_of_the_ranges_make_a_scenario() {
        for (delay_ms, jitter, loss) in [(1.0, 0.0, 0.0), (500.0, 1.0, 0.5), (33.3, 1.0, 1e-4)] {
            let jitter_ms = jitter * Settings::MAX_JITTER * delay_ms;
            for bottleneck_kbit in [50, 20_000] {
                let chosen = Settings { delay_ms, jitter_ms, loss, bottleneck_kbit, ..settings() };
                chosen.scenario("60s", "10s").unwrap();
            }
        }
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        let wrong = [
            ("sources", Settings { sources: 0, ..settings() }),
            ("sources", Settings { sources: 9, ..settings() }),
            ("bottleneck_kbit", Settings { bottleneck_kbit: 0, ..settings() }),
            ("delay_ms", Settings { delay_ms: f64::NAN, ..settings() }),
            ("jitter_ms", Settings { jitter_ms: 45.0, ..settings() }),
            ("loss", Settings { loss: 1.5, ..settings() }),
            ("rate", Settings { rate: 0.0, ..settings() }),
        ];
        for (field, settings) in wrong {
            let error = settings.scenario("60s", "10s").unwrap_err().to_string();
            assert!(error.contains(field), "{error}");
        }
        for json in ["", "{}", "[1]", r#"{"law":"best"}"#] {
            assert!(Settings::parse(json).is_err(), "{json}");
        }
    }
}
