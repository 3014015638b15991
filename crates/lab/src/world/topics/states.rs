//! When the states of a topic are generated, and how long they are.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use freshline_core::session::{TopicKind, TopicParams};
use freshline_core::unit::{Bytes, Span, Time};
use rand::RngExt;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

/// A topic of a flow.
#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    /// The source's declaration. A keyed topic has its maximum number of keys.
    pub params: TopicParams,
    /// The lengths of its states.
    pub sizes: StateSizes,
    /// When its states are generated.
    pub generation: Generation,
}

/// The lengths of states. Those of a topic with keys have at least [`StateSizes::MIN_KEYED`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateSizes {
    /// One length per key, in turn, or per state of a topic without keys; at least one.
    InTurn(Vec<Bytes>),
    /// Uniformly distributed per state, both ends included.
    Between(Bytes, Bytes),
}

/// When states are generated. Periods are assigned to the keys in turn; at least one, and above
/// zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Generation {
    /// Whenever an update is sent.
    Sampled,
    /// Once per period from a random phase on, each delayed by up to `jitter`, uniformly
    /// distributed.
    Periodic {
        /// The periods.
        periods: Vec<Span>,
        /// The maximum delay; shorter than each period.
        jitter: Span,
    },
    /// As a Poisson process with these mean periods.
    Poisson {
        /// The mean periods.
        periods: Vec<Span>,
    },
}

impl StateSizes {
    /// A state of a key needs two bytes for the number of its stream.
    pub const MIN_KEYED: Bytes = Bytes::new(2);

    /// The maximum length of a state.
    fn max(&self) -> Bytes {
        match self {
            Self::InTurn(sizes) => sizes.iter().copied().max().unwrap_or(Bytes::ZERO),
            Self::Between(_, max) => *max,
        }
    }

    fn draw(&self, place: u64, rng: &mut Pcg64) -> Bytes {
        match self {
            Self::InTurn(sizes) => sizes[(place % sizes.len() as u64) as usize],
            Self::Between(min, max) => Bytes::new(rng.random_range(min.get()..=max.get())),
        }
    }
}

/// One series of states: a topic without keys, or one key of a topic.
#[derive(Debug)]
pub(super) struct Stream {
    /// The index of its topic.
    pub(super) topic: u16,
    /// The name and the number of its key.
    pub(super) key: Option<(Vec<u8>, u16)>,
    /// States generated so far.
    count: u64,
    /// The start of the present period, if it has one.
    period_from: Time,
}

/// All states of a flow.
#[derive(Debug)]
pub(super) struct States {
    topics: Vec<Topic>,
    streams: Vec<Stream>,
    /// The time of each stream's next state.
    due: BinaryHeap<Reverse<(Time, u16)>>,
    /// The streams that are sampled when an update is sent.
    sampled: Vec<u16>,
    /// The bytes of the next state.
    bytes: Vec<u8>,
    rng: Pcg64,
}

/// A generated state: the index of its stream, its topic, its key, whether it is a record, and its
/// bytes.
pub(super) struct Generated<'a> {
    pub(super) stream: u16,
    pub(super) topic: usize,
    pub(super) key: Option<&'a [u8]>,
    pub(super) is_record: bool,
    pub(super) bytes: &'a [u8],
}

impl States {
    /// The states of these topics from `start` on. The number of topics and keys is within the
    /// limit of a source.
    pub(super) fn new(topics: Vec<Topic>, start: Time, mut rng: Pcg64) -> Self {
        let (mut streams, mut due, mut sampled) = (Vec::new(), BinaryHeap::new(), Vec::new());
        for (place, topic) in topics.iter().enumerate() {
            let keys = match topic.params.kind {
                TopicKind::Keyed { max_keys } => (0..max_keys).map(Some).collect(),
                _ => vec![None],
            };
            for key in keys {
                let number = streams.len() as u16;
                let mut stream = Stream {
                    topic: place as u16,
                    key: key.map(|key| (key_name(key), key)),
                    count: 0,
                    period_from: start,
                };
                match stream.first_at(topic, start, &mut rng) {
                    Some(at) => due.push(Reverse((at, number))),
                    None => sampled.push(number),
                }
                streams.push(stream);
            }
        }
        let max = topics.iter().map(|topic| topic.sizes.max()).max().unwrap_or(Bytes::ZERO);
        Self { topics, streams, due, sampled, bytes: vec![0; max.get() as usize], rng }
    }

    pub(super) fn streams(&self) -> &[Stream] {
        &self.streams
    }

    pub(super) fn topics(&self) -> &[Topic] {
        &self.topics
    }

    /// The stream of a topic without keys, by the topic's index.
    pub(super) fn of_topic(&self, place: u16) -> Option<u16> {
        let is_it = |stream: &Stream| stream.topic == place && stream.key.is_none();
        self.streams.iter().position(is_it).map(|stream| stream as u16)
    }

    /// The stream of a key of the topic with this name.
    pub(super) fn of_key(&self, name: &str, key: &[u8]) -> Option<u16> {
        let place = self.topics.iter().position(|topic| topic.params.name == name)?;
        let is_it = |stream: &Stream| {
            let own = stream.key.as_ref();
            usize::from(stream.topic) == place && own.is_some_and(|(own, _)| own == key)
        };
        self.streams.iter().position(is_it).map(|stream| stream as u16)
    }

    /// The stream of a key, as encoded in a state of it.
    pub(super) fn of_state(&self, bytes: &[u8]) -> Option<u16> {
        let number = u16::from_be_bytes(*bytes.first_chunk()?);
        self.streams.get(usize::from(number))?.key.as_ref().map(|_| number)
    }

    /// The number of streams that are sampled when an update is sent.
    pub(super) fn sampled(&self) -> usize {
        self.sampled.len()
    }

    /// The present state of the `index`-th of these.
    pub(super) fn sample(&mut self, index: usize) -> Generated<'_> {
        self.generate(self.sampled[index])
    }

    /// When the next state is generated, except sampled ones.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// A state that is due at `now`.
    pub(super) fn poll(&mut self, now: Time) -> Option<Generated<'_>> {
        let number = self.due.peek().filter(|Reverse((at, _))| *at <= now)?.0.1;
        self.due.pop();
        let stream = &mut self.streams[usize::from(number)];
        let topic = &self.topics[usize::from(stream.topic)];
        if let Some(at) = stream.next_at(topic, now, &mut self.rng) {
            self.due.push(Reverse((at, number)));
        }
        Some(self.generate(number))
    }

    fn generate(&mut self, number: u16) -> Generated<'_> {
        let Self { topics, streams, bytes, rng, .. } = self;
        let stream = &mut streams[usize::from(number)];
        let topic = usize::from(stream.topic);
        let place = stream.key.as_ref().map_or(stream.count, |(_, key)| (*key).into());
        let len = topics[topic].sizes.draw(place, rng).get() as usize;
        stream.count += 1;
        let front = if stream.key.is_some() { 2 } else { 0 };
        bytes[..front].copy_from_slice(&number.to_be_bytes()[..front]);
        // Two states sampled at the same time must differ.
        let count = stream.count.to_le_bytes();
        for (byte, of_count) in bytes[front..len].iter_mut().zip(count) {
            *byte = of_count;
        }
        let key = stream.key.as_ref().map(|(name, _)| &name[..]);
        let is_record = topics[topic].params.kind.is_every();
        Generated { stream: number, topic, key, is_record, bytes: &bytes[..len] }
    }
}

impl Stream {
    /// When the first state is generated; `None` if states are sampled when updates are sent.
    fn first_at(&mut self, topic: &Topic, start: Time, rng: &mut Pcg64) -> Option<Time> {
        if let Generation::Periodic { periods, jitter } = &topic.generation {
            self.period_from = start + self.period(periods).mul_f64(rng.random());
            return Some(self.period_from + jitter.mul_f64(rng.random()));
        }
        self.next_at(topic, start, rng)
    }

    fn next_at(&mut self, topic: &Topic, now: Time, rng: &mut Pcg64) -> Option<Time> {
        match &topic.generation {
            Generation::Sampled => None,
            Generation::Periodic { periods, jitter } => {
                self.period_from += self.period(periods);
                Some(self.period_from + jitter.mul_f64(rng.random()))
            }
            Generation::Poisson { periods } => {
                let gap: f64 = Exp1.sample(rng);
                Some(now + self.period(periods).mul_f64(gap).max(Span::from_nanos(1)))
            }
        }
    }

    fn period(&self, periods: &[Span]) -> Span {
        let place = self.key.as_ref().map_or(0, |(_, key)| usize::from(*key));
        periods[place % periods.len()]
    }
}

/// The bytes of a key, by its number.
fn key_name(number: u16) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

#[cfg(test)]
mod tests {
    use rand_pcg::rand_core::SeedableRng;

    use super::*;

    /// When states are generated until `end`, by stream, with their lengths.
    fn generated(topic: Topic, end: Span) -> Vec<(u16, f64, usize)> {
        let mut states = States::new(vec![topic], Time::ZERO, Pcg64::seed_from_u64(1));
        let mut all = Vec::new();
        while let Some(at) = states.next_at().filter(|at| *at < Time::ZERO + end) {
            let state = states.poll(at).expect("it is due");
            all.push((state.stream, at.since(Time::ZERO).as_secs_f64(), state.bytes.len()));
        }
        all
    }

    fn topic(kind: TopicKind, sizes: StateSizes, generation: Generation) -> Topic {
        Topic { params: TopicParams { kind, ..TopicParams::new("t") }, sizes, generation }
    }

    #[test]
    fn periods_hold_over_time_whatever_the_jitter() {
        let (period, jitter) = (Span::from_millis(50), Span::from_millis(20));
        let generation = Generation::Periodic { periods: vec![period], jitter };
        let sizes = StateSizes::InTurn(vec![Bytes::new(10), Bytes::new(20)]);
        let all = generated(topic(TopicKind::Latest, sizes, generation), Span::from_secs(100));
        assert_eq!(all.len(), 2_000);
        let gaps: Vec<f64> = all.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(gaps.iter().all(|gap| (0.03..=0.07).contains(gap)));
        assert!(gaps.iter().any(|gap| *gap < 0.04) && gaps.iter().any(|gap| *gap > 0.06));
        assert_eq!(all[..3].iter().map(|state| state.2).collect::<Vec<_>>(), [10, 20, 10]);
    }

    #[test]
    fn keys_have_periods_and_lengths_in_turn() {
        let periods = [20, 1_000].map(Span::from_millis).to_vec();
        let generation = Generation::Periodic { periods, jitter: Span::ZERO };
        let sizes = StateSizes::InTurn([72, 90, 80].map(Bytes::new).to_vec());
        let keyed = TopicKind::Keyed { max_keys: 4 };
        let all = generated(topic(keyed, sizes, generation), Span::from_secs(10));
        let of = |stream: u16| all.iter().filter(move |state| state.0 == stream);
        assert_eq!([0, 1, 2, 3].map(|stream| of(stream).count()), [500, 10, 500, 10]);
        let lens = [0, 1, 2, 3].map(|stream| of(stream).next().map(|state| state.2));
        assert_eq!(lens, [72, 90, 80, 72].map(Some));
    }

    #[test]
    fn a_poisson_process_has_its_mean_and_drawn_lengths_their_range() {
        let generation = Generation::Poisson { periods: vec![Span::from_millis(10)] };
        let sizes = StateSizes::Between(Bytes::new(20_000), Bytes::new(50_000));
        let all = generated(topic(TopicKind::Latest, sizes, generation), Span::from_secs(100));
        assert!((9_600..10_400).contains(&all.len()), "{}", all.len());
        assert!(all.iter().all(|state| (20_000..=50_000).contains(&state.2)));
        let mean = all.iter().map(|state| state.2).sum::<usize>() / all.len();
        assert!((34_500..35_500).contains(&mean), "{mean}");
        let gaps = all.windows(2).map(|pair| pair[1].1 - pair[0].1);
        let squares = gaps.map(|gap| gap * gap).sum::<f64>() / (all.len() - 1) as f64;
        assert!((squares / 2e-4 - 1.0).abs() < 0.1, "{squares}: gaps are exponential");
    }
}
