package commandline

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	helpOfHelp    = "Print this help."
	helpOfVersion = "Print the version of the program."
)

// writeHelp writes the help of a command, which is in the tree or one of cobra's own.
func (c *Command) writeHelp(of *cobra.Command) {
	found := c.find(of)
	if found == nil {
		fmt.Fprintf(c.program.Out, "%s\n\n%s", cmp.Or(of.Long, of.Short), of.UsageString())
		return
	}
	var b strings.Builder
	found.describe(&b, helpWidth(c.program.Out))
	_, _ = io.WriteString(c.program.Out, b.String()) // a failed write has no reader
}

// find returns the command in the tree that a command of cobra belongs to; nil: none.
func (c *Command) find(of *cobra.Command) *Command {
	if c.cobra == of {
		return c
	}
	for _, child := range c.Commands {
		if found := child.find(of); found != nil {
			return found
		}
	}
	return nil
}

// describe writes the help in lines of a width.
func (c *Command) describe(b *strings.Builder, width int) {
	usage := []string{"Usage:", c.cobra.CommandPath()}
	if len(c.Commands) > 0 {
		usage = append(usage, "<command>")
	}
	var arguments, flags, commands [][2]string
	for _, a := range c.arguments {
		usage = append(usage, a.placeholder())
		arguments = append(arguments, [2]string{a.placeholder(), a.help})
	}
	fmt.Fprintf(b, "%s [flags]\n\n%s\n", strings.Join(usage, " "), strings.Join(wrap(c.help, width), "\n"))
	if more, is := c.Target.(interface{ Help() string }); is {
		fmt.Fprintf(b, "\n%s\n", strings.Join(wrap(more.Help(), width), "\n"))
	}
	writeColumns(b, width, "Arguments:", arguments)
	flags = append(flags, [2]string{"-h, --help", helpOfHelp}, [2]string{"    --version", helpOfVersion})
	for _, s := range c.settingsOf("") {
		flags = append(flags, [2]string{s.left(), s.right()})
	}
	writeColumns(b, width, "Flags:", flags)
	for _, group := range c.groups() {
		flags = nil
		for _, s := range c.settingsOf(group) {
			flags = append(flags, [2]string{s.left(), s.right()})
		}
		writeColumns(b, width, group+":", flags)
	}
	for _, child := range c.Commands {
		commands = append(commands, [2]string{child.Name, child.help})
	}
	for _, child := range c.cobra.Commands() { // cobra's own
		if child.IsAvailableCommand() && c.find(child) == nil {
			commands = append(commands, [2]string{child.Name(), child.Short + "."})
		}
	}
	writeColumns(b, width, "Commands:", commands)
	if len(commands) > 0 {
		fmt.Fprintf(b, "\nRun %q for more about a command.\n", c.cobra.CommandPath()+" <command> --help")
	}
}

// groups returns the groups of settings in the order of their first settings.
func (c *Command) groups() []string {
	var groups []string
	for _, s := range c.Settings {
		if s.Group != "" && !slices.Contains(groups, s.Group) {
			groups = append(groups, s.Group)
		}
	}
	return groups
}

func (c *Command) settingsOf(group string) []*Setting {
	var settings []*Setting
	for _, s := range c.Settings {
		if s.Group == group {
			settings = append(settings, s)
		}
	}
	return settings
}

func (a *argument) placeholder() string {
	name := "<" + a.name + ">"
	if a.isQueue {
		name += " ..."
	}
	if a.optional {
		name = "[" + name + "]"
	}
	return name
}

// flag returns a flag with a word for its value, as rate=5000.
func (s *Setting) flag() string {
	at := s.value.target
	if at.Kind() == reflect.Bool {
		return s.Name
	}
	word := cmp.Or(s.placeholder, s.Default, strings.ToUpper(s.Name))
	if at.Kind() == reflect.Slice && s.placeholder != "" {
		word += ",..."
	}
	return s.Name + "=" + word
}

func (s *Setting) left() string {
	if s.Short != "" {
		return "-" + s.Short + ", --" + s.flag()
	}
	return "    --" + s.flag()
}

// right returns the description of a setting with its variable, in the last sentence.
func (s *Setting) right() string {
	if s.Variable == "" {
		return s.Help
	}
	text, end := s.Help, ""
	if rest, ok := strings.CutSuffix(text, "."); ok {
		text, end = rest, "."
	}
	return text + " ($" + s.Variable + ")" + end
}

// writeColumns writes a part of the help: rows of a name and a text.
func writeColumns(b *strings.Builder, width int, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	left := 0
	for _, row := range rows {
		left = max(left, len(row[0]))
	}
	left = min(left, width/2)
	fmt.Fprintf(b, "\n%s\n", title)
	for _, row := range rows {
		name := row[0]
		if len(name) > left {
			fmt.Fprintf(b, "  %s\n", name)
			name = ""
		}
		for _, line := range wrap(row[1], width-left-4) {
			fmt.Fprintf(b, "  %-*s  %s\n", left, name, line)
			name = ""
		}
	}
}

// wrap breaks a text between words into lines of at most width bytes, unless a word is longer.
func wrap(text string, width int) []string {
	lines := []string{""}
	for _, word := range strings.Fields(text) {
		last := &lines[len(lines)-1]
		switch {
		case *last == "":
			*last = word
		case len(*last)+1+len(word) <= width:
			*last += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// helpWidth returns the width of the help for an output: the width of a terminal, within bounds.
func helpWidth(out io.Writer) int {
	const usual, most = 80, 120
	file, is := out.(*os.File)
	if !is {
		return usual
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return usual
	}
	return max(60, min(width, most))
}
