//! `freshline router attach`, in a guest whose kernel supports queueing disciplines in eBPF.

mod attached;
#[path = "../router/beside.rs"]
mod beside;
mod beside_tcp;
// Tests without control groups do not use all of it.
#[allow(dead_code)]
#[path = "../common/mod.rs"]
mod common;
mod cost;
mod flood;
mod guest;
#[allow(dead_code)]
#[path = "../common/hosts.rs"]
mod hosts;
mod initramfs;
mod kernel;
mod killed;
mod line_rate;
#[allow(dead_code)]
#[path = "../router/net.rs"]
mod net;
#[path = "../common/orphans.rs"]
mod orphans;
#[allow(dead_code)]
#[path = "../router/running.rs"]
mod running;
#[path = "../common/steps.rs"]
mod steps;
mod tags;
mod today;
#[path = "../router/traffic.rs"]
mod traffic;

use attached::{Attached, asked};
use common::{assert_fails, text};
use net::{DEVICE, Net, can_run};
use running::{Router, count};

/// A kernel without drivers for hardware, of which a guest has none.
const GUEST: guest::Guest = guest::Guest {
    flavour: "cloud-amd64",
    tools: &[],
    modules: &[
        "veth",
        "tun",
        "sch_netem",
        "sch_cake",
        "sch_fq",
        "sch_tbf",
        "sch_ingress",
        "cls_bpf",
        "tcp_bbr",
        "nf_tables",
        "nft_queue",
        "nfnetlink_queue",
        "virtio_pci",
        "virtio_net",
    ],
};

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn the_guest_has_what_the_tests_need() {
    let script = "
        uname -r
        freshline --version
        test -e /sys/kernel/btf/vmlinux
        grep -q bpf_struct_ops_Qdisc_ops /sys/kernel/btf/vmlinux && echo Qdisc_ops
        for host in a b; do ip netns add $host; done
        ip link add v netns a type veth peer name v netns b
        for host in a b; do ip -n $host link set dev v up; done
        ip -n a addr add 10.0.0.1/24 dev v
        ip -n b addr add 10.0.0.2/24 dev v
        ip netns exec a ping -q -c 3 -i 0.1 10.0.0.2
        for qdisc in netem fq fq_codel pfifo ingress; do
            test $qdisc = ingress && place= || place=root
            tc -n a qdisc replace dev v $place $qdisc
            tc -n a qdisc show dev v | grep -o \"qdisc $qdisc\"
        done
        cat /proc/net/netfilter/nfnetlink_queue
        cat /proc/sys/net/ipv4/tcp_available_congestion_control
        bpftool prog show
        false";
    let Some(done) = guest::run(script) else { return };
    println!("{}\n{}", done.said, done.kernel);
    assert_eq!(done.status, 1, "the last command's");
    done.assert_clean();
    let wanted =
        ["Qdisc_ops", "3 packets received", "netem", "fq", "fq_codel", "pfifo", "ingress", "bbr"];
    for word in wanted {
        assert!(done.said.contains(word), "no {word}");
    }
}

#[test]
#[ignore = "long: boots a kernel in a guest"]
fn a_device_has_one_router_in_user_space_or_in_the_kernel() {
    if !guest::entered() || !can_run() {
        return;
    }
    const RATE: [&str; 4] = ["--rate", "20mbit", "--classify", "udp force"];
    let net = Net::new();
    let refused = |what: &str, why: &str| assert_fails(&asked(&net, what, &RATE), 1, why);
    let metrics = || text(&asked(&net, "status", &["--metrics"]).stdout);
    let all_came = "freshline_router_class_packets_in_total{device=\"b\",class=\"aoi\"} 10\n";

    let router = Router::start(&net, &RATE);
    refused("attach", "end its process first");
    refused("run", "another `freshline router` shapes b already");
    traffic::send(&net, 100, 10_000..10_010);
    assert!(metrics().contains(all_came), "{}", metrics());
    // Queued packets leave when it ends.
    assert_eq!(count(&router.stop()["classes"][0]["packets_out"]), 10);
    assert_eq!(traffic::arrived_for_nobody(&net), 10);

    let attached = Attached::new(&net, &RATE);
    refused("run", "`freshline router detach --dev b` ends it");
    refused("attach", "under control already");
    // `ip netns exec` hides pins; that there is a router is seen all the same.
    let hidden = net.freshline("r", &["router", "status", "--dev", DEVICE]).output().unwrap();
    assert_fails(&hidden, 1, "is hidden here");
    traffic::send(&net, 100, 10_000..10_010);
    assert!(metrics().contains(all_came), "{}", metrics());
    attached.detach();
    assert_eq!(traffic::arrived_for_nobody(&net), 20);
}
