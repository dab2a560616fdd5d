package proxies

import (
	"bufio"
	"bytes"
	"io"
	"strings"

	"github.com/atelier-run/atelier/client"
)

// testCommand runs a command that waits until its first output has arrived: the proxy must not buffer the response.
func (s *site) testCommand() {
	body := `{"argv":["sh","-c","echo first; until [ -e arrived ]; do sleep 0.01; done; rm arrived; echo second"]}`
	answer, err := s.client.Do(s.request("POST", "/v1/ws/acme/computer/exec", s.key, strings.NewReader(body)))
	if err != nil {
		s.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	if !lines.Scan() || lines.Text() != `{"stdout":"first\n"}` {
		s.Errorf("%s, and then %q", answer.Status, lines.Text())
	}
	if got := s.run("touch", "arrived"); got != "" {
		s.Errorf("touch: %s", got)
	}
	var rest string
	for lines.Scan() {
		rest += lines.Text()
	}
	if rest != `{"stdout":"second\n"}{"exit":0}` {
		s.Errorf("the rest of the response is %s, %v", rest, lines.Err())
	}
}

// run runs a command and returns its output.
func (s *site) run(argv ...string) string {
	s.Helper()
	var out bytes.Buffer
	if _, err := s.api().Exec(s.Context(), "acme", client.ExecRequest{Argv: argv}, &out, &out); err != nil {
		s.Error(err)
	}
	return out.String()
}

// api returns a client of the API that sends its requests to the proxy.
func (s *site) api() *client.Client {
	s.Helper()
	c, err := client.New("https://"+host, s.key, client.WithHTTPClient(s.client))
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// testTerminal opens a terminal, which is a WebSocket.
func (s *site) testTerminal() {
	terminal, err := s.api().OpenTerminal(s.Context(), "acme", client.TerminalOptions{Columns: 77, Rows: 33})
	if err != nil {
		s.Fatal(err)
	}
	if _, err := io.WriteString(terminal, "stty size; exit 4\r"); err != nil {
		s.Error(err)
	}
	shown, err := io.ReadAll(terminal)
	if err != nil || !strings.Contains(string(shown), "33 77") {
		s.Errorf("the terminal has shown %q, %v", shown, err)
	}
	if status, err := terminal.Wait(); status != 4 || err != nil {
		s.Errorf("the terminal ended with %d, %v", status, err)
	}
}
