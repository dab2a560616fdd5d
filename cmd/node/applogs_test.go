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
