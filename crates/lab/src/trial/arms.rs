//! The arms (compared variants) of a trial: the unchanged program, the program with each kernel, and with other glibc
//! settings.

use serde::Serialize;
use std::{ffi::OsString, path::Path, process::Command};
use thalweg_kernels::{FILLS, KERNELS, Kernel, tuned};
use thalweg_preload::{choice::LIBC, layout};

use super::TrialError;

/// The variable from which glibc's loader reads its settings.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The variable with objects that the loader loads first.
const PRELOAD: &str = "LD_PRELOAD";

/// The change made to a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum SettingKind {
    Plain,
    /// Calls of memcpy and related functions use these kernels.
    Kernel {
        /// The kernel for memcpy, mempcpy and memmove, in the format of [`thalweg_preload::choice`].
        copies: String,
        fills: String,
    },
    /// glibc uses other thresholds.
    Tunables {
        /// `NAME=VALUE[:NAME=VALUE...]`.
        text: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrialSetting {
    /// The name in tables and results.
    pub name: String,
    #[serde(flatten)]
    pub kind: SettingKind,
}

/// An arm that was requested, or is usual, but does not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOutSetting {
    pub name: String,
    pub reason: String,
}

/// Kernels by size. Each serves sizes up to and including its number; libc serves larger sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelBands {
    /// The kernels for memcpy, mempcpy and memmove.
    pub copies: Vec<(u64, String)>,
    /// The kernels for memset; empty for libc's.
    pub fills: Vec<(u64, String)>,
}

/// A kernel's name, and a function that returns whether this CPU can run it.
type KnownKernel = (&'static str, fn() -> bool);

/// Returns the names of all kernels of this build.
pub fn kernel_names() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|row| row.name)
}

/// Returns the setting of the unchanged program.
pub fn plain() -> TrialSetting {
    TrialSetting { name: LIBC.to_owned(), kind: SettingKind::Plain }
}

/// libc's own functions, called through the object: shows the cost of the object itself.
pub const OBJECT_ALONE: &str = "object-alone";

fn object_alone() -> TrialSetting {
    let kind = SettingKind::Kernel { copies: LIBC.to_owned(), fills: LIBC.to_owned() };
    TrialSetting { name: OBJECT_ALONE.to_owned(), kind }
}

/// Returns the arms for these kernels (all of this machine if none are named) and those that are left out. An unknown
/// name is an error.
pub fn kernels(
    asked: Option<&[String]>,
    bands: Option<&KernelBands>,
) -> Result<(Vec<TrialSetting>, Vec<LeftOutSetting>), TrialError> {
    let usual: Vec<String> = kernel_names().map(str::to_owned).collect();
    let (mut arms, mut left_out): (Vec<TrialSetting>, Vec<LeftOutSetting>) =
        (Vec::new(), Vec::new());
    for name in asked.unwrap_or(&usual) {
        // libc is the unchanged program, which always takes part.
        if name == LIBC || arms.iter().any(|arm| arm.name == *name) {
            continue;
        }
        let row = KERNELS.iter().find(|row| row.name == name);
        let row = row
            .ok_or_else(|| TrialError::NoKernel { name: name.clone(), known: usual.join(", ") })?;
        let kind = if row.name == tuned::NAME { of_bands(bands) } else { of_kernel(row) };
        match kind {
            Ok(kind) => arms.push(TrialSetting { name: name.clone(), kind }),
            Err(reason) => left_out.push(LeftOutSetting { name: name.clone(), reason }),
        }
    }
    if !arms.is_empty() {
        arms.insert(0, object_alone());
    }
    Ok((arms, left_out))
}

fn of_kernel(row: &Kernel) -> Result<SettingKind, String> {
    if (row.is_available)() {
        Ok(SettingKind::Kernel {
            copies: row.name.to_owned(),
            fills: fill_beside(row.name).to_owned(),
        })
    } else {
        Err("this processor cannot run the kernel".to_owned())
    }
}

/// Returns the fill kernel with the same name or of the same family (`rep-movsb`, `rep-stosb`); otherwise libc's.
fn fill_beside(kernel: &str) -> &'static str {
    let family = |name: &'static str| name.split_once('-').map(|(family, _)| family);
    let own = kernel.split_once('-').map(|(family, _)| family);
    let available = || FILLS.iter().filter(|fill| (fill.is_available)());
    let same = available().find(|fill| fill.name == kernel);
    let kin = || available().find(|fill| own.is_some() && family(fill.name) == own);
    same.or_else(kin).map_or(LIBC, |fill| fill.name)
}

fn of_bands(bands: Option<&KernelBands>) -> Result<SettingKind, String> {
    let Some(bands) = bands.filter(|bands| !bands.copies.is_empty()) else {
        return Err("no sizes were measured from memory to memory on this machine; run `thalweg tune --pair memory:memory`".to_owned());
    };
    let copies: Vec<KnownKernel> = KERNELS.iter().map(|row| (row.name, row.is_available)).collect();
    let fills: Vec<KnownKernel> = FILLS.iter().map(|row| (row.name, row.is_available)).collect();
    let copies = written(&bands.copies, &copies)?;
    Ok(SettingKind::Kernel { copies, fills: written(&bands.fills, &fills)? })
}

/// Returns bands in the format of [`thalweg_preload::choice`], if they are valid and this CPU can run all of them.
fn written(bands: &[(u64, String)], known: &[KnownKernel]) -> Result<String, String> {
    let mut parts = Vec::new();
    for (upto, name) in bands {
        match known.iter().find(|(known, _)| known == name) {
            // `tuned` has the same name in the tables of copies and of fills, so this rejects it in both.
            Some((name, _)) if *name == tuned::NAME => {
                return Err(format!(
                    "a size is assigned to the kernel {name}, which itself selects a kernel by size"
                ));
            }
            None => return Err(format!("a size is assigned to the unknown kernel {name}")),
            Some((_, is_available)) if !is_available() => {
                return Err(format!(
                    "a size is assigned to the kernel {name}, which this processor cannot run"
                ));
            }
            Some(_) => {}
        }
        // The last part serves all larger sizes, so it has no number.
        let is_last = *upto == u64::MAX;
        parts.push(if is_last { name.clone() } else { format!("{upto}={name}") });
    }
    if bands.last().is_none_or(|(upto, _)| *upto != u64::MAX) {
        parts.push(LIBC.to_owned());
    }
    let text = parts.join(",");
    if thalweg_preload::choice::parts(text.as_bytes()).is_none() {
        return Err(format!("too many sizes, or sizes that are not in ascending order: {text}"));
    }
    Ok(text)
}

/// Parses bands of copies given by the user, like `16=mask256,4096=avx2`. Fills then use libc.
pub fn bands_given(text: &str) -> Result<KernelBands, String> {
    let read = |part: &str| {
        let (upto, name) = part.split_once('=')?;
        Some((upto.parse().ok()?, name.to_owned()))
    };
    let copies: Option<Vec<(u64, String)>> = text.split(',').map(read).collect();
    let copies = copies
        .ok_or_else(|| format!("'{text}' is not of the form BYTES=KERNEL[,BYTES=KERNEL...]"))?;
    Ok(KernelBands { copies, fills: Vec::new() })
}

impl TrialSetting {
    /// Adds the setting to the environment of a command.
    pub(crate) fn put(&self, command: &mut Command, object: &Path, counts: Option<&Path>) {
        // Variables of an enclosing trial would direct counts to the wrong file.
        for name in [layout::KERNEL, layout::FILL, layout::COUNTS] {
            command.env_remove(name);
        }
        match &self.kind {
            SettingKind::Plain => {}
            SettingKind::Kernel { copies, fills } => {
                command.env(layout::KERNEL, copies).env(layout::FILL, fills);
                command.env(PRELOAD, before(object.as_os_str().to_owned(), PRELOAD));
                if let Some(counts) = counts {
                    command.env(layout::COUNTS, counts);
                }
            }
            SettingKind::Tunables { text } => {
                // If a tunable is set twice, the loader uses the last value.
                let mut all = std::env::var_os(TUNABLES).unwrap_or_default();
                if !all.is_empty() {
                    all.push(":");
                }
                all.push(text);
                command.env(TUNABLES, all);
            }
        }
    }
}

/// Puts thalweg's object before those that the user preloads.
fn before(mut own: OsString, variable: &str) -> OsString {
    if let Some(others) = std::env::var_os(variable).filter(|others| !others.is_empty()) {
        own.push(":");
        own.push(others);
    }
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_an_arm_or_left_out_with_a_reason() {
        let (arms, left_out) = kernels(None, None).unwrap();
        // libc is not among the arms, because it is the reference. The additional arm `object-alone` makes up for it in
        // the count.
        assert_eq!(arms.len() + left_out.len(), KERNELS.len());
        let tuned = left_out.iter().find(|out| out.name == tuned::NAME).unwrap();
        assert!(tuned.reason.contains("no sizes were measured"));
        assert_eq!(arms[0].name, OBJECT_ALONE);
        for arm in &arms[1..] {
            let SettingKind::Kernel { copies, fills } = &arm.kind else { panic!("{arm:?}") };
            assert_eq!(*copies, arm.name);
            assert!(fills == LIBC || FILLS.iter().any(|fill| fill.name == fills), "{arm:?}");
        }
    }

    #[test]
    fn a_fill_is_of_the_same_name_or_family() {
        assert_eq!(fill_beside("simple"), "simple");
        assert_eq!(fill_beside("vector-inline"), LIBC);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(fill_beside("rep-movsb"), "rep-stosb");
    }

    #[test]
    fn names_are_checked_and_taken_once() {
        let asked = ["simple", "libc", "simple"].map(str::to_owned);
        let (arms, _) = kernels(Some(&asked), None).unwrap();
        assert_eq!(arms.len(), 2);
        let error = kernels(Some(&["memcpy".to_owned()]), None).unwrap_err().to_string();
        assert!(error.contains("memcpy") && error.contains("simple, libc"), "{error}");
    }

    #[test]
    fn measured_fills_go_with_the_copies_of_tuned() {
        let of = |fill: &str| {
            let copies = vec![(16, "simple".to_owned())];
            let bands = KernelBands { copies, fills: vec![(64, fill.to_owned())] };
            let (arms, out) = kernels(Some(&["tuned".to_owned()]), Some(&bands)).unwrap();
            (arms.get(1).map(|arm| arm.kind.clone()), out.first().map(|out| out.reason.clone()))
        };
        let (copies, fills) = ("16=simple,libc".to_owned(), "64=simple,libc".to_owned());
        assert_eq!(of("simple").0, Some(SettingKind::Kernel { copies, fills }));
        assert!(of("vector-inline").1.unwrap().contains("unknown kernel"));
        assert!(of("tuned").1.unwrap().contains("itself selects a kernel by size"));
    }

    #[test]
    fn bands_become_one_arm_or_a_reason() {
        let tuned = |text: &str| {
            let bands = bands_given(text).unwrap();
            let (arms, out) = kernels(Some(&["tuned".to_owned()]), Some(&bands)).unwrap();
            (arms.get(1).map(|arm| arm.kind.clone()), out.first().map(|out| out.reason.clone()))
        };
        let (kind, _) = tuned("16=simple,4096=libc,70000=simple");
        let copies = "16=simple,4096=libc,70000=simple,libc".to_owned();
        assert_eq!(kind, Some(SettingKind::Kernel { copies, fills: LIBC.to_owned() }));
        let (kind, _) = tuned("16=libc,18446744073709551615=simple");
        let copies = "16=libc,simple".to_owned();
        assert_eq!(
            kind,
            Some(SettingKind::Kernel { copies, fills: LIBC.to_owned() }),
            "to any size"
        );
        assert!(tuned("16=fast").1.unwrap().contains("unknown kernel"));
        assert!(tuned("16=tuned").1.unwrap().contains("itself selects a kernel by size"));
        assert!(tuned("16=simple,8=libc").1.unwrap().contains("not in ascending order"));
        for text in ["", "simple", "x=simple", "-1=simple", "1=a,"] {
            assert!(bands_given(text).is_err(), "{text}");
        }
    }
}
