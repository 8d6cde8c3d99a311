//! A worker in a network namespace of its own, at a cable in user space that delays packets.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::wire::{self, Weather};

/// What namespaces of the laboratory are called, before its process id.
const PREFIX: &str = "skewer-faults-";

/// A namespace with one cable to the rest of the machine; gone when this is dropped.
#[derive(Debug)]
pub struct Cable {
    namespace: String,
    device: String,
    weather: Weather,
    network: u32,
}

impl Cable {
    /// Lays the cable.
    ///
    /// # Errors
    /// If the machine has no namespaces or TAP devices, or does not let this process make any.
    pub fn new() -> Result<Cable> {
        remove_leftovers();
        let id = std::process::id();
        let (near, far) = (format!("skn{id}"), format!("skf{id}"));
        let weather = wire::cable(&near, &far).context("TAP device")?;
        let cable = Cable {
            namespace: format!("{PREFIX}{id}"),
            device: near,
            weather,
            network: id % 250,
        };
        let (namespace, near) = (&cable.namespace, &cable.device);
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link set dev {far} netns {namespace}"))?;
        ip(&format!("addr add {}/24 dev {near}", cable.near()))?;
        ip(&format!("link set {near} up"))?;
        ip(&format!(
            "-n {namespace} addr add {}/24 dev {far}",
            cable.far()
        ))?;
        ip(&format!("-n {namespace} link set {far} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        Ok(cable)
    }

    /// The address of the machine at its end of the cable.
    pub fn near(&self) -> String {
        format!("10.204.{}.1", self.network)
    }

    /// The address of the worker at its end.
    pub fn far(&self) -> String {
        format!("10.204.{}.2", self.network)
    }

    /// What runs a program in the namespace. (`ip netns exec` would hide control groups.)
    pub fn prefix(&self) -> [String; 2] {
        let network = format!("--net=/run/netns/{}", self.namespace);
        ["nsenter".to_owned(), network]
    }

    /// Packets take so much longer from now on, each way.
    pub fn delay(&self, delay: Duration) {
        self.weather.set(delay, 0.0);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // What was not made cannot be deleted.
        let _ = ip(&format!("netns del {}", self.namespace));
        let _ = ip(&format!("link del {}", self.device));
    }
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .context("ip")?;
    if output.status.success() {
        return Ok(());
    }
    let error = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(format!("ip {arguments}: {}", error.trim())))
}

/// Removes namespaces of laboratories that were killed.
fn remove_leftovers() {
    for entry in std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name
            .strip_prefix(PREFIX)
            .and_then(|id| id.parse::<u32>().ok());
        if owner.is_some_and(|id| !Path::new(&format!("/proc/{id}")).exists()) {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}
