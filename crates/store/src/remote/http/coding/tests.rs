use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use hyper::header::HeaderName;
use proptest::prelude::*;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::*;

const TEXT: &[u8] = b"The value, the value, the value.";

/// [`TEXT`] as `brotli` compresses it.
const BROTLI: &[u8] = b"\x1b\x1f\x00\xf8\x8d\x84\xdc\xc4\xea\x3f\x1c\x98\x4a\x6a\xaa\x32\x34\x3a\x09\xc2\xe2\x92\x8a\x8c\xb2\x4d\x05\x40\x42\xa4\x97\x19";

/// A MiB of zeros as `brotli` compresses it.
const BROTLI_MIB: &[u8] = b"\x5b\xff\xff\x8f\x7f\x02\x20\x1e\x0b\x04\x72\xef\x1f\x00";

/// [`TEXT`] as `zstd` compresses it, with a checksum.
const ZSTD: &[u8] =
    b"\x28\xb5\x2f\xfd\x04\x68\x9d\x00\x00\x68The value, t.\x01\x00\x4e\x4a\x12\x4a\x5b\xd0\x00";

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn zlib(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn bare(plain: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

/// [`TEXT`] in each coding.
fn coded() -> Vec<(Coding, Vec<u8>)> {
    vec![
        (Coding::Gzip, gzip(TEXT)),
        (Coding::Deflate, zlib(TEXT)),
        (Coding::Deflate, bare(TEXT)),
        (Coding::Brotli, BROTLI.to_vec()),
        (Coding::Zstd, ZSTD.to_vec()),
    ]
}

fn named(lines: &[(HeaderName, &str)]) -> Result<Vec<Coding>, Undecodable> {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(name, value.parse().unwrap());
    }
    codings(&headers)
}

/// The text of an error about a coding.
fn problem<T>(result: Result<Vec<T>, Undecodable>) -> String {
    match result {
        Ok(items) => format!("{} items", items.len()),
        Err(Undecodable::Coding(detail)) => detail,
        Err(Undecodable::TooLarge) => "too large".to_owned(),
    }
}

#[test]
fn content_codings_are_read_in_order_from_all_header_lines_in_any_letter_case() {
    let content = |value| named(&[(CONTENT_ENCODING, value)]);
    for none in ["", "identity", "Identity, ,none"] {
        assert_eq!(content(none), Ok(vec![]), "{none}");
    }
    assert_eq!(content("GZip"), Ok(vec![Coding::Gzip]));
    assert_eq!(content("x-gzip , identity,DEFLATE"), Ok(vec![Coding::Gzip, Coding::Deflate]));
    let lines = [(CONTENT_ENCODING, "br"), (CONTENT_ENCODING, "zstd"), (TRANSFER_ENCODING, "gzip, Chunked")];
    assert_eq!(named(&lines), Ok(vec![Coding::Brotli, Coding::Zstd, Coding::Gzip]));
    assert_eq!(named(&[]), Ok(vec![]));
}

#[test]
fn error_names_a_coding_that_is_unknown_or_exceeds_the_maximum_number() {
    let content = |value| problem(named(&[(CONTENT_ENCODING, value)]));
    for unknown in ["compress", "lz4", "gzip;q=1", "chunked"] {
        let expected = format!("content coding `{unknown}`: it is none of gzip, deflate, br and zstd");
        assert_eq!(content(unknown), expected);
    }
    assert_eq!(
        content("gzip,gzip,br,br,gzip"),
        "content coding gzip: it follows 4 others, the most accepted"
    );
}

#[test]
fn body_in_each_coding_is_decoded() {
    for (coding, coded) in coded() {
        assert_eq!(decode(&[coding], &coded, 1 << 10).unwrap(), TEXT, "{coding}");
        assert_eq!(decode(&[coding], b"", 1 << 10).unwrap(), b"", "{coding} of no bytes");
        let both = gzip(&coded);
        assert_eq!(decode(&[coding, Coding::Gzip], &both, 1 << 10).unwrap(), TEXT, "{coding}, gzip");
    }
    assert_eq!(decode(&[], TEXT, 1 << 10).unwrap(), TEXT);
}

#[test]
fn consecutive_gzip_members_and_zstd_frames_are_decoded_as_one_body() {
    let twice = [TEXT, TEXT].concat();
    assert_eq!(decode(&[Coding::Gzip], &[gzip(TEXT), gzip(TEXT)].concat(), 1 << 10).unwrap(), twice);
    let skipped = b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab";
    assert_eq!(decode(&[Coding::Zstd], &[ZSTD, skipped, ZSTD].concat(), 1 << 10).unwrap(), twice);
}

#[test]
fn error_about_a_damaged_body_names_its_coding() {
    for (coding, coded) in coded() {
        let named = |body: &[u8]| {
            let said = problem(decode(&[coding], body, 1 << 10));
            assert!(said.starts_with(&format!("content coding {coding}: ")), "{said}");
        };
        for bytes in 1..coded.len() {
            named(&coded[..bytes]);
        }
        named(&[&coded[..], b"more"].concat());
        named(TEXT);
    }
    let mut damaged = ZSTD.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert!(problem(decode(&[Coding::Zstd], &damaged, 1 << 10)).contains("checksum"));
}

#[test]
fn zstd_body_that_needs_a_window_over_8_mib_is_refused() {
    // The window descriptor says 16 MiB.
    let mut large = ZSTD.to_vec();
    large[5] = (24 - 10) << 3;
    assert!(problem(decode(&[Coding::Zstd], &large, 1 << 10)).starts_with("content coding zstd: "));
}

#[test]
fn body_that_decodes_to_more_than_the_limit_is_refused() {
    for (coding, coded) in coded() {
        let bytes_max = TEXT.len() as u64;
        assert_eq!(decode(&[coding], &coded, bytes_max).unwrap(), TEXT);
        assert_eq!(decode(&[coding], &coded, bytes_max - 1), Err(Undecodable::TooLarge));
        let both = [Coding::Gzip, coding];
        assert_eq!(decode(&both, &coded, bytes_max - 1), Err(Undecodable::TooLarge), "the inner one");
    }
}

#[test]
fn body_that_expands_more_than_1000_fold_or_beyond_64_mib_is_refused() {
    let bombs = [
        (Coding::Brotli, BROTLI_MIB.to_vec()),
        (Coding::Gzip, gzip(&vec![0; 8 << 20])),
        (Coding::Zstd, compress_to_vec(&*vec![0; 16 << 20], CompressionLevel::Fastest)),
    ];
    for (coding, bomb) in bombs {
        let said = problem(decode(&[coding], &bomb, u64::MAX));
        let expected =
            format!("content coding {coding}: it expands to more than {} bytes", 1_000 * bomb.len());
        assert!(said.starts_with(&expected), "{said}");
    }
    let many = gzip(&vec![0; 1 << 20]).repeat(70);
    assert!(many.len() as u64 * EXPANSION_MAX > DECODED_BYTES_MAX);
    let said = problem(decode(&[Coding::Gzip], &many, u64::MAX));
    assert!(said.starts_with("content coding gzip: it expands to more than 67108864 bytes"), "{said}");
}

proptest! {
    #[test]
    fn random_or_damaged_body_is_decoded_or_refused_without_a_panic(
        body: Vec<u8>, cut in 0..400_usize, at in 0..400_usize
    ) {
        for (coding, mut coded) in coded() {
            let _ = decode(&[coding], &body, 1 << 20);
            coded.truncate(cut);
            if let Some(byte) = coded.get_mut(at) {
                *byte ^= 1 << (at % 8);
            }
            let _ = decode(&[coding], &coded, 1 << 20);
        }
    }

    #[test]
    fn compressed_body_is_decoded_to_its_original_bytes(plain: Vec<u8>) {
        for (coding, coded) in [
            (Coding::Gzip, gzip(&plain)),
            (Coding::Deflate, zlib(&plain)),
            (Coding::Deflate, bare(&plain)),
            (Coding::Zstd, compress_to_vec(&*plain, CompressionLevel::Fastest)),
        ] {
            prop_assert_eq!(&decode(&[coding], &coded, 1 << 20).unwrap(), &plain);
        }
    }
}
