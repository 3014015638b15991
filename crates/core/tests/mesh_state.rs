//! The state of the laws of the mesh in a node with a few kilobytes of memory.

use freshline_core::mesh::{Census, Dtpa};

/// At most half of a frame of 127 bytes each.
#[test]
fn the_state_of_a_node_fits_beside_its_packets() {
    for (name, size) in [("Dtpa", size_of::<Dtpa>()), ("Census", size_of::<Census>())] {
        println!("{name}: {size} bytes");
        assert!(size <= 64, "{name} takes {size} bytes");
    }
}
