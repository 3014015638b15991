//! From the settings of a source or a monitor to a host of a simulation.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use freshline_core::session::{Admission, MonitorParams, Paths, SourceParams};
use freshline_net::monitor as net_monitor;
use freshline_net::monitor::{Incoming, UnboundMonitor};
use freshline_net::source::{SourceError, Transport, UnboundConfig, UnboundSource};

use super::hosts::{Flag, MonitorHost, SourceHost};
use super::tally::Measuring;
use super::{Sim, SimError};
use crate::checks::{check_max_state, check_status};
use crate::error::Error;
use crate::monitor::{self, Monitor, MonitorBuilder};
use crate::running::Running;
use crate::source::{self, Source, SourceBuilder};
use crate::state::full_name;
use crate::store::Board;

impl SourceBuilder {
    /// Runs the source in a simulation, over the flow `flow` of its scenario; [`SourceBuilder::spawn`] runs it over
    /// sockets. The flow is `external`, or a flow of `updates`, whose source and monitor are then replaced. Of a flow
    /// with a `count`, each source takes the next one.
    ///
    /// A simulation has no sockets and no certificates. It ignores the URL's host, [`SourceBuilder::via`], and all
    /// settings of trust and identity; datagrams have the sizes of `udp://`. A flow with several `paths` gives the
    /// source these paths, and [`SourceBuilder::scheduler`] chooses among them.
    ///
    /// A function of [`Topic::sample_with`](crate::Topic::sample_with) may close or drop its own source: the source
    /// ends once the function has returned, and [`Source::close`] returns [`Error::Ended`] in place of a report.
    ///
    /// # Errors
    /// [`SimError::Unknown`] and [`SimError::FlowTaken`] for a flow that the source cannot have,
    /// [`SimError::Scenario`] for a flow of another kind, [`SimError::TooLate`] for a flow that must change first once
    /// the simulation has run, and [`SimError::Build`] for settings that cannot be.
    pub fn simulate(mut self, sim: &mut Sim, flow: &str) -> Result<Source, SimError> {
        if let Err(error) = &self.url {
            return Err(Error::from(error.clone()).into());
        }
        let place = sim.claim(flow)?;
        let number = sim.driver.sources.len();
        let clock = sim.driver.clock();
        let topics = self.make_topics(&clock, number as u64 * STREAMS_PER_SOURCE);
        let receiving = self.take_receiving(&clock);
        let name = self.params.name.clone();
        let woken = Flag::default();
        let mut endpoint = self.endpoint(sim, place.paths, number, (&topics, &woken))?;
        if let Some(receiving) = &receiving {
            let (params, store) = receiving.store()?;
            let tally = sim.driver.tally.clone();
            let measuring = Measuring::with(store, tally, &name);
            let secret = sim.streams().secret("receiver", number);
            receiving.board().set_waker(woken.waker());
            let incoming = Incoming::with_secret(params, secret, measuring);
            endpoint = endpoint.receiving(Box::new(incoming));
        }
        for topic in topics.iter().filter(|_| !name.is_empty()) {
            sim.driver.tally.register(&full_name(&name, topic.name()), topic.clone());
        }
        let shared = Arc::new(source::Shared::new(clock.clone()));
        let guard = source::Ended {
            topics: topics.clone(),
            shared: Arc::clone(&shared),
            receiving: receiving.clone(),
        };
        let watch = source::Watch(Arc::clone(&shared));
        let host = SourceHost::new(endpoint, watch, guard, clock, woken);
        sim.driver.add_source(host.clone(), name, place.flow);
        let running = Running::Simulated(Box::new(host));
        Ok(Source::of(source::Parts { topics, shared, running, receiving }))
    }

    fn endpoint(
        self,
        sim: &Sim,
        paths: usize,
        number: usize,
        (topics, woken): (&[crate::Topic], &Flag),
    ) -> Result<UnboundSource, Error> {
        let given = self.params.max_state;
        let max_datagram = Transport::Udp.max_datagram();
        let params = SourceParams { max_datagram, token: Vec::new(), ..self.params };
        let config = UnboundConfig {
            paths: Paths::new(paths, &self.paths.scheduler).map_err(SourceError::from)?,
            params,
            law: self.law.build(),
            states: source::states(&self.topics, topics),
            secret: sim.streams().secret("source", number),
        };
        let now = sim.driver.clock().now();
        let endpoint = UnboundSource::new(config, now, &woken.waker())?;
        check_max_state(endpoint.session(), given)?;
        let Some(interval) = self.status else { return Ok(endpoint) };
        check_status(endpoint.session(), interval)?;
        Ok(endpoint.with_status(interval))
    }
}

/// Numbers of streams of records that a source may use.
const STREAMS_PER_SOURCE: u64 = 1 << 20;

impl MonitorBuilder {
    /// Runs the monitor in a simulation; [`MonitorBuilder::spawn`] runs it over sockets. A simulation has one monitor,
    /// and all of its sources send to it. Datagrams that arrive before it is made are lost.
    ///
    /// A simulation has no sockets and no certificates. It ignores all settings of trust, and takes every source.
    /// [`Monitor::address`] is the address of the URL, or 0.0.0.0 for a name, and [`Monitor::reload`] has nothing to
    /// read.
    ///
    /// A function of [`Topic::sample_with`](crate::Topic::sample_with) may close or drop its own monitor: the monitor
    /// ends once the function has returned, and [`Monitor::close`] returns [`Error::Ended`] in place of a report.
    /// [`Monitor::sources`] has no answer for such a function.
    ///
    /// # Errors
    /// [`SimError::SecondMonitor`], and [`SimError::Build`] for settings that cannot be.
    pub fn simulate(mut self, sim: &mut Sim) -> Result<Monitor, SimError> {
        if sim.driver.has_monitor() {
            return Err(SimError::SecondMonitor);
        }
        let address = match &self.url {
            Ok(url) => {
                let ip = url.host().parse().unwrap_or(IpAddr::from(Ipv4Addr::UNSPECIFIED));
                SocketAddr::new(ip, url.port())
            }
            Err(error) => return Err(Error::from(error.clone()).into()),
        };
        let max_ages = self.max_ages.get().map_err(Error::from)?;
        let clock = sim.driver.clock();
        let (topics, returning) = self.make_topics(&clock);
        let woken = Flag::default();
        let admission = Admission::Cookie;
        let params = MonitorParams { admission, max_age: max_ages.clone(), ..self.params };
        let secret = sim.streams().secret("monitor", 0);
        let mut endpoint = UnboundMonitor::new(params, secret, self.detailed, clock.now());
        if !topics.is_empty() {
            let (streams, mut index) = (sim.streams(), 0);
            let secrets = move || {
                index += 1;
                streams.secret("return", index)
            };
            let max_datagram = Transport::Udp.max_datagram();
            let returning = endpoint.returning(returning, max_datagram, secrets, woken.waker());
            endpoint = returning.map_err(Error::from)?;
        }
        let board = Board::new(clock.clone());
        board.set_waker(woken.waker());
        let guard = monitor::Ended { topics: topics.clone(), board: board.clone() };
        let (store, tally) = (board.store(max_ages), sim.driver.tally.clone());
        let watch = Measuring::with(store, tally, "");
        let host = MonitorHost::new(endpoint, watch, guard, clock, woken);
        sim.driver.set_monitor(host.clone());
        let asked = host.clone();
        let ask: monitor::Ask = Box::new(move |max| asked.statuses(max).ok_or(net_monitor::Gone));
        let running = Running::Simulated(Box::new(host));
        Ok(Monitor::of(monitor::Parts { address, board, topics, ask, running }))
    }
}
