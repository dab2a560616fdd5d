package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxFailures is the number of failures above which no test is run again.
const maxFailures = 20

// A failure is a test, or a package as a whole, in the run in which it failed.
type failure struct {
	path, test string
	reason     string // why running it again says nothing; "" for a test that may be run again
	took       []time.Duration
	passed     bool // in a later run
	output     []string
}

type verdict struct {
	packages, tests int
	failed          []*failure // of tests that never passed and of packages
	unsteady        []*failure // of tests that passed when they were run again
	more            string     // why nothing was run again
}

func (v *verdict) isRed() bool { return len(v.failed) > 0 || v.more != "" }

// decide tells what failed in the runs. A package's first run tells most; a later one is of single tests that have failed.
func decide(runs []*run) *verdict {
	v := &verdict{}
	first := map[string]bool{}
	failures := map[string]*failure{} // of tests that may be run again
	var order []string
	for _, r := range runs {
		if !first[r.path] {
			first[r.path] = true
			v.packages++
			v.tests += len(r.tests)
		}
		if f := r.wholeFailure(); f != nil {
			v.failed = append(v.failed, f)
			continue
		}
		for _, t := range r.failures() {
			key := r.path + " " + t.name
			if failures[key] == nil {
				failures[key] = &failure{path: r.path, test: t.name, output: t.output.lines}
				order = append(order, key)
			}
			failures[key].took = append(failures[key].took, t.elapsed)
		}
		for _, t := range r.tests {
			if f := failures[r.path+" "+t.name]; f != nil && t.ended == "pass" {
				f.took, f.passed = append(f.took, t.elapsed), true
			}
		}
	}
	slices.Sort(order)
	for _, key := range order {
		if f := failures[key]; f.passed {
			v.unsteady = append(v.unsteady, f)
		} else {
			v.failed = append(v.failed, f)
		}
	}
	if len(order) > maxFailures {
		v.more = fmt.Sprintf("%d tests failed, more than %d: none was run again", len(order), maxFailures)
	}
	slices.SortStableFunc(v.failed, func(a, b *failure) int { return cmp.Compare(b.reason, a.reason) })
	return v
}

var (
	crash = regexp.MustCompile(`^(panic: |fatal error: |unexpected fault address|SIG[A-Z]+: )`)
	late  = regexp.MustCompile(`^panic: test timed out after`)
)

// wholeFailure returns the failure of the run if it concerns more than the tests that failed in it, and else nil.
func (r *run) wholeFailure() *failure {
	if r.ended == "pass" || r.ended == "skip" {
		return nil
	}
	f := &failure{path: r.path, took: []time.Duration{r.last.Sub(r.began)}}
	if r.ended == "" {
		f.reason, f.output = "cut off", r.describeUnfinished()
		return f
	}
	if r.failedBuild != "" {
		f.reason, f.output = "does not build", r.output.lines
		return f
	}
	candidates := append([]*test{{output: r.output}}, r.failures()...)
	for _, t := range candidates {
		if at := slices.IndexFunc(t.output.lines, func(l string) bool { return strings.Contains(l, "WARNING: DATA RACE") }); at >= 0 {
			f.test, f.reason, f.output = t.name, "data race", t.output.lines[at:]
			return f
		}
	}
	for _, t := range candidates {
		at := slices.IndexFunc(t.output.lines, crash.MatchString)
		if at < 0 || t.ended == "fail" && !endsProcess(t.output.lines[at:]) {
			continue
		}
		f.test, f.reason, f.output = t.name, "panic", t.output.lines[at:]
		if late.MatchString(t.output.lines[at]) {
			f.test, f.reason, f.output = r.lateTest(t.output.lines[at:])
		}
		return f
	}
	if unfinished := r.unfinished(); len(unfinished) > 0 {
		f.test, f.reason = unfinished[0].name, "ended its process"
		f.output = append(append([]string{}, unfinished[0].output.lines...), r.output.lines...)
		return f
	}
	if len(r.failures()) == 0 {
		f.reason, f.output = "failed outside of its tests", r.output.lines
		return f
	}
	return nil
}

// endsProcess reports whether output that begins like a crash is one: a failed test may print the crash of a process that it ran.
func endsProcess(lines []string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "goroutine ") })
}

// describeUnfinished lists the tests that were running when the run was cut off.
func (r *run) describeUnfinished() []string {
	lines := []string{"running when the run was cut off:"}
	for _, t := range r.unfinished() {
		lines = append(lines, fmt.Sprintf("\t%s (for %.0f s)", t.name, r.last.Sub(t.began).Seconds()))
	}
	return append(lines, r.output.lines...)
}

var (
	runningTest = regexp.MustCompile(`^\t\t(\S+) \([^)]*\)$`)
	goroutine   = regexp.MustCompile(`^goroutine \d+ `)
)

// lateTest returns the test that did not end in time, the reason, and of the dump of all goroutines those that the running tests
// have started or are in.
func (r *run) lateTest(lines []string) (name, reason string, shown []string) {
	var running []string
	head := lines
	if at := slices.IndexFunc(lines, goroutine.MatchString); at >= 0 {
		head, lines = lines[:at], lines[at:]
	}
	for _, l := range head {
		if m := runningTest.FindStringSubmatch(l); m != nil {
			running = append(running, m[1])
		}
	}
	shown = append(shown, head...)
	hidden := 0
	for stack := range stacks(lines) {
		if slices.ContainsFunc(running, func(test string) bool { return r.isOfTest(stack, test) }) {
			shown = append(append(shown, stack...), "")
		} else {
			hidden++
		}
	}
	shown = append(shown, fmt.Sprintf("(%d goroutines without a function of a running test are left out)", hidden))
	return strings.Join(running, ", "), "timed out", shown
}

// isOfTest reports whether a function of the test is on the stack.
func (r *run) isOfTest(stack []string, test string) bool {
	root, _, _ := strings.Cut(test, "/")
	return slices.ContainsFunc(stack, func(l string) bool {
		_, after, found := strings.Cut(l, "."+root)
		return found && (after == "" || strings.ContainsAny(after[:1], "(. "))
	})
}

// stacks yields the goroutines of a dump.
func stacks(lines []string) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		var stack []string
		for _, l := range append(lines, "goroutine 0 ") {
			if goroutine.MatchString(l) && len(stack) > 0 {
				if !yield(stack) {
					return
				}
				stack = nil
			}
			if l != "" {
				stack = append(stack, l)
			}
		}
	}
}
