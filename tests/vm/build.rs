//! With its checks, the guest runner contains the tool's library, and so is linked with libelf.

#[path = "../../build/libelf.rs"]
mod libelf;

fn main() {
    libelf::complete("../../src/libelf_supplement.c");
}
