//! Test data.

/// Returns pseudorandom bytes.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let byte = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..len).map(byte).collect()
}
