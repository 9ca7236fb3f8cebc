//! The machines that QEMU emulates.

use super::kernels::{self, KernelSpec};

/// What differs between them.
pub struct Machine {
    /// Debian's name of the architecture.
    pub architecture: &'static str,
    /// The folder of its libraries below `/usr/lib`.
    pub libraries: &'static str,
    pub kernels: &'static [KernelSpec],
    /// The program that emulates it.
    pub qemu: &'static str,
    pub arguments: &'static [&'static str],
    /// The name that its kernel has for the first serial port, the console.
    pub console: &'static str,
    /// Two serial ports, for the character devices `console` and `verdict`.
    pub ports: &'static [&'static str],
}

/// No cmpxchg16b, since 6.12 crashed with it under load.
pub const AMD64: Machine = Machine {
    architecture: "amd64",
    libraries: "x86_64-linux-gnu",
    kernels: kernels::MATRIX,
    qemu: "qemu-system-x86_64",
    arguments: &["-cpu", "max,cx16=off"],
    console: "ttyS0",
    ports: &["-serial", "chardev:console", "-serial", "chardev:verdict"],
};

/// Pointers are authenticated by an algorithm of QEMU's own: the architecture's takes half of the time. The board has one
/// serial port in QEMU before 9.1.
pub const ARM64: Machine = Machine {
    architecture: "arm64",
    libraries: "aarch64-linux-gnu",
    kernels: kernels::ARM64,
    qemu: "qemu-system-aarch64",
    arguments: &["-machine", "virt,gic-version=3", "-cpu", "max,pauth-impdef=on"],
    console: "ttyAMA0",
    ports: &["-serial", "chardev:console", "-device", "pci-serial,chardev=verdict"],
};
