package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxOutput bounds the lines of output that are held for a test or a package: the first half and the last half of it.
const maxOutput = 20_000

// An event is a line of go test -json (go doc test2json).
type event struct {
	Time        time.Time
	Action      string
	Package     string
	Test        string
	Elapsed     float64
	Output      string
	ImportPath  string // of a build
	FailedBuild string
}

// A run is one execution of the tests of a package.
type run struct {
	path        string // of the package
	began, last time.Time
	ended       string // "pass", "fail" or "skip"; "" for a run that was cut off
	failedBuild string
	output      output // of the package, outside of its tests
	tests       map[string]*test
}

// A test is a test, a subtest, a fuzz target or an example in one run.
type test struct {
	name    string
	began   time.Time
	ended   string // "" for a test that has begun and not ended
	elapsed time.Duration
	output  output
}

// output is what a test or a package has printed, without the lines that go test adds.
type output struct {
	lines   []string
	partial bool // the last line has no end yet
	dropped int
}

func (o *output) add(text string) {
	if text == "" {
		return
	}
	line := strings.TrimRight(text, "\n")
	if o.partial {
		o.lines[len(o.lines)-1] += line
	} else if frame.MatchString(line) {
		return
	} else {
		o.lines = append(o.lines, line)
	}
	o.partial = !strings.HasSuffix(text, "\n")
	if len(o.lines) > maxOutput {
		o.lines = slices.Delete(o.lines, maxOutput/2, maxOutput/2+maxOutput/4)
		o.dropped += maxOutput / 4
	}
}

// frame matches the lines that go test prints around a test's own output.
var frame = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)

// readRuns returns the runs of all packages in the order of their beginnings, with the output of builds in the package's output.
// Lines that are no events are ignored: a process that outlives its test may write into the middle of a line.
func readRuns(events io.Reader) ([]*run, error) {
	r := reader{open: map[string]*run{}, builds: map[string]*output{}}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil {
			r.add(e)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	for _, run := range r.runs {
		if built := r.builds[run.failedBuild]; built != nil {
			run.output.lines = append(slices.Clone(built.lines), run.output.lines...)
		}
	}
	if len(r.runs) == 0 {
		return nil, fmt.Errorf("no tests were run")
	}
	return r.runs, nil
}

type reader struct {
	runs   []*run
	open   map[string]*run // the last run of each package
	builds map[string]*output
}

func (r *reader) add(e event) {
	if e.ImportPath != "" {
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &output{}
		}
		r.builds[e.ImportPath].add(e.Output)
		return
	}
	current := r.open[e.Package]
	if e.Action == "start" || current == nil {
		current = &run{path: e.Package, began: e.Time, tests: map[string]*test{}}
		r.open[e.Package] = current
		r.runs = append(r.runs, current)
	}
	current.add(e)
}

func (r *run) add(e event) {
	r.last = e.Time
	if e.Test == "" {
		switch e.Action {
		case "output":
			r.output.add(e.Output)
		case "pass", "fail", "skip":
			r.ended, r.failedBuild = e.Action, e.FailedBuild
		}
		return
	}
	t := r.tests[e.Test]
	if t == nil {
		t = &test{name: e.Test, began: e.Time}
		r.tests[e.Test] = t
	}
	switch e.Action {
	case "output":
		t.output.add(e.Output)
	case "pass", "fail", "skip":
		t.ended, t.elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
	}
}

// failures returns the failed tests of the run in the order of their names, without the tests that failed only because a subtest
// did. A test that had not ended when its process did has failed.
func (r *run) failures() []*test {
	var failed []*test
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		if r.failed(r.tests[name]) && !r.failedByOthers(name) {
			failed = append(failed, r.tests[name])
		}
	}
	return failed
}

func (r *run) failed(t *test) bool {
	return t.ended == "fail" || t.ended == "" && r.ended != "pass"
}

// failedByOthers reports whether a subtest of the test failed and the test itself has printed nothing but its result.
func (r *run) failedByOthers(name string) bool {
	for _, line := range r.tests[name].output.lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			return false
		}
	}
	for other, t := range r.tests {
		if strings.HasPrefix(other, name+"/") && r.failed(t) {
			return true
		}
	}
	return false
}

func (r *run) unfinished() []*test {
	var unfinished []*test
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		if r.tests[name].ended == "" {
			unfinished = append(unfinished, r.tests[name])
		}
	}
	return unfinished
}
