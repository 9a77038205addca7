//! Reads the modules of one crate: which items each defines, imports and names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::tokens::{Kind, Token, tokens};

/// A module's index in [`Tree::modules`]; the crate's root is 0.
pub(super) type Id = usize;

/// The modules of one crate, tests left out.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) modules: Vec<Module>,
}

#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) name: String,
    pub(super) parent: Option<Id>,
    pub(super) children: BTreeMap<String, Id>,
    pub(super) file: PathBuf,
    /// The names that this module itself defines.
    pub(super) items: BTreeSet<String>,
    /// The names that it imports, by the name that they have here, each with its path.
    pub(super) imports: Vec<(String, Vec<String>)>,
    /// The paths of which it imports everything.
    pub(super) globs: Vec<(Vec<String>, usize)>,
    /// The paths that it names, in `use` items and elsewhere, each with its line.
    pub(super) paths: Vec<(Vec<String>, usize)>,
}

impl Tree {
    /// Reads the crate with the root `file`.
    pub(super) fn read(file: &Path) -> io::Result<Self> {
        let mut tree = Self::of(file);
        tree.read_file(0, file.parent().unwrap_or(Path::new("")))?;
        Ok(tree)
    }

    /// Reads a crate that is in one file.
    #[cfg(test)]
    pub(super) fn parse(source: &str) -> Self {
        let file = Path::new("lib.rs");
        let mut tree = Self::of(file);
        tree.read_source(0, source, Path::new("")).expect("no other file");
        tree
    }

    /// A crate of which nothing is read yet.
    fn of(file: &Path) -> Self {
        Self { modules: vec![Module { file: file.to_owned(), ..Module::default() }] }
    }

    /// The module's place, from the module itself up to the root.
    pub(super) fn ancestors(&self, id: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(Some(id), |id| self.modules[*id].parent)
    }

    /// The module's path, without the crate's name.
    pub(super) fn path(&self, id: Id) -> String {
        let mut names: Vec<_> = self.ancestors(id).map(|id| self.modules[id].name.as_str()).collect();
        names.pop();
        names.reverse();
        names.join("::")
    }

    /// Reads the file of module `id`; `directory` is where the files of its children are.
    fn read_file(&mut self, id: Id, directory: &Path) -> io::Result<()> {
        let file = &self.modules[id].file;
        let source = fs::read_to_string(file)
            .map_err(|error| io::Error::other(format!("{}: {error}", file.display())))?;
        self.read_source(id, &source, directory)
    }

    fn read_source(&mut self, id: Id, source: &str, directory: &Path) -> io::Result<()> {
        let tokens = tokens(source);
        if inner_attributes(&tokens).any(is_for_tests) {
            return Ok(());
        }
        Reader { tree: self, tokens: &tokens, at: 0 }.module(id, directory)
    }

    fn add(&mut self, parent: Id, name: &str, file: PathBuf) -> Id {
        let id = self.modules.len();
        let name = name.to_owned();
        self.modules[parent].children.insert(name.clone(), id);
        self.modules.push(Module { name, parent: Some(parent), file, ..Module::default() });
        id
    }
}

struct Reader<'a> {
    tree: &'a mut Tree,
    tokens: &'a [Token<'a>],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads module `id` up to the end of its file or to its closing brace.
    fn module(&mut self, id: Id, directory: &Path) -> io::Result<()> {
        let mut depth = 0_usize;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Sign('#') => {
                    if is_for_tests(self.attribute()) {
                        self.skip_item();
                    }
                }
                Kind::Sign('{') => {
                    depth += 1;
                    self.at += 1;
                }
                Kind::Sign('}') => {
                    self.at += 1;
                    let Some(less) = depth.checked_sub(1) else { return Ok(()) };
                    depth = less;
                }
                Kind::Word("mod") if depth == 0 => self.child(id, directory)?,
                // `impl Trait + use<'a>` imports nothing.
                Kind::Word("use") if self.kind(1) != Some(Kind::Sign('<')) => {
                    self.at += 1;
                    self.tree_of_uses(id, &mut Vec::new());
                }
                Kind::Word(word) => {
                    if depth == 0
                        && let Some(name) = self.defined(word)
                    {
                        self.tree.modules[id].items.insert(name.to_owned());
                    }
                    self.path(id);
                }
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn kind(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    /// The name that an item at this place defines, if the keyword `word` begins one.
    fn defined(&self, word: &str) -> Option<&'a str> {
        let ahead = match (word, self.kind(1)) {
            ("const" | "static", Some(Kind::Word("fn" | "unsafe" | "async" | "extern"))) => return None,
            ("static", Some(Kind::Word("mut"))) => 2,
            ("macro_rules", Some(Kind::Sign('!'))) => 2,
            ("fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static", _) => 1,
            _ => return None,
        };
        if let Some(Kind::Word(name)) = self.kind(ahead) { Some(name) } else { None }
    }

    /// Reads `mod NAME;` with its file, or `mod NAME { … }`.
    fn child(&mut self, parent: Id, directory: &Path) -> io::Result<()> {
        let (Some(Kind::Word(name)), Some(kind)) = (self.kind(1), self.kind(2)) else {
            self.at += 1;
            return Ok(());
        };
        self.at += 3;
        let inside = directory.join(name);
        if kind == Kind::Sign('{') {
            let file = self.tree.modules[parent].file.clone();
            let id = self.tree.add(parent, name, file);
            return self.module(id, &inside);
        }
        let beside = directory.join(format!("{name}.rs"));
        let file = if beside.is_file() { beside } else { inside.join("mod.rs") };
        let id = self.tree.add(parent, name, file);
        self.tree.read_file(id, &inside)
    }

    /// Reads a `use` item, or one group of it, below `prefix`.
    fn tree_of_uses(&mut self, id: Id, prefix: &mut Vec<String>) {
        let own = prefix.len();
        let mut alias = None;
        let mut ends_in_group = false;
        while let Some(Token { kind, line }) = self.tokens.get(self.at).copied() {
            self.at += 1;
            match kind {
                Kind::Word("as") => {
                    alias = self.kind(0);
                    self.at += 1;
                }
                Kind::Word(word) => prefix.push(word.to_owned()),
                Kind::Sign('*') => {
                    self.tree.modules[id].globs.push((prefix.clone(), line));
                    ends_in_group = true;
                }
                Kind::Sign('{') => {
                    self.tree_of_uses(id, prefix);
                    ends_in_group = true;
                }
                Kind::Sign(',' | '}' | ';') => {
                    if !ends_in_group && prefix.len() > own {
                        self.import(id, prefix.clone(), alias, line);
                    }
                    prefix.truncate(own);
                    (alias, ends_in_group) = (None, false);
                    if kind != Kind::Sign(',') {
                        return;
                    }
                }
                _ => {}
            }
        }
    }

    fn import(&mut self, id: Id, mut path: Vec<String>, alias: Option<Kind<'a>>, line: usize) {
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = match alias {
            Some(Kind::Word(alias)) => alias.to_owned(),
            _ => path.last().cloned().unwrap_or_default(),
        };
        let module = &mut self.tree.modules[id];
        module.paths.push((path.clone(), line));
        module.imports.push((name, path));
    }

    /// Reads a path, and notes it if it has more than one segment. What follows a `.` is a method
    /// or a field, what follows `$` a macro's variable, and what follows `::` the rest of `<T as
    /// Trait>::` or of an outer crate's path.
    fn path(&mut self, id: Id) {
        let before = self.at.checked_sub(1).and_then(|at| self.tokens.get(at)).map(|token| token.kind);
        let line = self.tokens[self.at].line;
        let mut path = Vec::new();
        while let Some(Kind::Word(word)) = self.kind(0) {
            path.push(word.to_owned());
            self.at += 1;
            if self.kind(0) != Some(Kind::Colons) || !matches!(self.kind(1), Some(Kind::Word(_))) {
                break;
            }
            self.at += 1;
        }
        let is_path = match before {
            Some(Kind::Sign('.') | Kind::Colons) => false,
            Some(Kind::Sign('$')) => path[0] == "crate",
            _ => true,
        };
        if is_path && path.len() > 1 {
            self.tree.modules[id].paths.push((path, line));
        }
    }

    /// Reads an attribute and returns what is between its brackets.
    fn attribute(&mut self) -> &'a [Token<'a>] {
        self.at += 1;
        if self.kind(0) == Some(Kind::Sign('!')) {
            self.at += 1;
        }
        if self.kind(0) != Some(Kind::Sign('[')) {
            return &[];
        }
        let start = self.at + 1;
        let mut depth = 0_usize;
        while let Some(kind) = self.kind(0) {
            self.at += 1;
            match kind {
                Kind::Sign('[') => depth += 1,
                Kind::Sign(']') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        &self.tokens[start..self.at - 1]
    }

    /// Skips the item, field or statement that follows: up to its `;`, or to the end of its braces,
    /// or up to the end of what it is in.
    fn skip_item(&mut self) {
        let mut depth = 0_usize;
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Sign('{' | '(' | '[') => depth += 1,
                Kind::Sign('}' | ')' | ']') if depth == 0 => return,
                Kind::Sign('}' | ')' | ']') => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 && matches!(kind, Kind::Sign(';' | '}')) {
                return;
            }
        }
    }
}

/// The attributes of the file itself.
fn inner_attributes<'a>(tokens: &'a [Token<'a>]) -> impl Iterator<Item = &'a [Token<'a>]> {
    let mut rest = tokens;
    std::iter::from_fn(move || {
        let [Token { kind: Kind::Sign('#'), .. }, Token { kind: Kind::Sign('!'), .. }, ..] = rest else {
            return None;
        };
        let end = rest.iter().position(|token| token.kind == Kind::Sign(']'))?;
        let attribute = &rest[3..end];
        rest = &rest[end + 1..];
        Some(attribute)
    })
}

/// Whether an attribute leaves its item out of everything but tests: `cfg(test)`, `cfg(all(test,
/// …))`.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let words: Vec<_> = attribute
        .iter()
        .filter_map(|token| if let Kind::Word(word) = token.kind { Some(word) } else { None })
        .collect();
    matches!(words[..], ["cfg", "test", ..] | ["cfg", "all", "test", ..])
}
