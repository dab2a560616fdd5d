package commandline_test

import (
	"errors"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/cmd/commandline"
)

type commands struct {
	Serve serve `cmd:"" help:"Run."`
	Exec  exec  `cmd:"" help:"Execute."`
	Show  show  `cmd:"" help:"Show."`
}

type shared struct {
	Data string `default:"data" type:"path" help:"Directory."`
}

type serve struct {
	shared
	MaxStreams int           `group:"Limits" default:"10" help:"Streams."`
	Level      string        `default:"${usual}" enum:"info,warn" help:"Level: ${enum}."`
	After      time.Duration `default:"1m" help:"Time."`
	Trees      []string      `default:"a,b" help:"Trees."`
	Proxies    []netip.Addr  `help:"Proxies."`
	Share      float64       `help:"Share."`
	Since      *uint64       `help:"Since."`
	ACMERoot   string        `env:"ROOT" help:"Root."`
	On         bool          `xor:"state" help:"On."`
	Off        bool          `xor:"state" help:"Off."`
}

func (s *serve) Validate() error {
	if s.MaxStreams < 0 {
		return errors.New("max-streams: below zero")
	}
	return nil
}

type exec struct {
	Env   map[string]string `env:"-" help:"Variables."`
	Quiet bool              `short:"q" help:"Quiet."`
	Space string            `arg:"" help:"Space."`
	Argv  []string          `arg:"" passthrough:"" help:"Program."`
}

type show struct {
	Email string `required:"" placeholder:"EMAIL" help:"Address."`
	From  string `arg:"" help:"From."`
	To    string `arg:"" optional:"" default:"." help:"To."`
}

func (show) Help() string { return "More about it." }

// parse parses a command line with a file of settings, and returns the printed text.
func parse(file map[string]string, line ...string) (*commandline.Command, string, error) {
	var out strings.Builder
	chosen, err := commandline.New(&commands{}, commandline.Program{
		Name: "it", About: "About it.", Prefix: "IT", Variables: map[string]string{"usual": "info"}, Out: &out,
		File:    func(*commandline.Command) (map[string]string, error) { return file, nil },
		Version: func(w io.Writer) error { _, err := io.WriteString(w, "it 1\n"); return err },
	}).Parse(line)
	return chosen, out.String(), err
}

func TestPlacesOfSettings(t *testing.T) {
	t.Setenv("IT_MAX_STREAMS", "3")
	t.Setenv("IT_AFTER", "3s")
	t.Setenv("ROOT", "env")
	file := map[string]string{"max-streams": "4", "after": "4s", "trees": "x,y", "since": "4"}
	chosen, _, err := parse(file, "serve", "--max-streams=2", "--proxies=192.0.2.1", "--proxies", "::1,::2", "--share=0.5", "--on")
	if err != nil {
		t.Fatal(err)
	}
	s := chosen.Target.(*serve)
	if s.MaxStreams != 2 || s.After != 3*time.Second || !slices.Equal(s.Trees, []string{"x", "y"}) || *s.Since != 4 || s.Level != "info" ||
		s.ACMERoot != "env" || len(s.Proxies) != 3 || s.Share != 0.5 || !s.On || s.Off {
		t.Errorf("%+v", s)
	}
	if !strings.HasPrefix(s.Data, "/") || !strings.HasSuffix(s.Data, "/data") {
		t.Errorf("the path is %q", s.Data)
	}
	if chosen.Name != "serve" || chosen.Value("max-streams") != 2 || chosen.Value("none") != nil {
		t.Errorf("%s, %v", chosen.Name, chosen.Value("max-streams"))
	}
}

// TestEmptyLists empties a list with a default, and one without, at each place of a setting.
func TestEmptyLists(t *testing.T) {
	for name, file := range map[string]map[string]string{
		"flag": nil, "variable": nil, "file": {"trees": "", "proxies": ""},
	} {
		t.Run(name, func(t *testing.T) {
			line := []string{"serve"}
			switch name {
			case "flag":
				line = append(line, "--trees=", "--proxies", "")
			case "variable":
				t.Setenv("IT_TREES", "")
				t.Setenv("IT_PROXIES", "")
			}
			chosen, _, err := parse(file, line...)
			if err != nil {
				t.Fatal(err)
			}
			if s := chosen.Target.(*serve); s.Trees == nil || len(s.Trees) > 0 || s.Proxies == nil || len(s.Proxies) > 0 {
				t.Errorf("%#v, %#v", s.Trees, s.Proxies)
			}
		})
	}
}

// TestQueue parses commands with a command line as their last argument.
func TestQueue(t *testing.T) {
	for line, want := range map[string]exec{
		"exec a ls -l --help":                     {Space: "a", Argv: []string{"ls", "-l", "--help"}},
		"exec -q --env=X=1,2 a -- -l":             {Space: "a", Argv: []string{"-l"}, Quiet: true, Env: map[string]string{"X": "1,2"}},
		"exec a --env X=1 --env Y= ls --env":      {Space: "a", Argv: []string{"ls", "--env"}, Env: map[string]string{"X": "1", "Y": ""}},
		"exec -- a ls":                            {Space: "a", Argv: []string{"ls"}},
		"exec --quiet=false a sh -c exec --quiet": {Space: "a", Argv: []string{"sh", "-c", "exec", "--quiet"}},
	} {
		chosen, _, err := parse(nil, strings.Fields(line)...)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got := *chosen.Target.(*exec)
		if got.Space != want.Space || !slices.Equal(got.Argv, want.Argv) || got.Quiet != want.Quiet || !maps.Equal(got.Env, want.Env) {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Setenv("IT_SHARE", "much")
	for line, want := range map[string]string{
		"":                                 `expected one of "serve", "exec", "show"`,
		"fly":                              `there is no command "fly"`,
		"serv":                             `there is no command "serv"; did you mean serve?`,
		"serve":                            `the variable IT_SHARE: share: "much" is not a number`,
		"serve x":                          `unexpected argument x`,
		"serve --fast":                     `unknown flag: --fast`,
		"serve --max-streams=x":            `--max-streams: "x" is not a whole number of 64 bits`,
		"serve --since=-1":                 `--since: "-1" is not a whole number from 0`,
		"serve --after=1":                  `--after: "1" is not a duration, such as 90s, 15m or 2h`,
		"serve --level=loud":               `--level: it must be one of "info", "warn", not "loud"`,
		"serve --on=perhaps":               `--on: "perhaps" is neither true nor false`,
		"serve --share=1 --on --off":       `--on and --off can't be used together`,
		"serve --share=1 --max-streams=-1": `max-streams: below zero`,
		"serve --trees=a,,b":               `--trees: "a,,b" has an empty item`,
		"serve --proxies=192.0.2.1,":       `--proxies: "192.0.2.1," has an empty item`,
		"exec":                             `expected "<space>"`,
		"exec a":                           `expected "<argv> ..."`,
		"exec --env=X a ls":                `--env: "X" is not NAME=VALUE`,
		"exec a --fast ls":                 `unknown flag: --fast`,
		"show a":                           `missing flags: --email=EMAIL`,
		"show --email=a a b c":             `unexpected argument c`,
	} {
		chosen, _, err := parse(nil, strings.Fields(line)...)
		if err == nil || err.Error() != want || chosen != nil {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	if _, _, err := parse(map[string]string{"since": "x"}, "serve", "--share=1"); err == nil || err.Error() != `since: "x" is not a whole number from 0` {
		t.Errorf("file: %v", err)
	}
}

func TestHelp(t *testing.T) {
	for line, want := range map[string]string{
		"--version":                 "it 1\n",
		"exec a --version":          "it 1\n",
		"show --help":               "Usage: it show <from> [<to>] [flags]\n\nShow.\n\nMore about it.\n\nArguments:\n  <from>  From.\n",
		"serve -h":                  "Level: info, warn ($IT_LEVEL).",
		"exec a -h":                 "Usage: it exec <space> <argv> ... [flags]\n",
		"help exec":                 "  -q, --quiet    Quiet ($IT_QUIET).\n",
		"--help":                    "Commands:\n  serve       Run.\n",
		"completion --help":         "Generate the autocompletion script",
		"__complete serve --l":      "--level",
		"__complete serve --level ": "info\nwarn\n",
	} {
		words := strings.Split(line, " ")
		chosen, out, err := parse(nil, words...)
		if err != nil || chosen != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	_, out, _ := parse(nil, "serve", "--help")
	if flags, limits := strings.Index(out, "\nFlags:\n"), strings.Index(out, "\nLimits:\n      --max-streams=10  Streams ($IT_MAX_STREAMS).\n"); flags < 0 || limits < flags {
		t.Error(out)
	}
	for line := range strings.Lines(out) {
		if len(line) > 81 {
			t.Errorf("a line has %d characters: %s", len(line), line)
		}
	}
}

func TestWrongTags(t *testing.T) {
	for name, root := range map[string]any{
		"type": &struct {
			At time.Time
			Of chan int
		}{},
		"default": &struct {
			N int `default:"x"`
		}{},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			commandline.New(root, commandline.Program{})
		}()
	}
}
