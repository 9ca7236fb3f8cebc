//! The state of the live view. It changes by keys, seconds and the passage of recorded time, and by nothing else.

use super::history::{Beside, History};
use super::key::Key;
use super::list::{self, Dimension, Group, OpenFile, Sort};
use crate::model::ids::{By, Family};
use crate::model::report::Report;
use crate::model::report::moment::Moment;
use crate::model::report::records::{Limit, Limited};
use crate::model::report::slow::SlowCall;

/// What is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shows {
    /// The running kernel.
    Kernel,
    /// A recording, by its name. Nothing is dropped from the history.
    Recording(String),
}

/// What does not change while it is shown.
#[derive(Debug, Clone)]
pub struct Facts {
    pub shows: Shows,
    pub host: String,
    /// What is selected; empty: all processes.
    pub subject: String,
    /// What the counters are split by.
    pub by: Option<By>,
    /// Calls of this length or longer are listed.
    pub slower_ns: Option<u64>,
    pub limits: Vec<Limit>,
    /// What is not measured, in one line.
    pub missing: Option<String>,
    /// The recording that is being written.
    pub recording: Option<String>,
    /// There are records of single calls.
    pub has_records: bool,
    /// Seconds east of UTC.
    pub utc_offset: i32,
}

/// What is below the families.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pane {
    /// Some of each.
    Overview,
    Latency,
    Groups,
    SlowCalls,
    Disks,
    Limits,
}

impl Pane {
    /// In the order of the keys 1 to 6.
    pub const ALL: [Self; 6] = [
        Self::Overview,
        Self::Latency,
        Self::Groups,
        Self::SlowCalls,
        Self::Disks,
        Self::Limits,
    ];
}

/// What a key demands from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Quit,
    /// Stop the process, as Ctrl-Z does.
    Suspend,
    /// Draw all of the screen again.
    Redraw,
    /// Write the report of the history as a page.
    Html,
    /// Write the history as a recording.
    Record,
}

/// Seconds per column of the pictures over time.
const SCALES: [usize; 5] = [1, 2, 5, 15, 60];
/// Seconds whose families are listed.
const SEEN: usize = 60;
/// Lines that a page key moves.
const PAGE: usize = 10;
/// The overview has lines for no more groups, however large the screen.
pub const GROUPS_IN_OVERVIEW: usize = 16;

/// The second that is shown.
#[derive(Debug)]
pub struct Shown {
    pub number: usize,
    pub report: Report,
    pub beside: Beside,
    /// It names no more groups than the overview has lines for.
    has_few_groups: bool,
}

/// The state.
#[derive(Debug)]
pub struct Model {
    pub facts: Facts,
    pub history: History,
    /// `None`: there is no second yet.
    pub shown: Option<Box<Shown>>,
    /// The number of the second to show, or of one that is no longer kept; `None`: the newest.
    cursor: Option<usize>,
    /// A recording goes on at its recorded speed.
    pub is_playing: bool,
    pub pane: Pane,
    /// The selected family.
    family: Option<Family>,
    /// The selected line of the list of the pane, and what is in it: the selection stays with it when the order changes.
    line: usize,
    anchor: Option<String>,
    pub dimension: Dimension,
    pub sort: Sort,
    pub filter: String,
    /// The filter is being typed.
    pub is_typing: bool,
    /// The process whose open files are shown, and its name.
    pub opened: Option<(u64, String)>,
    scale: usize,
    pub has_help: bool,
    /// What the last key did or could not do.
    pub message: Option<String>,
}

impl Model {
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self {
            dimension: Dimension::By(facts.by.unwrap_or(By::Process)),
            cursor: match facts.shows {
                Shows::Kernel => None,
                Shows::Recording(_) => Some(0),
            },
            facts,
            history: History::default(),
            shown: None,
            is_playing: false,
            pane: Pane::Overview,
            family: None,
            line: 0,
            anchor: None,
            sort: Sort::default(),
            filter: String::new(),
            is_typing: false,
            opened: None,
            scale: 0,
            has_help: false,
            message: None,
        }
    }

    /// Adds a second, with its slow calls, and how many of them are not in the list.
    pub fn second(&mut self, report: Report, slow: (Vec<SlowCall>, u64), beside: Beside) {
        let number = self.history.push(&report, slow);
        if self.is_following() {
            let has_few_groups = !self.needs_all_groups();
            self.show(number, report, beside, has_few_groups);
        }
    }

    /// How many groups a second is to name that is about to be added; `all`: the most. A name and the numbers of each take
    /// longer than adding its counters to those of the others.
    #[must_use]
    pub fn named_groups(&self, all: usize) -> usize {
        if self.needs_all_groups() {
            all
        } else {
            all.min(GROUPS_IN_OVERVIEW)
        }
    }

    /// Whether any group may be shown, or be a part of what is, and not only those with most time.
    fn needs_all_groups(&self) -> bool {
        let is_merged = self.dimension == Dimension::Unit;
        is_merged || self.pane == Pane::Groups || self.sort != Sort::Time || !self.filter.is_empty()
    }

    /// The number of the second that is to be shown.
    fn at(&self) -> Option<usize> {
        let (first, last) = self.history.range()?;
        Some(self.cursor.unwrap_or(last).clamp(first, last))
    }

    /// The second that is to be shown with all of its groups, unless it is shown already.
    #[must_use]
    pub fn needs_second(&self) -> Option<usize> {
        let shown = self.shown.as_ref();
        let shown = shown.filter(|shown| !(shown.has_few_groups && self.needs_all_groups()));
        self.at()
            .filter(|number| Some(*number) != shown.map(|shown| shown.number))
    }

    /// Shows a second, with all of its groups.
    pub fn give_second(&mut self, number: usize, report: Report, beside: Beside) {
        self.show(number, report, beside, false);
    }

    fn show(&mut self, number: usize, report: Report, beside: Beside, has_few_groups: bool) {
        self.shown = Some(Box::new(Shown {
            number,
            report,
            beside,
            has_few_groups,
        }));
    }

    /// The recorded time goes on by a second.
    pub fn tick(&mut self) {
        let last = self.history.range().map_or(0, |(_, last)| last);
        if self.is_playing {
            self.cursor = self.at().map(|at| (at + 1).min(last));
            self.is_playing = self.cursor != Some(last);
        }
    }

    /// The second whose records are needed to show all that there is.
    #[must_use]
    pub fn needs_records_of(&self) -> Option<usize> {
        let shown = self.shown.as_ref()?;
        let is_recording = matches!(self.facts.shows, Shows::Recording(_));
        (is_recording && self.facts.has_records && shown.beside.moment.is_none()).then_some(shown.number)
    }

    /// Adds the records of a second, if it is still shown.
    pub fn give_records(&mut self, number: usize, moment: Moment) {
        if let Some(shown) = self.shown.as_mut().filter(|shown| shown.number == number) {
            shown.beside.moment = Some(moment);
        }
    }

    /// Whether the newest second is shown as it comes.
    #[must_use]
    pub fn is_following(&self) -> bool {
        self.cursor.is_none()
    }

    /// How many seconds the newest one is ahead of what is shown.
    #[must_use]
    pub fn behind(&self) -> usize {
        let last = self.history.range().map_or(0, |(_, last)| last);
        self.shown.as_ref().map_or(0, |shown| last.saturating_sub(shown.number))
    }

    /// Seconds per column of the pictures over time.
    #[must_use]
    pub fn seconds_per_column(&self) -> usize {
        SCALES[self.scale]
    }

    /// The families that are listed, in the order of their table: those called in the last minute before the second that
    /// is shown, so that a line does not move under the cursor.
    #[must_use]
    pub fn families(&self) -> Vec<Family> {
        let Some(shown) = &self.shown else { return Vec::new() };
        let mut seen = Vec::new();
        let digests =
            (shown.number.saturating_sub(SEEN - 1)..=shown.number).filter_map(|number| self.history.digest(number));
        for of in digests.flat_map(|digest| &digest.families) {
            if !seen.contains(&of.family) {
                seen.push(of.family);
            }
        }
        seen.sort_unstable();
        seen
    }

    /// The selected family: the one with most time in the second that is shown, until one is selected.
    #[must_use]
    pub fn selected_family(&self) -> Option<Family> {
        let families = self.families();
        if let Some(family) = self.family.filter(|family| families.contains(family)) {
            return Some(family);
        }
        let stack = self.shown.as_ref()?.report.stack.as_ref()?;
        let most = stack.families.iter().filter(|family| families.contains(&family.family));
        let most = most.max_by_key(|family| family.total_ns).map(|family| family.family);
        most.or(families.first().copied())
    }

    /// The selected line of a list whose lines have these keys.
    #[must_use]
    pub fn selected_line(&self, keys: &[String]) -> usize {
        let anchored = self
            .anchor
            .as_ref()
            .and_then(|anchor| keys.iter().position(|key| key == anchor));
        anchored.unwrap_or(self.line).min(keys.len().saturating_sub(1))
    }

    /// The keys of the lines of the pane's list; `None`: it has no lines that can be selected.
    #[must_use]
    pub fn keys(&self) -> Option<Vec<String>> {
        match (self.pane, &self.opened) {
            (Pane::Groups, Some((pid, _))) => {
                let files = self.open_files(*pid).unwrap_or_default().into_iter();
                Some(files.map(|file| format!("{:?} {}", file.fd, file.name)).collect())
            }
            (Pane::Groups, None) => {
                let groups = self.groups().unwrap_or_default().into_iter();
                Some(groups.map(|group| group.name).collect())
            }
            (Pane::SlowCalls, _) => {
                let (calls, _) = self.slow_calls();
                let key = |call: &&SlowCall| format!("{} {}", call.ended, call.tid);
                Some(calls.iter().map(key).collect())
            }
            (Pane::Overview | Pane::Latency | Pane::Disks | Pane::Limits, _) => None,
        }
    }

    /// The groups of the second that is shown, filtered and sorted, or why there are none.
    ///
    /// # Errors
    /// Those of [`list::groups`].
    pub fn groups(&self) -> Result<Vec<Group>, String> {
        let Some(shown) = &self.shown else {
            return Ok(Vec::new());
        };
        let mut groups = list::groups(&shown.report, &shown.beside, self.dimension)?;
        list::arrange(&mut groups, &self.filter, self.sort);
        Ok(groups)
    }

    /// The open files of a process in the second that is shown, or why there are none.
    ///
    /// # Errors
    /// Those of [`list::open_files`].
    pub fn open_files(&self, pid: u64) -> Result<Vec<OpenFile>, String> {
        let moment = self.shown.as_ref().and_then(|shown| shown.beside.moment.as_ref());
        let mut files = list::open_files(moment, pid)?;
        list::arrange_files(&mut files, &self.filter, self.sort);
        Ok(files)
    }

    /// The slow calls up to the second that is shown, the newest first, and how many of them are in no list.
    #[must_use]
    pub fn slow_calls(&self) -> (Vec<&SlowCall>, u64) {
        let Some(shown) = &self.shown else {
            return (Vec::new(), 0);
        };
        let moment = shown.beside.moment.as_ref();
        if let Some(moment) = moment.filter(|_| matches!(self.facts.shows, Shows::Recording(_))) {
            let calls = moment.slow_calls.iter().rev();
            let shown = calls.filter(|call| list::shows_call(call, &self.filter));
            return (shown.collect(), moment.slow_left_out);
        }
        let first = shown.number.saturating_sub(SEEN - 1);
        let digests = (first..=shown.number)
            .rev()
            .filter_map(|number| self.history.digest(number));
        let mut left_out = 0_u64;
        let mut calls = Vec::new();
        for digest in digests {
            left_out = left_out.saturating_add(digest.left_out);
            let shown = digest.slow_calls.iter().rev();
            calls.extend(shown.filter(|call| list::shows_call(call, &self.filter)));
        }
        (calls, left_out)
    }

    /// How often a limit was broken in the second that is shown, of how many calls or requests, and whether that is exact;
    /// `None`: not known. Counters have calls by steps of an eighth of a power of two: a step with the limit in it is not
    /// counted as broken.
    #[must_use]
    pub fn broken(&self, index: usize) -> Option<(u64, u64, bool)> {
        let shown = self.shown.as_ref()?;
        if let Some([broken, all]) = shown.beside.moment.as_ref().and_then(|moment| moment.limits.get(index)) {
            return Some((*broken, *all, true));
        }
        let limit = self.facts.limits.get(index)?;
        let histograms: Vec<&crate::model::histogram::Histogram> = match limit.of {
            Limited::Family(family) => {
                let families = shown.report.stack.iter().flat_map(|stack| &stack.families);
                let families = families.filter(|known| known.family == family);
                families.map(|known| &known.histogram).collect()
            }
            Limited::Device => {
                let layers = shown.report.layers.iter();
                let blk = layers.filter(|layer| layer.layer == crate::model::ids::Layer::Blk);
                blk.flat_map(|layer| &layer.ops).map(|op| &op.histogram).collect()
            }
            Limited::Op(_) | Limited::Queue => return None,
        };
        let buckets = histograms.iter().flat_map(|histogram| histogram.buckets());
        let (mut broken, mut all) = (0_u64, 0_u64);
        for bucket in buckets {
            all = all.saturating_add(bucket.count);
            if bucket.ge > limit.ns {
                broken = broken.saturating_add(bucket.count);
            }
        }
        Some((broken, all, false))
    }

    /// Whether the selected limits on calls of a family are broken.
    #[must_use]
    pub fn is_broken(&self, family: Family) -> bool {
        let limits = self.facts.limits.iter().enumerate();
        let mut limits = limits.filter(|(_, limit)| limit.of == Limited::Family(family));
        limits.any(|(index, _)| self.broken(index).is_some_and(|(broken, ..)| broken > 0))
    }
}

/// Keys.
impl Model {
    /// Changes the state as a key demands. What it cannot do itself is returned.
    pub fn handle(&mut self, key: Key) -> Option<Action> {
        self.message = None;
        match key {
            Key::Interrupt => return Some(Action::Quit),
            Key::Suspend => return Some(Action::Suspend),
            Key::Redraw => return Some(Action::Redraw),
            _ => {}
        }
        if self.is_typing {
            self.typed(key);
            return None;
        }
        if self.has_help {
            self.has_help = false;
            return (key == Key::Char('q')).then_some(Action::Quit);
        }
        match key {
            Key::Char('q') => return Some(Action::Quit),
            Key::Char('H') => return Some(Action::Html),
            Key::Char('w') => match self.recording() {
                Some(message) => self.message = Some(message),
                None => return Some(Action::Record),
            },
            Key::Char('?') => self.has_help = true,
            Key::Char('/') => self.is_typing = true,
            Key::Char(' ' | 'p') => self.pause(),
            Key::Left | Key::Char('h') => self.step(-1),
            Key::Right | Key::Char('l') => self.step(1),
            Key::ShiftLeft => self.step(-10),
            Key::ShiftRight => self.step(10),
            Key::Home => self.jump(false),
            Key::End => self.jump(true),
            Key::Up | Key::Char('k') => self.move_line(-1),
            Key::Down | Key::Char('j') => self.move_line(1),
            Key::PageUp => self.move_line(-(PAGE as isize)),
            Key::PageDown => self.move_line(PAGE as isize),
            Key::Tab => self.turn(1),
            Key::BackTab => self.turn(Pane::ALL.len() - 1),
            Key::Char(digit @ '1'..='6') => self.turn_to(Pane::ALL[digit as usize - '1' as usize]),
            Key::Enter => self.enter(),
            Key::Escape | Key::Backspace => self.leave(),
            Key::Char('g') => self.regroup(),
            Key::Char('s' | '>') => self.resort(true),
            Key::Char('<') => self.resort(false),
            Key::Char('+' | '=') => self.scale = (self.scale + 1).min(SCALES.len() - 1),
            Key::Char('-') => self.scale = self.scale.saturating_sub(1),
            Key::Char(other) => self.message = Some(format!("no such key: {other}; ? has all of them")),
            Key::Interrupt | Key::Suspend | Key::Redraw => {}
        }
        None
    }

    fn typed(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.filter.clear();
            }
            Key::Backspace => {
                self.filter.pop();
            }
            Key::Char(c) => self.filter.push(c),
            _ => {}
        }
        self.first_line();
    }

    /// Where all of it is recorded; `None`: nowhere.
    fn recording(&self) -> Option<String> {
        match (&self.facts.shows, &self.facts.recording) {
            (Shows::Recording(name), _) => Some(format!("this is a recording: it is in {name}")),
            (Shows::Kernel, Some(name)) => Some(format!("everything since the start is being recorded in {name}")),
            (Shows::Kernel, None) => None,
        }
    }

    fn pause(&mut self) {
        match self.facts.shows {
            Shows::Kernel => {
                self.cursor = match self.cursor {
                    None => self.at(),
                    Some(_) => None,
                };
            }
            Shows::Recording(_) => {
                self.is_playing = !self.is_playing;
                if self.is_playing && self.behind() == 0 {
                    self.is_playing = false;
                    self.message = Some("this is the last second; Home goes to the first one".to_owned());
                }
            }
        }
    }

    /// Goes to another second, and pauses.
    fn step(&mut self, seconds: isize) {
        let (Some(at), Some((first, last))) = (self.at(), self.history.range()) else {
            return;
        };
        self.is_playing = false;
        self.cursor = Some(at.saturating_add_signed(seconds).clamp(first, last));
        if first > 0 && at == first && seconds < 0 {
            self.message = Some("earlier seconds are no longer kept (--history SIZE)".to_owned());
        }
    }

    fn jump(&mut self, is_end: bool) {
        self.is_playing = false;
        self.cursor = match (is_end, &self.facts.shows) {
            (false, _) => Some(0),
            (true, Shows::Kernel) => None,
            (true, Shows::Recording(_)) => Some(usize::MAX),
        };
    }

    /// Moves the selection: of the pane's list, or else of the families.
    fn move_line(&mut self, by: isize) {
        if let Some(keys) = self.keys() {
            let at = self.selected_line(&keys);
            self.line = at.saturating_add_signed(by).min(keys.len().saturating_sub(1));
            self.anchor = keys.into_iter().nth(self.line);
            return;
        }
        let families = self.families();
        let at = self.selected_family();
        let at = families.iter().position(|family| Some(*family) == at).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(families.len().saturating_sub(1));
        self.family = families.get(to).copied();
    }

    fn turn(&mut self, by: usize) {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        self.turn_to(Pane::ALL[(at + by) % Pane::ALL.len()]);
    }

    fn turn_to(&mut self, pane: Pane) {
        self.pane = pane;
        self.first_line();
        self.opened = None;
    }

    /// Goes into what is selected: of a family to its latencies, of a process to its open files.
    fn enter(&mut self) {
        match self.pane {
            Pane::Overview => self.turn_to(Pane::Latency),
            Pane::Groups if self.opened.is_none() => {
                let groups = self.groups().unwrap_or_default();
                let line = self.selected_line(&self.keys().unwrap_or_default());
                match groups.get(line) {
                    Some(Group {
                        pid: Some(pid), name, ..
                    }) => {
                        self.opened = Some((*pid, name.clone()));
                        self.first_line();
                    }
                    Some(_) => self.message = Some("only processes have open files; g groups by process".to_owned()),
                    None => {}
                }
            }
            Pane::Latency | Pane::Groups | Pane::SlowCalls | Pane::Disks | Pane::Limits => {}
        }
    }

    fn leave(&mut self) {
        if self.opened.take().is_some() {
            self.first_line();
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            self.turn_to(Pane::Overview);
        }
    }

    fn first_line(&mut self) {
        self.line = 0;
        self.anchor = None;
    }

    /// The order may be that of a column for which there is no room.
    fn resort(&mut self, is_forward: bool) {
        self.sort = self.sort.moved(is_forward);
        self.message = Some(format!("sorted by {}", self.sort.name()));
    }

    fn regroup(&mut self) {
        self.dimension = self.dimension.next();
        self.first_line();
        self.opened = None;
    }
}

#[cfg(test)]
mod tests;
