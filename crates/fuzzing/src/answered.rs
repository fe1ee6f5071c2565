//! Answers of a server, read by the rules of RFC 9112 and no others.

/// One answer.
pub struct Answered<'b> {
    pub status: u16,
    pub head: &'b str,
    pub body: Vec<u8>,
}

impl<'b> Answered<'b> {
    /// Takes the next answer from `rest`.
    ///
    /// # Panics
    /// If the answer is not well-formed and complete.
    pub fn take(rest: &mut &'b [u8], to_head: bool) -> Self {
        let end = rest.windows(4).position(|four| four == b"\r\n\r\n").expect("a complete head");
        let head = std::str::from_utf8(&rest[..end]).expect("a head in ASCII");
        *rest = &rest[end + 4..];
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|line| line.get(..3));
        let status = status.and_then(|digits| digits.parse().ok()).expect("a status");
        let mut answer = Self { status, head, body: Vec::new() };
        if to_head || status == 304 {
            return answer;
        }
        answer.body = if answer.field("Transfer-Encoding").is_some() {
            chunks(rest)
        } else if let Some(length) = answer.field("Content-Length") {
            take(rest, length.parse().expect("a length"))
        } else {
            std::mem::take(rest).to_vec()
        };
        answer
    }

    /// Returns the value of a header.
    pub fn field(&self, name: &str) -> Option<&'b str> {
        let mut fields = self.head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

fn take(rest: &mut &[u8], count: usize) -> Vec<u8> {
    let (taken, after) = rest.split_at_checked(count).expect("all bytes of the body");
    *rest = after;
    taken.to_vec()
}

fn chunks(rest: &mut &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("the size of a chunk");
        let size = std::str::from_utf8(&rest[..end]).expect("digits");
        let size = usize::from_str_radix(size, 16).expect("digits");
        *rest = &rest[end + 2..];
        body.extend(take(rest, size));
        assert_eq!(take(rest, 2), b"\r\n");
        if size == 0 {
            return body;
        }
    }
}
