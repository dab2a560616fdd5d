package skills

import (
	"embed"
	"strings"

	"github.com/atelier-run/atelier/entity/skill"
)

//go:embed builtin
var files embed.FS

// builtin are the built-in skills, in the order of their names.
var builtin = parseBuiltin()

func parseBuiltin() []skill.Skill {
	entries, err := files.ReadDir("builtin")
	if err != nil {
		panic("skills: " + err.Error()) // only if the program was built without the folder
	}
	var all []skill.Skill
	for _, e := range entries {
		content, err := files.ReadFile(builtinFile(e.Name()))
		if err != nil {
			panic("skills: " + err.Error())
		}
		one, err := skill.Parse(content)
		if err != nil {
			panic("skills: " + e.Name() + ": " + err.Error())
		}
		one.Path, one.Scope, one.Position = skill.BuiltinPrefix+e.Name(), skill.ScopeBuiltin, skill.BuiltinPosition(e.Name())
		all = append(all, one)
	}
	return all
}

func builtinFile(name string) string { return "builtin/" + name + "/" + skill.FileName }

// Builtin returns the SKILL.md of the built-in skill with a path. ok is false if there is none.
func Builtin(path string) (content string, ok bool) {
	name, isBuiltin := strings.CutPrefix(path, skill.BuiltinPrefix)
	if !isBuiltin || strings.Contains(name, "/") {
		return "", false
	}
	text, err := files.ReadFile(builtinFile(name))
	return string(text), err == nil
}
