package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/client"
)

// parseFrames parses lines of JSON: a row, or a delta, which is an object with the key delta.
func parseFrames(t *testing.T, lines string) (frames []client.SessionFrame) {
	t.Helper()
	for line := range strings.Lines(lines) {
		var delta struct{ Delta *string }
		var row client.SessionRow
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := json.Unmarshal([]byte(line), &delta); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if delta.Delta != nil {
			frames = append(frames, client.SessionFrame{Delta: &client.SessionDelta{InputSeq: 1, Text: *delta.Delta}})
			continue
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		frames = append(frames, client.SessionFrame{Row: &row})
	}
	return frames
}

func printFrames(t *testing.T, p *rowPrinter, frames []client.SessionFrame) string {
	t.Helper()
	var out strings.Builder
	p.to = &out
	for _, f := range frames {
		if err := p.print(f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// A printTest prints frames twice: plain is printed to a file, terminal to a terminal; empty: the same.
type printTest struct {
	name, frames    string
	plain, terminal string
}

func (test printTest) check(t *testing.T) {
	t.Run(test.name, func(t *testing.T) {
		frames := parseFrames(t, test.frames)
		if got := printFrames(t, &rowPrinter{maxOutput: outputLines}, frames); got != test.plain {
			t.Errorf("plain\ngot  %q\nwant %q", got, test.plain)
		}
		want := test.terminal
		if want == "" {
			want = test.plain
		}
		if got := printFrames(t, &rowPrinter{maxOutput: outputLines, isTerminal: true, columns: 60}, frames); got != want {
			t.Errorf("terminal\ngot  %q\nwant %q", got, want)
		}
	})
}

func TestPrintRows(t *testing.T) {
	for _, test := range []printTest{
		{
			name: "inputs",
			frames: `{"kind":"input","input":"prompt","sender":{"kind":"user","userId":"usr_1"},"text":"say a\n$ ls\n","attachments":[{"path":"a/b.txt","name":"b","size":3}]}
				{"kind":"input","input":"note","sender":{"kind":"session","sessionId":"ses_2"},"text":"careful","images":[{"mediaType":"image/png","size":7}]}
				{"kind":"input","input":"message","sender":{"kind":"system"},"text":"awake"}`,
			plain: "> say a\n  $ ls\n  with a/b.txt, 3 bytes\n> [note from ses_2] careful\n  with an image, image/png, 7 bytes\n> [from system] awake\n",
		},
		{
			name: "texts_of_an_input_are_one_text",
			frames: `{"kind":"text","inputSeq":1,"text":"One. "}
				{"kind":"text","inputSeq":1,"text":"Two."}
				{"kind":"text","inputSeq":9,"text":"Three."}
				{"kind":"terminal","inputSeq":9,"turnStatus":"complete"}`,
			plain: "One. Two.\nThree.\n= complete\n",
		},
		{
			name: "text_is_printed_once",
			frames: `{"delta":"He"}
				{"delta":"llo"}
				{"kind":"text","inputSeq":1,"text":"Hello, you"}
				{"delta":" there"}
				{"kind":"text","inputSeq":1,"text":" th"}
				{"kind":"text","inputSeq":1,"text":"ere"}
				{"kind":"terminal","inputSeq":1,"turnStatus":"sleep"}`,
			plain: "Hello, you there\n= sleep\n",
		},
		{
			name: "a_missed_part_of_a_text_is_printed_with_its_row",
			frames: `{"delta":"llo"}
				{"kind":"text","inputSeq":1,"text":"Hello"}
				{"kind":"ask","text":"Sure?"}`,
			plain: "Hello\n? Sure?\n", terminal: "llo\nHello\n? Sure?\n",
		},
		{
			name: "a_row_between_a_text_and_its_row",
			frames: `{"delta":"Hel"}
				{"kind":"setting","title":"T"}
				{"delta":"lo"}
				{"kind":"text","inputSeq":1,"text":"Hello"}
				{"kind":"text","inputSeq":1,"text":"!"}`,
			plain: "# title: T\nHello!", terminal: "Hel\n# title: T\nlo!",
		},
		{
			name: "tools",
			frames: `{"kind":"tool","toolCallId":"1","title":"ls\nmore","status":"pending"}
				{"kind":"tool","toolCallId":"1","title":"ls\nmore","status":"completed","output":"\na\n\tb\n"}
				{"kind":"tool","toolCallId":"2","title":"make","status":"in_progress"}
				{"kind":"text","inputSeq":1,"text":"meanwhile"}
				{"kind":"tool","toolCallId":"2","title":"make","status":"failed","output":"[exit status 2]"}
				{"kind":"tool","toolCallId":"3","title":"sleep","status":"pending"}
				{"kind":"terminal","inputSeq":1,"turnStatus":"interrupted","error":{"code":"runner_lost","message":"The server was stopped."}}`,
			plain:    "* ls\n  more\n    a\n    \tb\nmeanwhile\n! make\n    [exit status 2]\n! sleep (it has not ended)\n= interrupted: The server was stopped. (runner_lost)\n",
			terminal: "* ls … …\r\x1b[K* ls\n  more\n    a\n    \tb\n* make …\nmeanwhile\n! make\n    [exit status 2]\n* sleep …\n! sleep (it has not ended)\n= interrupted: The server was stopped. (runner_lost)\n",
		},
		{
			name: "text_that_comes_before_the_end_of_a_tool",
			frames: `{"kind":"tool","toolCallId":"1","title":"ls","status":"pending"}
				{"delta":"Done."}
				{"kind":"tool","toolCallId":"1","title":"ls","status":"completed"}
				{"delta":" B"}
				{"kind":"text","inputSeq":1,"text":"Done. Bye."}
				{"kind":"terminal","inputSeq":1,"turnStatus":"complete"}`,
			plain: "* ls\nDone. Bye.\n= complete\n", terminal: "* ls …\r\x1b[K* ls\nDone. Bye.\n= complete\n",
		},
	} {
		test.check(t)
	}
}

func TestPrintOtherRows(t *testing.T) {
	for _, test := range []printTest{
		{
			name: "plan_ask_and_settings",
			frames: `{"kind":"plan","steps":[{"text":"read","status":"completed"},{"text":"write","status":"in_progress"},{"text":"test","status":"pending"}]}
				{"kind":"thought","inputSeq":1,"text":"hm\nno"}
				{"kind":"ask","text":"Go on?\nReally?","options":[{"id":"1","label":"Yes"},{"id":"no","label":"no"}]}
				{"kind":"setting","cwd":""}
				{"kind":"setting","tier":"frontier"}`,
			plain: "- plan\n    [x] read\n    [>] write\n    [ ] test\n~ hm\n  no\n? Go on?\n  Really?\n    1  Yes\n    no\n# directory: /\n# tier: frontier\n",
		},
		{
			name: "terminals_are_not_controlled",
			frames: `{"delta":"\u001b[2J"}
				{"kind":"text","inputSeq":1,"text":"\u001b[2Ja\u202eb\u0007"}
				{"kind":"tool","toolCallId":"1","title":"\u009b1m","status":"completed","output":"1 %\r2 %\r\nend"}`,
			plain: "[2Jab\n* 1m\n    1 %\n    2 %\n    end\n",
		},
	} {
		test.check(t)
	}
}

func TestPrintOutput(t *testing.T) {
	var output strings.Builder
	for i := range 50 {
		fmt.Fprintf(&output, "line %d\n", i)
	}
	tool := []client.SessionFrame{{Row: &client.SessionRow{Kind: "tool", Title: "t", Status: "completed", Output: output.String()}}}
	short := printFrames(t, &rowPrinter{maxOutput: outputLines}, tool)
	if strings.Count(short, "\n") != 22 || !strings.Contains(short, "line 9\n    … 30 more lines; --full prints them\n    line 40\n") {
		t.Error(short)
	}
	if full := printFrames(t, &rowPrinter{}, tool); strings.Count(full, "\n") != 51 {
		t.Error(full)
	}
	tool[0].Row.Output = strings.Repeat("ä", 2*outputColumns)
	if cut := printFrames(t, &rowPrinter{maxOutput: outputLines}, tool); cut != "* t\n    "+strings.Repeat("ä", outputColumns-2)+" …\n" {
		t.Error(cut)
	}
}

func TestPrintColors(t *testing.T) {
	frames := parseFrames(t, `{"kind":"ask","text":"a\nb"}
		{"kind":"terminal","turnStatus":"interrupted"}`)
	want := "\x1b[1m? a\x1b[0m\n\x1b[1m  b\x1b[0m\n\x1b[31m= interrupted\x1b[0m\n"
	if got := printFrames(t, &rowPrinter{hasColors: true}, frames); got != want {
		t.Errorf("%q", got)
	}
}

// TestTailEnds checks which rows a tail prints, and which row ends it.
func TestTailEnds(t *testing.T) {
	const rows = `{"seq":1,"kind":"input","input":"prompt","text":"a","clientRequestId":"r1"}
		{"seq":3,"kind":"text","inputSeq":1,"text":"b"}
		{"seq":4,"kind":"input","input":"note","text":"n"}
		{"seq":5,"kind":"terminal","inputSeq":1,"turnStatus":"ask"}
		{"seq":6,"kind":"input","input":"answer","text":"yes","clientRequestId":"r2"}
		{"seq":7,"kind":"input","input":"message","text":"later","clientRequestId":"r3"}
		{"seq":8,"kind":"terminal","inputSeq":6,"turnStatus":"interrupted"}
		{"seq":9,"kind":"terminal","inputSeq":7,"turnStatus":"complete"}`
	for _, test := range []struct {
		name   string
		tail   tail
		shown  string
		status string
	}{
		{"the_present", tail{present: 5}, "1 3 4 5", turnAsk},
		{"an_open_input", tail{present: 6}, "1 3 4 5 6 7 8 9", turnComplete},
		{"since", tail{present: 9, since: 7}, "8 9", turnComplete},
		{"since_the_end", tail{present: 5, since: 5}, "", turnAsk},
		{"a_request", tail{requestID: "r2"}, "6 7 8", turnInterrupted},
		{"a_hidden_input", tail{requestID: "r2", hidesInput: true}, "7 8", turnInterrupted},
		{"a_request_that_starts", tail{requestID: "r1"}, "1 3 4 5", turnAsk},
		{"endless", tail{isEndless: true, since: 8}, "9", turnComplete},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.tail.open = map[uint64]bool{}
			var shown []string
			ended := false
			for _, f := range parseFrames(t, rows) {
				if test.tail.isShown(f) {
					shown = append(shown, fmt.Sprint(f.Row.Seq))
				}
				if ended = test.tail.isEnd(*f.Row); ended {
					break
				}
			}
			if got := strings.Join(shown, " "); got != test.shown || test.tail.status != test.status || ended == test.tail.isEndless {
				t.Errorf("shown %s, status %s, ended %v", got, test.tail.status, ended)
			}
		})
	}
}
