//! Commands that may fix a fault, and the lab scenarios that test each of them.

use super::diagnose::bulk_senders;
use super::finding::{Bottleneck, Direction, Fault, Finding, Stop};
use super::gain::{Compared, Flow, Hop, Link, Setup, Trial, simulated, simulated_flows};
use super::observation::{Interface, Observation};
use super::root::{self, is_replaceable, place_of_fq_codel, takes_bands};
use super::words::quoted;

/// The fraction of a bottleneck's rate at which to shape, so that the queue moves to this host: of a wired
/// link, and of Wi-Fi, whose rate varies.
const SHAPED: f64 = 0.95;
const SHAPED_WLAN: f64 = 0.85;
/// The minimum ratio of a path's capacity to the rate of a transfer that does not use it.
const SPARE: f64 = 4.0;
/// The assumed capacity behind an overload whose drops this host does not see, as a fraction of the
/// offered rate.
const OVERLOADED: f64 = 0.8;

/// The maximum time in seconds in which RTAC finds out that a queue is its own, if several
/// downloads start at the same time.
const RTAC_SETTLES: f64 = 30.0;

const SAMPLE_RTT: Compared = Compared {
    what: "round trip of small updates",
    name: "rtt_mean",
    of: "sample",
    is_lower_better: true,
};
const fn goodput(of: &'static str) -> Compared {
    Compared { what: "goodput per transfer", name: "goodput", of, is_lower_better: false }
}

/// A command that may help.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Remedy {
    pub(super) command: String,
    /// Where to run it, if not on this host, or its prerequisites.
    pub(super) note: Option<&'static str>,
    pub(super) trial: Trial,
}

/// Commands that may help against a finding; may be empty.
pub(super) fn remedies(seen: &Observation, finding: &Finding) -> Vec<Remedy> {
    let interface = seen.interfaces.iter().find(|it| Some(&it.name) == finding.interface.as_ref());
    let bottleneck = &finding.bottleneck;
    let Some(interface) = interface else { return Vec::new() };
    match finding.fault {
        Fault::UpstreamQueue if finding.direction == Direction::Both => Vec::new(),
        Fault::UpstreamQueue | Fault::AckCongestion => uplink(seen, interface, finding, &[]),
        Fault::DownstreamQueue => receiver(seen, finding),
        Fault::HostQueue => own_queue(seen, interface, bottleneck),
        Fault::ForwardingQueue => router(interface, bottleneck),
        Fault::SourceOverload => overload(seen, interface, finding),
        Fault::Loss => congestion_control(seen, finding).into_iter().collect(),
        Fault::ReceiveWindow | Fault::SendBuffer => vec![buffers(finding)],
        Fault::LongPath | Fault::RouteChange | Fault::SlowReader => Vec::new(),
    }
}

/// A note for findings for which no command helps.
pub(super) fn note(seen: &Observation, finding: &Finding) -> Option<&'static str> {
    let interface = seen.interfaces.iter().find(|it| Some(&it.name) == finding.interface.as_ref());
    Some(match finding.fault {
        Fault::LongPath if seen.exits.len() > 1 => {
            "no law shortens propagation; this host has another default route: measure it, and use \
             `freshline source --via` with both if it is shorter"
        }
        Fault::LongPath => "no law shortens propagation, and there is no other route to try",
        Fault::RouteChange => {
            "routes change; `freshline source --law tenth` learns the new base RTT, and TCP needs no \
             change"
        }
        Fault::Loss if seen.kernel.congestion_control == "bbr" => {
            "new connections of this host use BBR already, which a lost packet does not slow down"
        }
        Fault::SlowReader => {
            "the program at this port reads more slowly than data arrives; no network command helps"
        }
        Fault::UpstreamQueue if finding.direction == Direction::Both => {
            "this host does not cause the queue; look at the other hosts behind the same router, or run \
             this on the router"
        }
        Fault::UpstreamQueue | Fault::AckCongestion => root::note(interface?, false)?,
        Fault::HostQueue | Fault::ForwardingQueue => root::note(interface?, true)?,
        _ => return None,
    })
}

fn upload(count: usize, host: &str) -> Flow {
    Flow {
        name: "upload",
        count,
        is_download: false,
        table: format!("tcp = {{ control = \"cubic\", host = \"{host}\" }}"),
    }
}

fn download(count: usize, receiver: &str) -> Flow {
    Flow {
        name: "download",
        count,
        is_download: true,
        table: format!("tcp = {{ control = \"cubic\", receiver = {receiver} }}"),
    }
}

/// Small updates, whose round trips include the queueing delay.
fn sample(is_download: bool) -> Flow {
    let table = "updates = { law = \"fixed\", rate = \"20/s\", payload = \"200B\" }".to_owned();
    Flow { name: "sample", count: 1, is_download, table }
}

fn up(hop: Hop) -> Link {
    Link { up: Some(hop), down: None }
}

const BANDS: &str = "{ discipline = \"dual\" }";
const FQ_CODEL: &str = "{ discipline = \"fq_codel\" }";
const NEEDS_FQ_CODEL: &str = "the kernel needs the module sch_fq_codel";
const NEEDS_CAKE: &str = "the kernel needs the module sch_cake";
const IFC: &str = "{ discipline = \"ifc\" }";

fn rate(bps: f64) -> String {
    if bps >= 1e6 { format!("{:.1}mbit", bps / 1e6) } else { format!("{:.0}kbit", bps / 1e3) }
}

/// A standing queue beyond this host, of uploads and `others`: a shaper of this host before it.
fn uplink(
    seen: &Observation,
    interface: &Interface,
    finding: &Finding,
    others: &[Flow],
) -> Vec<Remedy> {
    let bottleneck = &finding.bottleneck;
    let flows = simulated_flows(bottleneck.flows);
    let fraction = if finding.stop == Stop::Wlan { SHAPED_WLAN } else { SHAPED };
    let access = up(Hop::drop_tail(bottleneck));
    let is_with_downloads = finding.fault == Fault::AckCongestion;
    let has_uploads = !is_with_downloads || bottleneck.bps > bottleneck.other_bps / 10.0;
    let setup = |links: Vec<Link>, host: &str| {
        let mut all = vec![sample(false)];
        all.extend(has_uploads.then(|| upload(flows, host)));
        all.extend(is_with_downloads.then(|| download(1, "\"autotune\"")));
        all.extend_from_slice(others);
        Setup { links, flows: all, base_rtt: bottleneck.base_rtt, settle: 0.0 }
    };
    let guard = Some(goodput(if is_with_downloads { "download" } else { "upload" }));
    let shaped = rate(bottleneck.bps * fraction);
    let name = quoted(&interface.name);
    let remedy = |command: String, note, queue: &str, host: &str| Remedy {
        command,
        note,
        trial: Trial {
            without: setup(vec![access.clone()], "single"),
            with: setup(
                vec![up(Hop::with_queue(bottleneck, fraction, queue)), access.clone()],
                host,
            ),
            metric: SAMPLE_RTT,
            guard,
        },
    };
    let bands = format!("freshline uplink attach --dev {name} --rate {shaped}");
    let cake = format!("tc qdisc replace dev {name} root cake bandwidth {shaped}");
    let has_bands = seen.kernel.has_btf && takes_bands(interface);
    let ours = has_bands.then(|| remedy(bands, None, BANDS, "sorpc"));
    let cake =
        is_replaceable(interface).then(|| remedy(cake, Some(NEEDS_CAKE), FQ_CODEL, "single"));
    ours.into_iter().chain(cake).collect()
}

/// A standing queue of downloads: a receive window that keeps it short.
fn receiver(seen: &Observation, finding: &Finding) -> Vec<Remedy> {
    if !seen.kernel.has_btf {
        return Vec::new();
    }
    let bottleneck = &finding.bottleneck;
    let flows = simulated_flows(bottleneck.flows);
    let is_wlan = finding.stop == Stop::Wlan;
    let (options, law) = match is_wlan {
        true => (" --delta 8ms", "{ law = \"rtac\", delta = \"8ms\" }"),
        false => ("", "\"rtac\""),
    };
    let setup = |law: &str| Setup {
        links: vec![Link { up: None, down: Some(Hop::drop_tail(bottleneck)) }],
        flows: vec![sample(true), download(flows, law)],
        base_rtt: bottleneck.base_rtt,
        settle: RTAC_SETTLES,
    };
    vec![Remedy {
        command: format!("freshline receiver attach --adopt-existing{options}"),
        note: None,
        trial: Trial {
            without: setup("\"autotune\""),
            with: setup(law),
            metric: SAMPLE_RTT,
            guard: Some(goodput("download")),
        },
    }]
}

/// A standing queue of this host.
fn own_queue(seen: &Observation, interface: &Interface, bottleneck: &Bottleneck) -> Vec<Remedy> {
    let flows = simulated_flows(bottleneck.flows);
    let setup = |hop: Hop, host: &str| Setup {
        links: vec![up(hop)],
        flows: vec![sample(false), upload(flows, host)],
        base_rtt: bottleneck.base_rtt,
        settle: 0.0,
    };
    let remedy = |command: String, note, queue: &str, host: &str| Remedy {
        command,
        note,
        trial: Trial {
            without: setup(Hop::drop_tail(bottleneck), "single"),
            with: setup(Hop::with_queue(bottleneck, 1.0, queue), host),
            metric: SAMPLE_RTT,
            guard: Some(goodput("upload")),
        },
    };
    let plain = place_of_fq_codel(interface).map(|place| {
        let command = format!("tc qdisc replace {place} fq_codel");
        remedy(command, Some(NEEDS_FQ_CODEL), FQ_CODEL, "single")
    });
    let bands = format!("freshline uplink attach --dev {}", quoted(&interface.name));
    // Bands without --rate need those of pfifo_fast.
    let has_bands = interface.discipline == "pfifo_fast" && seen.kernel.has_btf;
    let ours = has_bands.then(|| remedy(bands, None, BANDS, "sorpc"));
    plain.into_iter().chain(ours).collect()
}

/// The queue of this host as a router.
fn router(interface: &Interface, bottleneck: &Bottleneck) -> Vec<Remedy> {
    let setup = |hop: Hop| Setup {
        links: vec![up(hop)],
        flows: vec![sample(false), upload(2, "single")],
        base_rtt: bottleneck.base_rtt,
        settle: 0.0,
    };
    let remedy = |command: String, note, fraction: f64, queue: &str| Remedy {
        command,
        note,
        trial: Trial {
            without: setup(Hop::drop_tail(bottleneck)),
            with: setup(Hop::with_queue(bottleneck, fraction, queue)),
            metric: SAMPLE_RTT,
            guard: Some(goodput("upload")),
        },
    };
    let shaped = rate(bottleneck.bps * SHAPED);
    let name = quoted(&interface.name);
    let plain = place_of_fq_codel(interface).map(|place| {
        let command = format!("tc qdisc replace {place} fq_codel");
        remedy(command, Some(NEEDS_FQ_CODEL), 1.0, FQ_CODEL)
    });
    let ours = remedy(
        format!("freshline router attach --dev {name} --rate {shaped} --or-run"),
        None,
        SHAPED,
        IFC,
    );
    [ours].into_iter().chain(plain).collect()
}

/// A source that does not adapt. With uploads of this host in the same queue, a shaper protects
/// them; a source that adapts may not get its share alongside them.
fn overload(seen: &Observation, interface: &Interface, finding: &Finding) -> Vec<Remedy> {
    let seen_as = &finding.bottleneck;
    let uploads = bulk_senders(seen, interface);
    let offered = seen_as.offered_bps.max(seen_as.bps);
    let capacity = seen_as.bps.min(offered * OVERLOADED);
    let bottleneck = Bottleneck { bps: capacity, flows: uploads, ..*seen_as };
    let scale = simulated(capacity) / capacity.max(1.0);
    let per_s = (offered * scale / 8.0 / 1028.0).max(1.0);
    let fixed = updates(&format!("law = \"fixed\", rate = \"{per_s:.0}/s\""));
    let tenth = source(&bottleneck, fixed.clone(), uploads);
    if uploads == 0 {
        return vec![tenth];
    }
    let finding = Finding { bottleneck, ..finding.clone() };
    let mut all = uplink(seen, interface, &finding, &[fixed]);
    all.push(tenth);
    all
}

/// A source of updates.
fn updates(law: &str) -> Flow {
    let table = format!("updates = {{ {law}, payload = \"1000B\" }}");
    Flow { name: "source", count: 1, is_download: false, table }
}

/// A source that adapts, instead of this one.
fn source(bottleneck: &Bottleneck, fixed: Flow, uploads: usize) -> Remedy {
    let hop = Hop::drop_tail(bottleneck);
    let with_uploads = (uploads > 0).then(|| upload(simulated_flows(uploads), "single"));
    let setup = |source: Flow| Setup {
        links: vec![up(hop.clone())],
        flows: [source].into_iter().chain(with_uploads.clone()).collect(),
        base_rtt: bottleneck.base_rtt,
        settle: 0.0,
    };
    Remedy {
        command: "freshline source quic://MONITOR:PORT --law tenth".to_owned(),
        note: Some(
            "instead of the program that sends at a fixed rate, if newer data replaces older",
        ),
        trial: Trial {
            without: setup(fixed),
            with: setup(updates("law = \"tenth\"")),
            metric: Compared {
                what: "mean age of updates",
                name: "age_mean",
                of: "source",
                is_lower_better: true,
            },
            guard: with_uploads.map(|_| goodput("upload")),
        },
    }
}

/// Losses without a queue: a congestion control that does not treat each loss as congestion.
fn congestion_control(seen: &Observation, finding: &Finding) -> Option<Remedy> {
    let kernel = &seen.kernel;
    let is_up = finding.direction == Direction::Up;
    if is_up && (kernel.congestion_control == "bbr" || !has(&kernel.congestion_controls, "bbr")) {
        return None;
    }
    let bottleneck = &finding.bottleneck;
    let hop = Hop {
        bps: simulated(bottleneck.bps * SPARE),
        queue: "\"200p\"".to_owned(),
        loss: bottleneck.loss.min(0.3),
    };
    let setup = |control: &str| Setup {
        links: vec![up(hop.clone())],
        flows: vec![Flow {
            name: "upload",
            count: 1,
            is_download: false,
            table: format!("tcp = {{ control = \"{control}\" }}"),
        }],
        base_rtt: bottleneck.base_rtt,
        settle: 0.0,
    };
    Some(Remedy {
        command: "sysctl -w net.ipv4.tcp_congestion_control=bbr".to_owned(),
        note: (!is_up)
            .then_some("on the sending hosts, because the sender chooses the congestion control"),
        trial: Trial {
            without: setup("cubic"),
            with: setup("bbr"),
            metric: goodput("upload"),
            guard: None,
        },
    })
}

fn has(all: &[String], name: &str) -> bool {
    all.iter().any(|one| one == name)
}

/// A buffer that is too small for the path.
fn buffers(finding: &Finding) -> Remedy {
    let bottleneck = &finding.bottleneck;
    let hop =
        Hop { bps: simulated(bottleneck.bps * SPARE), queue: "\"1000p\"".to_owned(), loss: 0.0 };
    let window = bottleneck.window.max(4_096.0);
    let (key, setting, note) = match (finding.fault, finding.direction) {
        (Fault::SendBuffer, _) => ("send_buffer", "tcp_wmem=\"4096 16384 16777216\"", None),
        (_, Direction::Up) => (
            "receive_buffer",
            "tcp_rmem=\"4096 131072 16777216\"",
            Some("on the receiving host; a program that sets SO_RCVBUF itself must stop doing so"),
        ),
        _ => (
            "receive_buffer",
            "tcp_rmem=\"4096 131072 16777216\"",
            Some("a program that sets SO_RCVBUF itself must stop doing so"),
        ),
    };
    // A buffer is larger than the window, because the kernel counts its overhead.
    let small = format!(", {key} = [\"{:.0}B\", \"{:.0}B\"]", window * 2.0, window * 2.0);
    let setup = |buffer: &str| Setup {
        links: vec![up(hop.clone())],
        flows: vec![Flow {
            name: "upload",
            count: 1,
            is_download: false,
            table: format!("tcp = {{ control = \"cubic\"{buffer} }}"),
        }],
        base_rtt: bottleneck.base_rtt,
        settle: 0.0,
    };
    Remedy {
        command: format!("sysctl -w net.ipv4.{setting}"),
        note,
        trial: Trial {
            without: setup(&small),
            with: setup(""),
            metric: goodput("upload"),
            guard: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use freshline_system::netlink::TcpInfo;

    use super::*;
    use crate::advise::observation::{Connection, TcpSample};

    fn seen() -> Observation {
        let mut seen = Observation { exits: vec![2], ..Observation::default() };
        seen.interfaces = vec![Interface {
            device: 2,
            name: "eth0".to_owned(),
            discipline: "pfifo_fast".to_owned(),
            ..Interface::default()
        }];
        seen.kernel.has_btf = true;
        seen.kernel.congestion_control = "cubic".to_owned();
        seen.kernel.congestion_controls = vec!["cubic".to_owned(), "bbr".to_owned()];
        seen
    }

    /// 4 Mbit/s, 40 ms, and a queue of 300 ms.
    fn finding(fault: Fault, direction: Direction, stop: Stop) -> Finding {
        Finding {
            stop,
            direction,
            fault,
            interface: Some("eth0".to_owned()),
            slowdown: 2.0,
            evidence: Vec::new(),
            bottleneck: Bottleneck {
                bps: 4e6,
                base_rtt: 0.04,
                queue: 0.3,
                flows: 2,
                loss: 0.02,
                offered_bps: 6e6,
                other_bps: 0.2e6,
                window: 8e3,
            },
        }
    }

    #[test]
    fn the_lab_finds_each_preferred_remedy_better() {
        for (fault, direction, stop, command) in [
            (
                Fault::UpstreamQueue,
                Direction::Up,
                Stop::Router,
                "freshline uplink attach --dev eth0",
            ),
            (Fault::UpstreamQueue, Direction::Up, Stop::Wlan, "freshline uplink attach --dev eth0"),
            (
                Fault::AckCongestion,
                Direction::Up,
                Stop::Router,
                "freshline uplink attach --dev eth0",
            ),
            (Fault::DownstreamQueue, Direction::Down, Stop::Router, "freshline receiver attach"),
            (
                Fault::HostQueue,
                Direction::Up,
                Stop::Host,
                "tc qdisc replace dev eth0 root fq_codel",
            ),
            (
                Fault::ForwardingQueue,
                Direction::Up,
                Stop::Router,
                "freshline router attach --dev eth0",
            ),
            (Fault::SourceOverload, Direction::Up, Stop::Source, "freshline source"),
            (
                Fault::Loss,
                Direction::Up,
                Stop::Link,
                "sysctl -w net.ipv4.tcp_congestion_control=bbr",
            ),
            (Fault::ReceiveWindow, Direction::Up, Stop::Receiver, "sysctl -w net.ipv4.tcp_rmem"),
            (Fault::SendBuffer, Direction::Up, Stop::Source, "sysctl -w net.ipv4.tcp_wmem"),
        ] {
            let remedies = remedies(&seen(), &finding(fault, direction, stop));
            let first = &remedies[0];
            assert!(first.command.starts_with(command), "{fault:?}: {}", first.command);
            let gain = first.trial.gain().unwrap_or_else(|| panic!("{fault:?}: the lab refuses"));
            assert_eq!(gain.objection(), None, "{fault:?}: {gain:?}");
        }
    }

    #[test]
    fn a_remedy_that_the_lab_finds_useless_is_withheld() {
        // Only acks fill the uplink: bands have nothing to prioritise, but fair queueing helps.
        let mut acks_only = finding(Fault::AckCongestion, Direction::Up, Stop::Router);
        (acks_only.bottleneck.bps, acks_only.bottleneck.other_bps) = (0.1e6, 8e6);
        let gains = remedies(&seen(), &acks_only).into_iter().map(|it| it.trial.gain().unwrap());
        let is_withheld: Vec<_> = gains.map(|gain| gain.objection().is_some()).collect();
        assert_eq!(is_withheld, [true, false]);
    }

    #[test]
    fn a_shaper_is_not_replaced() {
        let mut seen = seen();
        seen.interfaces[0].discipline = "tbf".to_owned();
        seen.interfaces[0].discipline_major = 0x8001;
        let finding = finding(Fault::HostQueue, Direction::Up, Stop::Host);
        let all = remedies(&seen, &finding);
        assert_eq!(all[0].command, "tc qdisc replace dev eth0 parent 8001:1 fq_codel");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn classes_and_configured_roots_get_a_note_and_no_command() {
        let mut seen = seen();
        seen.interfaces[0].discipline = "htb".to_owned();
        for (fault, stop) in [(Fault::HostQueue, Stop::Host), (Fault::UpstreamQueue, Stop::Router)]
        {
            let finding = finding(fault, Direction::Up, stop);
            assert_eq!(remedies(&seen, &finding), [], "{fault:?}");
            assert!(note(&seen, &finding).is_some(), "{fault:?}");
        }
    }

    #[test]
    fn the_name_of_an_interface_is_one_word() {
        let (mut seen, mut finding) =
            (seen(), finding(Fault::UpstreamQueue, Direction::Up, Stop::Router));
        seen.interfaces[0].name = "$(id)".to_owned();
        finding.interface = Some("$(id)".to_owned());
        for remedy in remedies(&seen, &finding) {
            assert!(remedy.command.contains(" '$(id)' "), "{}", remedy.command);
        }
    }

    #[test]
    fn an_overload_beside_uploads_is_tried_with_them_and_shaped_first() {
        let mut seen = seen();
        let sample = |number: u32| {
            let bytes = 25_000 * u64::from(number);
            let info = TcpInfo {
                bytes_acked: bytes,
                busy: u64::from(number) * 50_000,
                ..TcpInfo::default()
            };
            TcpSample { at: f64::from(number) * 0.05, info, ..TcpSample::default() }
        };
        seen.connections = vec![Connection {
            local: "192.0.2.1:5000".parse().unwrap(),
            remote: "198.51.100.1:443".parse().unwrap(),
            device: Some(2),
            samples: (0..60).map(sample).collect(),
        }];
        let all = remedies(&seen, &finding(Fault::SourceOverload, Direction::Up, Stop::Source));
        assert!(all[0].command.starts_with("freshline uplink attach --dev eth0 --rate"));
        assert!(all.last().unwrap().command.starts_with("freshline source"));
        for remedy in all {
            for setup in [&remedy.trial.without, &remedy.trial.with] {
                let names: Vec<_> = setup.flows.iter().map(|flow| flow.name).collect();
                assert!(names.contains(&"upload") && names.contains(&"source"), "{names:?}");
            }
            assert!(remedy.trial.gain().is_some(), "the lab refuses {}", remedy.command);
        }
    }

    #[test]
    fn without_a_command_there_is_a_note() {
        for fault in [Fault::LongPath, Fault::RouteChange, Fault::SlowReader] {
            let finding = finding(fault, Direction::Both, Stop::Path);
            assert_eq!(remedies(&seen(), &finding), []);
            assert!(note(&seen(), &finding).is_some(), "{fault:?}");
        }
    }
}
