//! Globs with the syntax of git: `?`, `*`, `**` between slashes, bracket expressions, and `\`, which makes the next
//! character an ordinary one.
//!
//! A glob is compiled to tokens. The matcher follows all possible positions in parallel, so its time is bounded by
//! pattern length times text length.

/// A compiled glob.
#[derive(Clone, Debug)]
pub(super) struct Glob(Box<[GlobToken]>);

/// Memory in bytes that an allocation needs in addition to its content.
pub(super) const ALLOCATION: usize = 16;

/// A set of bytes, one bit for each. A filter file of another user may have a million of them.
#[derive(Clone, Debug, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] |= 1 << (byte % 64);
    }

    fn remove(&mut self, byte: u8) {
        self.0[usize::from(byte / 64)] &= !(1 << (byte % 64));
    }

    fn has(&self, byte: u8) -> bool {
        (self.0[usize::from(byte / 64)] >> (byte % 64)) & 1 == 1
    }
}

#[derive(Clone, Debug)]
enum GlobToken {
    /// The byte itself.
    Byte(u8),
    /// One byte that is not a slash.
    Any,
    /// One of these bytes, not a slash.
    Set(Box<ByteSet>),
    /// Any number of bytes that are not slashes.
    Star,
    /// Any number of bytes, including slashes.
    DoubleStar,
    /// The next two tokens may be skipped: `**/` matches any number of directories, even none.
    OptionalPair,
    /// Matches nothing: the pattern is malformed, and git matches nothing with it either.
    Never,
}

/// Returns the number of bytes before the first special character.
pub(super) fn literal_len(text: &[u8]) -> usize {
    text.iter().position(|byte| b"*?[\\".contains(byte)).unwrap_or(text.len())
}

impl Glob {
    /// A glob for a single name, in which `**` is equivalent to `*`.
    pub fn of_name(text: &[u8]) -> Self {
        Self::compile(text, false)
    }

    /// A glob for a path.
    pub fn of_path(text: &[u8]) -> Self {
        Self::compile(text, true)
    }

    fn compile(text: &[u8], is_path: bool) -> Self {
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(byte) = text.get(at) {
            match byte {
                b'?' => tokens.push(GlobToken::Any),
                b'*' => {
                    let end =
                        text[at..].iter().position(|b| *b != b'*').map_or(text.len(), |n| at + n);
                    push_stars(&mut tokens, text, at..end, is_path);
                    at = end;
                    continue;
                }
                b'[' => match bracket(text, at + 1) {
                    Some((set, end)) => {
                        tokens.push(GlobToken::Set(set));
                        at = end;
                        continue;
                    }
                    None => return Self(Box::new([GlobToken::Never])),
                },
                b'\\' => {
                    at += 1;
                    tokens
                        .push(text.get(at).map_or(GlobToken::Never, |byte| GlobToken::Byte(*byte)));
                }
                byte => tokens.push(GlobToken::Byte(*byte)),
            }
            at += 1;
        }
        Self(tokens.into_boxed_slice())
    }

    /// Returns the number of bytes that the glob has on the heap.
    pub fn held(&self) -> usize {
        let sets = self.0.iter().filter(|token| matches!(token, GlobToken::Set(_))).count();
        size_of_val(&*self.0) + sets * (size_of::<ByteSet>() + ALLOCATION) + ALLOCATION
    }

    /// Returns `true` if the glob matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        let mut here = vec![false; self.0.len() + 1];
        let mut next = here.clone();
        self.enter(&mut here, 0);
        for byte in text {
            next.fill(false);
            for (at, token) in self.0.iter().enumerate().filter(|(at, _)| here[*at]) {
                match token {
                    GlobToken::Byte(wanted) if wanted == byte => self.enter(&mut next, at + 1),
                    GlobToken::Any if *byte != b'/' => self.enter(&mut next, at + 1),
                    GlobToken::Set(set) if set.has(*byte) => self.enter(&mut next, at + 1),
                    GlobToken::Star if *byte != b'/' => self.enter(&mut next, at),
                    GlobToken::DoubleStar => self.enter(&mut next, at),
                    _ => {}
                }
            }
            std::mem::swap(&mut here, &mut next);
        }
        here[self.0.len()]
    }

    /// Marks a position and all positions that are reachable from it without consuming a byte.
    fn enter(&self, positions: &mut [bool], mut at: usize) {
        while !std::mem::replace(&mut positions[at], true) {
            match self.0.get(at) {
                Some(GlobToken::Star | GlobToken::DoubleStar) => at += 1,
                Some(GlobToken::OptionalPair) => {
                    // The two tokens after this one are `**` and `/`, so only these positions follow the first.
                    positions[at + 1] = true;
                    positions[at + 2] = true;
                    at += 3;
                }
                _ => return,
            }
        }
    }
}

/// Adds the tokens for the asterisks at `run` in `text`. In a path, `text` is the rest after the literal prefix. As in
/// git, its start counts as the start of a name.
fn push_stars(
    tokens: &mut Vec<GlobToken>,
    text: &[u8],
    run: std::ops::Range<usize>,
    is_path: bool,
) {
    let rest = &text[run.end..];
    let begins = run.start == 0 || text[run.start - 1] == b'/';
    let ends = rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
    if !(is_path && run.len() > 1 && begins && ends) {
        return tokens.push(GlobToken::Star);
    }
    if rest.starts_with(b"/") {
        tokens.push(GlobToken::OptionalPair);
    }
    tokens.push(GlobToken::DoubleStar);
}

/// Parses a bracket expression that begins at `at`. Returns the set of bytes and the position after it;
/// `None` if it is malformed.
fn bracket(text: &[u8], mut at: usize) -> Option<(Box<ByteSet>, usize)> {
    let is_negated = matches!(text.get(at), Some(b'!' | b'^'));
    at += usize::from(is_negated);
    let mut set = Box::<ByteSet>::default();
    let mut before = None;
    let first = at;
    loop {
        let byte = *text.get(at)?;
        if byte == b']' && at > first {
            break;
        }
        let is_range = byte == b'-' && text.get(at + 1).is_some_and(|next| *next != b']');
        match (byte, before) {
            (b'-', Some(from)) if is_range => {
                let (to, end) = escaped(text, at + 1)?;
                (from..=to).for_each(|byte| set.add(byte));
                (before, at) = (None, end);
                continue;
            }
            (b'[', _) if text.get(at + 1) == Some(&b':') => {
                if let Some((name, end)) = class_name(text, at + 2) {
                    let is_member = class(name)?;
                    (0..=255).filter(is_member).for_each(|byte| set.add(byte));
                    (before, at) = (None, end);
                    continue;
                }
            }
            _ => {}
        }
        let (byte, end) = escaped(text, at)?;
        set.add(byte);
        (before, at) = (Some(byte), end);
    }
    if is_negated {
        set.0 = set.0.map(|word| !word);
    }
    set.remove(b'/');
    Some((set, at + 1))
}

/// Returns the byte at `at`, and the position after it. If the byte is a backslash, returns the byte that follows
/// instead.
fn escaped(text: &[u8], at: usize) -> Option<(u8, usize)> {
    match *text.get(at)? {
        b'\\' => Some((*text.get(at + 1)?, at + 2)),
        byte => Some((byte, at + 1)),
    }
}

/// Returns the name of a class such as `[:alpha:]` that begins at `at`, and the position after it. Returns `None` if
/// `:]` is missing, so that `[` is an ordinary character.
fn class_name(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = at + text.get(at..)?.iter().position(|byte| *byte == b']')?;
    let name = text[at..end].strip_suffix(b":")?;
    Some((name, end + 1))
}

/// Returns the members of a class; `None` if the class is unknown.
fn class(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_of_many_directories_is_matched_without_recursion() {
        let glob = Glob::of_path("**/".repeat(340_000).as_bytes());
        assert!(glob.matches(b"a/b/"));
        assert!(!glob.matches(b"a"));
    }

    /// The longest filter file has 1 MiB.
    #[test]
    fn the_memory_of_a_glob_is_known() {
        let sets = Glob::of_name(&b"[x]".repeat((1 << 20) / 3));
        assert!((16 << 20..24 << 20).contains(&sets.held()), "{}", sets.held());
        let bytes = Glob::of_name(&b"?".repeat(1 << 20));
        assert_eq!(bytes.held(), (16 << 20) + ALLOCATION);
    }

    #[test]
    fn a_set_has_exactly_the_bytes_of_its_expression() {
        let is_in = |text: &[u8], byte: u8| Glob::of_name(text).matches(&[byte]);
        for byte in 0..=255 {
            assert_eq!(is_in(b"[\x3f-A\xff]", byte), matches!(byte, 0x3f..=0x41 | 0xff), "{byte}");
            assert_eq!(is_in(b"[!\x00-\xfe]", byte), byte == 0xff, "{byte}");
        }
    }
}
