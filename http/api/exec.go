package api

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

// execRequest is the body of a request to run a command.
type execRequest struct {
	Argv           []string          `json:"argv"`
	Cwd            string            `json:"cwd"`
	Env            map[string]string `json:"env"`
	Stdin          string            `json:"stdin"`
	TimeoutSeconds *int64            `json:"timeoutSeconds"`
}

// Limits of a command, which are narrower than the limits of computer.Spec.
const (
	maxArguments     = 256
	maxArgumentBytes = 128 << 10
	maxVariables     = 256
	maxVariableBytes = 64 << 10

	defaultTimeout = 600
	maxTimeout     = 86_400
)

// checkExec returns invalid_request if the request is invalid.
func checkExec(in *execRequest) error {
	size := 0
	for _, argument := range in.Argv {
		size += len(argument) + 1
		if strings.Contains(argument, "\x00") {
			return server.Invalid("argv must not have NUL characters")
		}
	}
	switch {
	case len(in.Argv) < 1 || len(in.Argv) > maxArguments:
		return server.Invalid("argv must have 1 to %d strings", maxArguments)
	case in.Argv[0] == "":
		return server.Invalid("argv must begin with the name of a program")
	case size > maxArgumentBytes:
		return server.Invalid("argv must have at most %d bytes", maxArgumentBytes)
	case in.TimeoutSeconds != nil && (*in.TimeoutSeconds < 1 || *in.TimeoutSeconds > maxTimeout):
		return server.Invalid("timeoutSeconds must be an integer from 1 to %d", maxTimeout)
	}
	if err := checkCwd(in.Cwd); err != nil {
		return err
	}
	return checkVariables(in.Env)
}

// checkVariables checks an environment. Any name is allowed, also the names that the dynamic linker reads: the caller may run any
// program in the computer anyway.
func checkVariables(env map[string]string) error {
	size := 0
	for name, value := range env {
		size += len(name) + len(value) + 2
		switch {
		case !entity.IsVariableName(name):
			return server.Invalid("env must have names of 1 to %d letters, digits and underscores that do not begin with a digit",
				entity.MaxVariableNameBytes)
		case strings.Contains(value, "\x00"):
			return server.Invalid("env must not have NUL characters")
		}
	}
	if len(env) > maxVariables || size > maxVariableBytes {
		return server.Invalid("env must have at most %d variables and %d bytes", maxVariables, maxVariableBytes)
	}
	return nil
}

// options returns the description of the process to start.
func (in execRequest) options() ExecOptions {
	o := ExecOptions{Argv: in.Argv, Cwd: in.Cwd}
	for name, value := range in.Env {
		o.Env = append(o.Env, name+"="+value)
	}
	slices.Sort(o.Env)
	return o
}

// timeout returns the time after which the process is ended.
func (in execRequest) timeout() time.Duration {
	if in.TimeoutSeconds == nil {
		return defaultTimeout * time.Second
	}
	return time.Duration(*in.TimeoutSeconds) * time.Second
}

// exec runs a command and sends its output as it arrives. Package server describes the flow.
func (p processes) exec(c *server.Call) error {
	in, err := server.Checked(checkExec)(c)
	if err != nil {
		return c.Withhold(err)
	}
	if err := c.Authorize(); err != nil {
		return err
	}
	return c.RunLong(func(ctx context.Context) error {
		process, err := p.start(ctx, c, in)
		if err != nil {
			return err
		}
		return follow(ctx, c, in, process)
	})
}

// start starts the process within the time of an ordinary request.
func (p processes) start(ctx context.Context, c *server.Call, in execRequest) (*running, error) {
	if p.computers == nil {
		return nil, errNoProcesses
	}
	process, err := server.Submit(ctx, c, func(c *server.Call) (Process, error) {
		return p.computers.Exec(c.Context, c.Workspace.ID, c.Caller.Principal, in.options())
	})
	if err != nil {
		return nil, err
	}
	r := &running{Process: process, ended: make(chan struct{})}
	go r.wait()
	return r, nil
}

// running is a process that is waited for.
type running struct {
	Process
	// ended is closed when the fields below are set.
	ended  chan struct{}
	status int
	reason string
	err    error
}

func (r *running) wait() {
	r.status, r.reason, r.err = r.Process.Wait(context.Background())
	close(r.ended)
}

// Ended is closed when Wait has returned.
func (r *running) Ended() <-chan struct{} { return r.ended }

// follow sends the output of a process until it ends, and ends it if its time is over, or ctx ends.
func follow(ctx context.Context, c *server.Call, in execRequest, r *running) error {
	defer c.EndLasting(r)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	timer := time.AfterFunc(in.timeout(), func() {
		end(entity.Errorf("timeout", "the command was ended because it ran for %d seconds", int(in.timeout().Seconds())))
	})
	defer timer.Stop()

	out := &output{lines: c.OpenLines(), fail: end}
	defer context.AfterFunc(ctx, out.lines.BeginEnd)()
	alive, stopKeepAlive := context.WithCancel(ctx)
	defer stopKeepAlive()
	var copying sync.WaitGroup
	copying.Go(func() { out.keepAlive(alive) })
	copying.Go(func() { sendInput(r, in.Stdin) })
	copying.Go(func() { out.copy("stdout", r.Stdout()) })
	copying.Go(func() { out.copy("stderr", r.Stderr()) })
	select {
	case <-r.Ended():
	case <-ctx.Done():
		c.EndLasting(r)
		<-r.Ended() // its changes may still have to be recorded
	}
	timer.Stop()
	stopKeepAlive()
	r.Stdin().Close() // ends a write that the process has not read
	copying.Wait()

	last := viewEnd(c, r.status, r.reason, r.err)
	if ctx.Err() != nil {
		refused := server.Refusal(ctx)
		if refused == nil { // the client has gone, or does not read
			return c.AbortAfterFirstByte(context.Cause(ctx))
		}
		last = viewRefusal(refused)
	}
	line, err := json.Marshal(last)
	if err != nil {
		return err
	}
	return c.AbortAfterFirstByte(out.lines.WriteLast(append(line, '\n')))
}

// sendInput writes the input of a process. A process may end, or close its input, before it has read all of it.
func sendInput(r *running, text string) {
	_, _ = io.WriteString(r.Stdin(), text)
	_ = r.Stdin().Close()
}

// output sends the output of a process as lines.
type output struct {
	lines *server.Lines
	// fail ends the process: the client has gone, or does not read.
	fail context.CancelCauseFunc
}

// keepAlive sends lines without text until ctx ends.
func (o *output) keepAlive(ctx context.Context) {
	if err := o.lines.KeepAlive(ctx, textLine("stdout", nil)); err != nil {
		o.fail(err)
	}
}

// maxText bounds the output in a line, in bytes before they are encoded.
const maxText = 32 << 10

// copy sends a stream of the process as lines with one field. It reads the next part only after the client has taken the previous one.
func (o *output) copy(field string, from io.Reader) {
	buffer, rest := make([]byte, maxText), 0
	for {
		n, err := from.Read(buffer[rest:])
		text := buffer[:rest+n]
		whole := len(text)
		if err == nil {
			whole -= incomplete(text)
		}
		if whole > 0 {
			if failed := o.lines.Write(textLine(field, text[:whole])); failed != nil {
				o.fail(failed)
				_, _ = io.Copy(io.Discard, from)
				return
			}
		}
		if err != nil {
			return
		}
		rest = copy(buffer, text[whole:])
	}
}

// textLine returns a line with one field. Bytes that are not UTF-8 become U+FFFD each.
func textLine(field string, text []byte) []byte {
	line := make([]byte, 0, len(text)+len(text)/8+32)
	line = append(append(append(line, `{"`...), field...), `":`...)
	line, _ = jsontext.AppendQuote(line, text) // it replaces invalid bytes, and reports them as its only error
	return append(line, "}\n"...)
}

// incomplete returns the number of bytes at the end of a text that begin a character and may be completed by later bytes.
func incomplete(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
