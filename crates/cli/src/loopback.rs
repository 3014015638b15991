//! Endpoints within this process, on the loopback interface: real sockets, and one clock for both ends.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use freshline_core::session::{MonitorParams, SourceParams};
use freshline_core::source::RateLaw;
use freshline_net::credentials::{Right, Rules};
use freshline_net::emulate::Handle;
use freshline_net::monitor::{Monitor, MonitorConfig};
use freshline_net::source::sampler::Synthetic;
use freshline_net::source::{Source, SourceConfig, SourcePaths, States, Transport};
use freshline_net::stop::Stop;
use miette::IntoDiagnostic;

/// A port that the system chooses.
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A monitor for sources of this process, and its address.
pub(crate) fn monitor() -> miette::Result<(Monitor, SocketAddr)> {
    let config = MonitorConfig {
        listen: LOOPBACK,
        quic: None,
        params: MonitorParams::default(),
        rules: Rules::none(Right::Publish),
        detailed: 0,
        forget: MonitorConfig::FORGET,
    };
    let monitor = Monitor::bind(config).into_diagnostic()?;
    let address = monitor.local_addr().into_diagnostic()?;
    Ok((monitor, address))
}

/// A source of updates with `payload` bytes of state each.
pub(crate) fn source(
    params: SourceParams,
    law: Box<dyn RateLaw>,
    payload: usize,
    monitor: SocketAddr,
) -> miette::Result<Source> {
    let config = SourceConfig {
        monitor: monitor.into(),
        transport: Transport::Udp,
        paths: SourcePaths::default(),
        params,
        law,
        states: States::Of(Box::new(Synthetic::new(payload))),
    };
    Source::new(config).into_diagnostic()
}

/// Ends threads when it is dropped, also after a panic, because a scope joins its threads.
pub(crate) struct Curtain {
    pub(crate) endpoints: Vec<Stop>,
    pub(crate) emulators: Vec<Handle>,
}

impl Drop for Curtain {
    fn drop(&mut self) {
        self.endpoints.iter().for_each(Stop::stop);
        self.emulators.iter().for_each(Handle::stop);
    }
}
