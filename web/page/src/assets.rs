//! The page, its scripts and its style sheet. `npm run build` in `web/ui` makes them; they are committed, so
//! that building Skewer needs no Node.

use sha2::{Digest, Sha256};

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asset {
    /// Where the page asks for it.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its text.
    pub text: &'static str,
}

impl Asset {
    /// Another one for another text: half of its SHA-256, in hexadecimal.
    pub fn digest(&self) -> String {
        let hash = Sha256::digest(self.text.as_bytes());
        hash[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// The page. It is the answer to every path of the page's own.
pub const INDEX: Asset = Asset {
    path: "/",
    media_type: "text/html; charset=utf-8",
    text: include_str!("../../dist/index.html"),
};

const fn script(path: &'static str, text: &'static str) -> Asset {
    Asset {
        path,
        media_type: "text/javascript; charset=utf-8",
        text,
    }
}

/// The script.
pub const SCRIPT: Asset = script("/app.js", include_str!("../../dist/app.js"));

/// Scripts that the script loads when a query's page shows what they draw. An exported file holds them.
pub const QUERY_PIECES: [Asset; 4] = [
    script(
        "/communication.js",
        include_str!("../../dist/communication.js"),
    ),
    script("/operator.js", include_str!("../../dist/operator.js")),
    script("/records.js", include_str!("../../dist/records.js")),
    script("/traces.js", include_str!("../../dist/traces.js")),
];

/// Scripts that the script loads for the other pages, which an exported file does not have.
pub const OTHER_PIECES: [Asset; 4] = [
    script("/cluster.js", include_str!("../../dist/cluster.js")),
    script("/compare.js", include_str!("../../dist/compare.js")),
    script("/home.js", include_str!("../../dist/home.js")),
    script("/live.js", include_str!("../../dist/live.js")),
];

/// The style sheet.
pub const STYLE: Asset = Asset {
    path: "/app.css",
    media_type: "text/css; charset=utf-8",
    text: include_str!("../../dist/app.css"),
};

/// All files but the page.
pub fn loaded() -> impl Iterator<Item = Asset> {
    [SCRIPT, STYLE]
        .into_iter()
        .chain(QUERY_PIECES)
        .chain(OTHER_PIECES)
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use sha2::{Digest, Sha256};

    fn files(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => files(&path, found),
                false => found.push(path),
            }
        }
    }

    /// The hash that `build.mjs` writes, computed without Node.
    #[test]
    fn the_committed_page_is_built_from_the_committed_sources() {
        let web = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let ui = web.join("ui");
        let mut sources = Vec::new();
        files(&ui.join("src"), &mut sources);
        let others = [
            "build.mjs",
            "package.json",
            "package-lock.json",
            "tsconfig.json",
        ];
        sources.extend(others.map(|name| ui.join(name)));
        let relative = |path: &PathBuf| {
            let path = path.strip_prefix(&ui).unwrap();
            path.to_str().unwrap().replace('\\', "/")
        };
        sources.sort_by_key(relative);
        assert!(sources.len() > 20, "{sources:?}");
        let mut hash = Sha256::new();
        for path in &sources {
            let bytes = std::fs::read(path).unwrap();
            hash.update(format!("{}\n{}\n", relative(path), bytes.len()));
            hash.update(&bytes);
        }
        let now: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let built = std::fs::read_to_string(web.join("dist/SOURCES.sha256")).unwrap();
        assert_eq!(
            built.trim(),
            now,
            "web/dist is stale: run `npm ci --ignore-scripts && npm run build` in web/ui"
        );
    }

    #[test]
    fn the_page_is_small_and_loads_nothing_from_elsewhere() {
        let index = super::INDEX.text;
        let loaded: usize = super::loaded().map(|asset| asset.text.len()).sum();
        let bytes = index.len() + loaded;
        assert!(bytes < 310_000, "the page has {bytes} bytes");
        let first = super::SCRIPT.text.len();
        assert!(first < 125_000, "the first script has {first} bytes");
        assert!(
            !index.contains("http:") && !index.contains("https:"),
            "{index}"
        );
        assert!(index.contains("<script src=\"/app.js\" defer></script>"));
        assert!(index.contains("<link rel=\"stylesheet\" href=\"/app.css\">"));
    }

    #[test]
    fn every_built_file_is_served() {
        let web = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut built = Vec::new();
        files(&web.join("dist"), &mut built);
        let mut built: Vec<_> = built
            .iter()
            .map(|path| format!("/{}", path.file_name().unwrap().to_str().unwrap()))
            .filter(|name| name != "/index.html" && name != "/SOURCES.sha256")
            .collect();
        built.sort();
        let mut served: Vec<_> = super::loaded().map(|asset| asset.path).collect();
        served.sort_unstable();
        assert_eq!(served, built);
    }
}
