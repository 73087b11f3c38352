//! A test helper: checks that a picture is well-formed XML, as readers of SVG require. Tags must
//! close in order, attributes must be quoted, entities must be known.

/// Panics with the position where `svg` is not well-formed.
pub(crate) fn assert_well_formed(svg: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = svg.trim_end();
    loop {
        let (text, after) = rest.split_once('<').unwrap_or((rest, ""));
        assert!(!text.contains('>') && entities_are_known(text), "{text}");
        if after.is_empty() {
            break;
        }
        let (tag, after) = after.split_once('>').expect("a tag ends");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "before {after}"),
            None => {
                let body = tag.strip_suffix('/').unwrap_or(tag);
                let (name, attributes) = body.split_once(' ').unwrap_or((body, ""));
                attributes_are_quoted(attributes);
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
        rest = after;
        assert!(!open.is_empty() || rest.is_empty(), "one element holds all: {rest}");
    }
    assert!(open.is_empty() && svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{open:?}");
}

fn attributes_are_quoted(attributes: &str) {
    let mut rest = attributes.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no value: {rest}"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name}");
        let (value, after) = after.split_once('"').expect("a value ends");
        assert!(entities_are_known(value) && !value.contains("NaN") && !value.contains("inf"), "{value}");
        rest = after.trim_start();
    }
}

fn entities_are_known(text: &str) -> bool {
    let known = |rest: &str| ["amp;", "lt;", "gt;", "quot;"].iter().any(|entity| rest.starts_with(entity));
    text.split('&').skip(1).all(known)
}

#[test]
fn malformed_xml_is_found() {
    const HEAD: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    assert_well_formed(&format!("{HEAD}><text x=\"1\">a &lt; b</text><path d=\"M0 0\"/></svg>\n"));
    for wrong in
        ["><text></svg>", "><text x=1/></svg>", ">a & b</svg>", "><path d=\"MNaN 0\"/></svg>", "/><p/>"]
    {
        let wrong = format!("{HEAD}{wrong}");
        assert!(std::panic::catch_unwind(|| assert_well_formed(&wrong)).is_err(), "{wrong}");
    }
}
