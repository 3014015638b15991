//! Locates a scenario's error in its file.

use std::ops::Range;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use super::ScenarioError;

/// The parts of a file that errors refer to, with their positions.
#[derive(Deserialize)]
struct Places {
    duration: Option<Spanned<IgnoredAny>>,
    warm_up: Option<Spanned<IgnoredAny>>,
    runs: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    link: Vec<Named>,
    topology: Option<Spanned<IgnoredAny>>,
    journey: Option<Spanned<IgnoredAny>>,
    #[serde(default)]
    cell: Vec<Named>,
    #[serde(default)]
    mesh: Vec<Named>,
    #[serde(default)]
    flow: Vec<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: Spanned<String>,
    /// Of a flow.
    updates: Option<WithTopics>,
}

#[derive(Deserialize)]
struct WithTopics {
    #[serde(default)]
    topic: Vec<Named>,
}

impl ScenarioError {
    /// Adds to the error the line of the key that it is about, or of the name of the link, cell,
    /// flow or topic.
    pub(super) fn with_line(self, text: &str) -> Self {
        let Some(place) = toml::from_str(text).ok().and_then(|places| self.place(&places)) else {
            return self;
        };
        let line = 1 + text[..place.start].matches('\n').count();
        Self::At { line, error: Box::new(self) }
    }

    fn place(&self, places: &Places) -> Option<Range<usize>> {
        let Places { duration, warm_up, runs, link, topology, journey, cell, mesh, flow } = places;
        let (among, name) = match self {
            Self::NothingMeasured { .. } => {
                return warm_up.as_ref().or(duration.as_ref()).map(Spanned::span);
            }
            Self::Journey(_) => return journey.as_ref().map(Spanned::span),
            Self::Topology(_) => return topology.as_ref().map(Spanned::span),
            Self::NoRun => return runs.as_ref().map(Spanned::span),
            Self::UnknownLink { flow: name, .. }
            | Self::NotOneKind(name)
            | Self::External(name)
            | Self::Law { flow: name, .. }
            | Self::Flow { flow: name, .. }
            | Self::SameName("flows", name) => ([&flow[..], &[], &[]], name),
            Self::Topic { flow: of, topic, .. } => {
                let flow = flow.iter().find(|flow| flow.name.get_ref() == of)?;
                ([&flow.updates.as_ref()?.topic[..], &[], &[]], topic)
            }
            Self::Link { link: name, .. }
            | Self::Trace { link: name, .. }
            | Self::TooManyHops { link: name, .. }
            | Self::NoHop(name) => ([&link[..], &[], &[]], name),
            Self::Cell { cell: name, .. } | Self::UnknownStation { cell: name, .. } => {
                ([&cell[..], &[], &[]], name)
            }
            Self::Mesh { mesh: name, .. } => ([&mesh[..], &[], &[]], name),
            Self::SameName(_, name) => ([&link[..], &cell[..], &mesh[..]], name),
            Self::Malformed(_) | Self::At { .. } | Self::NoFlow | Self::TakesNoLaw { .. } => {
                return None;
            }
        };
        let named = among.into_iter().flatten().filter(|named| named.name.get_ref() == name);
        // Of two with one name, the error is at the second.
        named.map(|named| named.name.span()).max_by_key(|span| span.start)
    }
}
