//! The observation of a host: samples of its interfaces, sockets and routes.
//!
//! [`collect`](super::collect) fills an [`Observation`], [`diagnose`](super::diagnose) reads it. It
//! holds no system handle, so a test can write one by hand.

use std::net::{IpAddr, SocketAddr};

use freshline_system::netlink::{NextHop, SocketMemory, TcpInfo};

/// The observation of a host.
#[derive(Debug, Clone, Default)]
pub(super) struct Observation {
    /// How long the host was observed, in seconds.
    pub(super) seconds: f64,
    /// The interfaces that are up, without the loopback.
    pub(super) interfaces: Vec<Interface>,
    /// TCP connections to other hosts.
    pub(super) connections: Vec<Connection>,
    /// UDP sockets.
    pub(super) udp_sockets: Vec<UdpSocket>,
    /// Peers whose next hop changed.
    pub(super) route_changes: Vec<RouteChange>,
    /// Whether the host forwards packets between its interfaces.
    pub(super) forwards: bool,
    /// Indices of devices with a default route, or the only ones that are up.
    pub(super) exits: Vec<u32>,
    /// Probes of `--target`, in the order of their sending.
    pub(super) probes: Vec<Probe>,
    /// The features of the kernel.
    pub(super) kernel: Kernel,
}

/// The features of the kernel that commands need.
#[derive(Debug, Clone, Default)]
pub(super) struct Kernel {
    /// Whether it has BTF, which eBPF programs need.
    pub(super) has_btf: bool,
    /// The default congestion control of TCP, and all available ones.
    pub(super) congestion_control: String,
    pub(super) congestion_controls: Vec<String>,
}

/// An interface.
#[derive(Debug, Clone, Default)]
pub(super) struct Interface {
    pub(super) device: u32,
    pub(super) name: String,
    /// The driver, or the kind of a virtual device.
    pub(super) driver: Option<String>,
    /// Whether it is Wi-Fi, by the kernel or by `--wlan`.
    pub(super) is_wireless: bool,
    /// The rate of the link as its driver reports it, in bit/s.
    pub(super) link_bps: Option<f64>,
    /// The rate of the newest Wi-Fi frame that was received, in bit/s.
    pub(super) receive_bps: Option<f64>,
    /// The kind of the root queueing discipline, and its major number.
    pub(super) discipline: String,
    pub(super) discipline_major: u16,
    /// The kinds of the disciplines below the root.
    pub(super) leaves: Vec<String>,
    pub(super) samples: Vec<InterfaceSample>,
}

/// An interface at a moment. Counters start at the creation of the device.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InterfaceSample {
    /// Seconds since the observation began.
    pub(super) at: f64,
    /// Bytes in the queueing discipline, and in the device's ring behind it.
    pub(super) queued_bytes: u64,
    pub(super) ring_bytes: u64,
    /// Packets that the queueing discipline has dropped.
    pub(super) drops: u64,
    /// Bytes that have left the discipline; those of the device if it has no discipline.
    pub(super) left_bytes: u64,
    /// Bytes that the device sent and received.
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// A TCP connection.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    /// The device by which its packets leave.
    pub(super) device: Option<u32>,
    pub(super) samples: Vec<TcpSample>,
}

/// A TCP connection at a moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TcpSample {
    /// Seconds since the observation began.
    pub(super) at: f64,
    pub(super) info: TcpInfo,
    pub(super) memory: SocketMemory,
    /// Received bytes that the application has not read.
    pub(super) unread: u32,
}

/// A UDP socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct UdpSocket {
    pub(super) local: SocketAddr,
    /// The mean of its bytes in queueing disciplines and devices.
    pub(super) queued_bytes: f64,
    /// Datagrams that were dropped during the observation because the receive buffer was full.
    pub(super) drops: u32,
}

/// A change of the next hop to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RouteChange {
    pub(super) to: IpAddr,
    pub(super) from_hop: NextHop,
    pub(super) to_hop: NextHop,
}

/// A probe of `--target`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Probe {
    /// Seconds since the observation began.
    pub(super) at: f64,
    /// The round trip in seconds; `None` if there was no answer.
    pub(super) rtt: Option<f64>,
    /// The target's clock at the arrival minus this host's clock at the sending, and this host's
    /// clock at the return minus the target's, in seconds: each a one-way delay with an unknown
    /// constant. `None` if the target does not report its clock.
    pub(super) up: Option<f64>,
    pub(super) down: Option<f64>,
}

impl Interface {
    /// The last sample minus the first.
    pub(super) fn difference(&self, of: impl Fn(&InterfaceSample) -> u64) -> u64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => of(last).saturating_sub(of(first)),
            _ => 0,
        }
    }

    /// The mean rate in bit/s of a counter of bytes.
    pub(super) fn bps(&self, of: impl Fn(&InterfaceSample) -> u64) -> f64 {
        let seconds = match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) if last.at > first.at => last.at - first.at,
            _ => return 0.0,
        };
        self.difference(of) as f64 * 8.0 / seconds
    }
}

impl Connection {
    /// The last sample minus the first.
    pub(super) fn difference(&self, of: impl Fn(&TcpInfo) -> u64) -> u64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => of(&last.info).saturating_sub(of(&first.info)),
            _ => 0,
        }
    }

    /// How long the connection was observed, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        match (self.samples.first(), self.samples.last()) {
            (Some(first), Some(last)) => last.at - first.at,
            _ => 0.0,
        }
    }

    /// Bytes of this host that were acknowledged.
    pub(super) fn sent(&self) -> u64 {
        self.difference(|info| info.bytes_acked)
    }

    /// Bytes that were received.
    pub(super) fn received(&self) -> u64 {
        self.difference(|info| info.bytes_received)
    }

    /// The minimum round trip in seconds.
    pub(super) fn min_rtt(&self) -> Option<f64> {
        let known = self.samples.iter().map(|sample| sample.info.min_rtt);
        let min = known.filter(|rtt| *rtt > 0 && *rtt < u32::MAX).min()?;
        Some(f64::from(min) / 1e6)
    }
}

/// The given quantile of the values; `None` without values.
pub(super) fn quantile(mut values: Vec<f64>, fraction: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let at = ((values.len().checked_sub(1)?) as f64 * fraction).round() as usize;
    values.get(at).copied()
}

/// The median.
pub(super) fn median(values: Vec<f64>) -> Option<f64> {
    quantile(values, 0.5)
}
