//! What file systems have in common: their ops, which are what the kernel's `struct file_operations` and `struct
//! vm_operations_struct` ask of each of them. A file system is a table of who does them there.

use super::family::RowFunction;
use super::{Op, OpSpec, Returns, Shape};

/// A file system.
#[derive(Debug)]
pub struct FileSystem {
    /// As the kernel has it (`struct file_system_type`).
    pub name: &'static str,
    /// The module that it is on kernels which have it as one; `None`: no kernel has.
    pub module: Option<&'static str>,
    pub files: Files,
    pub ops: &'static [OpSpec],
    /// Its other functions that have a row of the whole stack's view: what works on names, sizes and attributes, and what it
    /// waits for.
    pub rows: &'static [RowFunction],
}

/// What makes its files known, where a function has other file systems' calls, too.
#[derive(Debug)]
pub struct Files {
    /// `s_magic` of its super blocks (`include/uapi/linux/magic.h`).
    pub magic: u64,
    /// Symbol of the `struct file_operations` of its regular files, where others have the same magic number.
    pub operations: Option<&'static str>,
}

impl FileSystem {
    /// The functions that are its own, out of those that its ops can be timed at: without any, it is not in the kernel.
    pub fn own_functions(&self) -> impl Iterator<Item = &'static str> {
        let points = self.ops.iter().flat_map(|op| op.points);
        points.filter(|point| !point.shared).map(|point| point.function)
    }
}

/// What an op is at every file system.
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
/// splice, sendfile and copy_file_range out of a file. Some do it by way of the file's reads.
pub const SPLICE_READ: Kind = Kind {
    around: Some(READ.op),
    ..kind(Op::SpliceRead, Shape::File0, Returns::Bytes)
};
/// The same into a file: by way of its writes.
pub const SPLICE_WRITE: Kind = Kind {
    around: Some(WRITE.op),
    ..kind(Op::SpliceWrite, Shape::File1, Returns::Bytes)
};
/// A page that is mapped and not there. What is in memory may be mapped around it without a call.
pub const FAULT: Kind = kind(Op::Fault, Shape::Fault0, Returns::Fault);
/// The first write to a page that is mapped shared.
pub const MKWRITE: Kind = kind(Op::Mkwrite, Shape::Fault0, Returns::Fault);
/// Of a regular file.
pub const OPEN: Kind = kind(Op::Open, Shape::File1, Returns::StatusInt);
pub const FSYNC: Kind = kind(Op::Fsync, Shape::File0, Returns::StatusInt);
pub const FALLOCATE: Kind = kind(Op::Fallocate, Shape::File0, Returns::Status);

/// A file system's ops, a line each: `KIND: "module" "function", ...;`. One that is in the kernel itself is `builtin`. A function
/// that every file system may use is `shared`; it may be of use only `unless` the kernel has another one, which sees the same
/// calls more closely. One that has other arguments than its kind says which `with`. Behind `or` is what is used where there is
/// none of them, and the calls that it `misses`.
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

    /// So that a report of one can be read as that of another. Those that are on no disk may be without some.
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
    fn a_file_system_goes_by_one_name() {
        for (layer, file_system) in file_systems() {
            assert_eq!(layer.name(), file_system.name);
            let is_its = |row: &RowFunction| row.row.is_wait() || row.row == Row::Layer(layer);
            assert!(file_system.rows.iter().all(is_its), "{layer}");
        }
    }

    #[test]
    fn a_function_is_its_own_or_known_by_its_files() {
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
            // By that, rows of those that are in use are known.
            assert!(file_system.rows.iter().any(|row| row.module == *module), "{name}");
            assert!(file_system.own_functions().count() > 5, "{name}");
        }
    }
}
