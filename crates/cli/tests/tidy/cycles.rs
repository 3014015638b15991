//! No two modules use each other, directly or through other modules.
//!
//! A module is a file; modules inside a file belong to it. Module A uses B if a path in A, outside of
//! tests, leads to something that is defined in B: re-exports are followed, and `pub use` alone uses
//! nothing. A module and those below it may use each other, as a folder's `mod.rs` holds the shared
//! parts of its files; the crate's root holds nothing that other modules use. Methods and the
//! expansion of macros are not seen.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rust::{Named, RustFile};

/// The modules of one crate.
struct Crate<'a> {
    files: BTreeMap<Vec<String>, &'a RustFile>,
}

/// Which module uses which other one, and in which line first.
type Uses = BTreeMap<Vec<String>, BTreeMap<Vec<String>, usize>>;

/// One message per group of modules that use each other.
pub(crate) fn cycles(files: &[RustFile]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Crate> = BTreeMap::new();
    for file in files {
        let Some((root, inside)) = file.source.path.split_once("/src/") else { continue };
        let known = crates.entry(root).or_insert_with(|| Crate { files: BTreeMap::new() });
        known.files.insert(module_of(inside), file);
    }
    crates.values().flat_map(Crate::cycles).collect()
}

/// The module that a file below `src` holds.
fn module_of(inside: &str) -> Vec<String> {
    let name = inside.strip_suffix(".rs").unwrap_or(inside);
    let name = name.strip_suffix("/mod").unwrap_or(name);
    match name {
        "lib" | "main" => Vec::new(),
        name => name.split('/').map(str::to_owned).collect(),
    }
}

impl Crate<'_> {
    fn cycles(&self) -> Vec<String> {
        let uses = self.uses();
        let mut reported = BTreeSet::new();
        let mut found = Vec::new();
        for module in uses.keys() {
            if reported.contains(module) {
                continue;
            }
            if let Some(cycle) = shortest_cycle(module, &uses) {
                found.push(self.message(&cycle, &uses));
                reported.extend(cycle);
            }
        }
        found
    }

    fn message(&self, cycle: &[Vec<String>], uses: &Uses) -> String {
        let steps = cycle.iter().zip(cycle.iter().cycle().skip(1)).map(|(from, to)| {
            format!("{} uses {} (line {})", name(from), name(to), uses[from][to])
        });
        let steps: Vec<_> = steps.collect();
        let first = &self.files[&cycle[0]].source;
        let line = uses[&cycle[0]][&cycle[1 % cycle.len()]];
        let what = format!(
            "modules use each other: {}; move the shared part into a module of its own",
            steps.join(", ")
        );
        first.breach(line, what)
    }

    fn uses(&self) -> Uses {
        let mut uses = Uses::new();
        for (module, file) in &self.files {
            if self.is_test(module) {
                continue;
            }
            let used = uses.entry(module.clone()).or_default();
            for Named { line, segments } in &file.paths {
                if let Some(target) = self.resolve(module, segments, 8)
                    && !are_related(module, &target)
                    && !self.is_test(&target)
                {
                    used.entry(target).or_insert(*line);
                }
            }
        }
        uses
    }

    fn is_test(&self, module: &[String]) -> bool {
        (1..=module.len()).any(|length| {
            let (parent, name) = (&module[..length - 1], &module[length - 1]);
            self.files.get(parent).is_some_and(|file| file.test_modules.contains(name))
        })
    }

    /// The module in which the thing is defined that `segments` name in `module`; `None` if it is not
    /// of this crate.
    fn resolve(&self, module: &[String], segments: &[String], depth: u32) -> Option<Vec<String>> {
        let mut at: Vec<String> = module.to_vec();
        let mut rest = segments;
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Vec::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while let Some(("super", later)) =
                    rest.split_first().map(|(first, later)| (first.as_str(), later))
                {
                    at.pop()?;
                    rest = later;
                }
            }
            first => {
                self.child(&at, first)?;
            }
        }
        for (index, segment) in rest.iter().enumerate() {
            if let Some(child) = self.child(&at, segment) {
                at = child;
                continue;
            }
            let Some(target) = self.handed_on(&at, segment, depth) else { break };
            let later = &rest[index + 1..];
            return match later.is_empty() {
                true => Some(target),
                false => self.resolve(&target, &prefixed(later), depth).or(Some(target)),
            };
        }
        Some(at)
    }

    fn child(&self, module: &[String], name: &str) -> Option<Vec<String>> {
        let child: Vec<_> = module.iter().cloned().chain([name.to_owned()]).collect();
        self.files.contains_key(&child).then_some(child)
    }

    /// Where `name` comes from that `module` re-exports.
    fn handed_on(&self, module: &[String], name: &str, depth: u32) -> Option<Vec<String>> {
        let depth = depth.checked_sub(1)?;
        let file = self.files.get(module)?;
        let named = file.reexports.iter().find(|(known, _)| known == name);
        if let Some((_, path)) = named {
            return self.resolve(module, path, depth);
        }
        let globs = file.reexports.iter().filter(|(known, _)| known == "*");
        globs.filter_map(|(_, path)| self.resolve(module, path, depth)).find(|target| {
            target != module
                && self.files[target].declared.iter().any(|declared| declared.name == name)
        })
    }
}

/// Whether one is the other, or lies below it; the root aside.
fn are_related(one: &[String], other: &[String]) -> bool {
    one == other
        || !one.is_empty()
            && !other.is_empty()
            && (one.starts_with(other) || other.starts_with(one))
}

fn prefixed(segments: &[String]) -> Vec<String> {
    ["self".to_owned()].into_iter().chain(segments.iter().cloned()).collect()
}

fn name(module: &[String]) -> String {
    if module.is_empty() { "the crate's root".to_owned() } else { module.join("::") }
}

/// The shortest cycle through `start`.
fn shortest_cycle(start: &Vec<String>, uses: &Uses) -> Option<Vec<Vec<String>>> {
    let mut came_from: BTreeMap<&Vec<String>, &Vec<String>> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(module) = queue.pop_front() {
        for next in uses.get(module).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                let mut cycle = vec![module.clone()];
                while let Some(previous) = came_from.get(&cycle[cycle.len() - 1]) {
                    cycle.push((*previous).clone());
                }
                cycle.reverse();
                return Some(cycle);
            }
            if !came_from.contains_key(next) {
                came_from.insert(next, module);
                queue.push_back(next);
            }
        }
    }
    None
}
