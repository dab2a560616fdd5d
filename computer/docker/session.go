package docker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"github.com/atelier-run/atelier/computer/docker/agent"
	"github.com/atelier-run/atelier/retry"
)

// A session is a command of the agent that the engine runs, and the connection to its streams.
type session struct {
	execID         string
	conn           net.Conn
	stdout, stderr *pipe
	isTerminal     bool
	// copied is closed when all output has been received.
	copied chan struct{}
	// isEnding is set when the process has ended, and no more output is expected.
	isEnding atomic.Bool
}

// open starts a command of the agent in the container.
func (c *runningContainer) open(ctx context.Context, env []string, isTerminal bool, arguments ...string) (*session, error) {
	d := c.driver
	created, err := d.engine.ExecCreate(ctx, c.id, client.ExecCreateOptions{
		User: d.options.User, TTY: isTerminal, AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Env: env, WorkingDir: "/", Cmd: d.agentCommand(arguments...),
	})
	if err != nil {
		return nil, unavailable("create a process", err)
	}
	attached, err := d.engine.ExecAttach(ctx, created.ID, client.ExecAttachOptions{TTY: isTerminal})
	if err != nil {
		return nil, unavailable("start a process", err)
	}
	s := &session{
		execID: created.ID, conn: attached.Conn, stdout: newPipe(), stderr: newPipe(), isTerminal: isTerminal,
		copied: make(chan struct{}),
	}
	go s.copy(attached.Reader)
	return s, nil
}

// copy receives the output until the connection ends.
func (s *session) copy(reader *bufio.Reader) {
	defer close(s.copied)
	defer s.stderr.end()
	defer s.stdout.end()
	from := &endingReader{s, reader}
	if s.isTerminal {
		_, _ = io.Copy(s.stdout, from)
		return
	}
	_, _ = stdcopy.StdCopy(s.stdout, s.stderr, from)
}

// drain is how long the engine may take to send more of the output of a process that has ended.
const drain = 2 * time.Second

// An endingReader reads from a session's connection, after the process has ended not longer than drain at a time.
type endingReader struct {
	session *session
	reader  io.Reader
}

func (r *endingReader) Read(b []byte) (int, error) {
	if r.session.isEnding.Load() {
		_ = r.session.conn.SetReadDeadline(time.Now().Add(drain))
	}
	return r.reader.Read(b)
}

// finish limits how long output is awaited.
func (s *session) finish() {
	s.isEnding.Store(true)
	_ = s.conn.SetReadDeadline(time.Now().Add(drain))
}

// maxHandshake bounds a line of the agent.
const maxHandshake = 8 << 10

var errNoAnswer = errors.New("the agent has ended")

// readLine reads one of the agent's lines: its kind and its text. It closes the connection if ctx ends first.
func (s *session) readLine(ctx context.Context) (kind, text string, err error) {
	stop := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer stop()
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := s.stdout.Read(b); err != nil || len(line) == maxHandshake {
			if ctx.Err() != nil {
				return "", "", ctx.Err()
			}
			said := make([]byte, maxHandshake)
			n, _ := s.stderr.Read(said)
			return "", "", fmt.Errorf("%w: %s", errNoAnswer, strings.TrimSpace(string(line)+" "+string(said[:n])))
		}
		if b[0] == '\n' {
			break
		}
	}
	kind, text, _ = strings.Cut(strings.TrimSpace(string(line)), " ")
	return kind, text, nil
}

// release lets the held process become the program.
func (s *session) release(timeout time.Duration) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := s.conn.Write([]byte{'\n'})
	_ = s.conn.SetWriteDeadline(time.Time{})
	return err
}

// parseIdentity parses the text of the line agent.Held.
func parseIdentity(text string) (i agent.Identity, err error) {
	pid, started, _ := strings.Cut(text, " ")
	if i.PID, err = strconv.Atoi(pid); err != nil || i.PID <= 1 {
		return i, fmt.Errorf("the agent has answered %q instead of a process id", text)
	}
	i.Started, err = strconv.ParseUint(started, 10, 64)
	return i, err
}

// hostPID returns the process id on this machine of a held process, or 0 if the engine runs on a different machine or in a
// different process namespace. The engine's answer is verified: the process must have the same id in the container.
func (c *runningContainer) hostPID(ctx context.Context, execID string, i agent.Identity) int {
	pid := c.enginePID(ctx, execID)
	if pid <= 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		ids, found := strings.CutPrefix(line, "NSpid:")
		if fields := strings.Fields(ids); found && len(fields) > 1 && fields[len(fields)-1] == strconv.Itoa(i.PID) &&
			agent.IsStartedAt(pid, i.Started) {
			return pid
		}
	}
	return 0
}

// queryingPID has the pauses between queries for a process id, pidQueries is the number of queries. All pauses together are at least a second.
var queryingPID = retry.Policy{First: time.Millisecond, Longest: time.Second}

const pidQueries = 12

// enginePID returns the process id of a command as the engine knows it, or 0. Docker may record it only after the process has begun to
// write.
func (c *runningContainer) enginePID(ctx context.Context, execID string) int {
	for query := range queryingPID.Attempts(ctx) {
		inspected, err := c.driver.engine.ExecInspect(ctx, execID, client.ExecInspectOptions{})
		if err != nil || inspected.PID > 0 || query == pidQueries {
			return inspected.PID
		}
	}
	return 0
}
