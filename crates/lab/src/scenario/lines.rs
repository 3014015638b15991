//! Where in its file a scenario goes wrong.

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::ScenarioError;

/// The names in a file, with their places.
#[derive(Deserialize)]
struct Names {
    #[serde(default)]
    link: Vec<Named>,
    topology: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    cell: Vec<Named>,
    #[serde(default)]
    flow: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: Spanned<String>,
}

impl ScenarioError {
    /// The same, with the line of the topology, or that names the link, cell or flow, that it is about.
    pub(super) fn with_line(self, text: &str) -> Self {
        let Ok(names) = toml::from_str::<Names>(text) else { return self };
        let Names { link, topology, cell, flow } = &names;
        let at = |start: usize, error| {
            let line = 1 + text[..start].matches('\n').count();
            Self::At { line, error: Box::new(error) }
        };
        if let (Self::Topology(_), Some(topology)) = (&self, topology) {
            return at(topology.span().start, self);
        }
        let (among, name) = match &self {
            Self::UnknownLink { flow: name, .. }
            | Self::NotOneKind(name)
            | Self::Law { flow: name, .. }
            | Self::Flow { flow: name, .. }
            | Self::SameName("flows", name) => (flow, name),
            Self::Link { link: name, .. } | Self::Trace { link: name, .. } => (link, name),
            Self::Cell { cell: name, .. } => (cell, name),
            _ => return self,
        };
        // Of two with one name, the second is one too many.
        let Some(named) = among.iter().rfind(|named| named.name.get_ref() == name) else {
            return self;
        };
        at(named.name.span().start, self)
    }
}
