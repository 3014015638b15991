//! Packet captures: what a real one tells of age, and captures of the lab's own hops.
