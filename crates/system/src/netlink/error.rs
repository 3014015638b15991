//! Why a request has failed.

use std::io;
use std::time::Duration;

use super::limits::{MAX_DUMPS, MAX_MESSAGES};
use super::reply::MalformedReply;

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused the request.
    #[error("{}{}", io::Error::from_raw_os_error(*.errno), .text.as_ref().map(|text| format!(": {text}")).unwrap_or_default())]
    Refused {
        /// The number of the error, as in `errno.h`.
        errno: i32,
        /// The kernel's explanation (extended ack).
        text: Option<String>,
    },
    /// The kernel acknowledged the request without the requested object.
    #[error("the kernel's answer does not hold the requested object")]
    Empty,
    /// The kernel did not answer.
    #[error("the kernel did not answer a netlink request within {0:?}")]
    NoAnswer(Duration),
    /// The answer cannot be read.
    #[error(transparent)]
    Malformed(#[from] MalformedReply),
    /// A datagram does not fit into the receive buffer.
    #[error("the kernel's answer has a datagram of {len} bytes; {max} are read at most")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The size of the buffer in bytes.
        max: usize,
    },
    /// The answer does not end.
    #[error("the kernel's answer has more than {MAX_MESSAGES} messages")]
    Endless,
    /// The kernel lost a part of the answer, as the receive buffer of the socket was full.
    #[error("the kernel lost a part of its answer")]
    Overrun,
    /// The listed objects changed during each attempt to list them.
    #[error("the list changed during each of {MAX_DUMPS} attempts to read it; try again")]
    Changed,
    /// A system call on the socket failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl NetlinkError {
    /// The system's number of the error, as in `errno.h`; `None` if the kernel did not refuse
    /// anything.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::System(error) => error.raw_os_error(),
            _ => None,
        }
    }
}

impl From<NetlinkError> for io::Error {
    /// Keeps the kernel's kind of error and its text.
    fn from(error: NetlinkError) -> Self {
        let kind = match &error {
            NetlinkError::Refused { errno, text: None } => return Self::from_raw_os_error(*errno),
            NetlinkError::Refused { errno, .. } => Self::from_raw_os_error(*errno).kind(),
            NetlinkError::Empty => io::ErrorKind::NotFound,
            NetlinkError::NoAnswer(_) => io::ErrorKind::TimedOut,
            NetlinkError::Malformed(_) | NetlinkError::TooLong { .. } | NetlinkError::Endless => {
                io::ErrorKind::InvalidData
            }
            NetlinkError::Overrun | NetlinkError::Changed => io::ErrorKind::ResourceBusy,
            NetlinkError::System(_) => {
                let NetlinkError::System(error) = error else { unreachable!("matched above") };
                return error;
            }
        };
        Self::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_an_error_of_the_system_it_keeps_kind_and_text() {
        let refused = |text: Option<&str>| {
            io::Error::from(NetlinkError::Refused { errno: 17, text: text.map(str::to_owned) })
        };
        assert_eq!(refused(None).raw_os_error(), Some(17));
        let explained = refused(Some("it has one"));
        assert_eq!(explained.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(explained.to_string(), "File exists (os error 17): it has one");
        let of_socket = NetlinkError::System(io::Error::from_raw_os_error(93));
        assert_eq!(of_socket.errno(), Some(93));
        assert_eq!(io::Error::from(of_socket).raw_os_error(), Some(93));
    }
}
