//! Networks with a fault, each in network namespaces of its own.
//!
//! ```text
//!   Path:    host ── emulated path ── client (advise)
//!   Cable:   a (client, advise) v ── v b (server)
//!   Router:  a (client) v ── v r (advise) w ── v b (server)
//!   Two:     a (client, advise) v, w ── v, w b (server); the route changes from v to w
//! ```

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::common::{FRESHLINE, text};
use super::hosts::Hosts;
use super::traffic::{FLOWS, Flow, HOST, Server, encoded};

/// How long advise observes.
const DURATION: &str = "3s";
const HALF: Duration = Duration::from_millis(1500);

/// A network.
#[derive(Debug, Clone, Copy)]
pub(crate) enum World {
    /// A path file of the emulator.
    Path(&'static str),
    /// A cable, with this queueing discipline at a's end (arguments of `tc qdisc add dev v root`).
    Cable(&'static str),
    /// A router, with this queueing discipline towards b.
    Router(&'static str),
    /// Two cables, and a change of the route.
    Two,
}

/// A prepared case.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) world: World,
    pub(crate) flows: &'static [Flow],
    /// The receive buffer of the server in bytes, if it is not the kernel's.
    pub(crate) receive_buffer: Option<usize>,
    /// Further flags of advise.
    pub(crate) flags: &'static str,
    /// How long the flows run before the observation begins.
    pub(crate) settle_ms: u64,
    /// The stop and the direction; `None` without a fault.
    pub(crate) expected: Option<(&'static str, &'static str)>,
}

impl Case {
    /// The report of `advise`.
    pub(crate) fn run(&self) -> Value {
        let done = match self.world {
            World::Path(path) => self.on_path(path),
            World::Cable(shaper) => self.on_cable(shaper),
            World::Router(shaper) => self.on_router(shaper),
            World::Two => self.on_two(),
        };
        let said = text(&done.stderr);
        serde_json::from_slice(&done.stdout).unwrap_or_else(|error| {
            panic!("{}: {error}\n{said}\n{}", self.name, text(&done.stdout))
        })
    }

    fn settle(&self) {
        thread::sleep(Duration::from_millis(self.settle_ms));
    }

    fn on_path(&self, path: &str) -> Output {
        let hosts = Hosts::new("advise", &["host"]);
        let server = hosts.within("host", || Server::start(self.receive_buffer));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("path.toml");
        fs::write(&file, path).unwrap();
        let program = std::env::current_exe().unwrap();
        let script = format!(
            "{} --exact traffic::client --nocapture > /dev/null 2>&1 & sleep {}; \
             exec {FRESHLINE} advise --json --duration {DURATION} {}",
            program.display(),
            self.settle_ms as f64 / 1e3,
            self.flags.replace("HOST", "$FRESHLINE_HOST"),
        );
        let mut command = hosts.command("host", FRESHLINE);
        command.args(["emulate", "run", file.to_str().unwrap(), "--seed", "7", "--", "sh", "-c"]);
        command.arg(script).env(FLOWS, encoded(server.port, self.flows));
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn on_cable(&self, shaper: &str) -> Output {
        let hosts = Hosts::new("advise", &["a", "b"]);
        cable(&hosts, ("a", "v", "10.79.1.1/24"), ("b", "v", "10.79.1.2/24"));
        shape(&hosts, "a", "v", shaper);
        let server = hosts.within("b", || Server::start(self.receive_buffer));
        let _client = self.client(&hosts, "10.79.1.2", server.port);
        self.settle();
        self.advise(&hosts, "a").output().unwrap()
    }

    fn on_router(&self, shaper: &str) -> Output {
        let hosts = Hosts::new("advise", &["a", "r", "b"]);
        cable(&hosts, ("a", "v", "10.79.1.1/24"), ("r", "v", "10.79.1.2/24"));
        cable(&hosts, ("r", "w", "10.79.2.1/24"), ("b", "v", "10.79.2.2/24"));
        hosts.ip("a", "route add default via 10.79.1.2");
        hosts.ip("b", "route add default via 10.79.2.1");
        hosts.within("r", || fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        shape(&hosts, "r", "w", shaper);
        let server = hosts.within("b", || Server::start(self.receive_buffer));
        let _client = self.client(&hosts, "10.79.2.2", server.port);
        self.settle();
        self.advise(&hosts, "r").output().unwrap()
    }

    fn on_two(&self) -> Output {
        let hosts = Hosts::new("advise", &["a", "b"]);
        for (device, number) in [("v", 1), ("w", 2)] {
            let of = |host| format!("10.79.{number}.{host}/24");
            cable(&hosts, ("a", device, &of(1)), ("b", device, &of(2)));
        }
        hosts.ip("a", "addr add 10.79.9.1/32 dev lo");
        hosts.ip("b", "addr add 10.79.9.2/32 dev lo");
        hosts.ip("b", "route add 10.79.9.1/32 via 10.79.1.1");
        hosts.ip("a", "route add 10.79.9.2/32 via 10.79.1.2 src 10.79.9.1");
        let server = hosts.within("b", || Server::start(self.receive_buffer));
        let _client = self.client(&hosts, "10.79.9.2", server.port);
        self.settle();
        let mut advise = self.advise(&hosts, "a");
        let running = advise.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(HALF);
        hosts.ip("a", "route replace 10.79.9.2/32 via 10.79.2.2 src 10.79.9.1");
        running.wait_with_output().unwrap()
    }

    fn advise(&self, hosts: &Hosts, host: &str) -> Command {
        let mut command = hosts.command(host, FRESHLINE);
        command.args(["advise", "--json", "--duration", DURATION]);
        command.args(self.flags.split_whitespace());
        command
    }

    fn client(&self, hosts: &Hosts, server: &str, port: u16) -> Client {
        let program = std::env::current_exe().unwrap();
        let mut command = hosts.command("a", program.to_str().unwrap());
        command.args(["--exact", "traffic::client", "--nocapture"]);
        command.env(FLOWS, encoded(port, self.flows)).env(HOST, server);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Client(command.spawn().unwrap())
    }
}

/// A client, for as long as this is.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Lays a cable between two hosts. TCP passes on two segments at most as one packet, as at these rates
/// across the Internet.
fn cable(hosts: &Hosts, one: (&'static str, &str, &str), other: (&'static str, &str, &str)) {
    let [near, far] = [one.0, other.0].map(|host| hosts.name(host));
    let ends = format!("netns {near} type veth peer name {} netns {far}", other.1);
    super::common::ip(&format!("link add {} {ends}", one.1));
    for (host, device, address) in [one, other] {
        hosts.ip(host, &format!("addr add {address} dev {device}"));
        hosts.ip(host, &format!("link set dev {device} up gso_max_segs 2"));
    }
}

/// Puts a queueing discipline at the root; commands are separated by semicolons, each begins behind
/// `tc … dev DEVICE`.
fn shape(hosts: &Hosts, host: &str, device: &str, shaper: &str) {
    for step in shaper.split(';').map(str::trim).filter(|step| !step.is_empty()) {
        let (what, arguments) = step.split_once(' ').unwrap();
        let mut command = hosts.command(host, "tc");
        command.args([what, "add", "dev", device]).args(arguments.split_whitespace());
        let done = command.output().unwrap();
        assert!(done.status.success(), "tc {step}: {}", text(&done.stderr));
    }
}
