//! The targets are linked with libelf, as all that has the tool's library in it.

#[path = "../build/libelf.rs"]
mod libelf;

fn main() {
    libelf::complete("../src/libelf_supplement.c");
}
