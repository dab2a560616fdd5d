package builtin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
)

// toolNeeds has the capabilities that the agent's own tools need. A tool that is not listed needs no capability.
var toolNeeds = map[string][]string{
	"shell":      entity.MissingForProcesses(nil),
	"read_file":  {entity.FilesRead},
	"list_files": {entity.FilesRead},
	"search":     {entity.FilesRead},
	"write_file": {entity.FilesWrite},
	"edit_file":  {entity.FilesRead, entity.FilesWrite},
}

// decodeCapabilities returns the capabilities in the request that opens a session; nil if it permits all.
func decodeCapabilities(values map[string]any) ([]string, error) {
	permitted, err := decodeMeta[[]string](values, meta.Capabilities)
	if _, isLimited := values[meta.Capabilities]; isLimited && permitted == nil {
		permitted = []string{}
	}
	return permitted, err
}

// has reports whether the client permits a capability.
func (s *session) has(capability string) bool {
	return s.capabilities == nil || slices.Contains(s.capabilities, capability)
}

// missing returns which capabilities that one of the agent's own tools needs the client does not permit.
func (s *session) missing(tool string) []string {
	return slices.DeleteFunc(slices.Clone(toolNeeds[tool]), s.has)
}

// checkTool returns an error unless the client permits all capabilities that one of the agent's own tools needs.
func (s *session) checkTool(tool string) error {
	if missing := s.missing(tool); len(missing) > 0 {
		return fmt.Errorf("this was not permitted: the credential that has sent the input lacks %s", strings.Join(missing, ", "))
	}
	return nil
}

// ownTools returns the agent's own tools that the session may use.
func (s *session) ownTools() []model.Tool {
	return slices.DeleteFunc(slices.Clone(ownTools), func(t model.Tool) bool { return len(s.missing(t.Name)) > 0 })
}

// limits returns the part of the system prompt that names what the session may not do; empty if it may do everything.
func (s *session) limits() string {
	var without []string
	for _, t := range ownTools {
		if len(s.missing(t.Name)) > 0 {
			without = append(without, t.Name)
		}
	}
	if len(without) == 0 {
		return ""
	}
	return "The program that has sent the input does not permit these tools, which are missing here: " + strings.Join(without, ", ") +
		". Do what you can without them, and say what you could not do."
}
