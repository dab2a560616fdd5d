// Package commandline makes the commands of a program of structs. It parses with cobra, which also completes commands and flags in
// shells.
//
// A command is a pointer to a struct. Its exported fields are, by their tags:
//
//	cmd:""          a subcommand, a struct itself
//	arg:""          a positional argument: a string, or with passthrough:"" a list with everything that follows
//	anything else   a setting: a flag, and unless the tag is env:"-" a variable of the environment
//
// The fields of embedded structs belong to the command. Further tags are:
//
//	name            name of the field; by default the name in Go, as in max-streams for MaxStreams
//	help            description; ${enum} becomes the allowed values
//	default         value in the form of the flag; ${NAME} becomes one of Program.Variables
//	enum            allowed values, separated by commas
//	env             variable; by default Program.Prefix and the name, as in ATELIER_MAX_STREAMS
//	group           title of the part of the help that a setting belongs to
//	placeholder     word for the value in the help
//	short           letter of a short flag
//	required        a setting that must be given
//	optional        an argument that may be missing
//	xor             settings with the same text exclude each other
//	type:"path"     a path: relative ones are made absolute, and ~ is the user's home
//
// A setting is a string, a bool, a number, a time.Duration, a type that implements encoding.TextUnmarshaler, a pointer to one of these,
// which is nil unless the setting is given, a list, which is separated by commas or given repeatedly, or a map of strings, of
// NAME=VALUE. The empty text is the empty list, which is not nil.
//
// The first of these places counts: the flag, the variable, Program.File, the default. A struct may have a method Validate() error,
// which is called when all fields have their values, and Help() string with a text that follows the description in the help.
//
// The package calls no method by a name that the linker does not know, as other packages of this kind do: otherwise every exported
// method of the program's types would be a part of the binary, reachable or not.
package commandline

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A Program has what the commands of a program share.
type Program struct {
	Name, About string
	// Prefix begins the names of variables.
	Prefix string
	// Variables are the texts that ${NAME} stands for in defaults.
	Variables map[string]string
	// File returns the values of settings in a configuration file, by name; nil: there is none. It is called when the command's
	// flags and variables are known.
	File func(*Command) (map[string]string, error)
	// Version prints the version, for the flag --version.
	Version func(io.Writer) error
	// Out gets the help and the version.
	Out io.Writer
}

// A Command is a command of the program, or the program itself.
type Command struct {
	Name     string
	Settings []*Setting
	Commands []*Command
	// Target is the pointer to the command's struct.
	Target any

	program   *Program
	help      string
	arguments []*argument
	cobra     *cobra.Command
	// showHelp and showVersion are the values of --help and --version.
	showHelp, showVersion bool
	// chosen is, in the root, the command of the last command line.
	chosen *Command
}

// A Setting is a flag of a command.
type Setting struct {
	// Variable is the variable of the environment; empty: there is none.
	Name, Short, Variable, Help, Group string
	// Default is the default value; HasDefault reports that there is one.
	Default    string
	HasDefault bool

	placeholder, xor string
	required         bool
	value            *value
}

// An argument is a positional argument of a command.
type argument struct {
	name, help        string
	optional, isQueue bool
	value             *value
}

// New returns the commands of a struct. It panics if a tag or a type is not as the package comment says.
func New(root any, p Program) *Command {
	c := newCommand(&p, p.Name, p.About, reflect.ValueOf(root))
	c.connect(c)
	c.cobra.SetHelpFunc(func(of *cobra.Command, _ []string) { c.writeHelp(of) })
	c.cobra.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return describe(err) })
	return c
}

func newCommand(p *Program, name, help string, target reflect.Value) *Command {
	c := &Command{Name: name, Target: target.Interface(), program: p, help: help}
	c.cobra = &cobra.Command{Use: name, Short: help, SilenceErrors: true, SilenceUsage: true, Args: cobra.ArbitraryArgs}
	flags := c.cobra.Flags()
	flags.SortFlags = false
	c.addFields(target.Elem())
	flags.BoolVarP(&c.showHelp, "help", "h", false, helpOfHelp)
	flags.BoolVar(&c.showVersion, "version", false, helpOfVersion)
	return c
}

// connect connects a command and those below it to the root.
func (c *Command) connect(root *Command) {
	c.cobra.RunE = func(_ *cobra.Command, arguments []string) error { return root.choose(c, arguments) }
	c.cobra.Flags().SetInterspersed(!c.hasQueue())
	for _, child := range c.Commands {
		child.connect(root)
		c.cobra.AddCommand(child.cobra)
	}
}

// addFields adds the fields of a struct to the command.
func (c *Command) addFields(target reflect.Value) {
	for i := range target.NumField() {
		field, at := target.Type().Field(i), target.Field(i)
		if field.Anonymous && field.Type.Kind() == reflect.Struct {
			c.addFields(at)
			continue
		}
		if !field.IsExported() {
			continue
		}
		name := field.Tag.Get("name")
		if name == "" {
			name = dashed(field.Name)
		}
		if _, is := field.Tag.Lookup("cmd"); is {
			c.Commands = append(c.Commands, newCommand(c.program, name, field.Tag.Get("help"), at.Addr()))
			continue
		}
		c.addValue(name, field.Tag, at)
	}
}

// addValue adds an argument or a setting.
func (c *Command) addValue(name string, tag reflect.StructTag, at reflect.Value) {
	if !isSettable(at.Type()) {
		panic(fmt.Sprintf("commandline: %s cannot be of type %s", name, at.Type()))
	}
	v := &value{target: at, isPath: tag.Get("type") == "path"}
	if enum := tag.Get("enum"); enum != "" {
		v.enum = strings.Split(enum, ",")
	}
	help := strings.ReplaceAll(tag.Get("help"), "${enum}", strings.Join(v.enum, ", "))
	text, hasDefault := tag.Lookup("default")
	for variable, value := range c.program.Variables {
		text = strings.ReplaceAll(text, "${"+variable+"}", value)
	}
	if hasDefault {
		if err := v.Set(text); err != nil {
			panic(fmt.Sprintf("commandline: the default of %s: %v", name, err)) // a tag is wrong
		}
		v.isSet = false
	}
	if _, is := tag.Lookup("arg"); is {
		_, optional := tag.Lookup("optional")
		_, isQueue := tag.Lookup("passthrough")
		c.arguments = append(c.arguments, &argument{name, help, optional, isQueue, v})
		return
	}
	_, required := tag.Lookup("required")
	s := &Setting{
		Name: name, Short: tag.Get("short"), Variable: c.variable(name, tag.Get("env")), Help: help, Group: tag.Get("group"),
		Default: text, HasDefault: hasDefault, placeholder: tag.Get("placeholder"), xor: tag.Get("xor"), required: required, value: v,
	}
	c.Settings = append(c.Settings, s)
	flag := c.cobra.Flags().VarPF(v, name, s.Short, help)
	if at.Kind() == reflect.Bool {
		flag.NoOptDefVal = "true"
	}
	complete := cobra.NoFileCompletions
	if v.isPath {
		complete = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		}
	} else if v.enum != nil {
		complete = cobra.FixedCompletions(v.enum, cobra.ShellCompDirectiveNoFileComp)
	}
	if err := c.cobra.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(fmt.Sprintf("commandline: %s: %v", name, err)) // the flag was just added
	}
}

func (c *Command) variable(name, tag string) string {
	switch tag {
	case "-":
		return ""
	case "":
		return c.program.Prefix + "_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	}
	return tag
}

// Parse parses a command line, and sets the fields of the command that it names. It returns nil if the command line has asked for help,
// the version or a completion, which are then written.
func (c *Command) Parse(arguments []string) (*Command, error) {
	c.chosen = nil
	c.cobra.SetArgs(append([]string{}, arguments...)) // cobra takes the process's own for nil
	c.cobra.SetOut(c.program.Out)
	err := c.cobra.Execute()
	return c.chosen, err
}

// choose sets the fields of a command after its flags are parsed.
func (c *Command) choose(chosen *Command, arguments []string) error {
	if chosen.showVersion {
		return chosen.show(c)
	}
	if len(chosen.Commands) > 0 {
		return chosen.missingCommand(arguments)
	}
	rest, err := chosen.setArguments(arguments)
	switch {
	case chosen.showHelp || chosen.showVersion: // behind an argument
		return chosen.show(c)
	case err != nil:
		return err
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %s", rest[0])
	}
	if err := chosen.resolve(); err != nil {
		return err
	}
	c.chosen = chosen
	return nil
}

// missingCommand returns the error for a command line that ends before a command, or has another word in its place.
func (c *Command) missingCommand(arguments []string) error {
	if len(arguments) > 0 {
		if near := c.cobra.SuggestionsFor(arguments[0]); len(near) > 0 {
			return fmt.Errorf("there is no command %q; did you mean %s?", arguments[0], strings.Join(near, " or "))
		}
		return fmt.Errorf("there is no command %q", arguments[0])
	}
	names := make([]string, len(c.Commands))
	for i, child := range c.Commands {
		names[i] = strconv.Quote(child.Name)
	}
	return fmt.Errorf("expected one of %s", strings.Join(names, ", "))
}

// show writes the version or the help of a command.
func (c *Command) show(root *Command) error {
	if c.showVersion {
		return c.program.Version(c.program.Out)
	}
	root.writeHelp(c.cobra)
	return nil
}

// resolve sets the settings that have no flag.
func (c *Command) resolve() error {
	if err := errors.Join(c.setVariables(), c.setFromFile()); err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if v, is := c.Target.(interface{ Validate() error }); is {
		return v.Validate()
	}
	return nil
}

// setArguments sets the arguments, and returns the arguments that are left.
func (c *Command) setArguments(given []string) (rest []string, err error) {
	rest = given
	for i, a := range c.arguments {
		if c.hasQueue() && i > 0 { // flags may stand between the arguments, but not behind the first of the queue
			if err := c.cobra.Flags().Parse(rest); err != nil {
				return nil, describe(err)
			}
			rest = c.cobra.Flags().Args()
		}
		switch {
		case len(rest) == 0 && a.optional:
			return nil, nil
		case len(rest) == 0:
			return nil, fmt.Errorf("expected %q", a.placeholder())
		case a.isQueue:
			a.value.target.Set(reflect.ValueOf(slices.Clone(rest)))
			return nil, nil
		}
		if err := a.value.Set(rest[0]); err != nil {
			return nil, fmt.Errorf("%s: %w", a.placeholder(), err)
		}
		rest = rest[1:]
	}
	return rest, nil
}

func (c *Command) hasQueue() bool {
	return len(c.arguments) > 0 && c.arguments[len(c.arguments)-1].isQueue
}

func (c *Command) setVariables() error {
	var errs []error
	for _, s := range c.Settings {
		if s.value.isSet || s.Variable == "" {
			continue
		}
		text, given := os.LookupEnv(s.Variable)
		if !given {
			continue
		}
		if err := s.value.Set(text); err != nil {
			errs = append(errs, fmt.Errorf("the variable %s: %s: %w", s.Variable, s.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Command) setFromFile() error {
	if c.program.File == nil {
		return nil
	}
	values, err := c.program.File(c)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range c.Settings {
		text, given := values[s.Name]
		if !given || s.value.isSet {
			continue
		}
		if err := s.value.Set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return errors.Join(errs...)
}

// check returns an error for settings that are missing or exclude each other.
func (c *Command) check() error {
	var missing []string
	exclusive := map[string]string{}
	for _, s := range c.Settings {
		if !s.value.isSet {
			if s.required {
				missing = append(missing, "--"+s.flag())
			}
			continue
		}
		if s.xor == "" {
			continue
		}
		if other := exclusive[s.xor]; other != "" {
			return fmt.Errorf("--%s and --%s can't be used together", other, s.Name)
		}
		exclusive[s.xor] = s.Name
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing flags: %s", strings.Join(missing, ", "))
	}
	return nil
}

// Value returns the value of a setting, or nil if the command has no such setting.
func (c *Command) Value(name string) any {
	for _, s := range c.Settings {
		if s.Name == name {
			return s.value.target.Interface()
		}
	}
	return nil
}

// Find returns the subcommand with a name, or nil.
func (c *Command) Find(name string) *Command {
	for _, child := range c.Commands {
		if child.Name == name {
			return child
		}
	}
	return nil
}

// describe returns an error of a flag in the form of the errors of other places.
func describe(err error) error {
	if invalid := (*pflag.InvalidValueError)(nil); errors.As(err, &invalid) {
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	return err
}
