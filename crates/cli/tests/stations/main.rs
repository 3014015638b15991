//! The queues of a Wi-Fi device as mac80211 reports them, on a real cfg80211 kernel: in a guest with two
//! simulated radios (`mac80211_hwsim`) in one IBSS.
//!
//! ```text
//!   source ─┬─ wlan0 ─ queue per station (TXQ) ─ air ─ wlan1 ─┬─ monitor
//!           └─ v ────────────────── veth ────────────── v ────┘
//! ```
//!
//! Simulated radios send at once, so that these queues are empty. While wlan0 scans, it is on other
//! channels, and mac80211 keeps the packets for its station: a backlog, of which `iw` reads the same.

// The test itself does not run in the guest.
#[allow(dead_code)]
#[path = "../router_kernel/guest.rs"]
mod guest;
#[path = "../router_kernel/initramfs.rs"]
mod initramfs;
#[path = "../router_kernel/kernel.rs"]
mod kernel;

use serde_json::Value;

/// Kernels for clouds have no cfg80211.
const GUEST: guest::Guest =
    guest::Guest { flavour: "amd64", tools: &["iw"], modules: &["veth", "mac80211_hwsim"] };

const SCRIPT: &str = "
    ip netns add b
    far() { ip netns exec b \"$@\"; }
    iw phy phy1 set netns name b
    ip link add v type veth peer name v netns b
    iw dev wlan0 set type ibss
    far iw dev wlan1 set type ibss
    ip link set wlan0 up
    far ip link set wlan1 up
    # With its BSSID fixed, nothing is looked for first.
    iw dev wlan0 ibss join cell 2412 fixed-freq 02:11:22:33:44:55
    far iw dev wlan1 ibss join cell 2412 fixed-freq 02:11:22:33:44:55
    ip addr add 10.1.0.1/24 dev wlan0
    far ip addr add 10.1.0.2/24 dev wlan1
    ip addr add 10.2.0.1/24 dev v
    far ip addr add 10.2.0.2/24 dev v
    ip link set v up
    far ip link set v up
    far ip link set lo up
    far ip addr add 10.9.9.9/32 dev lo
    ip route add 10.9.9.9/32 via 10.1.0.2 metric 1
    ip route add 10.9.9.9/32 via 10.2.0.2 metric 2
    far freshline monitor udp://0.0.0.0:3775 --insecure --duration 4s >/dev/null 2>&1 &
    sleep 0.5
    freshline source udp://10.9.9.9:3775 --via wlan0,v --scheduler redundant --law fixed \\
        --rate 200/s --size 500B --every 100ms --duration 2s --json 2>/tmp/said >/tmp/json &
    source=$!
    sleep 1
    iw dev wlan0 scan passive >/dev/null 2>&1 &
    wait $source
    # TXQs: a line per traffic identifier, with bytes and packets.
    iw dev wlan0 station dump -v >/tmp/stations
    echo by iw: $(awk '/DTIM/ { on = 0 } on { packets += $3 } /qsz-pkt/ { on = 1 } END { print packets }' \
        /tmp/stations)
    grep wlan0 /tmp/said
    echo report:
    cat /tmp/json";

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn the_backlog_of_a_real_station_is_read_by_nl80211_as_by_iw() {
    let Some(done) = guest::run(SCRIPT) else { return };
    let said = &done.said;
    println!("{said}");
    assert_eq!(done.status, 0, "{}", done.kernel);
    done.assert_clean();
    let (_, report) = said.split_once("report:").unwrap();
    let report: Value = serde_json::from_str(report).unwrap();
    let [wifi, cable] = [0, 1].map(|path| &report["paths"][path]);
    assert_eq!(
        (&wifi["queue_source"], &wifi["queueing_delay_source"]),
        (&"nl80211".into(), &"estimate".into())
    );
    assert_eq!(cable["queue_source"], Value::Null, "a cable between namespaces has no queue");
    assert!(said.contains("queue 0 (nl80211)"), "empty while it sends");
    // The updates that it sent while it scanned: without an answer, and not taken for lost.
    let count = |name: &str| wifi[name].as_u64().unwrap();
    let packets = count("queue_packets");
    assert!((3..=count("sent") - count("acked")).contains(&packets), "{wifi}");
    let kept = said.lines().find_map(|line| line.strip_prefix("by iw: ")).unwrap();
    let kept: u64 = kept.trim().parse().unwrap();
    // Behind those is the word with which the source ends, and perhaps a question for an address.
    assert!((packets..=packets + 3).contains(&kept), "{packets} of {kept}");
}
