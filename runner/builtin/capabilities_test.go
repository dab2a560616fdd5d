package builtin

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/runner/builtin/model"
	"github.com/atelier-run/atelier/runner/meta"
)

// TestToolsByCapabilities calls each of the agent's own tools with each set of the capabilities that any of them needs, and expects
// that a tool is offered, and does something, only with its own.
func TestToolsByCapabilities(t *testing.T) {
	calls := map[string]string{
		"shell": `{"command":"cat secret; touch made"}`, "read_file": `{"path":"secret"}`, "list_files": `{}`, "search": `{"pattern":"tell"}`,
		"write_file": `{"path":"made","text":"x"}`, "edit_file": `{"path":"secret","old":"tell","new":"told"}`, "plan": `{"steps":[]}`,
	}
	needs := map[string][]string{
		"shell": {entity.FilesRead, entity.FilesWrite, entity.Services}, "read_file": {entity.FilesRead}, "list_files": {entity.FilesRead},
		"search": {entity.FilesRead}, "write_file": {entity.FilesWrite}, "edit_file": {entity.FilesRead, entity.FilesWrite}, "plan": {},
	}
	all := []string{entity.FilesRead, entity.FilesWrite, entity.Services}
	for bits := range 1 << len(all) {
		granted := []string{entity.Sessions}
		for i, c := range all {
			if bits>>i&1 == 1 {
				granted = append(granted, c)
			}
		}
		for _, tool := range ownTools {
			need, known := needs[tool.Name]
			if !known {
				t.Fatalf("the test does not know the tool %s", tool.Name)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("do not tell"), 0o600); err != nil {
				t.Fatal(err)
			}
			s, a := openWith(t, dir, map[string]any{meta.Capabilities: granted})
			turn := &turn{session: s, updates: &updates{session: s.id, client: silent{}}}
			got := turn.call(t.Context(), s.toolset(), model.Call{ID: "1", Name: tool.Name, Arguments: calls[tool.Name]}, false)
			isMissing := slices.ContainsFunc(need, func(c string) bool { return !slices.Contains(granted, c) })
			_, err := os.Stat(filepath.Join(dir, "made"))
			content, _ := os.ReadFile(filepath.Join(dir, "secret"))
			isOffered := slices.ContainsFunc(s.toolset().tools(), func(o model.Tool) bool { return o.Name == tool.Name })
			if isMissing && (!got.isError || !strings.Contains(got.text, "not permitted") || isOffered || err == nil || string(content) != "do not tell") {
				t.Errorf("%s with %q: %+v", tool.Name, granted, got)
			}
			if !isMissing && (got.isError || !isOffered) {
				t.Errorf("%s with %q: %+v", tool.Name, granted, got)
			}
			a.close(stopping)
		}
	}
}

// openWith opens a session over a folder with values of its _meta.
func openWith(t *testing.T, dir string, values map[string]any) (*session, *agent) {
	t.Helper()
	a := newAgent(settings{drive: dir, environ: os.Environ()})
	a.connect(silent{})
	opened, err := a.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, Meta: values})
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.session(opened.SessionId)
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

// TestWithoutCapabilities opens sessions without a list of capabilities, and with an empty one.
func TestWithoutCapabilities(t *testing.T) {
	for _, one := range []struct {
		values map[string]any
		own    int
	}{{nil, len(ownTools)}, {map[string]any{meta.Capabilities: []string{}}, 1}, {map[string]any{meta.Capabilities: nil}, 1}} {
		s, a := openWith(t, t.TempDir(), one.values)
		if got := len(s.toolset().tools()); got != one.own {
			t.Errorf("with %v the model has %d tools, want %d", one.values, got, one.own)
		}
		if hasLimits := s.limits() != ""; hasLimits != (one.own == 1) {
			t.Errorf("with %v the limits are %q", one.values, s.limits())
		}
		a.close(stopping)
	}
}

// TestPicturesNeedFilesRead attaches a picture of the drive.
func TestPicturesNeedFilesRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.png"), []byte("picture"), 0o600); err != nil {
		t.Fatal(err)
	}
	media := "image/png"
	for _, granted := range [][]string{{entity.Sessions}, {entity.Sessions, entity.FilesRead}} {
		s, a := openWith(t, dir, map[string]any{meta.Capabilities: granted})
		inputs, err := s.readInputs([]acp.ContentBlock{{ResourceLink: &acp.ContentBlockResourceLink{
			Name: "a.png", Uri: "file://" + filepath.Join(dir, "a.png"), MimeType: &media,
		}}}, nil)
		if err != nil || len(inputs[0].images) != len(granted)-1 {
			t.Errorf("with %q: %+v, %v", granted, inputs, err)
		}
		a.close(stopping)
	}
}
