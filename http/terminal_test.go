package http_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/atelier-run/atelier/http"
)

func TestTerminal(t *testing.T) {
	m := newMachine(t)
	p := m.connect("?columns=91&rows=17")
	if p.id == "" || p.position != 0 {
		t.Errorf("terminal %q at %d", p.id, p.position)
	}
	p.enter("stty size; tty -s && echo a-$((2+3))-terminal")
	p.until("17 91")
	p.until("a-5-terminal")
	p.send(websocket.MessageText, `{"resize":{"columns":132,"rows":43}}`)
	p.enter("stty size")
	p.until("43 132")
	p.enter("exit 3")
	if code := p.closed(); code != websocket.StatusNormalClosure || p.end != "3" {
		t.Errorf("closed with %d after %s", code, p.end)
	}
	if _, response, _ := m.dialTerminal("?terminalId=" + p.id); response.StatusCode != 404 {
		t.Errorf("resuming a terminal that has ended: %d", response.StatusCode)
	}
}

func TestTerminalSurvivesItsConnection(t *testing.T) {
	m := newMachine(t)
	first := m.connect("")
	first.enter("echo $((40+2))th line; " + untilFile("go") + "; echo while $((1+1))-away")
	first.until("42th line")
	first.conn.CloseNow() // without a close frame, as when the network breaks
	m.waitAttached(first.id, 0)
	m.create("go")

	second := m.connect(fmt.Sprintf("?terminalId=%s&position=%d&columns=70&rows=20", first.id, first.position))
	if second.id != first.id || second.position != first.position {
		t.Errorf("resumed %s at %d", second.id, second.position)
	}
	second.until("while 2-away")
	if strings.Contains(second.output.String(), "42th") || len(second.jumps) > 0 {
		t.Errorf("output is repeated or lost: %q, %v", second.output.String(), second.jumps)
	}
	second.enter("stty size")
	second.until("20 70")
	whole := m.connect("?terminalId=" + first.id)
	whole.until("20 70")
	if got, want := whole.output.String(), first.output.String()+second.output.String(); !strings.HasPrefix(got, want) {
		t.Errorf("the scroll-back is %q, not %q", got, want)
	}
	m.waitAttached(first.id, 2)
	whole.enter("exit")
	for _, p := range []*peer{second, whole} {
		if code := p.closed(); code != websocket.StatusNormalClosure || p.end != "0" {
			t.Errorf("closed with %d after %s", code, p.end)
		}
	}
	m.waitAttached(first.id, 0)
}

func TestTerminalReportsLostOutput(t *testing.T) {
	m := newMachine(t)
	m.computers.ScrollBack = 1000
	first := m.connect("")
	first.enter("stty -echo; yes | head -c 100000 | tr -d '\\n'; printf the-%dnd-end 2; cat") // nothing follows, not even a prompt
	first.until("the-2nd-end")
	second := m.connect("?terminalId=" + first.id)
	second.until("the-2nd-end")
	if len(second.jumps) != 1 || second.jumps[0] == 0 || second.position != first.position {
		t.Errorf("positions %v, then %d; the first client is at %d", second.jumps, second.position, first.position)
	}
	if n := second.output.Len(); n > 1000 {
		t.Errorf("%d bytes", n)
	}
}

func TestTerminalEndsWithTheRightToIt(t *testing.T) {
	for name, lose := range map[string]struct {
		lose func(*machine)
		code string
	}{"credential_revoked": {(*machine).revoke, "unauthorized"}, "access_lost": {(*machine).remove, "not_found"}} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			attached, detached := m.connect(""), m.connect("")
			detached.conn.CloseNow()
			m.waitAttached(detached.id, 0)
			lose.lose(m)
			if code := attached.closed(); code != websocket.StatusPolicyViolation || attached.end != lose.code {
				t.Errorf("closed with %d after %s", code, attached.end)
			}
			m.waitEnded(attached.id)
			m.waitEnded(detached.id)
		})
	}
	t.Run("another_credential_is_connected", func(t *testing.T) {
		m := newMachine(t)
		opener := m.connect("")
		opened := m.key
		m.key = m.world.key(alice)
		other := m.connect("?terminalId=" + opener.id)
		m.revoke() // the credential of other only
		if code := other.closed(); code != websocket.StatusPolicyViolation || other.end != "unauthorized" {
			t.Errorf("closed with %d after %s", code, other.end)
		}
		opener.enter("echo still-$((1+1))-here")
		opener.until("still-2-here")
		m.key = m.world.key(alice)
		third := m.connect("?terminalId=" + opener.id)
		m.key = opened
		m.revoke()
		if code := opener.closed(); code != websocket.StatusPolicyViolation || opener.end != "unauthorized" {
			t.Errorf("closed with %d after %s", code, opener.end)
		}
		if code := third.closed(); code != websocket.StatusNormalClosure || third.end != "137" {
			t.Errorf("closed with %d after %s", code, third.end)
		}
	})
}

func TestTerminalEnds(t *testing.T) {
	for _, test := range []struct {
		name   string
		reason string
		end    func(*machine, *peer)
		code   websocket.StatusCode
		want   string
	}{
		{"client", "", func(_ *machine, p *peer) { p.send(websocket.MessageText, `{"end":true}`) }, websocket.StatusNormalClosure, "137"},
		{"reason", "out_of_memory", func(_ *machine, p *peer) { p.enter("kill -9 $$") }, websocket.StatusNormalClosure, "out_of_memory"},
		{"shutdown", "", func(m *machine, p *peer) {
			ctx, ended := m.patience(), make(chan error, 1)
			go func() { ended <- m.server.Shutdown(ctx) }()
			m.Cleanup(func() {
				if err := <-ended; err != nil {
					m.Error(err)
				}
			})
		}, websocket.StatusGoingAway, "unavailable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMachine(t)
			m.computers.Reason = test.reason
			p, detached := m.connect(""), m.connect("")
			detached.conn.CloseNow()
			test.end(m, p)
			if code := p.closed(); code != test.code || p.end != test.want {
				t.Errorf("closed with %d after %s", code, p.end)
			}
			m.waitEnded(p.id)
			if test.name == "shutdown" {
				m.waitEnded(detached.id)
			}
		})
	}
}

func TestTerminalMessages(t *testing.T) {
	m := newMachine(t)
	for message, code := range map[string]websocket.StatusCode{
		`{"resize":{"columns":0,"rows":1}}`:               websocket.StatusPolicyViolation,
		`{"resize":{"columns":1,"rows":1001}}`:            websocket.StatusPolicyViolation,
		`{"resize":{"columns":1,"rows":1},"end":true}`:    websocket.StatusPolicyViolation,
		`{"resize":{"columns":1,"rows":1},"resize":null}`: websocket.StatusPolicyViolation,
		`{"end":false}`:                websocket.StatusPolicyViolation,
		`{"signal":9}`:                 websocket.StatusPolicyViolation,
		`{`:                            websocket.StatusPolicyViolation,
		``:                             websocket.StatusPolicyViolation,
		strings.Repeat(" ", 64<<10+10): websocket.StatusMessageTooBig,
	} {
		p := m.connect("")
		p.send(websocket.MessageText, message)
		if got := p.closed(); got != code {
			t.Errorf("%.50q: closed with %d", message, got)
		}
		m.waitAttached(p.id, 0)
		again := m.connect("?terminalId=" + p.id) // it has survived
		again.enter("exit 5")
		if again.closed(); again.end != "5" {
			t.Errorf("%.50q: the terminal ended with %s", message, again.end)
		}
	}
}

func TestTerminalPositionsAreInItsOutput(t *testing.T) {
	m := newMachine(t)
	first := m.connect("")
	second := m.connect("?terminalId=" + first.id + "&position=9007199254740991")
	if code := second.closed(); code != websocket.StatusPolicyViolation || second.end != "invalid_request" {
		t.Errorf("closed with %d after %s", code, second.end)
	}
	first.enter("echo still-$((1+1))-here")
	first.until("still-2-here")
}

// TestTerminalWithoutAnswers has a client that does not answer pings.
func TestTerminalWithoutAnswers(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Heartbeat, o.Limits.StallTime = 20*time.Millisecond, 100*time.Millisecond })
	p := m.connect("")
	m.waitAttached(p.id, 1)
	m.waitAttached(p.id, 0) // nothing reads p's connection
	if code := p.closed(); code != -1 {
		t.Errorf("closed with %d", code)
	}
}

// TestTerminalDoesNotRead has a program that does not read its input and does not end with its shell, and a client that sends more
// than the terminal takes.
func TestTerminalDoesNotRead(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Heartbeat, o.Limits.StallTime = 20*time.Millisecond, 200*time.Millisecond })
	p := m.connect("")
	p.enter("trap '' HUP; stty raw; echo is-$((1+1))-raw; sleep 1000")
	p.until("is-2-raw")
	for {
		if err := p.conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 60_000)); err != nil {
			break // the server has dropped the connection
		}
	}
	m.waitAttached(p.id, 0)
	again := m.connect("?terminalId=" + p.id)
	again.send(websocket.MessageText, `{"end":true}`)
	if code := again.closed(); code != websocket.StatusNormalClosure || again.end != "137" {
		t.Errorf("closed with %d after %s", code, again.end)
	}
}

// TestTerminalHearsItsClient has a program that does not read its input, and a client that still resizes and ends the terminal.
func TestTerminalHearsItsClient(t *testing.T) {
	m := newMachine(t, func(o *http.Options) { o.Heartbeat = 20 * time.Millisecond })
	p := m.connect("")
	p.enter("stty raw -echo; echo is-$((1+1))-raw; while :; do stty size; sleep 0.05; done")
	p.until("is-2-raw")
	for range 4 {
		p.send(websocket.MessageBinary, strings.Repeat("x", 60_000))
	}
	p.send(websocket.MessageText, `{"resize":{"columns":123,"rows":45}}`)
	p.until("45 123")
	p.send(websocket.MessageText, `{"end":true}`)
	if code := p.closed(); code != websocket.StatusNormalClosure || p.end != "137" {
		t.Errorf("closed with %d after %s", code, p.end)
	}
}

// TestTerminalReleasesItsStream has a program that does not read its input, and a client that has gone.
func TestTerminalReleasesItsStream(t *testing.T) {
	m := newMachine(t, func(o *http.Options) {
		o.Heartbeat, o.Limits.StallTime, o.Limits.CredentialStreams = 20*time.Millisecond, 200*time.Millisecond, 1
	})
	p := m.connect("")
	p.enter("stty raw -echo; echo is-$((1+1))-raw; sleep 1000")
	p.until("is-2-raw")
	for p.conn.Write(t.Context(), websocket.MessageBinary, make([]byte, 60_000)) == nil { // until the server drops the connection
	}
	m.waitAttached(p.id, 0)
	again, response, err := m.dialTerminal("?terminalId=" + p.id)
	for late := time.Now().Add(3 * time.Minute); err != nil && time.Now().Before(late); { // the request ends after the client is detached
		again, response, err = m.dialTerminal("?terminalId=" + p.id)
	}
	if err != nil {
		t.Fatalf("%v: %v", response, err)
	}
	again.send(websocket.MessageText, `{"end":true}`)
	again.closed()
}

func TestTerminalOrigins(t *testing.T) {
	public, _ := url.Parse("https://atelier.example.com")
	m := newMachine(t, func(o *http.Options) { o.PublicURL = public })
	for origin, status := range map[string]int{
		"https://atelier.example.com":         101,
		"HTTPS://Atelier.Example.COM":         101,
		"http://" + m.host:                    101,
		"http://atelier.example.com":          403,
		"https://atelier.example.com:8443":    403,
		"https://atelier.example.com.evil.io": 403,
		"https://evil.example.com":            403,
		"null":                                403,
		"":                                    403,
		"::":                                  403,
	} {
		_, response, _ := m.dialTerminal("", "Origin", origin)
		if response.StatusCode != status {
			t.Errorf("%q: %d", origin, response.StatusCode)
		}
	}
	if n := m.computers.Started(); n != 3 {
		t.Errorf("%d terminals were opened", n)
	}
}

func TestTerminalHandshakes(t *testing.T) {
	m := newMachine(t)
	const valid = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for name, test := range map[string]struct {
		line, headers string
		status        int
	}{
		"valid":         {"GET " + terminalPath + " HTTP/1.1", valid, 101},
		"HTTP/1.0":      {"GET " + terminalPath + " HTTP/1.0", valid, 400},
		"HEAD":          {"HEAD " + terminalPath + " HTTP/1.1", valid, 400},
		"POST":          {"POST " + terminalPath + " HTTP/1.1", valid, 405},
		"no upgrade":    {"GET " + terminalPath + " HTTP/1.1", strings.Replace(valid, "Upgrade: WebSocket\r\n", "", 1), 400},
		"no connection": {"GET " + terminalPath + " HTTP/1.1", strings.Replace(valid, ", Upgrade", "", 1), 400},
		"old version":   {"GET " + terminalPath + " HTTP/1.1", strings.Replace(valid, "13", "8", 1), 400},
		"short key":     {"GET " + terminalPath + " HTTP/1.1", strings.Replace(valid, "dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ=", 1), 400},
		"two keys":      {"GET " + terminalPath + " HTTP/1.1", valid + "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", 400},
		"no credential": {"GET " + terminalPath + " HTTP/1.1", valid + "X-Authorization: ", 401},
	} {
		c, err := net.Dial("tcp4", m.host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s\r\nHost: x\r\n%sAuthorization: Bearer %s\r\n\r\n", test.line, test.headers, m.key)
		response, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || response.StatusCode != test.status {
			t.Errorf("%s: %v, %v", name, response, err)
		}
		c.Close()
	}
	if n := m.computers.Started(); n != 1 {
		t.Errorf("%d terminals were opened", n)
	}
}

func TestTerminalLimits(t *testing.T) {
	t.Run("terminals_of_a_credential", func(t *testing.T) {
		m := newMachine(t, func(o *http.Options) { o.Limits.CredentialTerminals = 1 })
		first := m.connect("")
		first.conn.CloseNow()
		if _, response, _ := m.dialTerminal(""); response.StatusCode != 429 || response.Header.Get("Retry-After") == "" {
			t.Errorf("%d %v", response.StatusCode, response.Header)
		}
		again := m.connect("?terminalId=" + first.id) // an open one is no further one
		key := m.key
		m.key = m.world.key(alice)
		m.connect("") // of another credential
		m.key = key
		again.enter("exit")
		again.closed()
		m.waitRunning(1)
		for { // the place is free as soon as the server has noticed the end
			_, response, err := m.dialTerminal("")
			if err == nil {
				break
			} else if response.StatusCode != 429 {
				t.Fatal(response.StatusCode)
			}
		}
	})
	t.Run("streams_of_a_credential", func(t *testing.T) {
		m := newMachine(t, func(o *http.Options) { o.Limits.CredentialStreams = 1 })
		m.connect("")
		if _, response, _ := m.dialTerminal(""); response.StatusCode != 429 {
			t.Errorf("%d", response.StatusCode)
		}
	})
	t.Run("connections", func(t *testing.T) {
		m := newMachine(t, func(o *http.Options) { o.Limits.Connections = 1 })
		p := m.connect("")
		status := func() int {
			response, err := m.client.Get("http://" + m.host + "/v1/whoami")
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			return response.StatusCode
		}
		if got := status(); got != 503 {
			t.Errorf("beside a terminal: %d", got)
		}
		p.enter("exit")
		p.closed()
		for status() == 503 { // until the server has noticed the end
		}
	})
	t.Run("refused", func(t *testing.T) {
		m := newMachine(t)
		m.remove()
		if _, response, _ := m.dialTerminal(""); response.StatusCode != 404 {
			t.Errorf("%d", response.StatusCode)
		}
		if n := m.computers.Started(); n != 0 {
			t.Errorf("%d terminals were opened", n)
		}
	})
}
