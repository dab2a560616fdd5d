package apps

import (
	"context"
	"strings"
	"testing"
)

// TestStoredLogEnds reads a log. Each read adds a line to the log, as an app does that writes faster than its client reads.
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
			read := func(after uint64, limit int) Lines {
				if test.isFollowed && after == last {
					last++
				}
				news := make(chan struct{})
				if after+1 < last || test.isFollowed {
					close(news)
				}
				found := Lines{Last: last, News: news}
				if limit > 0 && after < last {
					found.Lines = []Line{{Seq: after + 1, Text: string(rune('0' + after + 1))}}
					last++
				}
				return found
			}
			var got []string
			err := sendLog(ctx, read, test.after, test.isFollowed, func(lines []Line, _ bool) error {
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
