//! The places of programs: as a user names them, and as the kernel identifies them.

use std::fmt;
use std::path::PathBuf;

use libbpf_rs::query::LinkTypeInfo;

use crate::KernelError;
use crate::cgroup::Cgroup;
use crate::device::{self, Device};

/// A place as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The sockets of the cgroup at this path, and of cgroups below it.
    Cgroup(PathBuf),
    /// The packets through the device with this name, in the network namespace of this thread.
    Device(String),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(path) => write!(f, "{}", path.display()),
            Self::Device(name) => write!(f, "{name}"),
        }
    }
}

impl Target {
    pub(super) fn place(&self) -> Result<Place, KernelError> {
        Ok(match self {
            Self::Cgroup(path) => Place::Cgroup { id: Cgroup::open(path)?.0.id },
            Self::Device(name) => {
                let Device { netns, index, .. } = Device::named(name)?;
                Place::Device { netns, index }
            }
        })
    }
}

/// The place of an attachment, by the kernel's IDs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A cgroup.
    Cgroup {
        /// Its ID.
        id: u64,
    },
    /// A network device.
    Device {
        /// The ID of its network namespace.
        netns: u64,
        /// Its index there.
        index: u32,
    },
}

impl Place {
    /// The place of a link in a network namespace. `None` if its cgroup or device was removed, so
    /// that the program no longer runs.
    pub(super) fn of_link(link: &LinkTypeInfo, netns: u64) -> Option<Self> {
        let place = match link {
            LinkTypeInfo::Cgroup(at) => Self::Cgroup { id: at.cgroup_id },
            LinkTypeInfo::Tcx(at) => Self::Device { netns, index: at.ifindex },
            _ => return None,
        };
        let is_gone = matches!(place, Self::Cgroup { id: 0 } | Self::Device { index: 0, .. });
        (!is_gone).then_some(place)
    }

    /// The target at this place by its name; `None` if it is not visible here.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        match *self {
            Self::Cgroup { id } => Cgroup::find(id).map(|cgroup| Target::Cgroup(cgroup.path)),
            Self::Device { netns, index } => {
                let is_here = device::own_netns().is_ok_and(|here| here == netns);
                let name = is_here.then(|| device::name_of(index)).flatten();
                name.map(Target::Device)
            }
        }
    }
}
