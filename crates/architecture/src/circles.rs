//! Finds circular dependencies between modules. In this file, a module is a source file, and a room is a module
//! together with all modules below it. The rooms of one directory must not depend on each other in a circle. A file and
//! the modules that it declares may use each other. For example, a list uses its entries, and the entries implement a
//! trait of the list.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::modules::{Found, Module, Tree};

/// For each room of a directory, the rooms that it uses. The value is one place in the sources with such a use.
type Arrows = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the directories of a crate in which modules form a circle, as `a::b`. Each has a description of the uses
/// that form the circle.
pub fn circles(src: &Path) -> BTreeMap<String, String> {
    let tree = Tree::read(src);
    let mut folders: BTreeMap<Vec<String>, Arrows> = BTreeMap::new();
    for (from, module) in &tree.modules {
        for (target, name) in targets(&tree, from, module) {
            let common = from.iter().zip(&target).take_while(|(a, b)| a == b).count();
            let (Some(one), Some(other)) = (from.get(common), target.get(common)) else { continue };
            let arrows = folders.entry(from[..common].to_vec()).or_default();
            arrows.entry(other.clone()).or_default();
            let place = || format!("{} uses {name}", module.file.display());
            let of = arrows.entry(one.clone()).or_default();
            of.entry(other.clone()).or_insert_with(place);
        }
    }
    let shown = folders.iter().map(|(folder, arrows)| (folder.join("::"), shown(arrows)));
    shown.filter(|(_, text)| !text.is_empty()).collect()
}

/// Returns the other modules that define names used in a file.
fn targets(tree: &Tree, from: &[String], module: &Module) -> BTreeMap<Vec<String>, String> {
    let mut targets = BTreeMap::new();
    for path in module.paths() {
        if let Some(Found { module: target, .. }) = tree.find(from, path)
            && target != from
        {
            targets.entry(target).or_insert_with(|| path.join("::"));
        }
    }
    targets
}

fn shown(arrows: &Arrows) -> String {
    let circles: BTreeSet<_> =
        arrows.keys().filter(|room| reached(arrows, room).contains(*room)).collect();
    let mut text = String::new();
    for (from, targets) in arrows.iter().filter(|(from, _)| circles.contains(from)) {
        for (to, place) in targets.iter().filter(|(to, _)| circles.contains(to)) {
            text.push_str(&["  ", from, " -> ", to, ": ", place, "\n"].concat());
        }
    }
    text
}

fn reached<'a>(arrows: &'a Arrows, from: &str) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&String> = arrows[from].keys().collect();
    while let Some(room) = left.pop() {
        if reached.insert(room) {
            left.extend(arrows[room].keys());
        }
    }
    reached
}
