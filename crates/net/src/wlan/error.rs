//! The errors of captures.

use std::io;
use std::path::PathBuf;

/// The reason why a capture fails.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// There is no such interface.
    #[error("there is no interface `{0}`; `ip link` lists the interfaces; or give a capture file")]
    NoInterface(String),
    /// An interface that is not in monitor mode.
    #[error(
        "{0} gives no radiotap headers; make a monitor interface with `iw dev {0} interface add \
         mon0 type monitor` and give that, if the driver offers it"
    )]
    NotMonitor(String),
    /// Not allowed.
    #[error("capturing on {0} needs root, or CAP_NET_RAW")]
    NeedsRoot(String),
    /// The system refused something else.
    #[error("cannot capture on {interface}: {source}")]
    Interface {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
    /// A file that cannot be opened.
    #[error("cannot open the capture {}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file that is no capture.
    #[error("{} is not a pcap or pcapng file", .0.display())]
    Foreign(PathBuf),
    /// A capture without radiotap headers.
    #[error(
        "the capture {} is not from next to the air: its frames are of link type {link}, and \
         radiotap is 127; capture on an interface in monitor mode", file.display()
    )]
    LinkType {
        /// The file.
        file: PathBuf,
        /// Its link type.
        link: i32,
    },
    /// The file ended within a packet, or is damaged.
    #[error("the capture {} is damaged or cut short; the part before that was read", .0.display())]
    Damaged(PathBuf),
}
