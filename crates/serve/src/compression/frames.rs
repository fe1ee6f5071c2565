//! The frames of a compressed stream (docs/reference/formats.md): a preamble, then frames with at most 128 KiB of
//! content each. All zstd frames of one direction are one zstd stream, so that small frames refer to the content of
//! earlier ones.

use zstd_safe::{
    CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, zstd_sys::ZSTD_EndDirective,
};

/// First bytes of each direction. They are text, because a peer that does not expect them prints them in a message.
pub const PREAMBLE: &[u8] = b"thalweg zstd 1\n";
/// Most content of one frame, in bytes.
pub const LARGEST_CONTENT: usize = 128 << 10;
/// Longest payload of one frame: zstd adds a few bytes to content that it cannot shrink.
pub const LONGEST_PAYLOAD: usize = LARGEST_CONTENT + (1 << 10);

/// Length of the header of a frame: one byte for the kind, and the length of the payload in three bytes, little-endian.
const HEADER: usize = 4;
const RAW: u8 = 0;
const ZSTD: u8 = 1;
/// Level of compression.
const LEVEL: i32 = 3;
/// Largest window that a receiver allocates, as a power of two. The window of [`LEVEL`] has 2 MiB.
const LARGEST_WINDOW: u32 = 23;
/// Frames with less content, in bytes, are always compressed. They do not influence the pauses of compression.
const SHORT: usize = 4 << 10;
/// Maximum number of bytes that are sent uncompressed before the next attempt to compress.
const LONGEST_PAUSE: usize = 1 << 20;

/// Maximum number of bytes that an error message quotes of a text that is not a frame.
const SHOWN: usize = 80;

/// Makes frames.
pub struct FrameWriter {
    context: CCtx<'static>,
    pause: CompressionPause,
}

/// Decides which frames are compressed.
#[derive(Debug, Default)]
struct CompressionPause {
    /// Bytes that are not compressed before the next attempt.
    left: usize,
    /// Number of bytes that are sent uncompressed after the last attempt. 0 if the last attempt shrank its frame.
    length: usize,
}

/// Parses frames.
pub struct FrameReader {
    context: DCtx<'static>,
    /// Received bytes of incomplete frames.
    received: Vec<u8>,
    content: Vec<u8>,
    is_begun: bool,
}

/// The reason why a compressed stream ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionFailure {
    /// The peer sent HTTP.
    #[error(
        "the remote thalweg runs without --compress; add --compress to its command, or copy without compression"
    )]
    Uncompressed,
    /// The first bytes are neither a preamble nor HTTP.
    #[error("printed '{0}' before the data; login scripts must print nothing")]
    Noise(String),
    /// The peer sent an invalid frame.
    #[error("sent an invalid compressed frame ({0})")]
    Frame(&'static str),
    /// This side cannot compress or decompress.
    #[error("compression failed: {0}")]
    Library(&'static str),
}

impl CompressionFailure {
    /// Returns the failure of a peer that sent these bytes instead of the preamble.
    fn of_greeting(bytes: &[u8]) -> Self {
        let http: [&[u8]; 3] = [b"GET ", b"HEAD ", b"HTTP/"];
        if http.iter().any(|begin| bytes.starts_with(begin)) {
            return Self::Uncompressed;
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)]);
        let line = text.lines().next().unwrap_or_default();
        Self::Noise(thalweg_core::shown(line).to_string())
    }
}

impl FrameWriter {
    /// Returns a writer of a new stream, or `None` if memory is lacking.
    pub fn new() -> Option<Self> {
        let mut context = CCtx::try_create()?;
        context.set_parameter(CParameter::CompressionLevel(LEVEL)).ok()?;
        Some(Self { context, pause: CompressionPause::default() })
    }

    /// Appends a frame to `frames`. `content` has 1 to [`LARGEST_CONTENT`] bytes.
    pub fn write(
        &mut self,
        content: &[u8],
        frames: &mut Vec<u8>,
    ) -> Result<(), CompressionFailure> {
        let begin = frames.len();
        frames.extend([0; HEADER]);
        let kind = if self.pause.skips(content.len()) {
            frames.extend_from_slice(content);
            RAW
        } else {
            self.compress(content, frames)?;
            self.pause.note(content.len(), frames.len() - begin);
            ZSTD
        };
        let [one, two, three, _] = u32::to_le_bytes((frames.len() - begin - HEADER) as u32);
        frames[begin..begin + HEADER].copy_from_slice(&[kind, one, two, three]);
        Ok(())
    }

    fn compress(&mut self, content: &[u8], frames: &mut Vec<u8>) -> Result<(), CompressionFailure> {
        frames.reserve(LONGEST_PAYLOAD);
        let mut input = InBuffer::around(content);
        let at = frames.len();
        let mut output = OutBuffer::around_pos(frames, at);
        let flush = ZSTD_EndDirective::ZSTD_e_flush;
        match self.context.compress_stream2(&mut output, &mut input, flush) {
            Ok(0) => Ok(()),
            Ok(_) => Err(CompressionFailure::Library("a frame became too long")),
            Err(code) => Err(CompressionFailure::Library(zstd_safe::get_error_name(code))),
        }
    }
}

impl CompressionPause {
    /// Returns `true` if the next frame is not to be compressed.
    fn skips(&mut self, content: usize) -> bool {
        let skips = content >= SHORT && self.left > 0;
        if skips {
            self.left = self.left.saturating_sub(content);
        }
        skips
    }

    /// Records the result of an attempt. Compression pays if it saves an eighth.
    fn note(&mut self, content: usize, frame: usize) {
        if content < SHORT {
            return;
        }
        let has_paid = frame <= content / 8 * 7;
        self.length =
            if has_paid { 0 } else { (self.length * 2).clamp(LARGEST_CONTENT, LONGEST_PAUSE) };
        self.left = self.length;
    }
}

impl FrameReader {
    /// Returns a reader of a new stream, or `None` if memory is lacking.
    pub fn new() -> Option<Self> {
        let mut context = DCtx::try_create()?;
        context.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW)).ok()?;
        Some(Self { context, received: Vec::new(), content: Vec::new(), is_begun: false })
    }

    /// Adds received bytes, and passes the content of each complete frame to `take`. After a failure of the peer or of
    /// `take`, the reader must not be used any more.
    pub fn read<E: From<CompressionFailure>>(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.received.extend_from_slice(bytes);
        let mut used = 0;
        if !self.is_begun {
            let length = self.received.len().min(PREAMBLE.len());
            if self.received[..length] != PREAMBLE[..length] {
                return Err(CompressionFailure::of_greeting(&self.received).into());
            }
            if length < PREAMBLE.len() {
                return Ok(());
            }
            (self.is_begun, used) = (true, length);
        }
        while let Some((header, rest)) = self.received[used..].split_first_chunk::<HEADER>() {
            let [kind, one, two, three] = *header;
            let length = u32::from_le_bytes([one, two, three, 0]) as usize;
            let longest = if kind == RAW { LARGEST_CONTENT } else { LONGEST_PAYLOAD };
            if kind > ZSTD || length == 0 || length > longest {
                return Err(CompressionFailure::Frame("its header is invalid").into());
            }
            let Some(payload) = rest.get(..length) else { break };
            if kind == RAW {
                take(payload)?;
            } else {
                expand(&mut self.context, payload, &mut self.content)?;
                take(&self.content)?;
            }
            used += HEADER + length;
        }
        self.received.drain(..used);
        Ok(())
    }
}

/// Replaces `content` by the decompressed payload of one frame.
fn expand(
    context: &mut DCtx<'_>,
    payload: &[u8],
    content: &mut Vec<u8>,
) -> Result<(), CompressionFailure> {
    content.clear();
    // If decompression fills the additional byte, the content is too long.
    content.reserve_exact(LARGEST_CONTENT + 1);
    let mut input = InBuffer::around(payload);
    loop {
        let before = (input.pos(), content.len());
        let at = content.len();
        let mut output = OutBuffer::around_pos(content, at);
        context
            .decompress_stream(&mut output, &mut input)
            .map_err(|code| CompressionFailure::Frame(zstd_safe::get_error_name(code)))?;
        if content.len() > LARGEST_CONTENT {
            return Err(CompressionFailure::Frame("its content is too long"));
        }
        if (input.pos(), content.len()) == before {
            break;
        }
    }
    if input.pos() < payload.len() || content.is_empty() {
        return Err(CompressionFailure::Frame("it has no content"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;
    use thalweg_testing::Dice;

    fn random(dice: &mut Dice, len: usize) -> Vec<u8> {
        (0..len).map(|_| dice.below(256) as u8).collect()
    }

    fn framed(writer: &mut FrameWriter, content: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        writer.write(content, &mut frame).unwrap();
        frame
    }

    fn read(reader: &mut FrameReader, bytes: &[u8]) -> Result<Vec<u8>, CompressionFailure> {
        let mut content = Vec::new();
        reader.read(bytes, |bytes| {
            content.extend_from_slice(bytes);
            Ok::<_, CompressionFailure>(())
        })?;
        Ok(content)
    }

    fn refused(frame: &[u8]) -> String {
        read(&mut FrameReader::new().unwrap(), &[PREAMBLE, frame].concat()).unwrap_err().to_string()
    }

    #[test]
    fn frames_are_compressed_again_soon_after_the_content_becomes_compressible() {
        let mut writer = FrameWriter::new().unwrap();
        let text = vec![b'x'; LARGEST_CONTENT];
        let mut dice = Dice::seeded(7);
        let mut noise = || framed(&mut writer, &random(&mut dice, LARGEST_CONTENT));
        assert!(noise().len() < LARGEST_CONTENT + 512);
        let tried = (0..99).filter(|_| noise()[0] == ZSTD).count();
        assert!((9..20).contains(&tried), "{tried}");
        // A short frame is compressed even while the writer pauses the compression of large ones.
        assert_eq!(framed(&mut writer, &text[..100])[0], ZSTD);
        let first = (0..100).position(|_| framed(&mut writer, &text)[0] == ZSTD).unwrap();
        assert!(first <= LONGEST_PAUSE / LARGEST_CONTENT);
        assert_eq!(framed(&mut writer, &text)[0], ZSTD);
    }

    #[test]
    fn an_invalid_frame_is_refused_before_its_payload_arrives() {
        for header in [[0, 0, 0, 0], [2, 1, 0, 0], [0, 1, 0, 2], [1, 1, 4, 2], [255; 4]] {
            assert!(refused(&header).contains("its header is invalid"), "{header:?}");
        }
        assert!(refused(&[ZSTD, 4, 0, 0, 1, 2, 3, 4]).contains("Unknown frame descriptor"));
        // A window of 16 MiB.
        let window = [ZSTD, 9, 0, 0, 0x28, 0xb5, 0x2f, 0xfd, 0, 14 << 3, 1, 0, 0];
        assert!(refused(&window).contains("too much memory"), "{}", refused(&window));
    }

    #[test]
    fn a_frame_that_expands_to_more_than_allowed_is_refused() {
        let mut packed = Vec::with_capacity(1 << 20);
        zstd_safe::compress(&mut packed, &vec![0; LARGEST_CONTENT + 1], LEVEL).unwrap();
        let [one, two, three, _] = u32::to_le_bytes(packed.len() as u32);
        assert!(refused(&[&[ZSTD, one, two, three], &packed[..]].concat()).contains("too long"));
    }

    #[test]
    fn a_peer_that_does_not_compress_is_recognized_by_its_first_bytes() {
        for (bytes, words) in [
            (&b"GET / HTTP/1.1\r\n"[..], "without --compress"),
            (b"HTTP/1.1 400 Bad Request\r\n", "without --compress"),
            (b"Welcome\x1b!\nthalweg", "printed 'Welcome\\u{1b}!'"),
        ] {
            let failure = read(&mut FrameReader::new().unwrap(), bytes).unwrap_err();
            assert!(failure.to_string().contains(words), "{failure}");
        }
    }

    proptest! {
        #[test]
        fn content_is_equal_however_the_bytes_arrive(
            lengths in prop::collection::vec((any::<bool>(), 1..=LARGEST_CONTENT), 1..6),
            piece in 1..70_000_usize,
        ) {
            let mut writer = FrameWriter::new().unwrap();
            let mut dice = Dice::seeded(8);
            let (mut sent, mut wire) = (Vec::new(), PREAMBLE.to_vec());
            for (is_random, length) in lengths {
                let content = if is_random { random(&mut dice, length) } else { vec![b'a'; length] };
                writer.write(&content, &mut wire).unwrap();
                sent.extend_from_slice(&content);
            }
            let mut reader = FrameReader::new().unwrap();
            let mut content = Vec::new();
            for piece in wire.chunks(piece) {
                content.extend(read(&mut reader, piece).unwrap());
            }
            prop_assert!(content == sent);
        }
    }
}
