//! Messages from the kernel.

use netlink_packet_core::{
    DoneBuffer, Emitable, ErrorBuffer, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR, NLMSG_DONE,
    NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer, NetlinkHeader, Parseable,
};

use super::attributes::{find, ne_u32};

/// `NLMSG_ALIGNTO`.
const ALIGNMENT: usize = 4;
/// `NLMSGERR_ATTR_MSG`.
const TEXT: u16 = 1;

/// A datagram holds something that is not a whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's answer holds a malformed message")]
pub struct MalformedReply;

/// A message from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// The sequence number of the request that it answers.
    pub seq: u32,
    /// The listed objects changed while the kernel listed them.
    pub is_interrupted: bool,
    /// Its content.
    pub content: Content<'a>,
}

/// The content of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// An object: the type of the message, and all that follows its header.
    Message {
        /// The message's type.
        kind: u16,
        /// All that follows netlink's header.
        body: &'a [u8],
    },
    /// The kernel has completed the request, or the list.
    Done {
        /// A warning.
        text: Option<&'a str>,
    },
    /// The kernel refused the request.
    Refused {
        /// The number of the error, as in `errno.h`.
        errno: i32,
        /// Why.
        text: Option<&'a str>,
        /// The request behind netlink's header; empty where the kernel left it out.
        request: &'a [u8],
    },
    /// The kernel lost messages.
    Overrun,
    /// Neither: to be skipped.
    Nothing,
}

/// The messages of a datagram, up to the first malformed one.
pub fn replies(mut datagram: &[u8]) -> impl Iterator<Item = Result<Reply<'_>, MalformedReply>> {
    std::iter::from_fn(move || {
        if datagram.is_empty() {
            return None;
        }
        let reply = reply(&mut datagram);
        if reply.is_err() {
            datagram = &[];
        }
        Some(reply)
    })
}

fn reply<'a>(datagram: &mut &'a [u8]) -> Result<Reply<'a>, MalformedReply> {
    let message = NetlinkBuffer::new_checked(*datagram).map_err(|_| MalformedReply)?;
    let header = NetlinkHeader::parse(&message).map_err(|_| MalformedReply)?;
    let payload = message.payload();
    let next = aligned(message.length() as usize);
    *datagram = next.and_then(|next| datagram.get(next..)).unwrap_or_default();
    let content = match header.message_type {
        NLMSG_ERROR => of_error(header.flags, payload)?,
        NLMSG_DONE => of_done(header.flags, payload),
        NLMSG_OVERRUN => Content::Overrun,
        NLMSG_NOOP => Content::Nothing,
        kind => Content::Message { kind, body: payload },
    };
    let is_interrupted = header.flags & NLM_F_DUMP_INTR != 0;
    Ok(Reply { seq: header.sequence_number, is_interrupted, content })
}

/// `struct nlmsgerr`: a number, the request's header, with an error also the rest of the request,
/// and attributes. An ack is an error with number 0.
fn of_error(flags: u16, payload: &[u8]) -> Result<Content<'_>, MalformedReply> {
    let error = ErrorBuffer::new_checked(payload).map_err(|_| MalformedReply)?;
    let echo = error.payload();
    let header_len = NetlinkHeader::default().buffer_len();
    let is_capped = flags & NLM_F_CAPPED != 0;
    let request_len = ne_u32(echo).filter(|_| !is_capped).map_or(header_len, |len| len as usize);
    let request = echo.get(header_len..request_len).unwrap_or_default();
    let text = aligned(request_len).and_then(|at| text(flags, echo.get(at..)?));
    Ok(match error.code() {
        None => Content::Done { text },
        Some(code) => Content::Refused { errno: code.get().saturating_abs(), text, request },
    })
}

/// The end of a list, with a number that is 0 or that of an error. Older kernels send no number.
fn of_done(flags: u16, payload: &[u8]) -> Content<'_> {
    let Ok(done) = DoneBuffer::new_checked(payload) else { return Content::Done { text: None } };
    let text = text(flags, done.extended_ack());
    match done.code() {
        0 => Content::Done { text },
        code => Content::Refused { errno: code.saturating_abs(), text, request: &[] },
    }
}

/// The kernel's explanation, if there is one: text with a zero at its end.
fn text(flags: u16, attributes: &[u8]) -> Option<&str> {
    let text = find(attributes, TEXT).filter(|_| flags & NLM_F_ACK_TLVS != 0)?;
    str::from_utf8(text.split(|byte| *byte == 0).next()?).ok().filter(|text| !text.is_empty())
}

fn aligned(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{Requests, encode};

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut requests = Requests::default();
        requests.push(kind, flags, |put| _ = put.raw(body));
        requests.stamp(7);
        requests.bytes().to_vec()
    }

    fn contents(datagram: &[u8]) -> Vec<Result<Content<'_>, MalformedReply>> {
        replies(datagram).map(|reply| reply.map(|reply| reply.content)).collect()
    }

    /// An error of the kernel about a request with this body.
    fn refusal(errno: i32, flags: u16, body: &[u8], text: &str) -> Vec<u8> {
        let request = message(0x1234, 0, body);
        let echoed = if flags & NLM_F_CAPPED == 0 { &request[..] } else { &request[..16] };
        let mut payload = [&(-errno).to_ne_bytes()[..], echoed].concat();
        payload.resize(payload.len().next_multiple_of(4), 0);
        payload.extend(encode(|put| _ = put.put(9, &[1; 4]).text(TEXT, text)));
        message(NLMSG_ERROR, flags, &payload)
    }

    #[test]
    fn an_error_holds_the_kernels_explanation_and_the_request() {
        let refused = |text, request| Content::Refused { errno: 17, text, request };
        let with_text = refusal(17, NLM_F_ACK_TLVS, b"body!", "too much");
        assert_eq!(contents(&with_text), [Ok(refused(Some("too much"), b"body!"))]);
        let capped = refusal(17, NLM_F_ACK_TLVS | NLM_F_CAPPED, b"body!", "too much");
        assert_eq!(contents(&capped), [Ok(refused(Some("too much"), b""))]);
        assert_eq!(contents(&refusal(17, 0, b"body", "no text")), [Ok(refused(None, b"body"))]);
        let ack = refusal(0, NLM_F_ACK_TLVS | NLM_F_CAPPED, b"", "deprecated");
        assert_eq!(contents(&ack), [Ok(Content::Done { text: Some("deprecated") })]);
    }

    #[test]
    fn the_end_of_a_list_may_be_an_error() {
        let end = |number: &[u8]| message(NLMSG_DONE, 0, number);
        assert_eq!(contents(&end(&[0; 4])), [Ok(Content::Done { text: None })]);
        assert_eq!(contents(&end(&[])), [Ok(Content::Done { text: None })]);
        let failed = Content::Refused { errno: 22, text: None, request: &[] };
        assert_eq!(contents(&end(&(-22_i32).to_ne_bytes())), [Ok(failed)]);
    }

    #[test]
    fn messages_end_at_the_first_malformed_one() {
        let whole = message(28, NLM_F_DUMP_INTR, &[1; 5]);
        let expected = Reply {
            seq: 7,
            is_interrupted: true,
            content: Content::Message { kind: 28, body: &[1; 5] },
        };
        assert_eq!(replies(&whole.repeat(2)).collect::<Vec<_>>(), [Ok(expected); 2]);
        // The padding of the last message may be missing.
        for len in 1..whole.len() - 3 {
            assert_eq!(contents(&whole[..len]), [Err(MalformedReply)], "{len}");
        }
        for wrong in [0, 15, 25, 255] {
            let mut bytes = whole.clone();
            bytes[0] = wrong;
            assert_eq!(contents(&bytes), [Err(MalformedReply)], "{wrong}");
        }
        let cut_error = message(NLMSG_ERROR, 0, &[1, 2, 3]);
        assert_eq!(contents(&cut_error), [Err(MalformedReply)]);
    }

    proptest! {
        #[test]
        fn any_bytes_give_replies_within_them(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            byte: u8,
        ) {
            let _ = replies(&bytes).count();
            let mut refused = refusal(2, NLM_F_ACK_TLVS, b"body", "why");
            let len = refused.len();
            refused[at.index(len)] = byte;
            prop_assert!(replies(&refused).count() <= len / 16 + 1);
        }
    }
}
