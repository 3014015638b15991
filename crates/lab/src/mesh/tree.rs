//! The tree of parents, up to the border router.
//!
//! As in RPL with ETX as its metric (RFC 6550, RFC 6719), each node selects the parent with the
//! minimum expected number of transmissions to the border router, which is 1/(q·q) per link, where
//! q is the fraction of frames, and of acks, that the link delivers. The tree is that of a network
//! at rest, and does not change.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The border router.
pub const ROOT: u32 = 0;

/// A tree of nodes, with the border router at its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// By node; the root is its own parent.
    parents: Vec<u32>,
    depths: Vec<u32>,
}

/// The parents do not form a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// A parent that is out of range, or does not exist.
    #[error("node {node} does not hear its parent {parent}; give another one, or raise `range`")]
    Deaf {
        /// The node.
        node: u32,
        /// Its parent.
        parent: u32,
    },
    /// A node without a path to the border router.
    #[error(
        "no path leads from node {0} to the border router; raise `range`, or give other parents"
    )]
    Apart(u32),
}

/// A link over which a node receives another one, with the fraction of frames that are lost.
pub type Hears = (u32, f64);

impl Tree {
    /// The tree with the given parents of nodes 1, 2, …; `hears` contains, for each node, the nodes
    /// that it receives.
    pub fn given(parents: &[u32], hears: &[Vec<Hears>]) -> Result<Self, TreeError> {
        let all: Vec<u32> = [ROOT].into_iter().chain(parents.iter().copied()).collect();
        for (node, &parent) in all.iter().enumerate().skip(1) {
            if !hears[node].iter().any(|(heard, _)| *heard == parent) {
                return Err(TreeError::Deaf { node: node as u32, parent });
            }
        }
        Self::of(all)
    }

    /// The tree with the minimum expected number of transmissions from each node.
    pub fn by_etx(hears: &[Vec<Hears>]) -> Result<Self, TreeError> {
        let mut parents = vec![u32::MAX; hears.len()];
        // In thousandths of a transmission, so that costs are totally ordered and equal on all
        // platforms.
        let mut costs = vec![u64::MAX; hears.len()];
        let mut next = BinaryHeap::from([Reverse((0, ROOT, ROOT))]);
        while let Some(Reverse((cost, node, parent))) = next.pop() {
            if parents[node as usize] != u32::MAX {
                continue;
            }
            (parents[node as usize], costs[node as usize]) = (parent, cost);
            for &(neighbour, loss) in &hears[node as usize] {
                let through = (1.0 - loss).powi(2);
                if through > 0.0 && parents[neighbour as usize] == u32::MAX {
                    let farther = cost + (1e3 / through) as u64;
                    next.push(Reverse((farther, neighbour, node)));
                }
            }
        }
        match parents.iter().position(|parent| *parent == u32::MAX) {
            Some(node) => Err(TreeError::Apart(node as u32)),
            None => Self::of(parents),
        }
    }

    fn of(parents: Vec<u32>) -> Result<Self, TreeError> {
        let depth = |node: usize| {
            let mut at = node as u32;
            for depth in 0..parents.len() as u32 {
                if at == ROOT {
                    return Ok(depth);
                }
                at = parents[at as usize];
            }
            Err(TreeError::Apart(node as u32))
        };
        let depths = (0..parents.len()).map(depth).collect::<Result<_, _>>()?;
        Ok(Self { parents, depths })
    }

    /// The parent of a node.
    pub fn parent(&self, node: u32) -> u32 {
        self.parents[node as usize]
    }

    /// The number of hops from a node to the border router.
    pub fn depth(&self, node: u32) -> u32 {
        self.depths[node as usize]
    }

    /// The next hop from `from` to `to`: a child whose subtree contains `to`, or else the parent.
    pub fn next(&self, from: u32, to: u32) -> u32 {
        let mut at = to;
        while at != ROOT {
            let above = self.parent(at);
            if above == from {
                return at;
            }
            at = above;
        }
        self.parent(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 – 1 – 2 – 3, and a lossy link between 0 and 2.
    fn hears(bad: f64) -> Vec<Vec<Hears>> {
        vec![
            vec![(1, 0.0), (2, bad)],
            vec![(0, 0.0), (2, 0.0)],
            vec![(0, bad), (1, 0.0), (3, 0.0)],
            vec![(2, 0.0)],
        ]
    }

    #[test]
    fn two_good_hops_beat_a_bad_one_and_not_a_fair_one() {
        // 1/0.5² is 4 transmissions, 1/0.8² is 1.56.
        for (loss, parent) in [(0.5, 1), (0.2, 0)] {
            let tree = Tree::by_etx(&hears(loss)).unwrap();
            assert_eq!((tree.parent(2), tree.parent(3)), (parent, 2), "{loss}");
            assert_eq!(tree.depth(3), tree.depth(2) + 1);
        }
    }

    #[test]
    fn packets_climb_and_go_down_to_the_child_above_their_end() {
        let tree = Tree::given(&[0, 1, 2], &hears(0.5)).unwrap();
        assert_eq!(
            [tree.next(3, 0), tree.next(0, 3), tree.next(1, 3), tree.next(2, 3)],
            [2, 1, 2, 3]
        );
    }

    #[test]
    fn parents_out_of_reach_and_circles_are_refused() {
        let hears = hears(0.5);
        let deaf = TreeError::Deaf { node: 3, parent: 1 };
        assert_eq!(Tree::given(&[0, 1, 1], &hears), Err(deaf));
        assert_eq!(Tree::given(&[2, 1, 2], &hears), Err(TreeError::Apart(1)));
        let apart = vec![vec![], vec![]];
        assert_eq!(Tree::by_etx(&apart), Err(TreeError::Apart(1)));
    }
}
