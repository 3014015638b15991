//! A relay with threads of its own.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use freshline_core::dscp::Dscp;
use freshline_core::session::SourceParams;
use freshline_core::source::{LawConfig, Limits};
use freshline_core::unit::Span;
use freshline_core::wire::AckMark;
use freshline_net::quic::Fingerprint;
use freshline_net::relay::{
    self as driver, Asker, Destination, RelayConfig, RelayError, RelayReport,
};
use freshline_net::source::SourcePaths;
use freshline_net::stop::Stop;
use freshline_net::via::ViaPath;

use crate::checks::check_keep_alive;
use crate::dialling::Dialling;
use crate::error::Error;
use crate::listening::{Quic, Served};
use crate::monitor::MonitorBuilder;
use crate::running::Running;
use crate::url::{BadUrl, Url};

/// A running relay: a monitor that forwards the states of its sources to further monitors, until it is closed or
/// dropped. Ages count from the sampling at the source.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use freshline::{Monitor, Relay, Source};
/// let hub = Monitor::builder("udp://127.0.0.1:0").spawn()?;
/// let house = Monitor::builder("udp://127.0.0.1:0");
/// let relay = Relay::builder(house).to(&hub.url()).spawn()?;
/// let source = Source::builder(&relay.url()).name("robot-7").topic("pose").spawn()?;
/// source.topic("pose")?.put(b"x=1.0")?;
/// assert_eq!(hub.subscribe("robot-7/pose").next_state().unwrap().payload(), b"x=1.0");
/// # Ok(())
/// # }
/// ```
pub struct Relay {
    served: Served,
    asker: Asker,
    running: Running<RelayReport>,
}

/// Settings of a [`Relay`]. Those of paths, rates and trust hold for all destinations that are named after them.
#[derive(Debug)]
#[must_use = "it does nothing before `spawn` or `build`"]
pub struct RelayBuilder {
    monitor: MonitorBuilder,
    dialling: Dialling,
    paths: SourcePaths,
    params: SourceParams,
    law: LawConfig,
    destinations: Vec<Result<To, BadUrl>>,
}

/// A destination with its settings.
#[derive(Debug)]
struct To {
    url: Url,
    dialling: Dialling,
    paths: SourcePaths,
    params: SourceParams,
    law: LawConfig,
}

impl Relay {
    /// A relay that receives by the settings of `monitor`.
    pub fn builder(monitor: MonitorBuilder) -> RelayBuilder {
        RelayBuilder {
            monitor,
            dialling: Dialling::default(),
            paths: SourcePaths::default(),
            // A destination that was restarted without a word gets the newest states after this time.
            params: SourceParams { keep_alive: Span::from_secs(1), ..SourceParams::default() },
            law: LawConfig::default(),
            destinations: Vec::new(),
        }
    }

    /// The address that it listens on, with the actual port if the URL had port 0.
    pub fn address(&self) -> SocketAddr {
        self.served.address
    }

    /// The URL for sources. For a wildcard address, replace the host with an address of this host.
    pub fn url(&self) -> String {
        self.served.url()
    }

    /// The fingerprint of its certificate; none on `udp://`.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.served.fingerprint()
    }

    /// A report of the run so far, with `max` sources at most per monitor and destination.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn report(&self, max: usize) -> Result<RelayReport, Error> {
        self.asker.report(max).map_err(|_| Error::Ended)
    }

    /// Reloads the credentials of sources; see [`Monitor::reload`](crate::Monitor::reload).
    ///
    /// # Errors
    /// [`Error`] says which file cannot be used; [`Error::Ended`].
    pub fn reload(&self) -> Result<usize, Error> {
        self.served.reload()
    }

    /// Whether it has ended because of an error, which [`Relay::close`] returns.
    pub fn has_ended(&self) -> bool {
        self.running.has_ended()
    }

    /// Closes all sessions, and returns a report of the run.
    ///
    /// # Errors
    /// [`Error`], if it could not go on.
    pub fn close(mut self) -> Result<RelayReport, Error> {
        self.running.end()
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Relay").field(&self.served).finish()
    }
}

impl RelayBuilder {
    /// Adds a destination: the monitor at `url`, with the settings that were made before.
    pub fn to(self, url: &str) -> Self {
        self.to_url(url.parse())
    }

    /// [`RelayBuilder::to`] with a parsed URL.
    pub fn to_url(mut self, url: Result<Url, BadUrl>) -> Self {
        let to = url.map(|url| To {
            url,
            dialling: self.dialling.clone(),
            paths: self.paths.clone(),
            params: self.params.clone(),
            law: self.law,
        });
        self.destinations.push(to);
        self
    }

    /// Trusts destinations with this certificate (`quic://`); call it again to trust further ones.
    pub fn pin(mut self, fingerprint: Fingerprint) -> Self {
        self.dialling = self.dialling.pin(fingerprint);
        self
    }

    /// Trusts destinations whose certificate an authority of this file has signed (`quic://`).
    pub fn ca_file(mut self, pem: impl Into<PathBuf>) -> Self {
        self.dialling = self.dialling.ca_file(pem);
        self
    }

    /// Shows this token to destinations (`quic://`).
    pub fn token(mut self, token: impl Into<Vec<u8>>) -> Self {
        self.dialling = self.dialling.token(token);
        self
    }

    /// Replaces trust, certificate and token, for destinations that are added later.
    pub fn dialling(mut self, dialling: Dialling) -> Self {
        self.dialling = dialling;
        self
    }

    /// Adds a path by this interface or local address.
    pub fn via(mut self, path: ViaPath) -> Self {
        self.paths.vias.push(path);
        self
    }

    /// Replaces the paths and the scheduler.
    pub fn paths(mut self, paths: SourcePaths) -> Self {
        self.paths = paths;
        self
    }

    /// The law of each session; `acp+d` by default.
    pub fn law(mut self, law: impl Into<LawConfig>) -> Self {
        self.law = law.into();
        self
    }

    /// Limits of rate and bandwidth per session.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.params.limits = limits;
        self
    }

    /// The code points (DSCP) of updates and of acks; by default 0 for updates, and the destination's choice for acks.
    pub fn marks(mut self, updates: Dscp, acks: Option<AckMark>) -> Self {
        (self.params.dscp, self.params.ack_mark) = (updates, acks);
        self
    }

    /// Interval of keep-alive updates per source, at least 1 ms; 1 s by default.
    pub fn keep_alive(mut self, interval: impl Into<Span>) -> Self {
        self.params.keep_alive = interval.into();
        self
    }

    /// Opens the sockets, and runs the relay on threads of its own.
    ///
    /// # Errors
    /// [`Error`] describes an invalid setting or a failed system call. An unreachable destination is not an error.
    pub fn spawn(self) -> Result<Relay, Error> {
        let listening = self.monitor.listening.clone();
        let (mut driver, quic) = self.build()?;
        let (address, reloader) = (driver.local_addr()?, Some(driver.reloader()));
        let served = Served { address, quic, listening, reloader };
        let (asker, stop) = (driver.asker(), Stop::new());
        let stopped_by = stop.clone();
        let run = move || {
            driver.run(&stopped_by, None, &mut (), &mut [])?;
            Ok(driver.report(&()))
        };
        let running = Running::spawn("freshline relay", stop, run)?;
        Ok(Relay { served, asker, running })
    }

    /// Builds a relay without threads, and its QUIC settings; see [`driver`](crate::driver).
    ///
    /// # Errors
    /// As [`RelayBuilder::spawn`].
    pub fn build(self) -> Result<(driver::Relay, Option<Quic>), Error> {
        let destination = |to: Result<To, BadUrl>| {
            check_keep_alive(self.params.keep_alive)?;
            let To { url, dialling, paths, params, law } = to?;
            let transport = dialling.transport(&url)?;
            let params = SourceParams { token: dialling.shown_token(&url)?, ..params };
            Ok(Destination { monitor: url.remote(), transport, paths, params, law })
        };
        let destinations = self.destinations.into_iter().map(destination);
        let destinations = destinations.collect::<Result<Vec<_>, Error>>()?;
        if destinations.is_empty() {
            return Err(RelayError::NoDestination.into());
        }
        let (monitor, quic) = self.monitor.config()?;
        Ok((driver::Relay::bind(RelayConfig { monitor, destinations })?, quic))
    }
}
