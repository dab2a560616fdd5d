package main

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// leftOut is what package tests/race prints when it skips a test because of the race detector.
const leftOut = "not with the race detector: "

// checkLeftOut fails each test that was left out because of the race detector, unless the file has it, which lists the tests that passed in
// earlier runs. Then it adds the tests that passed in these runs to the file.
func (v *verdict) checkLeftOut(runs []*run, name string) error {
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	passed := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		passed[strings.TrimSuffix(line, "\n")] = true
	}
	var added strings.Builder
	for _, r := range runs {
		for _, name := range slices.Sorted(maps.Keys(r.tests)) {
			t := r.tests[name]
			isLeftOut := slices.ContainsFunc(t.output.lines, func(l string) bool { return strings.Contains(l, leftOut) })
			switch {
			case t.ended == "pass":
				added.WriteString(r.path + " " + t.name + "\n")
			case t.ended == "skip" && isLeftOut && !passed[r.path+" "+t.name]:
				v.failed = append(v.failed, &failure{path: r.path, test: t.name, reason: "has passed in no run", output: t.output.lines})
			}
		}
	}
	return os.WriteFile(name, append(content, added.String()...), 0o600)
}
