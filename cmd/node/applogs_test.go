package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/http/api"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	"github.com/atelier-run/atelier/tests/race"
)

// maxLogEvent is the bound of the length of an event of an app's log, which the reference states (followAppLog).
const maxLogEvent = 64 << 10

// TestLongestLogLines has an app write lines as long as the log takes, and a byte longer, of characters that JSON escapes with the most bytes.
func TestLongestLogLines(t *testing.T) {
	race.Skip(t, "agents and apps are processes; packages runner and computer/apps test the same goroutines")
	const last = "the last line"
	lines := []string{
		strings.Repeat("\x00", apps.MaxLine), strings.Repeat("\x1b", apps.MaxLine), "\x1b", strings.Repeat("\xff\x01", apps.MaxLine/2),
		strings.Repeat("\u2028", apps.MaxLine/3), strings.Repeat("\u0085", apps.MaxLine/2), strings.Repeat(`"\`, apps.MaxLine/2), last,
	}
	a, _ := newApp(t, &appv1.Runtime{Command: command("one"), Port: 20000})
	a.put(testAppPath+"/output", strings.Replace(strings.Join(lines, "\n")+"\n", "\x1b\n\x1b", "\x1b\x1b", 1))
	a.await(a.tell(&appv1.UpdateApp{Command: proto.String("cat output; exec " + command("two"))}).GetGeneration())

	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	response, err := http.DefaultClient.Do(a.newRequest(ctx, "GET", "/v1/ws/acme/apps/site/logs", nil))
	a.check(err)
	defer response.Body.Close()
	var got []string
	var size, longest int
	stream := bufio.NewScanner(response.Body)
	stream.Buffer(nil, 1<<20)
	for stream.Scan() && !slices.Contains(got, last) {
		if bytes.ContainsAny(stream.Bytes(), "\u0085\u2028") {
			t.Errorf("an event has an end of a line: %.100q", stream.Text())
		}
		size += len(stream.Bytes()) + 1
		data, isData := bytes.CutPrefix(stream.Bytes(), []byte("data: "))
		var line api.AppLine
		switch {
		case len(stream.Bytes()) == 0: // the event ends
			longest, size = max(longest, size), 0
		case isData && json.Unmarshal(data, &line) == nil && line.Stream == "stdout":
			got = append(got, line.Text)
		}
	}
	if longest <= 6*apps.MaxLine || longest >= maxLogEvent {
		t.Errorf("the longest event has %d bytes, want more than %d and less than %d", longest, 6*apps.MaxLine, maxLogEvent)
	}
	lines[3] = strings.ToValidUTF8(lines[3], "\uFFFD")
	if at := len(got) - len(lines); at < 0 || !slices.Equal(got[at:], lines) {
		t.Errorf("the log has %d lines that end with %.100q, want %d, %v", len(got), got[max(0, len(got)-1):], len(lines), stream.Err())
	}
}

// TestStoredLogEnds reads a log to which each read adds a line, as an app does that writes faster than its client reads.
func TestStoredLogEnds(t *testing.T) {
	for name, test := range map[string]struct {
		after      uint64
		isFollowed bool
		want       string
	}{
		"all lines so far":  {0, false, "1 2 3"},
		"a part":            {2, false, "3"},
		"none":              {3, false, ""},
		"followed to 5":     {2, true, "3 4 5"},
		"followed from all": {3, true, "4 5"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			last := uint64(3)
			read := func(after uint64, limit int) apps.Lines {
				if test.isFollowed && after == last {
					last++
				}
				news := make(chan struct{})
				if after+1 < last || test.isFollowed {
					close(news)
				}
				found := apps.Lines{Last: last, News: news}
				if limit > 0 && after < last {
					found.Lines = []apps.Line{{Seq: after + 1, Text: string(rune('0' + after + 1))}}
					last++
				}
				return found
			}
			var got []string
			err := sendLog(ctx, read, test.after, test.isFollowed, func(lines []api.AppLine, _ bool) error {
				got = append(got, lines[0].Text)
				if lines[0].Seq == 5 {
					cancel()
					return ctx.Err()
				}
				return nil
			})
			if text := strings.Join(got, " "); text != test.want || err != nil && ctx.Err() == nil {
				t.Errorf("lines %q and %v, want %q", text, err, test.want)
			}
		})
	}
}
