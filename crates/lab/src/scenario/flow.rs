//! Flows of a scenario: their kinds, and their stations in cells.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use freshline_core::host::BandLawConfig;
use freshline_core::path::SchedulerConfig;
use freshline_core::receiver::Remote;
use freshline_core::session::Paths;
use freshline_core::source::{Limits, MinAgeGain, RateLaw};
use freshline_core::state::Layout;
use freshline_core::unit::{BitRate, Bytes, Packets, Span, Time};
use rand_pcg::Pcg64;

use super::{
    CellsConfig, CrossTrafficConfig, DownlinkConfig, FlowConfig, MultipathConfig, PatternName,
    ScenarioError, TcpConfig,
};
use super::{UpdatesConfig, law::BadLaw};
use crate::engine::Streams;
use crate::tcp::apps::{Cbr, RequestResponseParams, UpdateSource};
use crate::tcp::congestion::{Algorithm, CongestionControl, Dtpa};
use crate::tcp::{BufferParams, Echo, Receiver, ReceiverParams, Sender, SenderParams, SmallQueue};
use crate::world::{
    Application, Cross, Downlink, DownlinkSettings, Exchange, Flow, Leg, Pattern, Period, Server,
    Sizes, Stream, TopicsFlow, UpdateFlow,
};
use freshline_core::wlan::mac::Category;
use freshline_core::wlan::{DownlinkLawConfig, DownlinkParams, Locator, StationId, Weights};

/// The initial window of a TCP stream (RFC 6928).
const INITIAL_WINDOW: Packets = Packets::new(10);

/// The station of a cell that is its access point.
pub const ACCESS_POINT: u32 = 0;

/// The stations of each cell. The first is the access point; each flow gets the next one, or the
/// one of its name.
pub(super) struct Stations {
    counts: Vec<u32>,
    /// By cell and name.
    named: BTreeMap<(usize, String), u32>,
}

impl Stations {
    pub(super) fn new(cells: &[CellsConfig]) -> Self {
        Self { counts: vec![1; cells.len()], named: BTreeMap::new() }
    }

    /// The station with a name in a cell, or a new one: the legs to the access point and from it.
    pub(super) fn join(&mut self, cell: usize, name: Option<&str>) -> (Air, Air) {
        let next = self.counts[cell];
        let station = match name {
            Some(name) => *self.named.entry((cell, name.to_owned())).or_insert(next),
            None => next,
        };
        self.counts[cell] = next.max(station + 1);
        let cell = cell as u32;
        let up = Air { cell, from: station, to: ACCESS_POINT };
        (up, Air { cell, from: ACCESS_POINT, to: station })
    }

    /// The station of a name in a cell.
    pub(super) fn find(&self, cell: usize, name: &str) -> Option<u32> {
        self.named.get(&(cell, name.to_owned())).copied()
    }

    pub(super) fn counts(&self) -> impl Iterator<Item = u32> {
        self.counts.iter().copied()
    }
}

/// The leg from one station of a cell to another.
pub(super) struct Air {
    cell: u32,
    from: u32,
    to: u32,
}

impl Air {
    /// The leg for packets of this access category.
    pub(super) fn leg(&self, category: Category) -> Leg {
        let Self { cell, from, to } = *self;
        Leg::Air { cell, from, to, category }
    }
}

/// Inputs of a flow in addition to its `[[flow]]`.
pub(super) struct Parts<'a> {
    /// The caller's law, instead of the one that the scenario names.
    pub(super) law: Option<Box<dyn RateLaw>>,
    /// The receiving host, which the flows of one `[[flow]]` share.
    pub(super) remote: &'a Remote,
    /// The servers of downlinks so far.
    pub(super) servers: &'a mut Servers,
}

impl FlowConfig {
    /// The flow with the number `index`, which sends during `period`.
    pub(super) fn build(
        &self,
        period: Period,
        streams: Streams,
        index: usize,
        rng: Pcg64,
        Parts { law, remote, servers }: Parts<'_>,
    ) -> Result<Flow, ScenarioError> {
        if let Some(external) = &self.external {
            return self.build_external(external);
        }
        match (&self.updates, &self.tcp, &self.multipath, &self.downlink, &self.cross_traffic) {
            (Some(updates), None, None, None, None) => {
                self.build_updates((updates, law), period, streams, index, rng)
            }
            (None, Some(tcp), None, None, None) => {
                if self.path.is_empty() && !self.each_pair {
                    return Err(
                        self.refused("a TCP stream needs a `path` of at least one link or cell")
                    );
                }
                let responses = streams.stream("responses", index);
                tcp.build(period, rng, responses, remote).map_err(|what| self.refused(what))
            }
            (None, None, Some(multipath), None, None) => {
                let built = multipath.build(period, streams, index, remote);
                built.map_err(|what| self.refused(what))
            }
            (None, None, None, Some(downlink), None) => {
                let name = downlink.server.as_ref().unwrap_or(&self.name);
                let joined = servers.join(name, downlink.law, downlink.guard);
                let (server, station) = joined.map_err(|what| self.refused(what))?;
                let settings = downlink.settings();
                let client = downlink.client(streams.stream("kernel", index));
                let client = client.map_err(|what| self.refused(what))?;
                let built = Downlink::new(server, station, settings, client, period, rng);
                let built = if downlink.locate { built.with_locator(locator()) } else { built };
                Ok(Flow::Downlink(built))
            }
            (None, None, None, None, Some(load)) => {
                let pattern = load.pattern().map_err(|what| self.refused(what))?;
                Ok(Flow::Cross(Cross::new(pattern, load.size, load.rate, period, rng)))
            }
            _ => Err(ScenarioError::NotOneKind(self.name.clone())),
        }
    }

    /// A source and its monitor; `own` is the caller's law.
    fn build_updates(
        &self,
        (updates, own): (&UpdatesConfig, Option<Box<dyn RateLaw>>),
        period: Period,
        streams: Streams,
        index: usize,
        rng: Pcg64,
    ) -> Result<Flow, ScenarioError> {
        let refused = |what| self.refused(what);
        let topics = updates.topics(self)?;
        let paths = updates.paths().map_err(|what| self.refused(what))?;
        let needs_acks = match &own {
            Some(law) => law.bounds().is_some(),
            None => !updates.law.has_given_rate(),
        };
        let law: Result<_, BadLaw> =
            own.map_or_else(|| updates.build_law(streams.stream("law", index)), Ok);
        let law = law.map_err(|error| ScenarioError::Law { flow: self.name.clone(), error })?;
        let law = (law, updates.limits().map_err(refused)?);
        let mut secrets = streams.stream("session", index);
        if let Some(topics) = topics {
            let flow = TopicsFlow::new(law, paths, topics, period, &mut secrets, rng);
            let flow = flow.map_err(|error| self.refused(error.to_string()))?;
            return Ok(Flow::Topics(Box::new(flow)));
        }
        let sizes = updates.sizes(needs_acks).map_err(refused)?;
        Ok(Flow::Updates(UpdateFlow::new(law, paths, sizes, period, &mut secrets, rng)))
    }
}

impl UpdatesConfig {
    fn sizes(&self, needs_acks: bool) -> Result<Sizes, &'static str> {
        let payload = self.payload.ok_or("give the `payload` of its updates, or topics")?;
        let ours = Sizes::of_our_protocol(payload);
        let sizes = Sizes {
            overhead: self.overhead.unwrap_or(ours.overhead),
            ack: self.ack.map_or(ours.ack, |ack| (ack > Bytes::ZERO).then_some(ack)),
            distribution: self.sizes,
            symbols: self.symbols(payload)?,
            ..ours
        };
        if sizes.payload + sizes.overhead == Bytes::ZERO {
            return Err("packets of no bytes; raise `payload` or `overhead`");
        }
        if sizes.ack.is_none() && needs_acks {
            return Err("its law needs acks; give `ack` a size, or leave it out");
        }
        if sizes.ack.is_none() && sizes.symbols > 1 {
            return Err("states of several updates need acks; give `ack` a size, or leave it out");
        }
        Ok(sizes)
    }

    /// The number of updates per state.
    fn symbols(&self, payload: Bytes) -> Result<u32, &'static str> {
        let Some(state) = self.state.filter(|state| *state > payload) else { return Ok(1) };
        if payload == Bytes::ZERO {
            return Err("`state` is cut into parts of `payload` bytes; raise `payload`");
        }
        let symbols = state.get().div_ceil(payload.get());
        u32::try_from(symbols)
            .ok()
            .filter(|symbols| *symbols <= Layout::MAX_SYMBOLS)
            .ok_or("a `state` of more than 65,536 parts; raise `payload`, or lower `state`")
    }
}

impl UpdatesConfig {
    pub(super) fn limits(&self) -> Result<Limits, &'static str> {
        if self.min_age_gain.is_some() && self.law.has_given_rate() {
            return Err("`min_age_gain` belongs to laws that find the rate");
        }
        if self.max_bandwidth == Some(BitRate::from_bps(0)) {
            return Err("`max_bandwidth` is zero");
        }
        let min_age_gain = self.min_age_gain.unwrap_or(MinAgeGain::OFF);
        Ok(Limits { max_rate: self.max_rate, min_age_gain, max_bandwidth: self.max_bandwidth })
    }

    fn paths(&self) -> Result<Paths, Cow<'static, str>> {
        if self.paths.is_empty() {
            return match self.scheduler {
                None => Ok(Paths::default()),
                Some(_) => Err("`scheduler` needs `paths`; name the links or cells of each".into()),
            };
        }
        let (count, most) = (self.paths.len(), MultipathConfig::MAX_PATHS);
        if count > most {
            return Err(format!("`paths` has {count}; give from 1 to {most}").into());
        }
        if self.ack == Some(Bytes::ZERO) {
            return Err("without acks nothing is known of its `paths`; leave `ack` out".into());
        }
        let scheduler = self.scheduler.unwrap_or(SchedulerConfig::Freshest(Default::default()));
        Paths::new(count, &scheduler).map_err(|error| format!("`scheduler`: {error}").into())
    }
}

/// The servers of downlinks, by their names.
#[derive(Default)]
pub(super) struct Servers(BTreeMap<String, Edge>);

/// A server with its law, and its number of stations.
struct Edge {
    server: Server,
    law: DownlinkLawConfig,
    guard: bool,
    stations: u32,
}

impl Servers {
    /// Adds a station to the server with a name, whose law is shared by all stations.
    fn join(
        &mut self,
        name: &str,
        law: DownlinkLawConfig,
        guard: bool,
    ) -> Result<(Server, StationId), Cow<'static, str>> {
        let edge = match self.0.entry(name.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let built = law.build().map_err(|error| format!("`law`: {error}"))?;
                let server = match guard {
                    true => Server::guarded(built, law.downlink().interval),
                    false => Server::new(built),
                };
                new.insert(Edge { server, law, guard, stations: 0 })
            }
        };
        if edge.law != law || edge.guard != guard {
            return Err(
                "flows of one `server` share its `law` and `guard`; give them the same".into()
            );
        }
        let station = StationId(edge.stations);
        if station.0 >= law.downlink().max_stations {
            let most = law.downlink().max_stations;
            return Err(
                format!("its law takes {most} stations; raise `downlink.max_stations`").into()
            );
        }
        edge.stations += 1;
        Ok((edge.server.clone(), station))
    }
}

/// A locator with the weights that are part of the program.
fn locator() -> Locator {
    let weights: Weights = toml::from_str(Weights::SHIPPED).expect("a test reads them");
    weights.build().expect("a test builds it")
}

impl DownlinkConfig {
    fn settings(&self) -> DownlinkSettings {
        let DownlinkParams { packet, interval, .. } = *self.law.downlink();
        DownlinkSettings { packet, interval, report: self.report, jitter: self.jitter }
    }
}

/// The payload of the largest IPv4 packet behind 40 bytes of headers.
const LARGEST_SEGMENT: Bytes = Bytes::new(65_495);
/// The part of `gso_max_size` that Linux reserves for headers in a packet, plus one byte.
const MAX_TCP_HEADER: Bytes = Bytes::new(321);

impl TcpConfig {
    /// The second generator is that of the responses, if there are any.
    fn build(
        &self,
        period: Period,
        rng: Pcg64,
        responses: Pcg64,
        remote: &Remote,
    ) -> Result<Flow, Cow<'static, str>> {
        if let Some(params) = self.requests()? {
            let stream = |rng, remote, host: BandLawConfig| {
                self.stream(Application::Exchange, period, rng, remote, host)
            };
            // Requests end at the other host, which does not know this path's congestion state, and
            // does not classify.
            let server = Remote::default();
            let requests = stream(rng, &server, self.host)?;
            let responses = stream(responses, remote, BandLawConfig::Single)?;
            return Ok(Flow::Exchange(Exchange::new(params, requests, responses, period)));
        }
        let application = self.application(period.from)?;
        Ok(Flow::Stream(self.stream(application, period, rng, remote, self.host)?))
    }

    fn stream(
        &self,
        application: Application,
        period: Period,
        rng: Pcg64,
        remote: &Remote,
        host: BandLawConfig,
    ) -> Result<Stream, Cow<'static, str>> {
        let ecn = match self.control {
            Algorithm::Dctcp => Some(Echo::EachMark),
            _ => self.ecn.then_some(Echo::UntilReduced),
        };
        let mut sender = SenderParams { ecn: ecn.is_some(), ..SenderParams::default() };
        sender.segment = self.segment();
        sender.offload = self.offload(sender.segment)?;
        sender.small_queue = self.pacing_shift.map(|pacing_shift| SmallQueue { pacing_shift });
        sender.min_rto_margin = self.min_rto_margin.unwrap_or(sender.min_rto_margin);
        sender.min_rto = self.min_rto.unwrap_or(sender.min_rto);
        sender.repair = self.repair;
        let mut receiver = ReceiverParams { ecn, ..ReceiverParams::default() };
        let buffer = |[default, max]: [Bytes; 2]| BufferParams { default, max };
        receiver.buffer = self.receive_buffer.map_or(receiver.buffer, buffer);
        sender.buffer = self.send_buffer.map_or(sender.buffer, buffer);
        if !(Bytes::new(1)..=LARGEST_SEGMENT).contains(&sender.segment) {
            let message = format!("`segment` is {}; give from 1B to 65495B", sender.segment);
            return Err(message.into());
        }
        if receiver.buffer.windows().initial < sender.segment {
            let least = sender.segment + sender.segment;
            return Err(format!("`receive_buffer` begins below {least}, two full segments").into());
        }
        if [receiver.buffer, sender.buffer].iter().any(|buffer| buffer.default > buffer.max) {
            return Err("a buffer begins above its maximum; give [at first, at most]".into());
        }
        let law = self.law(sender.segment, rng)?;
        let window = self.receiver.build(receiver.buffer.windows(), remote);
        let window = window.map_err(|error| format!("`receiver`: {error}"))?;
        let receiver = Receiver::with_law(receiver, window);
        let host = host.build().map_err(|error| format!("`host`: {error}"))?;
        Ok(Stream::new(Sender::new(sender, law), receiver, host, application, period))
    }

    fn law(
        &self,
        segment: Bytes,
        rng: Pcg64,
    ) -> Result<Box<dyn CongestionControl>, Cow<'static, str>> {
        let initial = self.initial_window.unwrap_or(INITIAL_WINDOW);
        if initial == Packets::ZERO {
            return Err("`initial_window` is 0p; give at least 1p".into());
        }
        match (self.control, self.dtpa) {
            (Algorithm::Dtpa, Some(settings)) => {
                let law = Dtpa::new(settings, initial);
                Ok(Box::new(law.map_err(|error| format!("`dtpa`: {error}"))?))
            }
            (_, Some(_)) => Err("`dtpa` belongs to `control = \"dtpa\"`".into()),
            (control, None) => Ok(control.build(initial, segment, rng)),
        }
    }

    /// The payload of the largest packet of several segments.
    fn offload(&self, segment: Bytes) -> Result<Option<Bytes>, Cow<'static, str>> {
        let Some(size) = self.gso_max_size else { return Ok(None) };
        let (least, most) = (segment + segment + MAX_TCP_HEADER, Bytes::new(1 << 16));
        if (least..=most).contains(&size) {
            Ok(Some(size - MAX_TCP_HEADER))
        } else {
            let message =
                format!("`gso_max_size` is {size}; give from {least}, two segments, to {most}");
            Err(message.into())
        }
    }

    fn segment(&self) -> Bytes {
        self.segment.unwrap_or(SenderParams::default().segment)
    }

    /// The sizes of request and response, if the stream has them.
    fn requests(&self) -> Result<Option<RequestResponseParams>, &'static str> {
        let Self { rate, block, file, think, .. } = self;
        match (self.request, self.response) {
            (None, None) if think.is_some() => Err("`think` needs a `request` and a `response`"),
            (None, None) => Ok(None),
            _ if self.updates
                || self.newest
                || rate.is_some()
                || block.is_some()
                || file.is_some() =>
            {
                Err(
                    "`request` and `response` exclude `rate`, `updates`, `newest`, `block` and `file`",
                )
            }
            (Some(request), Some(response)) if request.min(response) > Bytes::ZERO => {
                let think = think.unwrap_or(Span::ZERO);
                Ok(Some(RequestResponseParams { request, response, think }))
            }
            _ => Err("give the sizes of both `request` and `response`, above zero"),
        }
    }

    fn application(&self, starts_at: Time) -> Result<Application, &'static str> {
        let size = self.block.unwrap_or(self.segment());
        match (self.rate, self.file) {
            (None, None) if self.newest && size == Bytes::ZERO => {
                Err("`block` is zero; give its size")
            }
            (None, None) if self.newest && !self.updates => {
                Ok(Application::Newest { source: UpdateSource::new(), size, left: Bytes::ZERO })
            }
            _ if self.newest => Err("`newest` excludes `rate`, `updates` and `file`"),
            (None, None) if self.updates || self.block.is_some() => {
                Err("`updates` needs a `rate`, and `block` that or `newest`")
            }
            (Some(_), None) if size == Bytes::ZERO => Err("`block` is zero; give its size"),
            (Some(rate), None) if rate == BitRate::from_bps(0) => Err("`rate` is zero"),
            (Some(rate), None) if self.updates => Ok(Application::Updates {
                source: UpdateSource::new(),
                size,
                period: rate.time_to_send(size),
                next_at: starts_at,
            }),
            (Some(rate), None) => Ok(Application::Cbr(Cbr::new(starts_at, size, rate))),
            (None, Some(file)) => Ok(Application::File(file)),
            (None, None) => Ok(Application::Bulk),
            (Some(_), Some(_)) => Err("`rate` and `file` exclude each other"),
        }
    }
}

impl CrossTrafficConfig {
    fn pattern(&self) -> Result<Pattern, &'static str> {
        if self.rate == BitRate::from_bps(0) || self.size == Bytes::ZERO {
            return Err("`rate` and `size` must be above zero");
        }
        let long_enough = |length: &Span| !length.is_zero();
        match (self.pattern, self.on, self.off) {
            (PatternName::Constant, None, None) => Ok(Pattern::Constant),
            (PatternName::Poisson, None, None) => Ok(Pattern::Poisson),
            (PatternName::OnOff, on, off) => {
                match (on.filter(long_enough), off.filter(long_enough)) {
                    (Some(on), Some(off)) => Ok(Pattern::OnOff { on, off }),
                    _ => Err("the pattern `on-off` needs `on` and `off`, both above zero"),
                }
            }
            _ => Err("`on` and `off` belong to the pattern `on-off`"),
        }
    }
}
