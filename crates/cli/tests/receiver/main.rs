//! `freshline receiver` as a user meets it, on the running kernel.

mod cgroup;
mod device;
mod kit;
mod paths;
