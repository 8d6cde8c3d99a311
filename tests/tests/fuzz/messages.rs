//! Bytes at the port of the server that no client sends: it goes on to serve others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use skewer_tests::served::Served;

use crate::cases::{Cases, random, watch};

/// A server that waits for more says nothing.
const SILENCE: Duration = Duration::from_millis(50);

/// A server that is asked answers.
const ANSWERS: Duration = Duration::from_secs(60);

/// Types of messages that clients send, and others.
const TYPES: &[u8] = b"QPBDECSHXdcfFp\0Zz?\xff";

/// Messages with a mistake in each.
fn messages(random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    match random.random_range(0..8) {
        0 => {}
        1 => bytes.extend(noise(random, 64)),
        2 => {
            // A request for TLS or to cancel, or a version that nobody has.
            let code = [80_877_103_u32, 80_877_102, 80_877_104, 0, u32::MAX, 131_072];
            bytes.extend(8_u32.to_be_bytes());
            bytes.extend(code.choose(random).unwrap().to_be_bytes());
            bytes.extend(noise(random, 16));
        }
        3 => {
            let mut parameters = noise(random, 64);
            drop(parameters.splice(0..0, 196_608_u32.to_be_bytes()));
            bytes.extend(framed(None, &parameters, random));
        }
        _ => {
            bytes.extend(startup());
        }
    }
    for _ in 0..random.random_range(0..6) {
        let kind = *TYPES.choose(random).unwrap();
        let body = body(kind, random);
        bytes.extend(framed(Some(kind), &body, random));
    }
    for _ in 0..random.random_range(0..3) {
        if !bytes.is_empty() {
            let at = random.random_range(0..bytes.len());
            match random.random_bool(0.5) {
                true => bytes[at] = random.random(),
                false => bytes.truncate(at),
            }
        }
    }
    bytes
}

fn startup() -> Vec<u8> {
    let parameters = b"user\0somebody\0database\0main\0\0";
    let mut bytes = Vec::new();
    bytes.extend((parameters.len() as u32 + 8).to_be_bytes());
    bytes.extend(196_608_u32.to_be_bytes());
    bytes.extend(parameters);
    bytes
}

fn noise(random: &mut ChaCha8Rng, most: usize) -> Vec<u8> {
    let length = random.random_range(0..most);
    (0..length).map(|_| random.random()).collect()
}

/// What a message of this type has in it, more or less.
fn body(kind: u8, random: &mut ChaCha8Rng) -> Vec<u8> {
    let texts: [&[u8]; 8] = [
        b"SELECT 1\0",
        b"SELECT $1::INT\0",
        b"COPY t FROM STDIN\0",
        b"COPY (SELECT 1) TO STDOUT (FORMAT binary)\0",
        b"BEGIN\0",
        b"\xff\xfe\0",
        b"\0",
        b"SELECT",
    ];
    let counts: [i16; 5] = [0, 1, -1, i16::MAX, i16::MIN];
    let lengths: [i32; 6] = [0, 1, -1, -2, i32::MAX, i32::MIN];
    let mut bytes = Vec::new();
    match kind {
        b'Q' => bytes.extend(*texts.choose(random).unwrap()),
        b'P' => {
            bytes.extend(b"p\0");
            bytes.extend(*texts.choose(random).unwrap());
            bytes.extend(counts.choose(random).unwrap().to_be_bytes());
            bytes.extend(noise(random, 8));
        }
        b'B' => {
            bytes.extend(b"\0p\0");
            bytes.extend(counts.choose(random).unwrap().to_be_bytes());
            bytes.extend(counts.choose(random).unwrap().to_be_bytes());
            bytes.extend(lengths.choose(random).unwrap().to_be_bytes());
            bytes.extend(noise(random, 16));
        }
        b'E' => {
            bytes.extend(b"\0");
            bytes.extend(lengths.choose(random).unwrap().to_be_bytes());
        }
        b'D' | b'C' => {
            bytes.extend([*b"SPx\0".choose(random).unwrap()]);
            bytes.extend(b"p\0");
        }
        _ => bytes.extend(noise(random, 32)),
    }
    bytes
}

/// A message, mostly of the length that it says.
fn framed(kind: Option<u8>, body: &[u8], random: &mut ChaCha8Rng) -> Vec<u8> {
    let length = match random.random_range(0..12) {
        0 => *[0, 1, 3, 5, u32::MAX, i32::MAX as u32, 1 << 30]
            .choose(random)
            .unwrap(),
        _ => body.len() as u32 + 4,
    };
    let mut bytes: Vec<u8> = kind.into_iter().collect();
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Sends bytes and reads what comes back, until the server is silent.
fn send(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut stream) = TcpStream::connect(server) else {
        return answer;
    };
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    // A server that has heard enough closes the connection.
    if stream.write_all(bytes).is_ok() {
        let mut buffer = [0; 4_096];
        while let Ok(read) = stream.read(&mut buffer)
            && read > 0
        {
            answer.extend(&buffer[..read]);
        }
    }
    answer
}

/// Whether another client gets its answer.
fn serves(server: SocketAddr) -> Result<(), String> {
    let told = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(server).map_err(told)?;
    stream.set_read_timeout(Some(ANSWERS)).map_err(told)?;
    let mut bytes = startup();
    let query = b"SELECT 'served'\0";
    bytes.push(b'Q');
    bytes.extend((query.len() as u32 + 4).to_be_bytes());
    bytes.extend(query);
    bytes.extend([b'X', 0, 0, 0, 4]);
    stream.write_all(&bytes).map_err(told)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(told)?;
    let row = b"\x00\x01\x00\x00\x00\x06served";
    match answer.windows(row.len()).any(|window| window == row) {
        true => Ok(()),
        false => Err(format!("another client gets {}", shown(&answer))),
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn the_server_goes_on_whatever_is_sent() {
    const NAME: &str = "messages::the_server_goes_on_whatever_is_sent";
    let Some(mut cases) = Cases::of_this_process(300) else {
        return watch(NAME);
    };
    let served = Served::start();
    while let Some(case) = cases.next() {
        let bytes = messages(&mut random(case));
        let sent = shown(&bytes);
        cases.note(case, &sent);
        let answer = send(served.address, &bytes);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        if text.contains("panick") || text.contains("internal error") {
            cases.failed(case, &sent, &text);
        }
        if let Err(error) = serves(served.address) {
            cases.failed(case, &sent, &error);
        }
    }
}
