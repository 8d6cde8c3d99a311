//! Polygons: read from WKT, kept as bytes, asked whether they contain a point.

/// A ring of vertices; the last one repeats the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Polygon(Vec<(f64, f64)>);

/// A text or bytes are not a polygon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a polygon: expected POLYGON((x y, x y, …))")]
pub struct NotAPolygon;

/// x and y as little-endian doubles.
const VERTEX_BYTES: usize = 16;

impl Polygon {
    /// Reads `POLYGON((x y, x y, …))`.
    pub fn parse(wkt: &str) -> Result<Polygon, NotAPolygon> {
        let ring = wkt.trim().strip_prefix("POLYGON((").ok_or(NotAPolygon)?;
        let ring = ring.strip_suffix("))").ok_or(NotAPolygon)?;
        let vertex = |text: &str| {
            let (x, y) = text.trim().split_once(' ').ok_or(NotAPolygon)?;
            match (x.parse(), y.trim().parse()) {
                (Ok(x), Ok(y)) => Ok((x, y)),
                _ => Err(NotAPolygon),
            }
        };
        ring.split(',')
            .map(vertex)
            .collect::<Result<_, _>>()
            .map(Polygon)
    }

    /// Reads what [`Polygon::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Polygon, NotAPolygon> {
        if !bytes.len().is_multiple_of(VERTEX_BYTES) {
            return Err(NotAPolygon);
        }
        Ok(Polygon(vertices(bytes).collect()))
    }

    /// The form in which tables keep it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let doubles = self.0.iter().flat_map(|(x, y)| [x, y]);
        doubles.flat_map(|double| double.to_le_bytes()).collect()
    }

    /// How many vertices there are, the repeated first one included.
    pub fn vertices(&self) -> usize {
        self.0.len()
    }

    /// Whether the point lies inside.
    #[cfg(test)]
    pub fn contains(&self, x: f64, y: f64) -> bool {
        contains(&self.to_bytes(), x, y)
    }

    /// The polygon without vertices nearer than `tolerance` to the line between their
    /// neighbours (Douglas and Peucker's algorithm).
    pub fn simplify(&self, tolerance: f64) -> Polygon {
        let ring = &self.0;
        if ring.len() < 5 {
            return self.clone();
        }
        let mut keep = vec![false; ring.len()];
        // The ring's two ends are the same point: cut it in the middle, where there is a line.
        let middle = ring.len() / 2;
        for at in [0, middle, ring.len() - 1] {
            keep[at] = true;
        }
        let mut spans = vec![(0, middle), (middle, ring.len() - 1)];
        while let Some((from, to)) = spans.pop() {
            let farthest = (from + 1..to)
                .map(|at| (at, distance(ring[at], ring[from], ring[to])))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((at, _)) = farthest.filter(|(_, away)| *away > tolerance) {
                keep[at] = true;
                spans.push((from, at));
                spans.push((at, to));
            }
        }
        let kept = ring.iter().zip(&keep).filter(|(_, keep)| **keep);
        Polygon(kept.map(|(vertex, _)| *vertex).collect())
    }
}

/// Whether the polygon in `bytes` contains the point: a ray to the right crosses its edges an
/// odd number of times. The work is proportional to the number of vertices.
pub fn contains(bytes: &[u8], x: f64, y: f64) -> bool {
    let mut ring = vertices(bytes);
    let Some(mut from) = ring.next() else {
        return false;
    };
    let mut inside = false;
    for to in ring {
        if (from.1 > y) != (to.1 > y) {
            let crossing = from.0 + (y - from.1) / (to.1 - from.1) * (to.0 - from.0);
            inside ^= crossing > x;
        }
        from = to;
    }
    inside
}

fn vertices(bytes: &[u8]) -> impl Iterator<Item = (f64, f64)> {
    let double = |bytes: &[u8]| {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        f64::from_le_bytes(eight)
    };
    bytes
        .chunks_exact(VERTEX_BYTES)
        .map(move |vertex| (double(&vertex[..8]), double(&vertex[8..])))
}

/// From a point to the line through two others, or to the point if these are one.
fn distance(point: (f64, f64), from: (f64, f64), to: (f64, f64)) -> f64 {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let (px, py) = (point.0 - from.0, point.1 - from.1);
    let length = dx.hypot(dy);
    if length == 0.0 {
        px.hypot(py)
    } else {
        (dx * py - dy * px).abs() / length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ray_decides_what_is_inside() {
        let square = Polygon::parse("POLYGON((0 0, 4 0, 4 4, 0 4, 0 0))").unwrap();
        assert!(square.contains(1.0, 3.9));
        assert!(!square.contains(5.0, 1.0) && !square.contains(-1.0, 1.0));
        let bytes = square.to_bytes();
        assert_eq!(Polygon::from_bytes(&bytes), Ok(square));
    }

    #[test]
    fn simplifying_keeps_the_shape_and_drops_the_vertices() {
        let circle = |n: usize| {
            let angle = |i: usize| std::f64::consts::TAU * i as f64 / n as f64;
            Polygon((0..=n).map(|i| (angle(i).cos(), angle(i).sin())).collect())
        };
        let simple = circle(20_000).simplify(0.001);
        assert!(
            (40..200).contains(&simple.vertices()),
            "{}",
            simple.vertices()
        );
        assert!(simple.contains(0.99, 0.0) && !simple.contains(1.01, 0.0));
    }

    #[test]
    fn what_is_not_a_polygon_is_refused() {
        for text in ["", "POINT(1 2)", "POLYGON((1 2, x y))", "POLYGON((1, 2))"] {
            assert_eq!(Polygon::parse(text), Err(NotAPolygon), "{text}");
        }
        assert_eq!(Polygon::from_bytes(&[0; 15]), Err(NotAPolygon));
    }
}
