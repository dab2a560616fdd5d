package runbook

import (
	"errors"
	"strings"
)

var (
	errNoBlock      = errors.New("no indented or fenced block follows")
	errFenceNotOver = errors.New("the block's closing fence is missing")
)

// block parses a block. If there is none, the parser stays where it is.
func (p *parser) block() (string, error) {
	first := p.next
	for first < len(p.lines) && isBlank(p.lines[first]) {
		first++
	}
	if first == len(p.lines) {
		return "", errNoBlock
	}
	if fence := fenceOf(p.lines[first]); fence != "" {
		return p.fenced(first, fence)
	}
	last := first // the line after the last indented one
	for i := first; i < len(p.lines); i++ {
		if isBlank(p.lines[i]) {
			continue
		}
		if indentOf(p.lines[i]) == "" {
			break
		}
		last = i + 1
	}
	if last == first {
		return "", errNoBlock
	}
	p.next = last
	return dedent(p.lines[first:last]), nil
}

// fenced parses a block with its opening fence in line first.
func (p *parser) fenced(first int, fence string) (string, error) {
	for i := first + 1; i < len(p.lines); i++ {
		closing := strings.TrimRight(p.lines[i], " \t")
		if strings.HasPrefix(closing, fence) && strings.Trim(closing, fence[:1]) == "" {
			p.next = i + 1
			return joined(p.lines[first+1 : i]), nil
		}
	}
	p.next = len(p.lines)
	return "", errFenceNotOver
}

// fenceOf returns the fence at the beginning of a line, or "".
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		fence := line[:len(line)-len(strings.TrimLeft(line, mark))]
		if len(fence) >= 3 && !strings.Contains(line[len(fence):], mark) {
			return fence
		}
	}
	return ""
}

// indentOf returns the spaces and tabs at the beginning of a line.
func indentOf(line string) string { return line[:len(line)-len(strings.TrimLeft(line, " \t"))] }

// dedent removes the indentation that all lines with text have in common.
func dedent(lines []string) string {
	common := indentOf(lines[0])
	for _, line := range lines[1:] {
		if isBlank(line) {
			continue
		}
		for !strings.HasPrefix(line, common) {
			common = common[:len(common)-1]
		}
	}
	block := make([]string, len(lines))
	for i, line := range lines {
		if !isBlank(line) {
			block[i] = strings.TrimPrefix(line, common)
		}
	}
	return joined(block)
}

// joined returns lines as a text; each ends with a newline.
func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}
