//! The facts about Rust files that the rules need. `syn` parses each file once.
//!
//! Code of tests (`#[cfg(test)]`, `#[test]`, everything outside of `src`) is read and marked as such.
//! The arguments of macros are searched for paths only.

use std::sync::OnceLock;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::{Source, sources};

/// A Rust file of the repository.
pub(crate) struct RustFile {
    pub(crate) source: Source,
    /// Paths that name something, without those of tests and re-exports.
    pub(crate) paths: Vec<Named>,
    /// Names that `use` makes known in the module, each with its path.
    pub(crate) reexports: Vec<(String, Vec<String>)>,
    pub(crate) functions: Vec<Function>,
    pub(crate) tuple_fields: Vec<TupleField>,
    pub(crate) declared: Vec<Declared>,
    /// Modules of tests that are files of their own.
    pub(crate) test_modules: Vec<String>,
}

/// A path in the code.
pub(crate) struct Named {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

/// A function with a body.
pub(crate) struct Function {
    pub(crate) line: usize,
    pub(crate) name: String,
    /// Lines from its signature to its closing brace.
    pub(crate) lines: usize,
}

/// A field of a public struct or variant whose type is a tuple.
pub(crate) struct TupleField {
    pub(crate) line: usize,
    pub(crate) field: String,
}

/// An identifier where it is declared.
pub(crate) struct Declared {
    pub(crate) line: usize,
    pub(crate) name: String,
    pub(crate) in_test: bool,
}

/// Every Rust file below `crates`.
pub(crate) fn files() -> &'static [RustFile] {
    static FILES: OnceLock<Vec<RustFile>> = OnceLock::new();
    FILES.get_or_init(|| sources("crates", &["rs"]).into_iter().map(RustFile::read).collect())
}

impl RustFile {
    pub(crate) fn read(source: Source) -> Self {
        let parsed = syn::parse_file(&source.text)
            .unwrap_or_else(|error| panic!("{}: {error}; does it compile?", source.path));
        let mut reader = Reader { in_test: !source.path.contains("/src/"), ..Reader::default() };
        reader.visit_file(&parsed);
        let Reader { paths, reexports, functions, tuple_fields, declared, test_modules, .. } =
            reader;
        Self { source, paths, reexports, functions, tuple_fields, declared, test_modules }
    }
}

#[derive(Default)]
struct Reader {
    in_test: bool,
    paths: Vec<Named>,
    reexports: Vec<(String, Vec<String>)>,
    functions: Vec<Function>,
    tuple_fields: Vec<TupleField>,
    declared: Vec<Declared>,
    test_modules: Vec<String>,
}

impl Reader {
    fn declare(&mut self, ident: &syn::Ident) {
        let (line, in_test) = (line_of(ident.span()), self.in_test);
        self.declared.push(Declared { line, name: ident.to_string(), in_test });
    }

    fn name(&mut self, span: Span, segments: Vec<String>) {
        if !self.in_test {
            self.paths.push(Named { line: line_of(span), segments });
        }
    }

    fn function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = line_of(signature.span());
        let lines = block.brace_token.span.close().start().line + 1 - line;
        self.functions.push(Function { line, name: signature.ident.to_string(), lines });
    }

    fn fields(&mut self, owner: &syn::Ident, fields: &syn::Fields, all_public: bool) {
        for (index, field) in fields.iter().enumerate() {
            let is_public = all_public || matches!(field.vis, syn::Visibility::Public(_));
            if is_public && !self.in_test && holds_tuple(&field.ty) {
                let name = field.ident.as_ref().map_or(index.to_string(), ToString::to_string);
                let (line, field) = (line_of(field.ty.span()), format!("{owner}::{name}"));
                self.tuple_fields.push(TupleField { line, field });
            }
        }
    }

    /// Every path of a `use`, and the name under which it is known here.
    fn leaves(tree: &syn::UseTree, prefix: &[String]) -> Vec<(Span, String, Vec<String>)> {
        let with = |ident: &syn::Ident| {
            prefix.iter().cloned().chain([ident.to_string()]).collect::<Vec<_>>()
        };
        match tree {
            syn::UseTree::Path(path) => Self::leaves(&path.tree, &with(&path.ident)),
            syn::UseTree::Group(group) => {
                group.items.iter().flat_map(|tree| Self::leaves(tree, prefix)).collect()
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                let known = prefix.last().cloned().unwrap_or_default();
                vec![(name.span(), known, prefix.to_vec())]
            }
            syn::UseTree::Name(name) => {
                vec![(name.span(), name.ident.to_string(), with(&name.ident))]
            }
            syn::UseTree::Rename(rename) => {
                vec![(rename.span(), rename.rename.to_string(), with(&rename.ident))]
            }
            syn::UseTree::Glob(glob) => {
                let path = prefix.iter().cloned().chain(["*".to_owned()]).collect();
                vec![(glob.span(), "*".to_owned(), path)]
            }
        }
    }

    /// Paths from `crate`, `self` or `super` among a macro's tokens.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<(Span, String)> = Vec::new();
        let mut colons = 0;
        let end = |segments: &mut Vec<(Span, String)>, reader: &mut Self| {
            let first = segments.first().cloned();
            let names: Vec<_> = segments.drain(..).map(|(_, name)| name).collect();
            if let Some((span, start)) = first
                && ["crate", "self", "super"].contains(&start.as_str())
                && names.len() > 1
            {
                reader.name(span, names);
            }
        };
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        end(&mut segments, self);
                    }
                    segments.push((ident.span(), ident.to_string()));
                    colons = 0;
                }
                other => {
                    end(&mut segments, self);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        end(&mut segments, self);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let was = self.in_test;
        self.in_test |= is_test(attributes_of(item));
        visit::visit_item(self, item);
        self.in_test = was;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_private = matches!(item.vis, syn::Visibility::Inherited);
        for (span, known, path) in Self::leaves(&item.tree, &[]) {
            if is_private {
                self.name(span, path.clone());
            }
            // A private `use` of a module is seen by its children, too.
            if !self.in_test {
                self.reexports.push((known, path));
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(path.span(), segments);
        visit::visit_path(self, path);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {
        // `pub(in crate::x)` names nothing that is used.
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.tokens(called.tokens.clone());
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.declare(&item.sig.ident);
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.declare(&item.sig.ident);
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.declare(&item.sig.ident);
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.declare(&item.ident);
        if matches!(item.vis, syn::Visibility::Public(_)) {
            self.fields(&item.ident, &item.fields, false);
        }
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.declare(&item.ident);
        for variant in &item.variants {
            self.declare(&variant.ident);
            if matches!(item.vis, syn::Visibility::Public(_)) {
                self.fields(&variant.ident, &variant.fields, true);
            }
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.declare(&item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.declare(&item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.declare(&item.ident);
        visit::visit_impl_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast syn::ItemStatic) {
        self.declare(&item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.declare(&item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.content.is_none() && self.in_test {
            self.test_modules.push(item.ident.to_string());
        }
        self.declare(&item.ident);
        visit::visit_item_mod(self, item);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(ident) = &field.ident {
            self.declare(ident);
        }
        visit::visit_field(self, field);
    }

    fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
        self.declare(&pattern.ident);
        visit::visit_pat_ident(self, pattern);
    }
}

fn line_of(span: Span) -> usize {
    span.start().line
}

/// Whether a type is a tuple or holds one, such as `Option<(f64, u32)>`; references to functions
/// aside.
fn holds_tuple(of: &syn::Type) -> bool {
    match of {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Array(array) => holds_tuple(&array.elem),
        syn::Type::Slice(slice) => holds_tuple(&slice.elem),
        syn::Type::Reference(reference) => holds_tuple(&reference.elem),
        syn::Type::Path(path) => path.path.segments.iter().any(|segment| {
            match &segment.arguments {
            syn::PathArguments::AngleBracketed(arguments) => arguments.args.iter().any(
                |argument| matches!(argument, syn::GenericArgument::Type(of) if holds_tuple(of)),
            ),
            _ => false,
        }
        }),
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && matches!(&attribute.meta, syn::Meta::List(list)
                    if list.tokens.clone().into_iter().any(|token| token.to_string() == "test")
                        && !list.tokens.to_string().contains("not"))
    })
}

fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    use syn::Item::{Const, Enum, Fn, Impl, Macro, Mod, Static, Struct, Trait, Type, Use};
    match item {
        Const(item) => &item.attrs,
        Enum(item) => &item.attrs,
        Fn(item) => &item.attrs,
        Impl(item) => &item.attrs,
        Macro(item) => &item.attrs,
        Mod(item) => &item.attrs,
        Static(item) => &item.attrs,
        Struct(item) => &item.attrs,
        Trait(item) => &item.attrs,
        Type(item) => &item.attrs,
        Use(item) => &item.attrs,
        _ => &[],
    }
}
