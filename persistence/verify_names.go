package persistence

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Pebble's errors often name no file. The functions below find the file, because an operator has to know which one to restore.

const (
	formatMarker  = "format-version"
	optionsPrefix = "OPTIONS-"
)

// checkSmallFiles checks the files of the store that have no checksum: the marker of Pebble's format and the newest options.
func (v *verifier) checkSmallFiles() error {
	marker, err := atomicfs.ReadMarker(v.fs, v.store, formatMarker)
	path := v.fs.PathJoin(v.store, "marker."+formatMarker)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if marker == "" {
		return fmt.Errorf("%s.* is missing", path)
	}
	names, err := v.fs.List(v.store)
	if err != nil {
		return err
	}
	newest := ""
	for _, name := range names {
		if strings.HasPrefix(name, optionsPrefix) && (len(name) > len(newest) || len(name) == len(newest) && name > newest) {
			newest = name
		}
	}
	if newest == "" {
		return nil // Pebble needs none
	}
	path = v.fs.PathJoin(v.store, newest)
	file, err := v.fs.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err == nil {
		err = v.options.CheckCompatibility(v.store, string(text))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// missingTable matches Pebble's error for a table that the manifest names and that does not exist.
var missingTable = regexp.MustCompile(`file (\d+) \(type sstable\)`)

// open opens the store for reading. Its error names the table that is missing, if that is the reason.
func (v *verifier) open() (*pebble.DB, error) {
	db, err := pebble.Open(v.store, v.options)
	if err != nil {
		if found := missingTable.FindStringSubmatch(err.Error()); found != nil {
			err = fmt.Errorf("%s: %w", v.fs.PathJoin(v.store, found[1]+tableSuffix), err)
		}
	}
	return db, err
}

// pathOfLog returns the path of a log.
func (v *verifier) pathOfLog(l wal.LogicalLog) string {
	return v.fs.PathJoin(v.store, fmt.Sprintf("%s%s", l.Num, logSuffix))
}
