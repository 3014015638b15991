//! Super-packets of TCP and UDP: unsplit where no hop treats packets one by one, segmented
//! elsewhere, and their packets counted in either case.

use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::AsRawFd;

use nix::sys::socket::{ControlMessage, MsgFlags, SockaddrIn, sendmsg};
use serde_json::Value;

use super::{Bench, can_run, host, packets, report_of, text};

/// Most payload of a segment at an MTU of 1500 bytes: without TCP's timestamps, over IPv4.
const SEGMENT: usize = 1460;

/// Sends random bytes over TCP to this process and checks them: the emulator's report.
fn transfer(path: &str, options: &[&str], address: &str, host: &str, bytes: usize) -> Value {
    let listener = TcpListener::bind(address).unwrap();
    let port = listener.local_addr().unwrap().port();
    let bench = Bench::new(path);
    let sent = bench.file("sent");
    let script = format!(
        "head -c {bytes} /dev/urandom > {sent}; exec 3<>/dev/tcp/${host}/{port}; cat {sent} >&3; \
         read -N 1 <&3"
    );
    let child = bench.command(&[&["--json"], options].concat(), &script).spawn().unwrap();
    let mut stream = listener.accept().unwrap().0;
    let mut received = vec![0; bytes];
    stream.read_exact(&mut received).unwrap();
    stream.write_all(b"x").unwrap();
    let report = report_of(child.wait_with_output().unwrap());
    assert!(received == fs::read(sent).unwrap(), "the bytes are unchanged");
    assert_eq!(report["device_errors"], 0);
    report
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn bytes_of_super_packets_arrive_unchanged_and_their_packets_are_counted() {
    if !can_run() {
        return;
    }
    let bytes = 8_000_000;
    for (address, host) in [("0.0.0.0:0", "FRESHLINE_HOST"), ("[::]:0", "FRESHLINE_HOST6")] {
        for path in ["", "[[forward.hop]]\ndelay = \"2ms\"\n[[forward.hop]]\ndelay = \"1ms\"\n"] {
            let report = transfer(path, &[], address, host, bytes);
            let hop = report["forward"]["hops"].as_array().unwrap().last().unwrap();
            let [packets, arrived] = ["packets_out", "bytes_out"].map(|key| count(&hop[key]));
            assert!(packets >= (bytes / SEGMENT) as u64, "{host}: {packets} packets");
            assert!(arrived <= 1500 * packets, "{host}: {arrived} bytes in {packets} packets");
            assert!(arrived >= bytes as u64 + 40 * packets, "{host}: headers count");
        }
    }
}

#[test]
fn a_hop_with_loss_loses_packets_and_not_super_packets() {
    if !can_run() {
        return;
    }
    let bytes = 4_000_000;
    let path = "[[forward.hop]]\nloss = 0.02\n";
    let report = transfer(path, &[], "0.0.0.0:0", "FRESHLINE_HOST", bytes);
    let hop = &report["forward"]["hops"][0];
    let (arrived, lost) = (count(&hop["packets_in"]), count(&hop["drops"]["loss"]));
    assert!(arrived >= (bytes / SEGMENT) as u64, "{arrived} packets");
    // Five standard deviations of a binomial of 2750 × 0.02.
    assert!(lost.abs_diff(arrived / 50) < 40, "{lost} of {arrived} lost");
}

#[test]
fn a_capture_has_packets_of_the_wire_with_right_checksums() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.pcap");
    let option = format!("--pcap=forward.1={}", file.display());
    let report = transfer("", &[&option], "0.0.0.0:0", "FRESHLINE_HOST", 1_000_000);
    let seen = packets(&fs::read(file).unwrap());
    assert_eq!(seen.len() as u64, count(&report["forward"]["hops"][0]["packets_out"]));
    for (_, packet) in seen {
        assert!(packet.len() <= 1500, "{} bytes", packet.len());
        let (ip, tcp) = packet.split_at(20);
        let len = u16::try_from(tcp.len()).unwrap().to_be_bytes();
        let pseudo = [&ip[12..20], &[0, 6], &len].concat();
        assert_eq!((sum(&[ip]), sum(&[&pseudo, tcp])), (0xffff, 0xffff));
    }
}

/// The sum in one's complement (RFC 1071) of parts, of which only the last may have an odd length.
fn sum(parts: &[&[u8]]) -> u32 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    words.map(word).fold(0, |sum, word| ((sum + word) & 0xffff) + ((sum + word) >> 16))
}

#[test]
fn a_super_packet_of_datagrams_arrives_as_datagrams() {
    if !can_run() {
        return;
    }
    // Whole, and segmented because of the rate.
    for path in ["", "[[reverse.hop]]\nrate = \"50mbit\"\n"] {
        let (socket, port) = host();
        let bench = Bench::new(path);
        let script =
            format!("exec 3<>/dev/udp/$FRESHLINE_HOST/{port}; echo >&3; {{ cat <&3 >&3 & }}");
        let datagrams: Vec<u8> = (0..10).flat_map(|number| [number; 1000]).collect();
        let (done, echoed) = bench.output_after(&["--json"], &script, || {
            let (_, from) = socket.recv_from(&mut [0; 16]).unwrap();
            let std::net::SocketAddr::V4(from) = from else { panic!("{from}") };
            send_segmented(&socket, &datagrams, from);
            let mut one = [0; 2000];
            let mut echo = || {
                let len = socket.recv(&mut one).unwrap();
                one[..len].to_vec()
            };
            (0..10).map(|_| echo()).collect::<Vec<_>>()
        });
        assert_eq!(echoed.concat(), datagrams, "{}", text(&done.stderr));
        let hop = &report_of(done)["reverse"]["hops"][0];
        assert_eq!((count(&hop["packets_in"]), count(&hop["bytes_in"])), (10, 10 * 1028));
    }
}

/// Has the kernel send datagrams of 1000 bytes each as one super-packet.
fn send_segmented(socket: &std::net::UdpSocket, datagrams: &[u8], to: SocketAddrV4) {
    let parts = [IoSlice::new(datagrams)];
    let size = [ControlMessage::UdpGsoSegments(&1000)];
    let to = SockaddrIn::from(to);
    let flags = MsgFlags::empty();
    assert_eq!(sendmsg(socket.as_raw_fd(), &parts, &size, flags, Some(&to)), Ok(datagrams.len()));
}

#[test]
fn the_emulator_has_real_time_priority_and_the_command_has_not() {
    /// `SCHED_FIFO`, and the usual policy.
    const POLICIES: [(&str, u32); 2] = [("on", 1), ("off", 0)];
    if !can_run() {
        return;
    }
    for (choice, expected) in POLICIES {
        let bench = Bench::new("");
        // The policy is field 41 of `stat` (proc(5)).
        let script = "read -ra fields < /proc/self/stat; echo ${fields[40]}; kill -STOP $$";
        let mut child = bench.command(&["--realtime", choice], script).spawn().unwrap();
        let mut policy = [0; 2];
        if child.stdout.as_mut().unwrap().read_exact(&mut policy).is_err() {
            println!("skipped: needs CAP_SYS_NICE");
            child.wait().unwrap();
            return;
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let emulator: u32 = stat.split(' ').nth(40).unwrap().parse().unwrap();
        assert_eq!((emulator, &policy), (expected, b"0\n"), "--realtime {choice}");
    }
}
