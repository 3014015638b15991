//! What a queueing discipline says of itself in an answer of rtnetlink (`RTM_NEWQDISC`).

/// Attributes: `TCA_KIND`, `TCA_STATS2`; within that `TCA_STATS_BASIC`, `TCA_STATS_QUEUE`.
const KIND: u16 = 1;
const STATS2: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;
/// The length of a discipline's header, in bytes.
pub(super) const TC_HEADER: usize = 20;

/// What a queue says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// Packets that wait; a super-packet is one.
    pub waiting: u64,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Packets that have left, ever, by segments; it wraps.
    pub left: u32,
    /// Their bytes.
    pub left_bytes: u64,
    /// It is none.
    pub is_noqueue: bool,
}

impl Told {
    /// An empty queue that nothing has left.
    pub(super) const EMPTY: Self =
        Self { waiting: 0, waiting_bytes: 0, left: 0, left_bytes: 0, is_noqueue: false };

    /// Two queues beside each other as one.
    pub(super) fn and(&self, other: &Self) -> Self {
        Self {
            waiting: self.waiting + other.waiting,
            waiting_bytes: self.waiting_bytes + other.waiting_bytes,
            left: self.left.wrapping_add(other.left),
            left_bytes: self.left_bytes.wrapping_add(other.left_bytes),
            is_noqueue: self.is_noqueue && other.is_noqueue,
        }
    }

    /// This one, with `behind` behind it: what left is what left that.
    pub(super) fn followed_by(&self, behind: &Self) -> Self {
        Self {
            waiting: self.waiting + behind.waiting,
            waiting_bytes: self.waiting_bytes + behind.waiting_bytes,
            ..*behind
        }
    }
}

/// Reads a discipline's answer (`RTM_NEWQDISC`) behind the header of its message.
pub fn parse(answer: &[u8]) -> Option<Told> {
    let attributes = answer.get(TC_HEADER..)?;
    let stats = attribute(attributes, STATS2)?;
    let queue = attribute(stats, QUEUE)?;
    let basic = attribute(stats, BASIC)?;
    let number =
        |bytes: &[u8], at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    Some(Told {
        waiting: number(queue, 0)?.into(),
        waiting_bytes: number(queue, 4)?.into(),
        left: number(basic, 8)?,
        left_bytes: u64::from_ne_bytes(basic.get(..8)?.try_into().ok()?),
        is_noqueue: attribute(attributes, KIND).is_some_and(|kind| kind.starts_with(b"noqueue\0")),
    })
}

/// The value of the first attribute of this kind.
pub(super) fn attribute(mut bytes: &[u8], kind: u16) -> Option<&[u8]> {
    /// Flags above the number.
    const NUMBER: u16 = 0x3fff;
    loop {
        let len = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        let found = u16::from_ne_bytes(bytes.get(2..4)?.try_into().ok()?) & NUMBER;
        let value = bytes.get(4..len)?;
        if found == kind {
            return Some(value);
        }
        bytes = bytes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queues_are_added_beside_and_behind_each_other() {
        let told = |waiting, left| Told {
            waiting,
            waiting_bytes: 100 * waiting,
            left,
            left_bytes: 100 * u64::from(left),
            is_noqueue: false,
        };
        assert_eq!(
            told(2, 100).and(&told(5, u32::MAX)),
            Told {
                left_bytes: told(0, 100).left_bytes + told(0, u32::MAX).left_bytes,
                ..told(7, 99)
            }
        );
        assert_eq!(
            told(2, 100).followed_by(&told(5, 90)),
            Told { left_bytes: 9_000, ..told(7, 90) }
        );
    }

    proptest! {
        #[test]
        fn any_answer_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = attribute(&bytes, STATS2);
        }
    }
}
