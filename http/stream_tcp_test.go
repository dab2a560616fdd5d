package http_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/http"
)

// follows runs a stream of acme.
type follows = func(ctx context.Context, s activity.Subscription) error

// overTCP opens a stream over a TCP connection, because frames can be sent without waiting over TCP only. The frames of the
// stream come from follow. overTCP returns the connection, and the test reads the answer from it.
func overTCP(t *testing.T, version string, follow follows, edit ...func(*http.Options)) (net.Conn, *http.Server) {
	t.Helper()
	w := newFakeEntities()
	w.follow = follow
	s, key := w.server(t, edit...), w.key(alice)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(3 * time.Minute)) // a test of bytes that never come fails, and does not hang
	if _, err := fmt.Fprintf(c, "GET %s %s\r\nHost: atelier\r\nAuthorization: Bearer %s\r\n\r\n", events, version, key); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// body returns the body of the answer, behind its first frame.
func body(t *testing.T, c net.Conn) *bufio.Reader {
	t.Helper()
	response, err := nethttp.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(response.Body)
	for _, want := range []string{"retry: ", "\n"} {
		if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("it begins with %q, %v", line, err)
		}
	}
	return r
}

// frameOf returns a frame of at least size bytes.
func frameOf(i, size int) []byte {
	return fmt.Appendf(nil, "id: %d\ndata: %s\n\n", i, strings.Repeat("x", size))
}

// stall sends frames without waiting until the client takes no more, and returns the number of frames that were begun.
func stall(s activity.Subscription) (begun int) {
	for s.TrySend(frameOf(begun, 30_000)) {
		begun++
	}
	return begun + 1
}

// expectFrames reports frames that differ from the frames of stall.
func expectFrames(t *testing.T, text string, frames int) {
	t.Helper()
	var want bytes.Buffer
	for i := range frames {
		want.Write(frameOf(i, 30_000))
	}
	if text != want.String() {
		t.Errorf("%d bytes, which are not the %d of %d frames", len(text), want.Len(), frames)
	}
}

func TestStreamWithoutWaiting(t *testing.T) {
	const frames = 2000
	tried := 0
	c, _ := overTCP(t, "HTTP/1.1", func(_ context.Context, s activity.Subscription) error {
		for i := range frames {
			frame := frameOf(i, i%5000)
			if i%3 != 0 && s.TrySend(frame) {
				tried++
			} else if err := s.Send(frame); err != nil {
				return err
			}
		}
		return nil
	}, func(o *http.Options) { o.Heartbeat = time.Millisecond })
	text, err := io.ReadAll(body(t, c))
	if err != nil {
		t.Errorf("the answer did not end well: %v", err)
	}
	next := 0
	for _, frame := range strings.SplitAfter(string(text), "\n\n") {
		if frame == ":\n\n" || frame == "" {
			continue
		}
		if want := string(frameOf(next, next%5000)); frame != want {
			t.Fatalf("a frame of %d bytes, want %d of %d bytes", len(frame), next, len(want))
		}
		next++
	}
	if next != frames || tried < frames/4 {
		t.Errorf("%d frames, %d of them without waiting", next, tried)
	}
}

func TestStalledStream(t *testing.T) {
	t.Run("Send_writes_what_TrySend_has_left", func(t *testing.T) {
		stalled := make(chan int, 1)
		c, _ := overTCP(t, "HTTP/1.1", func(_ context.Context, s activity.Subscription) error {
			begun := stall(s)
			stalled <- begun
			return s.Send(frameOf(begun-1, 30_000))
		})
		begun := <-stalled
		text, err := io.ReadAll(body(t, c))
		if err != nil {
			t.Errorf("the answer did not end well: %v", err)
		}
		expectFrames(t, string(text), begun)
	})
	t.Run("a_heartbeat_writes_it_before_its_comment", func(t *testing.T) {
		stalled, received := make(chan int, 1), make(chan struct{})
		c, _ := overTCP(t, "HTTP/1.1", func(_ context.Context, s activity.Subscription) error {
			begun := stall(s)
			stalled <- begun
			<-received
			return s.Send(frameOf(begun-1, 30_000))
		}, func(o *http.Options) { o.Heartbeat = 200 * time.Millisecond })
		begun := <-stalled
		r := body(t, c)
		var text strings.Builder
		for frames := 0; frames < begun; {
			frame, err := readFrame(r)
			if err != nil {
				t.Fatal(err)
			}
			if frame != ":\n\n" {
				text.WriteString(frame)
				frames++
			}
		}
		expectFrames(t, text.String(), begun)
		close(received)
		rest, err := io.ReadAll(r)
		if err != nil || strings.Trim(string(rest), ":\n") != "" {
			t.Errorf("behind the frames are %d bytes, %v", len(rest), err)
		}
	})
	t.Run("the_end_of_the_stream_writes_it", func(t *testing.T) {
		stalled, read := make(chan int, 1), make(chan struct{})
		c, _ := overTCP(t, "HTTP/1.1", func(_ context.Context, s activity.Subscription) error {
			stalled <- stall(s)
			<-read
			return nil
		})
		begun := <-stalled
		r := body(t, c)
		close(read)
		text, err := io.ReadAll(r)
		if err != nil {
			t.Errorf("the answer did not end well: %v", err)
		}
		expectFrames(t, string(text), begun)
	})
	t.Run("a_client_that_never_reads_sees_the_answer_break_off", func(t *testing.T) {
		stalled := make(chan int, 1)
		c, server := overTCP(t, "HTTP/1.1", func(_ context.Context, s activity.Subscription) error {
			stalled <- stall(s)
			return nil
		})
		<-stalled
		if err := server.Shutdown(context.Background()); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(body(t, c)); err == nil {
			t.Errorf("the answer ended well after %d bytes", len(text))
		}
	})
}

// readFrame returns the next frame or comment.
func readFrame(r *bufio.Reader) (string, error) {
	var frame strings.Builder
	for {
		line, err := r.ReadString('\n')
		frame.WriteString(line)
		if err != nil || line == "\n" {
			return frame.String(), err
		}
	}
}

// TestStreamWithoutChunks has a client of HTTP/1.0. Answers to it have no chunks.
func TestStreamWithoutChunks(t *testing.T) {
	c, _ := overTCP(t, "HTTP/1.0", func(_ context.Context, s activity.Subscription) error {
		for i := range 10 {
			if frame := frameOf(i, 10); s.TrySend(frame) {
				t.Error("a frame is sent as a chunk")
			} else if err := s.Send(frame); err != nil {
				return err
			}
		}
		return nil
	})
	text, err := io.ReadAll(body(t, c))
	if err != nil || strings.Count(string(text), "data: xxxxxxxxxx\n\n") != 10 {
		t.Errorf("%q, %v", text, err)
	}
}
