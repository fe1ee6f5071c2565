//! Which modules of a crate use which: the files and folders directly under its `src`, by the paths that
//! begin with `crate::`, or with enough `super::` to get there. Code under `cfg(test)` does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// For each module those it uses, each with a place where that shows.
pub struct Arrows(BTreeMap<String, BTreeMap<String, String>>);

impl Arrows {
    /// Reads the sources of a crate.
    pub fn of(src: &Path) -> Self {
        let modules: BTreeSet<String> = entries(src)
            .iter()
            .map(|path| stem(path))
            .filter(|name| !matches!(name.as_str(), "lib" | "main" | "bin"))
            .collect();
        let root = ["lib.rs", "main.rs"].map(|name| src.join(name));
        let root = root.iter().find(|path| path.is_file()).expect("the root of a crate");
        let exported = exported(&tokens(&read(root)), &modules);
        let mut arrows = Self(modules.iter().map(|name| (name.clone(), BTreeMap::new())).collect());
        for path in entries(src).iter().filter(|path| modules.contains(&stem(path))) {
            arrows.read(path, &stem(path), 1, &exported);
        }
        arrows
    }

    /// Reads a file or a folder, which is so many modules below the root.
    fn read(
        &mut self,
        path: &Path,
        module: &str,
        depth: usize,
        exported: &BTreeMap<String, String>,
    ) {
        if path.is_dir() {
            for inner in entries(path).iter().filter(|inner| !is_test(inner)) {
                let is_own = inner.ends_with("mod.rs");
                self.read(inner, module, depth + usize::from(!is_own), exported);
            }
            return;
        }
        let arrows = self.0.get_mut(module).expect("a module");
        for name in names(&tokens(&read(path)), depth) {
            let target = exported.get(&name).filter(|target| *target != module);
            if let Some(target) = target {
                let place = || format!("{} uses {name}", path.display());
                arrows.entry(target.clone()).or_insert_with(place);
            }
        }
    }

    /// The modules from which some path leads back to themselves.
    pub fn in_circles(&self) -> BTreeSet<String> {
        let leads_back = |module: &&String| self.reached(module).contains(*module);
        self.0.keys().filter(leads_back).cloned().collect()
    }

    /// The arrows between these modules, for people.
    pub fn between(&self, modules: &BTreeSet<String>) -> String {
        let mut text = String::new();
        for (from, targets) in self.0.iter().filter(|(from, _)| modules.contains(*from)) {
            for (to, place) in targets.iter().filter(|(to, _)| modules.contains(*to)) {
                text.push_str(&["  ", from, " -> ", to, ": ", place, "\n"].concat());
            }
        }
        text
    }

    fn reached(&self, from: &str) -> BTreeSet<String> {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&String> = self.0[from].keys().collect();
        while let Some(module) = left.pop() {
            if reached.insert(module.clone()) {
                left.extend(self.0[module].keys());
            }
        }
        reached
    }
}

/// What the names directly under the root stand for: modules, and what the root exports of them.
fn exported(tokens: &[String], modules: &BTreeSet<String>) -> BTreeMap<String, String> {
    let mut exported: BTreeMap<String, String> =
        modules.iter().map(|name| (name.clone(), name.clone())).collect();
    let uses = tokens.split(|token| token == ";").filter_map(|statement| {
        let at = statement.iter().position(|token| token == "use")?;
        let path = statement.get(at + 1..)?;
        Some(if path.first()? == "crate" { path.get(2..)? } else { path })
    });
    for path in uses {
        let Some(module) = path.first().filter(|name| modules.contains(*name)) else { continue };
        // A name is what stands before a comma, a closing brace or the end.
        let ends = path.windows(2).filter(|pair| pair[1] == "," || pair[1] == "}");
        let names = ends.map(|pair| &pair[0]).chain(path.last());
        for name in names.filter(|name| is_identifier(name)) {
            exported.insert(name.clone(), module.clone());
        }
    }
    exported
}

/// The first names of the paths that begin at the root.
fn names(tokens: &[String], depth: usize) -> Vec<String> {
    let mut names = Vec::new();
    for n in 0..tokens.len() {
        let inner = n > 0 && tokens[n - 1] == "::";
        let supers = tokens[n..].chunks(2).take_while(|pair| *pair == ["super", "::"]).count();
        let begin = match tokens[n].as_str() {
            "crate" if !inner && tokens.get(n + 1).is_some_and(|next| next == "::") => n + 2,
            "super" if !inner && supers >= depth => n + 2 * supers,
            _ => continue,
        };
        match tokens.get(begin) {
            Some(brace) if brace == "{" => names.extend(first_of_each(&tokens[begin + 1..])),
            Some(name) => names.push(name.clone()),
            None => {}
        }
    }
    names
}

/// The first names of `a::b, c::{d, e}, f}`.
fn first_of_each(tokens: &[String]) -> Vec<String> {
    let (mut names, mut depth, mut begins) = (Vec::new(), 0, true);
    for token in tokens {
        match token.as_str() {
            "}" if depth == 0 => break,
            "{" => depth += 1,
            "}" => depth -= 1,
            "," => {}
            _ if begins && depth == 0 => names.push(token.clone()),
            _ => {}
        }
        begins = token == "," && depth == 0;
    }
    names
}

/// Identifiers, `::` and single marks, without comments, texts and modules under `cfg(test)`.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '"' => text_length(rest),
            // A character; otherwise a lifetime, whose name is taken for an identifier.
            '\'' if rest.starts_with("'\\") => 2 + rest[3..].find('\'').map_or(0, |end| end + 2),
            '\'' if rest.chars().nth(2) == Some('\'') => {
                rest.chars().take(3).map(char::len_utf8).sum()
            }
            _ if first.is_alphanumeric() || first == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                let end = end.unwrap_or(rest.len());
                tokens.push(rest[..end].to_owned());
                end
            }
            ':' if rest.starts_with("::") => {
                tokens.push("::".to_owned());
                2
            }
            _ => {
                if !first.is_whitespace() {
                    tokens.push(first.to_string());
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    without_tests(tokens)
}

fn text_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return at + 1,
            _ => escaped = c == '\\' && !escaped,
        }
    }
    text.len()
}

/// Everything up to the first `#[cfg(test)] mod NAME {`, which stands at the end of a file.
fn without_tests(mut tokens: Vec<String>) -> Vec<String> {
    let begins = |at: usize| {
        let is_module = tokens[at] == "mod" && tokens.get(at + 2).is_some_and(|t| t == "{");
        let before = &tokens[at.saturating_sub(24)..at];
        let attribute = before.iter().rposition(|token| token == "cfg");
        is_module && attribute.is_some_and(|n| before[n..].iter().any(|token| token == "test"))
    };
    if let Some(at) = (0..tokens.len()).find(|at| begins(*at)) {
        tokens.truncate(at);
    }
    tokens
}

fn is_identifier(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn is_test(path: &Path) -> bool {
    matches!(stem(path).as_str(), "tests" | "models")
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder of sources");
    let mut entries: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    entries.retain(|path| path.is_dir() || path.extension().is_some_and(|e| e == "rs"));
    entries.sort();
    entries
}

fn stem(path: &Path) -> String {
    path.file_stem().expect("a name").to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a source")
}

#[test]
fn names_at_the_root_are_found_and_tests_are_not() {
    let text = r#"
        use crate::{Error, a::{b, c}, d}; // crate::comment
        fn f<'x>(y: &'x str) { let q = '"'; crate::inline(y, "crate::text"); super::super::up(); super::near() }
        #[cfg(test)]
        mod tests { use crate::tested; }
    "#;
    assert_eq!(names(&tokens(text), 2), ["Error", "a", "d", "inline", "up"]);
    let modules = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    let root = tokens("mod a; mod b; pub use a::{One, x::Two}; pub use b::Three as Four;");
    let of = exported(&root, &modules);
    let found = ["One", "Two", "Four", "a"].map(|name| of.get(name).map(String::as_str));
    assert_eq!(found, [Some("a"), Some("a"), Some("b"), Some("a")]);
}
