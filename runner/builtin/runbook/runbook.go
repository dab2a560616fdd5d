// Package runbook parses runbooks, and carries them out by means of functions that its caller provides.
//
// A runbook is a text; its lines are instructions:
//
//	# a comment
//	$ COMMAND                       run a shell command; the runbook fails if its status is not zero
//	$? COMMAND                      run a shell command, whatever its status
//	write PATH                      write the block that follows to a file
//	say TEXT                        say a text
//	ask QUESTION | OPTION | OPTION  ask, and continue with the answer; options may be omitted
//	sleep DURATION                  continue after a time such as 90s, 1h30m or 2d
//	step DONE/TOTAL TEXT            report a step of a job
//	start TITLE                     start a child session; the block that follows is its runbook
//	await                           wait for the child sessions
//	fail TEXT                       fail
//
// A block is a number of indented lines, without their common indentation, or the lines between two fences of at least
// three backticks or tildes. Blank lines before a block, and after an indented one, do not belong to it. An instruction begins
// in the first column. {{answer}} in a line or its block is the last answer, as it is; a shell command also has it in the
// environment, as ATELIER_ANSWER, where the shell does not interpret it.
//
// A text without a valid instruction is no runbook (ErrNotRunbook). If some lines are instructions and others are not, Parse
// returns a SyntaxError, and nothing is carried out.
//
// # Carrying out
//
// An Interpreter carries out the instructions of its State one after the other, and saves the State before each, with the
// instruction in State.Running. State is a JSON value; another process can continue with it: ask and sleep end a turn with the
// instruction in State.Waiting, and the next one calls Answer or Wake, or Interject if there are new lines instead. If the
// process is lost while a command runs, a file is written, a text said or a child started, Recover drops the instruction,
// because it may have had its effect. All other instructions can be repeated, and are.
package runbook

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits of a runbook. The limits of texts, in characters, and of options are the limits of the platform, which would refuse a
// line when the lines before it have had their effects.
const (
	MaxSteps    = 1000
	MaxOptions  = 16
	MaxQuestion = 10_000
	MaxOption   = 200
	MaxProgress = 200
	MaxTitle    = 200
	MaxPrompt   = 200_000
	MaxSleep    = 366 * 24 * time.Hour
)

// A Kind is the kind of an instruction.
type Kind string

// The kinds of instructions.
const (
	Shell Kind = "shell"
	Write Kind = "write"
	Say   Kind = "say"
	Ask   Kind = "ask"
	Sleep Kind = "sleep"
	Job   Kind = "step"
	Start Kind = "start"
	Await Kind = "await"
	Fail  Kind = "fail"
)

// A Step is an instruction.
type Step struct {
	// Line is the number of the line in the text, from 1.
	Line int  `json:"line"`
	Kind Kind `json:"kind"`
	// Text is the text after the word of the instruction.
	Text  string `json:"text,omitempty"`
	Block string `json:"block,omitempty"`
	// MayFail is set for a command that may end with any status.
	MayFail bool `json:"mayFail,omitempty"`
	// Until is the end of a sleep that has begun, in milliseconds since 1970.
	Until int64 `json:"until,omitempty"`
	// Permission is the person's permission for the step, if the step needs one.
	Permission Permission `json:"permission,omitempty"`
}

// A Permission says whether a person has permitted a step. It is empty before the person is asked.
type Permission string

const (
	// Requested: the person is asked, and the step has had no effect.
	Requested Permission = "requested"
	// Granted: the person has answered after the process that has asked was lost.
	Granted Permission = "granted"
)

// String returns the step's first line as it is written in a runbook.
func (s Step) String() string {
	switch {
	case s.Kind == Shell && s.MayFail:
		return "$? " + s.Text
	case s.Kind == Shell:
		return "$ " + s.Text
	case s.Text == "":
		return string(s.Kind)
	}
	return string(s.Kind) + " " + s.Text
}

// ErrNotRunbook is returned for a text without a valid instruction.
var ErrNotRunbook = errors.New("the text is no runbook")

// A SyntaxError says which line of a runbook is invalid, and why.
type SyntaxError struct {
	Line   int
	Reason string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// answer is replaced by the last answer.
const answer = "{{answer}}"

// Parse parses a runbook. It returns an error that wraps ErrNotRunbook, or a *SyntaxError.
func Parse(text string) ([]Step, error) {
	p := parser{lines: strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")}
	var steps []Step
	var invalid *SyntaxError
	for p.next < len(p.lines) {
		line := p.lines[p.next]
		p.next++
		if isBlank(line) || strings.HasPrefix(line, "#") {
			continue
		}
		number := p.next
		step, err := p.step(line)
		switch {
		case err == nil && len(steps) == MaxSteps:
			return nil, &SyntaxError{number, fmt.Sprintf("a runbook has at most %d instructions", MaxSteps)}
		case err == nil:
			step.Line = number
			steps = append(steps, step)
		case invalid == nil:
			invalid = &SyntaxError{number, err.Error()}
		}
	}
	switch {
	case len(steps) == 0 && invalid != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotRunbook, invalid)
	case len(steps) == 0:
		return nil, ErrNotRunbook
	case invalid != nil:
		return nil, invalid
	}
	return steps, nil
}

type parser struct {
	lines []string
	next  int // index of the next line
}

// step parses an instruction from its first line, and its block from the lines that follow.
func (p *parser) step(line string) (Step, error) {
	if line[0] == ' ' || line[0] == '\t' {
		return Step{}, errors.New("an indented line belongs to no write or start before it")
	}
	word, text, _ := strings.Cut(line, " ")
	step := Step{Kind: Kind(word), Text: strings.TrimSpace(text)}
	switch word {
	case "$", "$?":
		step.Kind, step.MayFail = Shell, word == "$?"
	case "write", "start":
		block, err := p.block()
		if err != nil {
			return Step{}, fmt.Errorf("%s: %w", word, err)
		}
		step.Block = block
	case "await":
		if step.Text != "" {
			return Step{}, errors.New("await stands alone")
		}
		return step, nil
	case "say", "ask", "sleep", "step", "fail":
	default:
		return Step{}, fmt.Errorf("%q is no instruction", excerpt(word))
	}
	if step.Text == "" {
		return Step{}, fmt.Errorf("nothing follows %s", word)
	}
	if strings.Contains(step.Text, answer) {
		return step, nil // checked when the answer is known
	}
	return step, step.check()
}

// check returns an error if the text of a step is invalid.
func (s Step) check() (err error) {
	switch s.Kind {
	case Ask:
		_, _, err = s.question()
	case Sleep:
		_, err = s.duration()
	case Job:
		_, _, _, err = s.progress()
	case Start:
		if err = checkLength("the title", s.Text, MaxTitle); err == nil {
			err = checkLength("the runbook of the child", s.Block, MaxPrompt)
		}
	}
	return err
}

// checkLength returns an error if a text has too many characters.
func checkLength(what, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return fmt.Errorf("%s has %d characters, at most %d are allowed", what, n, most)
	}
	return nil
}

// question returns the question of an ask step and its options.
func (s Step) question() (question string, options []string, err error) {
	parts := strings.Split(s.Text, "|")
	for i := range parts {
		if parts[i] = strings.TrimSpace(parts[i]); parts[i] == "" {
			return "", nil, errors.New("the question or an option of ask is empty")
		}
		what, most := "an option of ask", MaxOption
		if i == 0 {
			what, most = "the question", MaxQuestion
		}
		if err := checkLength(what, parts[i], most); err != nil {
			return "", nil, err
		}
	}
	if len(parts) > 1+MaxOptions {
		return "", nil, fmt.Errorf("ask has more than %d options", MaxOptions)
	}
	return parts[0], parts[1:], nil
}

// duration returns how long a sleep step lasts.
func (s Step) duration() (time.Duration, error) {
	const hint = "the duration %q is not like 90s, 1h30m or 2d"
	text, days := s.Text, time.Duration(0)
	if before, after, found := strings.Cut(text, "d"); found {
		n, err := strconv.ParseUint(before, 10, 16)
		if err != nil {
			return 0, fmt.Errorf(hint, excerpt(s.Text))
		}
		text, days = after, time.Duration(n)*24*time.Hour
	}
	var rest time.Duration
	if text != "" {
		var err error
		if rest, err = time.ParseDuration(text); err != nil {
			return 0, fmt.Errorf(hint, excerpt(s.Text))
		}
	}
	switch {
	case days > MaxSleep || rest > MaxSleep || days+rest > MaxSleep:
		return 0, fmt.Errorf("a sleep lasts at most %d days", MaxSleep/(24*time.Hour))
	case rest < 0 || days+rest < time.Millisecond:
		return 0, errors.New("a sleep lasts at least a millisecond")
	}
	return days + rest, nil
}

// progress returns the numbers and the text of a step instruction.
func (s Step) progress() (done, total int64, text string, err error) {
	numbers, text, _ := strings.Cut(s.Text, " ")
	first, second, _ := strings.Cut(numbers, "/")
	done, doneErr := strconv.ParseInt(first, 10, 32)
	total, totalErr := strconv.ParseInt(second, 10, 32)
	text = strings.TrimSpace(text)
	switch {
	case doneErr != nil || totalErr != nil || done < 0 || total < 1 || done > total:
		return 0, 0, "", fmt.Errorf("%q is not like 2/5", excerpt(numbers))
	case text == "":
		return 0, 0, "", errors.New("step has no text")
	}
	return done, total, text, checkLength("the text", text, MaxProgress)
}

func isBlank(line string) bool { return strings.TrimSpace(line) == "" }

// excerpt returns the beginning of a text, for error messages.
func excerpt(text string) string {
	if runes := []rune(text); len(runes) > 40 {
		return string(runes[:40]) + "…"
	}
	return text
}
