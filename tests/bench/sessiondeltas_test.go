package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/atelier-run/atelier/cmd/node"
	entitycomputer "github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/runner"
	"github.com/atelier-run/atelier/runner/runnertest"
)

const (
	talkingSessions = 200
	// A turn has textsOfTurn texts, one every textEvery. The runner passes each on at once, because it pauses for a shorter time.
	textsOfTurn = 4
	textEvery   = 250 * time.Millisecond
)

// BenchmarkSessionDeltas runs turns of 200 sessions of a node. Scripted agents in this process, which the runner reads through pipes
// by the Agent Client Protocol, say four texts a second in each turn. Every session has one client of its server-sent events in
// another process. The time is from before an agent writes the first text of a turn until its client has received the delta. The
// variant pipe writes the same texts to pipes, which a handler of net/http copies to as many clients.
func BenchmarkSessionDeltas(b *testing.B) {
	readers := NewReaders(b)
	variants := []talk{newAgentTalk(b, readers), newPipeTalk(b, readers)}
	all, p99 := map[string][]time.Duration{}, map[string][]float64{}
	for _, v := range variants {
		v.firstDeltas(b, 1)
	}
	for b.Loop() {
		for range Turns {
			for _, v := range variants {
				took := v.firstDeltas(b, 2)
				all[v.name] = append(all[v.name], took...)
				p99[v.name] = append(p99[v.name], float64(Quantile(took, 0.99)))
			}
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, v := range variants {
		b.ReportMetric(float64(Quantile(all[v.name], 0.5).Microseconds()), v.name+"-p50-µs")
		b.ReportMetric(float64(Quantile(all[v.name], 0.99).Microseconds()), v.name+"-p99-µs")
	}
	b.ReportMetric(ratio(p99["agent"], p99["pipe"]), "p99-of-pipe")
	b.ReportMetric(float64(Quantile(all["agent"], 0.5))/float64(Quantile(all["pipe"], 0.5)), "p50-of-pipe")
}

// A talk is a way of the texts of sessions to their clients.
type talk struct {
	name string
	// turn runs a turn of the session with a number, and returns the time before its first text, in nanoseconds since the Unix epoch.
	turn    func(i int) (int64, error)
	clients *Connections
}

// firstDeltas runs a number of turns of each session, and returns the time that the first delta of each needed.
func (t talk) firstDeltas(b *testing.B, turns int) []time.Duration {
	const turnTime = textsOfTurn * textEvery
	t.clients.Stamp()
	began := make([][]int64, talkingSessions)
	if !parallel(b, talkingSessions, talkingSessions, func(i int) error {
		<-time.After(turnTime * time.Duration(i) / talkingSessions)
		for range turns {
			at, err := t.turn(i)
			if err != nil {
				return err
			}
			began[i] = append(began[i], at)
		}
		return nil
	}) {
		b.FailNow()
	}
	<-time.After(textEvery) // the last texts arrive
	var took []time.Duration
	for i, stamps := range t.clients.Stamps() {
		for k, from := range began[i] {
			for len(stamps) > 0 && stamps[0] < from { // the later texts of the turn before
				stamps = stamps[1:]
			}
			if len(stamps) == 0 || k+1 < len(began[i]) && stamps[0] > began[i][k+1] {
				b.Fatalf("%s: no text of turn %d of session %d has arrived", t.name, k, i)
			}
			took = append(took, time.Duration(stamps[0]-from))
		}
	}
	return took
}

// speak says the texts of a turn, and returns the time before the first.
func speak(say func(text string) error) (int64, error) {
	ticker := time.NewTicker(textEvery)
	defer ticker.Stop()
	began := time.Now().UnixNano()
	for range textsOfTurn {
		if err := say(strings.Repeat(".", 60)); err != nil {
			return 0, err
		}
		<-ticker.C
	}
	return began, nil
}

var deltaMark = []byte("event: delta\n")

// newAgentTalk starts a node with sessions. The turns of the sessions begin with messages.
func newAgentTalk(b *testing.B, readers *Readers) talk {
	var began sync.Map // from the id of a session to the time before the first text of its last turn
	prompt := func(ctx context.Context, p *runnertest.Process, r acp.PromptRequest) (acp.PromptResponse, error) {
		at, err := speak(func(text string) error { p.Say(ctx, r, text); return ctx.Err() })
		began.Store(p.Launch.SessionID, at)
		return acp.PromptResponse{StopReason: acp.StopReasonEndTurn}, err
	}
	m, err := startWith(Disk(b), node.Options{SampleEvery: entitycomputer.SampleEvery, Sessions: runner.Options{
		Computers: &runnertest.Computers{Agent: &runnertest.Agent{Prompt: prompt}}, MaxWorkspaceAgents: talkingSessions,
	}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := m.Stop(); err != nil {
			b.Error(err)
		}
	})
	sessions := "/v1/ws/" + m.Slug + "/agent/sessions"
	ids, events := make([]string, talkingSessions), make([][]byte, talkingSessions)
	if !parallel(b, talkingSessions, talkingSessions, func(i int) error {
		var made struct{ SessionID string }
		body := fmt.Sprintf(`{"clientRequestId":"00000000-0000-4000-8000-%012x","prompt":"Summarize the report."}`, i)
		err := send(m.Node.Server, sessions+"/wait", m.Key, body, &made)
		ids[i] = made.SessionID
		events[i] = fmt.Appendf(nil, "GET %s/%s/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer %s\r\n\r\n", sessions, ids[i], m.Key)
		return err
	}) {
		b.FailNow()
	}
	return talk{
		name: "agent",
		turn: func(i int) (int64, error) {
			var ended struct{ Terminal struct{ TurnStatus string } }
			body := fmt.Sprintf(`{"clientRequestId":"%08x-0000-4000-8000-%012x","text":"Summarize it again."}`, i, time.Now().UnixMilli())
			if err := send(m.Node.Server, sessions+"/"+ids[i]+"/messages/wait", m.Key, body, &ended); err != nil {
				return 0, err
			}
			at, _ := began.Load(ids[i])
			return at.(int64), nil
		},
		clients: readers.Open(Group{Address: m.Address, Connections: talkingSessions, Requests: events, Mark: deltaMark}),
	}
}

// newPipeTalk returns the minimum for the same work: a pipe for each session, and a handler that copies its texts to a client.
func newPipeTalk(b *testing.B, readers *Readers) talk {
	var in, out [talkingSessions]*os.File
	requests := make([][]byte, talkingSessions)
	for i := range talkingSessions {
		var err error
		if out[i], in[i], err = os.Pipe(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { in[i].Close() })
		requests[i] = fmt.Appendf(nil, "GET /%d HTTP/1.1\r\nHost: bench\r\n\r\n", i)
	}
	address := serveRaw(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer out[i].Close()
		w.Header().Set("Content-Type", "text/event-stream")
		copyTexts(w, out[i])
	}))
	return talk{
		name: "pipe",
		turn: func(i int) (int64, error) {
			return speak(func(text string) error { _, err := in[i].WriteString(text); return err })
		},
		clients: readers.Open(Group{Address: address, Connections: talkingSessions, Requests: requests, Mark: deltaMark}),
	}
}

// copyTexts writes each text as a server-sent event until the texts end.
func copyTexts(w http.ResponseWriter, texts io.Reader) {
	control := http.NewResponseController(w)
	buffer := make([]byte, 4096)
	for err := control.Flush(); err == nil; err = control.Flush() {
		n, err := texts.Read(buffer)
		if err != nil {
			return
		}
		fmt.Fprintf(w, "%sdata: {\"text\":%q}\n\n", deltaMark, buffer[:n])
	}
}
