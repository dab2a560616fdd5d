package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const computerPath = "/computer"

// ExecRequest is a command to run in the computer of a workspace.
type ExecRequest struct {
	// Argv is the program and its arguments. There is no shell, unless the program is one.
	Argv []string `json:"argv"`
	// Cwd is the working directory, a path of the drive; empty: its root.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the environment of the computer.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is the input. It must be UTF-8.
	Stdin string `json:"stdin,omitempty"`
	// TimeoutSeconds is the time after which the process is ended; 0: 600.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
}

// errIncomplete is returned if the response to Exec ends before its last line.
var errIncomplete = errors.New("client: the connection ended before the command")

// Exec runs a command in the computer of a workspace. It writes the output as it arrives, and returns the exit status. If ctx
// ends or a write fails, the server ends the command with all its descendants. Output that is not UTF-8 is altered; to
// transfer files, use the drive. The error is an *Error if the server refused the command or has ended it. Codes: forbidden,
// invalid_request, limit_reached, timeout, out_of_memory, disk_full, stopped, lost, unavailable.
func (c *Client) Exec(ctx context.Context, slug string, q ExecRequest, stdout, stderr io.Writer) (status int, err error) {
	body, err := json.Marshal(q)
	if err != nil {
		return 0, fmt.Errorf("client: encode the request: %w", err)
	}
	h, err := c.newRequest(ctx, http.MethodPost, workspacePath(slug, computerPath+"/exec"), nil, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	h.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(h)
	if err != nil {
		return 0, err
	}
	if !succeeded(response) {
		return 0, newError(response)
	}
	defer response.Body.Close()
	status, err = readOutput(response.Body, stdout, stderr)
	if ended := (*Error)(nil); errors.As(err, &ended) {
		ended.Status, ended.RequestID = response.StatusCode, response.Header.Get("X-Request-Id")
	}
	if ctx.Err() != nil && err != nil {
		return 0, context.Cause(ctx)
	}
	return status, err
}

// endOfProcess is how a process has ended: the last line of its output, or the last message of its terminal.
type endOfProcess struct {
	Exit  *int `json:"exit"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// result returns the exit status, or the error that the server has ended the process with. hasEnded is false if the process has not ended.
func (e endOfProcess) result() (status int, hasEnded bool, err error) {
	switch {
	case e.Error != nil:
		return 0, true, &Error{Code: e.Error.Code, Message: e.Error.Message}
	case e.Exit != nil:
		return *e.Exit, true, nil
	}
	return 0, false, nil
}

// readOutput reads the lines of a response until the last one.
func readOutput(body io.Reader, stdout, stderr io.Writer) (int, error) {
	lines, isCut := bufio.NewScanner(body), false
	lines.Buffer(make([]byte, 0, 4096), maxLineBytes)
	lines.Split(func(data []byte, atEnd bool) (advance int, token []byte, err error) {
		isCut = atEnd && !bytes.Contains(data, []byte("\n"))
		return bufio.ScanLines(data, atEnd)
	})
	for lines.Scan() {
		var line struct {
			Stdout string `json:"stdout"`
			Stderr string `json:"stderr"`
			endOfProcess
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			if isCut { // the scanner returns the beginning of a line as a line
				break
			}
			return 0, fmt.Errorf("client: decode the response: %w", err)
		}
		if status, hasEnded, err := line.result(); hasEnded {
			return status, err
		}
		if _, err := io.WriteString(stdout, line.Stdout); err != nil {
			return 0, err
		}
		if _, err := io.WriteString(stderr, line.Stderr); err != nil {
			return 0, err
		}
	}
	return 0, errors.Join(errIncomplete, lines.Err())
}
