//! Both ends of a bond over loopback: requests of programs, rules that forbid, slow readers,
//! strangers.

mod ends;
mod far;
mod hosts;
mod names;
mod servers;
mod slow;
mod udp;
mod vias;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ends::{Bond, LOCALHOST, LOCALHOST_6, Who, assert_echoes, client, echo, nobody, serve, server};
use freshline_net::bond::{BondError, Sending};
use freshline_net::quic::LostReason;
use socket2::{Domain, SockRef, Socket, Type};

#[test]
fn programs_ask_by_connect_and_hear_why_not() {
    let (there, nobody) = (serve(LOCALHOST, echo), nobody());
    let forbidden = serve(LOCALHOST, echo);
    let bond = Bond::new(Sending::default(), &[&there.to_string(), &nobody.to_string()], &[]);
    let (status, stream) = bond.connect(&there.to_string());
    assert_eq!(status, 200);
    assert_echoes(stream);
    assert_eq!(bond.connect(&nobody.to_string()).0, 502);
    assert_eq!(bond.connect(&forbidden.to_string()).0, 403);
    assert_eq!(bond.connect("no-such-name.invalid:80").0, 502);
    assert_eq!(bond.connect("no-port").0, 400);
    assert_eq!(bond.http("GET / HTTP/1.1\r\n\r\n").0, 400);
    assert_eq!(bond.http("GET http://localhost/ HTTP/1.1\r\n\r\n").0, 403);
    assert_eq!(
        bond.http(&format!("CONNECT a:1 HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(8192))).0,
        431
    );
    // Data that a program sends before the answer is delivered after it.
    let early = format!("CONNECT {there} HTTP/1.1\r\n\r\nearly");
    let (status, mut stream) = bond.http(&early);
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).unwrap();
    assert_eq!((status, &heard), (200, b"early"));
}

#[test]
fn programs_ask_by_socks_and_hear_why_not() {
    let (there, there_6, nobody) = (serve(LOCALHOST, echo), serve(LOCALHOST_6, echo), nobody());
    let allow = [there, there_6, nobody].map(|to| to.to_string());
    let bond = Bond::new(Sending::default(), &allow.each_ref().map(String::as_str), &[]);
    for to in [there, there_6] {
        let (reply, stream) = bond.socks(to);
        assert_eq!(reply, 0, "{to}");
        assert_echoes(stream);
    }
    assert_eq!(bond.socks(nobody).0, 5, "refused");
    assert_eq!(bond.socks(serve(LOCALHOST, echo)).0, 2, "forbidden");
    // No route: IPv6's own documentation network is forbidden before that is found out.
    assert_eq!(bond.socks("[2001:db8::1]:80".parse().unwrap()).0, 2);
}

#[test]
fn what_is_near_the_server_is_closed_by_whatever_name() {
    let there = serve(LOCALHOST, echo);
    let bond = Bond::new(Sending::default(), &[], &[]);
    let port = there.port();
    for host in [
        "127.0.0.1",
        "localhost",
        // Names that resolvers take for 127.0.0.1.
        "127.1",
        "2130706433",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "10.0.0.1",
        "169.254.169.254",
    ] {
        assert_eq!(bond.connect(&format!("{host}:{port}")).0, 403, "{host}");
    }
    bond.server.wait(|report| report.streams == 12 && report.streams_refused == 12);
}

#[test]
fn curl_asks_for_http_as_of_any_proxy() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: needs curl");
        return;
    }
    let (tell, told) = channel();
    let there = serve(LOCALHOST, move |mut stream: TcpStream| {
        // The head, and then a body of 5 bytes.
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\nhello") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        tell.send(String::from_utf8(request).unwrap()).unwrap();
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    });
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[]);
    let proxy = format!("http://{}", bond.client.at[0]);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "", "--data", "hello"]);
    let done = curl.args(["--proxy", &proxy, &format!("http://{there}/a?b")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "hi", "{done:?}");
    let request = told.recv().unwrap().to_ascii_lowercase();
    assert!(request.starts_with(&format!("post /a?b http/1.1\r\nhost: {there}\r\n")), "{request}");
    assert!(request.contains("connection: close\r\n") && !request.contains("proxy-"), "{request}");
}

#[test]
fn a_pipelined_request_does_not_reach_the_host_of_the_first() {
    let (tell, told) = channel();
    let there = serve(LOCALHOST, move |mut stream: TcpStream| {
        let (mut said, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            said.extend_from_slice(&piece[..len]);
            // The program sends the rest of the body when it has this.
            if said.ends_with(b"he") || said.ends_with(b"hello") {
                stream.write_all(b"x").unwrap();
            }
        }
        tell.send(String::from_utf8(said).unwrap()).unwrap();
    });
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[]);
    let mut program = bond.program();
    let post = format!("POST http://{there}/ HTTP/1.0\r\nContent-Length: 5\r\n\r\nhe");
    program.write_all(post.as_bytes()).unwrap();
    program.read_exact(&mut [0]).unwrap();
    program.write_all(b"lloGET http://other/ HTTP/1.0\r\nCookie: secret\r\n\r\n").unwrap();
    program.read_exact(&mut [0]).unwrap();
    program.shutdown(Shutdown::Write).unwrap();
    let request = told.recv().unwrap();
    assert!(request.starts_with("POST / HTTP/1.0\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nhello"), "{request}");
}

/// Sends the error that ends its connection.
fn tell_end(mut stream: TcpStream, tell: &Sender<ErrorKind>) {
    stream.write_all(b"x").unwrap();
    let end = stream.read_to_end(&mut Vec::new());
    let _ = tell.send(end.map_or_else(|error| error.kind(), |_| ErrorKind::UnexpectedEof));
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn resets_and_ends_are_passed_on_as_such() {
    let (tell, told) = channel();
    let hears = serve(LOCALHOST, move |stream| tell_end(stream, &tell));
    let resets = serve(LOCALHOST, |mut stream: TcpStream| {
        stream.read_exact(&mut [0]).unwrap();
        reset(stream);
    });
    let allow = [hears, resets].map(|to| to.to_string());
    let bond =
        Bond::new(Sending::default(), &allow.each_ref().map(String::as_str), &[hears, resets]);
    let program = || {
        let mut program = bond.forwarded(0);
        program.read_exact(&mut [0]).unwrap();
        program
    };
    reset(program());
    assert_eq!(told.recv().unwrap(), ErrorKind::ConnectionReset);
    program().shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv().unwrap(), ErrorKind::UnexpectedEof);
    let mut program = bond.forwarded(1);
    program.write_all(b"x").unwrap();
    assert_eq!(program.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    // Nothing is left behind at either end.
    bond.client.wait(|report| report.streams_open == 0);
    bond.server.wait(|report| report.streams_open == 0);
}

/// Little memory, so that little traffic fills it: six stuck streams at most.
fn small() -> Sending {
    Sending { stream_window: 128 * 1024, memory: 1 << 20, ..Sending::default() }
}

/// Sends more than any peer reads.
fn babble(mut stream: TcpStream) {
    while stream.write_all(&[7; 16 * 1024]).is_ok() {}
}

/// A program that asks and does not read.
fn lazy(to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

#[test]
fn many_that_do_not_read_stop_nobody() {
    let (babbler, there) = (serve(LOCALHOST, babble), serve(LOCALHOST, echo));
    let allow = [babbler, there].map(|to| to.to_string());
    let bond = Bond::new(small(), &allow.each_ref().map(String::as_str), &[babbler, there]);
    let lazy: Vec<_> = (0..8).map(|_| lazy(bond.client.at[1])).collect();
    bond.client.wait(|report| report.streams_open == 8);
    // Two of them are given up.
    bond.client.wait(|report| report.streams_open == 6);
    assert_echoes(bond.forwarded(1));
    drop(lazy);
    bond.client.wait(|report| report.streams_open == 0);
    bond.server.wait(|report| report.streams_open == 0);
}

#[test]
fn programs_that_read_slowly_are_not_taken_for_stuck() {
    const TIME: Duration = Duration::from_secs(12);
    let babbler = serve(LOCALHOST, babble);
    let bond = Bond::new(small(), &[&babbler.to_string()], &[babbler]);
    // 80 kB/s: a third of a socket's buffer, at which the poll reports room, lasts ten seconds.
    let slow = (0..8).map(|_| {
        let mut program = bond.forwarded(0);
        thread::spawn(move || {
            let began_at = Instant::now();
            let mut piece = [0; 8 * 1024];
            while began_at.elapsed() < TIME {
                program.read_exact(&mut piece).unwrap();
                thread::sleep(Duration::from_millis(100));
            }
        })
    });
    let slow: Vec<_> = slow.collect();
    let ended = slow.into_iter().filter_map(|program| program.join().err()).count();
    assert_eq!(ended, 0, "streams that were given up");
}

#[test]
fn a_reset_reaches_a_program_that_does_not_read() {
    let listener = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let there = listener.local_addr().unwrap();
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[there]);
    let mut program = lazy(bond.client.at[1]);
    let (mut far, _) = listener.accept().unwrap();
    // Until no socket takes more: the program's, the bond's, and the server's.
    far.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    while far.write(&[7; 256 * 1024]).is_ok() {}
    reset(far);
    bond.client.wait(|report| report.streams_open == 0);
    let end = program.read_to_end(&mut Vec::new());
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_thousand_connections_are_open_at_the_same_time() {
    const MANY: usize = 1000;
    let all = Arc::new(Barrier::new(MANY));
    // No request is answered before all have arrived.
    let there = serve(LOCALHOST, move |mut stream: TcpStream| {
        let mut said = [0; 4];
        stream.read_exact(&mut said).unwrap();
        all.wait();
        stream.write_all(&said).unwrap();
    });
    let bond = Bond::new(Sending::default(), &[&there.to_string()], &[there]);
    let mut streams: Vec<_> = (0..MANY as u32)
        .map(|number| {
            let mut stream = bond.forwarded(0);
            stream.write_all(&number.to_be_bytes()).unwrap();
            stream
        })
        .collect();
    for (number, stream) in streams.iter_mut().enumerate() {
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(u32::from_be_bytes(heard) as usize, number);
    }
}

#[test]
fn strangers_are_refused_at_either_end() {
    let (ours, theirs, others) = (Who::new(), Who::new(), Who::new());
    let server = server(&theirs, &[&ours], Sending::default(), &[]);
    let refused = |ended: Result<(), BondError>| match ended {
        Err(BondError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let unknown = client(&others, theirs.pin(), server.at[0], Sending::default(), &[]);
    let reason = refused(unknown.ended());
    assert!(reason.to_string().contains("does not trust our certificate"), "{reason}");
    let misled = client(&ours, others.pin(), server.at[0], Sending::default(), &[]);
    let reason = refused(misled.ended());
    assert!(matches!(reason, LostReason::Distrusted(_)), "{reason}");
    assert_eq!(server.watcher.report().links, 0);
}

#[test]
fn a_server_takes_64_clients_and_another_one_when_one_has_gone() {
    let (ours, theirs) = (Who::new(), Who::new());
    let server = server(&theirs, &[&ours], Sending::default(), &[]);
    let one = || client(&ours, theirs.pin(), server.at[0], Sending::default(), &[]);
    let mut clients: Vec<_> = (0..64).map(|_| one()).collect();
    server.wait(|report| report.links == 64);
    // It is refused, and comes again.
    let another = one();
    thread::sleep(Duration::from_secs(1));
    assert_eq!((another.watcher.report().links, server.watcher.report().links), (0, 64));
    clients.pop();
    another.wait(|report| report.links == 1);
    server.wait(|report| report.links == 64);
}

#[test]
fn who_says_nothing_and_who_does_not_answer_are_given_up() {
    // A listener whose queue is full does not answer.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::new(LOCALHOST, 0).into()).unwrap();
    silent.listen(0).unwrap();
    let silent_at = silent.local_addr().unwrap().as_socket().unwrap();
    let _first = TcpStream::connect(silent_at).unwrap();
    let bond = Bond::new(Sending::default(), &[&silent_at.to_string()], &[]);
    let mut mute = bond.program();
    let asked = [0, 1].map(|_| {
        let mut program = bond.program();
        write!(program, "CONNECT {silent_at} HTTP/1.1\r\n\r\n").unwrap();
        program
    });
    assert_eq!(mute.read(&mut [0]).unwrap(), 0);
    for mut program in asked {
        let mut answer = String::new();
        program.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    }
}

#[test]
fn programs_wait_for_a_server_that_comes_late() {
    let (ours, theirs) = (Who::new(), Who::new());
    let there = serve(LOCALHOST, echo);
    // Below the ports that the kernel assigns to sockets: no other process takes it before the
    // server does.
    let free = |port: &u16| UdpSocket::bind((LOCALHOST, *port)).is_ok();
    let port = (20_000..30_000).find(free).expect("a free port");
    let at = SocketAddr::new(LOCALHOST, port);
    let client = client(&ours, theirs.pin(), at, Sending::default(), &[there]);
    let mut program = TcpStream::connect(client.at[1]).unwrap();
    program.write_all(b"early").unwrap();
    thread::sleep(Duration::from_millis(500));
    let _server = ends::server_at(at, &theirs, &[&ours], Sending::default(), &[&there.to_string()]);
    let mut heard = [0; 5];
    program.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"early");
}
