package webdav_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestCopyKeepsHoles copies a file of 2 GiB with a few blocks of content. Its holes need no space.
func TestCopyKeepsHoles(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	const size = 2 << 30
	file, err := os.Create(s.files("d/sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parts := map[int64]string{0: "begin", 1<<30 + 5: "middle", size - 3: "end"}
	for at, part := range parts {
		if _, err := file.WriteAt([]byte(part), at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(s.files("d/sparse"), size); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.files("d/hole"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.files("d/hole"), size); err != nil {
		t.Fatal(err)
	}
	s.do("COPY", "/d", "", "Destination: "+prefix+"/e").is(201)
	s.do("COPY", "/d/sparse", "", "Destination: "+prefix+"/f").is(201)
	for path, source := range map[string]string{"e/sparse": "d/sparse", "f": "d/sparse", "e/hole": "d/hole"} {
		var from, to unix.Stat_t
		if err := unix.Stat(s.files(source), &from); err != nil {
			t.Fatal(err)
		}
		if err := unix.Stat(s.files(path), &to); err != nil {
			t.Fatal(err)
		}
		if to.Size != from.Size || to.Blocks > from.Blocks+64 { // file systems round up
			t.Errorf("%s has %d bytes in %d blocks, the source %d in %d", path, to.Size, to.Blocks, from.Size, from.Blocks)
		}
	}
	for path := range map[string]bool{"e/sparse": true, "f": true} {
		copied, err := os.Open(s.files(path))
		if err != nil {
			t.Fatal(err)
		}
		defer copied.Close()
		for at, part := range parts {
			got := make([]byte, len(part))
			if _, err := copied.ReadAt(got, at); err != nil || string(got) != part {
				t.Errorf("%s at %d: %q, %v, want %q", path, at, got, err, part)
			}
		}
	}
}
