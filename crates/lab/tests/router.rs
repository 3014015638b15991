//! Queues of a router in the lab: the packet headers that they see, and the senders' reactions to
//! their marks.

use std::collections::HashSet;

use freshline_core::router::{Ecn, FlowKey, Header, Packet};
use freshline_core::unit::{Span, Time};
use freshline_lab::run::{Metric, run};
use freshline_lab::scenario::{Change, Scenario};

const LINK: &str = r#"
title = "Updates and a stream over one link"
duration = "20s"
warm_up = "5s"

[[link]]
name = "bottleneck"
forward = { rate = "10mbit", delay = "10ms" }
reverse = { delay = "10ms" }

[[flow]]
name = "updates"
path = ["bottleneck"]
dscp = 46
ack_dscp = 10
updates = { law = "fixed", rate = "200/s", payload = "1024B" }

[[flow]]
name = "tcp"
path = ["bottleneck"]
tcp = { control = "cubic" }
"#;

fn scenario(changes: &[&str]) -> Scenario {
    let changes: Vec<_> = changes.iter().map(|change| Change::parse(change).unwrap()).collect();
    Scenario::parse_with(LINK, &changes).unwrap()
}

fn value(metrics: &[Metric], name: &str, of: &str) -> f64 {
    let found = metrics.iter().find(|metric| metric.name == name && metric.of == of);
    found.unwrap_or_else(|| panic!("no {name} of {of}")).value
}

fn measured(changes: &[&str]) -> impl Fn(&str, &str) -> f64 + use<> {
    let metrics = run(&scenario(changes), || {}).unwrap();
    move |name, of| value(&metrics, name, of)
}

/// The headers of all packets that leave the bottleneck in either direction.
fn headers(changes: &[&str]) -> Vec<Header> {
    let mut built = scenario(changes).build(0).unwrap();
    let mut seen = Vec::new();
    built
        .world
        .run_watched(Time::ZERO + Span::from_secs(3), |left| seen.push(left.parcel.header()));
    seen
}

#[test]
fn a_queue_sees_whose_a_packet_is_and_how_it_is_marked() {
    let seen = headers(&[]);
    let kinds: HashSet<_> =
        seen.iter().map(|header| (header.flow.protocol, header.dscp, header.is_update)).collect();
    let update = (FlowKey::UDP, 46, true);
    let ack = (FlowKey::UDP, 10, false);
    let segment = (FlowKey::TCP, 0, false);
    assert_eq!(kinds, HashSet::from([update, ack, segment]));
    let keys: HashSet<_> = seen.iter().map(|header| header.flow).collect();
    assert_eq!(keys.len(), 4, "two flows, each with a reverse flow: {keys:?}");
    for key in &keys {
        let answers = FlowKey {
            source: key.destination,
            destination: key.source,
            source_port: key.destination_port,
            destination_port: key.source_port,
            protocol: key.protocol,
        };
        assert!(keys.contains(&answers), "{key:?}");
    }
}

#[test]
fn only_data_of_senders_that_take_part_may_be_marked() {
    let capable = |changes: &[&str]| {
        let seen = headers(changes);
        let capable = seen.into_iter().filter(|header| header.ecn == Ecn::Capable);
        capable
            .map(|header| (header.flow.protocol, header.flow.source_port))
            .collect::<HashSet<_>>()
    };
    let data = HashSet::from([(FlowKey::TCP, 40_000)]);
    assert_eq!(capable(&[]), HashSet::new());
    assert_eq!(capable(&["flow.tcp.tcp.ecn=true"]), data);
    assert_eq!(capable(&["flow.tcp.tcp.control=dctcp"]), data);
}

/// RED that strikes all above a threshold of 30 kB, and so does not let bursts pass for long.
const RED: &str = r#"link.bottleneck.forward.queue={ discipline = "red", limit = "1MB", min = "30kB", max = "35kB", max_probability = 1.0, ecn = true }"#;

#[test]
fn marks_reach_dctcp_which_keeps_the_queue_at_the_threshold_without_losses() {
    let cubic = measured(&[RED]);
    let dctcp = measured(&[RED, "flow.tcp.tcp.control=dctcp"]);
    assert!(cubic("retransmitted", "tcp") > 0.0);
    assert_eq!(dctcp("retransmitted", "tcp"), 0.0);
    let goodputs = (dctcp("goodput", "tcp"), cubic("goodput", "tcp"));
    assert!(goodputs.0 > goodputs.1, "{goodputs:?}");
    let sojourn = dctcp("sojourn_mean", "bottleneck");
    // 30 to 35 kB take 24 to 28 ms.
    assert!((0.015..0.035).contains(&sojourn), "{sojourn}");
}

#[test]
fn marks_reach_laws_that_answer_them_as_losses() {
    for control in ["reno", "cubic"] {
        let control = format!("flow.tcp.tcp.control={control}");
        let marked = measured(&[RED, &control, "flow.tcp.tcp.ecn=true"]);
        assert_eq!(marked("retransmitted", "tcp"), 0.0, "{control}");
        assert!(marked("sojourn_mean", "bottleneck") < 0.035, "{control}");
        assert!(marked("goodput", "tcp") > 5e6, "{control}");
    }
}

#[test]
fn a_queue_by_its_name_serves_updates_afresh() {
    let queue = |name: &str| measured(&[&format!("link.bottleneck.forward.queue={name}")]);
    let (fifo, ifc) = (queue("1000p"), queue("ifc"));
    let ages = (ifc("age_mean", "updates"), fifo("age_mean", "updates"));
    assert!(ages.0 < 0.015 && ages.1 > 0.1, "{ages:?}");
    let goodputs = (ifc("goodput", "tcp"), fifo("goodput", "tcp"));
    assert!(goodputs.0 > 0.95 * goodputs.1, "{goodputs:?}");
}

#[test]
fn streams_beside_updates_have_the_queueing_delay_of_fq_codel() {
    let queue = |name: &str| measured(&[&format!("link.bottleneck.forward.queue={name}")]);
    let (fq_codel, ifc) = (queue("fq_codel"), queue("ifc"));
    let papers = queue(r#"{ discipline = "ifc", drop_averse = "fifo" }"#);
    // 20 ms are propagation. The paper's FIFO holds 1000 packets: 1.2 s.
    let [fq_codel_s, ifc_s, papers_s] = [&fq_codel, &ifc, &papers].map(|of| of("rtt_p95", "tcp"));
    assert!(ifc_s < fq_codel_s * 1.1 && papers_s > 1.0, "{ifc_s} {fq_codel_s} {papers_s}");
    assert!(ifc("goodput", "tcp") > 0.98 * papers("goodput", "tcp"));
    assert!(ifc("age_mean", "updates") < 1.02 * papers("age_mean", "updates"));
}

#[test]
fn a_monitor_that_sends_no_acks_is_as_fresh_and_burdens_no_link() {
    let silent = measured(&["flow.updates.updates.ack=0B", "flow.tcp.count=0"]);
    let answering = measured(&["flow.tcp.count=0"]);
    assert_eq!(silent("age_mean", "updates"), answering("age_mean", "updates"));
    let seen = headers(&["flow.updates.updates.ack=0B", "flow.tcp.count=0"]);
    assert!(seen.iter().all(|header| header.is_update));
    let changes = [
        "flow.updates.updates.ack=0B",
        r#"flow.updates.updates={ law = "acp+d", payload = "9B", ack = "0B" }"#,
    ];
    let changes = changes.map(|change| Change::parse(change).unwrap());
    let refused = Scenario::parse_with(LINK, &changes).unwrap_err().to_string();
    assert!(refused.contains("its law needs acks; give `ack` a size"), "{refused}");
}

#[test]
fn a_law_that_paces_knows_how_large_segments_are() {
    for segment in ["536B", "1448B", "14480B"] {
        let segment = format!("flow.tcp.tcp.segment={segment}");
        let measured = measured(&["flow.tcp.tcp.control=bbr", "flow.updates.count=0", &segment]);
        let goodput = measured("goodput", "tcp");
        assert!(goodput > 7.5e6, "{segment}: {goodput}");
    }
}

/// 20 honest streams, and `liars` more that carry the mark of updates or do not.
fn beside_liars(rule: &str, liars: u32, is_lying: bool) -> (f64, f64) {
    let with_liars = format!(
        "{LINK}\n[[flow]]\nname = \"liar\"\npath = [\"bottleneck\"]\nstart_spread = \"1s\"\n\
         tcp = {{ control = \"cubic\" }}\n"
    );
    let queue = format!(
        "link.bottleneck.forward.queue={{ discipline = \"ifc\", classifier = \"{rule}\" }}"
    );
    let liars = format!("flow.liar.count={liars}");
    let mark = format!("flow.liar.dscp={}", if is_lying { 46 } else { 0 });
    let changes = [
        &queue,
        &liars,
        &mark,
        "flow.updates.updates.payload=200B",
        "flow.tcp.count=20",
        "flow.tcp.start_spread=1s",
    ];
    let changes = changes.map(|change| Change::parse(change).unwrap());
    let metrics = run(&Scenario::parse_with(&*with_liars, &changes).unwrap(), || {}).unwrap();
    (value(&metrics, "goodput", "liar"), value(&metrics, "age_mean", "updates"))
}

#[test]
fn no_stream_gains_by_the_mark_of_updates_and_no_update_is_older_for_it() {
    for liars in [1, 10, 40] {
        let (honest, age_before) = beside_liars("dscp=46", liars, false);
        let (lying, age) = beside_liars("dscp=46", liars, true);
        assert!(lying < 1.05 * honest, "{liars}: {lying} for {honest} bit/s");
        assert!(age < 1.1 * age_before, "{liars}: {age} for {age_before} s");
    }
    // A rule that believes the mark is the paper's, and there it pays.
    let (honest, _) = beside_liars("dscp=46 force", 1, false);
    let (lying, _) = beside_liars("dscp=46 force", 1, true);
    assert!(lying > 1.5 * honest, "{lying} for {honest} bit/s");
}

/// 40 flows of one host that look like updates, 12 Mbit/s in all, with or without the mark: the
/// flood's goodput, and the age of the honest updates.
fn beside_a_flood(isolate: &str, dscp: u8) -> (f64, f64) {
    let with_flood = format!(
        "{LINK}\n[[flow]]\nname = \"flood\"\npath = [\"bottleneck\"]\ncount = 40\none_host = true\n\
         start_spread = \"40ms\"\ndscp = {dscp}\nupdates = {{ law = \"fixed\", rate = \"25/s\", \
         payload = \"1472B\", overhead = \"28B\", ack = \"0B\" }}\n"
    );
    let queue = format!(
        "link.bottleneck.forward.queue={{ discipline = \"ifc\", classifier = \"dscp=46\", \
         aoi = {{ discipline = \"ifil\", isolate = \"{isolate}\" }} }}"
    );
    let changes = [&queue, "flow.updates.updates.payload=200B", "flow.tcp.count=20"];
    let changes = changes.map(|change| Change::parse(change).unwrap());
    let metrics = run(&Scenario::parse_with(&*with_flood, &changes).unwrap(), || {}).unwrap();
    (value(&metrics, "goodput", "flood"), value(&metrics, "age_mean", "updates"))
}

#[test]
fn a_host_with_many_flows_of_updates_does_not_age_those_of_another_host() {
    let (_, unmarked) = beside_a_flood("host", 0);
    let (_, by_host) = beside_a_flood("host", 46);
    let (_, by_flow) = beside_a_flood("flow", 46);
    // The hosts take turns: an honest update waits for one full packet of the flood, and for the
    // share that γ leaves to the other class.
    assert!(by_host < 1.3 * unmarked, "{by_host} for {unmarked} s");
    assert!(by_flow > 1.5 * by_host, "{by_flow} for {by_host} s");
}

#[test]
fn flows_of_one_host_have_one_source_address_and_keys_of_their_own() {
    let seen = headers(&["flow.tcp.count=0", "flow.updates.count=5", "flow.updates.one_host=true"]);
    let keys: HashSet<_> =
        seen.iter().filter(|header| header.is_update).map(|header| header.flow).collect();
    let hosts: HashSet<_> = keys.iter().map(|key| key.source).collect();
    assert_eq!((keys.len(), hosts.len()), (5, 1));
}
