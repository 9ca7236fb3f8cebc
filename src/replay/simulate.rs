//! Goes through the calls of a recording in the order of their begins, and follows what they do to names, sizes and
//! positions. What results is the list of actions, and what must have existed before the first one.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::does::{Does, Why, does};
use super::flags;
use super::load::{Defined, Loaded, Recorded};
use super::order::Resource;
use super::path::{self, Components, Mounts, Refused, Roots, Spot};
use super::plan::{AT_POSITION, Action, Found, Opened, Prepared, What};
use super::ranges::Ranges;
use super::tree::{Kind, NodeId, SlotId, State, Tree};
use super::working::Working;
use crate::model::ids::{Op, PathKind};
use crate::model::record::{FileNumber, GivenPath};

/// Numbers of errors (include/uapi/asm-generic/errno-base.h, errno.h).
mod errno {
    pub const NO_ENTRY: i32 = 2;
    pub const EXISTS: i32 = 17;
    pub const NOT_DIRECTORY: i32 = 20;
    pub const IS_DIRECTORY: i32 = 21;
    pub const INVALID: i32 = 22;
    pub const NOT_EMPTY: i32 = 39;
    pub const NO_DATA: i32 = 61;
}

/// `S_IFMT` and its values that are replayed (include/uapi/linux/stat.h).
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
/// `F_SETFL` (include/uapi/asm-generic/fcntl.h), `AT_REMOVEDIR` (include/uapi/linux/fcntl.h), `RENAME_EXCHANGE`
/// (include/uapi/linux/fs.h), `FALLOC_FL_KEEP_SIZE` (include/uapi/linux/falloc.h).
const SET_FLAGS: u64 = 4;
const REMOVE_DIRECTORY: u64 = 0x200;
const EXCHANGE: u64 = 2;
const KEEP_SIZE: u64 = 1;
/// `X_OK` of access(2), and the mode of a file of which only that it may be executed is known.
const EXECUTE: u64 = 1;
const EXECUTABLE: u32 = 0o755;
/// `RWF_APPEND` (include/uapi/linux/fs.h).
const APPEND: u64 = 0x10;
const BLOCK: u64 = 4096;
/// A write of more blocks counts as one of the whole file.
const MOST_BLOCKS: u64 = 16;
/// The largest size of a file (`MAX_LFS_FILESIZE`, include/linux/fs.h).
const LARGEST: u64 = i64::MAX as u64;
/// Bytes of a write that failed in the recording.
const MOST_FAILED: u64 = 1 << 20;
/// Directories whose links are followed, one after the other.
const MOST_LINKS: usize = 8;

/// An open file while calls are followed.
#[derive(Debug, Default)]
struct Following {
    index: u32,
    node: NodeId,
    position: u64,
    /// The thread that used it so far; 0: several did.
    tid: u32,
    appends: bool,
    is_listed: bool,
}

/// A call with what decides its order.
pub(super) struct Step {
    pub tid: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub action: Action,
    pub uses: Vec<(Resource, bool)>,
}

impl Step {
    /// Other calls use nothing of what it uses so far at the same time.
    fn uses_alone(&mut self) {
        self.uses.iter_mut().for_each(|(_, is_exclusive)| *is_exclusive = true);
    }
}

pub(super) struct Simulation<'a> {
    roots: &'a Roots,
    mounts: &'a Mounts,
    machine: &'a str,
    loaded: &'a Loaded,
    working: Working,
    /// What must be prepared is found out.
    surveys: bool,
    pub tree: Tree,
    /// By definition; `None`: no call has used it.
    open: Vec<Option<Following>>,
    /// Open files so far.
    opened: u32,
    /// By device and inode.
    inodes: HashMap<(u32, u32, u64), NodeId>,
    /// Paths that did not exist, when it was not known whether the directories above them do.
    missed: BTreeSet<Components>,
    pub files: Vec<Opened>,
    /// Threads that need the descriptors of others: of open files that others use, or that were open before the recording; or
    /// that change owners, since those files stay open for the whole process.
    pub sharing: HashSet<u32>,
    /// With their indices.
    spots: HashMap<Spot, u32>,
    pub texts: Vec<String>,
    pub made: BTreeSet<u32>,
    pub left_out: BTreeMap<(Op, Why), u64>,
}

/// A call's path: its components, and the slots on the way.
struct Looked {
    path: Components,
    slots: Vec<SlotId>,
    last: Option<SlotId>,
}

impl<'a> Simulation<'a> {
    pub fn new(loaded: &'a Loaded, roots: &'a Roots, mounts: &'a Mounts, machine: &'a str) -> Self {
        Self {
            roots,
            mounts,
            machine,
            loaded,
            working: loaded.working.clone(),
            surveys: true,
            tree: Tree::default(),
            open: Vec::new(),
            opened: 0,
            inodes: HashMap::new(),
            missed: BTreeSet::new(),
            files: Vec::new(),
            sharing: HashSet::new(),
            spots: HashMap::new(),
            texts: Vec::new(),
            made: BTreeSet::new(),
            left_out: BTreeMap::new(),
        }
    }

    /// Only makes actions.
    pub fn without_survey(self) -> Self {
        Self { surveys: false, ..self }
    }

    /// Follows the next call; `None`: it is not replayed, which was counted.
    pub fn step(&mut self, call: &Recorded) -> Option<Step> {
        let mut step = Step {
            tid: call.tid,
            begin_ns: call.begin_ns,
            end_ns: call.end_ns,
            action: Action::new(call.op, Does::Read),
            uses: Vec::new(),
        };
        match self.follow(call, &mut step) {
            Ok(()) => Some(step),
            Err(why) => {
                *self.left_out.entry((call.op, why)).or_default() += 1;
                None
            }
        }
    }

    fn follow(&mut self, call: &Recorded, step: &mut Step) -> Result<(), Why> {
        let mut what = does(call.op)?;
        let has_path = call.first_path().is_some_and(|given| !given.text.is_empty());
        if call.files[0] != 0 && !has_path {
            what = what.on_open_file().unwrap_or(what);
        }
        if what == Does::Unlink && call.extra & REMOVE_DIRECTORY != 0 && call.op == Op::Unlinkat {
            what = Does::Rmdir;
        }
        if matches!(what, Does::Chown | Does::Fchown) && !self.loaded.owners() {
            return Err(Why::Owners);
        }
        let action = &mut step.action;
        action.does = what;
        action.value = call.value;
        action.offset = call.offset.unwrap_or(0);
        action.size = call.size.unwrap_or(0);
        action.extra = call.extra as u32;
        if matches!(what, Does::Chown | Does::Fchown) {
            action.offset = call.extra;
            self.sharing.insert(call.tid);
        }
        match what {
            Does::Open => self.open(call, step),
            Does::SetFlags => self.set_flags(call, step),
            Does::Syncfs => {
                if call.op == Op::Syncfs {
                    step.action.file = self.file(call.files[0], call, &mut step.uses)?;
                }
                Ok(())
            }
            _ if what.has_file() => self.on_file(call, step),
            _ => self.on_path(call, step),
        }
    }

    fn spot(&mut self, path: &[String]) -> u32 {
        let spot = self.roots.spot(path);
        let new = self.spots.len() as u32;
        *self.spots.entry(spot).or_insert(new)
    }

    /// The directories that a given path leads through links, replaced by what they lead to. `all`: its last component,
    /// too.
    fn without_links(&self, mut path: Components, all: bool) -> Components {
        if self.loaded.links.is_empty() {
            return path;
        }
        for _ in 0..MOST_LINKS {
            let longest = path.len().saturating_sub(usize::from(!all));
            let found = (1..=longest).find_map(|length| {
                let target = self.loaded.links.get(&path[..length])?;
                // A call may have made a directory since, under the name of the link.
                (!self.tree.is_folder(&path[..length])).then_some((length, target))
            });
            let Some((length, target)) = found else { break };
            path = target.iter().chain(&path[length..]).cloned().collect();
        }
        path
    }

    /// The path that a call was given, from the root on.
    fn given(&self, call: &Recorded, given: &GivenPath, follows: bool) -> Result<Components, Why> {
        let is_absolute = given.text.starts_with('/');
        let start = if is_absolute {
            Components::new()
        } else if given.base != 0 {
            self.path_of_file(given.base).ok_or(Why::UnknownPath)?
        } else {
            self.working
                .at(call.pid, call.begin_ns)
                .cloned()
                .ok_or(Why::UnknownPath)?
        };
        let path = path::append(start, &given.text).map_err(|refused| match refused {
            Refused::Damaged => Why::Damaged,
            Refused::Relative => Why::UnknownPath,
        })?;
        let root = self.loaded.root_of(call.pid, call.begin_ns);
        let path = match root.filter(|_| is_absolute) {
            Some(root) => root.iter().cloned().chain(path).collect(),
            None => path,
        };
        Ok(self.without_links(path, follows))
    }

    fn path_of_file(&self, number: FileNumber) -> Option<Components> {
        let slot = self.following(number).and_then(|open| self.tree.node(open.node).slot);
        slot.and_then(|slot| self.tree.path_now(slot))
            .or_else(|| self.loaded.whole_path(number))
    }

    /// Looks up one of the two paths of a call. Which of them does not exist, if one does not, is not known.
    fn look_at_one(&mut self, path: Components, errno: i32) -> Result<Looked, Why> {
        if errno != errno::NO_ENTRY {
            return self.look(path, errno, false);
        }
        if !self.mounts.keeps_data(&path) {
            return Err(Why::NotAFile);
        }
        let walk = self.tree.walk(&path, false, false);
        Ok(Looked {
            path,
            slots: walk.slots,
            last: walk.last,
        })
    }

    /// Looks a path up, as a call with this result did, which follows its last component if that is a link.
    fn look(&mut self, path: Components, errno: i32, follows: bool) -> Result<Looked, Why> {
        if !self.mounts.keeps_data(&path) {
            return Err(Why::NotAFile);
        }
        let exists = matches!(
            errno,
            0 | errno::EXISTS | errno::NOT_EMPTY | errno::IS_DIRECTORY | errno::INVALID | errno::NO_DATA
        );
        let walk = self.tree.walk(&path, exists, errno != errno::NOT_DIRECTORY);
        if errno == errno::NO_ENTRY {
            match (walk.last, walk.slots.last()) {
                (Some(slot), _) => self.tree.miss(slot, follows),
                (None, Some(slot)) if self.surveys && self.tree.state(*slot) == State::Unseen => {
                    self.missed.insert(path.clone());
                }
                (None, _) => {}
            }
        }
        Ok(Looked {
            path,
            slots: walk.slots,
            last: walk.last,
        })
    }

    /// The index of an open file for a call that uses it. One that no call opened was open before.
    fn file(&mut self, number: FileNumber, call: &Recorded, uses: &mut Vec<(Resource, bool)>) -> Result<u32, Why> {
        if number == 0 {
            return Err(Why::UnknownFile);
        }
        if self.following(number).is_none() {
            self.find(number, call)?;
        }
        let following = self.following_mut(number).ok_or(Why::UnknownFile)?;
        let index = following.index;
        if following.tid != call.tid {
            let first = std::mem::take(&mut following.tid);
            self.sharing.extend([first, call.tid]);
        }
        uses.push((Resource::Open(index), false));
        if let Some(file) = self.files.get_mut(index as usize) {
            file.uses = file.uses.saturating_add(1);
        }
        Ok(index)
    }

    fn following(&self, number: FileNumber) -> Option<&Following> {
        self.open.get(self.loaded.files.index(number)?)?.as_ref()
    }

    fn following_mut(&mut self, number: FileNumber) -> Option<&mut Following> {
        self.open.get_mut(self.loaded.files.index(number)?)?.as_mut()
    }

    /// The node of an open file that is followed.
    fn node_of(&self, number: FileNumber) -> Result<NodeId, Why> {
        Ok(self.following(number).ok_or(Why::UnknownFile)?.node)
    }

    /// Follows an open file from now on.
    fn follow_open(&mut self, number: FileNumber, following: Following) {
        let Some(index) = self.loaded.files.index(number) else {
            return;
        };
        if self.open.len() <= index {
            self.open.resize_with(index + 1, || None);
        }
        self.open[index] = Some(following);
    }

    /// Returns its index.
    fn add_opened(&mut self, opened: Opened) -> u32 {
        if self.surveys {
            self.files.push(opened);
        }
        self.opened += 1;
        self.opened - 1
    }

    /// Adds a file that was opened before the recording.
    fn find(&mut self, number: FileNumber, call: &Recorded) -> Result<(), Why> {
        let definition = self.loaded.files.get(number).ok_or(Why::UnknownFile)?;
        let path = self.replayable(definition)?;
        let own = vec![format!(".iosb-open-{number}")];
        let (node, spot) = if definition.file.links == 0 && definition.file.mode & TYPE == REGULAR {
            // It has no name any more, but may have had one that another file has now.
            let looked = self.look(own, 0, true)?;
            self.discovered(&looked, definition)
        } else {
            let looked = self.look(path, 0, true)?;
            let (node, spot) = self.discovered(&looked, definition);
            let spot = match self.spot_at_start(node) {
                Some(spot) => spot,
                None if node == super::tree::ROOT => spot,
                None => self.start_as(own, node)?,
            };
            (node, spot)
        };
        let mut flags = flags::recorded(definition.file.flags, self.machine);
        if flags & flags::UNNAMED != 0 {
            // What it opened is a file, which has a name in the replay.
            flags &= !(flags::UNNAMED | flags::DIRECTORY);
        }
        let index = self.add_opened(Opened {
            spot,
            uses: 0,
            found: Some(Box::new(Found {
                flags: flags & !(flags::CREATE | flags::EXCLUSIVE | flags::TRUNCATE),
                position: definition.position,
            })),
        });
        // Its definition was made by the call, and has the position before it.
        let position = call
            .offset
            .filter(|_| definition.at_ns > call.end_ns)
            .unwrap_or(definition.position);
        self.follow_open(
            number,
            Following {
                index,
                node,
                position,
                tid: 0,
                appends: flags & flags::APPEND != 0,
                is_listed: false,
            },
        );
        Ok(())
    }

    /// Where what existed at the start is prepared: recorded calls may have renamed it before they used it.
    fn spot_at_start(&mut self, node: NodeId) -> Option<u32> {
        let path = self.tree.path_at_start(self.tree.node(node).first?)?;
        Some(self.spot(&path))
    }

    /// Prepares what did not exist at the start under this path, since no recorded call opens it when it does exist: the one
    /// that did was not selected, or was lost. Returns the spot.
    fn start_as(&mut self, path: Components, node: NodeId) -> Result<u32, Why> {
        let looked = self.look(path, 0, true)?;
        if let Some(slot) = looked.last {
            if self.tree.node(node).kind == Kind::Folder {
                // What is in the directory itself is made by calls, which know it by its own path.
                self.tree.touch(slot, Kind::Folder);
            } else {
                self.tree.start_as(slot, node);
            }
        }
        Ok(self.spot(&looked.path))
    }

    /// The path of an open file, if it is a regular file or directory that keeps data.
    fn replayable(&self, definition: Defined<'_>) -> Result<Components, Why> {
        if ![REGULAR, FOLDER, 0].contains(&(definition.file.mode & TYPE))
            || path::is_pseudo(&definition.file.file_system)
        {
            return Err(Why::NotAFile);
        }
        let path = definition.file.path.as_ref().ok_or(Why::UnknownFile)?;
        if path.kind != PathKind::Whole {
            return Err(Why::UnknownFile);
        }
        let path = path::canonical(&path.text).map_err(|_| Why::Damaged)?;
        if self.mounts.keeps_data(&path) {
            Ok(path)
        } else {
            Err(Why::NotAFile)
        }
    }

    /// The node and spot of a path that existed when it was used, with its definition.
    fn discovered(&mut self, looked: &Looked, definition: Defined<'_>) -> (NodeId, u32) {
        let spot = self.spot(&looked.path);
        let Some(slot) = looked.last else {
            return (super::tree::ROOT, spot);
        };
        let is_folder = definition.file.mode & TYPE == FOLDER;
        let known = identity(definition).and_then(|inode| self.inodes.get(&inode).copied());
        let node = match (self.tree.state(slot), known) {
            (State::Unseen, Some(known))
                if definition.file.links > 1 && !is_folder && self.tree.node(known).first.is_some() =>
            {
                self.tree.link_at_start(slot, known);
                known
            }
            _ => self.tree.touch(slot, if is_folder { Kind::Folder } else { Kind::File }),
        };
        self.define(node, definition);
        (node, spot)
    }

    /// Learns from a definition what a node is, and what it was at the start.
    fn define(&mut self, node: NodeId, definition: Defined<'_>) {
        if let Some(inode) = identity(definition) {
            self.inodes.insert(inode, node);
        }
        let node = self.tree.node_mut(node);
        let size = definition.size.min(LARGEST);
        if !node.start.is_defined && !node.is_changed {
            node.start.size = size;
            node.start.blocks = definition.blocks;
            node.kept = size;
        }
        node.kept = node.kept.min(size);
        if !node.start.is_defined {
            node.start.mode = definition.file.mode & 0o7777;
            node.start.is_defined = true;
        }
        node.size = size;
    }

    fn open(&mut self, call: &Recorded, step: &mut Step) -> Result<(), Why> {
        let definition = self.loaded.files.get(call.files[0]).filter(|_| call.value >= 0);
        let given = call.first_path().cloned().filter(|given| !given.text.is_empty());
        let flags = match call.op {
            Op::Open | Op::Openat => flags::recorded(call.extra as u32, self.machine),
            Op::Creat => flags::CREATE | flags::WRITE_ONLY | flags::TRUNCATE,
            _ => flags::recorded(definition.map_or(0, |defined| defined.file.flags), self.machine),
        };
        let is_unnamed = flags & flags::UNNAMED == flags::UNNAMED;
        let path = match definition {
            Some(definition) => {
                let mut path = self.replayable(definition)?;
                // Its own name, which no other has, is below the directory that was given.
                if is_unnamed {
                    path.pop();
                }
                path
            }
            None => self.given(call, given.as_ref().ok_or(Why::UnknownPath)?, true)?,
        };
        let follows = flags & flags::NO_FOLLOW == 0;
        let looked = self.look(path, call.errno(), follows)?;
        let spot = self.spot(&looked.path);
        let flags = match looked.last {
            Some(slot) if call.op == Op::Openat2 => flags | making_flags(call, flags, self.tree.state(slot)),
            _ => flags,
        };
        let action = &mut step.action;
        action.spot = spot;
        action.extra = flags;
        action.value = call.value.min(0);
        action.size = u64::from(definition.map_or(0o666, |defined| defined.file.mode & 0o7777));
        if flags & flags::CREATE != 0 {
            self.made.insert(spot);
        }
        let mut is_change = false;
        if call.value >= 0
            && let Some(slot) = looked.last
        {
            let node = if is_unnamed {
                self.tree.touch(slot, Kind::Folder);
                self.tree.new_node(Kind::File)
            } else {
                let (node, is_made) = self.opened(slot, flags, definition);
                is_change = is_made;
                node
            };
            self.opened_file(call, step, node, flags, definition);
        } else if call.value >= 0 {
            // The root itself.
            self.opened_file(call, step, super::tree::ROOT, flags, definition);
        } else if call.errno() == errno::EXISTS
            && let Some(slot) = looked.last
        {
            self.tree.touch(slot, Kind::Unknown);
        } else if call.errno() == errno::IS_DIRECTORY
            && let Some(slot) = looked.last
        {
            self.tree.touch(slot, Kind::Folder);
        }
        name_uses(&mut step.uses, &looked, is_change);
        Ok(())
    }

    /// The node of a name that was opened successfully, and whether the call made it.
    fn opened(&mut self, slot: SlotId, flags: u32, definition: Option<Defined<'_>>) -> (NodeId, bool) {
        let creates = flags & flags::CREATE != 0;
        let is_empty = definition.is_some_and(|defined| defined.size == 0);
        let is_made = match self.tree.state(slot) {
            State::Is(_) => creates && flags & flags::EXCLUSIVE != 0,
            State::Unseen => creates && (flags & flags::EXCLUSIVE != 0 || is_empty),
            State::Absent => creates,
        };
        if is_made {
            let node = self.tree.new_node(Kind::File);
            self.tree.set(slot, Some(node));
            if let Some(definition) = definition {
                self.define(node, definition);
            }
            return (node, true);
        }
        let node = match definition {
            Some(definition) => {
                let looked = Looked {
                    path: self.tree.path_now(slot).unwrap_or_default(),
                    slots: Vec::new(),
                    last: Some(slot),
                };
                self.discovered(&looked, definition).0
            }
            None => self.tree.touch(slot, Kind::File),
        };
        (node, false)
    }

    /// Adds what a successful open returned.
    fn opened_file(
        &mut self,
        call: &Recorded,
        step: &mut Step,
        node: NodeId,
        flags: u32,
        definition: Option<Defined<'_>>,
    ) {
        let index = self.add_opened(Opened {
            spot: step.action.spot,
            uses: 1,
            found: None,
        });
        step.action.file = index;
        step.uses.push((Resource::Open(index), true));
        if flags & flags::TRUNCATE != 0 {
            let node = self.tree.node_mut(node);
            (node.size, node.is_changed) = (0, true);
        }
        step.uses.push((Resource::Size(node), flags & flags::TRUNCATE != 0));
        if definition.is_some() {
            self.follow_open(
                call.files[0],
                Following {
                    index,
                    node,
                    position: 0,
                    tid: call.tid,
                    appends: flags & flags::APPEND != 0,
                    is_listed: false,
                },
            );
        }
    }

    fn on_file(&mut self, call: &Recorded, step: &mut Step) -> Result<(), Why> {
        let what = step.action.does;
        // The source of data is the second descriptor of sendfile, whose first one may be anything.
        let numbers = match what {
            Does::Sendfile => [call.files[1], 0],
            Does::CopyFileRange => call.files,
            _ => [call.files[0], 0],
        };
        // Both have to be known before either is used.
        for number in numbers.into_iter().filter(|number| *number != 0) {
            if self.following(number).is_none() {
                self.find(number, call)?;
            }
        }
        step.action.file = self.file(numbers[0], call, &mut step.uses)?;
        if what == Does::CopyFileRange {
            step.action.file2 = self.file(numbers[1], call, &mut step.uses)?;
        }
        let (mut at, mut moves) = (call.offset, what.moves());
        if what.copies() {
            moves = call.offset.is_none();
            step.action.offset = call.offset.unwrap_or(AT_POSITION);
            // The argument that is particular to copy_file_range; sendfile has none.
            step.action.other_offset = call.extra;
            at = at.or_else(|| self.following(numbers[0]).map(|open| open.position));
        }
        if moves || step.action.other_offset == AT_POSITION {
            step.uses_alone();
        }
        if moves {
            self.position(numbers[0], call, step);
        }
        if what == Does::Seek {
            self.seek(numbers[0], call, step);
        }
        if matches!(what, Does::Fchmod | Does::Fchown)
            && let Some(slot) = self.tree.node(self.node_of(numbers[0])?).slot
        {
            step.uses.push((Resource::Name(slot), true));
        }
        if matches!(
            what,
            Does::Futimens | Does::Fchmod | Does::Fchown | Does::Seek | Does::Fadvise | Does::Readahead
        ) {
            return Ok(());
        }
        if what == Does::LinkOpen {
            return self.link_open(call, step, numbers[0]);
        }
        let node = self.node_of(numbers[0])?;
        match what {
            Does::Ftruncate => step.action.offset = call.extra,
            // How much several buffers were to hold is in no argument. A call on no bytes would not fail.
            Does::Readv | Does::Preadv | Does::Writev | Does::Pwritev if call.size.is_none() => {
                step.action.size = u64::try_from(call.value).unwrap_or(1);
            }
            what if what.writes() => {
                // No more is written than was, so that what is needed is known before.
                step.action.size = match call.value {
                    1.. => call.value.unsigned_abs(),
                    _ => step.action.size.min(MOST_FAILED),
                };
            }
            _ => {}
        }
        let is_change = self.changes_size(node, at, call, &step.action);
        step.uses.push((Resource::Size(node), is_change));
        if what == Does::CopyFileRange {
            let other = self.is_copied_to(numbers[1], call)?;
            step.uses.push((Resource::Size(other), true));
        }
        if what.writes() && !is_change && call.value > 0 {
            self.block_uses(node, call, step);
        }
        Ok(())
    }

    /// The flags that an open file gets. Other commands of fcntl concern descriptors, and most flags pipes and sockets.
    fn set_flags(&mut self, call: &Recorded, step: &mut Step) -> Result<(), Why> {
        if call.extra != SET_FLAGS {
            return Err(Why::NotNeeded);
        }
        let flags = flags::recorded(call.size.ok_or(Why::NotRecorded)? as u32, self.machine) & flags::SETTABLE;
        let not_a_file = |why| if why == Why::NotAFile { Why::NotNeeded } else { why };
        step.action.file = self.file(call.files[0], call, &mut step.uses).map_err(not_a_file)?;
        step.uses_alone();
        (step.action.extra, step.action.size) = (flags, 0);
        if let Some(open) = self.following_mut(call.files[0]).filter(|_| call.value >= 0) {
            open.appends = flags & flags::APPEND != 0;
        }
        Ok(())
    }

    /// The position that an open file gets; one that fails gets none here either.
    fn seek(&mut self, number: FileNumber, call: &Recorded, step: &mut Step) {
        step.uses_alone();
        step.action.offset = call.value.max(-1).cast_unsigned();
        if let Some(open) = self.following_mut(number).filter(|_| call.value >= 0) {
            open.position = call.value.unsigned_abs();
        }
    }

    /// Follows the position of an open file, and finds out whether it was moved without a recorded call.
    fn position(&mut self, number: FileNumber, call: &Recorded, step: &mut Step) {
        let Some(open) = self.following_mut(number) else { return };
        if step.action.does == Does::Getdents {
            // Other positions in a directory mean something to its file system alone.
            step.action.seeks = open.is_listed && call.offset == Some(0);
            step.action.offset = 0;
            open.is_listed = true;
            return;
        }
        let is_append = open.appends && step.action.does.writes();
        if let Some(offset) = call.offset {
            step.action.seeks = !is_append && open.position != offset;
            open.position = offset;
        }
        let moved = call.value.max(0).unsigned_abs();
        open.position = open.position.saturating_add(moved);
    }

    /// Follows a file that is copied to.
    fn is_copied_to(&mut self, number: FileNumber, call: &Recorded) -> Result<NodeId, Why> {
        let surveys = self.surveys;
        let open = self.following_mut(number).ok_or(Why::UnknownFile)?;
        let is_at_position = call.extra == AT_POSITION;
        let (id, from) = (open.node, if is_at_position { open.position } else { call.extra });
        let to = from.saturating_add(call.value.max(0).unsigned_abs()).min(LARGEST);
        if is_at_position {
            open.position = to.max(from);
        }
        let node = self.tree.node_mut(id);
        node.is_changed = true;
        if from < to {
            if surveys {
                node.fills(from, to);
            }
            node.size = node.size.max(to);
        }
        Ok(id)
    }

    /// Follows the size of a file, and what of it is read `at` an offset before it is written, or overwritten. Returns whether
    /// the call changes the size.
    fn changes_size(&mut self, node: NodeId, at: Option<u64>, call: &Recorded, action: &Action) -> bool {
        let surveys = self.surveys;
        let node = self.tree.node_mut(node);
        let moved = call.value.max(0).unsigned_abs();
        let appends = call.op == Op::Pwritev2 && call.extra & APPEND != 0;
        let from = at.filter(|_| !appends).unwrap_or(node.size);
        let to = from.saturating_add(moved);
        match action.does {
            what if what.reads() => {
                // Where a copy without an offset has read is not known of each: no more is read than the file has.
                let to = if call.offset.is_some() { to } else { to.min(node.size) };
                if node.first.is_some() && at.is_some() && to <= LARGEST {
                    let missing = surveys.then(|| node.written.missing(from, to));
                    for (from, to) in missing.into_iter().flatten() {
                        node.start.reads(from, to, call.is_cached);
                    }
                    // A write that extended it was lost.
                    if to > node.size {
                        node.size = to;
                        node.start.size = node.start.size.max(to);
                    }
                }
                false
            }
            what if what.writes() => {
                if moved == 0 || to > LARGEST {
                    return false;
                }
                node.is_changed = true;
                if surveys {
                    // To write to blocks that have no data yet costs file systems more.
                    if node.first.is_some() && !node.has_holes() {
                        node.start.data.add(from, to.min(node.kept));
                    }
                    node.fills(from, to);
                }
                let extends = to > node.size;
                node.size = node.size.max(to);
                extends
            }
            Does::Ftruncate if call.value == 0 => {
                (node.size, node.is_changed) = (action.offset, true);
                node.kept = node.kept.min(action.offset);
                true
            }
            Does::Fallocate if call.value == 0 => {
                node.is_changed = true;
                let to = from.saturating_add(call.size.unwrap_or(0)).min(LARGEST);
                if surveys {
                    // What is before keeps its data.
                    node.fills(from.max(node.kept), to);
                }
                if call.extra & KEEP_SIZE == 0 {
                    node.size = node.size.max(to);
                }
                true
            }
            _ => false,
        }
    }

    fn block_uses(&self, node: NodeId, call: &Recorded, step: &mut Step) {
        let Some(offset) = call.offset else { return };
        let last = offset.saturating_add(call.value.unsigned_abs() - 1) / BLOCK;
        let blocks = offset / BLOCK..=last;
        if last - offset / BLOCK < MOST_BLOCKS {
            step.uses
                .extend(blocks.map(|block| (Resource::Block(node, block), true)));
        } else if let Some((_, is_exclusive)) = step.uses.iter_mut().find(|(of, _)| *of == Resource::Size(node)) {
            *is_exclusive = true;
        }
    }

    fn link_open(&mut self, call: &Recorded, step: &mut Step, number: FileNumber) -> Result<(), Why> {
        let given = call.second_path().cloned().ok_or(Why::UnknownPath)?;
        let path = self.given(call, &given, false)?;
        let looked = self.look(path, call.errno(), false)?;
        step.action.spot2 = self.spot(&looked.path);
        self.made.insert(step.action.spot2);
        let node = self.node_of(number)?;
        self.name(call, looked.last, Some(node));
        name_uses(&mut step.uses, &looked, true);
        Ok(())
    }

    /// A call made this name, or removed it.
    fn name(&mut self, call: &Recorded, slot: Option<SlotId>, node: Option<NodeId>) {
        match slot {
            Some(slot) if call.value >= 0 => self.tree.set(slot, node),
            Some(slot) if call.errno() == errno::EXISTS => {
                self.tree.touch(slot, Kind::Unknown);
            }
            _ => {}
        }
    }

    fn on_path(&mut self, call: &Recorded, step: &mut Step) -> Result<(), Why> {
        let what = step.action.does;
        let given = call.first_path().cloned().ok_or(Why::UnknownPath)?;
        if given.text.is_empty() && call.value >= 0 {
            return Err(Why::UnknownPath);
        }
        let follows = what.follows(call.op, call.extra);
        let path = self.given(call, &given, follows)?;
        let looked = if matches!(what, Does::Rename | Does::Link) {
            self.look_at_one(path, call.errno())?
        } else {
            self.look(path, call.errno(), follows)?
        };
        step.action.spot = self.spot(&looked.path);
        let is_change = matches!(
            what,
            Does::Rename | Does::Unlink | Does::Rmdir | Does::Symlink | Does::Mkdir | Does::Chmod | Does::Chown
        );
        name_uses(&mut step.uses, &looked, is_change);
        match what {
            Does::Rename | Does::Link => self.two_paths(call, step, &looked)?,
            Does::Symlink => self.symlink(call, step, &looked)?,
            Does::Mkdir => {
                self.made.insert(step.action.spot);
                let node = (call.value >= 0).then(|| self.tree.new_node(Kind::Folder));
                self.name(call, looked.last, node);
            }
            Does::Unlink | Does::Rmdir if call.value >= 0 => {
                if let Some(slot) = looked.last {
                    let kind = if what == Does::Rmdir {
                        Kind::Folder
                    } else {
                        Kind::Unknown
                    };
                    let node = self.tree.touch_itself(slot, kind);
                    self.tree.set(slot, None);
                    if what == Does::Rmdir {
                        step.uses.push((Resource::Size(node), true));
                    }
                }
            }
            _ => self.found(call, step, &looked, follows),
        }
        if what == Does::Chdir && call.value == 0 {
            self.working.set(call.pid, call.end_ns, looked.path);
        }
        Ok(())
    }

    /// What a call that changes no name says about the file that it found.
    fn found(&mut self, call: &Recorded, step: &mut Step, looked: &Looked, follows: bool) {
        let errno = call.errno();
        if step.action.does == Does::Truncate {
            step.action.offset = call.extra;
        }
        if errno != 0 && ![errno::NO_DATA, errno::INVALID, errno::NOT_EMPTY].contains(&errno) {
            return;
        }
        let Some(slot) = looked.last else { return };
        let kind = match (step.action.does, errno) {
            (Does::Readlink, 0) => Kind::Link,
            (Does::Chdir, 0) | (_, errno::NOT_EMPTY) => Kind::Folder,
            (Does::Truncate, 0) => Kind::File,
            _ => Kind::Unknown,
        };
        let node = if follows {
            self.tree.touch(slot, kind)
        } else {
            self.tree.touch_itself(slot, kind)
        };
        match step.action.does {
            Does::Access if errno == 0 && call.extra & EXECUTE != 0 => {
                let start = &mut self.tree.node_mut(node).start;
                if !start.is_defined {
                    start.mode = EXECUTABLE;
                }
            }
            Does::Readlink => self.tree.node_mut(node).start.length = call.value.max(0).unsigned_abs(),
            Does::Truncate if errno == 0 => {
                let node_of = self.tree.node_mut(node);
                (node_of.size, node_of.is_changed) = (call.extra, true);
                node_of.kept = node_of.kept.min(call.extra);
                step.uses.push((Resource::Size(node), true));
            }
            _ => {}
        }
    }

    fn two_paths(&mut self, call: &Recorded, step: &mut Step, from: &Looked) -> Result<(), Why> {
        let given = call.second_path().cloned().ok_or(Why::UnknownPath)?;
        let path = self.given(call, &given, false)?;
        let to = self.look_at_one(path, call.errno())?;
        step.action.spot2 = self.spot(&to.path);
        self.made.insert(step.action.spot2);
        name_uses(&mut step.uses, &to, true);
        let (Some(first), Some(second)) = (from.last, to.last) else {
            return Ok(());
        };
        if call.value < 0 {
            self.name(call, Some(second), None);
            return Ok(());
        }
        let node = self.tree.touch_itself(first, Kind::Unknown);
        if step.action.does == Does::Link {
            self.tree.set(second, Some(node));
            return Ok(());
        }
        let is_folder = self.tree.node(node).kind == Kind::Folder;
        if first == second || (is_folder && self.tree.is_within(self.tree.slots[second as usize].parent, node)) {
            return Ok(());
        }
        let other = match self.tree.state(second) {
            State::Is(other) if call.extra & EXCHANGE != 0 && call.op == Op::Renameat2 => Some(other),
            State::Is(removed) if self.tree.node(removed).kind == Kind::Folder => {
                step.uses.push((Resource::Size(removed), true));
                None
            }
            _ => None,
        };
        self.tree.set(first, other);
        self.tree.set(second, Some(node));
        self.moved(node);
        if let Some(other) = other {
            self.moved(other);
        }
        Ok(())
    }

    /// What is below a directory has been made below its new name.
    fn moved(&mut self, node: NodeId) {
        let mut slots = self.tree.below(node);
        // In the same order whenever calls are followed.
        slots.sort_unstable();
        for slot in slots {
            if let Some(path) = self.tree.path_now(slot) {
                let spot = self.spot(&path);
                self.made.insert(spot);
            }
        }
    }

    fn symlink(&mut self, call: &Recorded, step: &mut Step, looked: &Looked) -> Result<(), Why> {
        let text = call.second_path().ok_or(Why::UnknownPath)?.text.clone();
        let above = looked.path.split_last().map(|(_, above)| above).unwrap_or_default();
        step.action.spot2 = self.texts.len() as u32;
        self.texts.push(confined_text(self.roots, above, &text));
        self.made.insert(step.action.spot);
        let node = (call.value >= 0).then(|| self.tree.new_node(Kind::Link));
        self.name(call, looked.last, node);
        Ok(())
    }

    /// What must exist before the first call, directories before what is in them. Call it last.
    pub fn prepared(&mut self) -> Vec<Prepared> {
        // What only calls use.
        (self.open, self.inodes) = Default::default();
        // The calls that looked there are made, too, and find as little: without them, nothing would be looked up.
        let missed = std::mem::take(&mut self.missed);
        for folder in missed.iter().filter_map(|path| Some(path.split_last()?.1)) {
            self.tree.assume(folder, |folder| missed.contains(folder));
        }
        let mut prepared: Vec<Prepared> = Vec::new();
        for slot in self.tree.firsts() {
            let (State::Is(node), Some(path)) = (self.tree.at_start(slot), self.tree.path_at_start(slot)) else {
                continue;
            };
            let spot = self.spot(&path);
            // The directory of a root exists.
            if !self.roots.spot(&path).inside.is_empty() {
                let what = what(self.tree.node_mut(node));
                prepared.push(Prepared { spot, what });
            }
        }
        let mut links = Vec::new();
        for slot in 0..self.tree.slots.len() as SlotId {
            if let (State::Is(node), Some(path)) = (self.tree.at_start(slot), self.tree.path_at_start(slot)) {
                let first = self.tree.node(node).first;
                if first != Some(slot) {
                    links.push((path, first));
                }
            }
        }
        for (path, first) in links {
            if let Some(first) = first.and_then(|slot| self.tree.path_at_start(slot)) {
                let is_elsewhere = self.roots.spot(&path).root != self.roots.spot(&first).root;
                let (spot, same) = (self.spot(&path), self.spot(&first));
                // Two directories may be on two disks, and no file is on both.
                let file = prepared.iter().find(|one| is_elsewhere && one.spot == same);
                let what = file.map_or(What::Same { spot: same }, |file| file.what.clone());
                prepared.push(Prepared { spot, what });
            }
        }
        prepared
    }
}

impl Simulation<'_> {
    /// All spots, by their indices. Call it after all else.
    pub fn take_spots(&mut self) -> Vec<Spot> {
        let mut spots: Vec<(Spot, u32)> = std::mem::take(&mut self.spots).into_iter().collect();
        spots.sort_unstable_by_key(|(_, index)| *index);
        spots.into_iter().map(|(spot, _)| spot).collect()
    }

    /// Bytes that the data needs, by root: what is prepared, and what is written beyond it.
    pub fn needed(&self, roots: usize) -> Vec<u64> {
        let mut needed = vec![0_u64; roots];
        for node in &self.tree.nodes {
            let path = match (node.first, node.slot) {
                (Some(slot), _) => self.tree.path_at_start(slot),
                (None, Some(slot)) => self.tree.path_now(slot),
                // It had no name, or was removed: it is in any of them.
                (None, None) => None,
            };
            let root = path.map_or(0, |path| self.roots.spot(&path).root as usize);
            if let Some(sum) = needed.get_mut(root) {
                *sum = sum.saturating_add(node.needed());
            }
        }
        // Names of them in the directories of other roots are files of their own.
        for slot in 0..self.tree.slots.len() as SlotId {
            let State::Is(node) = self.tree.at_start(slot) else {
                continue;
            };
            let node = self.tree.node(node);
            let Some(first) = node.first.filter(|first| *first != slot) else {
                continue;
            };
            let root = |slot| Some(self.roots.spot(&self.tree.path_at_start(slot)?).root as usize);
            if let Some(root) = root(slot).filter(|it| Some(*it) != root(first))
                && let Some(sum) = needed.get_mut(root)
            {
                *sum = sum.saturating_add(node.needed());
            }
        }
        needed
    }
}

/// What a node was at the start. Its ranges are moved.
fn what(node: &mut super::tree::Node) -> What {
    let start = &mut node.start;
    match node.kind {
        Kind::Folder => What::Folder { mode: start.mode },
        Kind::Link => What::Link { length: start.length },
        Kind::File | Kind::Unknown => {
            let within = |ranges: &mut Ranges| {
                let mut ranges = std::mem::take(ranges);
                ranges.cut(start.size);
                ranges
            };
            What::File {
                mode: start.mode,
                size: start.size,
                allocated: start.is_defined.then(|| start.blocks.saturating_mul(512)),
                data: within(&mut start.data),
                cached: within(&mut start.cached),
            }
        }
    }
}

/// Of openat2, whose flags are in memory of the program: those to make a file that an open file does not keep, as far as the
/// result shows them.
fn making_flags(call: &Recorded, flags: u32, state: State) -> u32 {
    let makes_none = flags::PATH | flags::DIRECTORY | flags::UNNAMED;
    match call.errno() {
        0 if state == State::Absent && flags & makes_none == 0 => flags::CREATE,
        errno::EXISTS => flags::CREATE | flags::EXCLUSIVE,
        _ => 0,
    }
}

/// Device and inode.
fn identity(definition: Defined<'_>) -> Option<(u32, u32, u64)> {
    definition
        .file
        .inode
        .map(|inode| (inode.major, inode.minor, inode.number))
}

/// A call uses the names on its path, and changes the last one or not.
fn name_uses(uses: &mut Vec<(Resource, bool)>, looked: &Looked, is_change: bool) {
    for slot in &looked.slots {
        uses.push((Resource::Name(*slot), is_change && Some(*slot) == looked.last));
    }
}

/// The text of a symbolic link in this directory that leads to where the recorded one did, below the same root; empty:
/// it leads to somewhere else.
fn confined_text(roots: &Roots, above: &[String], text: &str) -> String {
    let start = if text.starts_with('/') {
        Vec::new()
    } else {
        above.to_vec()
    };
    let Ok(target) = path::append(start, text) else {
        return String::new();
    };
    let (link, target) = (roots.spot(above), roots.spot(&target));
    if link.root != target.root {
        return String::new();
    }
    let names = |inside: &str| -> Vec<String> {
        let names = inside.split('/').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    };
    let (link, target) = (names(&link.inside), names(&target.inside));
    let common = link.iter().zip(&target).take_while(|(a, b)| a == b).count();
    let up = vec!["..".to_owned(); link.len() - common];
    let text: Vec<String> = up.into_iter().chain(target[common..].iter().cloned()).collect();
    if text.is_empty() {
        ".".to_owned()
    } else {
        text.join("/")
    }
}
