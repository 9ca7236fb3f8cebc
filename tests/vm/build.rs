//! With its checks, the guest runner has the tool's library in it, and is linked with libelf therefore.

#[path = "../../build/libelf.rs"]
mod libelf;

fn main() {
    libelf::complete("../../src/libelf_supplement.c");
}
