//! The graph of a crate's modules: which module uses what is defined in which other, and the
//! circles in it.
//!
//! A module and its submodules count as one. So an edge is between two siblings: from the one that
//! contains the user to the one that contains the definition, below the nearest module that
//! contains both. Between a module and one inside it there is no edge: a child may use what its
//! parent's own file defines, and the parent its children.
//!
//! A path counts for where its item is *defined*. `super::Name` is followed through the parent's
//! `use` and `pub use` to the definition: a name that is passed on by the common parent is an edge
//! between the siblings all the same. What is not found (a macro made it) counts for the deepest
//! module on its path. A glob counts for the module that it names and for everything that this
//! module imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tree::{Id, Tree};

/// The edges between the children of one module, each with the places where it is in the source.
pub(super) type Siblings = BTreeMap<(String, String), Vec<Place>>;

/// Where one module names something of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) line: usize,
    pub(super) path: String,
}

/// Modules with one parent, each of which leads to every other.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Circle {
    /// The parent's path, empty for the crate's root.
    pub(super) parent: String,
    pub(super) members: BTreeSet<String>,
    /// The edges between the members.
    pub(super) edges: Siblings,
}

/// The edges of a crate, by the path of the siblings' parent.
pub(super) fn edges(tree: &Tree, root: &Path) -> BTreeMap<String, Siblings> {
    let mut all: BTreeMap<String, Siblings> = BTreeMap::new();
    for user in 0..tree.modules.len() {
        for (definition, path, line) in uses(tree, user) {
            let Some((parent, from, to)) = siblings(tree, user, definition) else { continue };
            let file = &tree.modules[user].file;
            let file = file.strip_prefix(root).unwrap_or(file).display().to_string();
            let place = Place { file, line, path: path.join("::") };
            let places = all.entry(parent).or_default().entry((from, to)).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    all
}

/// The circles among siblings.
pub(super) fn circles(edges: &BTreeMap<String, Siblings>) -> Vec<Circle> {
    let mut circles = Vec::new();
    for (parent, siblings) in edges {
        let mut left: BTreeSet<&String> = siblings.keys().map(|(from, _)| from).collect();
        while let Some(first) = left.pop_first() {
            let onward = reachable(siblings, first);
            let back = onward.iter().filter(|other| reachable(siblings, other).contains(first));
            let members: BTreeSet<String> = back.cloned().collect();
            left.retain(|other| !members.contains(*other));
            if members.is_empty() {
                continue;
            }
            let inside =
                siblings.iter().filter(|((from, to), _)| members.contains(from) && members.contains(to));
            let edges = inside.map(|(edge, places)| (edge.clone(), places.clone())).collect();
            circles.push(Circle { parent: parent.clone(), members, edges });
        }
    }
    circles
}

/// Everything that `from` leads to; itself only by a circle.
fn reachable(siblings: &Siblings, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(module) = next.pop() {
        for (_, to) in siblings.keys().filter(|(from, _)| *from == module) {
            if found.insert(to.clone()) {
                next.push(to.clone());
            }
        }
    }
    found
}

/// The module that defines what module `user` uses, and the line of the use.
fn uses(tree: &Tree, user: Id) -> Vec<(Id, &[String], usize)> {
    let module = &tree.modules[user];
    let mut found = Vec::new();
    for (path, line) in &module.paths {
        if let Some(target) = resolve(tree, user, path, &mut Vec::new()) {
            found.push((target.module(), path.as_slice(), *line));
        }
    }
    for (path, line) in &module.globs {
        let Some(target) = resolve(tree, user, path, &mut Vec::new()) else { continue };
        found.push((target.module(), path, *line));
        if let Target::Module(named) = target {
            let passed_on = tree.modules[named].imports.iter();
            let passed_on = passed_on.filter_map(|(_, path)| resolve(tree, named, path, &mut Vec::new()));
            found.extend(passed_on.map(|target| (target.module(), path.as_slice(), *line)));
        }
    }
    found
}

/// The parent's path and the two siblings, unless one module contains the other.
fn siblings(tree: &Tree, user: Id, definition: Id) -> Option<(String, String, String)> {
    let above: Vec<Id> = tree.ancestors(user).collect();
    let common = tree.ancestors(definition).find(|id| above.contains(id))?;
    let below = |id| tree.ancestors(id).find(|id| tree.modules[*id].parent == Some(common));
    let (from, to) = (below(user)?, below(definition)?);
    let name = |id: Id| tree.modules[id].name.clone();
    (from != to).then(|| (tree.path(common), name(from), name(to)))
}

/// The target of a path.
#[derive(Debug, Clone, Copy)]
enum Target {
    Module(Id),
    /// An item of this module.
    Item(Id),
}

impl Target {
    const fn module(self) -> Id {
        match self {
            Self::Module(id) | Self::Item(id) => id,
        }
    }
}

/// Follows `path` from module `from`; `None` where it leads out of the crate. `following` are the
/// imports on the way.
fn resolve(tree: &Tree, from: Id, path: &[String], following: &mut Vec<(Id, String)>) -> Option<Target> {
    let (first, rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Target::Module(0),
        "self" => Target::Module(from),
        "super" => Target::Module(tree.modules[from].parent?),
        name => lookup(tree, from, name, following)?,
    };
    for name in rest {
        let Target::Module(module) = at else { break };
        at = if name == "super" {
            Target::Module(tree.modules[module].parent?)
        } else {
            lookup(tree, module, name, following).unwrap_or(Target::Item(module))
        };
    }
    Some(at)
}

/// The child, the item or the import called `name` in `module`.
fn lookup(tree: &Tree, module: Id, name: &str, following: &mut Vec<(Id, String)>) -> Option<Target> {
    let here = &tree.modules[module];
    if let Some(child) = here.children.get(name) {
        return Some(Target::Module(*child));
    }
    if here.items.contains(name) {
        return Some(Target::Item(module));
    }
    let step = (module, name.to_owned());
    if following.contains(&step) {
        return None;
    }
    following.push(step);
    let mut imported = here.imports.iter().filter(|(known, _)| known == name);
    let imported = imported.find_map(|(_, path)| resolve(tree, module, path, following));
    let found = imported.or_else(|| {
        here.globs.iter().find_map(|(path, _)| match resolve(tree, module, path, following)? {
            Target::Module(all) => lookup(tree, all, name, following),
            Target::Item(_) => None,
        })
    });
    following.pop();
    found
}
