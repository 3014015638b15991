//! What flows hear of a mesh: drops, and what their nodes overhear.

use freshline_core::mesh::Heard;
use freshline_core::unit::Time;

use super::parcel::{Body, Direction, Parcel};
use super::{Flow, Leg, Routed, World, dropped};
use crate::engine::Agenda;
use crate::mesh::{Drop, Mesh, Observer, ROOT};

/// By node, the flows that begin there and want to know what it overhears.
pub(super) type Listeners = Vec<Vec<u32>>;

/// The listeners of each mesh, whose radios listen from now on.
pub(super) fn listeners(flows: &[Routed], meshes: &mut [Mesh<Parcel>]) -> Vec<Listeners> {
    let nobody = |mesh: &Mesh<Parcel>| vec![Vec::new(); mesh.nodes() as usize + 1];
    let mut listeners: Vec<Listeners> = meshes.iter().map(nobody).collect();
    for (number, routed) in (0..).zip(flows) {
        let Some((mesh, node)) = routed.mesh_node() else { continue };
        if matches!(&routed.flow, Flow::Stream(stream) if stream.sender().law().listens()) {
            listeners[mesh as usize][node as usize].push(number);
            meshes[mesh as usize].listen(node);
        }
    }
    listeners
}

/// From where to where a packet goes through a mesh.
pub(super) fn ends(node: u32, is_up: bool) -> [u32; 2] {
    if is_up { [node, ROOT] } else { [ROOT, node] }
}

impl World {
    /// The same, with meshes, which come after cells where several are due.
    pub fn with_meshes(mut self, mut meshes: Vec<Mesh<Parcel>>) -> Self {
        let listeners = listeners(&self.flows, &mut meshes);
        (self.meshes, self.listeners) = (meshes, listeners);
        self.agenda = Agenda::new(self.last() + 1);
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
        let component = self.hops.len() + self.cells.len() + mesh;
        self.agenda.set(component, self.meshes[mesh].next_event());
    }
}

impl Routed {
    /// The mesh, and the node of it, at which it begins.
    pub fn mesh_node(&self) -> Option<(u32, u32)> {
        match self.legs.first() {
            Some(Leg::Mesh { mesh, node, is_up: true }) => Some((*mesh, *node)),
            _ => None,
        }
    }
}

/// Tells flows what becomes of packets in a mesh.
pub(super) struct MeshObserver<'a> {
    pub(super) flows: &'a mut [Routed],
    pub(super) listeners: &'a Listeners,
    pub(super) now: Time,
}

impl Observer<Parcel> for MeshObserver<'_> {
    fn dropped(&mut self, drop: Drop<Parcel>) {
        dropped(self.flows, &drop.packet);
    }

    fn heard(&mut self, node: u32, from: u32, parcel: &Parcel) {
        let owner = &self.flows[parcel.flow as usize];
        let Some((_, whose)) = owner.mesh_node() else { return };
        let Some(heard) = brings_home(owner, whose, from, parcel) else { return };
        for listener in &self.listeners[node as usize] {
            if let Flow::Stream(stream) = &mut self.flows[*listener as usize].flow {
                stream.on_heard(self.now, heard);
            }
        }
    }
}

/// What who hears `from` send a packet of the node `whose` knows: a segment comes home.
fn brings_home(owner: &Routed, whose: u32, from: u32, parcel: &Parcel) -> Option<Heard> {
    let (Flow::Stream(stream), Body::Segment(number)) = (&owner.flow, parcel.load.body) else {
        return None;
    };
    let segment = stream.segment(number)?;
    let node = whose as u16;
    match parcel.direction {
        Direction::Back => Some(Heard::Ack { node }),
        Direction::There => (from == whose && segment.len > 0).then_some(Heard::OfParent { node }),
    }
}
