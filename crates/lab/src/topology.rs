//! Networks as graphs, from files.
//!
//! ```toml
//! source = "where the graph comes from"
//! nodes = ["Seoul", "Seattle", "Miami"]
//!
//! [[link]]
//! between = ["Seoul", "Seattle"]
//! delay = "95ms"
//! ```

use std::collections::VecDeque;

use freshline_core::unit::Span;
use serde::Deserialize;
use toml::Spanned;

/// A network: nodes, and bidirectional links between them. All nodes can reach each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    nodes: Vec<String>,
    links: Vec<Link>,
}

/// A link between two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its ends, by number.
    pub ends: [usize; 2],
    /// Its propagation delay, equal in both directions.
    pub delay: Span,
}

/// A link in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crossing {
    /// The link, by number.
    pub link: usize,
    /// Whether it is crossed from its first end to the second.
    pub forward: bool,
}

/// A file that does not describe a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// Not TOML, or an unknown key. Contains the line.
    #[error("{0}")]
    Malformed(String),
    /// Too few nodes for a path.
    #[error("there are fewer than two `nodes`, and so no path between nodes")]
    TooFewNodes,
    /// Two nodes with one name.
    #[error("two nodes are called `{0}`; give each a name of its own")]
    SameName(String),
    /// A link to an unknown node.
    #[error("line {line}: there is no node `{node}`; add it to `nodes`, or correct the link")]
    UnknownNode {
        /// Counted from 1.
        line: usize,
        /// The name given.
        node: String,
    },
    /// A link from a node to itself.
    #[error("line {line}: the link leads from `{node}` to itself; give it another end")]
    Loop {
        /// Counted from 1.
        line: usize,
        /// The node.
        node: String,
    },
    /// A network that is not connected.
    #[error("no path leads from `{from}` to `{to}`; add a link")]
    Unreachable {
        /// A node.
        from: String,
        /// A node that it cannot reach.
        to: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// The source of the topology, for readers of the file.
    #[serde(rename = "source")]
    _source: String,
    nodes: Vec<String>,
    #[serde(default)]
    link: Vec<LinkOfFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkOfFile {
    between: Spanned<[String; 2]>,
    #[serde(default)]
    delay: Span,
}

impl Topology {
    /// Reads a file.
    ///
    /// # Errors
    /// [`TopologyError`] describes the error, and its line.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let malformed = |error: toml::de::Error| TopologyError::Malformed(error.to_string());
        let File { nodes, link, .. } = toml::from_str(text).map_err(malformed)?;
        if nodes.len() < 2 {
            return Err(TopologyError::TooFewNodes);
        }
        if let Some((_, name)) =
            nodes.iter().enumerate().find(|(number, name)| nodes[..*number].contains(name))
        {
            return Err(TopologyError::SameName(name.clone()));
        }
        let read = |LinkOfFile { between, delay }: LinkOfFile| {
            let line = 1 + text[..between.span().start].matches('\n').count();
            let [first, second] = between.into_inner();
            let number = |node: &String| {
                let known = nodes.iter().position(|name| name == node);
                known.ok_or_else(|| TopologyError::UnknownNode { line, node: node.clone() })
            };
            let ends = [number(&first)?, number(&second)?];
            if ends[0] == ends[1] {
                return Err(TopologyError::Loop { line, node: first });
            }
            Ok(Link { ends, delay })
        };
        let links = link.into_iter().map(read).collect::<Result<_, _>>()?;
        let topology = Self { nodes, links };
        // Links are bidirectional, so all nodes reach the same nodes.
        match topology.arrivals(0).iter().position(|arrival| *arrival == Arrival::Never) {
            None => Ok(topology),
            Some(node) => Err(TopologyError::Unreachable {
                from: topology.nodes[0].clone(),
                to: topology.nodes[node].clone(),
            }),
        }
    }

    /// The names of the nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// The shortest path between two nodes, by the number of links. Of several such paths, the one
    /// over the links that are first in the file, beginning with those nearest to `from`. Empty
    /// from a node to itself.
    ///
    /// # Panics
    ///
    /// If a node with such a number does not exist.
    pub fn route(&self, from: usize, to: usize) -> Vec<Crossing> {
        let arrivals = self.arrivals(from);
        let mut path = Vec::new();
        let mut node = to;
        while let Arrival::Over(crossing) = arrivals[node] {
            path.push(crossing);
            let Crossing { link, forward } = crossing;
            node = self.links[link].ends[usize::from(!forward)];
        }
        path.reverse();
        path
    }

    /// The first arrival at each node from `start`, nearer nodes first.
    fn arrivals(&self, start: usize) -> Vec<Arrival> {
        let mut arrivals = vec![Arrival::Never; self.nodes.len()];
        arrivals[start] = Arrival::Start;
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for (link, Link { ends, .. }) in self.links.iter().enumerate() {
                let Some(side) = ends.iter().position(|end| *end == node) else { continue };
                let (next, forward) = (ends[1 - side], side == 0);
                if arrivals[next] == Arrival::Never {
                    arrivals[next] = Arrival::Over(Crossing { link, forward });
                    queue.push_back(next);
                }
            }
        }
        arrivals
    }
}

/// How a node is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    Never,
    Start,
    Over(Crossing),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(links: &str) -> Result<Topology, TopologyError> {
        let text = format!("source = \"a square\"\nnodes = [\"a\", \"b\", \"c\", \"d\"]\n{links}");
        Topology::parse(&text)
    }

    fn link(ends: [&str; 2]) -> String {
        format!("[[link]]\nbetween = {ends:?}\n")
    }

    #[test]
    fn of_ways_alike_the_one_over_the_first_links_is_taken() {
        let links = [["a", "b"], ["a", "c"], ["b", "d"], ["c", "d"]].map(link).concat();
        let topology = square(&links).unwrap();
        let forward = |link| Crossing { link, forward: true };
        let back = |link| Crossing { link, forward: false };
        assert_eq!(topology.route(0, 3), [forward(0), forward(2)], "and not over c");
        assert_eq!(topology.route(3, 0), [back(2), back(0)]);
        assert_eq!(topology.route(1, 2), [back(0), forward(1)], "and not over d");
        assert_eq!(topology.route(2, 2), []);
    }

    #[test]
    fn what_is_no_network_is_refused_with_its_line() {
        let pieces = [["a", "b"], ["c", "d"]].map(link).concat();
        for (links, explanation) in [
            (pieces.as_str(), "no path leads from `a` to `c`"),
            (&link(["a", "x"]), "line 4: there is no node `x`"),
            (&link(["a", "a"]), "line 4: the link leads from `a` to itself"),
            ("[[link]]\nbetween = [\"a\"]\n", "line 4"),
            ("colour = 3\n", "line 3"),
        ] {
            let error = square(links).unwrap_err().to_string();
            assert!(error.contains(explanation), "{links}: {error}");
        }
        let one = Topology::parse("source = \"\"\nnodes = [\"a\"]\n").unwrap_err();
        assert_eq!(one, TopologyError::TooFewNodes);
    }
}
