//! Hooks kernel functions for the selected ops: [`plan`] decides which hooks to use, [`attach`] attaches the programs.

#[cfg(feature = "kernel-side")]
mod atomics;
#[cfg(feature = "kernel-side")]
pub mod attach;
#[cfg(feature = "kernel-side")]
pub mod binned;
#[cfg(feature = "kernel-side")]
pub mod config;
pub mod fold;
#[cfg(feature = "kernel-side")]
mod kprobe_event;
#[cfg(feature = "kernel-side")]
pub mod load;
pub mod plan;
#[cfg(feature = "kernel-side")]
pub mod program;
#[cfg(feature = "kernel-side")]
pub mod records;
pub mod refusal;
pub mod request;
#[cfg(feature = "kernel-side")]
mod slot_ring;
#[cfg(feature = "kernel-side")]
pub mod slow;

use crate::catalog::{Files, Returns, Shape};
pub use crate::model::ids::Hook;

/// The value of `--probe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Choice {
    /// The cheapest hook that loses nothing on this machine
    Auto,
    /// Perf's kprobes and kretprobes
    Kprobe,
    /// Kprobe events with room for 4,096 returns, made through tracefs
    KprobeEvent,
    /// One program on many functions for entries, and one for returns
    KprobeMulti,
    /// One program on many functions, for both ends of a call
    KprobeSession,
    /// Trampolines on functions, a program for each end of a call
    Fentry,
    /// Trampolines on functions, one program for both ends of a read or write at vfs
    Fsession,
    /// Tracepoints of system calls and requests, by perf
    Tracepoint,
    /// Tracepoints of system calls and requests, raw with BTF
    RawTracepoint,
}

impl Choice {
    /// As typed after `--probe`.
    #[must_use]
    pub fn option(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The values of `--probe` for these hooks.
    #[must_use]
    pub fn options_of(hooks: &[Hook]) -> String {
        let all = <Self as clap::ValueEnum>::value_variants();
        let of = |hook: &Hook| all.iter().find(|choice| choice.hook() == Some(*hook));
        let names: Vec<String> = hooks.iter().filter_map(of).map(|choice| choice.option()).collect();
        names.join(", ")
    }

    /// The hook if one is named.
    #[must_use]
    pub fn hook(self) -> Option<Hook> {
        match self {
            Self::Auto => None,
            Self::Kprobe => Some(Hook::Kprobe),
            Self::KprobeEvent => Some(Hook::KprobeEvent),
            Self::KprobeMulti => Some(Hook::Multi),
            Self::KprobeSession => Some(Hook::Session),
            Self::Fentry => Some(Hook::Fentry),
            Self::Fsession => Some(Hook::Fsession),
            Self::Tracepoint => Some(Hook::Tracepoint),
            Self::RawTracepoint => Some(Hook::RawTracepoint),
        }
    }
}

/// The configuration of a program for the function that it is attached to; packed as `bpf/abi.h` defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointWord {
    /// Index of the op's counters.
    pub op: u8,
    /// Index of the op's frame.
    pub frame: u8,
    pub shape: Shape,
    /// The number of arguments, 0 if the hook does not need it; 7 means 7 or more.
    pub args: u8,
    pub returns: Returns,
    /// Other file systems use the function too; the op's guard distinguishes their calls.
    pub shared: bool,
    pub files: Files,
    pub outermost: bool,
    /// An entry point of asynchronous requests that counts nothing and serves only the layers below.
    pub suppressed: bool,
    /// For a system call: whether its file is selected is checked at its function of vfs or at its return, not at its
    /// entry.
    pub checked_at_return: bool,
}

/// The value of `args` for this number of arguments or more. No function of the tables has so many; before 6.6
/// (473e3150e30a) trampolines support up to 6.
const MANY_ARGS: u8 = 7;

impl PointWord {
    /// The packed value that the programs unpack.
    #[must_use]
    pub fn pack(self) -> u32 {
        use crate::model::abi as c;
        let shape = match self.shape {
            Shape::File0 => c::SHAPE_FILE_0,
            Shape::File1 => c::SHAPE_FILE_1,
            Shape::Kiocb0 => c::SHAPE_KIOCB_0,
            Shape::Path0 => c::SHAPE_PATH_0,
            Shape::Dir0 => c::SHAPE_DIR_0,
            Shape::Fd0 => c::SHAPE_FD_0,
            Shape::Syscall | Shape::Syscall32 => c::SHAPE_SYSCALL,
            Shape::SyscallFd0 => c::SHAPE_SYSCALL_FD_0,
            Shape::Syscall32Fd0 => c::SHAPE_SYSCALL_32_FD_0,
            Shape::Fault0 => c::SHAPE_FAULT_0,
            Shape::Row => c::SHAPE_ROW,
            Shape::RowBio0 => c::SHAPE_ROW_BIO_0,
        };
        let returns = match self.returns {
            Returns::StatusInt => c::RETURN_STATUS_INT,
            Returns::Status => c::RETURN_STATUS,
            Returns::Bytes => c::RETURN_BYTES,
            Returns::Fd => c::RETURN_FD,
            Returns::Issued => c::RETURN_ISSUED,
            Returns::Submitted => c::RETURN_SUBMITTED,
            Returns::Fault => c::RETURN_FAULT,
        };
        let files = match self.files {
            Files::None => c::FILES_NONE,
            Files::Arg0 => c::FILES_0,
            Files::Arg0Or1 => c::FILES_0_OR_1,
            Files::Arg0Or2 => c::FILES_0_OR_2,
            Files::Arg0WithoutPath => c::FILES_0_WITHOUT_PATH,
            Files::Arg0OfCommand => c::FILES_0_OF_COMMAND,
            Files::Arg4 => c::FILES_4,
            Files::Ends => c::FILES_ENDS,
        };
        u32::from(self.op) << c::POINT_OP_SHIFT
            | u32::from(self.frame) << c::POINT_FRAME_SHIFT
            | shape << c::POINT_SHAPE_SHIFT
            | u32::from(self.args.min(MANY_ARGS)) << c::POINT_ARGS_SHIFT
            | returns << c::POINT_RETURN_SHIFT
            | u32::from(self.shared) << c::POINT_SHARED_SHIFT
            | files << c::POINT_FILES_SHIFT
            | u32::from(self.outermost) << c::POINT_OUTERMOST_SHIFT
            | u32::from(self.suppressed) << c::POINT_SUPPRESSED_SHIFT
            | u32::from(self.checked_at_return) << c::POINT_CHECKED_AT_RETURN_SHIFT
    }

    /// Whether a packed point counts nothing, because its layer is not selected.
    #[must_use]
    pub fn is_suppressed(packed: u32) -> bool {
        packed >> crate::model::abi::POINT_SUPPRESSED_SHIFT & 1 != 0
    }

    /// The index of the op's counters in a packed point.
    #[must_use]
    pub fn op_of(packed: u32) -> usize {
        (packed >> crate::model::abi::POINT_OP_SHIFT & 0xff) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_point_has_every_field_at_its_offset() {
        let word = PointWord {
            op: 0xab,
            frame: 0xc,
            shape: Shape::Fd0,
            args: 4,
            returns: Returns::Fd,
            shared: true,
            files: Files::Arg0Or2,
            outermost: true,
            suppressed: true,
            checked_at_return: true,
        };
        assert_eq!(
            word.pack(),
            0xab | 0xc << 8 | 5 << 12 | 4 << 16 | 3 << 19 | 1 << 22 | 3 << 23 | 1 << 26 | 1 << 27 | 1 << 28
        );
        assert_eq!(PointWord::op_of(word.pack()), 0xab);
    }

    #[test]
    fn the_unset_point_has_no_shape_and_differs_from_all_others() {
        use crate::model::abi as c;
        assert_eq!(c::POINT_UNSET >> c::POINT_SHAPE_SHIFT & 0xf, c::SHAPE_NONE);
        assert_ne!(c::POINT_UNSET >> 29, 0, "real points leave the top bits clear");
    }
}
