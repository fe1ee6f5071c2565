//! Decodes POSIX ACLs from their extended attributes (acl(5), linux/posix_acl_xattr.h). A copy without an ACL uses
//! them to determine safe permission bits.

const VERSION: u32 = 2;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// Returns `true` if the ACL grants exactly what the permission bits grant.
pub(crate) fn is_trivial(list: &[u8]) -> bool {
    entries(list)
        .is_some_and(|mut all| all.all(|(tag, _)| [OWNER, OWNING_GROUP, OTHER].contains(&tag)))
}

/// Returns permission bits for a copy that has no ACL. They grant no user more than the ACL does. The group bits of the
/// source cannot be used, because they are the mask of the ACL.
pub(crate) fn allowed_without(list: &[u8]) -> u32 {
    let Some(all) = entries(list) else { return 0o700 };
    let all: Vec<_> = all.collect();
    let least = |tags: &[u16]| {
        all.iter().filter(|(tag, _)| tags.contains(tag)).fold(0o7, |least, (_, may)| least & may)
    };
    // Without the ACL, the kernel treats a named user as a member of the owning group or as other. It treats a member
    // of a named group as other. The mask limits named entries and the owning group, but not other users.
    let group = least(&[OWNING_GROUP, USER, MASK]);
    let is_named = all.iter().any(|(tag, _)| [USER, GROUP].contains(tag));
    let other = least(if is_named { &[OTHER, USER, GROUP, MASK] } else { &[OTHER] });
    0o700 | group << 3 | other
}

/// Returns tags and permissions; `None` if the format is unknown.
fn entries(list: &[u8]) -> Option<impl Iterator<Item = (u16, u32)>> {
    let (version, entries) = list.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<8>();
    let is_known = u32::from_le_bytes(*version) == VERSION && rest.is_empty();
    is_known.then(|| {
        entries.iter().map(|[t0, t1, p0, p1, ..]| {
            (u16::from_le_bytes([*t0, *t1]), u32::from(u16::from_le_bytes([*p0, *p1]) & 0o7))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, may) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&may.to_le_bytes());
            bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_list_of_three_is_the_mode_in_other_words() {
        assert!(is_trivial(&list(&[(OWNER, 6), (OWNING_GROUP, 4), (OTHER, 0)])));
        assert!(!is_trivial(&list(&[(OWNER, 6), (OWNING_GROUP, 4), (MASK, 4), (OTHER, 0)])));
        assert!(
            !is_trivial(&list(&[(OWNER, 6)])[..9]) && !is_trivial(b"") && !is_trivial(&[9; 12])
        );
    }

    #[test]
    fn without_a_list_no_one_may_do_more_than_with_it() {
        let base = [(OWNER, 6), (OWNING_GROUP, 4), (MASK, 7), (OTHER, 4)];
        for (named, allowed) in [
            // The group bits of the source, 7, are the mask. The copy must not grant them to the group.
            (&[(USER, 7)][..], 0o744),
            (&[(GROUP, 7)], 0o744),
            // Users and groups to which the ACL denies access must not get access.
            (&[(USER, 0)], 0o700),
            (&[(USER, 7), (GROUP, 0)], 0o740),
            (&[], 0o744),
        ] {
            let all = [&base[..], named].concat();
            assert_eq!(allowed_without(&list(&all)), allowed, "{named:?}");
        }
        // An empty mask limits named entries and the owning group, but not other users.
        let masked = [(OWNER, 7), (OWNING_GROUP, 7), (MASK, 0), (OTHER, 5)];
        assert_eq!(allowed_without(&list(&masked)), 0o705);
        assert_eq!(allowed_without(&list(&[&masked[..], &[(USER, 7)]].concat())), 0o700);
        assert_eq!(allowed_without(b"something else"), 0o700);
    }
}
