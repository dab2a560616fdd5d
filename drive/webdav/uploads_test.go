package webdav_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/drive/drivetest"
	activityv1 "github.com/atelier-run/atelier/messages/activity/v1"
)

// raw sends bytes on a new connection, closes it for writing, and returns the status line of the response.
func (s *site) raw(request string) (status string) {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.server.Listener.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, request)
	conn.(*net.TCPConn).CloseWrite()
	status, _ = bufio.NewReader(conn).ReadString('\n')
	return status
}

func TestInterruptedUploadsChangeNothing(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "old").is(201)
	head := "PUT " + prefix + "/a HTTP/1.1\r\nHost: x\r\n"
	for _, broken := range []string{
		head + "Content-Length: 100\r\n\r\nshort",
		head + "Transfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
		head + "Transfer-Encoding: chunked\r\n\r\nzz\r\nshort\r\n",
	} {
		if status := s.raw(broken); status != "" && !strings.Contains(status, " 400 ") {
			t.Errorf("a broken upload got %q", status)
		}
	}
	s.eventually(func() bool { return len(s.staged()) == 0 })
	if got := s.content("a"); got != "old" {
		t.Errorf("content %q", got)
	}
	s.rows("create file a")
}

func TestSlowUploadDoesNotLockPath(t *testing.T) {
	s := serve(t)
	body, feed := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), "PUT", s.url("/a"), body)
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	answered := make(chan int, 1)
	go func() {
		response, err := s.server.Client().Do(request)
		if err != nil {
			answered <- 0
			return
		}
		response.Body.Close()
		answered <- response.StatusCode
	}()
	io.WriteString(feed, "first part, ")
	s.eventually(func() bool { return len(s.staged()) == 1 })
	s.do("PUT", "/a", "quick").is(201)
	// The sweep must spare the content of the running upload.
	s.do("PUT", "/other", "").is(201)
	s.do("DELETE", "/other", "").is(204)
	s.eventually(func() bool { return !slices.ContainsFunc(s.staged(), isTrash) })
	io.WriteString(feed, "second part")
	feed.Close()
	if status := <-answered; status != 204 {
		t.Errorf("the slow upload got %d", status)
	}
	if got := s.content("a"); got != "first part, second part" {
		t.Errorf("content %q", got)
	}
	s.rows("create file a", "create file other", "delete file other", "write a")
}

// TestSlowUploadsOfOnePerson sends uploads that never end until one is refused. Others can still change the drive, and the person itself
// when the uploads have ended.
func TestSlowUploadsOfOnePerson(t *testing.T) {
	s := serve(t)
	address := strings.TrimPrefix(s.server.URL, "http://")
	var uploads []net.Conn
	refused := ""
	for refused == "" && len(uploads) < 1100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The server asks for the body when the change has begun.
		fmt.Fprintf(c, "PUT %s/%d HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", prefix, len(uploads))
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(line, " 100 ") {
			refused = line
		}
		uploads = append(uploads, c)
	}
	if !strings.Contains(refused, " 429 ") || len(uploads) < 576 || len(uploads) > 700 {
		t.Errorf("after %d uploads: %q", len(uploads), refused)
	}
	if got := s.do("PUT", "/mine", "x").is(429); got.header.Get("Retry-After") == "" {
		t.Error("the refusal has no Retry-After")
	}
	s.do("PUT", "/other", "x", stranger).is(201)
	for _, c := range uploads {
		c.Close()
	}
	s.eventually(func() bool { return s.do("PUT", "/mine", "x").status == 201 })
	s.eventually(func() bool { return len(s.staged()) == 0 })
}

func isTrash(name string) bool { return strings.HasSuffix(name, ".trash") }

func TestAuthorOfLastRowWroteTheContent(t *testing.T) {
	s := serve(t)
	s.do("MKCOL", "/d", "").is(201)
	var calls atomic.Int64
	s.activity.Fail(func(proto.Message, bool) error {
		for range calls.Add(37) % 100 {
			runtime.Gosched()
		}
		return nil
	})
	for round := range 40 {
		var writers sync.WaitGroup
		for w := range 4 {
			writers.Go(func() {
				author := fmt.Sprintf("api-key:%d-%d", round, w)
				s.do("PUT", "/d/file", author, "X-Author: "+author)
			})
		}
		writers.Wait()
		rows := s.activity.Rows()
		if last, content := rows[len(rows)-1].GetAuthor().GetActor(), s.content("d/file"); last != content {
			t.Fatalf("the last row is by %s, but the content by %s", last, content)
		}
	}
	if rows := len(s.activity.Rows()); rows != 161 {
		t.Errorf("%d rows", rows)
	}
}

func TestPutWithUnknownOutcome(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, command := range []string{"Intend", "Complete"} {
			t.Run(fmt.Sprintf("%s after=%t", command, after), func(t *testing.T) {
				s := serve(t)
				s.do("PUT", "/a", "old").is(201)
				s.activity.Fail(failing(command, after))
				s.do("PUT", "/a", "new").is(503).says("unavailable")
				s.activity.Fail(nil)
				// The path stays locked until the outcome is known.
				s.do("PUT", "/a", "newer", "X-Author: web:2").is(204)
				if command == "Complete" {
					s.rows("create file a", "write a", "write a")
				} else {
					s.rows("create file a", "write a")
				}
				s.eventually(func() bool { return len(s.staged()) == 0 })
			})
		}
	}
}

func TestRefusedIntentChangesNothing(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "old").is(201)
	s.activity.Fail(func(m proto.Message, after bool) error {
		if _, is := m.(*activityv1.Intend); is && !after {
			return errLimit
		}
		return nil
	})
	s.do("PUT", "/a", "new").is(409)
	s.do("DELETE", "/a", "").is(409)
	s.rows("create file a")
	if got := s.content("a"); got != "old" || len(s.staged()) > 0 {
		t.Errorf("content %q, staged %v", got, s.staged())
	}
}

// failing returns a fault that fails a command by name, and the Abandon commands that would end the intent of the drive.
func failing(command string, after bool) drivetest.Fault {
	return func(m proto.Message, isAfter bool) error {
		name := string(m.ProtoReflect().Descriptor().Name())
		if (name == command || name == "Abandon") && isAfter == after {
			return drivetest.ErrUnknown
		}
		return nil
	}
}

func TestReadIsServedIfItCannotBeRecorded(t *testing.T) {
	s := serve(t)
	s.do("PUT", "/a", "content").is(201)
	s.activity.Fail(failing("Record", false))
	s.do("GET", "/a", "").is(200).says("content")
}

func TestUploadUsesConstantMemory(t *testing.T) {
	s := serve(t)
	const size = 256 << 20
	request, err := http.NewRequestWithContext(t.Context(), "PUT", s.url("/big"), io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	before := totalAlloc()
	response, err := s.server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if grown := int64(totalAlloc()) - int64(before); grown > 32<<20 {
		t.Errorf("the upload allocated %d bytes, want at most %d", grown, 32<<20)
	}
	if info, err := os.Stat(s.files("big")); err != nil || info.Size() != size {
		t.Errorf("%v %v", info, err)
	}
}
