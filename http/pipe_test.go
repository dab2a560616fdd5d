package http_test

import (
	"context"
	"io"
	"net"
	nethttp "net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/atelier-run/atelier/http"
)

// pipes is a listener with connections inside a synctest bubble.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newPipes() *pipes { return &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accepted:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.accepted <- far:
		return near, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble is a server in a synctest bubble, where time passes by itself.
type bubble struct {
	*testing.T
	world  *fakeEntities
	server *http.Server
	key    string
	pipes  *pipes
	client *nethttp.Client
	scheme string
}

func inBubble(t *testing.T, test func(b *bubble), edit ...func(*http.Options)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{T: t, world: newFakeEntities(), pipes: newPipes(), scheme: "http"}
		b.server, b.key = b.world.server(t, edit...), b.world.key(alice)
		b.client = &nethttp.Client{Transport: &nethttp.Transport{DialContext: b.pipes.dial}}
		served := make(chan error)
		go func() { served <- b.server.Serve(b.pipes) }()
		defer func() {
			b.client.CloseIdleConnections()
			if err := b.server.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			if err := <-served; err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour) // lets the requests in flight end
		}()
		test(b)
	})
}

// request sends a request with the bubble's key; the caller closes the body.
func (b *bubble) request(method, path string, body io.Reader, headers ...string) *nethttp.Response {
	b.Helper()
	r, err := nethttp.NewRequestWithContext(b.Context(), method, b.scheme+"://atelier"+path, body)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.key)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	return response
}

func (b *bubble) text(response *nethttp.Response) string {
	b.Helper()
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		b.Errorf("the answer did not end well: %v", err)
	}
	return string(text)
}

// Uploads last as long as bytes move, and the drive may take its own time, over HTTP/2 too.
func TestLongUploadOverHTTP2(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.overHTTP2()
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			time.Sleep(10 * time.Minute)
			if err != nil || n != 60*16<<10 || r.Context().Err() != nil {
				t.Errorf("%d bytes, %v, %v", n, err, r.Context().Err())
			}
			w.WriteHeader(201)
		}
		if got := b.request("PUT", "/v1/ws/acme/drive/big", &slowBody{parts: 60, every: 10 * time.Second, size: 16 << 10}); got.StatusCode != 201 || got.ProtoMajor != 2 {
			b.Errorf("%d %s", got.StatusCode, got.Proto)
		}
	})
}
