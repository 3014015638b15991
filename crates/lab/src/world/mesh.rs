//! Feedback of a mesh to flows: drops, and overheard transmissions.

use freshline_core::link::Direction;
use freshline_core::mesh::{Heard, Share};
use freshline_core::unit::Time;

use super::components::{Component, Counts, Timetable};
use super::parcel::Parcel;
use super::{Leg, Routed, World, dropped};
use crate::mesh::{Drop, Mesh, Observer, ROOT};

/// A node with a target announces it in one of this many packets.
const ANNOUNCES_ONE_IN: u64 = 8;

/// Per node, the flows that begin there and want to know its overheard transmissions.
pub(super) type Listeners = Vec<Vec<u32>>;

/// The listeners of each mesh, whose radios overhear from now on.
pub(super) fn listeners(flows: &[Routed], meshes: &mut [Mesh<Parcel>]) -> Vec<Listeners> {
    let empty = |mesh: &Mesh<Parcel>| vec![Vec::new(); mesh.nodes() as usize + 1];
    let mut listeners: Vec<Listeners> = meshes.iter().map(empty).collect();
    for (number, routed) in (0..).zip(flows) {
        let Some((mesh, node)) = routed.mesh_node() else { continue };
        if routed.flow.stream().is_some_and(|stream| stream.sender().law().listens()) {
            listeners[mesh as usize][node as usize].push(number);
            meshes[mesh as usize].listen(node);
        }
    }
    listeners
}

/// The first and the last node of a packet's path through a mesh.
pub(super) fn ends(node: u32, is_up: bool) -> [u32; 2] {
    if is_up { [node, ROOT] } else { [ROOT, node] }
}

impl World {
    /// Adds meshes. If several components are due, meshes come after cells.
    pub fn with_meshes(mut self, mut meshes: Vec<Mesh<Parcel>>) -> Self {
        let listeners = listeners(&self.flows, &mut meshes);
        (self.meshes, self.listeners) = (meshes, listeners);
        self.timetable = Timetable::new(Counts {
            hops: self.hops.len(),
            cells: self.cells.len(),
            meshes: self.meshes.len(),
            flows: self.flows.len(),
        });
        for flow in 0..self.flows.len() {
            self.reschedule_flow(flow);
        }
        self
    }

    /// The meshes.
    pub fn meshes(&self) -> &[Mesh<Parcel>] {
        &self.meshes
    }

    pub(super) fn wake_mesh(&mut self, mesh: usize) {
        loop {
            let Self { meshes, flows, listeners, now, .. } = self;
            let observer = &mut MeshObserver { flows, listeners: &listeners[mesh], now: *now };
            let Some(delivered) = meshes[mesh].poll(*now, observer) else { break };
            self.next_leg(delivered.packet, None);
        }
        self.timetable.set(Component::Mesh(mesh), self.meshes[mesh].poll_timeout());
    }
}

impl Routed {
    /// The mesh and the node at which it begins.
    pub fn mesh_node(&self) -> Option<(u32, u32)> {
        match self.legs.first() {
            Some(Leg::Mesh { mesh, node, is_up: true }) => Some((*mesh, *node)),
            _ => None,
        }
    }
}

/// Reports to flows the fate of their packets in a mesh.
pub(super) struct MeshObserver<'a> {
    pub(super) flows: &'a mut [Routed],
    pub(super) listeners: &'a Listeners,
    pub(super) now: Time,
}

impl Observer<Parcel> for MeshObserver<'_> {
    fn dropped(&mut self, drop: Drop<Parcel>) {
        dropped(self.flows, &drop.packet);
    }

    fn heard(&mut self, node: u32, from: u32, number: u64, parcel: &Parcel) {
        let announced = self.target_of(from).filter(|_| number.is_multiple_of(ANNOUNCES_ONE_IN));
        let heard = [announced.map(Heard::Target), self.acknowledged(node, parcel)];
        for listener in &self.listeners[node as usize] {
            if let Some(stream) = self.flows[*listener as usize].flow.stream_mut() {
                heard.iter().flatten().for_each(|heard| stream.on_heard(self.now, *heard));
            }
        }
    }
}

impl MeshObserver<'_> {
    /// The share per node that a node announces to its children.
    fn target_of(&self, node: u32) -> Option<Share> {
        self.listeners[node as usize]
            .iter()
            .find_map(|flow| self.flows[*flow as usize].flow.stream()?.sender().law().target())
    }

    /// A parcel in the downward direction, as overheard by `listener`: the acknowledgement of a
    /// segment.
    fn acknowledged(&self, listener: u32, parcel: &Parcel) -> Option<Heard> {
        let owner = &self.flows[parcel.flow as usize];
        let (_, node) = owner.mesh_node()?;
        let is_ack = owner.flow.stream().is_some() && parcel.direction == Direction::Reverse;
        let is_own = node == listener;
        let node = node as u16;
        is_ack.then_some(if is_own { Heard::Own { node } } else { Heard::Ack { node } })
    }
}
