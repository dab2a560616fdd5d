package http_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var polling = flag.Duration("polling", 0, "how long TestPolledActivity polls while files are written; 0: writes and pages alternate")

type polledRow struct {
	Seq   uint64
	Event struct{ Path string }
}

// A poller receives the rows of a path by one operation, page by page.
type poller struct {
	name     string
	selects  func(path string) bool
	received []uint64
	// page returns the rows of the next page, and whether they are the last ones for now.
	page func() (rows []polledRow, isLast bool, err error)
}

func (p *poller) poll(t *testing.T) (isLast bool) {
	rows, isLast, err := p.page()
	if err != nil {
		t.Errorf("%s: %v", p.name, err)
		return true
	}
	for _, row := range rows {
		p.received = append(p.received, row.Seq)
	}
	return isLast
}

// linkPoller follows nextCursor and, after a last page, the Link header with rel="next".
func (sc *scene) linkPoller(target string, selects func(string) bool) *poller {
	next := target
	return &poller{name: target, selects: selects, page: func() ([]polledRow, bool, error) {
		got := sc.drive("GET", next, "owner", "")
		var page struct {
			Items      []polledRow
			NextCursor *string
		}
		if err := json.Unmarshal(got.Body.Bytes(), &page); err != nil || got.Code != 200 {
			return nil, false, fmt.Errorf("%d %s", got.Code, got.Body)
		}
		if page.NextCursor != nil {
			next = target + "&cursor=" + url.QueryEscape(*page.NextCursor)
			return page.Items, false, nil
		}
		link, isNext := strings.CutSuffix(got.Header().Get("Link"), `>; rel="next"`)
		if !isNext {
			return nil, false, fmt.Errorf("the last page has the Link %q", link)
		}
		next = strings.TrimPrefix(link, "</v1/ws/"+sc.slug)
		return page.Items, true, nil
	}}
}

// toolPoller calls read_activity with the nextSeq of the last result.
func (sc *scene) toolPoller(path string, limit int, selects func(string) bool) *poller {
	client, err := sc.agent(bearer(sc.people["owner"].key))
	if err != nil {
		sc.t.Fatal(err)
	}
	in := map[string]any{"workspace": sc.slug, "limit": limit}
	if path != "" {
		in["path"] = path
	}
	return &poller{name: "read_activity " + path, selects: selects, page: func() ([]polledRow, bool, error) {
		result, err := client.CallTool(sc.t.Context(), &mcp.CallToolParams{Name: "read_activity", Arguments: in})
		if err != nil {
			return nil, false, err
		}
		var page struct {
			Rows    []polledRow
			NextSeq uint64
			More    bool
		}
		if err := json.Unmarshal([]byte(result.Content[0].(*mcp.TextContent).Text), &page); err != nil {
			return nil, false, err
		}
		in["sinceSeq"] = page.NextSeq
		return page.Rows, !page.More, nil
	}}
}

// TestPolledActivity polls the activity of paths by each operation that returns a position, while files are written. Each
// client receives each of its rows once.
func TestPolledActivity(t *testing.T) {
	sc := newBoundary(t).scene(t, visitor{role: "owner"}, true)
	limit, writes := 2, 24
	if *polling > 0 {
		limit = 50
	}
	all := func(string) bool { return true }
	below := func(path string) bool { return path == "p" || strings.HasPrefix(path, "p/") }
	exact := func(path string) bool { return path == "p/1.txt" }
	at := func(target string) string { return fmt.Sprintf("/file-activity%slimit=%d", target, limit) }
	pollers := []*poller{
		sc.linkPoller(at("/feed?"), all),
		sc.linkPoller(at("/feed?path=p&scope=subtree&"), below),
		sc.linkPoller(at("/feed?path=p%2F1.txt&"), exact),
		sc.linkPoller(at("?path=p%2F1.txt&"), exact),
		sc.toolPoller("", limit, all),
		sc.toolPoller("p", limit, below),
		sc.toolPoller("p/1.txt", limit, exact),
	}
	write := func(i int) {
		if got := sc.drive("PUT", fmt.Sprintf("/drive/p/%d.txt", i%6), "owner", fmt.Sprint(i)); got.Code >= 300 {
			t.Errorf("write %d: %d %s", i, got.Code, got.Body)
		}
	}
	if got := sc.drive("MKCOL", "/drive/p", "owner", ""); got.Code != 201 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if *polling == 0 {
		for i := range writes {
			write(i)
			for _, p := range pollers {
				p.poll(t)
			}
		}
	} else {
		poll(t, pollers, write)
	}
	history := sc.linkPoller("/file-activity/feed?limit=100", all)
	var rows []polledRow
	for isLast := false; !isLast; {
		page, last, err := history.page()
		if err != nil {
			t.Fatal(err)
		}
		rows, isLast = append(rows, page...), last
	}
	for _, p := range pollers {
		for !p.poll(t) {
		}
		var want []uint64
		for _, row := range rows {
			if p.selects(row.Event.Path) {
				want = append(want, row.Seq)
			}
		}
		if !slices.Equal(p.received, want) {
			t.Errorf("%s: received %d rows, want %d of %d", p.name, len(p.received), len(want), len(rows))
		}
	}
}

// poll polls with all clients while files are written.
func poll(t *testing.T, pollers []*poller, write func(int)) {
	end := time.Now().Add(*polling)
	var running sync.WaitGroup
	for _, p := range pollers {
		running.Go(func() {
			for time.Now().Before(end) {
				p.poll(t)
			}
		})
	}
	for i := 0; time.Now().Before(end); i++ {
		write(i)
	}
	running.Wait()
}
