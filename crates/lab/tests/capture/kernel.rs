//! The kernel's own TCP, captured by tcpdump, compared with the socket's own statistics.
//!
//! Loopback has no delay, but a receiver that delays its acks by 40 ms makes one, which both the
//! socket and the capture see.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use freshline_lab::capture::{FlowReport, Limits, measure};
use socket2::SockRef;

/// So many that of the socket's first sample, the handshake's, (7/8)^40 is left: half a percent.
const SEGMENTS: usize = 40;
const SIZE: usize = 500;

/// tcpdump at work, if there is one that may capture here.
fn capture(port: u16, file: &Path) -> Option<Child> {
    let mut command = Command::new("tcpdump");
    command.args(["-i", "lo", "-U", "--immediate-mode", "-w"]).arg(file);
    command.arg(format!("tcp port {port}")).stderr(Stdio::piped());
    let mut tcpdump = command.spawn().ok()?;
    let mut lines = BufReader::new(tcpdump.stderr.take()?).lines().map_while(Result::ok);
    if lines.any(|line| line.contains("listening on lo")) {
        return Some(tcpdump);
    }
    let _ = tcpdump.wait();
    None
}

/// The smoothed round trip of the socket with this local port in ms, as `ss` prints it:
/// `… rtt:41.2/1.5 …`.
fn smoothed_rtt_ms(port: u16) -> Option<f64> {
    let filter = format!("sport = :{port}");
    let output = Command::new("ss").args(["-tinH", &filter]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let mut words = text.split_whitespace();
    words.find_map(|word| word.strip_prefix("rtt:")?.split('/').next()?.parse().ok())
}

/// The flow from `port`, once the capture has all of its acks.
fn complete_flow(file: &Path, port: u16) -> FlowReport {
    for _ in 0..500 {
        let report = measure(File::open(file).unwrap(), Limits::default()).report;
        let flow = report.flows.into_iter().find(|flow| flow.from.port() == port);
        if let Some(flow) = flow.filter(|flow| flow.acked_bytes == (SEGMENTS * SIZE) as u64) {
            return flow;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("tcpdump did not write all packets in 5 s");
}

#[test]
fn a_capture_of_kernel_tcp_agrees_with_the_socket() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loopback.pcap");
    let Some(mut tcpdump) = capture(server.port(), &file) else {
        println!(
            "skipped: needs tcpdump and the right to capture; get it with: scripts/setup test"
        );
        return;
    };

    let mut sender = TcpStream::connect(server).unwrap();
    sender.set_nodelay(true).unwrap();
    let (mut receiver, client) = listener.accept().unwrap();
    for _ in 0..SEGMENTS {
        SockRef::from(&receiver).set_tcp_quickack(false).unwrap();
        sender.write_all(&[0; SIZE]).unwrap();
        receiver.read_exact(&mut [0; SIZE]).unwrap();
        // Until the ack, which the kernel sends after 40 ms.
        std::thread::sleep(Duration::from_millis(50));
    }
    let socket_ms = smoothed_rtt_ms(client.port());
    let flow = complete_flow(&file, client.port());
    tcpdump.kill().unwrap();
    tcpdump.wait().unwrap();

    let (rtt, age) = (flow.rtt.unwrap(), flow.age.unwrap());
    println!(
        "capture: rtt {:.2} ms, age {:.2} ms; socket: {socket_ms:?} ms",
        rtt.mean_ms, age.mean_ms
    );
    let expected = rtt.mean_ms + age.inter_delivery_mean_ms / 2.0;
    assert!((0.9..1.1).contains(&(age.mean_ms / expected)), "{age:?}");
    let Some(socket_ms) = socket_ms else {
        println!("skipped in part: needs ss; get it with: scripts/setup test");
        return;
    };
    // The socket weighs its last samples most, and a sample is off by up to a jiffy of 4 ms.
    let ratio = rtt.mean_ms / socket_ms;
    assert!((0.9..1.1).contains(&ratio), "capture {:.2} ms, socket {socket_ms} ms", rtt.mean_ms);
}
