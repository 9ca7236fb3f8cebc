# Adds up what cargo's test programs, the guest runner and scripts say: how many tests passed, how many failed, how many were
# skipped, and how many said so. For cargo, a test that left itself out (tests/left_out) has passed.
/^test result: / {
    passed += $4
    failed += $6
    skipped += $8
    verdicts++
}
/^test left out: / {
    passed--
    skipped++
}
/^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/ {
    passed += $1
    failed += $3
    skipped += $5
    verdicts++
}
END {
    print passed + 0, failed + 0, skipped + 0, verdicts + 0
}
