use super::*;
use alloc::string::ToString;
use core::net::IpAddr;
use proptest::prelude::*;

fn header(protocol: u8, source: (&str, u16), destination: (&str, u16)) -> Header {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let ends = FlowKey::between(address(source.0), address(destination.0), protocol);
    let flow = FlowKey { source_port: source.1, destination_port: destination.1, ..ends };
    Header { flow, ..Header::default() }
}

#[test]
fn each_test_looks_at_its_part_of_the_header() {
    let udp = header(FlowKey::UDP, ("10.1.2.3", 5000), ("fd00::7", 53));
    let tcp = header(FlowKey::TCP, ("192.0.2.1", 1), ("192.0.2.2", 2));
    let holds = |text: &str, header: &Header| text.parse::<Match>().unwrap().holds(header);
    for (text, of_udp, of_tcp) in [
        ("any", true, true),
        ("udp", true, false),
        ("tcp", false, true),
        ("proto=17,132", true, false),
        ("proto=tcp", false, true),
        ("port=53", true, false),
        ("port=1-4,54-60", false, true),
        ("sport=53", false, false),
        ("dport=53", true, false),
        ("sport!=5000", false, true),
        ("src=10.0.0.0/8", true, false),
        ("dst=10.0.0.0/8", false, false),
        ("host=fd00::/16", true, false),
        ("host=192.0.2.2", false, true),
        ("src=0.0.0.0/0", true, true),
        ("dst=0.0.0.0/0", false, true),
        ("update", false, false),
        ("dscp=0", true, true),
        ("udp and dport=50-60 and src=10.0.0.0/8", true, false),
        ("udp and not dport=53 or tcp", false, true),
        ("not (udp or tcp)", false, false),
    ] {
        assert_eq!((holds(text, &udp), holds(text, &tcp)), (of_udp, of_tcp), "{text}");
    }
    let marked = Header { dscp: 46, is_update: true, ..tcp };
    assert!(holds("dscp=EF", &marked) && holds("dscp=46", &marked) && holds("update", &marked));
    assert!(!holds("dscp=CS5,AF41,le", &marked));
}

#[test]
fn code_points_have_their_names() {
    for (name, number) in
        [("EF", 46), ("ef", 46), ("CS0", 0), ("CS7", 56), ("AF11", 10), ("AF43", 38), ("VA", 44)]
    {
        let expected = alloc::format!("dscp={number}");
        let read = alloc::format!("dscp={name}").parse::<Match>().unwrap();
        assert_eq!(read.to_string(), expected);
    }
}

#[test]
fn what_cannot_be_read_is_explained() {
    for (text, explanation) in [
        ("", "missing at the end"),
        ("udp and", "missing at the end"),
        ("and udp", "missing before `and`"),
        ("icmp", "`icmp` is not a test; write `any`"),
        ("dscp:46", "`dscp:46` is not a test; write `any`, `udp`, `tcp`, `update`, `dscp=EF`"),
        ("dscp=64", "`64` is not a value of `dscp`; write a number from 0 to 63"),
        ("dscp=", "`` is not a value of `dscp`"),
        ("proto=256", "`256` is not a value of `proto`"),
        ("port=70000", "a number from 0 to 65535, or two"),
        ("port=9-5", "the lower first"),
        ("src=10.0.0.0/33", "`10.0.0.0/33` is not a value of `src`"),
        ("(udp", "a `)` is missing"),
        ("udp tcp", "`tcp` does not belong here; write `and`"),
    ] {
        let message = text.parse::<Match>().unwrap_err().to_string();
        assert!(message.contains(explanation), "{text}: {message}");
    }
    let deep = "(".repeat(10_000);
    assert_eq!(deep.parse::<Match>(), Err(ParseMatchError::TooDeep));
}

fn any_test() -> impl Strategy<Value = Test> {
    let ends = prop::sample::select(&[Ends::Either, Ends::Source, Ends::Destination][..]);
    let ports = (0u16..8, 0u16..8).prop_map(|(a, b)| a.min(b)..=a.max(b));
    let four = (0u8..4, 0u8..=32)
        .prop_map(|(n, len)| Prefix::new([10, 0, 0, n].map_into_v6(), 96 + len).unwrap());
    let six = (0u128..4, 0u8..=128)
        .prop_map(|(n, len)| Prefix::new(Ipv6Addr::from(0xfd00 << 112 | n), len).unwrap());
    prop_oneof![
        Just(Test::Always),
        Just(Test::Update),
        (0u8..20).prop_map(Test::Protocol),
        prop::collection::vec(0u8..64, 1..5).prop_map(|dscps| {
            let with = |set: DscpSet, dscp| set.with(dscp).unwrap();
            Test::Dscp(dscps.into_iter().fold(DscpSet::default(), with))
        }),
        (ends.clone(), prop::collection::vec(ports, 1..4))
            .prop_map(|(ends, ranges)| Test::Port(ends, ranges)),
        (ends, prop::collection::vec(prop_oneof![four, six], 1..3))
            .prop_map(|(ends, prefixes)| Test::Address(ends, prefixes)),
    ]
}

trait IntoV6 {
    fn map_into_v6(self) -> Ipv6Addr;
}

impl IntoV6 for [u8; 4] {
    fn map_into_v6(self) -> Ipv6Addr {
        core::net::Ipv4Addr::from(self).to_ipv6_mapped()
    }
}

pub(in crate::router) fn any_match() -> impl Strategy<Value = Match> {
    any_test().prop_map(Match::Test).prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Match::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Match::All),
            prop::collection::vec(inner, 2..4).prop_map(Match::Any),
        ]
    })
}

pub(in crate::router) fn any_header() -> impl Strategy<Value = Header> {
    let address = prop_oneof![
        (0u8..4).prop_map(|n| [10, 0, 0, n].map_into_v6()),
        (0u128..4).prop_map(|n| Ipv6Addr::from(0xfd00 << 112 | n)),
    ];
    (address.clone(), address, 0u16..8, 0u16..8, 0u8..20, 0u8..64, any::<bool>()).prop_map(
        |(source, destination, source_port, destination_port, protocol, dscp, is_update)| {
            let flow = FlowKey { source, destination, source_port, destination_port, protocol };
            Header { flow, dscp, is_update, ..Header::default() }
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_parses_back(expression in any_match()) {
        prop_assert_eq!(expression.to_string().parse(), Ok(expression));
    }

    #[test]
    fn the_reader_is_total(text in "\\PC{0,40}") {
        let _ = text.parse::<Match>();
    }

    #[test]
    fn alternatives_match_what_the_expression_matches(
        expression in any_match(), header in any_header(),
    ) {
        if let Some(alternatives) = expression.alternatives(1000) {
            let holds = |literals: &Vec<Literal<'_>>| {
                literals.iter().all(|literal| literal.test.holds(&header) == literal.holds)
            };
            prop_assert_eq!(alternatives.iter().any(holds), expression.holds(&header));
        }
    }
}
