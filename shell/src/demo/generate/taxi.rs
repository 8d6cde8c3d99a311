//! Taxi trips, and boroughs as polygons; one borough's coast was digitised far too finely.

use std::f64::consts::TAU;
use std::io;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::write_file;

/// Enough for the slow query to take seconds.
pub const DEFAULT_TRIPS: u64 = 40_000;
/// Vertices of the borough that makes the query slow, as in the paper.
pub const HOT_VERTICES: usize = 20_004;

/// A borough: a star-shaped region around a centre.
struct Borough {
    name: &'static str,
    longitude: f64,
    latitude: f64,
    /// Degrees.
    radius: f64,
    vertices: usize,
    /// Share of the trips that begin there.
    trips: f64,
    /// Mean cost of a trip in dollars.
    cost: f64,
}

/// About where they are; their regions do not overlap.
const BOROUGHS: [Borough; 5] = [
    borough("Manhattan", -73.97, 40.78, 0.045, 64, 0.52, 14.0),
    borough("Brooklyn", -73.95, 40.65, 0.060, 88, 0.20, 17.5),
    borough("Queens", -73.80, 40.72, 0.075, 96, 0.15, 27.0),
    borough("Bronx", -73.86, 40.86, 0.050, 72, 0.09, 16.0),
    borough(
        "Staten Island",
        -74.15,
        40.58,
        0.065,
        HOT_VERTICES,
        0.04,
        38.0,
    ),
];

const fn borough(
    name: &'static str,
    longitude: f64,
    latitude: f64,
    radius: f64,
    vertices: usize,
    trips: f64,
    cost: f64,
) -> Borough {
    Borough {
        name,
        longitude,
        latitude,
        radius,
        vertices,
        trips,
        cost,
    }
}

/// The coast: a circle with bays, and a wobble of about a metre that no trip depends on.
fn radius_at(borough: &Borough, angle: f64, phase: f64) -> f64 {
    borough.radius * (1.0 + 0.12 * (3.0 * angle + phase).sin() + 0.05 * (7.0 * angle - phase).sin())
}

/// Writes `name,polygon` with polygons as WKT; returns the file's bytes.
pub fn generate_boroughs(path: &Path, seed: u64) -> io::Result<u64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    write_file(path, |out| {
        writeln!(out, "name,polygon")?;
        for borough in &BOROUGHS {
            let phase = rng.random_range(0.0..TAU);
            write!(out, "{},\"POLYGON((", borough.name)?;
            // The last vertex of WKT repeats the first one.
            let mut first = None;
            for i in 0..borough.vertices - 1 {
                let angle = TAU * i as f64 / (borough.vertices - 1) as f64;
                let radius = radius_at(borough, angle, phase) + rng.random_range(-0.00001..0.00001);
                let x = borough.longitude + radius * angle.cos();
                let y = borough.latitude + radius * angle.sin();
                first.get_or_insert((x, y));
                write!(out, "{x:.7} {y:.7}, ")?;
            }
            let (x, y) = first.unwrap_or_default();
            writeln!(out, "{x:.7} {y:.7}))\"")?;
        }
        Ok(())
    })
}

/// Writes `id,longitude,latitude,cost`; returns the file's bytes.
pub fn generate_trips(path: &Path, trips: u64, seed: u64) -> io::Result<u64> {
    // Another stream than the boroughs', so that neither file depends on the other's size.
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    write_file(path, |out| {
        writeln!(out, "id,longitude,latitude,cost")?;
        for id in 1..=trips {
            let borough = pick(rng.random_range(0.0..1.0));
            let angle = rng.random_range(0.0..TAU);
            // Within 80 % of the mean radius: inside, however the coast runs.
            let radius = 0.8 * borough.radius * rng.random_range(0.0..1.0_f64).sqrt();
            let x = borough.longitude + radius * angle.cos();
            let y = borough.latitude + radius * angle.sin();
            let cost = borough.cost * rng.random_range(0.4..1.6);
            writeln!(out, "{id},{x:.6},{y:.6},{cost:.2}")?;
        }
        Ok(())
    })
}

fn pick(mut share: f64) -> &'static Borough {
    for borough in &BOROUGHS {
        if share < borough.trips {
            return borough;
        }
        share -= borough.trips;
    }
    &BOROUGHS[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::polygon::Polygon;

    #[test]
    fn every_trip_lies_in_exactly_one_borough() {
        let dir = tempfile::tempdir().unwrap();
        let (boroughs, trips) = (dir.path().join("b.csv"), dir.path().join("t.csv"));
        generate_boroughs(&boroughs, 3).unwrap();
        generate_trips(&trips, 200, 3).unwrap();
        let polygons: Vec<Polygon> = std::fs::read_to_string(&boroughs)
            .unwrap()
            .lines()
            .skip(1)
            .map(|line| Polygon::parse(line.split('"').nth(1).unwrap()).unwrap())
            .collect();
        assert_eq!(polygons.len(), 5);
        let vertices: Vec<_> = polygons.iter().map(Polygon::vertices).collect();
        assert_eq!(vertices, [64, 88, 96, 72, HOT_VERTICES]);
        for line in std::fs::read_to_string(&trips).unwrap().lines().skip(1) {
            let fields: Vec<f64> = line.split(',').map(|f| f.parse().unwrap()).collect();
            let inside = polygons.iter().filter(|p| p.contains(fields[1], fields[2]));
            assert_eq!(inside.count(), 1, "{line}");
        }
    }
}
