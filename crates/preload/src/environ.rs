//! The environment with which the program was started. It is read from /proc: not every C library passes it to constructors, and
//! a program may have changed its own copy.

use crate::raw::{File, O_RDONLY};

/// Reads the value of a variable into `into`. Returns `None` if it is not set or does not fit.
pub fn value<'b>(name: &str, into: &'b mut [u8]) -> Option<&'b mut [u8]> {
    let mut file = File::open(b"/proc/self/environ\0", O_RDONLY)?;
    let len = find(name.as_bytes(), into, &mut |chunk| file.read(chunk))?;
    into.get_mut(..len)
}

/// Copies the value of a variable to `into` and returns its length. `read` returns the next bytes, or 0 at the end.
fn find(name: &[u8], into: &mut [u8], read: &mut dyn FnMut(&mut [u8]) -> usize) -> Option<usize> {
    let mut chunk = [0; 1024];
    // Number of bytes of `name` that match the current variable. `None` once they differ.
    let mut matched = Some(0);
    let mut value: Option<usize> = None;
    loop {
        let got = read(&mut chunk);
        if got == 0 {
            return value;
        }
        for byte in chunk.get(..got)? {
            match (value, *byte) {
                (Some(len), 0) => return Some(len),
                (Some(len), byte) => {
                    *into.get_mut(len)? = byte;
                    value = Some(len + 1);
                }
                (None, 0) => matched = Some(0),
                (None, byte) => match matched {
                    Some(count) if count == name.len() && byte == b'=' => value = Some(0),
                    Some(count) if name.get(count) == Some(&byte) => matched = Some(count + 1),
                    _ => matched = None,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(name: &str, environ: &[u8], step: usize, room: usize) -> Option<String> {
        let mut left = environ;
        let mut read = |into: &mut [u8]| {
            let got = step.min(left.len()).min(into.len());
            into[..got].copy_from_slice(&left[..got]);
            left = &left[got..];
            got
        };
        let mut into = vec![0; room];
        let len = find(name.as_bytes(), &mut into, &mut read)?;
        Some(String::from_utf8_lossy(&into[..len]).into_owned())
    }

    #[test]
    fn a_variable_is_found_wherever_the_reads_are_cut() {
        let environ = b"A=1\0NAME2=no\0XNAME=no\0NAM=no\0NAME\0NAME=yes=1\0NAME=late\0";
        for step in 1..=environ.len() {
            assert_eq!(look("NAME", environ, step, 64).as_deref(), Some("yes=1"), "{step}");
            assert_eq!(look("A", environ, step, 64).as_deref(), Some("1"));
            assert_eq!(look("NAM", environ, step, 64).as_deref(), Some("no"));
            assert_eq!(look("N", environ, step, 64), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_not_cut_off() {
        assert_eq!(look("NAME", b"NAME=value\0", 4, 4), None);
        assert_eq!(look("NAME", b"NAME=value\0", 4, 5).as_deref(), Some("value"));
        // The kernel may truncate the end.
        assert_eq!(look("NAME", b"NAME=value", 4, 9).as_deref(), Some("value"));
        assert_eq!(look("NAME", b"", 4, 9), None);
    }

    #[test]
    fn our_own_environment_is_read() {
        let mut into = [0; 4096];
        let path = value("PATH", &mut into).expect("tests run with a PATH");
        assert_eq!(path, std::env::var("PATH").unwrap().as_bytes());
    }
}
