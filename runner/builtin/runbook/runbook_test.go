package runbook_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/atelier-run/atelier/runner/builtin/runbook"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []runbook.Step
	}{
		"commands": {"$ go test ./...\n$? false\r\n\n# a comment\nawait", []runbook.Step{
			{Line: 1, Kind: runbook.Shell, Text: "go test ./..."},
			{Line: 2, Kind: runbook.Shell, Text: "false", MayFail: true},
			{Line: 5, Kind: runbook.Await},
		}},
		"indented block": {"write a/b.txt\n    one\n\n      two\n\nsay done", []runbook.Step{
			{Line: 1, Kind: runbook.Write, Text: "a/b.txt", Block: "one\n\n  two\n"},
			{Line: 6, Kind: runbook.Say, Text: "done"},
		}},
		"block after blank lines": {"write x\n\n\tone\n", []runbook.Step{{Line: 1, Kind: runbook.Write, Text: "x", Block: "one\n"}}},
		"fenced block": {"write x\n````go\n```\n  say no\n````\nsay yes", []runbook.Step{
			{Line: 1, Kind: runbook.Write, Text: "x", Block: "```\n  say no\n"},
			{Line: 6, Kind: runbook.Say, Text: "yes"},
		}},
		"empty file": {"write x\n~~~\n~~~", []runbook.Step{{Line: 1, Kind: runbook.Write, Text: "x"}}},
		"nested blocks": {"start Child\n  write x\n    one\n  say done", []runbook.Step{
			{Line: 1, Kind: runbook.Start, Text: "Child", Block: "write x\n  one\nsay done\n"},
		}},
		"question": {"ask Which? | red | blue", []runbook.Step{{Line: 1, Kind: runbook.Ask, Text: "Which? | red | blue"}}},
		"job":      {"step 0/3 Begin", []runbook.Step{{Line: 1, Kind: runbook.Job, Text: "0/3 Begin"}}},
		"sleeps": {"sleep 90s\nsleep 2d\nsleep 1d12h", []runbook.Step{
			{Line: 1, Kind: runbook.Sleep, Text: "90s"},
			{Line: 2, Kind: runbook.Sleep, Text: "2d"},
			{Line: 3, Kind: runbook.Sleep, Text: "1d12h"},
		}},
		"arguments with the answer": {"sleep {{answer}}", []runbook.Step{{Line: 1, Kind: runbook.Sleep, Text: "{{answer}}"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := runbook.Parse(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestParseRefusesTextsThatAreNoRunbooks(t *testing.T) {
	for _, text := range []string{
		"", "\n \n", "# only a comment", "Hello, what can you do?", "write a poem about the sea", "sleep well", "$ls",
		"step into the light", "start now", "await nothing",
	} {
		if steps, err := runbook.Parse(text); !errors.Is(err, runbook.ErrNotRunbook) {
			t.Errorf("%q: %v, %v", text, steps, err)
		}
	}
}

func TestParseNamesTheInvalidLine(t *testing.T) {
	for text, want := range map[string]string{
		"$ ls\nhello":                            `line 2: "hello" is no instruction`,
		"hello\n$ ls":                            `line 1: "hello" is no instruction`,
		"say a\n  b":                             "line 2: an indented line belongs to no write or start before it",
		"say a\nwrite x\nsay b":                  "line 2: write: no indented or fenced block follows",
		"say a\nwrite x\n```\nb":                 "line 2: write: the block's closing fence is missing",
		"say a\nsay":                             "line 2: nothing follows say",
		"say a\nask A | | B":                     "line 2: the question or an option of ask is empty",
		"say a\nask A" + many("|x", 17):          "line 2: ask has more than 16 options",
		"say a\nask " + many("x", 10_001):        "line 2: the question has 10001 characters, at most 10000 are allowed",
		"say a\nask A|" + many("ö", 201):         "line 2: an option of ask has 201 characters, at most 200 are allowed",
		"say a\nstep 1/2 " + many("ö", 201):      "line 2: the text has 201 characters, at most 200 are allowed",
		"say a\nstart x\n " + many("ö", 200_000): "line 2: the runbook of the child has 200001 characters, at most 200000 are allowed",
		"say a\nsleep 5":                         `line 2: the duration "5" is not like 90s, 1h30m or 2d`,
		"say a\nsleep -5s":                       "line 2: a sleep lasts at least a millisecond",
		"say a\nsleep 2d-1h":                     "line 2: a sleep lasts at least a millisecond",
		"say a\nsleep 9999d":                     "line 2: a sleep lasts at most 366 days",
		"say a\nsleep 65535d999999h":             "line 2: a sleep lasts at most 366 days",
		"say a\nstep 3/2 x":                      `line 2: "3/2" is not like 2/5`,
		"say a\nstep 1/2":                        "line 2: step has no text",
		"say a\nstart" + many("x", 300):          `line 2: "start` + many("x", 35) + `…" is no instruction`,
		many("say a\n", 1001):                    "line 1001: a runbook has at most 1000 instructions",
	} {
		_, err := runbook.Parse(text)
		var syntax *runbook.SyntaxError
		if !errors.As(err, &syntax) || errors.Is(err, runbook.ErrNotRunbook) || err.Error() != want {
			t.Errorf("%.40q: %v", text, err)
		}
	}
}

func many(text string, n int) string { return strings.Repeat(text, n) }

// TestParseReadsWhatIsWritten writes random steps as a text, and parses it.
func TestParseReadsWhatIsWritten(t *testing.T) {
	line := rapid.StringMatching(`[a-zA-Z0-9.,{}"'$#~]([ a-zA-Z0-9.,|/{}"'$#~-]{0,20}[a-zA-Z0-9])?`)
	rapid.Check(t, func(t *rapid.T) {
		var text strings.Builder
		var want []runbook.Step
		number := 1
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			kind := rapid.SampledFrom([]runbook.Kind{
				runbook.Shell, runbook.Write, runbook.Say, runbook.Start, runbook.Await, runbook.Fail,
			}).Draw(t, "kind")
			step := runbook.Step{Line: number, Kind: kind}
			if kind != runbook.Await {
				step.Text = line.Draw(t, "text")
			}
			text.WriteString(step.String() + "\n")
			number++
			if kind == runbook.Write || kind == runbook.Start {
				lines := rapid.SliceOfN(line, 1, 4).Draw(t, "block")
				step.Block = strings.Join(lines, "\n") + "\n"
				if rapid.Bool().Draw(t, "is fenced") {
					text.WriteString("~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n" + step.Block + "~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~\n")
					number += len(lines) + 2
				} else {
					text.WriteString("   " + strings.Join(lines, "\n   ") + "\n")
					number += len(lines)
				}
			}
			want = append(want, step)
		}
		got, err := runbook.Parse(text.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, text.String())
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v\n%s", got, want, text.String())
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"$ a\nwrite b\n  c\n", "write b\n```\nc\n```", "ask a|b\nsleep 1d2h\nstep 1/2 c", "start\n\t \n x", "\r\n$? \x00",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := runbook.Parse(text)
		if (err == nil) == (len(steps) == 0) {
			t.Fatalf("%d steps and error %v", len(steps), err)
		}
		last := 0
		for _, step := range steps {
			if step.Line <= last {
				t.Fatalf("line %d follows line %d", step.Line, last)
			}
			last = step.Line
		}
		state := runbook.State{Steps: steps}
		if err := state.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
