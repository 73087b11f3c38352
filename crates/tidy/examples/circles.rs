//! Prints the largest circle of imports of each crate: `cargo run -p sherwood-tidy --example
//! circles`, with names of crates behind `--` to have the files and imports as well.

#![allow(clippy::disallowed_methods, reason = "a program: its arguments are crates to describe")]

use std::process::ExitCode;

use sherwood_tidy::imports::Imports;
use sherwood_tidy::tree::Tree;

fn main() -> ExitCode {
    let tree = match Tree::open() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for name in tree.crates() {
        let root = format!("crates/{name}/src/");
        let sources: Vec<(&str, String)> = tree.texts(&root, ".rs").collect();
        let imports = Imports::read(&root, &sources);
        let circle = imports.largest_circle();
        println!("{name}: {}", circle.size());
        if wanted.iter().any(|wanted| wanted == name) {
            println!("{}", circle.describe());
        }
    }
    ExitCode::SUCCESS
}
