package server

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countedConn counts the writes to a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

type countedListener struct {
	net.Listener
	writes *atomic.Int64
}

func (l countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return countedConn{c, l.writes}, err
}

func TestReadFrom(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "4 KB": 4 << 10, "limit": smallContent, "larger": smallContent + 1, "1 MB": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			want := strings.Repeat("content ", size/8+1)[:size]
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
				t.Fatal(err)
			}
			url, writes := serveContent(t, path)
			for range 2 { // the second request uses the same connection
				before := writes.Load()
				response, err := http.Get(url)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(response.Body)
				if err != nil || string(got) != want {
					t.Fatalf("%d bytes, %v; want %d", len(got), err, size)
				}
				if n := writes.Load() - before; size > 0 && size <= smallContent && n != 1 {
					t.Errorf("head and content left by %d writes, want 1", n)
				}
			}
		})
	}
}

// serveContent serves one file, and returns its URL and the number of writes to connections.
func serveContent(t *testing.T, path string) (url string, writes *atomic.Int64) {
	s, err := New(Options{Asker: &fakeCredentials{}, Secret: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	s.Mount([]Route{{Method: http.MethodGet, Path: "/file", Scope: ScopeProbe, Summary: "Read the file", Handler: func(c *Call) error {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		http.ServeContent(c.Response, c.Request, "", time.Time{}, file)
		return nil
	}}}, nil)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	writes = &atomic.Int64{}
	served := make(chan error, 1)
	go func() { served <- s.Serve(countedListener{l, writes}) }()
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		<-served
	})
	return "http://" + l.Addr().String() + "/file", writes
}
