package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/atelier-run/atelier/client"
)

// A rowPrinter prints the rows of a timeline for people:
//
//	> an input; its further lines are indented
//	text of the agent
//	* a tool that has run
//	    its output
//	! a tool that has failed
//	- the plan of the agent
//	~ a thought
//	? a question
//	    1  an option, with its id
//	# a setting that has changed
//	= how the turn has ended
//
// On a terminal, text is printed as it is written unless a tool runs, and a tool appears when it starts. Characters that
// control a terminal are removed from everything that it prints.
type rowPrinter struct {
	to io.Writer
	// maxOutput is the number of lines of a tool's output that are printed; 0: all.
	maxOutput             int
	isTerminal, hasColors bool
	// columns is the width of the terminal.
	columns int

	out []byte
	// isInLine: the last line that was printed has no end.
	isInLine bool
	// streamed is the text that was printed before its row; isInterrupted: another row was printed since.
	streamed      string
	isInterrupted bool
	// isHeld: text is not printed before its row.
	isHeld bool
	// textInput is the input of the text before, or 0 if another row was printed since.
	textInput uint64
	// running are the tools that have started. shown is the id of the one that is in the current line, or empty.
	running []client.SessionRow
	shown   string
}

const (
	// outputLines is the number of lines of a tool's output that are printed, and outputColumns is the number of characters of a line.
	outputLines   = 20
	outputColumns = 400
)

// The codes of colors (ECMA-48, select graphic rendition).
const (
	bold, dim, red = "1", "2", "31"
)

// print prints a row or a delta.
func (p *rowPrinter) print(f client.SessionFrame) error {
	p.out = p.out[:0]
	switch {
	case f.Row != nil:
		p.printRow(*f.Row)
	case f.Delta != nil && p.isTerminal:
		p.printDelta(*f.Delta)
	}
	_, err := p.to.Write(p.out)
	return err
}

func (p *rowPrinter) printRow(r client.SessionRow) {
	if r.Kind == "text" {
		p.printText(r)
		return
	}
	if r.Kind == "tool" {
		p.printTool(r)
	} else {
		p.endLine()
	}
	p.isInterrupted, p.textInput = p.streamed != "", 0
	switch r.Kind {
	case "input":
		p.printInput(r)
	case "thought":
		p.block("~ ", dim, r.Text)
	case "plan":
		p.printPlan(r)
	case "ask":
		p.block("? ", bold, r.Text)
		p.printOptions(r.Options)
	case "terminal":
		p.printTerminal(r)
	case "setting":
		p.printSetting(r)
	}
}

// write appends text to the output.
func (p *rowPrinter) write(text string) {
	if text != "" {
		p.out = append(p.out, text...)
		p.isInLine, p.shown = !strings.HasSuffix(text, "\n"), ""
	}
}

// endLine ends the current line.
func (p *rowPrinter) endLine() {
	if p.isInLine {
		p.write("\n")
	}
}

// paint returns a text in a color.
func (p *rowPrinter) paint(color, text string) string {
	if !p.hasColors || color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// block prints lines of text, the first one after a mark and the others indented.
func (p *rowPrinter) block(mark, color, text string) {
	indent := strings.Repeat(" ", len(mark))
	for i, line := range strings.Split(strings.TrimRight(printable(text), "\n"), "\n") {
		if i > 0 {
			mark = indent
		}
		p.write(p.paint(color, strings.TrimRight(mark+line, " ")) + "\n")
	}
}

// beginText begins a new line unless the text before answers the same input.
func (p *rowPrinter) beginText(inputSeq uint64) {
	if p.textInput != inputSeq {
		p.endLine()
		p.textInput = inputSeq
	}
}

// printDelta prints text that is being written. While a tool runs, it leaves the text to its row: the text may follow the end
// of the tool, and the row of the tool comes later.
func (p *rowPrinter) printDelta(d client.SessionDelta) {
	if p.isHeld = p.isHeld || len(p.running) > 0; p.isHeld {
		return
	}
	p.beginText(d.InputSeq)
	p.streamed += d.Text
	p.write(printable(d.Text))
}

// printText prints a text, or the part of it that was not printed as it was written. Texts of the same input are one text.
func (p *rowPrinter) printText(r client.SessionRow) {
	p.isHeld = false
	switch {
	case !p.isInterrupted && strings.HasPrefix(p.streamed, r.Text):
		p.streamed = p.streamed[len(r.Text):]
		return
	case p.streamed == r.Text: // and other rows after it
	case !p.isInterrupted && strings.HasPrefix(r.Text, p.streamed):
		p.beginText(r.InputSeq)
		p.write(printable(r.Text[len(p.streamed):]))
	default: // a part of it was missed
		p.endLine()
		p.textInput = r.InputSeq
		p.write(printable(r.Text))
	}
	p.streamed, p.isInterrupted = "", false
}

// printInput prints an input and its author, unless the author is a person.
func (p *rowPrinter) printInput(r client.SessionRow) {
	label := ""
	if r.Input == "note" || r.Input == "answer" {
		label = r.Input
	}
	if s := r.Sender; s != nil && s.Kind != "user" {
		label = strings.TrimSpace(label + " from " + cmp.Or(s.SessionID, s.AppID, s.Kind))
	}
	if label != "" {
		label = "[" + label + "] "
	}
	p.block("> ", bold, label+r.Text)
	for _, a := range r.Attachments {
		p.write(fmt.Sprintf("  with %s, %d bytes\n", printable(a.Path), a.Size))
	}
	for _, i := range r.Images {
		p.write(fmt.Sprintf("  with an image, %s, %d bytes\n", printable(i.MediaType), i.Size))
	}
}

// printTool prints a tool that has ended with its output. One that has started is printed on a terminal only, in a line that its
// end replaces.
func (p *rowPrinter) printTool(r client.SessionRow) {
	isEnd := r.Status == "completed" || r.Status == "failed"
	p.running = slices.DeleteFunc(p.running, func(t client.SessionRow) bool { return t.ToolCallID == r.ToolCallID })
	if !isEnd {
		p.endLine()
		p.running = append(p.running, r)
		if p.isTerminal {
			p.write(p.paint(dim, cutLine("* "+firstLine(r.Title)+" …", p.columns-1)))
			p.shown = r.ToolCallID
		}
		return
	}
	if p.shown == r.ToolCallID && r.ToolCallID != "" {
		p.write("\r\x1b[K")
		p.isInLine = false
	}
	p.endLine()
	mark, color := "* ", ""
	if r.Status == "failed" {
		mark, color = "! ", red
	}
	p.block(mark, color, r.Title)
	p.printOutput(r.Output)
}

// printOutput prints the beginning and the end of the output of a tool.
func (p *rowPrinter) printOutput(output string) {
	output = strings.Trim(printable(output), "\n")
	if strings.TrimSpace(output) == "" {
		return
	}
	lines := strings.Split(output, "\n")
	head, tail := lines, []string(nil)
	if p.maxOutput > 0 && len(lines) > p.maxOutput {
		head, tail = lines[:p.maxOutput/2], lines[len(lines)-p.maxOutput/2:]
	}
	p.indent(head)
	if tail != nil {
		p.write(p.paint(dim, fmt.Sprintf("    … %d more lines; --full prints them", len(lines)-len(head)-len(tail))) + "\n")
		p.indent(tail)
	}
}

func (p *rowPrinter) indent(lines []string) {
	for _, line := range lines {
		if p.maxOutput > 0 {
			line = cutLine(line, outputColumns)
		}
		p.write(p.paint(dim, strings.TrimRight("    "+line, " ")) + "\n")
	}
}

var stepMarks = map[string]string{"completed": "[x]", "in_progress": "[>]"}

func (p *rowPrinter) printPlan(r client.SessionRow) {
	p.write("- plan\n")
	for _, s := range r.Steps {
		p.block("    "+cmp.Or(stepMarks[s.Status], "[ ]")+" ", "", s.Text)
	}
}

func (p *rowPrinter) printOptions(options []client.SessionOption) {
	for _, o := range options {
		p.block("    ", "", describeOption(o))
	}
}

// printTerminal prints the end of a turn, after the tools that have not ended.
func (p *rowPrinter) printTerminal(r client.SessionRow) {
	for _, t := range p.running {
		p.block("! ", red, firstLine(t.Title)+" (it has not ended)")
	}
	p.running = nil
	color := ""
	if r.TurnStatus == turnInterrupted {
		color = red
	}
	p.block("= ", color, describeTerminal(r.TurnStatus, r.Error))
}

func (p *rowPrinter) printSetting(r client.SessionRow) {
	if r.Title != "" {
		p.block("# ", dim, "title: "+r.Title)
	}
	if r.Cwd != nil {
		p.block("# ", dim, "directory: /"+*r.Cwd)
	}
	if r.Tier != "" {
		p.block("# ", dim, "tier: "+r.Tier)
	}
}

// printable returns a text without the characters that control a terminal or the direction of text. It preserves tabs and newlines.
func printable(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r':
			return '\n' // a line that a program writes again and again
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return -1
		}
		return r
	}, text)
}

// firstLine returns the first line of a text.
func firstLine(text string) string {
	line, _, isCut := strings.Cut(strings.TrimSpace(printable(text)), "\n")
	if isCut {
		return line + " …"
	}
	return line
}

// cutLine returns a line of at most n characters.
func cutLine(line string, n int) string {
	n = max(n, 2)
	if utf8.RuneCountInString(line) <= n {
		return line
	}
	return string([]rune(line)[:n-2]) + " …"
}
