//! The sizes of the packets of a flow of updates on the wire. Scenarios set them, as papers have
//! headers of their own. The session's datagrams are carried in packets of these sizes.

use freshline_core::unit::Bytes;
use freshline_core::wire;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;

use crate::world::parcel::UDP_OVER_IPV4;

/// The sizes of updates on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The size of the state in each update.
    pub payload: Bytes,
    /// The number of updates per state.
    pub symbols: u32,
    /// The headers around it.
    pub overhead: Bytes,
    /// An ack with its headers; `None` if acks are not carried.
    pub ack: Option<Bytes>,
    /// The distribution of an update's size on the wire.
    pub distribution: SizeDistribution,
}

/// The distribution of a packet's size on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeDistribution {
    /// Constant.
    #[default]
    Constant,
    /// Exponential, drawn once when it is sent, which makes a link an M server.
    Exponential,
    /// Exponential, drawn again for each hop, as in tandem queues with independent services.
    ExponentialEachHop,
}

impl Sizes {
    /// The sizes of Freshline's own protocol over UDP and IPv4 (`docs/protocol.md`).
    pub fn of_our_protocol(payload: Bytes) -> Self {
        let length = (wire::Update::HEADER_LEN as u64 + payload.get()).max(wire::Ack::LEN as u64);
        Self {
            payload,
            symbols: 1,
            overhead: Bytes::new(length - payload.get()) + UDP_OVER_IPV4,
            ack: Some(Bytes::new(wire::Ack::LEN as u64) + UDP_OVER_IPV4),
            distribution: SizeDistribution::Constant,
        }
    }

    /// The bytes of a state.
    pub(super) fn state_len(&self) -> u64 {
        self.payload.get() * u64::from(self.symbols)
    }

    /// The size of an update that is sent now.
    pub(super) fn draw(&self, rng: &mut Pcg64) -> Bytes {
        let whole = self.payload + self.overhead;
        match self.distribution {
            SizeDistribution::Constant => whole,
            SizeDistribution::Exponential | SizeDistribution::ExponentialEachHop => {
                exponential(whole, rng)
            }
        }
    }

    /// The size of an update on its next hop, if it is drawn per hop.
    #[inline]
    pub(super) fn draw_on_hop(&self, rng: &mut Pcg64) -> Option<Bytes> {
        let each_hop = self.distribution == SizeDistribution::ExponentialEachHop;
        each_hop.then(|| exponential(self.payload + self.overhead, rng))
    }
}

/// Exponentially distributed around `mean`, at least a byte.
fn exponential(mean: Bytes, rng: &mut Pcg64) -> Bytes {
    let factor: f64 = Exp1.sample(rng);
    Bytes::new((mean.get() as f64 * factor).round().max(1.0) as u64)
}
