//! Frames of a compressed stream: the reader never returns more content than a frame may have, and the content does not
//! depend on how the bytes arrive. Content that the writer put into frames is read back unchanged.

use thalweg_serve::compression::frames::{
    CompressionFailure, FrameReader, FrameWriter, LARGEST_CONTENT, PREAMBLE,
};

/// Runs one input: a size of pieces, then the bytes after the preamble.
pub fn run(bytes: &[u8]) {
    let Some((piece, frames)) = bytes.split_first() else { return };
    let wire = [PREAMBLE, frames].concat();
    let piece = usize::from(*piece) + 1;
    assert_eq!(content(&wire, wire.len()), content(&wire, piece));
    let mut wire = PREAMBLE.to_vec();
    let mut writer = FrameWriter::new().expect("memory");
    for part in frames.chunks(LARGEST_CONTENT.min(piece * 64)) {
        writer.write(part, &mut wire).expect("a frame");
    }
    let (content, failure) = content(&wire, piece * 64);
    assert!(content == frames && failure.is_none());
}

/// Returns the content of all complete frames, and the failure.
fn content(wire: &[u8], piece: usize) -> (Vec<u8>, Option<CompressionFailure>) {
    let mut reader = FrameReader::new().expect("memory");
    let mut all = Vec::new();
    for piece in wire.chunks(piece) {
        let read = reader.read(piece, |content| {
            assert!((1..=LARGEST_CONTENT).contains(&content.len()));
            all.extend_from_slice(content);
            Ok(())
        });
        if let Err(failure) = read {
            return (all, Some(failure));
        }
    }
    (all, None)
}
