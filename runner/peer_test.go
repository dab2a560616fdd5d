package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/runner/meta"
)

// connect returns a peer that reads the bytes written to agent, and the lines that the peer writes.
func connect(t *testing.T, notify func(string, json.RawMessage)) (p *peer, agent io.WriteCloser, lines *bufio.Reader) {
	t.Helper()
	stdin, toStdin := io.Pipe()
	fromAgent, agent := io.Pipe()
	p = newPeer(toStdin, bufio.NewReader(fromAgent), notify, func(_ context.Context, method string, _ json.RawMessage) (any, *acp.RequestError) {
		return nil, acp.NewMethodNotFound(method)
	})
	t.Cleanup(func() {
		p.close()
		_ = agent.Close()
		_ = stdin.Close()
	})
	return p, agent, bufio.NewReader(stdin)
}

func TestPeerCalls(t *testing.T) {
	p, agent, lines := connect(t, func(string, json.RawMessage) {})
	go func() {
		_, _ = lines.ReadString('\n')
		for _, line := range []string{
			"not JSON", "", "[1]", `{"jsonrpc":"2.0","id":99,"result":{}}`, `{"jsonrpc":"2.0","id":"x","result":{}}`,
			`{"jsonrpc":"2.0","id":7,"method":"fs/read_text_file","params":{}}`, `{"jsonrpc":"2.0","id":1,"result":{"answer":42}}`,
		} {
			_, _ = io.WriteString(agent, line+"\n")
		}
	}()
	var result struct{ Answer int }
	if err := p.call(t.Context(), "ask", nil, &result); err != nil || result.Answer != 42 {
		t.Errorf("%v %+v", err, result)
	}
	refused, err := lines.ReadString('\n')
	if err != nil || !strings.Contains(refused, `"id":7`) || !strings.Contains(refused, "-32601") {
		t.Errorf("the request of the agent was answered %q %v", refused, err)
	}
}

func TestPeerOfAnAgentThatEnds(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		want   error
	}{
		"closed":        {"", errAgentClosed},
		"half a line":   {`{"jsonrpc":`, errAgentClosed},
		"a long line":   {strings.Repeat("x", maxMessage+1), errMessageTooLong},
		"a bad result":  {`{"jsonrpc":"2.0","id":1,"result":[1]}` + "\n", errNotACP},
		"a bad request": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}` + "\n", nil},
	} {
		t.Run(name, func(t *testing.T) {
			p, agent, lines := connect(t, func(string, json.RawMessage) {})
			go func() {
				_, _ = lines.ReadString('\n')
				_, _ = io.WriteString(agent, c.output)
				_ = agent.Close()
			}()
			var result struct{ Answer int }
			err := p.call(t.Context(), "ask", nil, &result)
			if c.want == nil && !isRequestError(err) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestPeerStopsAnAgentThatSendsTooFast(t *testing.T) {
	release := make(chan struct{})
	var handled int
	done := make(chan struct{})
	_, agent, _ := connect(t, func(string, json.RawMessage) {
		<-release
		if handled++; handled == 100 {
			close(done)
		}
	})
	line := `{"jsonrpc":"2.0","method":"session/update","params":{"x":"` + strings.Repeat("y", 8<<10) + `"}}` + "\n"
	written := make(chan int, 100)
	go func() {
		for i := range 100 {
			if _, err := io.WriteString(agent, line); err != nil {
				return
			}
			written <- i
		}
	}()
	<-written
	if n := len(written); n > 4 {
		t.Errorf("%d messages were read before the first was handled", n)
	}
	close(release)
	<-done
}

// TestMessagesFollowThePrompt cancels a prompt at once, and steers another prompt at once: the agent gets each prompt first.
func TestMessagesFollowThePrompt(t *testing.T) {
	for method, act := range map[string]func(context.Context, *agent){
		acp.AgentMethodSessionCancel: func(ctx context.Context, l *agent) { l.cancel(ctx) },
		meta.SteerMethod:             func(ctx context.Context, l *agent) { _, _ = l.steer(ctx, l.prompts.current(), nil) },
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, agentOut, lines := connect(t, func(string, json.RawMessage) {})
				l := &agent{r: New(Options{}), peer: p, dialog: dialog{session: "inner"}}
				for range 20 {
					l.send([]acp.ContentBlock{acp.TextBlock(strings.Repeat("x", 4<<10))}, nil)
					acted := make(chan struct{})
					go func() {
						defer close(acted)
						act(t.Context(), l)
					}()
					var answers string
					for _, want := range []string{acp.AgentMethodSessionPrompt, method} {
						var got rpcMessage
						line, err := lines.ReadBytes('\n')
						if err != nil || json.Unmarshal(line, &got) != nil || got.Method != want {
							t.Fatalf("the agent gets %s, want %s: %v", got.Method, want, err)
						}
						if got.ID != nil {
							answers += fmt.Sprintf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{}}\n", got.ID)
						}
					}
					_, _ = io.WriteString(agentOut, answers)
					<-acted
				}
			})
		})
	}
}

// TestCancellationIsRepeated has an agent ignore the first one.
func TestCancellationIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, agentOut, lines := connect(t, func(string, json.RawMessage) {})
		l := &agent{r: New(Options{}), peer: p, dialog: dialog{session: "inner"}}
		l.send([]acp.ContentBlock{acp.TextBlock("go")}, nil)
		go func() {
			for range 3 {
				_, _ = lines.ReadString('\n')
			}
			_, _ = io.WriteString(agentOut, `{"jsonrpc":"2.0","id":1,"result":{"stopReason":"cancelled"}}`+"\n")
		}()
		if !l.cancel(t.Context()) {
			t.Error("the agent was cancelled only once")
		}
	})
}

// TestPromptThatHasEndedIsNotCancelled expects that nothing is sent that could cancel the next prompt.
func TestPromptThatHasEndedIsNotCancelled(t *testing.T) {
	p, agentOut, lines := connect(t, func(string, json.RawMessage) {})
	l := &agent{r: New(Options{}), peer: p, dialog: dialog{session: "inner"}}
	for id := range 2 {
		ended := l.send([]acp.ContentBlock{acp.TextBlock("go")}, nil)
		if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, acp.AgentMethodSessionPrompt) {
			t.Fatalf("the agent gets %q %v", line, err)
		}
		fmt.Fprintf(agentOut, "{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{}}\n", id+1)
		<-ended.done
		if !l.cancel(t.Context()) {
			t.Error("it was not answered")
		}
	}
}
