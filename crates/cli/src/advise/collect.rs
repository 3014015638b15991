//! Observes this host without changing anything.

use std::collections::HashMap;
use std::net::IpAddr;

use freshline_core::unit::{Span, Time};
use freshline_net::clock::Clock;
use freshline_net::stop::Stop;
use freshline_net::wlan::station_info;
use freshline_system::net_device::{NetDevice, setting};
use freshline_system::netlink::{
    Handle, LinkReport, NetlinkError, NextHop, Qdisc, Route, Socket, Sockets, TcpSocket,
};

use super::observation::{
    Connection, Interface, InterfaceSample, Kernel, Observation, RouteChange, TcpSample, UdpSocket,
};
use super::prober::Prober;

/// The number of samples in an observation; at most one per [`MIN_INTERVAL`].
const LOOKS: u64 = 200;
const MIN_INTERVAL: Span = Span::from_millis(50);
/// The maximum time until a stop is noticed.
const MAX_PAUSE: Span = Span::from_millis(100);
/// The maximum number of connections and peers; of a larger host, the first ones of the kernel's
/// list.
const MAX_CONNECTIONS: usize = 4096;
const MAX_PEERS: usize = 64;

/// Observes the host for this time, or until the stop.
pub(super) fn collect(
    duration: Span,
    wireless: &[String],
    mut prober: Option<Prober>,
    stop: &Stop,
) -> Result<Observation, NetlinkError> {
    let clock = Clock::new();
    let start = clock.now();
    let mut collector = Collector::open(start)?;
    let interval = (duration / LOOKS).max(MIN_INTERVAL);
    let mut next = start;
    loop {
        let now = clock.now();
        if let Some(prober) = &mut prober {
            prober.poll(now.since(start));
        }
        if now >= next {
            collector.look(now)?;
            next = now + interval;
        }
        if stop.is_stopped() || now.since(start) >= duration {
            break;
        }
        // A prober reads its answers often, because their arrival times count.
        let pause = if prober.is_some() { Span::from_millis(2) } else { MAX_PAUSE };
        std::thread::sleep(pause.min(next.since(now)).into());
    }
    collector.look(clock.now())?;
    let mut seen = collector.done(clock.now(), wireless)?;
    seen.probes = prober.map(Prober::done).unwrap_or_default();
    Ok(seen)
}

struct Collector {
    start: Time,
    route: Route,
    sockets: Sockets,
    /// Whether the kernel reports UDP sockets.
    has_udp: bool,
    interfaces: HashMap<u32, Interface>,
    devices: HashMap<u32, NetDevice>,
    connections: HashMap<u64, Connection>,
    udp: HashMap<u64, UdpSeen>,
    hops: HashMap<IpAddr, NextHop>,
    route_changes: Vec<RouteChange>,
}

struct UdpSeen {
    first: Socket,
    drops: u32,
    queued_bytes: f64,
    looks: u32,
}

impl Collector {
    fn open(start: Time) -> Result<Self, NetlinkError> {
        Ok(Self {
            start,
            route: Route::open()?,
            sockets: Sockets::open()?,
            has_udp: true,
            interfaces: HashMap::new(),
            devices: HashMap::new(),
            connections: HashMap::new(),
            udp: HashMap::new(),
            hops: HashMap::new(),
            route_changes: Vec::new(),
        })
    }

    fn look(&mut self, now: Time) -> Result<(), NetlinkError> {
        let at = now.since(self.start).as_secs_f64();
        let links = self.route.links()?;
        let disciplines = self.route.all_qdiscs()?;
        for link in links.iter().filter(|link| link.is_up) {
            self.look_at_link(at, link, &disciplines);
        }
        for socket in self.sockets.tcp()? {
            self.look_at_connection(at, socket);
        }
        if self.has_udp {
            match self.sockets.udp() {
                Ok(all) => all.into_iter().for_each(|one| self.look_at_udp(one)),
                Err(_) => self.has_udp = false,
            }
        }
        self.look_at_routes();
        Ok(())
    }

    fn look_at_link(&mut self, at: f64, link: &LinkReport, disciplines: &[Qdisc]) {
        let of_link = || disciplines.iter().filter(|qdisc| qdisc.device == link.device);
        let root = of_link().find(|qdisc| qdisc.parent == Handle::ROOT);
        let stats = root.and_then(|root| root.stats).unwrap_or_default();
        let has_discipline = root.is_some_and(|root| root.kind != "noqueue");
        if !self.devices.contains_key(&link.device) {
            self.devices
                .extend(NetDevice::find(&link.name, link.device).map(|it| (link.device, it)));
        }
        let ring_bytes = self.devices.get(&link.device).map_or(0, NetDevice::ring_bytes);
        let interface = self.interfaces.entry(link.device).or_insert_with(|| Interface {
            device: link.device,
            name: link.name.clone(),
            driver: (!link.kind.is_empty()).then(|| link.kind.clone()),
            ..Interface::default()
        });
        interface.discipline = root.map_or("noqueue", |root| root.kind.as_str()).to_owned();
        interface.discipline_major = root.map_or(0, |root| root.handle.major);
        let below = of_link().filter(|qdisc| qdisc.parent != Handle::ROOT);
        interface.leaves = below.map(|qdisc| qdisc.kind.clone()).collect();
        interface.samples.push(InterfaceSample {
            at,
            queued_bytes: stats.queued_bytes.into(),
            ring_bytes,
            drops: stats.drops.into(),
            left_bytes: if has_discipline { stats.sent_bytes } else { link.sent_bytes },
            sent_bytes: link.sent_bytes,
            received_bytes: link.received_bytes,
        });
    }

    fn look_at_connection(&mut self, at: f64, TcpSocket { socket, info }: TcpSocket) {
        let is_known = self.connections.contains_key(&socket.cookie);
        if socket.remote.ip().is_loopback()
            || (!is_known && self.connections.len() == MAX_CONNECTIONS)
        {
            return;
        }
        let connection = self.connections.entry(socket.cookie).or_insert_with(|| Connection {
            local: socket.local,
            remote: socket.remote,
            device: None,
            samples: Vec::new(),
        });
        let (memory, unread) = (socket.memory, socket.receive_queue);
        connection.samples.push(TcpSample { at, info, memory, unread });
    }

    fn look_at_udp(&mut self, socket: Socket) {
        let (queued, drops) = (f64::from(socket.memory.sending), socket.memory.drops);
        let seen = self.udp.entry(socket.cookie).or_insert_with(|| UdpSeen {
            first: socket,
            drops,
            queued_bytes: 0.0,
            looks: 0,
        });
        seen.drops = drops;
        seen.looks += 1;
        seen.queued_bytes += queued;
    }

    /// Asks for the next hop of each peer.
    fn look_at_routes(&mut self) {
        let Self { connections, route, hops, route_changes, .. } = self;
        for connection in connections.values_mut() {
            let to = connection.remote.ip();
            if !hops.contains_key(&to) && hops.len() == MAX_PEERS {
                continue;
            }
            if connection.device.is_none() {
                connection.device = route.next_hop(to).ok().map(|hop| hop.device);
            }
            hops.entry(to).or_insert_with(|| {
                route.next_hop(to).unwrap_or(NextHop { device: 0, gateway: None })
            });
        }
        for (to, known) in hops.iter_mut() {
            let Ok(hop) = route.next_hop(*to) else { continue };
            if known.device != 0 && hop != *known {
                route_changes.push(RouteChange { to: *to, from_hop: *known, to_hop: hop });
            }
            *known = hop;
        }
    }

    fn done(mut self, now: Time, wireless: &[String]) -> Result<Observation, NetlinkError> {
        let exits = self.route.default_devices()?;
        let mut interfaces: Vec<_> = self.interfaces.into_values().collect();
        interfaces.sort_by_key(|interface| interface.device);
        for interface in &mut interfaces {
            let device = self.devices.get(&interface.device);
            let is_wireless = device.is_some_and(NetDevice::is_wireless);
            interface.is_wireless = is_wireless || wireless.contains(&interface.name);
            interface.link_bps = device.and_then(NetDevice::link_bps).map(|bps| bps as f64);
            if let Some(driver) = device.and_then(NetDevice::driver) {
                interface.driver = Some(driver);
            }
            if is_wireless {
                let rate = station_info::receive_rate(&interface.name).ok();
                interface.receive_bps = rate.map(|rate| rate.as_bps() as f64);
            }
        }
        let udp_sockets = self.udp.into_values().map(|seen| UdpSocket {
            local: seen.first.local,
            queued_bytes: seen.queued_bytes / f64::from(seen.looks.max(1)),
            drops: seen.drops.saturating_sub(seen.first.memory.drops),
        });
        Ok(Observation {
            seconds: now.since(self.start).as_secs_f64(),
            interfaces,
            connections: self.connections.into_values().collect(),
            udp_sockets: udp_sockets.collect(),
            route_changes: self.route_changes,
            forwards: ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
                .iter()
                .any(|name| setting(name).as_deref() == Some("1")),
            exits,
            probes: Vec::new(),
            kernel: kernel(),
        })
    }
}

fn kernel() -> Kernel {
    let of = |name| setting(name).unwrap_or_default();
    let available = of("ipv4/tcp_available_congestion_control");
    Kernel {
        has_btf: std::path::Path::new("/sys/kernel/btf/vmlinux").exists(),
        congestion_control: of("ipv4/tcp_congestion_control"),
        congestion_controls: available.split_whitespace().map(str::to_owned).collect(),
    }
}
