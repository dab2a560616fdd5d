package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// maxOfFailure bounds the lines of one failure in the first part, where all of its output stands.
const maxOfFailure = 400

// print prints all failures with their output, and then a summary of the given number of lines.
func (v *verdict) print(to io.Writer, lines int) {
	all := append(append([]*failure{}, v.unsteady...), v.failed...)
	for _, f := range all {
		fmt.Fprintf(to, "\n=== %s\n", f.title())
		write(to, excerpt(f.output, maxOfFailure))
	}
	fmt.Fprintf(to, "\n%d packages, %d tests, %d failed, %d unsteady\n", v.packages, v.tests, len(v.failed), len(v.unsteady))
	if v.more != "" {
		fmt.Fprintln(to, v.more)
	}
	left := lines - 4
	summarize(to, "unsteady (failed, and passed when run again: a defect to be mended):", v.unsteady, left-min(left/2, len(v.failed)*8))
	summarize(to, "failed:", v.failed, left-min(left/2, len(v.unsteady)*8))
}

// summarize prints the failures in at most the given number of lines: each has an equal number, and at least its title.
func summarize(to io.Writer, title string, failures []*failure, lines int) {
	if len(failures) == 0 {
		return
	}
	fmt.Fprintln(to, title)
	for i, f := range failures {
		if lines <= 2 && i < len(failures)-1 {
			fmt.Fprintf(to, "and %d more, which are above\n", len(failures)-i)
			return
		}
		fmt.Fprintf(to, "--- %s\n", f.title())
		shown := excerpt(f.withoutResult(), max(0, lines/(len(failures)-i)-1))
		write(to, shown)
		lines -= 1 + len(shown)
	}
}

// withoutResult returns the output without the line that only names the failed test, which the title does.
func (f *failure) withoutResult() []string {
	return slices.DeleteFunc(slices.Clone(f.output), func(l string) bool {
		return strings.HasPrefix(strings.TrimSpace(l), "--- FAIL: "+f.test+" (")
	})
}

// title is the name of what failed, why, and how long each run took.
func (f *failure) title() string {
	words := []string{f.path}
	if f.test != "" {
		words = append(words, f.test)
	}
	if f.reason != "" {
		words = append(words, "["+f.reason+"]")
	}
	var took []string
	for _, d := range f.took {
		took = append(took, fmt.Sprintf("%.2f s", d.Round(10*time.Millisecond).Seconds()))
	}
	return strings.Join(words, " ") + " (" + strings.Join(took, ", ") + ")"
}

// telling matches the lines that say why a test failed: messages of the test, and the beginnings of panics and races.
var telling = regexp.MustCompile(`^\s*(\S+\.go:\d+: |panic: |fatal error: |WARNING: DATA RACE)|: error:`)

// excerpt returns at most n of the lines. It prefers the lines that say why the test failed, then the lines after these, then the last
// lines.
func excerpt(lines []string, n int) []string {
	for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
		lines = lines[:len(lines)-1]
	}
	if len(lines) <= n {
		return lines
	}
	if n < 2 {
		return nil
	}
	chosen := make([]bool, len(lines))
	left := n - 1 // one line says what is left out
	choose := func(i int) {
		if left > 0 && i < len(lines) && !chosen[i] {
			chosen[i] = true
			left--
		}
	}
	for i, l := range lines {
		if telling.MatchString(l) {
			choose(i)
		}
	}
	for after := 1; after <= 8; after++ {
		for i, l := range lines {
			if telling.MatchString(l) {
				choose(i + after)
			}
		}
	}
	for i := len(lines) - 1; i >= 0; i-- {
		choose(i)
	}
	shown := []string{fmt.Sprintf("    (%d of %d lines)", n-1, len(lines))}
	for i, l := range lines {
		if chosen[i] {
			shown = append(shown, l)
		}
	}
	return shown
}

// maxLine bounds a line, in bytes: tests print whole documents.
const maxLine = 600

func write(to io.Writer, lines []string) {
	for _, l := range lines {
		if len(l) > maxLine {
			l = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(l[:maxLine], ""), len(l))
		}
		fmt.Fprintln(to, l)
	}
}
