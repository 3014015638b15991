//! The prepared cases.

use crate::traffic::Flow::{Down, Requests, SlowDown, SmallDown, Udp, Up};
use crate::world::Case;
use crate::world::World::{Cable, Path, Router, Two};

const CASE: Case = Case {
    name: "",
    world: Two,
    flows: &[],
    receive_buffer: None,
    flags: "",
    settle_ms: 3000,
    expected: None,
};

/// Twenty faults.
pub(crate) const FAULTS: &[Case] = &[
    Case {
        name: "upload, 2 Mbit/s, 20 ms, 100 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"2mbit\"\ndelay=\"10ms\"\nqueue=\"100p\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"10ms\"\n",
        ),
        flows: &[Up(1)],
        expected: Some(("router", "up")),
        ..CASE
    },
    Case {
        name: "three uploads, 8 Mbit/s, 60 ms, 200 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"8mbit\"\ndelay=\"30ms\"\nqueue=\"200p\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"30ms\"\n",
        ),
        flows: &[Up(3), Requests(100)],
        expected: Some(("router", "up")),
        ..CASE
    },
    Case {
        name: "upload, 500 kbit/s, 100 ms, 40 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"500kbit\"\ndelay=\"50ms\"\nqueue=\"40p\"\n\
             [[reverse.hop]]\nrate=\"4mbit\"\ndelay=\"50ms\"\n",
        ),
        flows: &[Up(1)],
        expected: Some(("router", "up")),
        ..CASE
    },
    Case {
        name: "download, 4 Mbit/s, 30 ms, 150 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"4mbit\"\ndelay=\"15ms\"\n\
             [[reverse.hop]]\nrate=\"4mbit\"\ndelay=\"15ms\"\nqueue=\"150p\"\n",
        ),
        flows: &[Down(2)],
        expected: Some(("router", "down")),
        ..CASE
    },
    Case {
        name: "download, 10 Mbit/s, 80 ms, 300 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"5mbit\"\ndelay=\"40ms\"\n\
             [[reverse.hop]]\nrate=\"10mbit\"\ndelay=\"40ms\"\nqueue=\"300p\"\n",
        ),
        flows: &[Down(4), Requests(100)],
        expected: Some(("router", "down")),
        ..CASE
    },
    Case {
        name: "download behind an upload, 1 and 10 Mbit/s",
        world: Path(
            "[[forward.hop]]\nrate=\"1mbit\"\ndelay=\"15ms\"\nqueue=\"60p\"\n\
             [[reverse.hop]]\nrate=\"10mbit\"\ndelay=\"15ms\"\nqueue=\"100p\"\n",
        ),
        flows: &[Up(1), Down(1)],
        expected: Some(("router", "up")),
        ..CASE
    },
    Case {
        name: "own TBF of 4 Mbit/s, 24 uploads",
        world: Cable("qdisc root tbf rate 4mbit burst 4kb limit 400kb"),
        flows: &[Up(24)],
        expected: Some(("host", "up")),
        ..CASE
    },
    Case {
        name: "own HTB of 6 Mbit/s, 32 uploads",
        world: Cable(
            "qdisc root handle 1: htb default 10; \
             class parent 1: classid 1:10 htb rate 6mbit ceil 6mbit; \
             qdisc parent 1:10 handle 10: pfifo limit 500",
        ),
        flows: &[Up(32)],
        expected: Some(("host", "up")),
        ..CASE
    },
    Case {
        name: "UDP of 5 Mbit/s into an own TBF of 3",
        world: Cable("qdisc root tbf rate 3mbit burst 4kb limit 100kb"),
        flows: &[Udp(5000), Requests(100)],
        expected: Some(("source", "up")),
        ..CASE
    },
    Case {
        name: "UDP of 3 Mbit/s onto a path of 2",
        world: Path(
            "[[forward.hop]]\nrate=\"2mbit\"\ndelay=\"10ms\"\nqueue=\"100p\"\n\
             [[reverse.hop]]\nrate=\"10mbit\"\ndelay=\"10ms\"\n",
        ),
        flows: &[Udp(3000), Requests(50)],
        expected: Some(("source", "up")),
        ..CASE
    },
    Case {
        name: "upload with 2 % loss, 50 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"20mbit\"\ndelay=\"25ms\"\nloss=0.02\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"25ms\"\n",
        ),
        flows: &[Up(1)],
        expected: Some(("link", "up")),
        ..CASE
    },
    Case {
        name: "download with 3 % loss, 60 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"20mbit\"\ndelay=\"30ms\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"30ms\"\nloss=0.03\n",
        ),
        flows: &[Down(1)],
        expected: Some(("link", "down")),
        ..CASE
    },
    Case {
        name: "requests over 300 ms",
        world: Path("[[forward.hop]]\ndelay=\"150ms\"\n[[reverse.hop]]\ndelay=\"150ms\"\n"),
        flows: &[Requests(100)],
        expected: Some(("path", "both")),
        ..CASE
    },
    Case {
        name: "requests over a satellite, 600 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"2mbit\"\ndelay=\"300ms\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"300ms\"\n",
        ),
        flows: &[Requests(50), Requests(200)],
        expected: Some(("path", "both")),
        ..CASE
    },
    Case {
        name: "another base RTT meanwhile, 30 to 150 ms",
        world: Path(
            "[[forward.hop]]\ndelay=\"15ms\"\nchange=[{ at=\"3500ms\", delay=\"75ms\" }]\n\
             [[reverse.hop]]\ndelay=\"15ms\"\nchange=[{ at=\"3500ms\", delay=\"75ms\" }]\n",
        ),
        flows: &[Requests(20)],
        settle_ms: 2000,
        expected: Some(("path", "both")),
        ..CASE
    },
    Case {
        name: "another next hop meanwhile",
        world: Two,
        flows: &[Requests(50)],
        settle_ms: 1000,
        expected: Some(("path", "both")),
        ..CASE
    },
    Case {
        name: "a program that reads 100 kB/s of a download",
        world: Path(
            "[[forward.hop]]\nrate=\"10mbit\"\ndelay=\"10ms\"\n\
             [[reverse.hop]]\nrate=\"10mbit\"\ndelay=\"10ms\"\nqueue=\"100p\"\n",
        ),
        flows: &[SlowDown(100_000)],
        expected: Some(("receiver", "down")),
        ..CASE
    },
    Case {
        name: "upload into a receive buffer of 16 kB, 80 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"20mbit\"\ndelay=\"40ms\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"40ms\"\n",
        ),
        flows: &[Up(1)],
        receive_buffer: Some(16_384),
        expected: Some(("receiver", "up")),
        ..CASE
    },
    Case {
        name: "upload over Wi-Fi of 6 Mbit/s",
        world: Path(
            "[wlan]\nstandard=\"802.11a\"\nrate=\"6mbit\"\nqueue=\"300p\"\n\
             [[forward.hop]]\ndelay=\"10ms\"\n[[reverse.hop]]\ndelay=\"10ms\"\n",
        ),
        flows: &[Up(2)],
        flags: "--wlan freshline",
        expected: Some(("wlan", "up")),
        ..CASE
    },
    Case {
        name: "a router with a TBF of 5 Mbit/s",
        world: Router("qdisc root tbf rate 5mbit burst 4kb limit 200kb"),
        flows: &[Up(4)],
        expected: Some(("router", "up")),
        ..CASE
    },
];

/// Networks without a fault.
pub(crate) const NO_FAULTS: &[Case] = &[
    Case {
        name: "requests over 20 ms",
        world: Path("[[forward.hop]]\ndelay=\"10ms\"\n[[reverse.hop]]\ndelay=\"10ms\"\n"),
        flows: &[Requests(50)],
        settle_ms: 1000,
        ..CASE
    },
    Case {
        name: "upload of 8 Mbit/s behind FQ-CoDel",
        world: Path(
            "[[forward.hop]]\nrate=\"8mbit\"\ndelay=\"20ms\"\nqueue=\"fq_codel\"\n\
             [[reverse.hop]]\nrate=\"20mbit\"\ndelay=\"20ms\"\n",
        ),
        flows: &[Up(1), Requests(100)],
        ..CASE
    },
    Case {
        name: "download of 8 Mbit/s behind FQ-CoDel",
        world: Path(
            "[[forward.hop]]\nrate=\"20mbit\"\ndelay=\"20ms\"\n\
             [[reverse.hop]]\nrate=\"8mbit\"\ndelay=\"20ms\"\nqueue=\"fq_codel\"\n",
        ),
        flows: &[Down(1), Requests(100)],
        ..CASE
    },
    Case {
        name: "UDP of 1 Mbit/s onto a path of 4",
        world: Path(
            "[[forward.hop]]\nrate=\"4mbit\"\ndelay=\"20ms\"\n[[reverse.hop]]\ndelay=\"20ms\"\n",
        ),
        flows: &[Udp(1000), Requests(50)],
        settle_ms: 1000,
        ..CASE
    },
];

/// Faults with other numbers, which the rules were not made with.
pub(crate) const HELD_OUT: &[Case] = &[
    Case {
        name: "upload, 3 Mbit/s, 140 ms, 90 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"3mbit\"\ndelay=\"70ms\"\nqueue=\"90p\"\n\
             [[reverse.hop]]\nrate=\"30mbit\"\ndelay=\"70ms\"\n",
        ),
        flows: &[Up(2)],
        expected: Some(("router", "up")),
        ..CASE
    },
    Case {
        name: "download, 1.5 Mbit/s, 44 ms, 60 packets",
        world: Path(
            "[[forward.hop]]\nrate=\"1mbit\"\ndelay=\"22ms\"\n\
             [[reverse.hop]]\nrate=\"1500kbit\"\ndelay=\"22ms\"\nqueue=\"60p\"\n",
        ),
        flows: &[Down(1)],
        expected: Some(("router", "down")),
        ..CASE
    },
    Case {
        name: "own TBF of 9 Mbit/s, 40 uploads",
        world: Cable("qdisc root tbf rate 9mbit burst 6kb limit 600kb"),
        flows: &[Up(40)],
        expected: Some(("host", "up")),
        ..CASE
    },
    Case {
        name: "upload with bursts of loss, 110 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"15mbit\"\ndelay=\"55ms\"\nto_bad=0.01\nto_good=0.25\n\
             bad_loss=0.6\n[[reverse.hop]]\nrate=\"15mbit\"\ndelay=\"55ms\"\n",
        ),
        flows: &[Up(1)],
        expected: Some(("link", "up")),
        ..CASE
    },
    Case {
        name: "download into a receive buffer of 24 kB, 120 ms",
        world: Path(
            "[[forward.hop]]\nrate=\"12mbit\"\ndelay=\"60ms\"\n\
             [[reverse.hop]]\nrate=\"12mbit\"\ndelay=\"60ms\"\n",
        ),
        flows: &[SmallDown(24_000)],
        expected: Some(("receiver", "down")),
        ..CASE
    },
];
