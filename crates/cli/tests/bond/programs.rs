//! Third-party programs that use the client as their proxy, and bad destinations.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use super::common::{assert_succeeded, text};
use super::net::{Net, SERVER, SERVER_6, can_run, made_up};

/// Answers any request of HTTP.
fn http(stream: TcpStream) {
    let mut lines = BufReader::new(&stream).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let _ = (&stream).write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello");
}

/// Runs `curl`; `None` if the program is missing.
fn curl(net: &Net, arguments: &str) -> Option<std::process::Output> {
    let mut command = net.command("c", "curl");
    command.args(["--silent", "--show-error", "--max-time", "30"]).args(arguments.split(' '));
    let done = command.output().unwrap();
    // The wrapping command reports a missing program by exit code 127.
    (done.status.code() != Some(127)).then_some(done)
}

#[test]
fn curl_reaches_ipv4_ipv6_and_names_by_connect_and_by_socks() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    let there = [format!("{SERVER}:8000"), format!("[{SERVER_6}]:8000"), "127.0.0.1:8000".into()];
    for at in &there {
        net.serve_at("s", at, http);
    }
    let _server = net.server(&format!("--allow {SERVER}:8000,{SERVER_6}/128,localhost:8000"));
    let _client = net.client("--listen 127.0.0.1:1080");
    for proxy in ["--proxy http://127.0.0.1:1080 --proxytunnel", "--socks5-hostname 127.0.0.1:1080"]
    {
        for host in [SERVER, &format!("[{SERVER_6}]"), "localhost"] {
            // Names that mean this host are else not asked of a proxy.
            let arguments = format!("--noproxy none {proxy} http://{host}:8000/");
            let Some(done) = curl(&net, &arguments) else {
                println!("skipped: needs curl");
                return;
            };
            assert_succeeded(&done);
            assert_eq!(text(&done.stdout), "hello", "{arguments}");
        }
        for (port, why) in [(8001, ["403", "(2)"]), (8002, ["502", "(5)"])] {
            // The first destination is forbidden; no process listens at the other.
            let host = if port == 8001 { SERVER.to_owned() } else { format!("[{SERVER_6}]") };
            let done = curl(&net, &format!("{proxy} http://{host}:{port}/")).unwrap();
            let said = text(&done.stderr);
            assert!(!done.status.success() && why.iter().any(|why| said.contains(why)), "{said}");
        }
    }
}

/// Answers questions for names: `inside.test` is the server's own host, and `rebind.test` a public
/// address at first, and that host from the second question on.
fn names(socket: &UdpSocket) {
    let mut rebinds = 0;
    let mut question = [0; 512];
    while let Ok((len, from)) = socket.recv_from(&mut question) {
        let question = &question[..len];
        let is_of = |name: &[u8]| question.windows(name.len()).any(|window| window == name);
        // The kind stands before the class, at the end of the question: an address of IPv4?
        let mut labels = &question[12..];
        while labels[0] > 0 {
            labels = &labels[1 + usize::from(labels[0])..];
        }
        let is_a = labels[1..3] == [0, 1];
        let address = if is_of(b"rebind") && is_a {
            rebinds += 1;
            if rebinds == 1 { [93, 184, 216, 34] } else { [10, 79, 9, 9] }
        } else {
            [10, 79, 9, 9]
        };
        let question_len = question.len() - labels.len() + 5;
        let mut answer = question[..question_len].to_vec();
        answer[2..12].copy_from_slice(&[0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0]);
        if is_a {
            // Its name is the one at byte 12; class IN, no time to live.
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            answer.extend(address);
        }
        let _ = socket.send_to(&answer, from);
    }
}

#[test]
fn no_name_and_no_address_of_its_own_leads_into_the_servers_host() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    let socket = net.within("s", || UdpSocket::bind((Ipv4Addr::LOCALHOST, 53)).unwrap());
    thread::spawn(move || names(&socket));
    // A public one of its own.
    net.ip("s", "addr add 93.184.216.35/32 dev lo");
    net.serve_at("s", "0.0.0.0:8000", http);
    let _server = net.server_with_names("127.0.0.1", "");
    let _client = net.client("--listen 127.0.0.1:1080");
    let status = |target: &str| {
        let mut program = net.connect_to("127.0.0.1:1080");
        write!(program, "CONNECT {target}:8000 HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        program.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(status("inside.test"), "403");
    assert_eq!(status("93.184.216.35"), "403");
    // There is no route to the public address here; once the name means the host itself, it is
    // forbidden.
    assert_eq!(status("rebind.test"), "502");
    assert_eq!(status("rebind.test"), "403");
}

#[test]
fn without_descriptors_left_programs_wait_and_nothing_spins() {
    if !can_run() {
        return;
    }
    let net = Net::beside([50, 50]);
    net.serve(made_up);
    let _server = net.server("--allow 10.79.9.9:8000");
    let forward = "--forward 127.0.0.1:8001=10.79.9.9:8000";
    let client = net.client_with_files(48, &format!("--via v1,v2 {forward}"));
    let programs: Vec<_> = (0..100).map(|_| net.connect()).collect();
    thread::sleep(Duration::from_millis(500));
    let before = client.worked();
    thread::sleep(Duration::from_secs(1));
    let worked = client.worked() - before;
    assert!(worked < Duration::from_millis(500), "{worked:?} of a second");
    drop(programs);
    super::download(net.connect(), 10_000);
}
