//! The dashboard's files.

use ring::digest::{SHA256, digest};

/// A file of the dashboard.
pub(crate) struct File {
    pub(super) name: &'static str,
    pub(super) media_type: &'static str,
    pub(super) bytes: &'static [u8],
}

impl File {
    /// Returns the entity tag, a digest of the bytes. O(bytes), at most a millisecond.
    pub(super) fn tag(&self) -> String {
        let digest = digest(&SHA256, self.bytes);
        let digits: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("\"{digits}\"")
    }
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

macro_rules! file {
    ($name:literal, $media_type:expr) => {
        File { name: $name, media_type: $media_type, bytes: include_bytes!(concat!("../../assets/", $name)) }
    };
}

/// All files, the page first. uPlot is by Leon Sorokin, under the MIT licence in
/// `assets/uPlot.LICENSE`.
pub(super) static FILES: &[File] = &[
    file!("index.html", HTML),
    file!("app.css", STYLE),
    file!("uPlot.min.css", STYLE),
    file!("icon.svg", PICTURE),
    file!("theme.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("backends.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("charts.js", SCRIPT),
    file!("colours.js", SCRIPT),
    file!("control.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("history.js", SCRIPT),
    file!("keys.js", SCRIPT),
    file!("limits.js", SCRIPT),
    file!("nodes.js", SCRIPT),
    file!("partitions.js", SCRIPT),
    file!("summary.js", SCRIPT),
    file!("uPlot.esm.js", SCRIPT),
    file!("uPlot.LICENSE", "text/plain; charset=utf-8"),
];

/// Returns the file of this name.
pub(super) fn find(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// Returns true if `path` is that of the page or one of its files.
pub(crate) fn is_file(path: &str) -> bool {
    path == "/" || path.strip_prefix("/dashboard/").is_some_and(|name| find(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_and_its_files_are_open() {
        for path in ["/", "/dashboard/app.js", "/dashboard/uPlot.esm.js", "/dashboard/app.css"] {
            assert!(is_file(path), "{path}");
        }
        for path in ["", "/dashboard", "/dashboard/", "/dashboard/../v1/slo", "/v1/slo", "/status", "//"] {
            assert!(!is_file(path), "{path}");
        }
    }

    #[test]
    fn every_file_is_of_this_node_and_they_stay_below_a_megabyte() {
        let size: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(size < 1 << 20, "{size}");
        for file in FILES.iter().filter(|file| file.name.ends_with(".js")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for line in text.lines().filter(|line| line.starts_with("import") || line.contains(" from '")) {
                let from = line.rsplit_once(" from ").map_or(line, |(_, from)| from);
                let name = from.trim_start_matches(['\'', '"', '.', '/']).trim_end_matches(['\'', '"', ';']);
                assert!(find(name).is_some(), "{}: {line}", file.name);
            }
        }
        let page = std::str::from_utf8(FILES[0].bytes).unwrap();
        for address in page.split("=\"/dashboard/").skip(1) {
            let name = address.split('"').next().unwrap();
            assert!(find(name).is_some(), "{name}");
        }
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("style="), "{page}");
    }
}
