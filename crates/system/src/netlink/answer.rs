//! The answer to requests, collected from the datagrams that carry it.
//!
//! ```text
//! change:  request 7 (ACK)             ─► ack 7
//! get:     request 8 (ACK)             ─► object 8, ack 8
//! dump:    request 9 (DUMP)            ─► object 9, object 9, … done 9
//! batch:   requests 10, 11 (ACK), 12   ─► ack 11
//! ```
//!
//! An answer is over when each request is acknowledged or done that should be, or one is refused. Messages
//! with other sequence numbers are skipped: they belong to a request that was given up.

use super::error::NetlinkError;
use super::limits::MAX_MESSAGES;
use super::reply::{Content, Reply, replies};

/// An answer as far as it has come.
#[derive(Debug)]
pub struct Answer {
    /// The sequence numbers of the requests: the first one, and how many there are.
    first: u32,
    requests: u32,
    /// How many requests have not been acknowledged yet.
    due: u32,
    messages: usize,
    was_interrupted: bool,
    refused: Option<NetlinkError>,
}

impl Answer {
    /// Nothing has come yet of the answer to `requests` requests from `first` on, of which `acks` are to be
    /// acknowledged.
    #[must_use]
    pub fn new(first: u32, requests: u32, acks: u32) -> Self {
        Self { first, requests, due: acks, messages: 0, was_interrupted: false, refused: None }
    }

    /// Takes in a datagram, and hands out the types and bodies of the objects in it.
    ///
    /// # Errors
    /// [`NetlinkError::Malformed`], [`NetlinkError::Overrun`] and [`NetlinkError::Endless`]; the answer cannot
    /// be completed then.
    pub fn on_datagram(
        &mut self,
        datagram: &[u8],
        mut on_object: impl FnMut(u16, &[u8]),
    ) -> Result<(), NetlinkError> {
        // An empty datagram counts as well.
        self.count()?;
        for reply in replies(datagram) {
            self.count()?;
            let Reply { seq, is_interrupted, content } = reply?;
            if seq.wrapping_sub(self.first) >= self.requests {
                continue;
            }
            self.was_interrupted |= is_interrupted;
            match content {
                Content::Message { kind, body } if !self.is_over() => on_object(kind, body),
                Content::Done { text } => {
                    self.due = self.due.saturating_sub(1);
                    if let Some(text) = text {
                        tracing::debug!("the kernel warns: {text}");
                    }
                }
                Content::Refused { errno, text, .. } => {
                    let text = text.map(str::to_owned);
                    self.refused.get_or_insert(NetlinkError::Refused { errno, text });
                }
                Content::Overrun => return Err(NetlinkError::Overrun),
                Content::Message { .. } | Content::Nothing => {}
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), NetlinkError> {
        self.messages += 1;
        if self.messages > MAX_MESSAGES { Err(NetlinkError::Endless) } else { Ok(()) }
    }

    /// Whether nothing more has to come.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.due == 0 || self.refused.is_some()
    }

    /// Whether the listed objects changed meanwhile.
    #[must_use]
    pub fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// The first error, if a request was refused.
    ///
    /// # Errors
    /// [`NetlinkError::Refused`].
    pub fn result(self) -> Result<(), NetlinkError> {
        self.refused.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};

    use super::*;
    use crate::netlink::Requests;

    const OBJECT: u16 = 28;

    fn message(kind: u16, flags: u16, seq: u32, body: &[u8]) -> Vec<u8> {
        let mut requests = Requests::default();
        requests.push(kind, flags, |put| _ = put.raw(body));
        requests.stamp(seq);
        requests.bytes().to_vec()
    }

    fn object(seq: u32, byte: u8) -> Vec<u8> {
        message(OBJECT, 0, seq, &[byte; 4])
    }

    fn verdict(seq: u32, errno: i32) -> Vec<u8> {
        message(NLMSG_ERROR, 0, seq, &[&(-errno).to_ne_bytes()[..], &[0; 16]].concat())
    }

    fn done(seq: u32) -> Vec<u8> {
        message(NLMSG_DONE, 0, seq, &[0; 4])
    }

    /// The objects of an answer to request 7, up to its end or the first error.
    fn objects(datagrams: &[Vec<u8>]) -> (Vec<u8>, Result<Answer, NetlinkError>) {
        let (mut answer, mut found) = (Answer::new(7, 1, 1), Vec::new());
        for datagram in datagrams {
            assert!(!answer.is_over(), "it ends too early");
            if let Err(error) = answer.on_datagram(datagram, |_, body| found.push(body[0])) {
                return (found, Err(error));
            }
        }
        (found, Ok(answer))
    }

    #[test]
    fn a_list_is_complete_with_its_last_part() {
        let parts = [[object(7, 1), object(7, 2)].concat(), object(7, 3), done(7)];
        let (found, answer) = objects(&parts);
        let answer = answer.unwrap();
        assert_eq!(found, [1, 2, 3]);
        assert!(answer.is_over() && !answer.was_interrupted());
        answer.result().unwrap();
        let (_, unfinished) = objects(&parts[..2]);
        assert!(!unfinished.unwrap().is_over());
    }

    #[test]
    fn messages_with_another_sequence_number_are_skipped() {
        let late = [object(6, 9), verdict(6, 22), done(6)].concat();
        let (found, answer) = objects(&[late, object(7, 1), verdict(8, 22), verdict(7, 0)]);
        assert_eq!(found, [1]);
        answer.unwrap().result().unwrap();
    }

    #[test]
    fn a_change_during_a_list_is_noticed_in_any_part_of_it() {
        for parts in [
            [message(OBJECT, NLM_F_DUMP_INTR, 7, &[1; 4]), done(7)],
            [object(7, 1), message(NLMSG_DONE, NLM_F_DUMP_INTR, 7, &[0; 4])],
        ] {
            assert!(objects(&parts).1.unwrap().was_interrupted());
        }
    }

    #[test]
    fn an_answer_without_an_end_is_given_up_in_bounded_work() {
        let (found, answer) = objects(&vec![object(7, 1).repeat(1000); 100]);
        assert!(matches!(answer, Err(NetlinkError::Endless)), "{answer:?}");
        assert!(found.len() <= MAX_MESSAGES);
        for endless in [Vec::new(), object(6, 1)] {
            let (found, answer) = objects(&vec![endless; MAX_MESSAGES + 1]);
            assert!(matches!(answer, Err(NetlinkError::Endless)), "{answer:?}");
            assert_eq!(found, []);
        }
    }

    #[test]
    fn cut_and_lost_messages_are_errors() {
        let whole = verdict(7, 0);
        for len in 1..whole.len() {
            let (_, answer) = objects(&[[object(7, 1), whole[..len].to_vec()].concat()]);
            assert!(matches!(answer, Err(NetlinkError::Malformed(_))), "{len}: {answer:?}");
        }
        let (_, answer) = objects(&[message(NLMSG_OVERRUN, 0, 7, &[])]);
        assert!(matches!(answer, Err(NetlinkError::Overrun)), "{answer:?}");
    }

    #[test]
    fn a_batch_is_over_with_all_its_acks_or_its_first_error() {
        let mut done = Answer::new(u32::MAX, 4, 2);
        let mut take = |datagram: Vec<u8>| {
            done.on_datagram(&datagram, |_, _| ()).unwrap();
            done.is_over()
        };
        assert!(!take(verdict(0, 0)));
        assert!(take(verdict(1, 0)));
        let mut refused = Answer::new(7, 4, 2);
        refused.on_datagram(&[verdict(8, 17), verdict(9, 1)].concat(), |_, _| ()).unwrap();
        assert!(refused.is_over());
        assert_eq!(refused.result().unwrap_err().errno(), Some(17));
    }
}
