package skills_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/drive/drivetest"
	"github.com/atelier-run/atelier/drive/skills"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/entitytest"
	"github.com/atelier-run/atelier/entity/skill"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const ws = "ws_1"

// disk is the folder of the drive's files.
type disk struct {
	*testing.T
	dir      string
	activity *drivetest.Activity
	*skills.Reader
}

func newDisk(t *testing.T) disk {
	dir, activity := t.TempDir(), &drivetest.Activity{}
	drives, err := drive.New(drive.Options{Dir: dir, Asker: activity, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drives.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := drives.Provision(t.Context(), ws); err != nil {
		t.Fatal(err)
	}
	return disk{t, filepath.Join(dir, ws, "files"), activity, skills.New(drives)}
}

func (d disk) check(err error) {
	d.Helper()
	if err != nil {
		d.Fatal(err)
	}
}

func (d disk) write(path, content string) {
	d.Helper()
	d.check(os.MkdirAll(filepath.Dir(filepath.Join(d.dir, path)), 0o755))
	d.check(os.WriteFile(filepath.Join(d.dir, path), []byte(content), 0o644))
}

func (d disk) skill(folder, name string) {
	d.Helper()
	d.write(folder+"/SKILL.md", fmt.Sprintf("---\nname: %s\ndescription: In %s.\n---\n", name, folder))
}

// list returns the paths of the skills of a working directory, without the built-in ones, which it checks.
func (d disk) list(cwd string) []string {
	d.Helper()
	all, err := d.List(d.Context(), ws, cwd)
	d.check(err)
	var paths []string
	positions := make([]string, len(all))
	for i, s := range all {
		positions[i] = s.Position
		switch {
		case s.Scope == skill.ScopeProject:
			paths = append(paths, s.Path)
		case s.Scope != skill.ScopeBuiltin, s.Path != skill.BuiltinPrefix+s.Name, s.Description == "":
			d.Errorf("%+v", s)
		}
	}
	if !slices.IsSorted(positions) || len(all) == len(paths) {
		d.Errorf("%d skills, %d of the project, at %q", len(all), len(paths), positions)
	}
	return paths
}

func TestList(t *testing.T) {
	d := newDisk(t)
	if got := d.list(""); len(got) != 0 {
		t.Errorf("an empty drive has %v", got)
	}
	d.skill(".agents/skills/b", "same")
	d.skill(".agents/skills/a", "same")
	d.skill(".claude/skills/c", "c")
	d.skill("src/.agents/skills/d", "same")
	d.skill("src/app/.claude/skills/e", "e")
	d.skill("other/.agents/skills/f", "f")
	d.write(".agents/skills/no-file/README.md", "")
	d.write(".agents/skills/SKILL.md", "---\nname: x\n---\n")
	root := []string{".agents/skills/a/SKILL.md", ".agents/skills/b/SKILL.md", ".claude/skills/c/SKILL.md"}
	for cwd, want := range map[string][]string{
		"":        root,
		"src":     append([]string{"src/.agents/skills/d/SKILL.md"}, root...),
		"src/app": append([]string{"src/app/.claude/skills/e/SKILL.md", "src/.agents/skills/d/SKILL.md"}, root...),
	} {
		if got := d.list(cwd); !slices.Equal(got, want) {
			t.Errorf("in %q: %v, want %v", cwd, got, want)
		}
	}
	all, err := d.List(t.Context(), ws, "")
	d.check(err)
	if all[0].Name != "same" || all[0].Description != "In .agents/skills/a." {
		t.Errorf("%+v", all[0])
	}
	if rows := d.activity.Rows(); len(rows) != 0 {
		t.Errorf("listing was recorded: %v", rows)
	}
}

// TestBadFilesAreLeftOut checks that a file that is malformed, too large, unreadable or out of the drive hides no other.
func TestBadFilesAreLeftOut(t *testing.T) {
	d := newDisk(t)
	d.skill(".agents/skills/good", "good")
	d.write(".agents/skills/malformed/SKILL.md", "name: x")
	d.write(".agents/skills/large/SKILL.md", "---\nname: x\n---\n"+strings.Repeat("x", skill.MaxBytes))
	d.check(os.MkdirAll(filepath.Join(d.dir, ".agents/skills/folder/SKILL.md"), 0o755))
	outside := t.TempDir()
	d.check(os.Mkdir(filepath.Join(outside, "secret"), 0o755))
	d.check(os.WriteFile(filepath.Join(outside, "secret", "SKILL.md"), []byte("---\nname: secret\n---\n"), 0o644))
	d.check(os.Mkdir(filepath.Join(d.dir, ".agents/skills/linked"), 0o755))
	d.check(os.Symlink(filepath.Join(outside, "secret", "SKILL.md"), filepath.Join(d.dir, ".agents/skills/linked/SKILL.md")))
	d.check(os.Symlink(filepath.Join(outside, "secret"), filepath.Join(d.dir, ".agents/skills/secret")))
	d.check(os.Symlink("loop", filepath.Join(d.dir, ".agents/skills/loop")))
	d.check(os.Mkdir(filepath.Join(d.dir, ".claude"), 0o755))
	d.check(os.Symlink(outside, filepath.Join(d.dir, ".claude/skills")))
	if got := d.list(""); !slices.Equal(got, []string{".agents/skills/good/SKILL.md"}) {
		t.Errorf("%v", got)
	}
}

// TestLinkedFolderOfSkills checks that skills that two paths lead to are listed once.
func TestLinkedFolderOfSkills(t *testing.T) {
	d := newDisk(t)
	d.skill("shared/a", "a")
	d.skill(".agents/skills/b", "b")
	d.check(os.Symlink("../../shared/a", filepath.Join(d.dir, ".agents/skills/a")))
	d.check(os.Mkdir(filepath.Join(d.dir, ".claude"), 0o755))
	d.check(os.Symlink("../.agents/skills", filepath.Join(d.dir, ".claude/skills")))
	if got := d.list(""); !slices.Equal(got, []string{".agents/skills/a/SKILL.md", ".agents/skills/b/SKILL.md"}) {
		t.Errorf("%v", got)
	}
}

func TestListIsBounded(t *testing.T) {
	d := newDisk(t)
	for i := range skills.MaxSkills + 5 {
		d.skill(fmt.Sprintf(".agents/skills/s%04d", i), "s")
	}
	d.skill("near/.agents/skills/near", "near")
	got := d.list("near")
	if len(got) != skills.MaxSkills || got[0] != "near/.agents/skills/near/SKILL.md" || got[1] != ".agents/skills/s0000/SKILL.md" {
		t.Errorf("%d skills, %v first", len(got), got[:min(2, len(got))])
	}
}

func TestListRefuses(t *testing.T) {
	d := newDisk(t)
	d.write("file.txt", "")
	for _, cwd := range []string{"no/such", "file.txt", "file.txt/a", "../x", "/", "a//b"} {
		if all, err := d.List(t.Context(), ws, cwd); entitytest.Code(err) != entity.InvalidRequest {
			t.Errorf("%q: %v, %v", cwd, all, err)
		}
	}
	if _, err := d.List(t.Context(), "ws_2", ""); entitytest.Code(err) != entity.Unavailable {
		t.Errorf("a drive that is not provisioned: %v", err)
	}
	d.skill(".agents/skills/a", "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := d.List(ctx, ws, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", all, err)
	}
}

func TestAgent(t *testing.T) {
	d := newDisk(t)
	d.write("agents/notes/AGENT.md", "---\nname: Notes\ndescription: Writes notes.\ntier: balanced\n---\nWrite.\n")
	got, err := d.Agent(t.Context(), ws, "agents/notes")
	want := skill.Agent{Name: "Notes", Description: "Writes notes.", Tier: workspacev1.Tier_TIER_BALANCED, Instructions: "Write."}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	d.write("bad/AGENT.md", "---\nname: Notes\n---\n")
	d.write("large/AGENT.md", strings.Repeat("x", skill.MaxBytes+1))
	d.check(os.MkdirAll(filepath.Join(d.dir, "folder/AGENT.md"), 0o755))
	for folder, want := range map[string]entity.Code{
		"bad": entity.InvalidRequest, "large": entity.InvalidRequest, "folder": entity.NotFound, "no/such": entity.NotFound,
		"agents": entity.NotFound, "..": entity.InvalidRequest,
	} {
		if got, err := d.Agent(t.Context(), ws, folder); entitytest.Code(err) != want {
			t.Errorf("%s: %+v, %v, want %s", folder, got, err, want)
		}
	}
	if rows := d.activity.Rows(); len(rows) != 0 {
		t.Errorf("reading was recorded: %v", rows)
	}
}

func TestBuiltin(t *testing.T) {
	all, err := newDisk(t).List(t.Context(), ws, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if text, ok := skills.Builtin(s.Path); !ok || !strings.Contains(text, "name: "+s.Name) {
			t.Errorf("%s: %q", s.Path, text)
		}
	}
	for _, path := range []string{"builtin:", "builtin:none", "builtin:../builtin/write-a-skill", "write-a-skill"} {
		if text, ok := skills.Builtin(path); ok {
			t.Errorf("%s: %q", path, text)
		}
	}
}
