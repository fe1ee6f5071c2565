//! Bands by size. The tests run in a separate process, because a process can install bands only
//! once.

use crate::support;

use support::kernels;
use thalweg_kernels::tuned::{MOST, Unfit};
use thalweg_kernels::{Bands, CopyFn, FILLS, KERNELS, Kernel, by_name};

/// Returns the first rows, at most [`MOST`], each as a band that ends at 2.5 times the size of the
/// previous one.
fn staircase<R>(rows: impl Iterator<Item = R>) -> Vec<(usize, R)> {
    let mut upto = 11;
    let bands = rows.take(MOST).map(|row| {
        upto = upto * 5 / 2;
        (upto, row)
    });
    bands.collect()
}

#[test]
fn what_is_installed_is_what_tuned_runs_and_only_the_first_counts() {
    let test = "what_is_installed_is_what_tuned_runs_and_only_the_first_counts";
    let tuned = by_name("tuned").expect("the row tuned");
    support::copies_like_the_oracle(tuned);

    let copies = staircase(kernels(test).filter(|row| row.name != tuned.name));
    let fills = staircase(support::fills(test).filter(|row| row.name != tuned.name));
    let bands = Bands::of(&copies).and_then(|bands| bands.with_fills(&fills)).unwrap();
    let mut bench = support::Bench::new(40_000);
    for n in support::sizes(100, 32_768) {
        bench.copy(n, (n % 64, 0), |sink, source| bands.copy(sink, source));
        bench.fill(n, n % 64, |sink, byte| bands.fill(sink, byte));
    }

    assert_eq!(bands.install(), Ok(()));
    support::copies_like_the_oracle(tuned);
    support::moves_like_the_oracle(tuned);
    support::fills_like_the_oracle(FILLS.iter().find(|row| row.name == tuned.name).unwrap());
    assert_eq!(bands.install(), Err(Unfit::Installed));
}

/// Returns a row that writes a recognizable byte instead of copying.
fn marking(name: &'static str, copy: CopyFn) -> Kernel {
    // SAFETY: the two functions below write exactly `n` bytes. They do not copy on purpose: the
    // test looks for their bytes.
    unsafe { Kernel::new(name, || true, copy, None) }
}

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn ones(dst: *mut u8, _: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that `n` bytes are writable.
    unsafe { dst.write_bytes(1, n) };
    dst
}

/// # Safety
/// The contract of [`Kernel::copy`].
unsafe extern "C" fn twos(dst: *mut u8, _: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller guarantees that `n` bytes are writable.
    unsafe { dst.write_bytes(2, n) };
    dst
}

#[test]
fn a_band_ends_with_its_last_size_and_libc_serves_the_rest() {
    let (one, two) = (marking("ones", ones), marking("twos", twos));
    let bands = Bands::of(&[(10, &one), (20, &two)]).unwrap();
    for (n, mark) in [(1, 1), (10, 1), (11, 2), (20, 2), (21, 9), (5000, 9)] {
        let mut sink = vec![0; n];
        bands.copy(&mut sink, &vec![9; n]);
        assert!(sink.iter().all(|&byte| byte == mark), "{n} bytes");
    }
}

#[test]
fn bands_that_cannot_be_are_refused_with_the_reason() {
    let [first, second] = [&KERNELS[0], &KERNELS[1]];
    let refusal = |rows: &[(usize, &Kernel)]| Bands::of(rows).map(|_| ()).unwrap_err();
    assert_eq!(refusal(&[(9, first), (9, second)]), Unfit::OutOfOrder);
    assert_eq!(refusal(&[(9, first), (8, second)]), Unfit::OutOfOrder);
    assert_eq!(refusal(&[(9, by_name("tuned").unwrap())]), Unfit::Itself);
    let many: Vec<_> = (0..=MOST).map(|n| (n, first)).collect();
    assert_eq!(refusal(&many), Unfit::TooMany);

    // SAFETY: the row is never available, so its functions are not called.
    let absent = unsafe { Kernel::new("absent", || false, first.copy, None) };
    assert_eq!(refusal(&[(9, &absent)]), Unfit::Unavailable("absent"));
    assert!(Unfit::Unavailable("absent").to_string().contains("absent"));
}
