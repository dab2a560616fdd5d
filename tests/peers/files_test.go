package peers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/atelier-run/atelier/tests/bench"
)

const (
	// clients is the number of connections, each with one request at a time and a folder of its own.
	clients = 64
	// fileSize is the size of every file, in bytes.
	fileSize = 4 << 10
	// oldFiles is the number of files in a client's folder that are overwritten and read.
	oldFiles = 16
)

// BenchmarkFiles measures PUT of new files of 4 KB, PUT of existing ones, and GET, with 64 clients: a node in a process of
// its own, with credentials, activity and a sync of everything that it acknowledges, beside Debian's Apache with mod_dav,
// which has no credentials here and syncs nothing. Both write to the same disk. cpu-us/op is the processor time, user and
// system, of all processes of a server.
//
// BENCH_BEFORE may name another binary of atelier, which then takes turns with the one built from this tree.
func BenchmarkFiles(b *testing.B) {
	servers := []*fileServer{startNode(b, "atelier", buildNode(b))}
	if before := os.Getenv("BENCH_BEFORE"); before != "" {
		servers = append(servers, startNode(b, "before", before))
	}
	if apache := startApache(b); apache != nil {
		servers = append(servers, apache)
	}
	for _, s := range servers {
		s.connect(b)
	}
	for _, operation := range []struct {
		name   string
		method string
		// isNew is set if every request has a path of its own.
		isNew bool
	}{{"put-new", http.MethodPut, true}, {"put-existing", http.MethodPut, false}, {"get", http.MethodGet, false}} {
		b.Run(operation.name, func(b *testing.B) {
			var variants []bench.Variant
			costs := map[string][]float64{}
			for _, s := range servers {
				variants = append(variants, bench.Variant{Name: s.name, Slice: func(d time.Duration) (float64, time.Duration) {
					used := s.processorTime(b)
					n, took := s.run(b, operation.method, operation.isNew, d)
					costs[s.name] = append(costs[s.name], float64((s.processorTime(b)-used).Microseconds())/n)
					return n, took
				}})
			}
			rates := bench.Rounds(b, time.Second, variants...)
			for i, v := range variants {
				b.ReportMetric(rates.Median(v.Name), v.Name+"-op/s")
				b.ReportMetric(bench.Median(costs[v.Name]), v.Name+"-cpu-us/op")
				if i > 0 {
					b.ReportMetric(rates.Ratio("atelier", v.Name), "of-"+v.Name)
				}
			}
		})
	}
}

// A fileServer is a server of files in processes of its own.
type fileServer struct {
	name    string
	address string
	// prefix is the URL path of the root folder, and credential a header line for every request, or "".
	prefix, credential string
	// processorTime returns the processor time that the server's processes have used so far.
	processorTime func(testing.TB) time.Duration
	clients       []*fileClient
}

// A fileClient is one connection to a server. It writes requests as bytes, so that the load costs little.
type fileClient struct {
	server *fileServer
	conn   net.Conn
	reader *bufio.Reader
	folder string
	// made counts the new files so far, old the requests for old ones.
	made, old int
}

// connect opens the connections, creates the clients' folders and fills them with the old files.
func (s *fileServer) connect(b *testing.B) {
	for i := range clients {
		conn, err := net.Dial("tcp4", s.address)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		c := &fileClient{server: s, conn: conn, reader: bufio.NewReader(conn), folder: fmt.Sprintf("%s/client-%d", s.prefix, i)}
		if err := c.exchange("MKCOL", c.folder+"/", nil); err != nil {
			b.Fatal(err)
		}
		for range oldFiles {
			if err := c.request(http.MethodPut, false); err != nil {
				b.Fatal(err)
			}
		}
		s.clients = append(s.clients, c)
	}
}

// run lets all clients send requests for about d. It returns the number of requests and how long they took.
func (s *fileServer) run(b *testing.B, method string, isNew bool, d time.Duration) (n float64, took time.Duration) {
	began := time.Now()
	counts, errs := make([]int, clients), make([]error, clients)
	var group sync.WaitGroup
	for i, c := range s.clients {
		group.Go(func() {
			for time.Since(began) < d && errs[i] == nil {
				errs[i] = c.request(method, isNew)
				counts[i]++
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(s.name, ": ", err)
	}
	for _, count := range counts {
		n += float64(count)
	}
	return n, time.Since(began)
}

// request sends a request for a new file, or for the next of the old ones.
func (c *fileClient) request(method string, isNew bool) error {
	path := ""
	if isNew {
		path = fmt.Sprintf("%s/new-%d.txt", c.folder, c.made)
		c.made++
	} else {
		path = fmt.Sprintf("%s/old-%d.txt", c.folder, c.old%oldFiles)
		c.old++
	}
	if method == http.MethodPut {
		return c.exchange(method, path, content)
	}
	return c.exchange(method, path, nil)
}

var content = make([]byte, fileSize)

// exchange sends a request and reads its response. It fails unless the status is 200, 201 or 204 and, for GET, the body is
// a whole file.
func (c *fileClient) exchange(method, path string, body []byte) error {
	request := fmt.Appendf(make([]byte, 0, 512+len(body)), "%s %s HTTP/1.1\r\nHost: bench\r\n%s", method, path, c.server.credential)
	if method == http.MethodPut {
		request = fmt.Appendf(request, "Content-Length: %d\r\n", len(body))
	}
	if _, err := c.conn.Write(append(append(request, "\r\n"...), body...)); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, &http.Request{Method: method})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 || method == http.MethodGet && n != fileSize {
		return fmt.Errorf("%s %s: %s, %d bytes", method, path, response.Status, n)
	}
	return nil
}
