# Adds up what cargo's test programs and the guest runner say: how many tests passed, how many failed, and how many said so.
/^test result: / {
    passed += $4
    failed += $6
    verdicts++
}
/^[0-9]+ passed, [0-9]+ failed$/ {
    passed += $1
    failed += $3
    verdicts++
}
END {
    print passed + 0, failed + 0, verdicts + 0
}
