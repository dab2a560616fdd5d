package webdav_test

import "testing"

// TestRanges asks for ranges in all forms of RFC 9110, section 14.
func TestRanges(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/file", "0123456789").is(201)
	s.do("PUT", "/empty", "").is(201)
	const huge = "99999999999999999999999"
	for header, want := range map[string]struct {
		status        int
		content, body string
	}{
		"bytes=2-3":               {206, "bytes 2-3/10", "23"},
		"Bytes=2-3":               {206, "bytes 2-3/10", "23"},
		"bytes=-2":                {206, "bytes 8-9/10", "89"},
		"bytes=-" + huge:          {206, "bytes 0-9/10", "0123456789"},
		"bytes=8-" + huge:         {206, "bytes 8-9/10", "89"},
		"bytes=0000000000000008-": {206, "bytes 8-9/10", "89"},
		"bytes=-0,2-3":            {206, "bytes 2-3/10", "23"},
		"bytes= 2-3 ":             {206, "bytes 2-3/10", "23"},
		"bytes=-0":                {416, "bytes */10", ""},
		"bytes=-000":              {416, "bytes */10", ""},
		"bytes=10-":               {416, "bytes */10", ""},
		"bytes=" + huge + "-":     {416, "bytes */10", ""},
		"bytes=3-2":               {416, "", ""},
		"bytes=x-2":               {416, "", ""},
		"bytes=2":                 {416, "", ""},
		"lines=2-3":               {200, "", "0123456789"},
		"bytes":                   {200, "", "0123456789"},
		"none":                    {200, "", "0123456789"},
	} {
		got := s.do("GET", "/file", "", "Range: "+header).is(want.status)
		if got.header.Get("Content-Range") != want.content || want.body != "" && got.body != want.body {
			t.Errorf("%s: Content-Range %q and %q, want %q and %q", header, got.header.Get("Content-Range"), got.body, want.content, want.body)
		}
	}
	for _, header := range []string{"bytes=-1", "bytes=-0", "bytes=0-", "bytes=5-9", "Bytes=-1", "lines=0-"} {
		if got := s.do("GET", "/empty", "", "Range: "+header).is(200); got.body != "" || got.header.Get("Content-Range") != "" {
			t.Errorf("%s of an empty file: %q, %v", header, got.body, got.header)
		}
	}
}
