//! A common interface for all kinds of flows, through which the world drives them.
//!
//! ```text
//!   handle_timeout ─┐                                    ┌─► poll_transmit, until `None`
//!   handle_arrival ─┴─► flow ─► FollowUp: what is next ──┴─► poll_timeout
//! ```

use freshline_core::link::Direction;
use freshline_core::path::PathId;
use freshline_core::unit::{Bytes, Time};

use super::datagrams::Datagrams;
use super::parcel::{Body, Load, Parcel};
use super::{
    Cross, Downlink, Exchange, External, Landing, Multipath, SizeDistribution, Stream, TopicsFlow,
    UpdateFlow,
};

/// The kinds of flows.
#[expect(clippy::large_enum_variant, reason = "flows are few and stay where they are")]
pub enum Flow {
    /// A source of updates and its monitor.
    Updates(UpdateFlow),
    /// A source with topics, and its monitor.
    Topics(Box<TopicsFlow>),
    /// A TCP stream.
    Stream(Stream),
    /// A stream over several paths.
    Multipath(Multipath),
    /// Requests and responses over TCP.
    Exchange(Exchange),
    /// A paced downlink over Wi-Fi.
    Downlink(Downlink),
    /// Cross traffic.
    Cross(Cross),
    /// Datagrams between hosts outside of the world.
    External(External),
}

/// A packet that a flow sends: its path, its direction, and its load.
pub(super) type Leaving = (u8, Direction, Load);

/// The world's next call to a flow after a packet of it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FollowUp {
    /// Nothing.
    Nothing,
    /// Call [`Traffic::poll_timeout`].
    Reschedule,
    /// Call [`Traffic::poll_transmit`].
    Transmit,
    /// Both, [`Traffic::poll_transmit`] first.
    TransmitAndReschedule,
}

/// When a flow needs the queue lengths of the devices at the first hops of its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Looks {
    /// Never.
    Never,
    /// Before each timeout.
    BeforeTimeouts,
    /// Before each packet.
    BeforePackets,
}

/// A flow, as driven by its world. The world calls [`Traffic::poll_transmit`] after each timeout,
/// and [`Traffic::poll_timeout`] after that.
pub(super) trait Traffic {
    /// The warm-up has ended: counts and means begin now.
    fn begin_measuring(&mut self, now: Time);

    /// Handles events that may be due.
    fn handle_timeout(&mut self, now: Time);

    /// A packet has arrived at the end of its path; `landing` is set if its last leg was over the
    /// air.
    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, landing: Option<Landing>) -> FollowUp;

    /// A packet was dropped.
    fn handle_drop(&mut self, _body: Body) {}

    /// See [`Looks`].
    fn looks(&self) -> Looks {
        Looks::Never
    }

    /// The device of a path holds this number of packets now, and `left` have left it since its start.
    fn look(&mut self, _now: Time, _path: PathId, _packets: u64, _left: u64) {}

    /// Whether the size of its updates differs from hop to hop.
    fn redraws_sizes(&self) -> bool {
        false
    }

    /// The size of an update on its next hop, if it is drawn per hop.
    fn size_on_hop(&mut self) -> Option<Bytes> {
        None
    }

    /// The next packet to send, from either end. Call it until it returns `None`.
    fn poll_transmit(&mut self, now: Time) -> Option<Leaving>;

    /// When to call [`Traffic::handle_timeout`] next.
    fn poll_timeout(&self) -> Option<Time>;
}

/// Calls a method of the flow inside.
macro_rules! each {
    ($flow:expr, $one:ident => $answer:expr) => {
        match $flow {
            $crate::world::Flow::Updates($one) => $answer,
            $crate::world::Flow::Topics($one) => $answer,
            $crate::world::Flow::Stream($one) => $answer,
            $crate::world::Flow::Multipath($one) => $answer,
            $crate::world::Flow::Exchange($one) => $answer,
            $crate::world::Flow::Downlink($one) => $answer,
            $crate::world::Flow::Cross($one) => $answer,
            $crate::world::Flow::External($one) => $answer,
        }
    };
}
pub(crate) use each;

impl Traffic for Flow {
    fn begin_measuring(&mut self, now: Time) {
        each!(self, flow => Traffic::begin_measuring(flow, now));
    }

    #[inline]
    fn handle_timeout(&mut self, now: Time) {
        each!(self, flow => Traffic::handle_timeout(flow, now));
    }

    #[inline]
    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, landing: Option<Landing>) -> FollowUp {
        each!(self, flow => Traffic::handle_arrival(flow, now, parcel, landing))
    }

    fn handle_drop(&mut self, body: Body) {
        each!(self, flow => Traffic::handle_drop(flow, body));
    }

    fn looks(&self) -> Looks {
        each!(self, flow => Traffic::looks(flow))
    }

    fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        each!(self, flow => Traffic::look(flow, now, path, packets, left));
    }

    fn redraws_sizes(&self) -> bool {
        each!(self, flow => Traffic::redraws_sizes(flow))
    }

    fn size_on_hop(&mut self) -> Option<Bytes> {
        each!(self, flow => Traffic::size_on_hop(flow))
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        each!(self, flow => Traffic::poll_transmit(flow, now))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        each!(self, flow => Traffic::poll_timeout(flow))
    }
}

impl Flow {
    /// The flow as a source of updates.
    pub const fn updates(&self) -> Option<&UpdateFlow> {
        if let Self::Updates(updates) = self { Some(updates) } else { None }
    }

    /// The flow as a source of updates, mutably.
    pub const fn updates_mut(&mut self) -> Option<&mut UpdateFlow> {
        if let Self::Updates(updates) = self { Some(updates) } else { None }
    }

    /// The flow as a source with topics.
    pub const fn topics(&self) -> Option<&TopicsFlow> {
        if let Self::Topics(topics) = self { Some(topics) } else { None }
    }

    /// The flow as a TCP stream over one path.
    pub const fn stream(&self) -> Option<&Stream> {
        if let Self::Stream(stream) = self { Some(stream) } else { None }
    }

    /// The flow as a TCP stream over one path, mutably.
    pub const fn stream_mut(&mut self) -> Option<&mut Stream> {
        if let Self::Stream(stream) = self { Some(stream) } else { None }
    }

    /// The flow as a stream over several paths.
    pub const fn multipath(&self) -> Option<&Multipath> {
        if let Self::Multipath(multipath) = self { Some(multipath) } else { None }
    }

    /// The flow as requests and responses.
    pub const fn exchange(&self) -> Option<&Exchange> {
        if let Self::Exchange(exchange) = self { Some(exchange) } else { None }
    }

    /// The flow as a downlink.
    pub const fn downlink(&self) -> Option<&Downlink> {
        if let Self::Downlink(downlink) = self { Some(downlink) } else { None }
    }

    /// The flow as a downlink, mutably.
    pub const fn downlink_mut(&mut self) -> Option<&mut Downlink> {
        if let Self::Downlink(downlink) = self { Some(downlink) } else { None }
    }

    /// The flow as cross traffic.
    pub const fn cross(&self) -> Option<&Cross> {
        if let Self::Cross(cross) = self { Some(cross) } else { None }
    }

    /// The flow as datagrams between hosts outside of the world.
    pub const fn external_mut(&mut self) -> Option<&mut External> {
        if let Self::External(external) = self { Some(external) } else { None }
    }

    /// Its datagrams in flight, if it keeps their bytes.
    pub(super) const fn datagrams_mut(&mut self) -> Option<&mut Datagrams> {
        match self {
            Self::Updates(updates) => Some(updates.datagrams_mut()),
            Self::Topics(topics) => Some(topics.datagrams_mut()),
            Self::External(external) => Some(external.datagrams_mut()),
            _ => None,
        }
    }
}

impl Traffic for UpdateFlow {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        match parcel.load.body {
            Body::Update(number) => {
                self.on_update(now, PathId(parcel.path), number);
                FollowUp::Transmit
            }
            Body::Answer(number) => {
                self.on_answer(now, PathId(parcel.path), number);
                FollowUp::Reschedule
            }
            _ => FollowUp::Nothing,
        }
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Update(number) | Body::Answer(number) = body {
            self.on_dropped(number);
        }
    }

    fn looks(&self) -> Looks {
        if self.has_choice() { Looks::BeforeTimeouts } else { Looks::Never }
    }

    fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        self.look(now, path, packets, left);
    }

    fn redraws_sizes(&self) -> bool {
        self.sizes().distribution == SizeDistribution::ExponentialEachHop
    }

    fn size_on_hop(&mut self) -> Option<Bytes> {
        self.size_on_hop()
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        self.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for Box<TopicsFlow> {
    fn begin_measuring(&mut self, now: Time) {
        TopicsFlow::begin_measuring(self, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        match parcel.load.body {
            Body::Topics(number) => {
                self.on_update(now, PathId(parcel.path), number);
                // The acknowledgement may have started a maximum age.
                FollowUp::TransmitAndReschedule
            }
            Body::Answer(number) => {
                self.on_answer(now, PathId(parcel.path), number);
                FollowUp::Reschedule
            }
            _ => FollowUp::Nothing,
        }
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Topics(number) | Body::Answer(number) = body {
            self.on_dropped(number);
        }
    }

    fn looks(&self) -> Looks {
        if self.has_choice() { Looks::BeforeTimeouts } else { Looks::Never }
    }

    fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        TopicsFlow::look(self, now, path, packets, left);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        TopicsFlow::poll_transmit(self, now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        TopicsFlow::poll_timeout(self)
    }
}

impl Traffic for Stream {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        let Body::Segment(number) = parcel.load.body else { return FollowUp::Nothing };
        self.on_segment(now, parcel.direction, number, parcel.load.ecn);
        FollowUp::TransmitAndReschedule
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Segment(number) = body {
            self.on_dropped(number);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        self.poll_transmit(now).map(by_first)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for Multipath {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        let Body::Segment(number) = parcel.load.body else { return FollowUp::Nothing };
        self.on_segment(now, parcel.path, parcel.direction, number, parcel.load.ecn);
        FollowUp::TransmitAndReschedule
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Segment(number) = body {
            self.on_dropped(number);
        }
    }

    fn looks(&self) -> Looks {
        Looks::BeforePackets
    }

    fn look(&mut self, now: Time, path: PathId, packets: u64, left: u64) {
        self.look(now, path.0.into(), packets, left);
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        self.poll_transmit(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for Exchange {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        let Body::Segment(number) = parcel.load.body else { return FollowUp::Nothing };
        self.on_segment(now, parcel.direction, number, parcel.load.ecn);
        FollowUp::TransmitAndReschedule
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Segment(number) = body {
            self.on_dropped(number);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        self.poll_transmit(now).map(by_first)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for Downlink {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.on_wake(now);
    }

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, landing: Option<Landing>) -> FollowUp {
        match (parcel.load.body, landing) {
            // The path of a downlink ends with a cell.
            (Body::Paced(number), Some(landing)) => {
                self.on_packet(now, number, landing);
                FollowUp::Nothing
            }
            (Body::Report(number), _) => {
                self.on_report(now, number);
                FollowUp::Reschedule
            }
            _ => FollowUp::Nothing,
        }
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Paced(number) = body {
            self.on_dropped(number);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        self.poll_transmit(now).map(by_first)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for Cross {
    fn begin_measuring(&mut self, now: Time) {
        self.begin_measuring(now);
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn handle_arrival(&mut self, now: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        self.on_delivered(now, parcel.load.size);
        FollowUp::Nothing
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Leaving> {
        let size = self.poll_packet(now)?;
        Some((0, Direction::Forward, Load::plain(size, Body::Filler)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.poll_timeout()
    }
}

impl Traffic for External {
    fn begin_measuring(&mut self, _now: Time) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn handle_arrival(&mut self, _: Time, parcel: &Parcel, _: Option<Landing>) -> FollowUp {
        if let Body::Update(number) | Body::Answer(number) = parcel.load.body {
            self.on_arrival(parcel.path, parcel.direction, number);
        }
        FollowUp::Nothing
    }

    fn handle_drop(&mut self, body: Body) {
        if let Body::Update(number) | Body::Answer(number) = body {
            self.datagrams_mut().remove(number);
        }
    }

    fn poll_transmit(&mut self, _now: Time) -> Option<Leaving> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// A packet of a flow with one path.
fn by_first((direction, load): (Direction, Load)) -> Leaving {
    (0, direction, load)
}
