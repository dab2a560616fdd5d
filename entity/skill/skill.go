// Package skill parses the files that describe skills and agents: SKILL.md and AGENT.md.
//
// Both begin with front matter, a block of YAML between two lines with three hyphens, and go on with text in Markdown. A
// skill has a name and a description. An agent decides by the description whether to read the rest. An agent has a name, a
// description and a tier, and the rest is its instructions:
//
//	---
//	name: Release notes
//	description: Writes the notes of a release from the commits since the last one.
//	tier: balanced
//	---
//	Read the commits since the last tag. …
//
// The files are written by people and by programs that are not trusted, so their size is bounded, and of YAML only the
// forms that such files use are understood (frontmatter.go). Unknown keys are ignored: other programs that read the same
// files have keys of their own.
package skill

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/atelier-run/atelier/entity"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

const (
	// FileName is the name of the file of a skill, and AgentFileName the name of the file of an agent.
	FileName      = "SKILL.md"
	AgentFileName = "AGENT.md"
	// MaxBytes is the greatest size of a file, in bytes.
	MaxBytes = 64 << 10
	// MaxName and MaxDescription are the greatest lengths of a name and a description, in characters.
	MaxName        = entity.MaxNameLength
	MaxDescription = 4096
)

// The scopes of skills (specification, Skill).
const (
	ScopeProject = "project"
	ScopeBuiltin = "builtin"
)

// BuiltinPrefix is the start of the path of a built-in skill; the rest is its name.
const BuiltinPrefix = "builtin:"

// A Skill is an item of a list of skills.
type Skill struct {
	Name string
	// Description is empty if the file has none.
	Description string
	// Path is the path of the SKILL.md on the drive, or BuiltinPrefix and the name.
	Path  string
	Scope string
	// Position orders the skills of one working directory, see Position.
	Position string
}

// An Agent is the content of an AGENT.md.
type Agent struct {
	Name        string
	Description string
	// Tier is unspecified if the file has none.
	Tier workspacev1.Tier
	// Instructions is the text after the front matter.
	Instructions string
}

// Position returns a text that skills are sorted by: the skills of the nearest folder first, then by the folder of skills in
// it, then by the name of the skill's folder. distance is the number of folders between the working directory and the folder
// that has the skills, and skills the index of the folder of skills in that folder.
func Position(distance int, skills byte, name string) string {
	return string(append(binary.BigEndian.AppendUint16(nil, uint16(min(distance, builtinDistance-1))), skills)) + name
}

// BuiltinPosition is the Position of a built-in skill. They follow all others.
func BuiltinPosition(name string) string {
	return string(binary.BigEndian.AppendUint16(nil, builtinDistance)) + name
}

const builtinDistance = 1<<16 - 1

// Parse returns the name and the description of a SKILL.md. It fails if the file is too large, has no front matter with a
// name, or has front matter that it does not understand.
func Parse(content []byte) (Skill, error) {
	text, err := read(content, FileName, "name", "description")
	if err != nil {
		return Skill{}, err
	}
	return Skill{Name: text.values["name"], Description: text.values["description"]}, nil
}

// ParseAgent returns the content of an AGENT.md. It fails like Parse, and also if the file has no description or an unknown
// tier. Its errors are for people: they name the file and the key.
func ParseAgent(content []byte) (Agent, error) {
	text, err := read(content, AgentFileName, "name", "description", "tier")
	if err != nil {
		return Agent{}, err
	}
	agent := Agent{Name: text.values["name"], Description: text.values["description"], Instructions: text.body}
	if agent.Description == "" {
		return Agent{}, errors.New(AgentFileName + " has no description")
	}
	if name := text.values["tier"]; name != "" {
		if agent.Tier, err = entity.ParseTier(name); err != nil {
			return Agent{}, fmt.Errorf("%s: %s", AgentFileName, message(err))
		}
	}
	return agent, nil
}

// document is a file with parsed front matter.
type document struct {
	// values has the values of the requested keys, each in one line.
	values map[string]string
	body   string
}

// read parses a file, checks the lengths of name and description, and puts each value into one line.
func read(content []byte, file string, keys ...string) (document, error) {
	if len(content) > MaxBytes {
		return document{}, fmt.Errorf("%s is larger than %d bytes", file, MaxBytes)
	}
	values, body, err := parse(string(content), keys)
	if err != nil {
		return document{}, fmt.Errorf("%s: %w", file, err)
	}
	for key, value := range values {
		values[key] = strings.Join(strings.Fields(value), " ")
	}
	if values["name"] == "" {
		return document{}, errors.New(file + " has no name")
	}
	refused := cmp.Or(
		entity.CheckText("name", values["name"], 1, MaxName),
		entity.CheckText("description", values["description"], 0, MaxDescription),
	)
	if refused != nil {
		return document{}, fmt.Errorf("%s: %s", file, refused.Message)
	}
	return document{values, body}, nil
}

// message returns the message of an error without its code.
func message(err error) string {
	var refused *entity.Error
	if errors.As(err, &refused) {
		return refused.Message
	}
	return err.Error()
}
