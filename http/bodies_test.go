package http_test

import (
	"errors"
	"io"
	nethttp "net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// slowBody is a body that arrives in parts. If the server is to end it, no part may arrive at that very instant: the client would see
// either the response or a write error.
type slowBody struct {
	parts int
	every time.Duration
	// size is the size of a part in bytes; 0: one byte.
	size int
}

func (d *slowBody) Read(p []byte) (int, error) {
	if d.parts == 0 {
		return 0, io.EOF
	}
	time.Sleep(d.every)
	d.parts--
	return copy(p, strings.Repeat("x", max(d.size, 1))), nil
}

func TestUploadsLastAsLongAsBytesMove(t *testing.T) {
	for name, body := range map[string]slowBody{
		"steadily":            {parts: 60, every: 5 * time.Second, size: 6 << 10},
		"with pauses":         {parts: 30, every: 25 * time.Second, size: 32 << 10},
		"as few at the end":   {parts: 3, every: 15 * time.Second},
		"and always too fast": {parts: 4096, every: time.Millisecond, size: 32 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
					_, err := io.Copy(io.Discard, r.Body)
					time.Sleep(10 * time.Minute) // time of the drive does not count
					if err != nil || r.Context().Err() != nil {
						t.Errorf("%v, %v", err, r.Context().Err())
					}
					w.WriteHeader(201)
				}
				if got := b.request("PUT", "/v1/ws/acme/drive/big", &body); got.StatusCode != 201 {
					b.Errorf("%d", got.StatusCode)
				}
			})
		})
	}
}

// The time in which the drive does not read is not the client's.
func TestDriveReadsSlowly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
			for part := make([]byte, 1<<10); ; time.Sleep(20 * time.Second) {
				if _, err := r.Body.Read(part); err == io.EOF {
					break
				} else if err != nil {
					t.Error(err)
					break
				}
			}
			w.WriteHeader(201)
		}
		if got := b.request("PUT", "/v1/ws/acme/drive/big", strings.NewReader(strings.Repeat("x", 64<<10))); got.StatusCode != 201 {
			b.Errorf("%d", got.StatusCode)
		}
	})
}

func TestSlowUploadsEnd(t *testing.T) {
	for name, body := range map[string]slowBody{
		"a byte now and then":    {parts: 1 << 20, every: 7 * time.Second},
		"below the minimum rate": {parts: 1 << 20, every: time.Second, size: 900},
		"nothing":                {parts: 3, every: 2 * time.Minute},
		"after a fast beginning": {parts: 1 << 20, every: 7 * time.Second, size: 3 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				began := time.Now()
				b.world.drive = func(w nethttp.ResponseWriter, r *nethttp.Request) {
					if _, err := io.Copy(io.Discard, r.Body); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) > 2*time.Minute {
						t.Errorf("%v after %v", err, time.Since(began))
					}
					w.WriteHeader(400)
				}
				body.every += time.Millisecond
				if got := b.request("PUT", "/v1/ws/acme/drive/big", &body); got.StatusCode != 400 {
					b.Errorf("%d", got.StatusCode)
				}
			})
		})
	}
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
		for within, body := range map[time.Duration]*slowBody{
			11 * time.Second: {parts: 1 << 20, every: 700 * time.Millisecond},
			31 * time.Second: {parts: 1 << 20, every: 700 * time.Millisecond, size: 1 << 10}, // the whole time of a request
		} {
			began := time.Now()
			got := b.request("POST", "/v1/workspaces", body, "Content-Type", "application/json")
			if text := b.text(got); got.StatusCode != 400 || !strings.Contains(text, "could not be read") || time.Since(began) > within {
				b.Errorf("%d %s after %v, want within %v", got.StatusCode, text, time.Since(began), within)
			}
		}
		var began time.Time
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
