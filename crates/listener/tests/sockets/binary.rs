//! Random requests of a simulated client of memcached's binary protocol, and the expected answers.

use crate::draw::Draw;
use crate::script::{Expected, key, value};

const GET: u8 = 0x00;
const DELETE: u8 = 0x04;
const QUIT: u8 = 0x07;
const NOOP: u8 = 0x0a;
const STAT: u8 = 0x10;
const QUITQ: u8 = 0x17;
const TOUCH: u8 = 0x1c;
const SASL_AUTH: u8 = 0x21;
const SASL_STEP: u8 = 0x22;
/// Length of a header, and the range of the CAS in it. The CAS depends on the stores of all
/// clients.
const HEADER_BYTES: usize = 24;
const CAS: std::ops::Range<usize> = 16..24;

/// Returns the expected bytes of an answer; each byte of a CAS may have any value.
pub(crate) fn expected(answer: &[u8]) -> Vec<Expected> {
    let mut expected: Vec<Expected> = answer.iter().copied().map(Expected::Byte).collect();
    let mut at = 0;
    while let Some(header) = answer.get(at..at + HEADER_BYTES) {
        expected[at + CAS.start..at + CAS.end].fill(Expected::Any);
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        at += HEADER_BYTES + body as usize;
    }
    expected
}

fn frame(draw: &mut Draw, opcode: u8, extras: &[u8], key: &str, value: &str) -> Vec<u8> {
    let body = (extras.len() + key.len() + value.len()) as u32;
    let mut bytes = vec![0x80, opcode, 0, key.len() as u8, extras.len() as u8, 0, 0, 0];
    bytes.extend(body.to_be_bytes());
    bytes.extend((draw.below(1 << 30) as u32).to_be_bytes());
    bytes.extend([0; 8]);
    [&bytes[..], extras, key.as_bytes(), value.as_bytes()].concat()
}

/// Draws the frames of a login.
pub(crate) fn login(draw: &mut Draw, name: &str, password: &str) -> Vec<Vec<u8>> {
    let data = format!("\0{name}\0{password}");
    match draw.below(3) {
        0 => vec![frame(draw, SASL_AUTH, b"", "PLAIN", ""), frame(draw, SASL_STEP, b"", "PLAIN", &data)],
        _ => vec![frame(draw, SASL_AUTH, b"", "PLAIN", &data)],
    }
}

pub(crate) fn quit(draw: &mut Draw) -> Vec<u8> {
    let opcode = draw.one_of(&[QUIT, QUITQ]);
    frame(draw, opcode, b"", "", "")
}

/// Draws a request, or several that belong together.
pub(crate) fn request(draw: &mut Draw, client: usize, bytes_max: usize) -> Vec<u8> {
    let key = key(draw, client);
    // Expiry times, and a number that is added, with the one that is created.
    let (long, count) = ([0, 1, 134, 160], [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 13, 0, 0, 0, 0]);
    match draw.below(22) {
        0..=3 => {
            let opcode = draw.one_of(&[GET, 0x09, 0x0c, 0x0d]);
            frame(draw, opcode, b"", &key, "")
        }
        4..=6 => several_gets(draw, client),
        7 => {
            let opcode = draw.one_of(&[0x1d, 0x1e, 0x23, 0x24, TOUCH]);
            frame(draw, opcode, &long, &key, "")
        }
        8..=11 => {
            let value = value(draw, client, bytes_max);
            let opcode = draw.one_of(&[0x01, 0x01, 0x02, 0x03, 0x11, 0x12, 0x13]);
            frame(draw, opcode, &[0, 0, 0, 7, 0, 0, 0, 0], &key, &value)
        }
        12 => {
            let value = value(draw, client, bytes_max);
            let opcode = draw.one_of(&[0x0e, 0x0f, 0x19, 0x1a]);
            frame(draw, opcode, b"", &key, &value)
        }
        13 => {
            let opcode = draw.one_of(&[DELETE, 0x14]);
            frame(draw, opcode, b"", &key, "")
        }
        14 => {
            let number = (10 + draw.below(90)).to_string();
            frame(draw, 0x01, &[0; 8], &key, &number)
        }
        15 | 16 => {
            let opcode = draw.one_of(&[0x05, 0x06, 0x15, 0x16]);
            frame(draw, opcode, &count, &key, "")
        }
        17 => frame(draw, NOOP, b"", "", ""),
        18 => {
            let (opcode, key) =
                draw.one_of(&[(0x0b, ""), (STAT, "items"), (STAT, "none"), (0x77, "key"), (0x20, "")]);
            frame(draw, opcode, b"", key, "")
        }
        19 => {
            let opcode = draw.one_of(&[0x01, 0x02, 0x11]);
            frame(draw, opcode, &[0; 8], &key, &"x".repeat(bytes_max + 1))
        }
        // A frame of wrong lengths, or none, which ends the connection.
        _ if draw.chance(5) => match draw.chance(50) {
            true => frame(draw, GET, b"1234", &key, ""),
            false => b"get text\r\n".to_vec(),
        },
        _ => frame(draw, GET, b"", &key, ""),
    }
}

/// Draws quiet gets of several keys, as clients send them, with a `noop` behind them.
fn several_gets(draw: &mut Draw, client: usize) -> Vec<u8> {
    let mut frames = Vec::new();
    for _ in 0..draw.up_to(12) {
        let (key, opcode) = (key(draw, client), draw.one_of(&[0x09, 0x0d]));
        frames.extend(frame(draw, opcode, b"", &key, ""));
    }
    frames.extend(frame(draw, NOOP, b"", "", ""));
    frames
}
