//! `include/freshline.h` is equal to the output of cbindgen for the crate. After a change of the interface:
//! `FRESHLINE_WRITE_HEADER=1 cargo test -p freshline-c --test header`.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};

/// The files in the order in which a reader needs them.
const FILES: [&str; 8] =
    ["error", "config", "source_config", "source", "monitor_config", "monitor", "topic", "state"];

const INTRODUCTION: &str = "\
/* freshline.h: sources and monitors of state, for C and C++ (freshline.hpp wraps it for C++20).

   Generated from the crate freshline-c; do not edit.

   A source sends the newest state of its topics to a monitor; a monitor holds the newest states of many sources.
   Both run on threads of their own. With fl_source_config_receive a source also receives topics that the monitor
   sends.

   Rules that hold for all functions:

   - Result: a function that can fail returns fl_error, FL_OK on success, and stores its result through its last
     arguments, which are NULL, 0 or false after a failure. fl_last_error() has the text of the last failure of the
     calling thread. Errors: lists the codes besides FL_PANIC, which any call may return.
   - Arguments: NULL is an error (FL_NULL), not a crash, where the function does not allow it. Texts end with NUL
     and are UTF-8 (else FL_UTF8). Bytes are a pointer and a length, and may be anything. Any other pointer must be
     valid. Durations are in nanoseconds, timeouts in milliseconds, rates are texts with a unit.
   - Ownership: arguments stay the caller's and are copied where they are needed for longer than the call. The
     caller frees each handle that a function stores, once, with the function that the description of its type
     names. Handles may be freed in any order. Texts and bytes that a function returns belong to the handle that it was given.
   - Threads: \"Thread-safe\" functions may be called by any number of threads at a time, also for the same handle.
     Freeing or closing a handle is not among them: no other call may use it then or later. No function blocks
     except fl_*_start (name look-up, files), fl_*_close and fl_subscription_free (join a thread), and
     fl_subscription_next (its timeout).
   - After fork(), the child may not use handles of its parent. */";

#[test]
fn the_header_is_what_the_crate_exports() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = generate(folder);
    let path = folder.join("include/freshline.h");
    if std::env::var_os("FRESHLINE_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).expect("a folder that can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(generated.lines()).position(|(kept, made)| kept != made);
    assert!(
        kept == generated,
        "include/freshline.h differs from the crate, first in line {}; write it again with \
         FRESHLINE_WRITE_HEADER=1 cargo test -p freshline-c --test header",
        differs.unwrap_or(kept.lines().count().min(generated.lines().count())) + 1
    );
}

fn generate(folder: &Path) -> String {
    let mut config = Config {
        language: Language::C,
        header: Some(INTRODUCTION.to_owned()),
        include_guard: Some("FRESHLINE_H".to_owned()),
        no_includes: true,
        sys_includes: ["stdbool.h", "stddef.h", "stdint.h"].map(str::to_owned).to_vec(),
        cpp_compat: true,
        style: Style::Type,
        usize_is_size_t: true,
        // Patterns such as `*/cmd` would end a block comment.
        documentation_style: DocumentationStyle::Cxx,
        line_length: 100,
        ..Config::default()
    };
    // The Rust types that are pointers to C.
    let pointers = [
        ("Text", "const char *"),
        ("Bytes", "const uint8_t *"),
        ("Buffer", "uint8_t *"),
        ("User", "void *"),
    ];
    for (rust, c) in pointers {
        config.export.rename.insert(rust.to_owned(), c.to_owned());
        config.export.exclude.push(rust.to_owned());
    }
    let mut builder = Builder::new().with_config(config);
    for file in FILES.into_iter().chain(["subscription"]) {
        builder = builder.with_src(folder.join("src").join(file).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("files that cbindgen understands").write(&mut text);
    let text = String::from_utf8(text).expect("a text");
    text.replace(" * ", " *")
}
