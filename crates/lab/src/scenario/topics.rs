//! Topics of a flow of updates: `[[flow.updates.topic]]`. The keys are those of `freshline source --topic`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use freshline_core::session::{
    MaxAge, RecordChunk, SourceParams, StreamId, TopicKind, TopicParams,
};
use freshline_core::unit::{Bytes, Span, UpdateRate};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{FlowConfig, ScenarioError, UpdatesConfig};
use crate::world::{Generation, StateSizes, Topic, TopicsSettings};

/// One topic of a flow of updates.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicConfig {
    /// Its name.
    pub name: String,
    /// Which of its states are needed.
    #[serde(default)]
    pub kind: TopicKindName,
    /// For a topic with keys, their number.
    pub keys: Option<u16>,
    /// For a topic of records, the maximum size of records that the source holds; default: 1 MiB.
    pub buffer: Option<Bytes>,
    /// The lengths of its states.
    pub size: SizesConfig,
    /// The time between two of its states, or, for keys in turn, of the states of each key. Unset:
    /// states are sampled when an update is sent.
    pub period: Option<PeriodsConfig>,
    /// With `period`: the arrival process of states.
    #[serde(default)]
    pub pattern: GenerationPattern,
    /// With `period`: the maximum delay of each state's generation, uniformly distributed.
    pub jitter: Option<Span>,
    /// The weight of its age.
    #[serde(default = "one")]
    pub weight: f64,
    /// The age from which on a state is no longer sent.
    pub deadline: Option<Span>,
    /// The maximum rate of its states.
    pub max_rate: Option<UpdateRate>,
    /// The rate below which its states are sent first.
    pub min_rate: Option<UpdateRate>,
    /// Whether its states are sent before all others.
    #[serde(default)]
    pub urgent: bool,
}

/// Which states of a topic are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopicKindName {
    /// The newest one.
    #[default]
    Latest,
    /// The newest one of each key.
    Keyed,
    /// All states: they are records.
    Every,
}

/// The arrival process of states with a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationPattern {
    /// At constant intervals.
    #[default]
    Constant,
    /// As a Poisson process, with the period as the mean.
    Poisson,
}

/// Whether the endpoints apply the rules that topics declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TopicRules {
    /// They apply them.
    #[default]
    Declared,
    /// All topics have a weight of 1 and neither deadlines, rates, urgency nor maximum ages. The
    /// measurements use the declared ones.
    None,
}

/// Lengths of states: one, several in turn, or a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizesConfig(StateSizes);

/// Periods: one, or several in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeriodsConfig(Vec<Span>);

/// The maximum age of the states of some topics, as in `freshline monitor --max-age`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxAgeConfig(MaxAge);

impl<'de> Deserialize<'de> for MaxAgeConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// The ends of a range of lengths.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    min: Bytes,
    max: Bytes,
}

impl<'de> Deserialize<'de> for SizesConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;

        impl<'de> Visitor<'de> for Sizes {
            type Value = StateSizes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a size such as \"100B\", a list of sizes, or { min = \"20kB\", max = \"50kB\" }",
                )
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<StateSizes, E> {
                text.parse().map(|size| StateSizes::InTurn(vec![size])).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<StateSizes, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(StateSizes::InTurn)
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<StateSizes, A::Error> {
                let Range { min, max } = Range::deserialize(MapAccessDeserializer::new(table))?;
                match min <= max {
                    true => Ok(StateSizes::Between(min, max)),
                    false => Err(A::Error::custom(format!("`min` ({min}) is above `max` ({max})"))),
                }
            }
        }

        deserializer.deserialize_any(Sizes).map(Self)
    }
}

impl<'de> Deserialize<'de> for PeriodsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Periods;

        impl<'de> Visitor<'de> for Periods {
            type Value = Vec<Span>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"50ms\", or a list of times")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Vec<Span>, E> {
                text.parse().map(|period| vec![period]).map_err(E::custom)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<Span>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list))
            }
        }

        deserializer.deserialize_any(Periods).map(Self)
    }
}

impl TopicConfig {
    fn build(&self) -> Result<Topic, Cow<'static, str>> {
        let kind = self.kind()?;
        let params = TopicParams {
            name: self.name.clone(),
            kind,
            weight: self.weight,
            deadline: self.deadline,
            max_rate: self.max_rate,
            min_rate: self.min_rate,
            is_urgent: self.urgent,
        };
        // The message already contains the name.
        let named = format!("topic {:?}: ", self.name);
        params.check().map_err(|error| error.to_string().trim_start_matches(&named).to_owned())?;
        let sizes = self.sizes()?.clone();
        Ok(Topic { params, sizes, generation: self.generation()? })
    }

    fn kind(&self) -> Result<TopicKind, Cow<'static, str>> {
        if self.keys.is_some() && self.kind != TopicKindName::Keyed {
            return Err("`keys` needs `kind = \"keyed\"`".into());
        }
        if self.buffer.is_some() && self.kind != TopicKindName::Every {
            return Err("`buffer` needs `kind = \"every\"`".into());
        }
        match self.kind {
            TopicKindName::Latest => Ok(TopicKind::Latest),
            TopicKindName::Keyed => match self.keys {
                Some(max_keys) => Ok(TopicKind::Keyed { max_keys }),
                None => Err("`kind = \"keyed\"` needs `keys`".into()),
            },
            TopicKindName::Every if self.period.is_none() => {
                Err("records are not sampled as updates leave; give a `period`".into())
            }
            // No run restarts a source, so the monitor has not seen any stream before.
            TopicKindName::Every => Ok(TopicKind::Every {
                stream: StreamId(0),
                first: 0,
                max_bytes: match self.buffer {
                    None => TopicKind::DEFAULT_BYTES,
                    Some(bytes) => u32::try_from(bytes.get())
                        .map_err(|_| format!("`buffer` is {bytes}; give at most 4GB"))?,
                },
            }),
        }
    }

    fn sizes(&self) -> Result<&StateSizes, Cow<'static, str>> {
        let SizesConfig(sizes) = &self.size;
        let all = match sizes {
            StateSizes::InTurn(sizes) => sizes.clone(),
            StateSizes::Between(min, max) => vec![*min, *max],
        };
        let min = match self.kind {
            TopicKindName::Keyed => StateSizes::MIN_KEYED,
            TopicKindName::Latest | TopicKindName::Every => Bytes::new(1),
        };
        let max = Bytes::new(match self.kind {
            TopicKindName::Every => RecordChunk::MAX_RECORD as u64,
            _ => SourceParams::default().max_state as u64,
        });
        if all.is_empty() {
            return Err("`size` is an empty list; give at least one size".into());
        }
        match all.iter().find(|size| !(min..=max).contains(size)) {
            Some(size) => Err(format!("`size` has {size}; give from {min} to {max}").into()),
            None => Ok(sizes),
        }
    }

    fn generation(&self) -> Result<Generation, Cow<'static, str>> {
        let Some(PeriodsConfig(periods)) = &self.period else {
            return match (self.pattern, self.jitter) {
                (GenerationPattern::Constant, None) => Ok(Generation::Sampled),
                _ => Err("`pattern` and `jitter` need a `period`".into()),
            };
        };
        let Some(min) = periods.iter().copied().min().filter(|min| !min.is_zero()) else {
            return Err("`period` must be above zero".into());
        };
        if self.kind != TopicKindName::Keyed && periods.len() > 1 {
            return Err("a list of periods is of keys in turn, and needs `kind = \"keyed\"`".into());
        }
        let periods = periods.clone();
        match (self.pattern, self.jitter) {
            (GenerationPattern::Poisson, Some(_)) => {
                Err("a Poisson process has no `jitter`; leave it out".into())
            }
            (GenerationPattern::Poisson, None) => Ok(Generation::Poisson { periods }),
            (GenerationPattern::Constant, jitter) => {
                let jitter = jitter.unwrap_or(Span::ZERO);
                match jitter < min {
                    true => Ok(Generation::Periodic { periods, jitter }),
                    false => {
                        Err(format!("`jitter` ({jitter}) is not shorter than `period` ({min})")
                            .into())
                    }
                }
            }
        }
    }
}

/// The minimum of the maximum datagram size, in bytes: an opening with a source name of maximum
/// length fits.
const MIN_DATAGRAM: Bytes = Bytes::new(500);

impl UpdatesConfig {
    /// The settings of topics and their monitor for the flow with these updates; `None` without
    /// topics.
    pub(super) fn topics(
        &self,
        flow: &FlowConfig,
    ) -> Result<Option<TopicsSettings>, ScenarioError> {
        if self.topics.is_empty() {
            let has_keys = self.rules.is_some() || self.max_datagram.is_some();
            return match self.max_age.is_empty() && !has_keys {
                true => Ok(None),
                false => Err(flow.refused(
                    "`max_age`, `rules` and `max_datagram` need topics; add a [[flow.updates.topic]]",
                )),
            };
        }
        let refused = |topic: &TopicConfig, what| ScenarioError::Topic {
            flow: flow.name.clone(),
            topic: topic.name.clone(),
            what,
        };
        let mut names = BTreeSet::new();
        let mut topics = Vec::new();
        for topic in &self.topics {
            if !names.insert(&topic.name) {
                return Err(refused(topic, "two topics have this name".into()));
            }
            topics.push(topic.build().map_err(|what| refused(topic, what))?);
        }
        Ok(Some(TopicsSettings {
            name: flow.name.clone(),
            topics,
            max_age: self.max_age.iter().map(|MaxAgeConfig(rule)| rule.clone()).collect(),
            has_rules: self.rules.unwrap_or_default() == TopicRules::Declared,
            max_datagram: self.datagram().map_err(|what| flow.refused(what))?,
            overhead: self.overhead.unwrap_or(TopicsSettings::OVERHEAD),
        }))
    }

    /// The maximum datagram of a flow with topics, whose packets have the sizes of the datagrams in
    /// them.
    fn datagram(&self) -> Result<Bytes, Cow<'static, str>> {
        let has_sizes = self.payload.or(self.state).or(self.ack).is_some();
        if has_sizes || self.sizes != Default::default() {
            return Err(
                "packets of a flow with topics have the sizes of their datagrams; leave `payload`, \
                        `state`, `ack` and `sizes` out"
                    .into(),
            );
        }
        let max = Bytes::new(SourceParams::default().max_datagram as u64);
        let datagram = self.max_datagram.unwrap_or(TopicsSettings::MAX_DATAGRAM);
        match (MIN_DATAGRAM..=max).contains(&datagram) {
            true => Ok(datagram),
            false => {
                Err(format!("`max_datagram` is {datagram}; give from {MIN_DATAGRAM} to {max}")
                    .into())
            }
        }
    }
}

fn one() -> f64 {
    1.0
}

#[cfg(test)]
mod tests {
    use super::super::Scenario;
    use super::*;

    /// A scenario with a flow whose `[flow.updates]` ends with these lines. The first of them is line 11.
    fn parse(lines: &str) -> Result<TopicsSettings, String> {
        let text = format!(
            r#"title = "topics"
duration = "10s"
[[link]]
name = "path"
forward = {{ delay = "10ms" }}
[[flow]]
name = "robot"
path = ["path"]
[flow.updates]
law = "tenth"
{lines}"#
        );
        let scenario = Scenario::parse(&text[..]).map_err(|error| error.to_string())?;
        let flow = &scenario.flows[0];
        let settings = flow.updates.as_ref().expect("it has").topics(flow).expect("it was checked");
        Ok(settings.expect("it has topics"))
    }

    #[test]
    fn a_topic_has_the_words_of_the_command_line() {
        let settings = parse(
            r#"max_age = ["robot/*=200ms"]
            rules = "none"
            max_datagram = "1200B"
            [[flow.updates.topic]]
            name = "pose"
            size = "100B"
            weight = 100
            deadline = "200ms"
            max_rate = "50/s"
            min_rate = "1/s"
            urgent = true
            [[flow.updates.topic]]
            name = "tf"
            kind = "keyed"
            keys = 40
            size = ["72B", "90B"]
            period = ["20ms", "1s"]
            jitter = "5ms"
            [[flow.updates.topic]]
            name = "camera"
            size = { min = "20kB", max = "50kB" }
            period = "33ms"
            pattern = "poisson""#,
        );
        let settings = settings.unwrap();
        assert_eq!((settings.name.as_str(), settings.has_rules), ("robot", false));
        assert_eq!(settings.max_datagram, Bytes::new(1200));
        assert_eq!(settings.max_age, ["robot/*=200ms".parse().unwrap()]);
        let [pose, tf, camera] = &settings.topics[..] else { panic!("{settings:?}") };
        let params = TopicParams {
            weight: 100.0,
            deadline: Some(Span::from_millis(200)),
            max_rate: Some(UpdateRate::saturating(50.0)),
            min_rate: Some(UpdateRate::saturating(1.0)),
            is_urgent: true,
            ..TopicParams::new("pose")
        };
        assert_eq!((&pose.params, &pose.generation), (&params, &Generation::Sampled));
        assert_eq!(tf.params.kind, TopicKind::Keyed { max_keys: 40 });
        assert_eq!(tf.sizes, StateSizes::InTurn([72, 90].map(Bytes::new).to_vec()));
        let periods = [20, 1_000].map(Span::from_millis).to_vec();
        let jitter = Span::from_millis(5);
        assert_eq!(tf.generation, Generation::Periodic { periods, jitter });
        assert_eq!(camera.sizes, StateSizes::Between(Bytes::new(20_000), Bytes::new(50_000)));
        let periods = vec![Span::from_millis(33)];
        assert_eq!(camera.generation, Generation::Poisson { periods });
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let topic = |lines: &str| {
            format!("[[flow.updates.topic]]\nname = \"pose\"\nsize = \"9B\"\n{lines}")
        };
        for (lines, expected) in [
            (topic("weight = 0"), "line 12: flow `robot`, topic `pose`"),
            (topic("weight = 0"), "weight 0"),
            (topic("weight = \"much\""), "line 14, column 10"),
            (topic("colour = 1"), "line 14, column 1"),
            (topic("kind = \"other\""), "`latest`, `keyed`, `every`"),
            (topic("kind = \"keyed\""), "needs `keys`"),
            (topic("keys = 3"), "needs `kind = \"keyed\"`"),
            (topic("buffer = \"20kB\""), "needs `kind = \"every\"`"),
            (topic("kind = \"every\""), "give a `period`"),
            (topic("kind = \"every\"\nperiod = \"1s\"\nbuffer = \"10B\""), "at least 1024"),
            (topic("kind = \"every\"\nperiod = \"1s\"\nbuffer = \"5GB\""), "at most 4GB"),
            (
                topic("kind = \"every\"\nperiod = \"1s\"\ndeadline = \"1s\""),
                "a deadline is for states",
            ),
            (topic("kind = \"every\"\nperiod = [\"1s\", \"2s\"]"), "needs `kind = \"keyed\"`"),
            (topic("kind = \"keyed\"\nkeys = 0"), "1 key at least"),
            (topic("kind = \"keyed\"\nkeys = 5000"), "at most 4096"),
            (topic("period = 50"), "such as \"50ms\""),
            (topic("period = \"0s\""), "above zero"),
            (topic("period = [\"1s\", \"2s\"]"), "of keys in turn"),
            (topic("jitter = \"1ms\""), "need a `period`"),
            (topic("pattern = \"poisson\""), "need a `period`"),
            (topic("period = \"5ms\"\njitter = \"5ms\""), "not shorter than `period`"),
            (topic("period = \"5ms\"\njitter = \"1ms\"\npattern = \"poisson\""), "has no `jitter`"),
            (topic("min_rate = \"9/s\"\nmax_rate = \"3/s\""), "lowest rate"),
            (topic("").replace("pose", "a b"), "a name has"),
            (topic("").replace("\"9B\"", "9"), "a size such as"),
            (topic("").replace("\"9B\"", "[]"), "empty list"),
            (topic("").replace("9B", "0B"), "from 1B"),
            (topic("").replace("9B", "9MB"), "give from"),
            (topic("").replace("\"9B\"", "{ min = \"3B\", max = \"2B\" }"), "line 13, column 8"),
            (format!("{0}\n{0}", topic("")), "line 16: flow `robot`, topic `pose`: two"),
            (format!("max_age = [\"robot\"]\n{}", topic("")), "line 11, column"),
            (format!("rules = \"some\"\n{}", topic("")), "`declared` or `none`"),
            (format!("max_datagram = \"9B\"\n{}", topic("")), "`max_datagram` is 9B"),
            (format!("payload = \"9B\"\n{}", topic("")), "leave `payload`"),
            (format!("ack = \"0B\"\n{}", topic("")), "leave `payload`"),
            ("payload = \"9B\"\nmax_age = [\"robot=1s\"]".to_owned(), "line 7: flow `robot`"),
            (String::new(), "give the `payload`"),
        ] {
            let error = parse(&lines).unwrap_err();
            assert!(error.contains(expected), "{lines}: {error}");
        }
    }
}
