//! Imports between the files of one crate, and the circles they form.
//!
//! Files that import each other in a circle can only be read, tested and moved together. An import
//! counts for the file that defines the name: `use crate::a::Name` leads to `a/b.rs` when `a`
//! re-exports `Name` from there, and so does `a::Name` in an expression. Globs are resolved. `mod`
//! declarations, re-exports and test code are no imports: a re-export only lets a name pass, and
//! [`product`](crate::product) says which code is a test's.
//!
//! Sources are read without a compiler, so names that a macro defines are unknown; they count for
//! the file of the module that the path leads to.

mod circle;
mod modules;
mod parse;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::product::product;
use modules::{Modules, Target};

/// The files of one crate and the names that each imports from each other file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// Paths of the crate's files, in order.
    files: Vec<String>,
    /// Imported names by the pair of files, the importing file first.
    names: BTreeMap<(usize, usize), BTreeSet<String>>,
}

impl Imports {
    /// Reads the sources of one crate: paths below `root` (such as `crates/node/src/`) and texts.
    #[must_use]
    pub fn read(root: &str, sources: &[(&str, String)]) -> Self {
        let product = product(sources);
        let mut modules = Modules::default();
        for (file, (path, _)) in product.iter().enumerate() {
            modules.add_file(file, path.strip_prefix(root).unwrap_or(path));
        }
        for (file, (_, code)) in product.iter().enumerate() {
            parse::module(&mut modules, file, &tokens::tokens(code));
        }
        let mut names: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (file, mention) in modules.mentions() {
            if let Some(Target { file: definer, name }) = mention
                && definer != file
            {
                names.entry((file, definer)).or_default().insert(name);
            }
        }
        Self { files: product.into_iter().map(|(path, _)| path.to_owned()).collect(), names }
    }

    /// Returns the largest circle of files that import each other; empty when there is none.
    #[must_use]
    pub fn largest_circle(&self) -> Circle<'_> {
        let edges: Vec<(usize, usize)> = self.names.keys().copied().collect();
        Circle { imports: self, members: circle::largest(self.files.len(), &edges) }
    }
}

/// Files of a crate that all reach each other by imports.
#[derive(Debug)]
pub struct Circle<'a> {
    imports: &'a Imports,
    members: Vec<usize>,
}

impl Circle<'_> {
    /// Returns the number of files in the circle.
    #[must_use]
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Describes the circle: a line for each file, followed by a line for each of its imports from
    /// another file of the circle.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let path = |file: usize| &self.imports.files[file];
        let inside = |file: &usize| self.members.contains(file);
        for &member in &self.members {
            writeln!(text, "{}", path(member)).expect("a string takes everything");
            let imports = self.imports.names.range((member, 0)..=(member, usize::MAX));
            for ((_, other), names) in imports.filter(|((_, other), _)| inside(other)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                writeln!(text, "    {}: {}", path(*other), names.join(", "))
                    .expect("a string takes everything");
            }
        }
        text
    }
}

/// Returns a sentence when the largest circle of the crate called `name` has more than `ceiling`
/// files.
#[must_use]
pub fn violation(name: &str, imports: &Imports, ceiling: usize) -> Option<String> {
    let circle = imports.largest_circle();
    (circle.size() > ceiling).then(|| {
        let size = circle.size();
        format!(
            "crates/{name}: {size} files import each other in a circle, at most {ceiling}; its files, and the names \
             that each imports from the others:\n{}",
            circle.describe()
        )
    })
}

#[cfg(test)]
mod tests;
