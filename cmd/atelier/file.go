package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/goccy/go-yaml"
)

// A file resolves settings from the YAML file of --config. Flags and environment variables take precedence.
type file struct {
	loaded   bool
	settings map[string]any
}

var _ kong.Resolver = (*file)(nil)

// fileError is an error of the whole file. Kong would attribute it to the first flag that it resolves.
type fileError struct{ error }

func (e fileError) Unwrap() error { return e.error }

// attributed returns an error with the flag that it concerns.
func attributed(err error) error {
	if whole := (fileError{}); errors.As(err, &whole) {
		return fmt.Errorf("--config: %w", whole)
	}
	return err
}

func (f *file) Validate(*kong.Application) error { return nil }

func (f *file) Resolve(c *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.Command == nil || parent.Command.Name != "serve" || !inFile(flag) || inEnvironment(flag) {
		return nil, nil
	}
	if err := f.load(c, parent.Command.Flags); err != nil {
		return nil, err
	}
	return f.settings[flag.Name], nil
}

// inFile reports whether a flag is also a key of the file. --config and the flags for a single start are not.
func inFile(flag *kong.Flag) bool {
	return flag.Name != "config" && flag.Name != "quickstart" && flag.Name != "help"
}

func inEnvironment(flag *kong.Flag) bool {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return true
		}
	}
	return false
}

func (f *file) load(c *kong.Context, flags []*kong.Flag) error {
	if f.loaded {
		return nil
	}
	f.loaded = true
	known := map[string]bool{}
	var path string
	for _, flag := range flags {
		known[flag.Name] = inFile(flag)
		if flag.Name == "config" {
			path, _ = c.FlagValue(flag).(string)
		}
	}
	if path == "" {
		return nil
	}
	settings, err := readSettings(path, known)
	if err != nil {
		return fileError{fmt.Errorf("%s: %w", path, err)}
	}
	f.settings = settings
	return nil
}

// readSettings returns each setting of a file as the text that its flag takes. It returns an error for keys that are not in
// known.
func readSettings(path string, known map[string]bool) (map[string]any, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(content, &values); err != nil {
		return nil, fmt.Errorf("not a YAML file of settings: %w", err)
	}
	settings := make(map[string]any, len(values))
	var errs []error
	for key, value := range values {
		if !known[key] {
			errs = append(errs, fmt.Errorf("there is no setting %q", key))
			continue
		}
		text, err := settingText(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
		settings[key] = text
	}
	return settings, errors.Join(errs...)
}

func settingText(value any) (string, error) {
	switch value := value.(type) {
	case nil:
		return "", errors.New("the setting has no value")
	case map[string]any:
		return "", errors.New("the setting takes one value, not a group")
	case []any:
		items := make([]string, len(value))
		for i, item := range value {
			items[i] = fmt.Sprint(item)
		}
		return strings.Join(items, ","), nil
	}
	return fmt.Sprint(value), nil
}
