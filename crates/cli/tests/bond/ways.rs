//! Paths that appear, disappear and change during a download.

use std::time::Duration;

use super::net::{Net, SERVER, SERVER_6, can_run, download, download_until, made_up};
use super::{number, number_if};

/// Whether a download goes by an interface: whether more has come by it, time after time.
struct Carries<'a> {
    net: &'a Net,
    interface: &'a str,
    before: f64,
    times: u32,
}

impl<'a> Carries<'a> {
    fn by(net: &'a Net, interface: &'a str) -> Self {
        Self { net, interface, before: f64::MAX, times: 0 }
    }

    fn look(&mut self) -> bool {
        let metrics = self.net.metrics();
        let received = number_if(&metrics, "bond_path_received_bytes_total", self.interface);
        let received = received.unwrap_or(f64::MAX);
        self.times = if received > self.before + 20_000.0 { self.times + 1 } else { 0 };
        self.before = received;
        self.times >= 2
    }
}

/// An action, and the interface that should carry traffic after it.
type Step = (fn(&Net), &'static str);

/// Downloads without end, and takes one step after the other, each as soon as the step before has
/// moved traffic to the other interface.
fn download_through(net: &Net, steps: &[Step]) {
    let mut steps = steps.iter();
    let mut carries = Carries::by(net, "v1");
    let mut next_at = Duration::ZERO;
    download_until(net.connect(), |at| {
        if at < next_at {
            return false;
        }
        assert!(at < Duration::from_secs(60), "nothing comes by {}", carries.interface);
        // The client reports five times a second.
        next_at = at + Duration::from_millis(250);
        if !carries.look() {
            return false;
        }
        let Some((act, interface)) = steps.next() else { return true };
        act(net);
        carries = Carries::by(net, interface);
        false
    });
}

#[test]
fn a_download_survives_other_addresses_and_interfaces_that_come_and_go() {
    if !can_run() {
        return;
    }
    let net = Net::beside([20, 20]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.0.0/16");
    let forward = format!("--forward 127.0.0.1:8001={SERVER}:8000 --metrics 127.0.0.1:9099");
    let _client = net.client_to(&format!("{SERVER}:3775"), &format!("--via v1,v2,v3 {forward}"));
    download_through(
        &net,
        &[
            (
                // Another address on the same interface, without a message to the server.
                |net| {
                    net.ip("c", "addr del 10.79.1.1/24 dev v1");
                    net.ip("c", "addr add 10.79.1.7/24 dev v1");
                    net.route(1);
                },
                "v1",
            ),
            (|net| net.cable(3, 20), "v3"),
            (|net| net.ip("c", "link del v1"), "v2"),
            (|net| net.cable(1, 20), "v1"),
            (
                // Gone and back at once: the same name, another interface.
                |net| {
                    net.ip("c", "link del v3");
                    net.cable(3, 20);
                },
                "v3",
            ),
        ],
    );
}

#[test]
fn two_paths_of_ipv6_carry_a_download_and_the_same_server_takes_ipv4() {
    if !can_run() {
        return;
    }
    let net = Net::beside([20, 20]);
    net.serve_at("s", &format!("[{SERVER_6}]:8000"), made_up);
    let _server = net.server_at("[::]:3775", "--allow fd79::/16");
    let forward = format!("--forward 127.0.0.1:8001=[{SERVER_6}]:8000 --metrics 127.0.0.1:9099");
    for server in [SERVER_6, SERVER] {
        let server = if server == SERVER { server.to_owned() } else { format!("[{server}]") };
        let _client = net.client_to(&format!("{server}:3775"), &format!("--via v1,v2 {forward}"));
        download(net.connect(), 4_000_000);
        let metrics = net.metrics();
        for interface in ["v1", "v2"] {
            let received = number(&metrics, "bond_path_received_bytes_total", interface);
            assert!(received > 200_000.0, "{server} {metrics}");
        }
    }
}
