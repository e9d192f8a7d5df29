use super::*;

fn panels() -> Panels {
    let points = vec![(10.0, 0.001), (1000.0, 0.01), (10_000.0, 0.1)];
    let line = Line { who: Who::Orlop, points };
    Panels {
        name: "test",
        title: "Test",
        x_title: "volumes",
        peer: "other".to_owned(),
        columns: 2,
        x_marks: vec![(10.0, "10".to_owned()), (10_000.0, "10,000".to_owned())],
        panels: vec![Panel { title: "create".to_owned(), lines: vec![line] }],
    }
}

#[test]
fn points_rise_with_the_cost_and_stay_inside() {
    let scales = Scales::of(&panels());
    let heights: Vec<f64> = [0.001, 0.01, 0.1].map(|seconds| scales.y(seconds)).into();
    assert!(heights.is_sorted_by(|lower, upper| lower > upper), "{heights:?}");
    assert_eq!((heights[0], heights[2]), (PANEL_HEIGHT, 0.0));
    assert!(scales.x(10.0) > 0.0 && scales.x(10_000.0) < PANEL_WIDTH);
}

#[test]
fn every_decade_and_mark_is_named() {
    let picture = svg(&panels());
    for name in [">1 ms<", ">10 ms<", ">100 ms<", ">10<", ">10,000<", ">create<", ">Orlop<"] {
        assert!(picture.contains(name), "{name} is missing in {picture}");
    }
    assert_eq!(picture.matches("<circle").count(), 3);
}
