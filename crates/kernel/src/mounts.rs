//! The mount points of file systems.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The first mount point of a file system of this type.
pub(crate) fn mounted(file_system: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let at = fields.next()?;
        (fields.next()? == file_system).then(|| unescaped(at))
    })
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescaped(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at_checked(3).unwrap_or((part, ""));
        bytes.extend(u8::from_str_radix(code, 8));
        bytes.extend(rest.as_bytes());
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_path_with_a_space_is_read_as_it_is() {
        assert_eq!(unescaped("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup"));
        assert_eq!(unescaped(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescaped(r"/odd\"), Path::new("/odd"));
    }
}
