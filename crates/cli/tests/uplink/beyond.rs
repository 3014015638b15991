//! A queue beyond the device, which the device does not show: in the path emulator, in place of a modem.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use serde_json::Value;

use super::common::{FRESHLINE, can_run_with, text};

/// The device's `status` while eight uploads pass a link of 5 Mbit/s, with these options of
/// `attach`.
fn status_during_an_upload(options: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("path.toml");
    fs::write(
        &path,
        "[[forward.hop]]\nrate = \"5mbit\"\ndelay = \"10ms\"\nqueue = \"1000p\"\n\
         [[reverse.hop]]\ndelay = \"10ms\"\n",
    )
    .unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                let mut buffer = [0; 1 << 16];
                while stream.read(&mut buffer).is_ok_and(|length| length > 0) {}
            });
        }
    });
    let folder = folder.path().display();
    let script = format!(
        "{FRESHLINE} uplink attach --dev freshline --foreground {options} 2>{folder}/said & holder=$!; \
         until grep -q controlling {folder}/said; do \
         kill -0 $holder || {{ cat {folder}/said >&2; exit 1; }}; sleep 0.05; done; \
         for i in $(seq 8); do \
         timeout 5 cat /dev/zero >/dev/tcp/$FRESHLINE_HOST/{port} & done; sleep 4; \
         {FRESHLINE} uplink status --json >{folder}/status; kill $holder; wait"
    );
    let done = Command::new(FRESHLINE)
        .args(["emulate", "run"])
        .arg(&path)
        .args(["--", "bash", "-c", &script])
        .output()
        .unwrap();
    let printed = fs::read(format!("{folder}/status")).unwrap_or_default();
    let report: Value = serde_json::from_slice(&printed)
        .unwrap_or_else(|error| panic!("{error}: {} {}", text(&done.stderr), text(&printed)));
    let all = report["attachments"].as_array().unwrap();
    all.iter()
        .find(|one| one["device"] == "freshline" && one["other_namespace"] == false)
        .unwrap()
        .clone()
}

#[test]
#[ignore = "long: measures delays in real time"]
fn a_queue_that_the_device_does_not_show_is_measured_and_shaping_takes_it_away() {
    if !can_run_with(&["/dev/net/tun"]) {
        return;
    }
    let delay = |options| {
        let status = status_during_an_upload(options);
        println!("{options:?}: {} ms, {}", status["unmanaged_delay_ms"], status["lower_queue"]);
        status["unmanaged_delay_ms"].as_f64().unwrap_or_else(|| panic!("{status:#}"))
    };
    let (unshaped, shaped) = (delay(""), delay("--rate 4mbit"));
    assert!(unshaped > 50.0, "{unshaped} ms");
    assert!(shaped < unshaped / 2.0, "{shaped} ms, unshaped {unshaped} ms");
}
