//! Builds the world of a run from a scenario.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use freshline_core::link::{FieldError, HopConfig};
use freshline_core::receiver::Remote;
use freshline_core::unit::{BitRate, Span, Time};
use rand::RngExt;
use rand_pcg::Pcg64;

use super::flow::{ACCESS_POINT, Parts, Servers, Stations};
use super::topology::{LinkHops, Network};
use super::{
    FlowConfig, JourneyConfig, Laws, LinkChange, LinkConfig, NoLaws, Scenario, ScenarioError,
};
use crate::engine::Streams;
use crate::mesh::MeshConfig;
use crate::tcp::congestion::Algorithm;
use crate::world::{Change, Changed, Flow, Leg, Period, Routed, Wire, World};
use freshline_core::wlan::mac::Category;

/// The name of the topology's hops in metrics.
pub const TOPOLOGY: &str = "topology";

/// The result of [`Scenario::build`], with the indices of the scenario's flows and links.
pub struct Built {
    /// The network.
    pub world: World,
    /// For each of the scenario's flows, its flows in the world.
    pub flows: Vec<Range<usize>>,
    /// For each of the scenario's links, its forward and reverse hops.
    pub links: Vec<LinkHops>,
    /// The hops of its topology, in both directions; empty without a topology.
    pub topology: LinkHops,
}

impl Scenario {
    /// Checks that a world can be built from it.
    pub(super) fn check(&self) -> Result<(), ScenarioError> {
        let (warm_up, duration) = (self.warm_up, self.duration);
        if warm_up >= duration {
            return Err(ScenarioError::NothingMeasured { warm_up, duration });
        }
        if self.flows.is_empty() {
            return Err(ScenarioError::NoFlow);
        }
        if self.runs == 0 {
            return Err(ScenarioError::NoRun);
        }
        self.journey.iter().try_for_each(JourneyConfig::check)?;
        self.links.iter().try_for_each(LinkConfig::check_count)?;
        self.links.iter().try_for_each(LinkConfig::check_changes)?;
        let topology = self.topology.iter().map(|_| TOPOLOGY);
        check_names("links, cells or meshes", self.carriers().chain(topology))?;
        check_names("flows", self.flows.iter().map(|flow| flow.name.as_str()))?;
        if let Some(flow) = self.flows.iter().find(|flow| flow.is_stream() && self.is_instant(flow))
        {
            let what = "nothing on its `path` takes time, and TCP would never wait; give a link a \
                        `rate` or a `delay`";
            return Err(flow.refused(what));
        }
        self.build_world(0, &NoLaws).map(drop)
    }

    /// The names of its links, cells and meshes.
    fn carriers(&self) -> impl Iterator<Item = &str> {
        self.links_and_cells().chain(self.meshes.iter().map(|mesh| mesh.name.as_str()))
    }

    /// The names of its links and cells.
    pub(crate) fn links_and_cells(&self) -> impl Iterator<Item = &str> {
        let links = self.links.iter().map(|link| link.name.as_str());
        links.chain(self.cells.iter().map(|cell| cell.name.as_str()))
    }

    /// Whether an ack of the flow returns without any delay.
    fn is_instant(&self, flow: &FlowConfig) -> bool {
        let takes_no_time =
            |hop: &HopConfig| hop.rate.is_none() && hop.trace.is_none() && hop.delay == Span::ZERO;
        let is_instant = |name: &String| {
            let link = self.links.iter().find(|link| link.name == *name);
            link.is_some_and(|link| link.directions().into_iter().all(takes_no_time))
        };
        let is_path_instant = |path: &Vec<String>| !path.is_empty() && path.iter().all(is_instant);
        let further = flow.several_paths().into_iter().flatten();
        [&flow.path].into_iter().chain(further).any(is_path_instant)
    }

    /// The world of a run, with any kind of flows.
    pub(super) fn build_world(&self, run: u32, laws: &dyn Laws) -> Result<Built, ScenarioError> {
        let streams = Streams::new(self.seed, run);
        let mut hops = Vec::new();
        let links = self.links.iter().enumerate();
        let links: Result<Vec<_>, _> =
            links.map(|(index, link)| link.build(streams, index, &mut hops)).collect();
        let links = links?;
        let network = match &self.topology {
            Some(topology) => topology.build(streams, &mut hops)?,
            None => None,
        };
        let places = Places { scenario: self, links: &links, network: network.as_ref() };
        let mut stations = Stations::new(&self.cells);
        let mut servers = Servers::default();
        let mut flows = Vec::new();
        let mut ranges = Vec::new();
        for config in &self.flows {
            let first = flows.len();
            let setting = Setting { scenario: self, streams, laws, first };
            setting.add(config, places, &mut stations, &mut servers, &mut flows)?;
            ranges.push(first..flows.len());
        }
        // Large networks have 10^5 flows of some kB each.
        flows.shrink_to_fit();
        let cells = self.cells.iter().zip(stations.counts()).enumerate();
        let cells: Result<Vec<_>, _> = cells
            .map(|(index, (cell, count))| cell.build(streams, index, count, &stations))
            .collect();
        let changes =
            self.cells.iter().enumerate().map(|(index, cell)| cell.changes(index, &stations));
        let mut changes = changes.collect::<Result<Vec<_>, _>>()?.concat();
        let each = self.links.iter().zip(&links);
        changes.extend(each.flat_map(|(link, hops)| link.changes(hops)));
        let topology = network.as_ref().map(Network::hops).unwrap_or_default();
        let meshes = self.meshes.iter().enumerate().map(|(index, mesh)| {
            mesh.build(streams.stream("mesh", index)).map_err(|error| {
                let mesh = mesh.name.clone();
                ScenarioError::Mesh { mesh, error }
            })
        });
        let meshes = meshes.collect::<Result<Vec<_>, _>>()?;
        let world = World::new(hops, cells?, flows).with_meshes(meshes).with_changes(changes);
        let world = world.with_stop(laws.stop());
        Ok(Built { world, flows: ranges, links, topology })
    }
}

/// The settings that the flows of one `[[flow]]` share.
struct Setting<'a> {
    scenario: &'a Scenario,
    streams: Streams,
    laws: &'a dyn Laws,
    /// The index of the first of them.
    first: usize,
}

impl Setting<'_> {
    /// Builds the flows of one `[[flow]]`.
    fn add(
        &self,
        config: &FlowConfig,
        places: Places<'_>,
        stations: &mut Stations,
        servers: &mut Servers,
        flows: &mut Vec<Routed>,
    ) -> Result<(), ScenarioError> {
        let one_host = Remote::default();
        let is_locating = config.downlink.as_ref().is_some_and(|downlink| downlink.locate);
        let bottlenecks = is_locating.then(|| self.scenario.bottlenecks(config)).flatten();
        for (number, route) in config.routes(places, stations)?.into_iter().enumerate() {
            config.check_ends(&route)?;
            if config.station.is_some() && !route.is_in_cell() {
                return Err(
                    config.refused("`station` needs a `path` that begins or ends with a cell")
                );
            }
            let mut rng = self.streams.stream("flow", flows.len());
            let period = self.period(config, number as u64, &mut rng)?;
            // Flows over different paths have different destinations, so they do not share a path's
            // state.
            let differ = config.each_pair || config.each_hop;
            let remote = if differ { Remote::default() } else { one_host.clone() };
            let law = config.law_of(self.laws, number);
            let parts = Parts { law, remote: &remote, servers };
            let mut flow = config.build(period, self.streams, flows.len(), rng, parts)?;
            if let (Some(downlink), Some(bottlenecks)) = (flow.downlink_mut(), &bottlenecks) {
                downlink.set_bottlenecks(bottlenecks.clone());
            }
            let host = config.one_host.then_some(self.first as u32);
            let mut routed = route.routed(flow, config.dscps());
            routed.host = host;
            flows.push(routed);
        }
        Ok(())
    }

    /// The period in which the flow with this number among those of its `[[flow]]` sends.
    fn period(
        &self,
        config: &FlowConfig,
        number: u64,
        rng: &mut Pcg64,
    ) -> Result<Period, ScenarioError> {
        let apart = config.start_interval * number;
        let from = Time::ZERO + config.starts_at(number as usize, rng);
        let duration = self.scenario.duration;
        let stop = config.stop.unwrap_or(duration).min(duration);
        // A shorter run may cut flows off: only a contradictory `stop` of the flow itself is an
        // error.
        let begins = config.start + apart;
        if let Some(stop) = config.stop.filter(|stop| begins >= *stop) {
            return Err(config.refused(format!(
                "would begin after {begins} and sends no more from {stop} on; lower `start` or \
                 `start_interval`, or raise `stop`"
            )));
        }
        Ok(Period { from, until: Time::ZERO + stop })
    }
}

impl FlowConfig {
    /// Rejects a path that does not begin or end where the flow requires it.
    fn check_ends(&self, route: &Route) -> Result<(), ScenarioError> {
        if self.downlink.is_some() && !route.ends_at_a_station() {
            return Err(self.refused("a downlink needs a `path` to a station of a cell"));
        }
        let small_queues = self.tcp.as_ref().is_some_and(|it| it.pacing_shift.is_some());
        if small_queues && !route.begins_at_a_queue() {
            return Err(
                self.refused("`pacing_shift` needs a `path` that begins in a cell or with a link")
            );
        }
        Ok(())
    }
}

/// Checks that names are unique.
fn check_names<'a>(
    kind: &'static str,
    all: impl Iterator<Item = &'a str>,
) -> Result<(), ScenarioError> {
    let mut names = BTreeSet::new();
    for name in all {
        if !names.insert(name) {
            return Err(ScenarioError::SameName(kind, name.to_owned()));
        }
    }
    Ok(())
}

impl LinkConfig {
    fn check_count(&self) -> Result<(), ScenarioError> {
        let (link, count, most) = (self.name.clone(), self.count, Self::MAX_HOPS);
        match count {
            0 => Err(ScenarioError::NoHop(link)),
            _ if count > most => Err(ScenarioError::TooManyHops { link, count, most }),
            _ => Ok(()),
        }
    }

    fn build(
        &self,
        streams: Streams,
        index: usize,
        hops: &mut Vec<Wire>,
    ) -> Result<LinkHops, ScenarioError> {
        let mut built = LinkHops::default();
        let [forward, reverse] = self.hops(streams, index);
        for (direction, configs, places) in
            [("forward", forward, &mut built.forward), ("reverse", reverse, &mut built.reverse)]
        {
            for config in configs {
                places.push(hops.len());
                hops.push(self.hop(direction, &config, streams, hops.len())?);
            }
        }
        Ok(built)
    }

    /// The changes of its hops.
    fn changes(&self, hops: &LinkHops) -> Vec<Change> {
        let mut all = Vec::new();
        for &LinkChange { at, rate, delay } in &self.changes {
            for &hop in hops.forward.iter().chain(&hops.reverse) {
                let rate = rate.map(|rate| Changed::Rate { hop, rate });
                let delay = delay.map(|delay| Changed::Delay { hop, delay });
                let what = rate.into_iter().chain(delay);
                all.extend(what.map(|what| Change { at: Time::ZERO + at, what }));
            }
        }
        all
    }

    fn check_changes(&self) -> Result<(), ScenarioError> {
        let zero = Some(BitRate::from_bps(0));
        match self.changes.iter().any(|change| change.rate == zero) {
            true => Err(ScenarioError::Link {
                link: self.name.clone(),
                direction: "change",
                error: FieldError::ZeroRate,
            }),
            false => Ok(()),
        }
    }

    /// The forward and the reverse hop.
    pub(super) fn directions(&self) -> [&HopConfig; 2] {
        [&self.forward, self.reverse.as_ref().unwrap_or(&self.forward)]
    }

    fn hop(
        &self,
        direction: &'static str,
        config: &HopConfig,
        streams: Streams,
        index: usize,
    ) -> Result<Wire, ScenarioError> {
        config.build(streams.stream("hop", index)).map_err(|error| ScenarioError::Link {
            link: self.name.clone(),
            direction,
            error,
        })
    }
}

/// The forward and reverse legs of a flow.
struct Route {
    forward: Vec<Leg>,
    reverse: Vec<Leg>,
    /// The other paths of a flow with several paths.
    further: Vec<Route>,
}

impl Route {
    const fn new(forward: Vec<Leg>, reverse: Vec<Leg>) -> Self {
        Self { forward, reverse, further: Vec::new() }
    }

    /// One route per hop, over that hop alone.
    fn each_hop(self) -> impl Iterator<Item = Self> {
        let legs = self.forward.into_iter().zip(self.reverse.into_iter().rev());
        legs.map(|(forward, reverse)| Self::new(vec![forward], vec![reverse]))
    }

    /// Whether its packets first meet a queue of their own host.
    fn begins_at_a_queue(&self) -> bool {
        matches!(self.forward.first(), Some(Leg::Air { .. } | Leg::Hop(_)))
    }

    fn ends_at_a_station(&self) -> bool {
        matches!(self.forward.last(), Some(Leg::Air { from: ACCESS_POINT, .. }))
    }

    /// Whether one of its paths begins or ends with a cell.
    fn is_in_cell(&self) -> bool {
        self.forward.iter().any(|leg| matches!(leg, Leg::Air { .. }))
            || self.further.iter().any(Self::is_in_cell)
    }

    fn routed(mut self, flow: Flow, dscp: [u8; 2]) -> Routed {
        let ahead = self.forward.len() as u32;
        self.forward.append(&mut self.reverse);
        let mut further = Vec::new();
        for mut path in self.further {
            let begins = self.forward.len();
            further.push([begins, begins + path.forward.len()].map(|leg| leg as u32));
            self.forward.append(&mut path.forward);
            self.forward.append(&mut path.reverse);
        }
        let mut routed = Routed::new(flow, self.forward, ahead);
        (routed.dscp, routed.further) = (dscp, further);
        routed
    }
}

/// The parts of the network that routes are built from.
#[derive(Clone, Copy)]
struct Places<'a> {
    scenario: &'a Scenario,
    links: &'a [LinkHops],
    network: Option<&'a Network<'a>>,
}

impl FlowConfig {
    /// When the flow with this number among those of its `[[flow]]` begins, from the start of the
    /// run. Draws one random number.
    pub(super) fn starts_at(&self, number: usize, rng: &mut Pcg64) -> Span {
        self.start + self.start_interval * number as u64 + self.start_spread.mul_f64(rng.random())
    }

    /// The routes of all flows of a `[[flow]]`.
    fn routes(
        &self,
        places: Places<'_>,
        stations: &mut Stations,
    ) -> Result<Vec<Route>, ScenarioError> {
        let mut routes = Vec::new();
        for _ in 0..self.count {
            if self.each_pair {
                routes.extend(self.pairwise(places)?);
            } else if self.each_node {
                routes.extend(self.nodewise(places, stations)?);
            } else {
                let route = self.whole_route(places, stations)?;
                if self.each_hop {
                    routes.extend(route.each_hop());
                } else {
                    routes.push(route);
                }
            }
            if routes.len() > Self::MAX_FLOWS {
                let most = Self::MAX_FLOWS;
                return Err(self.refused(format!(
                    "there are more than {most} of it; lower its `count`, or the number of pairs or \
                     hops that it is on"
                )));
            }
        }
        Ok(routes)
    }

    /// One route for each pair of the topology.
    fn pairwise<'a>(
        &'a self,
        places: Places<'a>,
    ) -> Result<impl Iterator<Item = Route> + 'a, ScenarioError> {
        let has_route = !self.path.is_empty() || self.several_paths().is_some();
        if has_route || self.each_hop || self.station.is_some() {
            return Err(self.refused("`each_pair` excludes `path`, `each_hop` and `station`"));
        }
        let network =
            places.network.ok_or_else(|| self.refused("`each_pair` needs a [topology]"))?;
        Ok(network.routes().map(|[forward, reverse]| {
            if self.reverse { Route::new(reverse, forward) } else { Route::new(forward, reverse) }
        }))
    }

    /// One route for each node of the mesh at which it begins.
    fn nodewise(
        &self,
        places: Places<'_>,
        stations: &mut Stations,
    ) -> Result<Vec<Route>, ScenarioError> {
        if self.each_hop || self.node.is_some() || self.multipath.is_some() {
            return Err(self.refused("`each_node` excludes `node`, `each_hop` and `multipath`"));
        }
        let is_it = |mesh: &&MeshConfig| self.path.first() == Some(&mesh.name);
        let mesh = places.scenario.meshes.iter().find(is_it);
        let nodes = mesh.map_or(2, |mesh| mesh.at.len() as u32);
        (1..nodes).map(|node| self.route(&self.path, Some(node), places, stations)).collect()
    }

    /// The legs from a node of a mesh to its border router, and in the reverse direction.
    fn through(
        &self,
        scenario: &Scenario,
        mesh: usize,
        position: usize,
        node: Option<u32>,
    ) -> Result<[Leg; 2], ScenarioError> {
        if position > 0 {
            return Err(self.refused("a mesh can only be the first of a path"));
        }
        if self.reverse && self.tcp.as_ref().is_some_and(|tcp| tcp.control == Algorithm::Dtpa) {
            return Err(self.refused("`dtpa` is a law of nodes that send; leave out `reverse`"));
        }
        let last = scenario.meshes[mesh].at.len().saturating_sub(1) as u32;
        let Some(node) = node.filter(|node| (1..=last).contains(node)) else {
            return Err(self.refused(format!(
                "begins in a mesh; give its `node` from 1 to {last}, or `each_node = true`"
            )));
        };
        let mesh = mesh as u32;
        Ok([true, false].map(|is_up| Leg::Mesh { mesh, node, is_up }))
    }

    /// The route of a flow, with all of its paths.
    fn whole_route(
        &self,
        places: Places<'_>,
        stations: &mut Stations,
    ) -> Result<Route, ScenarioError> {
        let Some(paths) = self.several_paths() else {
            return self.route(&self.path, self.node, places, stations);
        };
        if !self.path.is_empty() || self.each_hop {
            return Err(self.refused("a flow of several `paths` has no `path` and no `each_hop`"));
        }
        if paths.iter().any(Vec::is_empty) {
            return Err(self.refused("one of its `paths` is empty; name its links or cells"));
        }
        let mut paths = paths.iter().map(|path| self.route(path, None, places, stations));
        let Some(first) = paths.next() else {
            return Err(self.refused("`paths` is empty; name the links or cells of each"));
        };
        Ok(Route { further: paths.collect::<Result<_, _>>()?, ..first? })
    }

    /// The links of its paths, if it names several.
    fn several_paths(&self) -> Option<&[Vec<String>]> {
        let of_updates = self.updates.as_ref().map(|updates| &updates.paths[..]);
        let of_stream = self.multipath.as_ref().map(|multipath| &multipath.paths[..]);
        let of_hosts = self.external.as_ref().map(|external| &external.paths[..]);
        of_stream.or(of_updates.or(of_hosts).filter(|paths| !paths.is_empty()))
    }

    fn is_stream(&self) -> bool {
        self.tcp.is_some() || self.multipath.is_some()
    }

    fn route(
        &self,
        path: &[String],
        node: Option<u32>,
        places: Places<'_>,
        stations: &mut Stations,
    ) -> Result<Route, ScenarioError> {
        let Places { scenario, links, .. } = places;
        if self.each_hop && path.is_empty() {
            return Err(self.refused("`each_hop` needs a `path`"));
        }
        let (mut forward, mut reverse, mut is_in_mesh) = (Vec::new(), Vec::new(), false);
        for (position, name) in path.iter().enumerate() {
            if let Some(link) = scenario.links.iter().position(|link| link.name == *name) {
                let leg = |hop: &usize| Leg::Hop(*hop as u32);
                forward.extend(links[link].forward.iter().map(leg));
                // The reverse direction is reversed as a whole below.
                reverse.extend(links[link].reverse.iter().rev().map(leg));
            } else if let Some(cell) = scenario.cells.iter().position(|cell| cell.name == *name) {
                let (begins, ends) = (position == 0, position + 1 == path.len());
                if !begins && !ends {
                    return Err(self.refused("a cell can only be the first or the last of a path"));
                }
                let (up, down) = stations.join(cell, self.station.as_deref());
                let (first, second) = if begins { (up, down) } else { (down, up) };
                let [forth, home] = self.dscps().map(Category::of_dscp);
                let (ahead, behind) = if self.reverse { (home, forth) } else { (forth, home) };
                forward.push(first.leg(ahead));
                reverse.push(second.leg(behind));
            } else if let Some(mesh) = scenario.meshes.iter().position(|mesh| mesh.name == *name) {
                is_in_mesh = true;
                let [up, down] = self.through(scenario, mesh, position, node)?;
                forward.push(up);
                reverse.push(down);
            } else {
                return Err(self.unknown_link(name, scenario));
            }
        }
        if node.is_some() && !is_in_mesh {
            return Err(
                self.refused("`node` and `each_node` need a `path` that begins with a mesh")
            );
        }
        reverse.reverse();
        if self.reverse {
            (forward, reverse) = (reverse, forward);
        }
        Ok(Route::new(forward, reverse))
    }

    /// The DSCPs of the forward and of the reverse direction.
    fn dscps(&self) -> [u8; 2] {
        [self.dscp, self.ack_dscp.unwrap_or(self.dscp)]
    }

    /// The error for invalid settings of the flow.
    pub(super) fn refused(&self, what: impl Into<Cow<'static, str>>) -> ScenarioError {
        ScenarioError::Flow { flow: self.name.clone(), what: what.into() }
    }

    fn unknown_link(&self, name: &str, scenario: &Scenario) -> ScenarioError {
        let known: Vec<_> = scenario.carriers().collect();
        ScenarioError::UnknownLink {
            flow: self.name.clone(),
            link: name.to_owned(),
            known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
        }
    }
}
