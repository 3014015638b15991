//! The means by which a bond observes the queue of each path's device, in `--every`, metrics and
//! JSON.
//!
//! ```text
//!   upload ─► client ─┬─ v1: tbf, 4 Mbit/s, at most 40 kB ──────────────────────────┬─► server
//!                     └─ v2: no queue (noqueue) ─ emulated bottleneck, 2 Mbit/s ────┘
//! ```

use std::io::Write;
use std::net::TcpStream;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::common::{assert_succeeded, text};
use super::net::{Net, can_run};
use super::{number, number_if};

#[test]
#[ignore = "long: measures rates in real time"]
fn each_path_shows_by_which_means_its_queue_is_seen_with_packets_rate_wait_and_service() {
    if !can_run() {
        return;
    }
    let net = Net::new([4, 4]);
    net.tc("c", "qdisc replace dev v1 root tbf rate 4mbit burst 8k limit 40k");
    net.tc("c", "qdisc del dev v2 root");
    let _bottleneck =
        net.emulated("10.79.2.2:4001", ["rate=2mbit,delay=5ms,queue=20p", "delay=5ms"]);
    net.serve(|mut stream: TcpStream| {
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let _server = net.server("--allow 10.79.9.9:8000");
    let flags = "--via v1,v2@10.79.2.2:4001 --forward 127.0.0.1:8001=10.79.9.9:8000 \
                 --metrics 127.0.0.1:9099 --every 250ms --duration 5s --json";
    let mut client = net.client_of("c", flags);
    let client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1000));
    let mut upload = net.connect();
    let metrics = thread::scope(|scope| {
        // Until the client ends.
        scope.spawn(|| while upload.write_all(&[0; 16 * 1024]).is_ok() {});
        thread::sleep(Duration::from_millis(2500));
        net.metrics()
    });
    let done = client.wait_with_output().unwrap();
    assert_succeeded(&done);
    let report: Value = serde_json::from_slice(&done.stdout).unwrap();
    let said = text(&done.stderr);

    let of = |metric: &str, interface| number(&metrics, &format!("bond_path_{metric}"), interface);
    assert_eq!([of("queue_visible", "v1"), of("queue_visible", "v2")], [1.0, 0.0], "{metrics}");
    assert_eq!(
        [of("queueing_delay_stamped", "v1"), of("queueing_delay_stamped", "v2")],
        [1.0, 1.0],
        "{metrics}"
    );
    for metric in ["bond_path_queue_packets", "bond_path_queueing_delay_seconds"] {
        assert_eq!(number_if(&metrics, metric, "v2"), None, "{metrics}");
    }

    let path = |interface: &str| {
        let mut paths = report["paths"].as_array().unwrap().iter();
        paths.find(|path| path["interface"] == interface).unwrap()
    };
    let (seen, unseen) = (path("v1"), path("v2"));
    println!("seen | {seen}\nseen | {unseen}");
    let value = |name: &str| seen[name].as_f64().unwrap_or_else(|| panic!("no {name}: {seen}"));
    assert_eq!(
        (&seen["queue_source"], &seen["queueing_delay_source"]),
        (&"qdisc".into(), &"stamps".into())
    );
    // 4 Mbit/s are 333 packets/s of 1500 bytes, 400 of 1250.
    assert!((250.0..500.0).contains(&value("queue_rate_pps")), "{seen}");
    let wait = value("queue_packets") / value("queue_rate_pps") * 1e3;
    assert!((value("queueing_delay_ms") - wait).abs() < 0.01, "{seen}");
    // 40 kB are 80 ms of v1; the service time is without them.
    assert!((0.1..100.0).contains(&value("stamped_queueing_delay_ms")), "{seen}");
    assert!(value("service_time_ms") < 40.0, "{seen}");
    // Its bottleneck is beyond the device, and so part of the service time.
    assert_eq!((&unseen["queue_source"], &unseen["queue_packets"]), (&Value::Null, &Value::Null));
    assert!(unseen["service_time_ms"].as_f64().unwrap() > 10.0, "{unseen}");

    let lines = |interface: &str, word: &str| {
        let of_path = said.lines().filter(|line| line.starts_with(interface));
        of_path.filter(|line| line.contains(word)).count()
    };
    assert!(lines("v1", " (qdisc) ") > 2 && lines("v1", " stamped ") > 2, "{said}");
    assert!(lines("v2", "queue not seen") > 2 && lines("v2", " service ") > 2, "{said}");
}
