// Package tools reads, changes and searches the files of a drive, and runs shell commands, for the built-in agent. It knows
// neither models nor sessions.
//
// Paths are relative to the session's folder, or absolute below the drive's. Every file is opened through an os.Root, so that
// neither ".." nor a symbolic link leads out of the drive. Only regular files are read and written: a pipe would block. Each
// result is bounded, because it becomes a part of a conversation; a text that was cut says so, and how to read on.
//
// Commands are not held to the drive. The computer of the agent decides what they may do.
package tools

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"
)

// The bounds of the arguments and results of the tools.
const (
	MaxOutput  = 64 << 10 // bytes of a text that is returned
	MaxFile    = 16 << 20 // bytes of a file that is read or changed
	maxImage   = 5 << 20
	maxEntries = 1000
	maxDepth   = 8
	// markRoom is the room for the words that end a text that was cut.
	markRoom = 64
)

// A Drive is a drive and the session's folder in it.
type Drive struct {
	root *os.Root
	// Dir is the absolute path of the drive.
	Dir string
	// Folder is the session's folder, relative to Dir.
	Folder string
}

// Open opens the drive in folder dir, for a session in the absolute folder cwd, which must be in the drive.
func Open(dir, cwd string) (*Drive, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the drive: %w", err)
	}
	d := &Drive{root: root, Dir: filepath.Clean(dir)}
	if d.Folder, err = d.folder(cwd); err != nil {
		root.Close()
		return nil, err
	}
	return d, nil
}

// folder returns cwd relative to the drive.
func (d *Drive) folder(cwd string) (string, error) {
	name, err := d.Path(cwd)
	if err != nil {
		return "", err
	}
	at, err := d.root.Stat(name)
	switch {
	case err != nil:
		return "", fmt.Errorf("open the session's folder: %w", plain(err))
	case !at.IsDir():
		return "", fmt.Errorf("the session's folder %s is no folder", cwd)
	}
	return name, nil
}

// Close releases the drive.
func (d *Drive) Close() error { return d.root.Close() }

// Cwd returns the absolute path of the session's folder.
func (d *Drive) Cwd() string { return filepath.Join(d.Dir, d.Folder) }

// Absolute returns the absolute path of a path that is relative to the drive.
func (d *Drive) Absolute(name string) string { return filepath.Join(d.Dir, name) }

// Path returns a path relative to the drive, without following links. It returns an error if it is outside of it.
func (d *Drive) Path(name string) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", errors.New("the path is empty or has a zero byte")
	}
	relative := path.Join(d.Folder, name)
	if filepath.IsAbs(name) {
		var err error
		if relative, err = filepath.Rel(d.Dir, name); err != nil {
			return "", fmt.Errorf("the path %s is outside of the drive", name)
		}
	}
	if !filepath.IsLocal(relative) {
		return "", fmt.Errorf("the path %s is outside of the drive", name)
	}
	return relative, nil
}

// plain returns the cause of a failed operation without the path, which messages name in their own way.
func plain(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// read returns the content of a regular file of at most most bytes.
func (d *Drive) read(name string, most int64) (content []byte, relative string, err error) {
	if relative, err = d.Path(name); err != nil {
		return nil, "", err
	}
	file, err := d.root.OpenFile(relative, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", name, plain(err))
	}
	defer file.Close()
	at, err := file.Stat()
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("read %s: %w", name, plain(err))
	case at.IsDir():
		return nil, "", fmt.Errorf("%s is a folder", name)
	case !at.Mode().IsRegular():
		return nil, "", fmt.Errorf("%s is no regular file", name)
	case at.Size() > most:
		return nil, "", fmt.Errorf("%s has %d bytes, at most %d can be read", name, at.Size(), most)
	}
	content, err = io.ReadAll(io.LimitReader(file, most))
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", name, plain(err))
	}
	return content, relative, nil
}

// Read returns the text of a file from a line, counted from 1, and at most a number of lines; 0 for all that fit.
func (d *Drive) Read(name string, first, lines int) (string, error) {
	content, _, err := d.read(name, MaxFile)
	if err != nil {
		return "", err
	}
	if isBinary(content) {
		return "", fmt.Errorf("%s is a binary file of %d bytes", name, len(content))
	}
	if first < 1 {
		first = 1
	}
	var out strings.Builder
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		if number < first {
			continue
		}
		if lines > 0 && number-first >= lines || out.Len()+len(line) > MaxOutput-markRoom {
			if out.Len() == 0 {
				return clip(line, MaxOutput-markRoom) + "\n[the line is cut]", nil
			}
			fmt.Fprintf(&out, "[the file goes on at line %d]", number)
			return out.String(), nil
		}
		out.WriteString(line)
	}
	if number > 0 && first > number {
		return "", fmt.Errorf("%s has only %d lines", name, number)
	}
	return out.String(), nil
}

// Image returns the content of a file that is small enough to be sent to a model.
func (d *Drive) Image(name string) ([]byte, error) {
	content, _, err := d.read(name, maxImage)
	return content, err
}

// Write replaces the content of a file, and makes it and its folders if they are missing. It returns the former content, and
// whether there was a file.
func (d *Drive) Write(name, text string) (before string, existed bool, err error) {
	relative, err := d.Path(name)
	if err != nil {
		return "", false, err
	}
	if len(text) > MaxFile {
		return "", false, fmt.Errorf("write %s: the text has %d bytes, at most %d are allowed", name, len(text), MaxFile)
	}
	if content, _, err := d.read(name, MaxFile); err == nil {
		before, existed = string(content), true
	}
	if folder := path.Dir(relative); folder != "." {
		if err := d.root.MkdirAll(folder, 0o777); err != nil {
			return "", false, fmt.Errorf("write %s: make its folder: %w", name, plain(err))
		}
	}
	file, err := d.root.OpenFile(relative, os.O_WRONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o666)
	if err != nil {
		return "", false, fmt.Errorf("write %s: %w", name, plain(err))
	}
	defer file.Close()
	at, err := file.Stat()
	if err != nil || !at.Mode().IsRegular() {
		return "", false, fmt.Errorf("write %s: it is no regular file", name)
	}
	if err := replace(file, at.Size(), text); err != nil {
		return "", false, fmt.Errorf("write %s: %w", name, plain(err))
	}
	if err := file.Close(); err != nil {
		return "", false, fmt.Errorf("write %s: %w", name, plain(err))
	}
	return before, existed, nil
}

// replace replaces the content of a file of a size. The file keeps its identity and mode, as with an editor that writes in place. The
// part beyond the former content is written first: if the disk is full, the former content remains as it was.
func replace(file *os.File, size int64, text string) error {
	size = min(size, int64(len(text)))
	if _, err := file.WriteAt([]byte(text[size:]), size); err != nil {
		return errors.Join(err, file.Truncate(size)) // drops the part that was written
	}
	if _, err := file.WriteAt([]byte(text[:size]), 0); err != nil {
		return err
	}
	return file.Truncate(int64(len(text)))
}

// Edit replaces an exact text in a file: the only occurrence, or all. It returns the number of occurrences.
func (d *Drive) Edit(name, before, after string, all bool) (int, error) {
	if before == "" || before == after {
		return 0, errors.New("the text to replace is empty, or the same as its replacement")
	}
	content, _, err := d.read(name, MaxFile)
	if err != nil {
		return 0, err
	}
	text := string(content)
	n := strings.Count(text, before)
	switch {
	case n == 0:
		return 0, fmt.Errorf("%s does not have the text to replace", name)
	case n > 1 && !all:
		return 0, fmt.Errorf("%s has the text to replace %d times; give more of its surroundings, or replace all", name, n)
	}
	_, _, err = d.Write(name, strings.ReplaceAll(text, before, after))
	return n, err
}

func isBinary(content []byte) bool {
	head := content[:min(len(content), 8000)]
	for _, b := range head {
		if b == 0 {
			return true
		}
	}
	return false
}

// clip returns the beginning of a text, at most a number of bytes, without half a character.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
