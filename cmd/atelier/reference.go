package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/atelier-run/atelier/cmd/commandline"
)

type referenceCommand struct{}

const referenceHead = `# Settings

Every setting of ` + "`atelier serve`" + ` is a flag, an environment variable and a key of the YAML file that ` + "`--config`" + ` names.
Where it is given more than once, the flag wins over the variable, and the variable over the file. A value that is out of
its bounds, or a key that is no setting, ends the start with a message and exit code 78.

` + "```yaml" + `
# atelier.yaml
listen: 127.0.0.1:9000
log-format: json
stream-segment: 5m
generated-trees: [node_modules, .git]
` + "```" + `

Durations are written as ` + "`90s`, `15m` or `2h`" + `, sizes as ` + "`512KiB`, `256MiB` or `1GiB`" + `.
A list is separated by commas, or is a list in the file; an empty value (` + "`[]`" + ` in the file) is the empty list. The file is one
document, and its values are used as they are written: ` + "`0123`" + ` and ` + "`1.10`" + ` keep their zeros.

This page is printed by ` + "`atelier reference`" + `.
`

// Run prints the reference.
func (referenceCommand) Run(_ context.Context, out console) error {
	return writeReference(out.out, newCommands(out.out))
}

func writeReference(w io.Writer, program *commandline.Command) error {
	if _, err := io.WriteString(w, referenceHead); err != nil {
		return err
	}
	group := "none yet"
	for _, s := range program.Find("serve").Settings {
		if title := cmp.Or(s.Group, "Node"); title != group {
			group = title
			fmt.Fprintf(w, "\n## %s\n\n| flag and key | variable | default | meaning |\n| --- | --- | --- | --- |\n", title)
		}
		if _, err := fmt.Fprintln(w, referenceRow(s)); err != nil {
			return err
		}
	}
	return nil
}

func referenceRow(s *commandline.Setting) string {
	name := "`--" + s.Name + "`"
	if !inFile(s) {
		name += " (no key)"
	}
	byDefault := "none"
	if s.HasDefault {
		byDefault = "`" + s.Default + "`"
	}
	return fmt.Sprintf("| %s | `%s` | %s | %s |", name, s.Variable, byDefault, s.Help)
}
