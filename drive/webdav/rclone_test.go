package webdav_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// oldest, newest and later are times before 1970, in 2100, and after 2262, the last year that a Unix time in nanoseconds can name.
var (
	oldest = time.Date(1930, time.June, 1, 12, 0, 0, 0, time.UTC)
	newest = time.Date(2100, time.June, 1, 12, 0, 0, 0, time.UTC)
	later  = time.Date(2400, time.June, 1, 12, 0, 0, 0, time.UTC)
)

// transferred runs rclone and returns the number of files that it has transferred, deleted or changed otherwise, from the statistics that
// rclone logs at its end.
func transferred(t *testing.T, rclone string, args ...string) (files int) {
	t.Helper()
	out := run(t, rclone, append(args, "--use-json-log", "--stats-log-level", "NOTICE", "--stats", "1h")...)
	found := false
	for line := range strings.Lines(out) {
		var entry struct {
			Message string `json:"msg"`
			Stats   *struct{ Transfers, Deletes, Renames, Errors int }
		}
		if json.Unmarshal([]byte(line), &entry) != nil || entry.Stats == nil {
			continue
		}
		found, files = true, entry.Stats.Transfers+entry.Stats.Deletes+entry.Stats.Renames+entry.Stats.Errors
	}
	if !found {
		t.Errorf("rclone %v logged no statistics: %s", args, out)
	}
	return files
}

// TestRcloneTwice synchronizes folders twice, in both directions, as each vendor that rclone knows. The second run transfers nothing.
func TestRcloneTwice(t *testing.T) {
	rclone := requireProgram(t, "rclone")
	for _, vendor := range []string{"owncloud", "nextcloud", "other"} {
		t.Run(vendor, func(t *testing.T) {
			s := serve(t)
			up, down := t.TempDir(), t.TempDir()
			files := map[string]time.Time{
				"a.txt": oldest, "empty": newest, "later": later, "deep/er/b.txt": newest, "deep/ü ö#%?+&.txt": oldest,
				"deep/" + strings.Repeat("ü", 120) + ".txt": time.Unix(1136214245, 123456789), "deep/日本語 \u0065\u0301 🦊": time.Unix(-1, 0),
			}
			for path, at := range files {
				if vendor != "other" && !s.stores(at) {
					at = time.Unix(1136214245, 0)
					files[path] = at
				}
				write(t, filepath.Join(up, path), strings.Repeat(path, len(path)%5), at)
			}
			remote := ":webdav,vendor=" + vendor + ",url='" + s.url("/") + "':"
			// rclone cannot set times after 2262 on this machine.
			toDown := []string{"sync", remote, down, "--exclude", "/later"}
			if got := transferred(t, rclone, "sync", up, remote); got != len(files) {
				t.Errorf("the first run transferred %d files, want %d", got, len(files))
			}
			settled := func() {
				t.Helper()
				for _, direction := range [][]string{{"sync", up, remote}, toDown} {
					if got := transferred(t, rclone, direction...); got != 0 {
						t.Errorf("rclone %v again transferred %d files", direction, got)
					}
				}
				for _, check := range [][]string{{"check", up, remote}, {"check", "--download", up, remote}, {"check", "--checksum", "--exclude", "/later", remote, down}} {
					run(t, rclone, check...)
				}
			}
			if got := transferred(t, rclone, toDown...); got != len(files)-1 {
				t.Errorf("the first run down transferred %d files, want %d", got, len(files)-1)
			}
			if got := s.modified("later"); vendor != "other" && !got.Equal(files["later"]) {
				t.Errorf("a file of %v has the time %v on the drive", files["later"], got)
			}
			settled()
			// The server copies and moves the files, and keeps their times. The same is done to the folders on this machine.
			run(t, rclone, "copyto", remote+"a.txt", remote+"deep/copied.txt")
			run(t, rclone, "moveto", remote+"deep/er", remote+"moved")
			for _, dir := range []string{up, down} {
				run(t, rclone, "copyto", filepath.Join(dir, "a.txt"), filepath.Join(dir, "deep", "copied.txt"))
				run(t, rclone, "moveto", filepath.Join(dir, "deep", "er"), filepath.Join(dir, "moved"))
			}
			settled()
		})
	}
}

func write(t *testing.T, path, content string, at time.Time) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	times := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: at.Unix(), Nsec: int64(at.Nanosecond())}} // os.Chtimes has no times after 2262
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, times, 0); err != nil {
		t.Fatal(err)
	}
}
