package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/atelier-run/atelier/cmd/commandline"
	"github.com/atelier-run/atelier/runner/yamlfile"
)

// readFile returns the settings in the YAML file of serve's --config. Flags and variables take precedence.
func readFile(c *commandline.Command) (map[string]string, error) {
	path, _ := c.Value("config").(string)
	if path == "" {
		return nil, nil
	}
	known := map[string]bool{}
	for _, s := range c.Settings {
		known[s.Name] = inFile(s)
	}
	settings, err := readSettings(path, known)
	if err != nil {
		return nil, fmt.Errorf("--config: %s: %w", path, err)
	}
	return settings, nil
}

// inFile reports whether a setting is also a key of the file. --config and the flag for a single start are not.
func inFile(s *commandline.Setting) bool { return s.Name != "config" && s.Name != "quickstart" }

// readSettings returns each setting of a file as the text that its flag takes. It returns an error for keys that are not in
// known.
func readSettings(path string, known map[string]bool) (map[string]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	var values map[string]any
	if err := yamlfile.Decode(content, &values); err != nil {
		return nil, fmt.Errorf("not a YAML file of settings: %w", err)
	}
	settings := make(map[string]string, len(values))
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
