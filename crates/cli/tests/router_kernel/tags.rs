//! Frames with tags of virtual networks, sent unchanged by a packet socket on the router.

use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, sendto, socket};

use super::attached::Attached;
use super::guest;
use super::net::{DEVICE, Net, can_run};
use super::running::count;

/// 802.1Q, of a customer, and 802.1ad, of a provider.
const INNER: [u8; 4] = [0x81, 0, 0, 5];
const OUTER: [u8; 4] = [0x88, 0xa8, 0, 6];

fn frame(tags: &[[u8; 4]], ether_type: [u8; 2], content: &[u8]) -> Vec<u8> {
    [&[2; 12][..], tags.concat().as_slice(), &ether_type, content].concat()
}

/// A datagram over IPv4, to this port.
fn datagram(port: u8, payload: &[u8]) -> Vec<u8> {
    let length = 28 + payload.len() as u8;
    let ip = [0x45, 0, 0, length, 0, 0, 0, 0, 64, 17, 0, 0, 10, 77, 2, 2, 10, 77, 2, 1];
    let udp = [0x40, 0, 0, port, 0, length - 20, 0, 0];
    [&ip[..], &udp, payload].concat()
}

/// A neighbour solicitation (RFC 4861).
fn solicitation() -> Vec<u8> {
    let ip = [&[0x60, 0, 0, 0, 0, 24, 58, 255][..], &[0xfe; 16], &[0xff; 16]].concat();
    [&ip[..], &[135], &[0; 23]].concat()
}

/// Sends frames through the device towards B.
fn send(net: &Net, frames: &[Vec<u8>]) {
    net.within("r", || {
        let mut addresses = getifaddrs().unwrap().filter(|one| one.interface_name == DEVICE);
        let device = addresses.find_map(|one| one.address?.as_link_addr().copied()).unwrap();
        let any = SockFlag::empty();
        let socket =
            socket(AddressFamily::Packet, SockType::Raw, any, SockProtocol::EthAll).unwrap();
        for frame in frames {
            let sent = sendto(socket.as_raw_fd(), frame, &device, MsgFlags::empty());
            assert_eq!(sent, Ok(frame.len()));
        }
    });
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn packets_behind_tags_are_classed_and_counted_as_without() {
    if !guest::entered() || !can_run() {
        return;
    }
    let net = Net::new();
    let attached = Attached::new(&net, &["--rate", "20mbit"]);
    let update = datagram(7, b"FL\x01\x01 a state, of a session");
    let bulk = datagram(9, b"a datagram of no protocol");
    let (ipv4, ipv6, arp) = ([8, 0], [0x86, 0xdd], [8, 6]);
    for tags in [&[][..], &[INNER], &[OUTER, INNER]] {
        for (ether_type, content) in
            [(arp, &bulk), (ipv6, &solicitation()), (ipv4, &update), (ipv4, &bulk)]
        {
            send(&net, &[frame(tags, ether_type, content)]);
        }
    }
    // More tags than are looked behind.
    send(&net, &[frame(&[OUTER, INNER, INNER], ipv4, &update)]);
    thread::sleep(Duration::from_millis(100));
    let status = attached.status();
    let of = |class: usize, what: &str| count(&status["classes"][class][what]);
    assert_eq!([of(0, "packets_in"), of(0, "packets_out")], [3, 3], "{status}");
    assert_eq!(of(0, "bytes_out"), 3 * update.len() as u64, "{status}");
    let flows = status["flows"].as_array().unwrap();
    let bulk_flow = flows.iter().find(|flow| flow["destination"] == "10.77.2.1:9").unwrap();
    assert_eq!(count(&bulk_flow["packets_out"]), 3, "{status}");
    assert_eq!(count(&bulk_flow["bytes_out"]), 3 * bulk.len() as u64, "{status}");
    assert_eq!(of(1, "packets_in"), 4, "ARP and discovery are in neither class: {status}");
    assert!(count(&bulk_flow["rate_bps"]) > 0, "{status}");
    // Rates are those of the last seconds.
    thread::sleep(Duration::from_secs(5));
    let status = attached.status();
    let all = ["classes", "flows"].map(|of| status[of].as_array().unwrap().clone()).concat();
    assert!(all.iter().all(|one| count(&one["rate_bps"]) == 0), "{status}");
    attached.detach();
}
