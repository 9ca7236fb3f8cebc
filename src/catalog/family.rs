//! The whole stack's view: the rows that the time of system calls is in, and the functions that tell.

use super::{Layer, Row, Shape};
use crate::model::abi as c;

impl Row {
    /// Its place among the kernel side's counters.
    #[must_use]
    pub fn place(self) -> usize {
        let place = match self {
            // The block layer's functions are not in calls.
            Self::Layer(Layer::Syscall | Layer::Blk) => c::ROW_SYSCALL,
            Self::Layer(Layer::Vfs) => c::ROW_VFS,
            Self::Overlay => c::ROW_OVERLAY,
            Self::Layer(file_system) => {
                let before = Layer::ALL.into_iter().filter(|layer| layer.file_system().is_some());
                c::ROW_FS + before.take_while(|layer| *layer != file_system).count() as u32
            }
            Self::Queue => c::ROW_QUEUE,
            Self::Device => c::ROW_DEVICE,
            Self::Others => c::ROW_OTHERS,
            Self::Journal => c::ROW_JOURNAL,
            Self::Lock => c::ROW_LOCK,
            Self::Other => c::ROW_OTHER,
            Self::RunQueue => c::ROW_RUN_QUEUE,
        };
        place as usize
    }
}

/// A kernel function whose time is in a row, from its entry to its return, and which no op is timed at. Those of waits are on
/// slow paths only: a lock that is free never comes by there.
#[derive(Debug)]
pub struct RowFunction {
    pub function: &'static str,
    pub row: Row,
    /// The module that it may be in.
    pub module: Option<&'static str>,
    /// [`Shape::Row`], or one of those that tell of its first argument.
    pub shape: Shape,
}

/// What calls wait in.
pub const fn wait(function: &'static str, row: Row, module: Option<&'static str>) -> RowFunction {
    RowFunction {
        function,
        row,
        module,
        shape: Shape::Row,
    }
}

const fn throttle(function: &'static str) -> RowFunction {
    RowFunction {
        shape: Shape::RowBio0,
        ..wait(function, Row::Queue, None)
    }
}

/// What is in a module.
pub const fn of(row: Row, module: &'static str, function: &'static str) -> RowFunction {
    wait(function, row, Some(module))
}

const fn iter_of(row: Row, module: &'static str, function: &'static str) -> RowFunction {
    RowFunction {
        shape: Shape::RowKiocb0,
        ..of(row, module, function)
    }
}

/// What calls on names, sizes and attributes come by.
const fn vfs(function: &'static str) -> RowFunction {
    wait(function, Row::Layer(Layer::Vfs), None)
}

const fn overlay(function: &'static str) -> RowFunction {
    of(Row::Overlay, "overlay", function)
}

/// All that are looked for. Which of them a kernel has is found out.
pub fn row_functions() -> impl Iterator<Item = &'static RowFunction> {
    let file_systems = Layer::ALL.into_iter().filter_map(Layer::file_system);
    COMMON
        .iter()
        .chain(file_systems.flat_map(|file_system| file_system.rows))
}

/// Those that no file system's table has.
static COMMON: &[RowFunction] = &[
    // The throttle of control groups, by its names until 5.15 and since.
    throttle("blk_throtl_bio"),
    throttle("__blk_throtl_bio"),
    wait("rwsem_down_read_slowpath", Row::Lock, None),
    wait("rwsem_down_write_slowpath", Row::Lock, None),
    wait("__mutex_lock_slowpath", Row::Lock, None),
    vfs("vfs_getattr"),
    vfs("vfs_unlink"),
    vfs("vfs_rmdir"),
    vfs("vfs_mkdir"),
    vfs("vfs_rename"),
    vfs("vfs_link"),
    vfs("vfs_symlink"),
    vfs("vfs_fallocate"),
    vfs("notify_change"),
    vfs("iterate_dir"),
    iter_of(Row::Overlay, "overlay", "ovl_read_iter"),
    iter_of(Row::Overlay, "overlay", "ovl_write_iter"),
    overlay("ovl_fsync"),
    overlay("ovl_open"),
    overlay("ovl_lookup"),
    overlay("ovl_create"),
    overlay("ovl_unlink"),
    overlay("ovl_rmdir"),
    overlay("ovl_mkdir"),
    overlay("ovl_rename"),
    overlay("ovl_link"),
    overlay("ovl_symlink"),
    overlay("ovl_getattr"),
    overlay("ovl_setattr"),
    overlay("ovl_iterate"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Family, Origin, ReadClass};
    use std::collections::HashSet;

    #[test]
    fn every_row_has_a_place_of_its_own() {
        let layers = Layer::ALL.into_iter().filter(|layer| *layer != Layer::Blk);
        let rows: Vec<Row> = layers.map(Row::Layer).chain([Row::Overlay]).chain(Row::WAITS).collect();
        let places: HashSet<usize> = rows.iter().map(|row| row.place()).collect();
        assert_eq!(places.len(), rows.len());
        assert!(places.iter().all(|&place| place < c::ROWS as usize));
        let file_systems = Layer::ALL.into_iter().filter(|layer| layer.file_system().is_some());
        for layer in file_systems {
            assert!(
                (c::ROW_FS..c::ROW_OVERLAY).contains(&(Row::Layer(layer).place() as u32)),
                "{}",
                layer.name()
            );
        }
    }

    /// It would be entered twice.
    #[test]
    fn no_function_of_an_op_is_here_as_well() {
        let ops = Layer::ALL.into_iter().flat_map(|layer| layer.ops());
        let points: HashSet<&str> = ops.flat_map(|op| op.points).map(|point| point.function).collect();
        let mut names = HashSet::new();
        for RowFunction { function, .. } in row_functions() {
            assert!(!points.contains(function) && names.insert(function), "{function}");
        }
    }

    #[test]
    fn families_are_where_the_programs_know_them() {
        assert_eq!(Family::ALL[c::FAMILY_READ as usize], Family::Read);
        assert_eq!(Family::ALL[c::FAMILY_ASYNCHRONOUS as usize], Family::Asynchronous);
        assert!(
            Family::ALL
                .iter()
                .enumerate()
                .all(|(place, family)| *family as usize == place)
        );
        assert_eq!(Family::ALL.len(), c::FAMILIES as usize);
        assert_eq!(ReadClass::ALL.len(), c::READ_CLASSES as usize);
        assert_eq!(Origin::ALL.len(), c::ORIGINS as usize);
    }
}
