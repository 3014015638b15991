//! The paths: sizes of states, rates, round trips and losses.

use freshline_core::unit::{Bytes, Span};
use freshline_lab::scenario::Change;
use freshline_lab::world::Sizes;
use toml::{Table, Value};

/// Sizes of states, in bytes.
const SIZES: [u64; 5] = [100, 1_000, 10_000, 100_000, 1_000_000];
/// Bottleneck rates, in Mbit/s.
const RATES: [u64; 3] = [1, 10, 100];
/// Base RTTs, in ms.
const ROUND_TRIPS: [u64; 3] = [10, 50, 200];
const LOSSES: [Loss; 7] = [
    Loss { percent: 0, burst: 0 },
    Loss { percent: 1, burst: 0 },
    Loss { percent: 1, burst: 5 },
    Loss { percent: 5, burst: 0 },
    Loss { percent: 5, burst: 5 },
    Loss { percent: 20, burst: 0 },
    Loss { percent: 20, burst: 5 },
];

/// Bytes of state in an update, as in the other scenarios of large states.
const PAYLOAD: u64 = 1024;
/// The length of a full packet, in bytes.
const PACKET: u64 = 1500;

/// The minimum duration of a measurement: this many states at the path's rate, this many round trips, and
/// this long. The warm-up is half as long.
const STATES: u64 = 60;
const MEASURED_ROUND_TRIPS: u64 = 100;
const MEASURED: Span = Span::from_secs(10);

/// Packets lost in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Loss {
    pub(crate) percent: u32,
    /// The mean length of a loss burst, in packets (Gilbert-Elliott); 0 for independent losses.
    pub(crate) burst: u32,
}

/// One point of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    pub(crate) loss: Loss,
    /// The size of a state, in bytes.
    pub(crate) size: u64,
    /// In Mbit/s.
    pub(crate) rate: u64,
    /// In ms.
    pub(crate) round_trip: u64,
}

/// The paths of one half of a chequerboard: 0 is `training`, 1 `held-out`.
pub(crate) fn half(wanted: usize) -> Vec<Path> {
    let mut paths = Vec::new();
    for (l, loss) in LOSSES.into_iter().enumerate() {
        for (i, size) in SIZES.into_iter().enumerate() {
            for (j, rate) in RATES.into_iter().enumerate() {
                for (k, round_trip) in ROUND_TRIPS.into_iter().enumerate() {
                    if (i + j + k + l) % 2 == wanted {
                        paths.push(Path { loss, size, rate, round_trip });
                    }
                }
            }
        }
    }
    paths
}

impl Path {
    /// The transmission time of a state, in s, without headers.
    pub(crate) fn state_time(&self) -> f64 {
        self.size as f64 * 8.0 / (self.rate as f64 * 1e6)
    }

    pub(crate) fn measured(&self) -> Span {
        let states = Span::from_secs_f64(STATES as f64 * self.state_time());
        states.max(Span::from_millis(MEASURED_ROUND_TRIPS * self.round_trip)).max(MEASURED)
    }

    pub(crate) fn warm_up(&self) -> Span {
        self.measured().mul_f64(0.5)
    }

    /// The queue limit of each direction: 100 packets, or the bandwidth-delay product if that is more.
    fn queue(&self) -> u64 {
        let product = self.rate * 1_000_000 / 8 * self.round_trip / 1_000;
        product.div_ceil(PACKET).max(100)
    }

    /// The path's capacity in updates per second.
    fn capacity(&self) -> f64 {
        let sizes = Sizes::of_our_protocol(Bytes::new(self.size.min(PAYLOAD)));
        self.rate as f64 * 1e6 / (8 * (sizes.payload + sizes.overhead).get()) as f64
    }

    /// The changes that turn `scenarios/large/path.toml` into this path.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let text = |text: String| Value::String(text);
        let span = |span: Span| text(format!("{}us", span.as_micros()));
        let mut hop = Table::new();
        hop.insert("rate".to_owned(), text(format!("{}mbit", self.rate)));
        hop.insert("delay".to_owned(), text(format!("{}us", 500 * self.round_trip)));
        hop.insert("queue".to_owned(), text(format!("{}p", self.queue())));
        let loss = f64::from(self.loss.percent) / 100.0;
        if self.loss.burst > 0 {
            let to_good = 1.0 / f64::from(self.loss.burst);
            hop.insert("to_good".to_owned(), Value::Float(to_good));
            hop.insert("to_bad".to_owned(), Value::Float(to_good * loss / (1.0 - loss)));
        } else {
            hop.insert("loss".to_owned(), Value::Float(loss));
        }
        let size = Bytes::new(self.size);
        let rate = |share: f64| text(format!("{:.3}/s", share * self.capacity()));
        let [warm_up, duration] = [self.warm_up(), self.warm_up() + self.measured()].map(span);
        let changes = [
            ("warm_up", warm_up),
            ("duration", duration),
            ("link.path.forward", Value::Table(hop.clone())),
            ("link.path.reverse", Value::Table(hop)),
            ("flow.source.updates.payload", text(format!("{}B", self.size.min(PAYLOAD)))),
            ("flow.source.updates.state", text(format!("{}B", size.get()))),
            ("flow.tcp.tcp.block", text(format!("{}B", size.get()))),
            ("reproduce.contest.from", rate(0.6)),
            ("reproduce.contest.to", rate(0.99)),
        ];
        changes.into_iter().map(|(key, value)| Change::new(key, value)).collect()
    }
}
