// Package skills finds the skills on the drives of workspaces, and reads the files of agents. A Reader is for the API;
// Instructions make one text of both for the model of a session.
//
// The skills of a working directory are the folders with a SKILL.md in .agents/skills and .claude/skills of the directory and
// of each folder above it up to the root of the drive, and the built-in ones, which are embedded in the program (folder
// builtin). All of them are listed, also several with one name: the skills of the nearest folder first, then .agents before
// .claude, then by the names of their folders, and the built-in ones last. A file that two paths lead to, because one folder
// of skills is a link to another folder, is listed once.
//
// A file that is missing, unreadable, larger than skill.MaxBytes or malformed is left out: one bad file must not hide the
// others. A drive that cannot be read is an error.
//
// Links are followed, but never out of the drive. Reading a skill or an agent is no activity of the workspace: nothing is
// recorded, because the platform reads the file and not a person.
package skills

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/atelier-run/atelier/drive"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/skill"
)

const (
	// MaxSkills is the greatest number of skills of a working directory, the built-in ones not counted. The nearest are listed.
	MaxSkills = 1000
	// maxFolders bounds the folders that are looked into for a SKILL.md, in all folders of skills together. Beyond it, the choice
	// of the folders depends on the file system.
	maxFolders = 4 * MaxSkills
)

// folders are the folders of skills in a folder.
var folders = []string{".agents/skills", ".claude/skills"}

// A Reader reads skills and agents. It is safe for concurrent use.
type Reader struct {
	drives *drive.Drives
}

// New returns a Reader of the drives.
func New(drives *drive.Drives) *Reader { return &Reader{drives} }

// List returns the skills of a working directory, a path on the drive; "" is the root. They are in the order of their
// Position. Errors: invalid_request if the path is no folder, the errors of drive.Drives.Open, ctx's error.
func (r *Reader) List(ctx context.Context, workspaceID, cwd string) ([]skill.Skill, error) {
	if cwd != "" {
		if err := entity.CheckPath(cwd); err != nil {
			return nil, err
		}
	}
	opened, release, err := r.drives.Open(ctx, workspaceID)
	if err != nil {
		return nil, err
	}
	defer release()
	if entry, err := opened.Stat(cwd); err != nil && !isMissing(err) {
		return nil, err
	} else if err != nil || !entry.Folder {
		return nil, entity.Errorf(entity.InvalidRequest, "cwd is no folder on the drive")
	}
	s := search{ctx: ctx, drive: opened, seen: map[string]bool{}}
	for distance, at := 0, cwd; ; distance++ {
		if err := s.folder(at, distance); err != nil {
			return nil, err
		}
		if at == "" {
			return append(s.found, builtin...), nil
		}
		at = parent(at)
	}
}

// Agent reads the AGENT.md in a folder of the drive. Errors: not_found if there is none, invalid_request with a message for
// people if it is malformed, the errors of drive.Drives.Open.
func (r *Reader) Agent(ctx context.Context, workspaceID, folder string) (skill.Agent, error) {
	opened, release, err := r.drives.Open(ctx, workspaceID)
	if err != nil {
		return skill.Agent{}, err
	}
	defer release()
	content, _, err := readFile(opened, join(folder, skill.AgentFileName))
	switch {
	case errors.Is(err, errTooLarge):
		return skill.Agent{}, entity.Errorf(entity.InvalidRequest, "%s is larger than %d bytes", skill.AgentFileName, skill.MaxBytes)
	case err != nil && isMissing(err):
		return skill.Agent{}, entity.Errorf(entity.NotFound, "the folder has no %s", skill.AgentFileName)
	case err != nil:
		return skill.Agent{}, err
	}
	agent, err := skill.ParseAgent(content)
	if err != nil {
		return skill.Agent{}, entity.Errorf(entity.InvalidRequest, "%s", err.Error())
	}
	return agent, nil
}

// search is one listing of the skills of a drive.
type search struct {
	ctx   context.Context
	drive *drive.Drive
	found []skill.Skill
	// visited counts the folders that were looked into.
	visited int
	// seen has the validators of the files that were found.
	seen map[string]bool
}

// folder adds the skills of one folder, which is a number of folders above the working directory.
func (s *search) folder(at string, distance int) error {
	for index, name := range folders {
		names, err := s.list(join(at, name))
		if err != nil {
			return err
		}
		for _, one := range names {
			if len(s.found) == MaxSkills {
				return nil
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
			if err := s.add(join(at, name)+"/"+one+"/"+skill.FileName, skill.Position(distance, byte(index), one)); err != nil {
				return err
			}
		}
	}
	return nil
}

// list returns the names of the folders in a folder of skills, sorted; none if it does not exist or cannot be listed.
func (s *search) list(path string) ([]string, error) {
	at, err := s.drive.OpenFolder(path)
	if err != nil {
		return nil, onlyTemporary(err)
	}
	defer at.Close()
	var names []string
	err = at.Each(s.ctx, func(e drive.Entry) error {
		if !e.Folder {
			return nil
		}
		if s.visited++; s.visited > maxFolders {
			return errEnough
		}
		names = append(names, e.Name)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) && s.ctx.Err() != nil {
		return nil, s.ctx.Err()
	}
	slices.Sort(names)
	return names, nil
}

var errEnough = errors.New("skills: enough folders were listed")

// add adds the skill at a path if there is a valid one.
func (s *search) add(path, position string) error {
	content, entry, err := readFile(s.drive, path)
	if err != nil || s.seen[entry.ETag()] {
		return onlyTemporary(err)
	}
	found, err := skill.Parse(content)
	if err != nil {
		return nil
	}
	s.seen[entry.ETag()] = true
	found.Path, found.Scope, found.Position = path, skill.ScopeProject, position
	s.found = append(s.found, found)
	return nil
}

// onlyTemporary returns an error of a file if trying again helps, and nil if the file is left out.
func onlyTemporary(err error) error {
	if entity.HasCode(err, entity.Unavailable) {
		return err
	}
	return nil
}

var errTooLarge = errors.New("skills: the file is too large")

// readFile reads a small file of a drive. Errors: errTooLarge, the errors of drive.Drive.Open and of the disk.
func readFile(d *drive.Drive, path string) ([]byte, drive.Entry, error) {
	if err := entity.CheckPath(path); err != nil {
		return nil, drive.Entry{}, err
	}
	file, entry, err := d.Open(path)
	if err != nil {
		return nil, drive.Entry{}, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, skill.MaxBytes+1))
	switch {
	case err != nil:
		return nil, drive.Entry{}, fmt.Errorf("skills: %w", err)
	case len(content) > skill.MaxBytes:
		return nil, drive.Entry{}, errTooLarge
	}
	return content, entry, nil
}

// isMissing reports whether an error means that a path leads to no file.
func isMissing(err error) bool {
	return entity.HasCode(err, entity.NotFound, drive.IsFolder)
}

// parent returns the folder of a path; "" is the root.
func parent(path string) string {
	return path[:max(strings.LastIndexByte(path, '/'), 0)]
}

func join(folder, name string) string {
	if folder == "" {
		return name
	}
	return folder + "/" + name
}
