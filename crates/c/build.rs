//! Names the version of the shared library's interface (its SONAME).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // While the major version is 0, each minor version may change the interface.
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libfreshline_c.so.{version}");
}
