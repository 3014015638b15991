//! Super-packets, of UDP (GSO) and of TCP (TSO), in front of the shaper of `uplink --rate`.

use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};

use super::common::assert_succeeded;
use super::net::{Net, can_run};

/// A datagram of a super-packet, and the number of datagrams in one.
const DATAGRAM: usize = 1400;
const TRAIN: usize = 40;

/// A UDP socket on A whose datagrams go to the returned socket on B.
fn pair(net: &Net) -> (UdpSocket, UdpSocket) {
    let to = net.within("b", || UdpSocket::bind("10.78.0.2:0").unwrap());
    let from = net.within("a", || UdpSocket::bind("10.78.0.1:0").unwrap());
    from.connect(to.local_addr().unwrap()).unwrap();
    to.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (from, to)
}

/// Sends one super-packet. Its datagrams begin with their numbers, from `first` on.
fn send_train(socket: &UdpSocket, first: usize) -> io::Result<usize> {
    let numbers = (first..first + TRAIN).flat_map(|number| {
        let mut datagram = [0; DATAGRAM];
        datagram[..4].copy_from_slice(&(number as u32).to_be_bytes());
        datagram
    });
    socket.send(&numbers.collect::<Vec<_>>())
}

fn number_of(datagram: &[u8]) -> usize {
    u32::from_be_bytes(datagram[..4].try_into().unwrap()) as usize
}

#[test]
#[ignore = "long: measures delays in real time"]
fn an_urgent_packet_does_not_wait_behind_super_packets_of_udp() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    assert_succeeded(&net.on_device("attach", "--rate 200kbit"));
    let (flood, flooded) = pair(&net);
    let (urgent, asked) = pair(&net);
    setsockopt(&flood, UdpGsoSegment, &(DATAGRAM as i32)).unwrap();
    flood.set_nonblocking(true).unwrap();
    // 6.7 s of the link.
    let sent: usize = (0..3).map(|train| send_train(&flood, train * TRAIN).unwrap()).sum();
    assert_eq!(sent, 3 * TRAIN * DATAGRAM);
    let began = Instant::now();
    urgent.send(b"urgent").unwrap();
    asked.recv(&mut [0; 16]).unwrap();
    println!("an urgent packet beside 6.7 s of super-packets took {:?}", began.elapsed());
    // Whatever the machine does, less than half of the flood has arrived: all of it waited before.
    flooded.set_nonblocking(true).unwrap();
    let mut arrived = 0;
    while flooded.recv(&mut [0; DATAGRAM]).is_ok() {
        arrived += 1;
    }
    assert!(arrived < 3 * TRAIN / 2, "{arrived} datagrams came before it");
}

#[test]
fn super_packets_lose_nothing_and_keep_their_order() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    assert_succeeded(&net.on_device("attach", "--rate 20mbit"));
    let (sender, receiver) = pair(&net);
    // By turns a super-packet and a single datagram, which must not overtake it.
    let mut expected = 0;
    for _ in 0..3 {
        setsockopt(&sender, UdpGsoSegment, &(DATAGRAM as i32)).unwrap();
        send_train(&sender, expected).unwrap();
        setsockopt(&sender, UdpGsoSegment, &0).unwrap();
        sender.send(&((expected + TRAIN) as u32).to_be_bytes()).unwrap();
        expected += TRAIN + 1;
    }
    for number in 0..expected {
        let mut datagram = [0; DATAGRAM];
        let length = receiver.recv(&mut datagram).unwrap();
        assert_eq!(number_of(&datagram[..length]), number);
    }
    let status = net.status().unwrap();
    let batched = &status["bands"][1];
    assert_eq!((&batched["band"], &batched["drops"]), (&"batched".into(), &0.into()), "{status}");
    // A socket whose super-packets have left is urgent again.
    let urgent = || net.status().unwrap()["bands"][0]["packets"].as_u64().unwrap();
    let before = urgent();
    sender.send(&[0; 4]).unwrap();
    assert!(urgent() > before);
}

#[test]
fn a_device_whose_mtu_grows_after_attach_still_sends_large_packets() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    assert_succeeded(&net.on_device("attach", "--rate 1mbit"));
    for host in ["a", "b"] {
        net.ip(host, &format!("link set dev {} mtu 9000", super::net::DEVICE));
    }
    let (sender, receiver) = pair(&net);
    sender.send(&[7; 8000]).unwrap();
    assert_eq!(receiver.recv(&mut [0; 9000]).unwrap(), 8000);
    receiver.set_nonblocking(true).unwrap();
    assert_eq!(receiver.recv(&mut [0; 9000]).unwrap_err().kind(), ErrorKind::WouldBlock);
}
