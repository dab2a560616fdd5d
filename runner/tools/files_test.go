package tools_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/runner/tools"
)

// files has a drive in memory.
type files struct {
	content map[string][]byte
	// folders has the names of the entries of folders.
	folders map[string][]string
}

func newFiles() *files {
	return &files{content: map[string][]byte{}, folders: map[string][]string{}}
}

func (f *files) Read(_ context.Context, _ entity.DriveAccess, path string, offset, limit int64) ([]byte, int64, error) {
	content, ok := f.content[path]
	if !ok {
		return nil, 0, entity.Errorf(entity.NotFound, "no such file")
	}
	size := int64(len(content))
	return content[min(offset, size):min(offset+limit, size)], size, nil
}

func (f *files) Write(_ context.Context, access entity.DriveAccess, path string, content []byte) (bool, error) {
	if err := access.Authorize(); err != nil {
		return false, err
	}
	_, exists := f.content[path]
	f.content[path] = content
	return !exists, nil
}

func (f *files) List(_ context.Context, _ entity.DriveAccess, folder string, visit func(tools.FileEntry) bool) error {
	names, ok := f.folders[folder]
	if !ok {
		return entity.Errorf(entity.NotFound, "no such folder")
	}
	for _, name := range names {
		if !visit(tools.FileEntry{Name: name}) {
			return nil
		}
	}
	return nil
}

func TestFiles(t *testing.T) {
	drive := newFiles()
	w := newWorld(t, func(o *tools.Options) { o.Files = drive })
	c := w.client(person)
	text, binary := strings.Repeat("a€", 20_000), bytes.Repeat([]byte{0xff, 0}, 20_000)
	c.must("write_file", arguments{"workspace": slugName, "path": "t", "text": text}, nil)
	c.must("write_file", arguments{"workspace": slugName, "path": "b", "base64": base64.StdEncoding.EncodeToString(binary)}, nil)
	for path, want := range map[string]string{"t": text, "b": string(binary)} {
		var got strings.Builder
		for offset := int64(0); ; {
			var out struct {
				Text, Base64 string
				NextOffset   int64
			}
			c.must("read_file", arguments{"workspace": slugName, "path": path, "offset": offset}, &out)
			decoded, err := base64.StdEncoding.DecodeString(out.Base64)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString(out.Text + string(decoded))
			if offset = out.NextOffset; offset == 0 {
				break
			}
		}
		if got.String() != want {
			t.Errorf("%s: read %d bytes that differ from the %d written", path, got.Len(), len(want))
		}
	}
	for _, wrong := range []arguments{
		{"path": "a/../b", "text": "x"}, {"path": "b", "base64": "%"}, {"path": "b", "base64": "AA==", "text": "x"},
	} {
		wrong["workspace"] = slugName
		if got := c.call("write_file", wrong, nil); !strings.HasPrefix(got, "invalid_request") {
			t.Errorf("%v: %q", wrong, got)
		}
	}
	if got := c.call("read_file", arguments{"workspace": slugName, "path": "none"}, nil); got != "not_found: no such file" {
		t.Error(got)
	}
	w.failure = entity.Errorf(entity.Forbidden, "the credential may not do this")
	for _, tool := range []string{"read_file", "write_file"} {
		if got := c.call(tool, arguments{"workspace": slugName, "path": "t"}, nil); !strings.HasPrefix(got, "forbidden") {
			t.Errorf("%s: %q", tool, got)
		}
	}
}

func TestListFiles(t *testing.T) {
	drive := newFiles()
	drive.folders[""] = nil
	for i := range 250 {
		drive.folders["many"] = append(drive.folders["many"], fmt.Sprintf("%03d", i*7%250))
	}
	c := newWorld(t, func(o *tools.Options) { o.Files = drive }).client(person)
	var names []string
	for after := ""; ; {
		var out struct {
			Entries []tools.FileEntry
			More    bool
		}
		in := arguments{"workspace": slugName, "path": "many", "limit": 99}
		if after != "" {
			in["after"] = after
		}
		c.must("list_files", in, &out)
		for _, e := range out.Entries {
			names = append(names, e.Name)
		}
		if !out.More {
			break
		}
		after = names[len(names)-1]
	}
	for i, name := range names {
		if name != fmt.Sprintf("%03d", i) {
			t.Fatalf("entry %d is %s", i, name)
		}
	}
	if len(names) != 250 {
		t.Errorf("%d names, want 250", len(names))
	}
	c.must("list_files", arguments{"workspace": slugName}, nil)
	if got := c.call("list_files", arguments{"workspace": slugName, "path": "none"}, nil); got != "not_found: no such folder" {
		t.Error(got)
	}
}
