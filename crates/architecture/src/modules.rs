//! The modules of a crate, parsed from its sources: their declarations, definitions, `use` items and paths. Code
//! under `cfg(test)` is ignored.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The names from the root of a crate down to a module, or a path in a source file.
pub type Names = Vec<String>;

/// The modules of a crate by name; the root's name is empty.
pub struct Tree {
    pub modules: BTreeMap<Names, Module>,
}

/// A source file.
pub struct Module {
    pub file: PathBuf,
    defined: BTreeSet<String>,
    /// Names that `use` items import: the local name, or `*` for a glob, and the path.
    uses: Vec<(String, Names)>,
    paths: BTreeSet<Names>,
}

/// The target of a path.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    pub module: Names,
    /// Name of an item in the module; `None` if the path names the module itself.
    item: Option<String>,
}

impl Tree {
    pub fn read(src: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| src.join(name));
        let root = root.iter().find(|path| path.is_file()).expect("the root of a crate");
        let mut tree = Self { modules: BTreeMap::new() };
        tree.enter(root, src, Vec::new());
        tree
    }

    /// Reads a file, and the files in `folder` for the modules that it declares.
    fn enter(&mut self, file: &Path, folder: &Path, names: Names) {
        let (module, declared) = Module::read(file);
        for child in declared {
            let inner = folder.join(&child);
            let files = [inner.with_extension("rs"), inner.join("mod.rs")];
            let file = files.iter().find(|path| path.is_file());
            let file = file.unwrap_or_else(|| panic!("{}: no file", inner.display()));
            let names = names.iter().cloned().chain([child]).collect();
            self.enter(file, &inner, names);
        }
        self.modules.insert(names, module);
    }

    /// Returns the module that defines the target of this path; `None` for other crates, and for names local to a
    /// function.
    pub fn find(&self, from: &[String], path: &[String]) -> Option<Found> {
        self.follow(from, path, 16)
    }

    fn follow(&self, from: &[String], path: &[String], most: u32) -> Option<Found> {
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "super" => from[..from.len().checked_sub(1)?].to_vec(),
            _ => from.to_vec(),
        };
        if !matches!(first.as_str(), "crate" | "self" | "super") {
            rest = path;
        }
        while let Some((name, left)) = rest.split_first() {
            if name == "super" {
                at.pop()?;
                rest = left;
                continue;
            }
            match self.inside(&at, name, most.checked_sub(1)?)? {
                Found { module, item: None } => at = module,
                item => return Some(item),
            }
            rest = left;
        }
        Some(Found { module: at, item: None })
    }

    /// Resolves a name inside a module.
    fn inside(&self, module: &[String], name: &str, most: u32) -> Option<Found> {
        let of = &self.modules[module];
        let child: Names = module.iter().cloned().chain([name.to_owned()]).collect();
        if self.modules.contains_key(&child) {
            return Some(Found { module: child, item: None });
        }
        if of.defined.contains(name) {
            return Some(Found { module: module.to_vec(), item: Some(name.to_owned()) });
        }
        let named = of.uses.iter().filter(|(own, path)| own == name && path.first() != Some(own));
        let globs = of.uses.iter().filter(|(own, _)| own == "*");
        let mut found = named.filter_map(|(_, path)| self.follow(module, path, most));
        found.next().or_else(|| {
            let mut found = globs.filter_map(|(_, path)| {
                let glob = self.follow(module, path, most).filter(|glob| glob.item.is_none())?;
                (glob.module != module).then(|| self.inside(&glob.module, name, most - 1))?
            });
            if most == 0 { None } else { found.next() }
        })
    }
}

impl Module {
    fn read(file: &Path) -> (Self, Names) {
        let text = fs::read_to_string(file).expect("a source");
        Self::of(file, &tokens(&text))
    }

    fn of(file: &Path, tokens: &[String]) -> (Self, Names) {
        let (defined, uses, paths) = Default::default();
        let mut module = Self { file: file.to_owned(), defined, uses, paths };
        let mut declared = Vec::new();
        // Depth of braces at the start of each inline module.
        let (mut depth, mut inline) = (0, Vec::new());
        let mut at = 0;
        while at < tokens.len() {
            let next = |n: usize| tokens.get(at + n).map_or("", String::as_str);
            match tokens[at].as_str() {
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    inline.pop_if(|begin| *begin == depth);
                }
                "mod" if next(2) == ";" => declared.push(next(1).to_owned()),
                "mod" if next(2) == "{" => inline.push(depth),
                "use" => at += module.read_use(&tokens[at + 1..], inline.len()),
                "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "union"
                    if inline.is_empty() && is_identifier(next(1)) =>
                {
                    module.defined.insert(next(1).to_owned());
                }
                "macro_rules" => _ = module.defined.insert(next(2).to_owned()),
                name if is_identifier(name) && next(1) == "::" => {
                    let path = tokens[at..].chunks(2).take_while(|pair| is_identifier(&pair[0]));
                    let length = path.clone().take_while(|pair| pair[1..] == ["::"]);
                    let length = length.count() + 1;
                    let path: Names = path.take(length).map(|pair| pair[0].clone()).collect();
                    at += 2 * (path.len() - 1);
                    module.paths.insert(outside(path, inline.len()));
                }
                _ => {}
            }
            at += 1;
        }
        (module, declared)
    }

    /// Returns every path used in this file.
    pub fn paths(&self) -> impl Iterator<Item = &Names> {
        self.paths.iter().chain(self.uses.iter().map(|(_, path)| path))
    }

    /// Parses the tokens after `use`; returns their number.
    fn read_use(&mut self, tokens: &[String], inline: usize) -> usize {
        let length = tokens.iter().position(|token| token == ";").unwrap_or(tokens.len());
        let mut prefixes = Vec::new();
        let mut path: Names = Vec::new();
        let mut alias = None;
        for n in 0..length {
            match tokens[n].as_str() {
                "::" | "as" => {}
                "{" => prefixes.push(path.clone()),
                mark @ ("," | "}") => {
                    self.enter(&mut path, alias.take(), inline);
                    path = prefixes.last().cloned().unwrap_or_default();
                    if mark == "}" {
                        prefixes.pop();
                        path.clear();
                    }
                }
                "*" => self.uses.push(("*".to_owned(), outside(std::mem::take(&mut path), inline))),
                name if n > 0 && tokens[n - 1] == "as" => alias = Some(name.to_owned()),
                "self" if !path.is_empty() => {}
                name => path.push(name.to_owned()),
            }
        }
        self.enter(&mut path, alias, inline);
        length
    }

    fn enter(&mut self, path: &mut Names, alias: Option<String>, inline: usize) {
        if let Some(last) = path.last().cloned() {
            let path = outside(std::mem::take(path), inline);
            self.uses.push((alias.unwrap_or(last), path));
        }
    }
}

/// Converts a path inside nested inline modules to a path relative to the file.
fn outside(mut path: Names, inline: usize) -> Names {
    let supers = path.iter().take_while(|name| *name == "super").count();
    path.drain(..supers.min(inline));
    path
}

/// Returns identifiers, `::` and single characters, without comments, strings, and code under `cfg(test)`.
fn tokens(text: &str) -> Names {
    let mut tokens: Names = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => text_length(rest),
            'r' if rest.starts_with("r\"") => 2 + rest[2..].find('"').map_or(0, |end| end + 1),
            'r' if rest.starts_with("r#\"") => rest.find("\"#").map_or(rest.len(), |end| end + 2),
            // A quote begins a character literal or a lifetime. The name of a lifetime becomes an identifier.
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
    without_tests(&tokens)
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

/// Removes every item under a `cfg` attribute that requires `test`.
fn without_tests(tokens: &[String]) -> Names {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let attribute = tokens[at..].starts_with(&["#", "[", "cfg", "("].map(str::to_owned));
        let end = tokens[at..].iter().position(|token| token == "]").map_or(0, |end| at + end + 1);
        let is_test = attribute && {
            let inside = &tokens[at..end];
            inside.iter().any(|token| token == "test") && !inside.iter().any(|token| token == "not")
        };
        if is_test {
            at = end_of_item(tokens, end);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the end of the item that begins here: after a semicolon or comma outside of brackets, or after its closing
/// brace.
fn end_of_item(tokens: &[String], begin: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(begin) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth -= 1;
                if depth < 0 {
                    return at;
                }
                if depth == 0 && token == "}" {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is_identifier(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Names {
        text.split("::").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    fn tree(files: &[(&str, &str)]) -> Tree {
        let of = |text: &str| Module::of(Path::new("x.rs"), &tokens(text)).0;
        Tree { modules: files.iter().map(|(name, text)| (names(name), of(text))).collect() }
    }

    #[test]
    fn a_path_leads_to_the_module_that_defines_its_name() {
        let tree = tree(&[
            ("", "mod a; mod c; pub use a::{One, b::Two as Three}; pub fn here() {}"),
            ("a", "mod b; pub use b::*; pub struct One;"),
            ("a::b", "pub struct Two; mod inner { use super::super::One; }"),
            ("c", "use crate::a; use std::fs;"),
        ]);
        let leads = |from: &str, path: &str| {
            tree.find(&names(from), &names(path)).map(|found| found.module.join("::"))
        };
        for (from, path, target) in [
            ("c", "crate::One", "a"),
            ("c", "crate::Three", "a::b"),
            ("c", "crate::Three::new", "a::b"),
            ("c", "a::Two", "a::b"),
            ("c", "super::here", ""),
            ("a::b", "super::super::c", "c"),
            ("a", "self::b::Two", "a::b"),
        ] {
            assert_eq!(leads(from, path).as_deref(), Some(target), "{from} {path}");
        }
        for path in ["fs::read", "Vec::new", "crate::nothing", "super::super::c"] {
            assert_eq!(leads("c", path), None, "{path}");
        }
        let inner = tree.modules[&names("a::b")].paths().collect::<Vec<_>>();
        assert_eq!(inner, [&names("super::One")], "a module inside a file is part of that file");
    }

    #[test]
    fn comments_texts_and_tests_name_nothing() {
        let text = r#"
            use crate::{Error, a::{b, c as d}, e::*}; // crate::comment
            fn f<'x>(y: &'x str) { let q = '"'; crate::inline(y, "crate::text"); }
            #[cfg(test)]
            mod tests { use crate::tested; }
            #[cfg(test)]
            use crate::also_tested;
            #[cfg(not(test))]
            use crate::kept;
        "#;
        let (module, _) = Module::of(Path::new("x.rs"), &tokens(text));
        let mut paths: Vec<String> = module.paths().map(|path| path.join("::")).collect();
        paths.sort();
        let expected = [
            "crate::Error",
            "crate::a::b",
            "crate::a::c",
            "crate::e",
            "crate::inline",
            "crate::kept",
        ];
        assert_eq!(paths, expected);
    }
}
