// Verdict reads what the runs of tests printed and ends with the tests that failed.
//
//	verdict [-lines N] [-passed FILE] EVENTS
//
// EVENTS is the file of events that gotestsum wrote while it ran tests and ran the failed ones again: the output of go test -json,
// one run of a package after another. The verdict is red, and its exit code 1, when a test failed in each of its runs, and when a
// first run failed in a way that running one test again says nothing about: a package that does not build, a data race, a panic, a
// time-out, a test that ended its process, a package that failed without a failed test, more than 20 failures, and a run that was
// cut off. A test that failed and then passed is unsteady. It is listed with its first output, and does not make the verdict red.
//
// FILE lists the tests that passed, for the next verdict: a test that is left out because of the race detector must have passed without the
// detector before.
//
// The output of each failure is printed twice: up to a few hundred lines of it first, and then, at the end, as much as fits into N
// lines together with all other failures, so that the end of a log says what to mend.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	lines := flag.Int("lines", 44, "the number of lines of the summary at the end")
	passed := flag.String("passed", "", "the file of the tests that passed in earlier runs, to which those of this run are added")
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	red, err := judge(flag.Arg(0), *passed, *lines, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
		os.Exit(2)
	}
	if red {
		os.Exit(1)
	}
}

// judge prints the verdict on the events of a file and reports whether it is red. passed is the file of the tests that passed; "": none.
func judge(name, passed string, lines int, to io.Writer) (bool, error) {
	file, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer file.Close()
	runs, err := readRuns(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	v := decide(runs)
	if passed != "" {
		err = v.checkLeftOut(runs, passed)
	}
	out := bufio.NewWriter(to)
	v.print(out, lines)
	return v.isRed(), errors.Join(err, out.Flush())
}
