package bench

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// BenchmarkEdge sends requests for an app of 1 KiB through the edge and through a bare httputil.ReverseProxy, over sixteen connections.
func BenchmarkEdge(b *testing.B) {
	process := App(b)
	var through, bare Requester
	variants := []Variant{
		{"edge", through.Slice(b, Edge(b, process, 1), 16, [][]byte{AppRequest("app0--acme.apps.test", "/")})},
		{"bare", bare.Slice(b, bareProxy(b, process), 16, [][]byte{AppRequest("app0--acme.apps.test", "/")})},
	}
	Rounds(b, time.Second, variants...).Report(b, "request", variants...)
	b.ReportMetric(float64(through.P99().Microseconds()), "edge-p99-µs")
	b.ReportMetric(float64(bare.P99().Microseconds()), "bare-p99-µs")
	b.ReportMetric(float64(through.P99())/float64(bare.P99()), "p99-of-bare")
}

// BenchmarkEdgeRouting sends requests for one app, for 1,000 apps and for 10,000 custom domains, which all have one process, so that only
// the routing differs. The names are known; each is asked for again after a second.
func BenchmarkEdgeRouting(b *testing.B) {
	process := App(b)
	requests := func(format string, n int) (all [][]byte) {
		for i := range n {
			all = append(all, AppRequest(fmt.Sprintf(format, i), "/"))
		}
		return all
	}
	var many, domains, one Requester
	variants := []Variant{
		{"domains", domains.Slice(b, Edge(b, process, 1), 16, requests("h%d.custom.test", 10_000))},
		{"apps", many.Slice(b, Edge(b, process, 1000), 16, requests("app%d--acme.apps.test", 1000))},
		{"one", one.Slice(b, Edge(b, process, 1), 16, requests("app%d--acme.apps.test", 1))},
	}
	r := Rounds(b, time.Second, variants...)
	r.Report(b, "request", variants...)
	b.ReportMetric(r.Ratio("apps", "one"), "apps-of-one")
}

// BenchmarkEdgeLasting sends 64 bytes over a connection that was upgraded, and gets them back, and reads server-sent events, each of which the
// app flushes, through the edge and through a bare httputil.ReverseProxy.
func BenchmarkEdgeLasting(b *testing.B) {
	process := App(b)
	through, bare := Edge(b, process, 1), bareProxy(b, process)
	for name, open := range map[string]func(*testing.B, string) func(time.Duration) (float64, time.Duration){
		"upgrade": echoes, "events": events,
	} {
		b.Run(name, func(b *testing.B) {
			variants := []Variant{{"edge", open(b, through)}, {"bare", open(b, bare)}}
			Rounds(b, time.Second, variants...).Report(b, "message", variants...)
		})
	}
}

// exchange sends a text and waits for it to come back, for a while.
func exchange(b *testing.B, c net.Conn, text string, back func() error) func(time.Duration) (float64, time.Duration) {
	return func(d time.Duration) (n float64, took time.Duration) {
		began := time.Now()
		for ; time.Since(began) < d; n++ {
			if _, err := io.WriteString(c, text); err != nil {
				b.Fatal(err)
			}
			if err := back(); err != nil {
				b.Fatal(err)
			}
		}
		return n, time.Since(began)
	}
}

func connect(b *testing.B, address, head string) (net.Conn, *bufio.Reader) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, head+"Host: app0--acme.apps.test\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

func echoes(b *testing.B, address string) func(time.Duration) (float64, time.Duration) {
	c, reader := connect(b, address, "GET /echo HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: echo\r\n")
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(response, err)
	}
	text := strings.Repeat("x", 64)
	buffer := make([]byte, len(text))
	return exchange(b, c, text, func() error { _, err := io.ReadFull(reader, buffer); return err })
}

func events(b *testing.B, address string) func(time.Duration) (float64, time.Duration) {
	c, reader := connect(b, address, "GET /sse HTTP/1.1\r\n")
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusOK {
		b.Fatal(response, err)
	}
	b.Cleanup(func() { c.Close() })
	buffer := make([]byte, len(event))
	return func(d time.Duration) (n float64, took time.Duration) {
		began := time.Now()
		for ; time.Since(began) < d; n++ {
			if _, err := io.ReadFull(response.Body, buffer); err != nil {
				b.Fatal(err)
			}
		}
		return n, time.Since(began)
	}
}
