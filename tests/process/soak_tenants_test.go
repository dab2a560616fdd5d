package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/atelier-run/atelier/client"
)

// A soakTenant is a person who works in a workspace of their own, from an address of their own.
type soakTenant struct {
	*api.Client
	soak    *soak
	slug    string
	http    *http.Client
	made    int
	content string

	followed  chan struct{} // closed when the stream has delivered the last row
	streamErr error
}

func (s *soak) newTenant(slug, address string) *soakTenant {
	s.Helper()
	// A request that is refused counts as failed, even where the client would repeat it.
	t := &soakTenant{Client: s.person(slug, address, api.WithAttempts(1)), soak: s, slug: slug, http: s.client(address)}
	s.workspace(t.Client, slug)
	return t
}

// soakSteps has the steps of a tenant in each round.
var soakSteps = []struct {
	name string
	run  func(*soakTenant, context.Context) error
}{
	{"put", func(t *soakTenant, ctx context.Context) error {
		t.made++
		return t.put(ctx, fmt.Sprint("file-", t.made))
	}},
	{"get", (*soakTenant).get},
	{"feed", (*soakTenant).feed},
	{"session", (*soakTenant).session},
	{"exec", (*soakTenant).exec},
	{"sign-in", (*soakTenant).signInPage},
}

func (t *soakTenant) put(ctx context.Context, name string) error {
	t.content = strings.Repeat(name+"\n", 1000)
	created, err := t.WriteFile(ctx, t.slug, name, strings.NewReader(t.content))
	if err == nil && !created {
		err = errors.New("the file exists")
	}
	return err
}

func (t *soakTenant) get(ctx context.Context) error {
	body, err := t.ReadFile(ctx, t.slug, fmt.Sprint("file-", t.made))
	if err != nil {
		return err
	}
	defer body.Close()
	content, err := io.ReadAll(body)
	if err == nil && string(content) != t.content {
		err = fmt.Errorf("the file has %d bytes", len(content))
	}
	return err
}

func (t *soakTenant) feed(ctx context.Context) error {
	for row, err := range t.FileHistory(t.slug, fmt.Sprint("file-", t.made), false).All(ctx) {
		if err == nil && row.Event.Kind != "create" {
			err = fmt.Errorf("the newest row of the file is of the kind %s", row.Event.Kind)
		}
		return err
	}
	return errors.New("the file has no row")
}

func (t *soakTenant) session(ctx context.Context) error {
	t.soak.sessions.Add(1)
	waited, err := t.StartSessionAndWait(ctx, t.slug, api.NewSession{Prompt: "say hello"})
	if err != nil {
		return err
	}
	if waited.Terminal == nil || waited.Terminal.TurnStatus != "complete" {
		if waited.Terminal != nil && waited.Terminal.Error != nil {
			return fmt.Errorf("the turn was interrupted: %s, %s", waited.Terminal.Error.Code, waited.Terminal.Error.Message)
		}
		return fmt.Errorf("the turn has ended with %+v", waited.Terminal)
	}
	return nil
}

func (t *soakTenant) exec(ctx context.Context) error {
	var out strings.Builder
	status, err := t.Exec(ctx, t.slug, api.ExecRequest{Argv: []string{"echo", "hello"}}, &out, io.Discard)
	if err == nil && (status != 0 || out.String() != "hello\n") {
		err = fmt.Errorf("status %d, output %q", status, out.String())
	}
	return err
}

func (t *soakTenant) signInPage(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.soak.node.address+"/sign-in", nil)
	if err != nil {
		return err
	}
	response, err := t.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %s", response.StatusCode, page)
	}
	return err
}

// lastFile is the name of a file. A tenant reads the stream until the row of this file.
const lastFile = "last"

// follow reads the stream of the workspace until the row of lastFile. The rows must have all numbers.
func (t *soakTenant) follow(ctx context.Context) {
	defer close(t.followed)
	next := uint64(1)
	for frame, err := range t.Events(ctx, t.slug, api.EventsQuery{Reads: true}) {
		if err != nil {
			t.streamErr = err
			return
		}
		if frame.Seq != next {
			t.streamErr = fmt.Errorf("the row %d follows the row %d", frame.Seq, next-1)
			return
		}
		if next++; frame.Event.Path == lastFile {
			return
		}
	}
}

// soakTimes are the times that requests took.
type soakTimes struct {
	mu    sync.Mutex
	times []time.Duration
}

func (t *soakTimes) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.times = append(t.times, d)
}

func (t *soakTimes) quantile(q float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.times) == 0 {
		return 0
	}
	slices.Sort(t.times)
	return t.times[min(int(q*float64(len(t.times))), len(t.times)-1)]
}

func (t *soakTimes) String() string {
	return fmt.Sprintf("%d requests, p50 %s, p99 %s", len(t.times), t.quantile(0.5).Round(time.Millisecond), t.quantile(0.99).Round(time.Millisecond))
}
