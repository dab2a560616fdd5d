package server

import (
	"errors"
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
	writes = &atomic.Int64{}
	address := serveContentOn(t, path, func(l net.Listener) net.Listener { return countedListener{l, writes} })
	return "http://" + address + "/file", writes
}

// serveContentOn serves one file at /file on a listener, which wrap may replace, and returns its address.
func serveContentOn(t *testing.T, path string, wrap func(net.Listener) net.Listener) (address string) {
	s, err := New(Options{Asker: &fakeCredentials{}, Secret: make([]byte, 32), Hosts: []string{"x"}})
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
	served := make(chan error, 1)
	go func() { served <- s.Serve(wrap(l)) }()
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// brokenConn writes half of the bytes of its first write, as a connection does when its write deadline passes.
type brokenConn struct {
	net.Conn
	isBroken bool
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.isBroken {
		return c.Conn.Write(p)
	}
	c.isBroken = true
	n, err := c.Conn.Write(p[:len(p)/2])
	return n, errors.Join(err, os.ErrDeadlineExceeded)
}

type brokenListener struct{ net.Listener }

func (l brokenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &brokenConn{Conn: c}, err
}

// TestFailedWriteEndsConnection requests a file twice over a connection on which the first response is written in part. No second
// response may follow it, because the client would take that for the rest of the first.
func TestFailedWriteEndsConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(strings.Repeat("content ", 512)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := serveContentOn(t, path, func(l net.Listener) net.Listener { return brokenListener{l} })
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.Repeat("GET /file HTTP/1.1\r\nHost: x\r\n\r\n", 2)); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(3 * time.Minute))
	got, err := io.ReadAll(c) // the connection may end with a reset, since the second request was not read
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays open after a response that was written in part")
	}
	if n := strings.Count(string(got), "HTTP/1.1 200"); n != 1 {
		t.Errorf("%d responses in %d bytes, want the first half of one", n, len(got))
	}
}
