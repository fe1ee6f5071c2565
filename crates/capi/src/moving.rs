//! `tw_transfer`, `tw_plan_json` and `tw_copy`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};
use std::time::Duration;
use thalweg_core::{
    Cancelled, Driver, End, Facts, Guarantees, Plan, Prefer, Profile, Request, Sink, Source,
    Transfer, failed::Failed, mechanisms::by_name,
};
use thalweg_sys::Errno;
use thalweg_tree::{CopyOptions, Ending, Error, Events, Fsync, Progress, Refusal, TreeReport};

use crate::error::{CallFailure, TwStatus};
use crate::profile::TwProfile;
use crate::{guard::exported, handle, json, mechanism, options, text};

type ProgressFn = unsafe extern "C" fn(u64, *mut c_void) -> c_int;

/// `tw_transfer_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TwTransferOptions {
    size: usize,
    needs: u32,
    prefer: u32,
    method: *const c_char,
    profile: *const TwProfile,
    limit: u64,
    progress: Option<ProgressFn>,
    user: *mut c_void,
}

const NAME: usize = 36;

/// `tw_report`.
#[repr(C)]
#[derive(Debug)]
pub struct TwReport {
    bytes: u64,
    lost: u64,
    wall_ns: u64,
    cpu_ns: u64,
    steps_down: u32,
    mechanism: [c_char; NAME],
}

const ALL: u64 = u64::MAX;

/// The caller's options, validated and converted to owned values.
struct Wishes {
    needs: Guarantees,
    request: Request,
    profile: Option<Arc<Profile>>,
    limit: Option<u64>,
    watcher: ProgressWatcher,
}

/// The caller's progress function. The library never calls it from two threads at once.
#[derive(Clone, Copy)]
struct ProgressWatcher {
    progress: Option<ProgressFn>,
    user: *mut c_void,
}

impl ProgressWatcher {
    fn wants_to_stop(self, moved: u64) -> bool {
        let Some(progress) = self.progress else { return false };
        // SAFETY: The caller guarantees that the function accepts this `user` pointer and does not unwind.
        unsafe { progress(moved, self.user) != 0 }
    }
}

impl Wishes {
    /// # Safety
    /// `options` must be null or point to as many bytes as its first field states; its pointers must
    /// satisfy the header's requirements.
    unsafe fn of(options: *const TwTransferOptions) -> Result<Self, CallFailure> {
        let mut wishes = Self {
            needs: Guarantees::default(),
            request: Request::default(),
            profile: None,
            limit: None,
            watcher: ProgressWatcher { progress: None, user: std::ptr::null_mut() },
        };
        // SAFETY: Guaranteed by the caller.
        let Some(given) = (unsafe { options::read(options, "TW_TRANSFER_OPTIONS_INIT", &[]) })?
        else {
            return Ok(wishes);
        };
        wishes.needs = options::guarantees(given.needs)?;
        wishes.request.prefer = match given.prefer {
            0 => Prefer::Wall,
            1 => Prefer::Cpu,
            2 => Prefer::Memory,
            other => {
                return Err(CallFailure::usage(format!(
                    "options.prefer is {other}, not a tw_prefer"
                )));
            }
        };
        // SAFETY: Guaranteed by the caller.
        if let Some(name) = unsafe { text::optional(given.method) } {
            by_name(&name).ok_or_else(|| mechanism::no_such(&name))?;
            wishes.request.only = Some(name.into_owned());
        }
        // SAFETY: Guaranteed by the caller.
        wishes.profile =
            unsafe { given.profile.as_ref() }.map(|profile| Arc::clone(&profile.profile));
        wishes.limit = Some(given.limit).filter(|limit| *limit > 0);
        wishes.watcher = ProgressWatcher { progress: given.progress, user: given.user };
        Ok(wishes)
    }
}

/// Builds a transfer from two descriptors and a length.
///
/// # Safety
/// The descriptors must stay open while the result lives.
unsafe fn job<'t>(
    source: c_int,
    sink: c_int,
    length: u64,
    needs: Guarantees,
) -> Result<Transfer<'t>, CallFailure> {
    let end = |fd: c_int, what: &str| {
        // SAFETY: Guaranteed by the caller.
        let fd = unsafe { text::descriptor(fd, what) }?;
        End::of(fd).map_err(|errno| CallFailure {
            os_error: errno.raw_os_error(),
            ..CallFailure::usage(Failed { what, call: "fstat", errno, moved: 0 }.to_string())
        })
    };
    let (source, sink) = (Source::Fd(end(source, "source")?), Sink::Fd(end(sink, "sink")?));
    Ok(Transfer { source, sink, len: Some(length).filter(|length| *length != ALL), needs })
}

exported! {
    /// Moves bytes from one descriptor to the other.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements; the descriptors must stay open.
    fn tw_transfer(
        source: c_int,
        sink: c_int,
        length: u64,
        options: *const TwTransferOptions,
        report: *mut TwReport,
    ) {
        TwReport::NOTHING.write(report);
        let wishes = Wishes::of(options)?;
        let mut transfer = job(source, sink, length, wishes.needs)?;
        let profile = wishes.profile.as_deref();
        let plan = Plan::make(&Facts::of(&transfer), &wishes.request, profile);
        if let Some(reason) = plan.impossible {
            return Err(CallFailure::new(TwStatus::Unsupported, reason));
        }
        let mut watch = |moved| {
            if wishes.watcher.wants_to_stop(moved) { Err(Cancelled) } else { Ok(()) }
        };
        let outcome = Driver { limit: wishes.limit }.run(&mut transfer, &plan, &mut watch);
        let done = &outcome.report;
        let name = done.main().map(|share| share.mechanism);
        let counts = TwReport::of(done.wall, done.cpu, done.steps_down.len(), name);
        TwReport { bytes: done.bytes, lost: done.lost, ..counts }.write(report);
        match outcome.error {
            Some(error) => Err(CallFailure::of_call(TwStatus::Partial, &error)),
            None if outcome.stopped => Err(stopped(done.bytes)),
            None => Ok(()),
        }
    }

    /// Returns the plan of a transfer as JSON.
    ///
    /// # Safety
    /// The pointers must satisfy the header's requirements; the descriptors must stay open.
    fn tw_plan_json(
        source: c_int,
        sink: c_int,
        length: u64,
        options: *const TwTransferOptions,
        json: *mut *mut c_char,
    ) {
        let json = handle::place(json, "result")?;
        let wishes = Wishes::of(options)?;
        let transfer = job(source, sink, length, wishes.needs)?;
        let profile = wishes.profile.as_deref();
        let plan = Plan::make(&Facts::of(&transfer), &wishes.request, profile);
        *json = text::handed_out(&json::plan(&plan));
        Ok(())
    }

    /// Copies one file.
    fn tw_copy(
        source: *const c_char,
        destination: *const c_char,
        options: *const TwTransferOptions,
        report: *mut TwReport,
    ) {
        TwReport::NOTHING.write(report);
        let wishes = Wishes::of(options)?;
        let source = text::path(source, "source")?;
        let destination = text::path(destination, "destination")?;
        let listener =
            ProgressListener { watcher: Mutex::new(wishes.watcher), stop: AtomicBool::new(false) };
        let options = CopyOptions {
            needs: wishes.needs,
            request: wishes.request,
            profile: wishes.profile,
            limit: wishes.limit,
            fsync: if wishes.needs.durable { Fsync::Always } else { Fsync::Auto },
            jobs: 1,
            ..CopyOptions::default()
        };
        let done = thalweg_tree::copy(&[source], &destination, &options, &listener);
        let done = done.map_err(|error| of_tree(&error, TwStatus::System))?;
        let time = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let (wall, cpu) = (time(done.seconds), time(done.cpu_seconds));
        let name = done.shares.first().map(|share| share.mechanism);
        let counts = TwReport::of(wall, cpu, done.steps_down.len(), name);
        TwReport { bytes: done.bytes, ..counts }.write(report);
        ended(&done)
    }
}

/// Converts the end of a copy into a result. The message of a failure is that of the first problem.
fn ended(done: &TreeReport) -> Result<(), CallFailure> {
    let status = match done.ending() {
        Ending::Done => return Ok(()),
        Ending::Differ => TwStatus::Differ,
        Ending::Partial => TwStatus::Partial,
    };
    let Some(first) = done.errors.first() else {
        if done.changed > 0 {
            let message = "the source changed during the copy; the copy may contain old and new";
            return Err(CallFailure { moved: done.bytes, ..CallFailure::new(status, message) });
        }
        return Err(stopped(done.bytes));
    };
    Err(CallFailure { moved: done.bytes, ..of_tree(first, status) })
}

/// Converts an error of the tree copier. `status` is the result for a failed call or for differing data.
fn of_tree(error: &Error, status: TwStatus) -> CallFailure {
    let status = match error {
        Error::Refused { reason: Refusal::NoMechanism(_), .. } => TwStatus::Unsupported,
        Error::Refused { .. } | Error::Usage(_) => TwStatus::Usage,
        Error::Call { .. }
        | Error::Move { .. }
        | Error::DataDiffer { .. }
        | Error::LeftDiffering { .. } => status,
    };
    let os_error = error.errno().map_or(0, Errno::raw_os_error);
    CallFailure { os_error, ..CallFailure::new(status, error.to_string()) }
}

fn stopped(moved: u64) -> CallFailure {
    let message = format!("stopped after {moved} bytes, as requested");
    CallFailure { moved, ..CallFailure::new(TwStatus::Stopped, message) }
}

/// Calls the caller's progress function during a copy. The copy calls it from several threads, and the mutex admits
/// only one at a time.
struct ProgressListener {
    watcher: Mutex<ProgressWatcher>,
    stop: AtomicBool,
}

// SAFETY: The header documents that a copy calls the function from other threads, one at a time. The library passes
// `user` only to this function.
unsafe impl Send for ProgressWatcher {}

impl Events for ProgressListener {
    fn progress(&self, progress: Progress) {
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.wants_to_stop(progress.bytes) {
            self.stop.store(true, Relaxed);
        }
    }

    fn go_on(&self) -> Result<(), Cancelled> {
        if self.stop.load(Relaxed) { Err(Cancelled) } else { Ok(()) }
    }
}

impl TwReport {
    /// The report of a call that fails before it moves any bytes. It is written first, because C may not have
    /// initialised its report.
    const NOTHING: Self =
        Self { bytes: 0, lost: 0, wall_ns: 0, cpu_ns: 0, steps_down: 0, mechanism: [0; NAME] };

    fn of(wall: Duration, cpu: Duration, steps_down: usize, mechanism: Option<&str>) -> Self {
        let mut name = [0; NAME];
        for (to, from) in name.iter_mut().take(NAME - 1).zip(mechanism.unwrap_or("").bytes()) {
            *to = from as c_char;
        }
        let (wall_ns, cpu_ns) = (wall.as_nanos() as u64, cpu.as_nanos() as u64);
        let steps_down = steps_down as u32;
        Self { wall_ns, cpu_ns, steps_down, mechanism: name, ..Self::NOTHING }
    }

    /// # Safety
    /// `report` must be null or writable.
    unsafe fn write(self, report: *mut Self) {
        if !report.is_null() {
            // SAFETY: Not null; the caller guarantees the rest.
            unsafe { report.write(self) };
        }
    }
}

#[cfg(test)]
pub(crate) fn layout() -> Vec<(&'static str, usize)> {
    vec![
        ("tw_transfer_options", size_of::<TwTransferOptions>()),
        ("tw_transfer_options.method", std::mem::offset_of!(TwTransferOptions, method)),
        ("tw_transfer_options.limit", std::mem::offset_of!(TwTransferOptions, limit)),
        ("tw_transfer_options.user", std::mem::offset_of!(TwTransferOptions, user)),
        ("tw_report", size_of::<TwReport>()),
        ("tw_report.mechanism", std::mem::offset_of!(TwReport, mechanism)),
    ]
}
