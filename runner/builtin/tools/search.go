package tools

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

const (
	maxSearched  = 4 << 20 // bytes of a file that is searched
	maxVisited   = 100_000
	maxMatches   = 300
	maxMatchLine = 300 // bytes
	maxPattern   = 1000
)

// generated are folders that people do not write. The drive's settings may have more; a search there is only slower.
var generated = map[string]bool{
	"node_modules": true, ".git": true, "target": true, "dist": true, "build": true, ".venv": true, "__pycache__": true,
	".cache": true,
}

// List returns the entries of a folder, one a line, folders with a slash, and the entries of its folders down to a
// depth.
func (d *Drive) List(ctx context.Context, name string, depth int) (string, error) {
	top, err := d.Path(name)
	if err != nil {
		return "", err
	}
	depth = min(max(depth, 1), maxDepth)
	var out strings.Builder
	entries := 0
	err = fs.WalkDir(d.root.FS(), top, func(at string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && at == top:
			return fmt.Errorf("list %s: %w", name, plain(err))
		case err != nil:
			return nil // a folder that cannot be read, or has just gone
		case at == top && !entry.IsDir():
			return fmt.Errorf("list %s: it is no folder", name)
		case at == top:
			return nil
		case entries == maxEntries:
			fmt.Fprintf(&out, "[more than %d entries]\n", maxEntries)
			return fs.SkipAll
		}
		entries++
		relative := strings.TrimPrefix(strings.TrimPrefix(at, top), "/")
		if top == "." {
			relative = at
		}
		if out.Len()+len(relative) > MaxOutput-markRoom {
			fmt.Fprintln(&out, "[there are more entries; list fewer levels, or search]")
			return fs.SkipAll
		}
		if !entry.IsDir() {
			fmt.Fprintln(&out, relative)
			return nil
		}
		fmt.Fprintln(&out, relative+"/")
		if strings.Count(relative, "/")+1 >= depth || generated[entry.Name()] {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if entries == 0 {
		return "[the folder is empty]", nil
	}
	return out.String(), nil
}

// Search returns the lines of the files below a folder that match a regular expression (RE2), as "path:line: text", with paths
// relative to the session's folder. glob, if not empty, restricts the names of files, such as "*.go". Binary and large files,
// and generated folders below the given one, are left out.
func (d *Drive) Search(ctx context.Context, pattern, name, glob string) (string, error) {
	if len(pattern) > maxPattern {
		return "", fmt.Errorf("the pattern has more than %d bytes", maxPattern)
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return "", fmt.Errorf("the pattern is invalid: %w", err)
	}
	if _, err := path.Match(glob, "x"); err != nil {
		return "", fmt.Errorf("the glob %q is invalid", glob)
	}
	top, err := d.Path(name)
	if err != nil {
		return "", err
	}
	s := search{drive: d, expression: expression, glob: glob, top: top}
	err = fs.WalkDir(d.root.FS(), top, func(at string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if at == top {
				return fmt.Errorf("search %s: %w", name, plain(err))
			}
			return nil
		}
		return s.visit(at, entry)
	})
	if err != nil && !errors.Is(err, errEnough) {
		return "", err
	}
	if s.out.Len() == 0 {
		return "[no line matches]", nil
	}
	return s.out.String(), nil
}

type search struct {
	drive      *Drive
	expression *regexp.Regexp
	glob, top  string
	out        strings.Builder
	matches    int
	visited    int
}

var errEnough = errors.New("enough matches")

// visit searches a file.
func (s *search) visit(at string, entry fs.DirEntry) error {
	if s.visited++; s.visited > maxVisited {
		return s.enough("files")
	}
	if entry.IsDir() {
		if at != s.top && generated[entry.Name()] {
			return fs.SkipDir
		}
		return nil
	}
	if !entry.Type().IsRegular() {
		return nil
	}
	if matches, _ := path.Match(s.glob, entry.Name()); s.glob != "" && !matches {
		return nil
	}
	content, _, err := s.drive.read(s.drive.Absolute(at), maxSearched)
	if err != nil || isBinary(content) {
		return nil
	}
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if !s.expression.MatchString(line) {
			continue
		}
		found := fmt.Sprintf("%s:%d: %s\n", s.drive.fromFolder(at), number, clip(line, maxMatchLine))
		if s.matches == maxMatches || s.out.Len()+len(found) > MaxOutput-markRoom {
			return s.enough("matches")
		}
		s.matches++
		s.out.WriteString(found)
	}
	return nil
}

func (s *search) enough(what string) error {
	fmt.Fprintf(&s.out, "[there are more %s; narrow the search]\n", what)
	return errEnough
}

// fromFolder returns a path of the drive as the session's folder names it.
func (d *Drive) fromFolder(at string) string {
	if d.Folder == "." {
		return at
	}
	if below, found := strings.CutPrefix(at, d.Folder+"/"); found {
		return below
	}
	return d.Absolute(at)
}
