package process

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var polling = flag.Duration("polling", time.Second, "how long TestKillPolling polls between two kills of the node, at least")

// polledFolder is the folder with the polled activity.
const polledFolder = "polled"

// TestKillPolling kills the node repeatedly while a client writes six files of a folder and other clients poll the activity of that
// folder. Each client receives each row of the folder exactly once, in order.
func TestKillPolling(t *testing.T) {
	t.Logf("-seed=%d", *seed)
	r := rand.New(rand.NewPCG(*seed, 17))
	s := newSite(t, filepath.Join(t.TempDir(), "data"))
	owner := newClient(s.node.address, s.key)
	owner.expect(t, http.StatusCreated, "MKCOL", drivePath(polledFolder), "")
	owner.expect(t, http.StatusCreated, "MKCOL", drivePath("beside"), "")
	owner.close()
	pollers := []*poller{
		newFeedPoller(s, "each 0.1 s", 100*time.Millisecond, 50),
		newFeedPoller(s, "each 10 ms", 10*time.Millisecond, 50),
		newFeedPoller(s, "each 10 ms, 2 rows a page", 10*time.Millisecond, 2),
		newToolPoller(s, "each 10 ms by the tool", 10*time.Millisecond),
	}
	work, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	running.Go(func() { writePolled(work, t, s, rand.New(rand.NewPCG(*seed, 18))) })
	for _, p := range pollers {
		running.Go(func() { p.work(work) })
	}
	for range max(*kills/3, 2) {
		delay := time.NewTimer(*polling + time.Duration(r.IntN(int(300*time.Millisecond))))
		<-delay.C
		s.waitForOperations(t, 20)
		s.restart(t)
	}
	s.waitForOperations(t, 20)
	stop()
	running.Wait()

	c := newClient(s.node.address, s.key)
	defer c.close()
	c.expect(t, http.StatusNotFound, http.MethodHead, drivePath("nothing"), "") // waits until the drive is recovered
	feed, err := c.feed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []uint64
	for _, one := range feed {
		if below(one.Event.Path, polledFolder) && one.Event.Kind != "read" {
			want = append(want, one.Seq)
		}
	}
	for _, p := range pollers {
		if err := p.drain(t.Context(), s.node.address); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if p.refused != nil {
			t.Errorf("%s: %v", p.name, p.refused)
		}
		if !slices.Equal(p.received, want) {
			t.Errorf("the client that polls %s has received %d rows, want %d; the first difference is at %d", p.name, len(p.received), len(want), difference(p.received, want))
		}
		t.Logf("%s: %d rows in %d pages, %d of them without a row; %d failed", p.name, len(p.received), p.pages, p.empty, p.failed)
	}
	t.Logf("%d rows, %d of the folder, %d kills", len(feed), len(want), s.generation)
}

// difference returns the index of the first difference of two lists.
func difference(a, b []uint64) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// writePolled writes files of the polled folder, and sometimes one beside that folder, until the context ends.
func writePolled(ctx context.Context, t *testing.T, s *site, r *rand.Rand) {
	var c *client
	s.runSteps(ctx, func(address string) {
		if c != nil {
			c.close()
		}
		c = newClient(address, s.key)
	}, func() bool {
		path := fmt.Sprintf("%s/%d.txt", polledFolder, r.IntN(6))
		if r.IntN(8) == 0 {
			path = "beside/file.txt"
		}
		status, answer, err := c.do(context.Background(), http.MethodPut, drivePath(path), []byte(strings.Repeat("x", r.IntN(1000))))
		switch {
		case err != nil || status >= http.StatusInternalServerError:
		case status < http.StatusMultipleChoices:
			s.acknowledge()
		default:
			t.Errorf("PUT %s: %d %s", path, status, answer)
		}
		return err == nil
	})
	c.close()
}

// A poller receives the rows of the polled folder page by page, each page with the position that the page before had. A page that does
// not arrive, because the node was killed, is asked for again.
type poller struct {
	site     *site
	name     string
	interval time.Duration
	// page returns the rows of the next page of the node at an address, and whether there are no further ones for now.
	page func(ctx context.Context, address string) (rows []row, isLast bool, err error)

	received             []uint64
	pages, empty, failed int
	// refused is the first error that no kill of the node explains.
	refused error
}

// errRefused is the error of an answer that says that the request was wrong, or that is wrong itself.
var errRefused = errors.New("the page is not as it must be")

func (p *poller) work(ctx context.Context) {
	tick := time.NewTicker(p.interval)
	defer tick.Stop()
	address := ""
	p.site.runSteps(ctx, func(at string) { address = at }, func() bool {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return true
		}
		return p.drain(ctx, address) == nil
	})
}

// drain receives pages until the last one for now.
func (p *poller) drain(ctx context.Context, address string) error {
	for {
		rows, isLast, err := p.page(ctx, address)
		if err != nil {
			p.failed++
			if p.refused == nil && errors.Is(err, errRefused) {
				p.refused = err
			}
			return err
		}
		p.pages++
		if len(rows) == 0 {
			p.empty++
		}
		for _, one := range rows {
			p.received = append(p.received, one.Seq)
		}
		if isLast {
			return nil
		}
	}
}

// newFeedPoller follows nextCursor and, after a last page, the Link header with rel="next".
func newFeedPoller(s *site, name string, interval time.Duration, limit int) *poller {
	first := fmt.Sprintf("%s/file-activity/feed?path=%s&scope=subtree&limit=%d", workspacePath, polledFolder, limit)
	next := first
	page := func(ctx context.Context, address string) ([]row, bool, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+next, nil)
		if err != nil {
			return nil, false, err
		}
		response, err := s.authorized().Do(request)
		if err != nil {
			return nil, false, err
		}
		defer response.Body.Close()
		var page struct {
			Items      []row
			NextCursor *string
		}
		if response.StatusCode >= http.StatusInternalServerError {
			return nil, false, errors.New(response.Status)
		}
		if response.StatusCode != http.StatusOK {
			return nil, false, fmt.Errorf("%w: %s", errRefused, response.Status)
		}
		if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
			return nil, false, err
		}
		if page.NextCursor != nil {
			next = first + "&cursor=" + url.QueryEscape(*page.NextCursor)
			return page.Items, false, nil
		}
		link, isNext := strings.CutSuffix(response.Header.Get("Link"), `>; rel="next"`)
		if !isNext {
			return nil, false, fmt.Errorf("%w: the last one has the Link %q", errRefused, response.Header.Get("Link"))
		}
		next = strings.TrimPrefix(link, "<")
		return page.Items, true, nil
	}
	return &poller{site: s, name: name, interval: interval, page: page}
}

// newToolPoller calls read_activity with the nextSeq of the last result.
func newToolPoller(s *site, name string, interval time.Duration) *poller {
	in := map[string]any{"workspace": "factory", "path": polledFolder, "limit": 50}
	var session *mcp.ClientSession
	at := ""
	page := func(ctx context.Context, address string) (_ []row, _ bool, err error) {
		if at != address {
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err = client.Connect(ctx, &mcp.StreamableClientTransport{
				Endpoint: address + "/mcp", HTTPClient: s.authorized(), MaxRetries: -1, DisableStandaloneSSE: true,
			}, nil)
			if err != nil {
				return nil, false, err
			}
			at = address
		}
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "read_activity", Arguments: in})
		if err != nil {
			return nil, false, err
		}
		var page struct {
			Rows    []row
			NextSeq uint64
			More    bool
		}
		text := ""
		if len(result.Content) == 1 {
			if content, is := result.Content[0].(*mcp.TextContent); is {
				text = content.Text
			}
		}
		if result.IsError && strings.HasPrefix(text, "unavailable: ") { // the node is starting, or busy
			return nil, false, errors.New(text)
		}
		if err := json.Unmarshal([]byte(text), &page); result.IsError || err != nil {
			return nil, false, fmt.Errorf("%w: %s", errRefused, text)
		}
		in["sinceSeq"] = page.NextSeq
		return page.Rows, !page.More, nil
	}
	return &poller{site: s, name: name, interval: interval, page: page}
}

// authorized returns a client that sends the key of the owner.
func (s *site) authorized() *http.Client { return &http.Client{Transport: bearer(s.key)} }

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
