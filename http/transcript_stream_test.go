package http_test

import (
	"bufio"
	"fmt"
	"io"
	nethttp "net/http"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// follower is an open stream.
type follower struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *stage) stream(command, name string, d *datadriven.TestData) string {
	if command == "open" {
		return s.open(name, d)
	}
	f := s.streams[name]
	if f == nil {
		s.Fatalf("no stream %s", name)
	}
	switch command {
	case "read":
		n, _ := strconv.Atoi(d.CmdArgs[1].Key)
		return s.label("\n" + f.frames(n))[1:]
	case "end":
		left := f.frames(1 << 30)
		if err := f.lines.Err(); err != nil {
			left += "not clean: " + err.Error() + "\n"
		}
		delete(s.streams, name)
		return s.label("\n" + left)[1:]
	}
	f.body.Close()
	delete(s.streams, name)
	return ""
}

func (s *stage) open(name string, d *datadriven.TestData) string {
	path := events
	if d.HasArg("path") {
		d.ScanArgs(s.T, "path", &path)
	}
	r, err := nethttp.NewRequestWithContext(s.Context(), "GET", s.live.URL+s.unlabelPath(path), nil)
	if err != nil {
		s.Fatal(err)
	}
	r.Host = "localhost:8080" // of the public URL
	r.Header.Set("Authorization", "Bearer "+s.keys[s.as])
	if cursor := strings.TrimSpace(d.Input); cursor != "" {
		r.Header.Set("Last-Event-ID", s.unlabel(cursor))
	}
	if d.HasArg("reads") {
		r.URL.RawQuery = "reads=1"
	}
	response, err := s.live.Client().Do(r)
	if err != nil {
		s.Fatal(err)
	}
	if response.StatusCode != 200 {
		defer response.Body.Close()
		return s.render(response)
	}
	s.node.Server.Flush()
	s.streams[name] = &follower{response.Body, bufio.NewScanner(response.Body)}
	return "200\n"
}

// frames reads n frames, or all frames before the end; it skips comments and retry.
func (f *follower) frames(n int) string {
	var out strings.Builder
	for n > 0 && f.lines.Scan() {
		line := f.lines.Text()
		if line == "" || strings.HasPrefix(line, ":") || strings.HasPrefix(line, "retry:") {
			continue
		}
		fmt.Fprintln(&out, line)
		if strings.HasPrefix(line, "data:") {
			n--
		}
	}
	return out.String()
}
