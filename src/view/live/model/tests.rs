use super::super::example;
use super::*;

fn press(model: &mut Model, keys: &str) -> Vec<Option<Action>> {
    keys.chars().map(|key| handle(model, Key::Char(key))).collect()
}

fn handle(model: &mut Model, key: Key) -> Option<Action> {
    let action = model.handle(key);
    example::settle(model);
    action
}

fn tick(model: &mut Model) {
    model.tick();
    example::settle(model);
}

fn number(model: &Model) -> usize {
    model.shown.as_ref().unwrap().number
}

fn recording(seconds: usize) -> Model {
    let facts = Facts {
        shows: Shows::Recording("x.iosb".to_owned()),
        has_records: true,
        ..example::facts()
    };
    example::with(facts, seconds)
}

fn add_second(model: &mut Model, second: usize) {
    model.second(example::report(second), example::slow(second), example::beside(second));
    example::settle(model);
}

#[test]
fn all_groups_are_made_where_any_may_be_shown() {
    // `ggg`: units, which are made of control groups.
    for keys in ["3", "/f", "s", "ggg"] {
        let mut model = example::model(5);
        assert_eq!(
            (model.named_groups(100), model.named_groups(7)),
            (GROUPS_IN_OVERVIEW, 7)
        );
        model.second(example::report(5), example::slow(5), example::beside(5));
        assert_eq!(model.needs_second(), None);
        // The second that is shown is made again, with all of them.
        for key in keys.chars() {
            model.handle(Key::Char(key));
        }
        assert_eq!(
            (model.needs_second(), model.named_groups(100)),
            (Some(5), 100),
            "{keys}"
        );
        example::settle(&mut model);
        assert_eq!(model.needs_second(), None);
        // Those that come have all of them.
        model.second(example::report(6), example::slow(6), example::beside(6));
        assert_eq!((number(&model), model.needs_second()), (6, None));
    }
}

#[test]
fn the_newest_second_is_shown_until_it_pauses() {
    let mut model = example::model(5);
    assert!(model.is_following());
    assert_eq!(number(&model), 4);
    press(&mut model, " ");
    add_second(&mut model, 5);
    add_second(&mut model, 6);
    assert_eq!((number(&model), model.behind()), (4, 2));
    handle(&mut model, Key::Right);
    assert_eq!(number(&model), 5);
    handle(&mut model, Key::ShiftLeft);
    assert_eq!(number(&model), 0);
    handle(&mut model, Key::Left);
    assert_eq!(number(&model), 0);
    press(&mut model, "p");
    assert_eq!((number(&model), model.behind(), model.is_following()), (6, 0, true));
    handle(&mut model, Key::Left);
    assert_eq!((number(&model), model.is_following()), (5, false));
    handle(&mut model, Key::End);
    assert!(model.is_following());
    handle(&mut model, Key::Home);
    assert_eq!(number(&model), 0);
    for _ in 0..3 {
        handle(&mut model, Key::ShiftRight);
    }
    assert_eq!((number(&model), model.is_following()), (6, false));
}

#[test]
fn what_is_shown_is_the_report_of_its_second() {
    let mut model = example::model(9);
    for second in (0..9).rev() {
        let shown = model.shown.as_ref().unwrap();
        assert_eq!(shown.report.time_of_day, example::report(second).time_of_day);
        assert_eq!(shown.beside, example::beside(second));
        handle(&mut model, Key::Left);
    }
}

#[test]
fn steps_are_counted_from_the_second_that_is_to_be_shown() {
    let mut model = example::model(9);
    for _ in 0..3 {
        model.handle(Key::Left);
    }
    assert_eq!((number(&model), model.needs_second()), (8, Some(5)));
    example::settle(&mut model);
    assert_eq!((number(&model), model.needs_second()), (5, None));
}

#[test]
fn a_pause_on_a_dropped_second_moves_to_the_oldest_one() {
    let mut model = example::model(4);
    handle(&mut model, Key::Home);
    press(&mut model, " ");
    press(&mut model, " ");
    for second in 4..30 {
        add_second(&mut model, second);
    }
    model.history.drop_before(20);
    example::settle(&mut model);
    assert_eq!(number(&model), 20);
    handle(&mut model, Key::Left);
    assert!(model.message.as_ref().unwrap().contains("--history"));
}

#[test]
fn a_recording_begins_at_its_start_and_plays_to_its_end() {
    let mut model = recording(4);
    assert_eq!((number(&model), model.is_following()), (0, false));
    tick(&mut model);
    assert_eq!(number(&model), 0);
    press(&mut model, " ");
    tick(&mut model);
    tick(&mut model);
    assert_eq!((number(&model), model.is_playing), (2, true));
    press(&mut model, " ");
    tick(&mut model);
    assert_eq!((number(&model), model.is_playing), (2, false));
    press(&mut model, " ");
    tick(&mut model);
    tick(&mut model);
    assert_eq!((number(&model), model.is_playing), (3, false));
    press(&mut model, " ");
    assert!(!model.is_playing && model.message.is_some());
    handle(&mut model, Key::Home);
    assert_eq!(number(&model), 0);
    handle(&mut model, Key::End);
    assert_eq!(number(&model), 3);
}

#[test]
fn records_are_read_for_the_second_that_is_shown() {
    let facts = Facts {
        shows: Shows::Recording("x.iosb".to_owned()),
        has_records: true,
        ..example::facts()
    };
    let mut model = Model::new(facts);
    for second in 0..3 {
        model.second(example::report(second), (Vec::new(), 0), Beside::default());
    }
    model.give_second(0, example::report(0), Beside::default());
    assert_eq!(model.needs_records_of(), Some(0));
    model.give_records(1, Moment::default());
    assert_eq!(model.needs_records_of(), Some(0));
    model.give_records(0, example::beside(0).moment.unwrap());
    assert_eq!(model.needs_records_of(), None);
    model.handle(Key::Right);
    model.give_second(1, example::report(1), Beside::default());
    assert_eq!(model.needs_records_of(), Some(1));
    assert_eq!(example::model(1).needs_records_of(), None);
}

#[test]
fn keys_that_need_the_outside_are_returned() {
    let mut model = example::model(2);
    assert_eq!(press(&mut model, "H"), [Some(Action::Html)]);
    assert_eq!(handle(&mut model, Key::Interrupt), Some(Action::Quit));
    assert_eq!(handle(&mut model, Key::Suspend), Some(Action::Suspend));
    assert_eq!(handle(&mut model, Key::Redraw), Some(Action::Redraw));
    assert_eq!(press(&mut model, "?q"), [None, Some(Action::Quit)]);
    assert_eq!(press(&mut model, "?x"), [None, None]);
    assert_eq!(
        (model.has_help, press(&mut model, "q")),
        (false, vec![Some(Action::Quit)])
    );
    press(&mut model, "/q");
    assert_eq!((model.is_typing, &*model.filter), (true, "q"));
    assert_eq!(handle(&mut model, Key::Interrupt), Some(Action::Quit));
}

#[test]
fn w_writes_a_recording_or_says_where_it_is() {
    let message = |model: &mut Model| {
        press(model, "w");
        model.message.clone().unwrap()
    };
    let mut model = example::model(1);
    assert_eq!(press(&mut model, "w"), vec![Some(Action::Record)]);
    model.facts.recording = Some("x.iosb".to_owned());
    assert!(message(&mut model).contains("recorded in x.iosb"));
    assert!(message(&mut recording(1)).contains("it is in x.iosb"));
    // The next key removes it.
    press(&mut model, "g");
    assert_eq!(model.message, None);
    press(&mut model, "z");
    assert!(model.message.unwrap().contains("no such key: z"));
}

#[test]
fn the_family_with_most_time_is_selected_until_another_one_is() {
    let mut model = example::model(3);
    assert_eq!(
        model.families(),
        [Family::Read, Family::Write, Family::Fsync, Family::Metadata]
    );
    assert_eq!(model.selected_family(), Some(Family::Fsync));
    press(&mut model, "j");
    assert_eq!(model.selected_family(), Some(Family::Metadata));
    press(&mut model, "jjj");
    assert_eq!(model.selected_family(), Some(Family::Metadata));
    handle(&mut model, Key::PageUp);
    assert_eq!(model.selected_family(), Some(Family::Read));
    assert_eq!(Model::new(example::facts()).selected_family(), None);
}

#[test]
fn a_selected_line_stays_with_what_is_in_it() {
    let mut model = example::model(3);
    press(&mut model, "3j");
    let name = |model: &Model| {
        let keys = model.keys().unwrap();
        keys[model.selected_line(&keys)].clone()
    };
    assert_eq!(name(&model), "tar 812");
    // By name, tar is the last but one.
    press(&mut model, "ssss");
    assert_eq!(model.sort, Sort::Name);
    assert_eq!(model.message.as_deref(), Some("sorted by name"));
    assert_eq!(name(&model), "tar 812");
    press(&mut model, "k");
    assert_eq!(name(&model), "postgres 4711");
    press(&mut model, "/tar");
    handle(&mut model, Key::Enter);
    assert_eq!(name(&model), "tar 812");
}

#[test]
fn enter_goes_to_open_files_and_esc_back() {
    let mut model = example::model(3);
    press(&mut model, "3");
    handle(&mut model, Key::Enter);
    assert_eq!(model.opened, Some((4711, "postgres 4711".to_owned())));
    assert_eq!(model.open_files(4711).unwrap().len(), 2);
    assert_eq!(model.keys().unwrap().len(), 2);
    handle(&mut model, Key::Escape);
    assert_eq!((model.opened.clone(), model.pane), (None, Pane::Groups));
    handle(&mut model, Key::Escape);
    assert_eq!(model.pane, Pane::Overview);
    handle(&mut model, Key::Enter);
    assert_eq!(model.pane, Pane::Latency);
    press(&mut model, "3gggg");
    assert_eq!(model.dimension, Dimension::By(By::File));
    handle(&mut model, Key::Enter);
    assert!(model.opened.is_none() && model.message.unwrap().contains("only processes"));
}

#[test]
fn panes_scales_and_orders_turn() {
    let mut model = example::model(1);
    let panes: Vec<Pane> = (0..6)
        .map(|_| {
            handle(&mut model, Key::Tab);
            model.pane
        })
        .collect();
    assert_eq!(panes[..5], Pane::ALL[1..]);
    assert_eq!(panes[5], Pane::Overview);
    handle(&mut model, Key::BackTab);
    assert_eq!(model.pane, Pane::Limits);
    press(&mut model, "4");
    assert_eq!(model.pane, Pane::SlowCalls);
    let scales: Vec<usize> = (0..6)
        .map(|_| {
            press(&mut model, "+");
            model.seconds_per_column()
        })
        .collect();
    assert_eq!(scales, [2, 5, 15, 60, 60, 60]);
    press(&mut model, "-----");
    assert_eq!(model.seconds_per_column(), 1);
    press(&mut model, "<");
    assert_eq!(model.sort, Sort::Name);
    press(&mut model, ">");
    assert_eq!(model.sort, Sort::Time);
}

#[test]
fn slow_calls_of_the_last_minute_are_listed_and_filtered() {
    let mut model = example::model(20);
    let (calls, left_out) = model.slow_calls();
    // Those of seconds 3, 10 and 17.
    assert_eq!((calls.len(), left_out), (6, 6));
    assert!(calls.windows(2).all(|pair| pair[0].ended >= pair[1].ended));
    press(&mut model, "/16602");
    assert_eq!(model.slow_calls().0.len(), 3);
    handle(&mut model, Key::Backspace);
    assert_eq!(model.filter, "1660");
    handle(&mut model, Key::Escape);
    assert_eq!((model.filter.len(), model.slow_calls().0.len()), (0, 6));
    assert_eq!(example::model(2).slow_calls().0.len(), 0);
}

#[test]
fn limits_are_counted_from_histograms_and_exactly_from_records() {
    let mut model = example::model(4);
    // Second 3 is slow: its fsyncs take up to 40 ms, those of the others up to 4 ms.
    let (broken, all, is_exact) = model.broken(0).unwrap();
    assert!(
        broken > 0 && broken < all && all == 120 && !is_exact,
        "{broken} of {all}"
    );
    assert!(model.is_broken(Family::Fsync) && !model.is_broken(Family::Read));
    let (broken, all, _) = model.broken(1).unwrap();
    assert_eq!(all, 50);
    assert!((5..15).contains(&broken), "{broken}");
    assert_eq!((model.broken(2), model.broken(3)), (None, None));
    handle(&mut model, Key::Left);
    assert_eq!(model.broken(0).unwrap().0, 0);
    model.shown.as_mut().unwrap().beside.moment.as_mut().unwrap().limits = vec![[3, 9]];
    assert_eq!(model.broken(0), Some((3, 9, true)));
}
