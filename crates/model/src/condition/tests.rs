use super::*;

#[test]
fn the_first_problem_speaks_for_all() {
    let mut condition = Condition::healthy("well");
    assert!(!condition.is_abnormal());
    assert_eq!(condition.message(), "well");
    condition.extend([
        Problem::new(HealthReason::BackingFileMissing, "its data is missing"),
        Problem::new(HealthReason::PoolFull, "below the floor"),
    ]);
    assert!(condition.is_abnormal());
    assert_eq!(condition.message(), "its data is missing");
    assert_eq!(condition.problems().len(), 2);
}

#[test]
fn a_reason_occurs_once() {
    let mut condition = Condition::abnormal(HealthReason::PoolFull, "first");
    condition.extend([Problem::new(HealthReason::PoolFull, "second")]);
    assert_eq!(condition.problems(), [Problem::new(HealthReason::PoolFull, "first")]);
}
