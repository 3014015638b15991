//! What flows hear of a mesh: drops, and what their nodes overhear.

use freshline_core::unit::Time;

use super::parcel::{Body, Direction, Parcel};
use super::{Flow, Leg, Routed, dropped};
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
        if !brings_home(owner, from == whose, parcel) {
            return;
        }
        for listener in &self.listeners[node as usize] {
            if let Flow::Stream(stream) = &mut self.flows[*listener as usize].flow {
                stream.on_heard(self.now, whose as u16);
            }
        }
    }
}

/// Whether who hears the packet can tell that a segment comes home with it: an ack that asks for
/// nothing again, or the sender's own data, whose ack nobody below it hears.
fn brings_home(owner: &Routed, is_its_own: bool, parcel: &Parcel) -> bool {
    let (Flow::Stream(stream), Body::Segment(number)) = (&owner.flow, parcel.load.body) else {
        return false;
    };
    let Some(segment) = stream.segment(number) else { return false };
    match parcel.direction {
        Direction::Back => segment.sack.as_slice().is_empty(),
        Direction::There => is_its_own && segment.len > 0,
    }
}
