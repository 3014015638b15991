//! UDP of programs by SOCKS5: echoes of all sizes, names, DNS by `dig`, the rules, and dropped
//! datagrams.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::Duration;

use freshline_net::bond::Sending;

use super::ends::Bond;

/// A program's association: the connection that keeps it, its socket, and the client's.
struct Association {
    control: TcpStream,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Association {
    fn new(bond: &Bond) -> Self {
        let mut control = bond.program();
        control.write_all(&[5, 1, 0]).unwrap();
        control.read_exact(&mut [0; 2]).unwrap();
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut answer = [0; 10];
        control.read_exact(&mut answer).unwrap();
        assert_eq!(answer[..4], [5, 0, 0, 1]);
        let ip = Ipv4Addr::new(answer[4], answer[5], answer[6], answer[7]);
        let relay = (ip, u16::from_be_bytes([answer[8], answer[9]])).into();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self { control, socket, relay }
    }

    fn send(&self, fragment: u8, address: &[u8], port: u16, payload: &[u8]) {
        let port = port.to_be_bytes();
        let datagram = [&[0, 0, fragment][..], address, &port, payload].concat();
        self.socket.send_to(&datagram, self.relay).unwrap();
    }

    /// The next datagram from an IPv4 address: its source and its payload.
    fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buffer = [0; 65_535];
        let (len, from) = self.socket.recv_from(&mut buffer).unwrap();
        assert_eq!((from, &buffer[..4]), (self.relay, &[0, 0, 0, 1][..]));
        let ip = Ipv4Addr::new(buffer[4], buffer[5], buffer[6], buffer[7]);
        let port = u16::from_be_bytes([buffer[8], buffer[9]]);
        ((ip, port).into(), buffer[10..len].to_vec())
    }
}

const HERE: [u8; 5] = [1, 127, 0, 0, 1];

/// Answers each datagram with itself.
fn echo() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 65_535];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
    address
}

#[test]
fn datagrams_of_programs_reach_allowed_destinations_and_come_back() {
    let (there, forbidden) = (echo(), echo());
    let rules = [there.to_string(), format!("localhost:{}", there.port())];
    let bond = Bond::new(Sending::default(), &rules.each_ref().map(String::as_str), &[]);
    bond.client.wait(|report| report.links == 1);
    let association = Association::new(&bond);
    // The second is a QUIC handshake's, the last ones need several frames.
    for len in [1, 1200, 1472, 4096, 9000] {
        let payload: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        association.send(0, &HERE, there.port(), &payload);
        assert_eq!(association.receive(), (there, payload), "{len} bytes");
    }
    // A name, which the server looks up; the second time it knows it.
    for _ in 0..2 {
        association.send(0, b"\x03\x09localhost", there.port(), b"by name");
        assert_eq!(association.receive(), (there, b"by name".to_vec()));
    }
    // Dropped: a fragment, a forbidden destination, and a datagram without an address. And then one
    // that is not dropped.
    association.send(1, &HERE, there.port(), b"fragment");
    association.send(0, &HERE, forbidden.port(), b"forbidden");
    association.send(0, &[9], 0, b"");
    association.send(0, &HERE, there.port(), b"last");
    assert_eq!(association.receive(), (there, b"last".to_vec()));
    // Datagrams of a party outside of the association are ignored, even from the same host.
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    stranger.send_to(&[0, 0, 0, 1, 127, 0, 0, 1, 0, 9, 1], association.relay).unwrap();
    bond.client.wait(|report| report.datagrams_dropped == 3 && report.datagrams_received == 8);
    bond.server.wait(|report| report.datagrams_dropped == 1 && report.udp_flows_open == 1);
    // The association ends with the connection that asked for it.
    drop(association.control);
    bond.client.wait(|report| report.udp_flows_open == 0 && report.streams_open == 0);
}

#[test]
fn a_program_that_floods_its_association_ends_it_and_stops_no_other() {
    let there = echo();
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[]);
    bond.client.wait(|report| report.links == 1);
    let (other, mut flood) = (Association::new(&bond), Association::new(&bond));
    let flood = thread::spawn(move || while flood.control.write_all(&[0; 65_536]).is_ok() {});
    bond.client.wait(|report| report.udp_flows_open == 1);
    other.send(0, &HERE, there.port(), b"hello");
    assert_eq!(other.receive(), (there, b"hello".to_vec()));
    flood.join().unwrap();
}

/// A resolver for one name.
fn name_server() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut question) {
            // One question, without the records behind it; answered with one address.
            let end = 12 + question[12..len].iter().position(|byte| *byte == 0).unwrap() + 5;
            let mut answer = question[..end].to_vec();
            answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 53]);
            let _ = socket.send_to(&answer, from);
        }
    });
    address
}

#[test]
fn dig_is_answered_through_the_bond() {
    if Command::new("dig").arg("-v").output().is_err() {
        println!("skipped: needs dig");
        return;
    }
    let there = name_server();
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[]);
    bond.client.wait(|report| report.links == 1);
    let association = Association::new(&bond);
    // `dig` speaks no SOCKS5: its datagrams are wrapped here.
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = near.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut question = [0; 512];
        while let Ok((len, from)) = near.recv_from(&mut question) {
            association.send(0, &HERE, there.port(), &question[..len]);
            let _ = near.send_to(&association.receive().1, from);
        }
    });
    let mut dig = Command::new("dig");
    dig.args(["@127.0.0.1", "-p", &port.to_string(), "+short", "+time=10", "+tries=1"]);
    let answer = dig.arg("bond.test").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer.stdout), "192.0.2.53\n", "{answer:?}");
}
