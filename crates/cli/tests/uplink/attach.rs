//! The state that `attach`, `detach` and `run` restore, however they end.

use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt::Priority};
use nix::unistd::Pid;
use serde_json::Value;

use super::common::{FRESHLINE, assert_fails, assert_needs_root, assert_succeeded, text, words};
use super::net::{DEVICE, Net, can_run};
use super::promtool;
use super::traffic::{Questions, downloaded, port_of, uploads};

/// A process that holds the program, once it does.
fn held(net: &Net, options: &str) -> Child {
    let mut holder = net.uplink("attach --foreground --dev");
    holder.arg(DEVICE).args(options.split_whitespace()).stderr(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains(DEVICE), "{said}");
    holder
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
}

/// The band of the connection to this port, once there is one, and until it is `bulk`.
fn band_of(net: &Net, port: u16) -> Option<String> {
    let look = || -> Option<Value> {
        let flows = net.status()?["flows"].as_array()?.clone();
        let end = format!(":{port}");
        flows.into_iter().find(|flow| flow["remote"].as_str().unwrap().ends_with(&end))
    };
    let mut band = None;
    for _ in 0..50 {
        band = look().map(|flow| flow["band"].as_str().unwrap().to_owned());
        if band.as_deref() == Some("bulk") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    band
}

#[test]
fn control_stays_until_detached_and_then_nothing_is_left() {
    if !can_run() {
        return;
    }
    for rate in ["", "--rate 10mbit"] {
        let net = Net::new();
        let root = net.root();
        assert_succeeded(&net.on_device("attach", rate));
        assert_fails(&net.on_device("attach", rate), 1, "is under control already");

        let mut questions = Questions::start(&net);
        let uploads = uploads(&net, 1);
        assert_eq!(band_of(&net, port_of(&uploads)).unwrap(), "bulk");
        questions.median_ms(Duration::from_millis(100));
        downloaded(&net);
        let status = net.status().unwrap();
        assert_eq!((&status["pinned"], &status["threshold"]), (&true.into(), &0.5.into()));
        // The packets that A sends for a download are mere acks, except for its opening and closing
        // packets.
        let flows = status["flows"].as_array().unwrap().iter();
        let bands: Vec<_> = flows
            .filter(|flow| flow["packets"].as_u64().unwrap() > 2)
            .map(|flow| flow["band"].as_str().unwrap())
            .collect();
        assert!(bands.len() == 2 && bands.contains(&"urgent"), "{status}");
        for band in status["bands"].as_array().unwrap() {
            let is_used = band["band"] != "batched";
            assert_eq!(band["bytes"].as_u64().unwrap() > 0, is_used, "{status}");
            assert_eq!(band["drops"].is_u64(), !rate.is_empty(), "{status}");
        }

        assert_succeeded(&net.on_device("detach", ""));
        assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root));
        assert_fails(&net.on_device("detach", ""), 1, "nothing is attached to v");
    }
}

#[test]
fn of_many_that_attach_at_once_one_does() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    let attach = |_| {
        let mut command = net.uplink("attach --rate 10mbit --dev");
        command.arg(DEVICE).stderr(Stdio::piped()).spawn().unwrap()
    };
    let all: Vec<_> = (0..4).map(attach).collect();
    let ended: Vec<_> = all.into_iter().map(|one| one.wait_with_output().unwrap()).collect();
    let (attached, refused): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|one| one.status.success());
    assert_eq!(attached.len(), 1);
    refused.iter().for_each(|one| assert_fails(one, 1, "is under control already"));
    assert_eq!((net.pins(), net.status().is_some()), (1, true));
    assert_succeeded(&net.on_device("detach", ""));
    assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root));
}

#[test]
fn what_a_user_has_configured_comes_back() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for root in [
        "pfifo limit 77",
        "handle 5: pfifo_fast",
        "bfifo limit 100000",
        "codel limit 77 target 8ms ecn",
        "fq_codel limit 777 flows 64 quantum 3000 target 8ms ce_threshold 2ms",
        "fq limit 777 flow_limit 20 maxrate 5mbit",
        "sfq limit 77 perturb 10 divisor 512",
        "pie limit 77 target 20ms ecn",
        "fq_pie limit 777 flows 64 target 20ms",
        "cake bandwidth 7mbit diffserv4 overhead 18",
    ] {
        if !net.puts(root) {
            println!("this kernel has no such discipline: {root}");
            continue;
        }
        let before = net.root();
        assert_succeeded(&net.on_device("attach", "--rate 10mbit"));
        assert!(net.root().contains("htb"));
        assert_succeeded(&net.uplink("detach").output().unwrap());
        assert_eq!(net.root(), before);
    }
}

#[test]
fn what_could_not_come_back_is_not_touched() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for root in ["tbf rate 10mbit burst 10k limit 1m", "handle 1: htb"] {
        net.tc("a", "qdisc replace", &format!("root {root}"));
        let before = net.root();
        let refused = net.on_device("attach", "--rate 10mbit");
        assert_fails(&refused, 1, "could not be restored afterwards");
        assert_fails(&refused, 1, "attach without --rate");
        // Without its counters.
        let stable = |root: &str| root.split(" refcnt").next().map(str::to_owned);
        assert_eq!((stable(&net.root()), net.pins()), (stable(&before), 0));
    }
}

#[test]
fn a_killed_holder_takes_its_program_along_and_the_next_command_its_shaper() {
    if !can_run() {
        return;
    }
    for rate in ["", "--rate 10mbit"] {
        let net = Net::new();
        let root = net.root();
        let mut holder = held(&net, rate);
        assert_eq!(net.status().unwrap()["pinned"], false);
        assert_fails(&net.on_device("attach", ""), 1, "is under control already");
        assert_fails(&net.on_device("detach", ""), 1, "if a process holds it");
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert_eq!(net.status(), None);
        downloaded(&net);
        assert_succeeded(&net.on_device("detach", ""));
        assert_eq!((net.root(), net.pins()), (root.clone(), 0));

        let mut holder = held(&net, rate);
        holder.kill().unwrap();
        holder.wait().unwrap();
        let mut next = held(&net, "");
        assert_eq!(net.root(), root);
        signal(&next, Signal::SIGTERM);
        assert!(next.wait().unwrap().success());
        assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root));
    }
}

#[test]
fn a_device_that_vanishes_leaves_nothing_that_is_in_the_way() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let vanish = || {
        assert_succeeded(&net.on_device("attach", "--rate 10mbit"));
        net.ip("a", &format!("link del {DEVICE}"));
        assert_eq!(net.status(), None);
    };
    vanish();
    assert_succeeded(&net.on_device("detach", ""));
    assert_eq!(net.pins(), 0);
    assert_fails(
        &net.on_device("detach", ""),
        2,
        "there is no network device v in this network namespace",
    );

    net.connect();
    vanish();
    net.connect();
    assert_succeeded(&net.on_device("attach", ""));
    assert_eq!(net.pins(), 1);

    let mut holder = {
        assert_succeeded(&net.on_device("detach", ""));
        held(&net, "--rate 10mbit")
    };
    net.ip("a", &format!("link del {DEVICE}"));
    signal(&holder, Signal::SIGTERM);
    assert!(holder.wait().unwrap().success());
    assert_eq!(net.pins(), 0);
}

/// The connection of a process, or why it makes none.
fn accepted(listener: &TcpListener, of: &mut Child) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((connection, _)) => return connection,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        let ended = of.try_wait().unwrap();
        assert!(ended.is_none(), "it has ended, {}, and has not connected", ended.unwrap());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_runs_with_its_own_uploads_alone_in_the_bulk_band() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let root = net.root();
    let listener = net.within("b", || TcpListener::bind("10.78.0.2:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 3<>/dev/tcp/10.78.0.2/{port}; cat /dev/zero >&3");
    let mut run = net.uplink("run --rate 10mbit --dev");
    let mut run = run.args([DEVICE, "--", "bash", "-c", &script]).spawn().unwrap();
    // A peer that reads nothing lets the send buffer fill.
    let _connection = accepted(&listener, &mut run);
    let others = uploads(&net, 1);
    assert_eq!(band_of(&net, port).unwrap(), "bulk");
    assert_eq!(band_of(&net, port_of(&others)).unwrap(), "urgent");
    assert_eq!(net.status().unwrap()["confined"], true);
    signal(&run, Signal::SIGTERM);
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15));
    assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root.clone()));

    let mut none = net.uplink("run --rate 10mbit --dev");
    let none = none.args([DEVICE, "--", "/no/such/command"]).output().unwrap();
    assert_fails(&none, 1, "cannot run `/no/such/command`");
    assert_eq!((net.status(), net.pins(), net.root()), (None, 0, root));
}

#[test]
fn a_shaper_that_somebody_has_replaced_is_not_told_as_ours_and_what_is_there_stays() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    assert_succeeded(&net.on_device("attach", "--rate 10mbit"));
    assert_eq!(net.status().unwrap()["rate_bps"], 10_000_000);
    net.tc("a", "qdisc replace", "root pfifo limit 77");
    let root = net.root();
    let status = net.status().unwrap();
    assert_eq!((&status["replaced"], &status["rate_bps"]), (&true.into(), &Value::Null));
    assert!(status["bands"][0]["backlog_bytes"].is_null(), "{status}");
    let told = text(&net.uplink("status").output().unwrap().stdout);
    assert!(told.starts_with("v, shaper replaced\n"), "{told}");
    assert_succeeded(&net.on_device("detach", ""));
    assert_eq!((net.pins(), net.root()), (0, root));
}

#[test]
fn priorities_that_programs_have_set_stay() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    // A user's own classes: packets choose them by their priorities.
    net.tc("a", "qdisc replace", "root handle 1: htb default 10");
    for class in ["10", "20"] {
        net.tc("a", "class add", &format!("parent 1: classid 1:{class} htb rate 100mbit"));
    }
    let packets_of_20 = || -> u64 {
        let all = net.tc("a", "-s class show", "");
        let mut lines = all.lines().skip_while(|line| !line.contains("htb 1:20 "));
        // Such as: Sent 1420 bytes 10 pkt (dropped 0, overlimits 0 requeues 0)
        let sent = lines.find(|line| line.contains("Sent ")).unwrap();
        sent.split_whitespace().nth(3).unwrap().parse().unwrap()
    };
    assert_succeeded(&net.on_device("attach", ""));
    let socket = net.within("a", || UdpSocket::bind("10.78.0.1:0").unwrap());
    setsockopt(&socket, Priority, &0x0001_0020).unwrap();
    for _ in 0..10 {
        socket.send_to(&[0; 100], "10.78.0.2:9").unwrap();
    }
    assert_eq!(packets_of_20(), 10, "UDP");

    let uploads = uploads(&net, 1);
    setsockopt(&uploads.ends[0], Priority, &0x0001_0020).unwrap();
    assert_eq!(band_of(&net, port_of(&uploads)).unwrap(), "bulk");
    let before = packets_of_20();
    thread::sleep(Duration::from_millis(300));
    assert!(packets_of_20() > before, "a bulk stream of a class of its own");
    assert_succeeded(&net.on_device("detach", ""));
}

#[test]
fn it_says_who_serves_the_bands() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for (root, options, who) in [
        ("pfifo_fast", "", "in the bands of its pfifo_fast"),
        ("pfifo", "", "its pfifo has no bands: give --rate"),
        ("pfifo", "--rate 1gbit", "in separate bands"),
    ] {
        net.tc("a", "qdisc replace", &format!("root {root}"));
        let done = net.on_device("attach", options);
        assert!(words(&done.stderr).contains(who), "{}", text(&done.stderr));
        assert_succeeded(&net.on_device("detach", ""));
    }
}

#[test]
fn metrics_tell_each_device_of_this_namespace_once() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    assert_succeeded(&net.on_device("attach", "--rate 10mbit"));
    // Of the same name.
    let mut elsewhere = net.command("b", FRESHLINE);
    let elsewhere = elsewhere.args(["uplink", "attach", "--dev", DEVICE, "--rate", "20mbit"]);
    assert_succeeded(&elsewhere.output().unwrap());
    let printed = text(&net.uplink("status --metrics").output().unwrap().stdout);
    let rates: Vec<_> = printed
        .lines()
        .filter(|line| line.starts_with("freshline_uplink_rate_bytes_per_second{"))
        .collect();
    assert_eq!(
        rates,
        ["freshline_uplink_rate_bytes_per_second{device=\"v\"} 1250000.0"],
        "{printed}"
    );
    promtool::check(&printed);
}

#[test]
fn without_root_it_says_what_it_needs() {
    if !can_run() {
        return;
    }
    assert_needs_root(&[
        "uplink attach --dev lo",
        "uplink status",
        "uplink detach",
        "uplink run --dev lo -- true",
    ]);
}

#[test]
fn what_the_kernel_lacks_is_named() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    let script = format!(
        "mount -t tmpfs none /sys/kernel/btf && exec {FRESHLINE} uplink attach --dev {DEVICE}"
    );
    let mut hidden = net.command("a", "unshare");
    let hidden = hidden.args(["--mount", "sh", "-c", &script]).output().unwrap();
    assert_fails(&hidden, 1, "needs BTF");
    let passing = net.exec(FRESHLINE).args(["uplink", "attach", "--dev", DEVICE]).output().unwrap();
    assert_fails(&passing, 1, "is hidden here, as by `ip netns exec`");
}

#[test]
fn wrong_usage_is_told_from_failure() {
    if !can_run() {
        return;
    }
    let net = Net::new();
    for (options, why) in [
        ("--threshold 1.5", "`threshold` is 1.5, which is not above 0 and at most 1"),
        ("--rate 9kbit", "a rate of 9kbit is too slow to shape to; give at least 64kbit"),
        ("--rate fast", "invalid value 'fast'"),
    ] {
        assert_fails(&net.on_device("attach", options), 2, why);
    }
    let missing = net.uplink("attach --dev nowhere").output().unwrap();
    assert_fails(&missing, 2, "there is no network device nowhere in");
    assert_eq!(net.pins(), 0);
}
