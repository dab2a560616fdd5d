// Command notices prints the licenses of all modules that are linked into the program, which must accompany its
// distribution: a list of the modules with their versions and licenses, and then each license text once. It reads the
// module cache and does not need a network.
//
//	go -C tools run ./notices ..       print the notices of the module in the parent folder
//
// It fails if a module has no license file, or an unknown license, or one that does not permit distributing the program
// under the Apache License 2.0. The packages of a module may have their own licenses; the output includes those of the
// linked packages.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	classifier "github.com/google/licenseclassifier/v2"
	"github.com/google/licenseclassifier/v2/assets"
)

// permitted has the SPDX identifiers of the licenses that permit distributing the program together with this file.
var permitted = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MPL-2.0", "CC0-1.0", "Unlicense", "GNU-All-permissive-Copying-License"}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(arguments []string, out io.Writer) error {
	if len(arguments) != 1 {
		return errors.New("usage: notices FOLDER, with the folder of the module")
	}
	modules, err := listLinked(arguments[0])
	if err != nil {
		return err
	}
	known, err := assets.DefaultClassifier()
	if err != nil {
		return err
	}
	var failed error
	for _, m := range modules {
		m.classify(known)
		failed = errors.Join(failed, m.check())
	}
	if failed != nil {
		return failed
	}
	return write(out, modules)
}

// module is a linked module with its license texts.
type module struct {
	path, version string
	// texts are the license files, by their names in the module.
	texts map[string]string
	// licenses are the SPDX identifiers of the texts, in order.
	licenses []string
}

// listLinked returns Go's standard library and the modules of other projects that are linked into cmd/atelier, sorted by
// path.
func listLinked(dir string) ([]*module, error) {
	list := exec.Command("go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/atelier")
	list.Dir = dir
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-mod=readonly")
	list.Stderr = os.Stderr
	listed, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	library := &module{path: "Go standard library", texts: map[string]string{}}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot := strings.TrimSpace(string(root))
	if err := library.collect(goroot, goroot); err != nil {
		return nil, err
	}
	found := map[string]*module{"": library}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p struct {
			Dir      string
			Standard bool
			Module   *struct {
				Path, Version, Dir string
				Main               bool
			}
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		m := found[p.Module.Path]
		if m == nil {
			m = &module{path: p.Module.Path, version: p.Module.Version, texts: map[string]string{}}
			found[m.path] = m
		}
		if err := m.collect(p.Module.Dir, p.Dir); err != nil {
			return nil, err
		}
	}
	var all []*module
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *module) int { return strings.Compare(a.path, b.path) })
	return all, nil
}

// licenseName matches the names of license files.
var licenseName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-._].*)?$`)

// otherSuffixes end the names of files that are not licenses of a program: source code, and licenses of documentation only.
var otherSuffixes = []string{".go", ".docs"}

// collect reads the license files in the folder of a package and in its parents up to the root of the module.
func (m *module) collect(root, dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			if !entry.Type().IsRegular() || !licenseName.MatchString(entry.Name()) || slices.Contains(otherSuffixes, filepath.Ext(entry.Name())) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, filepath.Join(dir, entry.Name()))
			if err != nil {
				return err
			}
			m.texts[name] = normalize(string(text))
		}
		if dir == root || !strings.HasPrefix(dir, root) {
			return nil
		}
	}
}

// normalize returns the text with Unix line ends, and without white space at the ends of lines.
func normalize(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// classify sets the licenses of the module from its texts.
func (m *module) classify(known *classifier.Classifier) {
	for _, text := range m.texts {
		for _, match := range known.Match([]byte(text)).Matches {
			if match.MatchType == "License" && !slices.Contains(m.licenses, match.Name) {
				m.licenses = append(m.licenses, match.Name)
			}
		}
	}
	slices.Sort(m.licenses)
}

// check returns an error if the module has no known license, or one that is not permitted.
func (m *module) check() error {
	if len(m.licenses) == 0 {
		return fmt.Errorf("%s@%s has no known license: read its files, and remove the module if its license does not permit distribution", m.path, m.version)
	}
	for _, id := range m.licenses {
		if !slices.Contains(permitted, id) {
			return fmt.Errorf("%s@%s is under %s, which is not permitted", m.path, m.version, id)
		}
	}
	return nil
}

const head = `Third-party notices

Atelier is under the Apache License 2.0 (LICENSE). The program contains the software below, under these licenses.
Their source code is published as the Go modules of these paths and versions. make generate writes this file.

`

// write prints the list of modules, and each text once with the modules that have it.
func write(w io.Writer, modules []*module) error {
	var out strings.Builder
	out.WriteString(head)
	users := map[string][]string{}
	for _, m := range modules {
		fmt.Fprintf(&out, "%s: %s\n", strings.TrimSpace(m.path+" "+m.version), strings.Join(m.licenses, ", "))
		for name, text := range m.texts {
			users[text] = append(users[text], m.path+" ("+filepath.ToSlash(name)+")")
		}
	}
	texts := make([]string, 0, len(users))
	for text := range users {
		slices.Sort(users[text])
		texts = append(texts, text)
	}
	slices.SortFunc(texts, func(a, b string) int { return strings.Compare(users[a][0], users[b][0]) })
	for _, text := range texts {
		fmt.Fprintf(&out, "\n%s\n\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
