//! The whole-stack view: the rows to which the time of system calls is assigned, and the kernel functions that have a
//! row and no op.

use super::{Layer, Row, Shape};
use crate::model::abi as c;

/// The number of file systems for which a run has rows.
pub const FILE_SYSTEM_ROWS: usize = (c::ROW_QUEUE - c::ROW_FS) as usize;

impl Row {
    /// The index of its counter in the BPF programs (`enum row` of `bpf/abi.h`), in a run that measures `layers`: file
    /// systems have the indices from `ROW_FS` on, in the order of `layers`. `None`: the row of a file system that is
    /// not measured.
    #[must_use]
    pub fn slot(self, layers: impl IntoIterator<Item = Layer>) -> Option<usize> {
        let slot = match self {
            // The block layer has no row, since its ops are not timed inside calls.
            Self::Layer(Layer::Syscall | Layer::Blk) => c::ROW_SYSCALL,
            Self::Layer(Layer::Vfs) => c::ROW_VFS,
            Self::Layer(file_system) => {
                let mut measured = layers.into_iter().filter(|layer| layer.lives().is_some());
                return Some(c::ROW_FS as usize + measured.position(|layer| layer == file_system)?);
            }
            Self::Queue => c::ROW_QUEUE,
            Self::Device => c::ROW_DEVICE,
            Self::Others => c::ROW_OTHERS,
            Self::Journal => c::ROW_JOURNAL,
            Self::Lock => c::ROW_LOCK,
            Self::Other => c::ROW_OTHER,
            Self::RunQueue => c::ROW_RUN_QUEUE,
        };
        Some(slot as usize)
    }
}

/// Removes from `layers`, and returns, file systems that exceed the number of `rows`. The last ones are removed first;
/// those in `named` are removed only if removing all others is not enough.
pub fn take_beyond_rows(layers: &mut Vec<Layer>, named: &[Layer], rows: usize) -> Vec<Layer> {
    let (mut kept, rest): (Vec<Layer>, Vec<Layer>) = layers
        .iter()
        .filter(|layer| layer.lives().is_some())
        .partition(|layer| named.contains(layer));
    kept.extend(rest);
    let beyond = kept.split_off(rows.min(kept.len()));
    layers.retain(|layer| !beyond.contains(layer));
    beyond
}

/// A kernel function whose time, from its entry to its return, is in a row, and at which no op is timed. Functions of
/// waits are on slow paths only: taking a free lock never calls them.
#[derive(Debug)]
pub struct RowFunction {
    pub function: &'static str,
    pub row: Row,
    /// The module that contains it, unless it is built in.
    pub module: Option<&'static str>,
    /// [`Shape::Row`], or [`Shape::RowBio0`] if the first argument matters.
    pub shape: Shape,
}

/// A function in which calls wait.
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

/// A function of a module.
pub const fn of(row: Row, module: &'static str, function: &'static str) -> RowFunction {
    wait(function, row, Some(module))
}

/// A function that calls on names, sizes and attributes pass through.
const fn vfs(function: &'static str) -> RowFunction {
    wait(function, Row::Layer(Layer::Vfs), None)
}

/// All functions that have a row; a kernel may lack some of them.
pub fn row_functions() -> impl Iterator<Item = &'static RowFunction> {
    let file_systems = Layer::file_systems().filter_map(Layer::file_system);
    COMMON
        .iter()
        .chain(file_systems.flat_map(|file_system| file_system.rows))
}

/// The functions that are in no file system's table.
static COMMON: &[RowFunction] = &[
    // The I/O throttling of control groups: the name until 5.15, and the name since then.
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
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Family, Origin, ReadClass};
    use std::collections::HashSet;

    /// Two rows with the same index would share their time.
    fn assert_slots(layers: &[Layer]) {
        let rows = layers
            .iter()
            .filter(|layer| **layer != Layer::Blk)
            .map(|layer| Row::Layer(*layer));
        let rows: Vec<Row> = rows.chain(Row::WAITS).collect();
        let slots: Vec<usize> = rows.iter().filter_map(|row| row.slot(layers.iter().copied())).collect();
        assert_eq!(slots.iter().collect::<HashSet<_>>().len(), rows.len(), "{layers:?}");
        assert!(slots.iter().all(|&slot| slot < c::ROWS as usize), "{layers:?}");
        for (row, slot) in rows.iter().zip(&slots) {
            assert_eq!(row.is_wait(), *slot >= c::ROW_QUEUE as usize, "{row}");
        }
    }

    #[test]
    fn every_row_has_an_index_of_its_own() {
        let mut layers = Layer::ALL.to_vec();
        take_beyond_rows(&mut layers, &[], FILE_SYSTEM_ROWS);
        assert_slots(&layers);
        assert_slots(&[Layer::Syscall, Layer::Vfs, Layer::Nfs, Layer::Tmpfs, Layer::Blk]);
        assert_slots(&[]);
        assert_eq!(Row::Layer(Layer::Ext4).slot([Layer::Vfs, Layer::Nfs]), None);
        assert_eq!(
            Row::Layer(Layer::Nfs).slot([Layer::Vfs, Layer::Nfs]),
            Some(c::ROW_FS as usize)
        );
    }

    #[test]
    fn file_systems_that_exceed_the_rows_are_removed_and_named_ones_last() {
        use Layer::{Blk, Btrfs, Ext4, Nfs, Tmpfs, Vfs, Xfs};
        let mut layers = vec![Vfs, Ext4, Xfs, Btrfs, Nfs, Tmpfs, Blk];
        assert_eq!(take_beyond_rows(&mut layers, &[], 5), []);
        assert_eq!(layers.len(), 7);
        assert_eq!(take_beyond_rows(&mut layers, &[Tmpfs], 3), [Btrfs, Nfs]);
        assert_eq!(layers, [Vfs, Ext4, Xfs, Tmpfs, Blk]);
        assert_eq!(take_beyond_rows(&mut layers, &[], 0), [Ext4, Xfs, Tmpfs]);
        assert_eq!(layers, [Vfs, Blk]);
    }

    /// A function with an op and a row would be counted twice.
    #[test]
    fn no_function_has_both_an_op_and_a_row() {
        let ops = Layer::ALL.into_iter().flat_map(|layer| layer.ops());
        let points: HashSet<&str> = ops.flat_map(|op| op.points).map(|point| point.function).collect();
        let mut names = HashSet::new();
        for RowFunction { function, .. } in row_functions() {
            assert!(!points.contains(function) && names.insert(function), "{function}");
        }
    }

    #[test]
    fn enumerations_have_the_numbers_of_the_bpf_programs() {
        assert_eq!(Family::ALL[c::FAMILY_READ as usize], Family::Read);
        assert_eq!(Family::ALL[c::FAMILY_ASYNCHRONOUS as usize], Family::Asynchronous);
        assert!(
            Family::ALL
                .iter()
                .enumerate()
                .all(|(index, family)| *family as usize == index)
        );
        assert_eq!(Family::ALL.len(), c::FAMILIES as usize);
        assert_eq!(ReadClass::ALL.len(), c::READ_CLASSES as usize);
        assert_eq!(Origin::ALL.len(), c::ORIGINS as usize);
    }
}
