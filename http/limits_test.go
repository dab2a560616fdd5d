package http_test

import (
	"context"
	"errors"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
)

// drip is a body that comes byte by byte.
type drip struct {
	bytes int
	every time.Duration
}

func (d *drip) Read(p []byte) (int, error) {
	if d.bytes == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.every)
	d.bytes--
	p[0] = 'x'
	return 1, nil
}

func TestUploadsLastAsLongAsBytesMove(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			time.Sleep(10 * time.Minute) // the drive's own work is not the client's fault
			if err != nil || n != 60 || r.Context().Err() != nil {
				t.Errorf("%d bytes, %v, %v", n, err, r.Context().Err())
			}
			w.WriteHeader(201)
		}
		if got := b.request("PUT", "/v1/ws/acme/drive/big", &drip{60, 30 * time.Second}); got.StatusCode != 201 {
			b.Errorf("%d", got.StatusCode)
		}
	})
}

func TestStalledUploadsEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%v", err)
			}
			w.WriteHeader(400)
		}
		if got := b.request("PUT", "/v1/ws/acme/drive/big", &drip{3, 2 * time.Minute}); got.StatusCode != 400 {
			b.Errorf("%d", got.StatusCode)
		}
	})
}

func TestDownloadsLastAsLongAsBytesMove(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			if n, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 64<<20))); n != 64<<20 || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
		response := b.request("GET", "/v1/ws/acme/drive/big", nil)
		defer response.Body.Close()
		total, buffer := 0, make([]byte, 1<<20)
		for {
			n, err := io.ReadFull(response.Body, buffer)
			total += n
			if err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if total != 64<<20 {
			b.Errorf("%d bytes", total)
		}
	})
}

func TestStalledDownloadsEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		ended := make(chan error)
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			_, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 64<<20)))
			ended <- err
		}
		began := time.Now()
		defer b.request("GET", "/v1/ws/acme/drive/big", nil).Body.Close()
		if err := <-ended; err == nil || time.Since(began) > 2*time.Minute {
			b.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestSlowBodiesAndHeads(t *testing.T) {
	inBubble(t, func(b *bubble) {
		began := time.Now()
		got := b.request("POST", "/v1/workspaces", &drip{1 << 20, time.Second}, "Content-Type", "application/json")
		if text := b.text(got); got.StatusCode != 400 || !strings.Contains(text, "could not be read") || time.Since(began) > 31*time.Second {
			b.Errorf("%d %s after %v", got.StatusCode, text, time.Since(began))
		}
		c, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		io.WriteString(c, "GET /v1/whoami HTTP/1.1\r\nX-Slow: ")
		io.Copy(io.Discard, c)
		if time.Since(began) != 10*time.Second {
			b.Errorf("a head was waited for %v", time.Since(began))
		}
	})
}

func TestAsksHaveADeadline(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.before = func(ctx context.Context, c entity.Command) (proto.Message, error) {
			if _, ok := c.Message.(*userv1.DescribeUser); ok {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		began := time.Now()
		got := b.request("GET", "/v1/whoami", nil)
		if text := b.text(got); got.StatusCode != 503 || got.Header.Get("Retry-After") == "" || time.Since(began) != 30*time.Second {
			b.Errorf("%d %s after %v", got.StatusCode, text, time.Since(began))
		}
	})
}

func TestRequestsInFlight(t *testing.T) {
	inBubble(t, func(b *bubble) {
		release := make(chan struct{})
		b.world.drive = func(nethttp.ResponseWriter, *nethttp.Request) { <-release }
		done := make(chan struct{})
		go func() { b.request("GET", "/v1/ws/acme/drive/a", nil).Body.Close(); close(done) }()
		synctest.Wait()
		refused := request(b, b.server, "GET", "/v1/whoami", b.key, "")
		wants(b, refused, 503, `{"error":"unavailable","message":"the server is busy"}`)
		if refused.Header().Get("Retry-After") != "1" {
			b.Errorf("%v", refused.Header())
		}
		stream := b.request("GET", events, nil) // streams have a limit of their own
		stream.Body.Close()
		close(release)
		<-done
		wants(b, request(b, b.server, "GET", "/v1/whoami", b.key, ""), 200, "")
	}, func(o *http.Options) { o.Limits.Requests = 1 })
}

func TestConnections(t *testing.T) {
	inBubble(t, func(b *bubble) {
		idle, err := b.pipes.dial(b.Context(), "", "")
		if err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		refused := b.request("GET", "/healthz", nil)
		if text := b.text(refused); refused.StatusCode != 503 || !refused.Close || refused.Header.Get("Retry-After") != "1" {
			b.Errorf("%d %s", refused.StatusCode, text)
		}
		var more []net.Conn
		for range 40 {
			c, err := b.pipes.dial(b.Context(), "", "")
			if err != nil {
				b.Fatal(err)
			}
			more = append(more, c)
		}
		if _, err := more[39].Read(make([]byte, 1)); err != io.EOF {
			b.Errorf("far too many: %v", err)
		}
		for _, c := range append(more, idle) {
			c.Close()
		}
		synctest.Wait()
		if got := b.request("GET", "/healthz", nil); got.StatusCode != 200 {
			b.Errorf("afterwards: %d", got.StatusCode)
		}
	}, func(o *http.Options) { o.Limits.Connections = 1 })
}

func TestLargeBodiesCostNoMemory(t *testing.T) {
	inBubble(t, func(b *bubble) {
		got := b.request("POST", "/v1/workspaces", io.LimitReader(neverEnding{}, 8<<20), "Content-Type", "application/json")
		if got.StatusCode != 413 {
			b.Errorf("%d", got.StatusCode)
		}
		got.Body.Close()
	})
}

type neverEnding struct{}

func (neverEnding) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
