//! The memory that all sources of a monitor may hold together.

/// A bound on bytes that several holders share: half-received states, and payloads that are large.
///
/// It is a plain counter: it owns no memory. Each holder remembers how much of it is charged for, and
/// changes that by [`Budget::resize`] alone, before it allocates and after it has freed. A share must be
/// released before its holder is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    limit: usize,
    used: usize,
}

impl Budget {
    /// A budget of `limit` bytes, of which none are used.
    pub const fn new(limit: usize) -> Self {
        Self { limit, used: 0 }
    }

    /// The bound in bytes.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// The bytes charged for, at most the limit.
    pub const fn used(&self) -> usize {
        self.used
    }

    /// The bytes that are left.
    pub const fn free(&self) -> usize {
        self.limit - self.used
    }

    /// Changes the share of a holder from `share` to `wanted` bytes. Returns whether there was room;
    /// otherwise nothing changes. A share can always become smaller.
    #[must_use]
    pub fn resize(&mut self, share: &mut usize, wanted: usize) -> bool {
        debug_assert!(*share <= self.used, "a share of another budget");
        let others = self.used.saturating_sub(*share);
        match others.checked_add(wanted) {
            Some(used) if used <= self.limit || wanted <= *share => {
                self.used = used;
                *share = wanted;
                true
            }
            _ => false,
        }
    }

    /// The holder has freed what it held.
    pub fn release(&mut self, share: &mut usize) {
        self.used = self.used.saturating_sub(core::mem::take(share));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_stay_within_the_limit() {
        let mut budget = Budget::new(100);
        let (mut one, mut other) = (0, 0);
        assert!(budget.resize(&mut one, 60) && budget.resize(&mut other, 40));
        assert_eq!((budget.used(), budget.free()), (100, 0));
        assert!(!budget.resize(&mut one, 61) && !budget.resize(&mut one, usize::MAX));
        assert_eq!((one, budget.used()), (60, 100));
        assert!(budget.resize(&mut one, 10) && budget.resize(&mut other, 90));
        budget.release(&mut other);
        assert_eq!((other, budget.used(), budget.free()), (0, 10, 90));
    }
}
