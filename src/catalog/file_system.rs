//! What file systems have in common: their ops, which correspond to members of the kernel's `struct file_operations`
//! and `struct vm_operations_struct`. A file system is a table of the functions that implement them.

use super::family::RowFunction;
use super::{Op, OpSpec, Returns, Shape};

/// A file system.
#[derive(Debug)]
pub struct FileSystem {
    /// The name in the kernel (`struct file_system_type`).
    pub name: &'static str,
    /// Its module on kernels that do not have it built in; `None`: it is always built in.
    pub module: Option<&'static str>,
    pub files: Files,
    pub ops: &'static [OpSpec],
    /// Its other functions that have a row of the whole-stack view: those that work on names, sizes and attributes, and
    /// those in which it waits.
    pub rows: &'static [RowFunction],
}

/// How its files are recognized in a function that other file systems use too.
#[derive(Debug)]
pub struct Files {
    /// `s_magic` of its superblocks (`include/uapi/linux/magic.h`).
    pub magic: u64,
    /// The symbol of the `struct file_operations` of its regular files, if other file systems have the same magic
    /// number.
    pub operations: Option<&'static str>,
}

impl FileSystem {
    /// The functions of its ops that no other file system uses: if the kernel has none of them, it does not have the
    /// file system.
    pub fn own_functions(&self) -> impl Iterator<Item = &'static str> {
        let points = self.ops.iter().flat_map(|op| op.points);
        points.filter(|point| !point.shared).map(|point| point.function)
    }
}

/// The properties that an op has at every file system.
pub struct Kind {
    pub op: Op,
    pub shape: Shape,
    pub returns: Returns,
    pub around: Option<Op>,
}

const fn kind(op: Op, shape: Shape, returns: Returns) -> Kind {
    Kind {
        op,
        shape,
        returns,
        around: None,
    }
}

pub const READ: Kind = kind(Op::Read, Shape::Kiocb0, Returns::Bytes);
pub const WRITE: Kind = kind(Op::Write, Shape::Kiocb0, Returns::Bytes);
/// splice, sendfile and copy_file_range from a file. Some file systems implement it with their `read_iter`.
pub const SPLICE_READ: Kind = Kind {
    around: Some(READ.op),
    ..kind(Op::SpliceRead, Shape::File0, Returns::Bytes)
};
/// splice, sendfile and copy_file_range into a file, implemented with its `write_iter`.
pub const SPLICE_WRITE: Kind = Kind {
    around: Some(WRITE.op),
    ..kind(Op::SpliceWrite, Shape::File1, Returns::Bytes)
};
/// A page fault on mapped memory. Cached pages around the fault may be mapped without a call.
pub const FAULT: Kind = kind(Op::Fault, Shape::Fault0, Returns::Fault);
/// The first write to a page of a shared mapping.
pub const MKWRITE: Kind = kind(Op::Mkwrite, Shape::Fault0, Returns::Fault);
/// The open of a regular file.
pub const OPEN: Kind = kind(Op::Open, Shape::File1, Returns::StatusInt);
pub const FSYNC: Kind = kind(Op::Fsync, Shape::File0, Returns::StatusInt);
pub const FALLOCATE: Kind = kind(Op::Fallocate, Shape::File0, Returns::Status);

/// The ops of a file system, one per line: `KIND: "module" "function", ...;`. For a function that is always built in,
/// `builtin` replaces the module; for a function that all file systems may use, `shared` does, and `unless "other"`
/// restricts it to kernels without that other function, which sees the same calls more precisely. `with` gives the
/// [`Shape`] of a function whose arguments differ from its kind's. `or` gives the fallback if the kernel has none of
/// the functions, and which calls it `misses`.
macro_rules! ops {
    ($($kind:ident: $($how:tt $function:literal $(unless $other:literal)? $(with $shape:ident)?),+
        $(or $fallback:literal misses $misses:literal)?;)*) => {
        &[$(crate::catalog::OpSpec {
            op: crate::catalog::file_system::$kind.op,
            moves_bytes: matches!(crate::catalog::file_system::$kind.returns, crate::catalog::Returns::Bytes),
            points: &[$(crate::catalog::file_system::ops!(@point $kind $how $function $(unless $other)? $(with $shape)?)),+],
            instead: crate::catalog::file_system::ops!(@instead $kind $($fallback misses $misses)?),
            around: crate::catalog::file_system::$kind.around,
        }),*]
    };
    (@point $kind:ident shared $function:literal $(unless $other:literal)?) => {
        crate::catalog::Point {
            shared: true,
            unless: crate::catalog::file_system::ops!(@option $($other)?),
            ..crate::catalog::Point::of($function, &crate::catalog::file_system::$kind)
        }
    };
    (@point $kind:ident builtin $function:literal) => {
        crate::catalog::Point::of($function, &crate::catalog::file_system::$kind)
    };
    (@point $kind:ident $module:literal $function:literal $(with $shape:ident)?) => {
        crate::catalog::Point {
            module: Some($module),
            $(shape: crate::catalog::Shape::$shape,)?
            ..crate::catalog::Point::of($function, &crate::catalog::file_system::$kind)
        }
    };
    (@instead $kind:ident) => { None };
    (@instead $kind:ident $function:literal misses $misses:literal) => {
        Some(crate::catalog::Fallback {
            points: &[crate::catalog::file_system::ops!(@point $kind shared $function)],
            misses: $misses,
        })
    };
    (@option) => { None };
    (@option $some:literal) => { Some($some) };
}
pub(super) use ops;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::catalog::{Layer, Lives, Row};

    fn file_systems() -> impl Iterator<Item = (Layer, &'static FileSystem)> {
        Layer::file_systems().filter_map(|layer| Some((layer, layer.file_system()?)))
    }

    /// Reports of all file systems then have the same form. File systems without a disk or a server may lack some ops.
    #[test]
    fn all_have_the_same_ops_in_the_same_order() {
        let kinds = [
            READ,
            WRITE,
            SPLICE_READ,
            SPLICE_WRITE,
            FAULT,
            MKWRITE,
            OPEN,
            FSYNC,
            FALLOCATE,
        ];
        for (layer, FileSystem { name, ops, .. }) in file_systems() {
            let has = |kind: &&Kind| ops.iter().any(|spec| spec.op == kind.op);
            let its: Vec<&Kind> = kinds.iter().filter(has).collect();
            let (known, around): (Vec<Op>, Vec<_>) = ops.iter().map(|spec| (spec.op, spec.around)).unzip();
            assert_eq!(known, its.iter().map(|kind| kind.op).collect::<Vec<_>>(), "{name}");
            assert_eq!(around, its.iter().map(|kind| kind.around).collect::<Vec<_>>(), "{name}");
            let may_lack = matches!(layer.lives(), Some(Lives::Memory | Lives::Above));
            assert!(its.len() == kinds.len() || may_lack, "{name}");
        }
    }

    #[test]
    fn a_file_system_has_one_name() {
        for (layer, file_system) in file_systems() {
            assert_eq!(layer.name(), file_system.name);
            let is_its = |row: &RowFunction| row.row.is_wait() || row.row == Row::Layer(layer);
            assert!(file_system.rows.iter().all(is_its), "{layer}");
        }
    }

    #[test]
    fn a_function_is_in_the_module_or_shared_and_magic_numbers_are_unique() {
        let mut numbers = HashSet::new();
        for (_, file_system) in file_systems() {
            let FileSystem { name, module, .. } = file_system;
            assert!(numbers.insert(file_system.files.magic), "{name}");
            for point in file_system.ops.iter().flat_map(|op| op.points) {
                let is_builtin = module.is_none() && !point.shared;
                assert_eq!(
                    point.module.is_none(),
                    point.shared || is_builtin,
                    "{name}: {}",
                    point.function
                );
            }
            // The rows of file systems in use are found by their module.
            assert!(file_system.rows.iter().any(|row| row.module == *module), "{name}");
            assert!(file_system.own_functions().count() > 5, "{name}");
        }
    }
}
