package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type referenceCommand struct{}

const referenceHead = `# Settings

Every setting of ` + "`atelier serve`" + ` is a flag, an environment variable and a key of the YAML file that ` + "`--config`" + ` names.
Where it is given more than once, the flag wins over the variable, and the variable over the file. A value that is out of
its bounds, or a key that is no setting, ends the start with a message and exit code 2.

` + "```yaml" + `
# atelier.yaml
listen: 127.0.0.1:9000
log-format: json
stream-segment: 5m
generated-trees: [node_modules, .git]
` + "```" + `

Durations are written as ` + "`90s`, `15m` or `2h`" + `, sizes as ` + "`512KiB`, `256MiB` or `1GiB`" + `.

This page is printed by ` + "`atelier reference`" + `.
`

func (referenceCommand) Run(out console, app *kong.Kong) error {
	return writeReference(out.out, app.Model.Node)
}

func writeReference(w io.Writer, app *kong.Node) error {
	if _, err := io.WriteString(w, referenceHead); err != nil {
		return err
	}
	group := "none yet"
	for _, flag := range serveFlags(app) {
		if title := groupTitle(flag); title != group {
			group = title
			fmt.Fprintf(w, "\n## %s\n\n| flag and key | variable | default | meaning |\n| --- | --- | --- | --- |\n", title)
		}
		if _, err := fmt.Fprintln(w, referenceRow(flag)); err != nil {
			return err
		}
	}
	return nil
}

func serveFlags(app *kong.Node) []*kong.Flag {
	for _, command := range app.Children {
		if command.Name == "serve" {
			return command.Flags
		}
	}
	return nil
}

func groupTitle(flag *kong.Flag) string {
	if flag.Group == nil {
		return "Node"
	}
	return flag.Group.Title
}

func referenceRow(flag *kong.Flag) string {
	name := "`--" + flag.Name + "`"
	if !inFile(flag) {
		name += " (no key)"
	}
	byDefault := "none"
	if flag.HasDefault {
		byDefault = "`" + flag.Default + "`"
	}
	meaning := strings.ReplaceAll(flag.Help, "${enum}", strings.ReplaceAll(flag.Enum, ",", ", "))
	return fmt.Sprintf("| %s | `%s` | %s | %s |", name, strings.Join(flag.Envs, "`, `"), byDefault, meaning)
}
