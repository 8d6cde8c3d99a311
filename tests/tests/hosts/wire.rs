//! A cable in user space that delays and loses frames, for kernels without netem.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The longest frame.
const FRAME: usize = 65_536;

/// What a cable does to frames, in both directions.
#[derive(Debug, Clone, Default)]
pub struct Weather {
    delay_us: Arc<AtomicU64>,
    /// Of a million frames.
    lost: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl Weather {
    /// From now on.
    pub fn set(&self, delay: Duration, lost_percent: f64) {
        let delay = delay.as_micros() as u64;
        self.delay_us.store(delay, Ordering::Relaxed);
        let lost = (lost_percent * 10_000.0) as u64;
        self.lost.store(lost, Ordering::Relaxed);
    }

    /// Frames that were lost so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// Makes two network devices with a cable between them, which is there until both are deleted.
///
/// # Errors
/// If this is not Linux with TAP devices, or not allowed.
pub fn cable(one: &str, other: &str) -> io::Result<Weather> {
    let weather = Weather::default();
    let (one, other) = (tap(one)?, tap(other)?);
    carry(one.try_clone()?, other.try_clone()?, weather.clone(), 1);
    carry(other, one, weather.clone(), 2);
    Ok(weather)
}

/// A TAP device of that name.
#[expect(unsafe_code, reason = "devices are made by an ioctl")]
fn tap(name: &str) -> io::Result<File> {
    const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")?;
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name[..15].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the descriptor is open and the request of the type that the call expects.
    let made = unsafe { libc::ioctl(device.as_raw_fd(), TUNSETIFF, &raw const request) };
    match made {
        0 => Ok(device),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Carries frames in one direction, on two threads, which end with the devices.
fn carry(mut from: File, mut to: File, weather: Weather, seed: u64) {
    let (send, receive): (Sender<(Instant, Vec<u8>)>, Receiver<_>) = channel();
    std::thread::spawn(move || {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut frame = vec![0; FRAME];
        loop {
            let Ok(length) = from.read(&mut frame) else {
                // A device is down before it is put to use, and while its namespace is deleted.
                if from.metadata().is_err() || gone(&from) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            if random.random_range(0..1_000_000) < weather.lost.load(Ordering::Relaxed) {
                weather.dropped.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let delay = Duration::from_micros(weather.delay_us.load(Ordering::Relaxed));
            if send
                .send((Instant::now() + delay, frame[..length].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        while let Ok((due, frame)) = receive.recv() {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // A device that is down takes nothing: the frame is lost, as on a cable.
            let _ = to.write(&frame);
        }
    });
}

/// Whether a device was deleted.
fn gone(device: &File) -> bool {
    let error = (&*device).read(&mut [0; 1]).err();
    error.is_some_and(|error| error.raw_os_error() == Some(libc::EBADFD))
}
