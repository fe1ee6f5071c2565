//! Sends one request and follows its redirects.

use super::{
    FetchError, FetchOptions, FetchUrl,
    connect::FetchConnection,
    deadline::{CancelCheck, NetDeadline},
    head::ResponseHead,
    request,
    resume::{self, FileRequest},
};

/// A longer chain of redirects is treated as a loop.
const MOST_REDIRECTS: usize = 10;

/// Sends the request and returns the connection, the head of the response and the final URL. A status other than 200,
/// 206 or the refusal of a range is an error.
pub fn ask(
    first: &FetchUrl,
    asked: &FileRequest<'_>,
    options: &FetchOptions,
    check: &CancelCheck<'_>,
) -> Result<(FetchConnection, ResponseHead, FetchUrl), FetchError> {
    let mut target = first.clone();
    let deadline = NetDeadline { limit: options.stall, check };
    for _ in 0..=MOST_REDIRECTS {
        let mut connection = FetchConnection::open(&target, options, &deadline)
            .map_err(|error| options.answered.as_temporary(first, error))?;
        let (is_own, proxy) = (target.is_beside(first), options.proxies.of(&target));
        let text = request::text(&target, asked, &options.extra, is_own, proxy);
        connection.send(text.as_bytes(), &deadline)?;
        let limit = options.head_limit(options.extra.wants_digest);
        let head = connection.head(&NetDeadline { limit, check })?;
        match (head.status, head.get("location")) {
            (301 | 302 | 303 | 307 | 308, Some(location)) => {
                target = target.join(location)?.for_user_of(first);
                connection.decline(&head, 0, &deadline);
            }
            (200 | 206, _) => {
                options.answered.note([first, &target]);
                decoded(&head, [first, &target])?;
                return Ok((connection, head, target));
            }
            // Statuses with which a server may refuse a range.
            (400 | 403 | 416 | 501, _) if asked.range.is_some() => {
                options.answered.note([first, &target]);
                return Ok((connection, head, target));
            }
            _ => {
                options.answered.note([first, &target]);
                connection.decline(&head, 0, &deadline);
                return Err(resume::status(&head));
            }
        }
    }
    Err(FetchError::broken(format!("more than {MOST_REDIRECTS} redirects, the last to '{target}'")))
}

/// Returns an error if the body is encoded, because the request did not ask for an encoding. `names`: the URLs before
/// and after redirects. If one has the extension of the encoding, such as `.gz`, the requested file itself is
/// compressed.
fn decoded(head: &ResponseHead, names: [&FetchUrl; 2]) -> Result<(), FetchError> {
    let encoding = head.get("content-encoding").unwrap_or_default();
    // Some servers send `none`, which is not registered, and mean `identity`.
    let is_plain = ["", "identity", "none"].iter().any(|one| encoding.eq_ignore_ascii_case(one));
    if is_plain || names.iter().any(|name| name.is_named_after(encoding)) {
        return Ok(());
    }
    let why = format!("Content-Encoding is {encoding}, which was not requested");
    Err(FetchError::Broken(why))
}
