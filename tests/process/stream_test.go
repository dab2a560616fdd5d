package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// follow reads a stream of the workspace until it ends, and hands on each row with its id. It returns nil where the node
// ended the stream as the protocol has it, and an error where it was cut off.
func (c *client) follow(ctx context.Context, last string, open func(), each func(id string, data []byte)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.address+space+"/file-activity/events?reads=1", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+c.key)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(response.Body)
		return fmt.Errorf("stream: %d %s", response.StatusCode, answer)
	}
	open()
	return frames(bufio.NewReader(response.Body), each)
}

// frames takes a frame for whole only at the empty line that ends it.
func frames(from *bufio.Reader, each func(id string, data []byte)) error {
	var id, data string
	for {
		line, err := from.ReadString('\n')
		switch {
		case err == io.EOF && line == "" && data == "":
			return nil
		case err != nil:
			return fmt.Errorf("cut off in %q: %w", line, err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data = value
		case name == "" && data != "":
			each(id, []byte(data))
			id, data = "", ""
		}
	}
}
