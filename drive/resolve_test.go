package drive_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/entity"
)

func TestResolveFolder(t *testing.T) {
	dir := t.TempDir()
	d := openDrive(t, open(t, dir, &drivetest.Activity{}))
	files := filepath.Join(dir, workspace, "files")
	must(t, os.MkdirAll(filepath.Join(files, "a/b"), 0o755))
	must(t, os.WriteFile(filepath.Join(files, "a/file"), nil, 0o644))
	for name, target := range map[string]string{
		"link": "a/b", "a/up": "..", "a/b/sibling": "../../a", "to-file": "a/file", "broken": "none", "loop": "loop",
		"out": "..", "far": "../../../../etc", "absolute": "/etc", "nowhere": "/none/at/all", "chain": "link/sibling",
	} {
		must(t, os.Symlink(target, filepath.Join(files, name)))
	}
	for path, want := range map[string]string{
		"": "", ".": "", "a": "a", "a/b": "a/b", "a//b/": "a/b", "a/b/..": "a", "link": "a/b", "a/up": "", "a/up/a": "a",
		"link/sibling/b": "a/b", "chain": "a",
		"none": "not_found", "a/none/b": "not_found", "broken": "not_found", "loop": "not_found",
		"a/file": "not_folder", "a/file/b": "not_folder", "to-file": "not_folder",
		"..": "outside_drive", "a/../..": "outside_drive", "out": "outside_drive", "far": "outside_drive", "absolute": "outside_drive",
		"nowhere": "outside_drive",
	} {
		got, err := d.ResolveFolder(path)
		if refused, is := errors.AsType[*entity.Error](err); is {
			got = string(refused.Code)
		} else if err != nil {
			t.Errorf("%q: %v", path, err)
		}
		if got != want {
			t.Errorf("%q is resolved to %q, want %q", path, got, want)
		}
	}
	if drive.Outside != "outside_drive" || drive.NotFolder != "not_folder" {
		t.Error("the codes have changed")
	}
}
