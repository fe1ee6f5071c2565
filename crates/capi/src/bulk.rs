//! `tw_bulk_options`, the list of mechanisms, and the description of a transfer, which both ends provide.

use serde_json::json;
use std::ffi::c_char;
use std::mem::offset_of;
use std::sync::Arc;
use thalweg_channel::bulk::{Choice, Destination, MECHANISMS, Options, Skipped, by_name};
use thalweg_core::{Info, Tuning};
use thalweg_sys::Errno;

use crate::error::{CallFailure, TwStatus};
use crate::profile::TwProfile;
use crate::{guard::exported, options, text};

/// `tw_bulk_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TwBulkOptions {
    size: usize,
    arm: *const c_char,
    knobs: *const c_char,
    length: u64,
    spin_ns: u64,
    wait: u32,
    needs: u32,
    destination: u32,
    flags: u32,
    profile: *const TwProfile,
}

/// Size of the struct before `profile` was added.
const BEFORE_PROFILE: usize = offset_of!(TwBulkOptions, profile);

/// Values of `TW_WILL_LOAN` and `TW_UNTRUSTED`.
const WILL_LOAN: u32 = 1;
const UNTRUSTED: u32 = 2;

/// # Safety
/// `given` must be null or point to as many bytes as its first field states; its pointers must satisfy
/// the header's requirements.
pub(crate) unsafe fn options(given: *const TwBulkOptions) -> Result<Options, CallFailure> {
    // SAFETY: Guaranteed by the caller. Only `profile` was added later, and zeros there are valid: a null pointer.
    let read = unsafe { options::read(given, "TW_BULK_OPTIONS_INIT", &[BEFORE_PROFILE]) };
    let Some(given) = read? else {
        return Ok(Options::default());
    };
    options::known_bits("flags", given.flags, WILL_LOAN | UNTRUSTED)?;
    let mut wishes = Options {
        needs: options::guarantees(given.needs)?,
        will_loan: given.flags & WILL_LOAN != 0,
        trust: given.flags & UNTRUSTED == 0,
        size: Some(given.length).filter(|length| *length > 0),
        wait: options::wait(given.wait, given.spin_ns)?,
        destination: match given.destination {
            0 => Destination::Unknown,
            1 => Destination::Resident,
            2 => Destination::Fresh,
            3 => Destination::FreshHuge,
            other => {
                return Err(CallFailure::usage(format!(
                    "options.destination is {other}, not a tw_destination"
                )));
            }
        },
        ..Options::default()
    };
    // SAFETY: Guaranteed by the caller.
    if let Some(profile) = unsafe { given.profile.as_ref() } {
        wishes.measured = Some(Arc::clone(&profile.profile));
    }
    // SAFETY: Guaranteed by the caller.
    if let Some(name) = unsafe { text::optional(given.arm) } {
        let arm = by_name(&name).ok_or_else(|| no_such(&name))?;
        // SAFETY: Guaranteed by the caller.
        if let Some(knobs) = unsafe { text::optional(given.knobs) } {
            wishes.tuning = tuning(arm.info(), &knobs)?;
        }
        wishes.only = Some(name.into_owned());
    } else if !given.knobs.is_null() {
        return Err(CallFailure::usage("options.knobs requires options.arm"));
    }
    Ok(wishes)
}

/// Parses settings such as `slot=65536,slots=8`.
fn tuning(arm: &Info, text: &str) -> Result<Tuning, CallFailure> {
    let mut tuning = Tuning::default();
    for setting in text.split(',').filter(|setting| !setting.is_empty()) {
        let value =
            setting.split_once('=').and_then(|(knob, value)| Some((knob, value.parse().ok()?)));
        let (knob, value) = value.ok_or_else(|| {
            CallFailure::usage(format!(
                "options.knobs: invalid setting {setting:?}; expected KNOB=NUMBER"
            ))
        })?;
        tuning = tuning.with(knob, value);
    }
    match arm.unknown(&tuning).first() {
        None => Ok(tuning),
        Some(knob) => {
            let known: Vec<&str> = arm.knobs.iter().map(|knob| knob.name).collect();
            let message =
                format!("{} has no knob {knob:?}; it has: {}", arm.name, known.join(", "));
            Err(CallFailure::usage(message))
        }
    }
}

fn no_such(name: &str) -> CallFailure {
    let names: Vec<&str> = MECHANISMS.iter().map(|arm| arm.info().name).collect();
    CallFailure::usage(format!("unknown mechanism {name:?}; known: {}", names.join(", ")))
}

/// Returns JSON that describes the mechanism in use, and the rejected ones with reasons. Only the sender passes the
/// reason for its choice.
pub(crate) fn explain(
    arm: &Info,
    tuning: &Tuning,
    choice: Option<&Choice>,
    skipped: &[Skipped],
) -> String {
    let skipped: Vec<_> = skipped
        .iter()
        .map(|skipped| json!({ "arm": skipped.mechanism, "reason": skipped.reason }))
        .collect();
    let mut told = json!({ "arm": arm.name, "tuning": tuning, "skipped": skipped });
    if let Some(choice) = choice {
        told["choice"] = json!({ "why": choice.to_string(), "evidence": choice.evidence() });
    }
    told.to_string()
}

/// Returns the number of mechanisms.
#[unsafe(no_mangle)]
pub extern "C" fn tw_arm_count() -> usize {
    MECHANISMS.len()
}

/// Returns the name of the mechanism at `index`, or null if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn tw_arm_name(index: usize) -> *const c_char {
    text::text_or_null(MECHANISMS.get(index).map(|arm| arm.info().name))
}

/// Returns the summary of the mechanism at `index`, or null if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn tw_arm_summary(index: usize) -> *const c_char {
    text::text_or_null(MECHANISMS.get(index).map(|arm| arm.info().summary))
}

exported! {
    /// Tests the system calls of a mechanism in this process.
    fn tw_arm_probe(index: usize) {
        let arm = MECHANISMS.get(index).ok_or_else(|| {
            CallFailure::usage(format!(
                "mechanism number {index} does not exist; there are {}",
                MECHANISMS.len()
            ))
        })?;
        arm.probe().map_err(|why| {
            let os_error = why.errno.map_or(0, Errno::raw_os_error);
            CallFailure { os_error, ..CallFailure::new(TwStatus::Unsupported, why.reason) }
        })
    }
}

#[cfg(test)]
pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_bulk_options", size_of::<TwBulkOptions>()),
        ("tw_bulk_options.knobs", offset_of!(TwBulkOptions, knobs)),
        ("tw_bulk_options.length", offset_of!(TwBulkOptions, length)),
        ("tw_bulk_options.wait", offset_of!(TwBulkOptions, wait)),
        ("tw_bulk_options.flags", offset_of!(TwBulkOptions, flags)),
        ("tw_bulk_options.profile", offset_of!(TwBulkOptions, profile)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_built_before_there_was_a_profile_has_options_of_this_size() {
        assert_eq!(BEFORE_PROFILE, 56);
        assert_eq!(size_of::<TwBulkOptions>(), 64);
    }

    #[test]
    fn knobs_are_those_of_the_arm_and_others_are_named() {
        let arm =
            MECHANISMS.iter().map(|arm| arm.info()).find(|info| !info.knobs.is_empty()).unwrap();
        let knob = arm.knobs[0].name;
        let set = tuning(arm, &format!("{knob}=4096,")).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(knob, 4096)]);
        for wrong in ["feathers=1".to_owned(), knob.to_owned(), format!("{knob}=many")] {
            let refused = tuning(arm, &wrong).unwrap_err();
            assert_eq!(refused.status, TwStatus::Usage, "{wrong}");
        }
    }
}
