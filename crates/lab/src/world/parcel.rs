//! The packets of the lab.

use std::net::Ipv4Addr;

use freshline_core::host::Band;
use freshline_core::link::Direction;
use freshline_core::router::{Ecn, FlowKey, Header, Packet};
use freshline_core::unit::{Bytes, Span, Time};

/// The port of sources, for all payloads.
const SOURCE_PORT: u16 = 40_000;
const MONITOR_PORT: u16 = 3774;
const TCP_PORT: u16 = 5001;
const DISCARD_PORT: u16 = 9;

/// The headers of UDP and IPv4 around a payload.
pub(super) const UDP_OVER_IPV4: Bytes = Bytes::new(28);

/// A packet with its path.
#[derive(Debug, Clone, Copy)]
pub struct Parcel {
    /// Its flow.
    pub flow: u32,
    /// The number of the host at which its flow begins: the flow's own number, or that of another
    /// flow.
    pub host: u32,
    /// The path that it takes, counted from 0.
    pub path: u8,
    /// The leg of its flow's path on which it is.
    pub leg: u32,
    /// Forward or reverse.
    pub direction: Direction,
    /// When it entered this leg.
    pub since: Time,
    /// The DSCP in its header.
    pub dscp: u8,
    /// Its content.
    pub load: Load,
}

/// Counters of a flow's packets on a leg.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passed {
    /// The number of packets that crossed it.
    pub packets: u64,
    /// The sum of their times on it.
    pub time: Span,
}

/// The content of a packet.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Its size on the wire, headers included.
    pub size: Bytes,
    /// Whether it may be marked, or has been.
    pub ecn: Ecn,
    /// Its priority band in its sending host.
    pub band: Band,
    /// The payload.
    pub body: Body,
}

impl Load {
    /// A packet in the urgent band, as for all flows but streams, without ECN.
    pub(super) fn plain(size: Bytes, body: Body) -> Self {
        Self { size, ecn: Ecn::NotCapable, band: Band::Urgent, body }
    }
}

/// The payload of a parcel.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// A source's datagram, which its flow keeps under this number.
    Update(u32),
    /// A datagram of a source with topics, likewise. It is not marked as an update: a newer one may carry other
    /// topics, so routers must not replace it.
    Topics(u32),
    /// A monitor's answer, likewise.
    Answer(u32),
    /// A TCP segment, which its flow keeps under this number.
    Segment(u32),
    /// A packet of a downlink, which its flow keeps under this number.
    Paced(u32),
    /// A client's report to its server, which its flow keeps under this number.
    Report(u32),
    /// Cross traffic.
    Filler,
}

/// A packet of a downlink.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// Its number, from 0.
    pub seq: u64,
    /// When it was sent.
    pub sent_at: Time,
}

impl Parcel {
    /// Flow n of host m goes from 10.0.0.0 + m + 1 to 10.128.0.0 + n + 1.
    fn flow_key(&self) -> FlowKey {
        const NET: u32 = 0x0A00_0000;
        const FAR_END: u32 = 1 << 23;
        let (protocol, port) = match self.load.body {
            Body::Update(_)
            | Body::Topics(_)
            | Body::Answer(_)
            | Body::Paced(_)
            | Body::Report(_) => (FlowKey::UDP, MONITOR_PORT),
            Body::Segment(_) => (FlowKey::TCP, TCP_PORT),
            Body::Filler => (FlowKey::UDP, DISCARD_PORT),
        };
        let number = |number: u32| (number + 1) % FAR_END;
        let near = Ipv4Addr::from(NET + number(self.host));
        // Paths of one flow differ in the port.
        let source_port = SOURCE_PORT + u16::from(self.path);
        let far = Ipv4Addr::from(NET + FAR_END + number(self.flow));
        let ((source, source_port), (destination, destination_port)) = match self.direction {
            Direction::Forward => ((near, source_port), (far, port)),
            Direction::Reverse => ((far, port), (near, source_port)),
        };
        let ends = FlowKey::between(source.into(), destination.into(), protocol);
        FlowKey { source_port, destination_port, ..ends }
    }
}

impl Packet for Parcel {
    fn size(&self) -> Bytes {
        self.load.size
    }

    fn header(&self) -> Header {
        Header {
            flow: self.flow_key(),
            dscp: self.dscp,
            ecn: self.load.ecn,
            band: self.load.band,
            is_update: matches!(self.load.body, Body::Update(_)),
            ..Header::default()
        }
    }

    fn mark(&mut self) -> bool {
        if self.load.ecn == Ecn::Capable {
            self.load.ecn = Ecn::Marked;
        }
        self.load.ecn == Ecn::Marked
    }
}
