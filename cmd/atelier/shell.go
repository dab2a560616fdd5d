package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/atelier-run/atelier/client"
)

// shellCommand is atelier shell.
type shellCommand struct {
	serverFlags
	Cwd      string `env:"-" placeholder:"PATH" help:"Working directory, a path of the drive. Default: its root."`
	Terminal string `env:"-" placeholder:"ID" help:"Resume this open terminal instead of opening one."`

	Workspace string `arg:"" help:"Slug of the workspace."`
}

// errDetached ends the connection of a shell after its user has detached from it.
var errDetached = errors.New("detached")

// Run opens a shell in the computer of a workspace, and exits with its status. A line that begins with "~." detaches from the
// shell, which stays open for some time; "~~" stands for a tilde there.
func (c *shellCommand) Run(ctx context.Context, out console) error {
	api, err := c.connect()
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, detach := context.WithCancelCause(ctx)
	defer detach(nil)
	isInteractive := term.IsTerminal(int(os.Stdin.Fd()))
	options := client.TerminalOptions{Cwd: c.Cwd, ID: c.Terminal, Notify: notifyOf(out)}
	if isInteractive {
		options.Columns, options.Rows = terminalSize()
	}
	terminal, err := api.OpenTerminal(ctx, c.Workspace, options)
	if err != nil {
		return remoteResult(ctx, 0, err)
	}
	restore := func() {}
	if isInteractive {
		if restore, err = makeRaw(); err != nil {
			return errors.Join(err, terminal.End(), terminal.Close())
		}
		defer restore()
		defer followSize(terminal)()
	}
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		_, _ = io.Copy(out.out, terminal) // Wait returns its errors
	}()
	go func() {
		if err := sendInput(terminal, os.Stdin, isInteractive, out); err != nil {
			detach(err)
		}
	}()
	status, err := terminal.Wait()
	<-shown
	restore()
	if err != nil && context.Cause(ctx) == errDetached {
		fmt.Fprintf(out.errors, "\n[detached; the shell stays open for some time: atelier shell --terminal=%s %s]\n", terminal.ID(), c.Workspace)
		return nil
	}
	if cause := context.Cause(ctx); err != nil && ctx.Err() != nil && !errors.Is(cause, context.Canceled) {
		return coded{cause, exitRemote}
	}
	return remoteResult(ctx, status, err)
}

// notifyOf returns a function that tells the user about the connection.
func notifyOf(out console) func(error) {
	return func(err error) {
		if err != nil {
			fmt.Fprint(out.errors, "\r\n[the connection is broken; connecting again. Enter ~. to detach]\r\n")
			return
		}
		fmt.Fprint(out.errors, "[connected again]\r\n")
	}
}

// terminalSize returns the size of the program's terminal, within the bounds of the server.
func terminalSize() (columns, rows int) {
	const most = 1000
	columns, rows, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil || columns < 1 || rows < 1 {
		return 80, 24
	}
	return min(columns, most), min(rows, most)
}

// makeRaw makes the program's terminal pass each key on, until restore is called.
func makeRaw() (restore func(), err error) {
	fd := int(os.Stdin.Fd())
	before, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("set the terminal's mode: %w", err)
	}
	return func() { _ = term.Restore(fd, before) }, nil
}

// followSize changes the size of a terminal with the size of the program's terminal, until the function that it returns is called.
func followSize(terminal *client.Terminal) (stop func()) {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	go func() {
		for range changes {
			_ = terminal.Resize(terminalSize()) // repeated with the next connection
		}
	}()
	return func() {
		signal.Stop(changes)
		close(changes)
	}
}

// sendInput sends the input until its end, and then the character that ends the input of a terminal. It returns errDetached if
// the user detaches. What a person types while there is no connection is dropped, with a bell.
func sendInput(terminal *client.Terminal, from io.Reader, isInteractive bool, out console) error {
	const endOfInput, bell = "\x04", "\a"
	escapes := escapeFilter{isLineStart: isInteractive}
	buffer, isLineEnd := make([]byte, 4096), true
	for {
		n, err := from.Read(buffer)
		keys, isDetaching := buffer[:n], false
		if isInteractive {
			keys, isDetaching = escapes.filter(keys)
		}
		if len(keys) > 0 {
			isLineEnd = bytes.HasSuffix(keys, []byte("\n"))
			_, failed := terminal.Write(keys)
			switch {
			case failed == nil:
			case isInteractive:
				fmt.Fprint(out.errors, bell)
			default:
				return fmt.Errorf("the input is incomplete: %w", failed)
			}
		}
		switch {
		case isDetaching:
			return errDetached
		case err != nil && !isInteractive:
			if !isLineEnd { // the first one ends the line only
				_, _ = terminal.Write([]byte(endOfInput))
			}
			_, _ = terminal.Write([]byte(endOfInput))
			return nil // the shell ends by itself
		case err != nil: // the user's terminal has gone
			return errDetached
		}
	}
}

// escapeFilter finds "~." at the beginnings of lines.
type escapeFilter struct {
	isLineStart bool
	// hasTilde reports that a tilde at the beginning of a line is held back.
	hasTilde bool
}

// filter returns the input without escapes. isDetaching reports "~."; what follows it is dropped.
func (f *escapeFilter) filter(keys []byte) (rest []byte, isDetaching bool) {
	for _, key := range keys {
		if f.hasTilde {
			f.hasTilde = false
			if key == '.' {
				return rest, true
			}
			rest = append(rest, '~')
			if key == '~' {
				f.isLineStart = false
				continue
			}
		} else if f.isLineStart && key == '~' {
			f.hasTilde = true
			continue
		}
		f.isLineStart = key == '\r' || key == '\n'
		rest = append(rest, key)
	}
	return rest, false
}
