# Adds up what cargo's test programs and the guest runner say: "passed failed".
/^test result: / {
    passed += $4
    failed += $6
}
/^[0-9]+ passed, [0-9]+ failed$/ {
    passed += $1
    failed += $3
}
END {
    print passed + 0, failed + 0
}
