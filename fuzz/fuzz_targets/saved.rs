//! Counters of a run that were kept (`--print`), up to the reports of them.

#![no_main]

use std::io;

use iostackbreakdown::analyse;
use iostackbreakdown::source::saved::Saved;
use iostackbreakdown::source::{Item, Source, Until};
use iostackbreakdown::view::json::Form;
use iostackbreakdown::view::text::TextOptions;
use iostackbreakdown::view::{Folded, Json, Screen, Sheet, Text, View};
use iostackbreakdown_fuzz::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut saved) = Saved::open(Bytes::new(bytes).path()) else {
        return;
    };
    let options = TextOptions {
        verbose: true,
        is_first: true,
        ..TextOptions::default()
    };
    let mut views: [Box<dyn View>; 3] = [
        Box::new(Text::new(options, false)),
        Box::new(Json(Form::Full)),
        Box::new(Folded),
    ];
    let mut before = None;
    while let Ok(item) = saved.next(Until::Now) {
        let mut sheet = Sheet {
            out: &mut io::sink(),
            screen: Screen::default(),
        };
        match item {
            Item::Nothing => break,
            Item::Events(events) => {
                for view in &mut views {
                    view.events(&events, &mut sheet).expect("it goes nowhere");
                }
            }
            Item::Snapshot(after) => {
                let report = analyse::report(saved.info(), before.as_ref().unwrap_or(&after), &after);
                for view in &mut views {
                    if before.is_none() {
                        view.begin(&report, &mut sheet).expect("it goes nowhere");
                    }
                    view.report(&report, &mut sheet).expect("it goes nowhere");
                }
                before = Some(*after);
            }
        }
    }
});
