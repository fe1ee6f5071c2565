use super::*;
use crate::profile::{LIBC, REPEATED, SHORT, cell::tests::cell};

/// The unit of sizes above the short ones.
const KIB: u64 = 1 << 10;

fn at(kernel: &str, size: u64, ratio: f64) -> Cell {
    let (source, sink) = (MEMORY.to_owned(), MEMORY.to_owned());
    let wall = Ratio { ratio, lo: ratio * 0.98, hi: ratio * 1.02 };
    Cell { source, sink, wall, cpu: wall, ..cell(kernel, size, ratio) }
}

/// Returns the bands of cells with sizes in KiB.
fn bands(mut cells: Vec<Cell>) -> Vec<(u64, String)> {
    for cell in &mut cells {
        cell.size *= KIB;
    }
    let mut profile = Profile::new();
    profile.merge(cells);
    let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
    bands.into_iter().map(|band| (band.upto / KIB, band.kernel)).collect()
}

fn named(bands: &[(u64, &str)]) -> Vec<(u64, String)> {
    bands.iter().map(|(upto, kernel)| (*upto, (*kernel).to_owned())).collect()
}

#[test]
fn a_kernel_within_the_noise_of_libc_is_libc() {
    let found = bands(vec![
        at(LIBC, 64, 1.0),
        at("simple", 64, 0.98),
        at(LIBC, 128, 1.0),
        at("simple", 128, 0.8),
        at(LIBC, 256, 1.0),
        at("simple", 256, 1.2),
    ]);
    assert_eq!(found, named(&[(88, LIBC), (176, "simple"), (256, LIBC)]));
    assert!(bands(vec![at("simple", 64, 0.5)]).is_empty(), "nothing to compare with");
}

#[test]
fn a_band_goes_on_while_the_next_best_is_not_shown_to_be_better() {
    let found = bands(vec![
        at(LIBC, 64, 1.0),
        at("simple", 64, 0.7),
        at(LIBC, 128, 1.0),
        at("simple", 128, 0.71),
        at("inline", 128, 0.70),
        at(LIBC, 256, 1.0),
        at("simple", 256, 0.9),
        at("inline", 256, 0.5),
    ]);
    assert_eq!(found, named(&[(176, "simple"), (256, "inline")]));
}

#[test]
fn a_band_goes_on_through_ties_with_libc_and_ends_where_it_loses() {
    let found = bands(vec![
        at(LIBC, 64, 1.0),
        at("simple", 64, 0.7),
        at(LIBC, 128, 1.0),
        at("simple", 128, 1.01),
        at(LIBC, 256, 1.0),
        at("simple", 256, 0.8),
        at(LIBC, 512, 1.0),
        at("simple", 512, 1.1),
        at(LIBC, 1024, 1.0),
        at("simple", 1024, 0.99),
    ]);
    assert_eq!(found, named(&[(352, "simple"), (1024, LIBC)]));
}

#[test]
fn the_last_band_goes_on_if_it_was_measured_above_the_caches() {
    let mut profile = Profile::new();
    profile.merge(vec![at(LIBC, 1 << 20, 1.0), at("simple", 1 << 20, 0.5)]);
    let beyond = |cache| {
        let bands = profile.bands_beside(KernelWork::Copy, || cache, (Load::Idle, Prefer::Wall));
        let served = Band::of(&bands, u64::MAX).map(|band| band.kernel.clone());
        assert_eq!(bands[0].upto, 1 << 20, "what was measured stays as it is");
        served
    };
    assert_eq!(beyond(Some(1 << 20)).as_deref(), Some("simple"));
    assert_eq!(beyond(Some(2 << 20)), None, "the copies may have fitted the cache");
    assert_eq!(beyond(None), None, "nobody knows");
}

#[test]
fn of_several_that_are_as_good_the_one_that_goes_on_longest_begins() {
    let found = bands(vec![
        at(LIBC, 64, 1.0),
        at("simple", 64, 0.50),
        at("inline", 64, 0.51),
        at("slow", 64, 0.60),
        at(LIBC, 128, 1.0),
        at("simple", 128, 0.70),
        at("inline", 128, 0.51),
        at("slow", 128, 0.51),
        at(LIBC, 256, 1.0),
        at("inline", 256, 0.60),
        at("slow", 256, 0.60),
    ]);
    assert_eq!(found, named(&[(256, "inline")]), "slow is shown to be slower at the first size");
}

#[test]
fn short_copies_have_the_kernel_that_is_best_for_all_of_them() {
    let of = |cells: &[Cell]| {
        let mut profile = Profile::new();
        profile.merge(cells.to_vec());
        let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
        bands.into_iter().map(|band| (band.upto, band.kernel)).collect::<Vec<_>>()
    };
    let mut cells = vec![
        at(LIBC, 64, 1.0),
        at("simple", 64, 0.5),
        at("inline", 64, 0.7),
        at(LIBC, SHORT, 1.0),
        at("simple", SHORT, 0.9),
        at("inline", SHORT, 0.8),
        at(LIBC, 4 * SHORT, 1.0),
        at("inline", 4 * SHORT, 0.99),
    ];
    assert_eq!(of(&cells), named(&[(4 * SHORT, "inline")]), "simple's would be a branch");
    cells[2] = at("inline", 64, 1.2);
    let with_a_loser = of(&cells);
    assert_eq!(with_a_loser, named(&[(2 * SHORT, "simple"), (4 * SHORT, LIBC)]), "inline loses");
    cells[4] = at("simple", SHORT, 1.1);
    let with_a_loser = of(&cells);
    assert_eq!(with_a_loser, named(&[(512, LIBC), (4 * SHORT, "inline")]), "it loses somewhere");
}

#[test]
fn a_kernel_that_loses_more_at_repeated_sizes_than_it_gains_serves_no_short_copies() {
    let of = |cells: &[Cell]| {
        let mut profile = Profile::new();
        profile.merge(cells.to_vec());
        let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
        bands.into_iter().map(|band| (band.upto, band.kernel)).collect::<Vec<_>>()
    };
    let again = |kernel, size, ratio| Cell { sink: REPEATED.to_owned(), ..at(kernel, size, ratio) };
    let mut cells = vec![
        at(LIBC, 256, 1.0),
        at("simple", 256, 0.8),
        at(LIBC, SHORT, 1.0),
        at("simple", SHORT, 0.8),
    ];
    assert_eq!(of(&cells), named(&[(SHORT, "simple")]));
    // Size 192 was measured only with repeated copies.
    cells.extend([again(LIBC, 192, 1.0), again("simple", 192, 1.04)]);
    cells.extend([again(LIBC, SHORT, 1.0), again("simple", SHORT, 0.9)]);
    assert_eq!(of(&cells), named(&[(SHORT, "simple")]), "it gains more");
    cells[5] = again("simple", 192, 1.06);
    assert_eq!(of(&cells), named(&[(1 << 10, LIBC), (SHORT, "simple")]), "more than is given up");
    cells[1] = at("simple", 256, 0.97);
    cells[5] = again("simple", 192, 1.04);
    assert_eq!(of(&cells), named(&[(1 << 10, LIBC), (SHORT, "simple")]), "more than it gains");
    cells[7] = again("simple", SHORT, 1.3);
    assert_eq!(of(&cells), named(&[(SHORT, LIBC)]));
}

#[test]
fn fills_have_bands_of_their_own_and_go_on_from_the_size_of_the_cache() {
    let mut profile = Profile::new();
    let fill = |kernel, size, ratio| Cell { source: FILL.to_owned(), ..at(kernel, size, ratio) };
    profile.merge(vec![at(LIBC, 1 << 20, 1.0), at("simple", 1 << 20, 0.9)]);
    profile.merge(vec![fill(LIBC, 1 << 10, 1.0), fill("simple", 1 << 10, 0.5)]);
    profile.merge(vec![fill(LIBC, 1 << 20, 1.0), fill("simple", 1 << 20, 1.5)]);
    let idle = (Load::Idle, Prefer::Wall);
    let of = |work, cache| {
        let bands = profile.bands_beside(work, || Some(cache), idle);
        bands.into_iter().map(|band| (band.end(), band.kernel)).collect::<Vec<_>>()
    };
    assert_eq!(of(KernelWork::Fill, 1 << 20), named(&[(1 << 15, "simple"), (1 << 20, LIBC)]));
    assert_eq!(of(KernelWork::Fill, 1 << 19), named(&[(1 << 15, "simple"), (u64::MAX, LIBC)]));
    assert_eq!(of(KernelWork::Copy, 1 << 20), named(&[(u64::MAX, "simple")]));
    assert_eq!(profile.fill_bands(Load::Idle, Prefer::Wall).len(), 2);
    let ready = profile.kernels(Load::Idle, Prefer::Wall).unwrap();
    let mut sink = [0; 5];
    ready.fill(&mut sink, 7);
    assert_eq!(sink, [7; 5]);
}

#[test]
fn a_profile_from_before_fills_were_measured_leaves_them_to_libc() {
    let mut profile = Profile::new();
    profile.merge(vec![at(LIBC, 64, 1.0), at("simple", 64, 0.5)]);
    assert!(profile.fill_bands(Load::Idle, Prefer::Wall).is_empty());
    assert!(profile.kernels(Load::Idle, Prefer::Wall).is_ok());
}

#[test]
fn what_was_measured_becomes_what_copies() {
    let mut profile = Profile::new();
    let mut cells = Vec::new();
    let rows = thalweg_kernels::KERNELS.iter().filter(|row| (row.is_available)());
    let rows: Vec<&str> =
        rows.map(|row| row.name).filter(|name| ![LIBC, tuned::NAME].contains(name)).collect();
    for n in 0..20_u32 {
        cells.push(at(LIBC, 64 << n, 1.0));
        let kernel = rows[n as usize % 2];
        cells.push(at(kernel, 64 << n, 0.5 + f64::from(n) / 100.0));
    }
    profile.merge(cells);
    let bands = profile.kernel_bands(Load::Idle, Prefer::Wall);
    assert!(bands.len() <= tuned::MOST && bands.is_sorted_by_key(|band| band.upto));
    assert_eq!(bands.last().map(|band| band.upto), Some(64 << 19));
    let ready = profile.kernels(Load::Idle, Prefer::Wall).unwrap();
    let mut sink = [0; 5];
    ready.copy(&mut sink, b"bytes");
    assert_eq!(&sink, b"bytes");
}

#[test]
fn a_kernel_of_another_build_is_named_and_not_used() {
    let mut profile = Profile::new();
    profile.merge(vec![at(LIBC, 64, 1.0), at("of-the-future", 64, 0.1)]);
    let refusal = profile.kernels(Load::Idle, Prefer::Wall).unwrap_err();
    assert!(refusal.to_string().contains("of-the-future"));
    for cell in &mut profile.cells {
        cell.source = FILL.to_owned();
    }
    let refusal = profile.kernels(Load::Idle, Prefer::Wall).unwrap_err();
    assert!(refusal.to_string().contains("of-the-future"));
}

#[test]
fn a_band_ends_where_its_kernel_is_shown_to_lose_and_no_noise_hides_more_than_a_few_percent() {
    let surely = |ratio: f64, lo: f64, noise: f64| {
        let wall = Ratio { ratio, lo, hi: ratio * 1.02 };
        Cell { wall, cpu: wall, noise, ..at("simple", 128, 1.0) }
    };
    let with = |second: Cell| {
        let mut cells = vec![at(LIBC, 64, 1.0), at("simple", 64, 0.7), at(LIBC, 128, 1.0), second];
        cells.extend([at(LIBC, 256, 1.0), at("simple", 256, 0.7)]);
        bands(cells).len()
    };
    assert_eq!(with(surely(1.02, 0.99, 0.03)), 1, "a tie, which its interval does not deny");
    assert_eq!(with(surely(1.02, 1.005, 0.03)), 3, "the whole interval is above 1");
    assert_eq!(with(surely(1.1, 0.9, 0.5)), 3, "of ten percent nobody says that they are noise");
}

#[test]
fn a_kernel_that_loses_between_places_that_no_cache_holds_serves_no_band_there() {
    let with = |ratio: f64| {
        let cold = |kernel, ratio| Cell { sink: COLD.to_owned(), ..at(kernel, 128, ratio) };
        let mut cells = vec![cold(LIBC, 1.0), cold("simple", ratio)];
        for size in [64, 128, 256] {
            cells.extend([at(LIBC, size, 1.0), at("simple", size, 0.7), at("inline", size, 0.8)]);
        }
        bands(cells)
    };
    assert_eq!(with(1.02), named(&[(256, "simple")]));
    let served = named(&[(88, "simple"), (176, "inline"), (256, "simple")]);
    assert_eq!(with(1.2), served, "inline, which was not measured cold, serves where simple loses");
}
