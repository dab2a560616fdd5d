package drive_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
)

// TestRestoreOfAttributes restores the extended attributes of files and folders on another drive.
func TestRestoreOfAttributes(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	source, target := openDrive(t, open(t, from, &drivetest.Activity{})), openDrive(t, open(t, to, &drivetest.Activity{}))
	files := filepath.Join(from, workspace, "files")
	makeLinks(t, files)
	for name, value := range map[string]string{
		"user.text": "text", "user.empty": "", "user.bytes": "\x00\xff\n=", "user.a=b%3D%25": "escaped", "user.\xff\n ": "no text",
		"user.mime_type": strings.Repeat("m", 1000),
	} {
		for _, path := range []string{".", "top", "a", "a/b/c/deep", "z/large"} {
			must(t, unix.Setxattr(filepath.Join(files, path), name, []byte(value), 0))
		}
	}
	exported, archive := exportOf(t, source)
	entries, err := drive.VerifyArchive(t.Context(), bytes.NewReader(archive))
	if err != nil || entries != exported.Entries || exported.Changed > 0 {
		t.Errorf("verified %d entries of %+v, %v", entries, exported, err)
	}
	must(t, target.Restore(t.Context(), "tsk_1", bytes.NewReader(archive), accept, change))
	compareEntries(t, filepath.Join(to, workspace, "files"), files)
}

// TestRestoreRefusesAttributesOfOthers restores archives with attributes that no process may set, or with too many.
func TestRestoreRefusesAttributesOfOthers(t *testing.T) {
	many := map[string]string{}
	for i := range 9 {
		many[fmt.Sprint("SCHILY.xattr.user.", i)] = strings.Repeat("v", 60<<10)
	}
	for name, records := range map[string]map[string]string{
		"of a restore":  {"SCHILY.xattr.user.atelier.restore": "tsk_2"},
		"of later kind": {"SCHILY.xattr.user.atelier.later": "x"},
		"security":      {"SCHILY.xattr.security.capability": "x"},
		"trusted":       {"SCHILY.xattr.trusted.overlay.opaque": "y"},
		"too many":      many,
	} {
		var archive bytes.Buffer
		out := tar.NewWriter(&archive)
		h := &tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o755, PAXRecords: records, Format: tar.FormatPAX}
		must(t, out.WriteHeader(h))
		must(t, out.Close())
		if _, err := drive.VerifyArchive(t.Context(), bytes.NewReader(archive.Bytes())); code(err) != drive.Corrupt {
			t.Errorf("%s: verification returned %v", name, err)
		}
		dir, activity := t.TempDir(), &drivetest.Activity{}
		d := openDrive(t, open(t, dir, activity))
		prepare(t, dir)
		before := snapshot(t, dir)
		if err := d.Restore(t.Context(), "tsk_1", &archive, accept, change); code(err) != drive.Corrupt {
			t.Errorf("%s: the restore returned %v", name, err)
		}
		checkAgreement(t, dir, activity, before, nil)
	}
}
