//! Block sums of a server that may lie. No sums may make the client write outside of the file or hash without end. The
//! client uses a block of its older file only if the digest matches.

use std::{collections::BTreeSet, io::Write, os::fd::AsFd, sync::Mutex};

use thalweg_serve::{
    blocks::{BlockDigest, BlockRequest, RollingSum, SUM_BYTES, short},
    client::block_index::BlockIndex,
};

/// Key of the digests, which a real client chooses at random.
const KEY: &str = "0123456789abcdef0123456789abcdef";
const BLOCK: u64 = 1024;

/// Runs one input: the lengths of the new and of the older file in 16 bits each, a number, the older file, and the
/// answer of the server. The number says how many sums at the start of the answer are replaced by correct ones.
pub fn run(bytes: &[u8]) {
    let Some(([a, b, c, d, right], rest)) = bytes.split_first_chunk() else { return };
    let len = u64::from(u16::from_le_bytes([*a, *b]));
    let older = usize::from(u16::from_le_bytes([*c, *d])).min(rest.len());
    let (older, answer) = rest.split_at(older);
    let request = BlockRequest::parse(&format!("blocks={BLOCK}-{KEY}")).expect("a request");
    let mut answer = answer.to_vec();
    let sums = answer.chunks_exact_mut(SUM_BYTES).zip(older.chunks(BLOCK as usize));
    for (sum, block) in sums.take(usize::from(*right)) {
        sum[..4].copy_from_slice(&RollingSum::of(block).to_le_bytes());
        sum[4..].copy_from_slice(&short(&request.digest(block)));
    }
    let index = BlockIndex::parse(request, len, &answer);
    let count = len.div_ceil(BLOCK) as usize;
    assert_eq!(index.is_some(), answer.len() == count * SUM_BYTES + 32);
    let Some(index) = index else { return };
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(older).expect("a file");
    let taken = Mutex::new(BTreeSet::new());
    let take = |at: u64, bytes: &[u8], digest: &BlockDigest| {
        assert!(taken.lock().expect("one thread").insert(at), "block at {at} twice");
        assert!(at.is_multiple_of(BLOCK) && bytes.len() as u64 == BLOCK.min(len - at), "at {at}");
        let sum = &answer[(at / BLOCK) as usize * SUM_BYTES..][..SUM_BYTES];
        assert_eq!(sum[..4], RollingSum::of(bytes).to_le_bytes());
        assert_eq!(*digest, request.digest(bytes));
        assert_eq!(sum[4..], short(digest));
        Ok(())
    };
    index.find_in(file.as_fd(), older.len() as u64, &take, &|| Ok(())).expect("no error");
}
