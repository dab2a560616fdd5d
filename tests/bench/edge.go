package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// AppBody is the body of a response of the app behind an edge.
var AppBody = strings.Repeat("0123456789abcdef", 64)

// apps answers for the entities of apps, which all have one process: appN--acme.apps.test is the app N, and hN.custom.test a domain of it.
type apps struct {
	process string
	count   int
}

// Ask implements edge.Asker.
func (a *apps) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *slugv1.ResolveSlug:
		return &slugv1.Slug{WorkspaceId: "ws_1"}, nil
	case *workspacev1.FindApp:
		return &workspacev1.Anchor{App: &workspacev1.App{Id: "app_" + strings.TrimPrefix(m.GetSlug(), "app"), Slug: m.GetSlug()}}, nil
	case *workspacev1.DescribeWorkspace:
		return &workspacev1.Description{Workspace: &workspacev1.Workspace{Slug: "acme"}}, nil
	case *bindingv1.DescribeBinding:
		var n int
		if _, err := fmt.Sscanf(c.Identity, "h%d.custom.test", &n); err != nil {
			return &bindingv1.Binding{}, nil
		}
		return &bindingv1.Binding{WorkspaceId: "ws_1", AppId: fmt.Sprintf("app_%d/%s", n%a.count, c.Identity), Status: appv1.DomainStatus_DOMAIN_STATUS_ACTIVE}, nil
	case *appv1.DescribeApp:
		_, id := app.SplitIdentity(c.Identity)
		id, host, _ := strings.Cut(id, "/")
		return &appv1.Description{App: &appv1.App{
			Id: id, WorkspaceId: "ws_1", Slug: "app" + strings.TrimPrefix(id, "app_"), Visibility: appv1.Visibility_VISIBILITY_PUBLIC,
			FolderState: appv1.FolderState_FOLDER_STATE_ACTIVE, Accepted: &appv1.Runtime{Command: "x"}, AcceptedGeneration: 1,
			Domain: &appv1.Domain{Hostname: host, Status: appv1.DomainStatus_DOMAIN_STATUS_ACTIVE},
		}}, nil
	}
	return &wirev1.Done{}, nil
}

// Dial implements edge.Dialer.
func (a *apps) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", a.process)
}

// event is an event of App.
var event = "data: " + strings.Repeat("x", 64) + "\n\n"

// App serves AppBody, at /sse events without end, and at /echo connections that echo.
func App(b testing.TB) (address string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/echo":
			c, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			io.Copy(c, buffered)
		case "/sse":
			w.Header().Set("Content-Type", "text/event-stream")
			control := http.NewResponseController(w)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, event); err != nil || control.Flush() != nil {
					return
				}
			}
		default:
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, AppBody)
		}
	}))
	b.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// Edge serves an edge in front of one process, which stands for so many apps. It returns the address.
func Edge(b testing.TB, process string, count int) (address string) {
	e, err := edge.New(edge.Options{
		Asker: &apps{process, count}, Dialer: &apps{process, count}, PublicURL: &url.URL{Scheme: "http", Host: "atelier.test"}, EdgeHost: "apps.test",
		NewID: func(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }, Log: slog.New(slog.DiscardHandler),
		Limits: edge.Limits{AddressBurst: 1 << 20, AddressInterval: time.Nanosecond, AddressLookups: 1 << 20, AppRequests: 1 << 20, ClientRequests: 1 << 20},
	})
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(e)
	b.Cleanup(func() { e.Close(); s.Close() })
	return s.Listener.Addr().String()
}

// bareProxy serves a httputil.ReverseProxy, with as many idle connections as the edge keeps, in front of a process.
func bareProxy(b testing.TB, process string) (address string) {
	to := &url.URL{Scheme: "http", Host: process}
	s := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.SetXForwarded()
			p.Out.Host = p.In.Host
		},
		FlushInterval: -1, Transport: &http.Transport{MaxIdleConns: 64, MaxIdleConnsPerHost: 64, DisableCompression: true},
	})
	b.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// AppRequest returns a request for a path at a host.
func AppRequest(host, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
}

// Requester sends requests over connections for a while, and measures each of them.
type Requester struct {
	mu    sync.Mutex
	times []time.Duration
}

// Slice returns the function of a Variant that sends requests in turn over some connections to an address.
func (q *Requester) Slice(b *testing.B, address string, connections int, requests [][]byte) func(time.Duration) (float64, time.Duration) {
	open := make([]net.Conn, connections)
	for i := range open {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		open[i] = c
	}
	return func(d time.Duration) (float64, time.Duration) {
		var running sync.WaitGroup
		began := time.Now()
		counts := make([]int, connections)
		for i, c := range open {
			running.Go(func() {
				reader := bufio.NewReader(c)
				var times []time.Duration
				for n := i; time.Since(began) < d; n++ {
					sent := time.Now()
					if _, err := c.Write(requests[n%len(requests)]); err != nil {
						b.Error(err)
						return
					}
					response, err := http.ReadResponse(reader, nil)
					if err != nil {
						b.Error(err)
						return
					}
					length, _ := io.Copy(io.Discard, response.Body)
					if response.StatusCode != http.StatusOK || length != int64(len(AppBody)) {
						b.Errorf("%s, %d bytes", response.Status, length)
						return
					}
					counts[i]++
					times = append(times, time.Since(sent))
				}
				q.mu.Lock()
				defer q.mu.Unlock()
				q.times = append(q.times, times...)
			})
		}
		running.Wait()
		total := 0
		for _, n := range counts {
			total += n
		}
		return float64(total), time.Since(began)
	}
}

// P99 returns the time below which 99 % of the requests have been answered.
func (q *Requester) P99() time.Duration { return Quantile(q.times, 0.99) }
