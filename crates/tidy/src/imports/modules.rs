//! Modules of one crate, the names in them, and the resolution of paths.

use std::collections::{BTreeMap, BTreeSet};

/// Segments of a Rust path, such as `["crate", "a", "Name"]`.
pub(super) type Path = Vec<String>;

/// The modules of one crate by number; the root is number 0 once its file has been added.
#[derive(Debug, Default)]
pub(super) struct Modules {
    modules: Vec<Module>,
    /// Numbers of modules by their paths from the crate's root.
    by_path: BTreeMap<Vec<String>, usize>,
    /// Number of the module that each file is, by the number of the file.
    of_file: BTreeMap<usize, usize>,
}

/// A module: a file, or an inline module within a file.
#[derive(Debug, Default)]
pub(super) struct Module {
    path: Vec<String>,
    file: Option<usize>,
    /// Names that the module defines.
    pub(super) items: BTreeSet<String>,
    /// Paths that `use` declarations import into the module, by the names they give them.
    pub(super) uses: BTreeMap<String, Path>,
    /// Paths of modules from which `use path::*` imports all names.
    pub(super) globs: Vec<Path>,
    /// Paths that private imports and code of the module mention.
    pub(super) mentioned: BTreeSet<Path>,
    /// Single words in the module's code: names that a glob imports are among them.
    pub(super) words: BTreeSet<String>,
}

/// A name and the file that defines it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) file: usize,
    pub(super) name: String,
}

/// The result of resolving a path in a crate.
enum Found {
    Module(usize),
    Item {
        module: usize,
        name: String,
    },
    /// A name from another crate, or a local variable.
    Foreign,
}

/// Most imports of imports that are followed for one path; more are a circle of `use` declarations.
const HOPS_MAX: usize = 32;

impl Modules {
    /// Adds the module of the file at `path`, relative to the crate's root.
    pub(super) fn add_file(&mut self, file: usize, path: &str) {
        let mut segments: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        let last = segments.last().map_or("", String::as_str);
        if last == "mod" || (segments.len() == 1 && matches!(last, "lib" | "main")) {
            segments.pop();
        }
        let number = self.number(segments);
        self.modules[number].file = Some(file);
        self.of_file.insert(file, number);
    }

    /// Adds the inline module `name` in the body of the module `parent`, in the same file.
    pub(super) fn add_inline(&mut self, parent: usize, name: &str) -> usize {
        let mut path = self.modules[parent].path.clone();
        path.push(name.to_owned());
        let number = self.number(path);
        self.modules[number].file = self.modules[parent].file;
        number
    }

    /// Returns the number of the module that `file` is.
    pub(super) fn of_file(&self, file: usize) -> usize {
        self.of_file[&file]
    }

    pub(super) fn module(&mut self, number: usize) -> &mut Module {
        &mut self.modules[number]
    }

    /// Returns every mention of a name, as the file that mentions it and the target; no target
    /// where the name belongs to another crate or the path ends at a module.
    pub(super) fn mentions(&self) -> impl Iterator<Item = (usize, Option<Target>)> {
        self.modules
            .iter()
            .enumerate()
            .filter_map(|(number, module)| Some((number, module, module.file?)))
            .flat_map(move |(number, module, file)| {
                let paths = module.mentioned.iter().map(move |path| self.target(number, path));
                let words = module.words.iter().filter(|_| !module.globs.is_empty());
                let words = words.map(move |word| {
                    let found = self.through_globs(number, word, HOPS_MAX)?;
                    self.target_of(found)
                });
                paths.chain(words).map(move |target| (file, target))
            })
    }

    fn number(&mut self, path: Vec<String>) -> usize {
        if let Some(&number) = self.by_path.get(&path) {
            return number;
        }
        let number = self.modules.len();
        self.modules.push(Module { path: path.clone(), ..Module::default() });
        self.by_path.insert(path, number);
        number
    }

    fn child(&self, parent: usize, name: &str) -> Option<usize> {
        let mut path = self.modules[parent].path.clone();
        path.push(name.to_owned());
        self.by_path.get(&path).copied()
    }

    fn target(&self, from: usize, path: &[String]) -> Option<Target> {
        self.target_of(self.resolve(from, path, HOPS_MAX))
    }

    fn target_of(&self, found: Found) -> Option<Target> {
        match found {
            Found::Item { module, name } => Some(Target { file: self.modules[module].file?, name }),
            Found::Module(_) | Found::Foreign => None,
        }
    }

    /// Resolves `path`, as written in the module `from`, by following at most `hops` imports.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Found {
        let mut module = from;
        let mut anchored = false;
        for (at, segment) in path.iter().enumerate() {
            let more = at + 1 < path.len();
            let above = match segment.as_str() {
                "crate" => Some(Vec::new()),
                "self" => Some(self.modules[module].path.clone()),
                "super" => {
                    let path = &self.modules[module].path;
                    Some(path[..path.len().saturating_sub(1)].to_vec())
                }
                _ => None,
            };
            if let Some(above) = above {
                let Some(&number) = self.by_path.get(&above) else { return Found::Foreign };
                (module, anchored) = (number, true);
                continue;
            }
            match self.lookup(module, segment, more, hops) {
                Some(Found::Module(number)) => (module, anchored) = (number, true),
                Some(found) => return found,
                // The module may define the name by a macro.
                None if anchored => return Found::Item { module, name: segment.clone() },
                None => return Found::Foreign,
            }
        }
        Found::Module(module)
    }

    /// Looks `name` up in a module; with `more` other segments follow, which is only possible after
    /// a module or a type.
    fn lookup(&self, module: usize, name: &str, more: bool, hops: usize) -> Option<Found> {
        let hops = hops.checked_sub(1)?;
        let Module { items, uses, .. } = &self.modules[module];
        let child = self.child(module, name).map(Found::Module);
        let item = items.contains(name).then(|| Found::Item { module, name: name.to_owned() });
        let imported = || Some(self.resolve_import(module, name, uses.get(name)?, hops));
        let found = if more { child.or(item) } else { item };
        found
            .or_else(imported)
            .or_else(|| self.child(module, name).map(Found::Module))
            .or_else(|| self.through_globs(module, name, hops))
    }

    /// Resolves the import `path` that gives `name` its meaning in a module. An import that names
    /// itself, as `use name::part` does where `name` is another crate, leads out of this one.
    fn resolve_import(&self, module: usize, name: &str, path: &[String], hops: usize) -> Found {
        let itself = path.first().is_some_and(|first| first == name);
        match self.child(module, name) {
            None if itself => Found::Foreign,
            _ => self.resolve(module, path, hops),
        }
    }

    fn through_globs(&self, module: usize, name: &str, hops: usize) -> Option<Found> {
        let hops = hops.checked_sub(1)?;
        self.modules[module].globs.iter().find_map(|glob| match self.resolve(module, glob, hops) {
            Found::Module(number) if number != module => self.lookup(number, name, false, hops),
            _ => None,
        })
    }
}
