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

// oneApp is a request for one app.
var oneApp = [][]byte{AppRequest("app0--acme.apps.test", "/")}

// BenchmarkEdge sends requests for an app of 1 KiB through the edge and through a bare httputil.ReverseProxy, over sixteen connections. The
// app, each proxy and the clients have processes of their own.
func BenchmarkEdge(b *testing.B) {
	process, readers := App(b), NewReaders(b)
	through, bare := Edge(b, process, 1), Bare(b, process)
	first, ofEdge := readers.Requesting("edge", through.Address, 16, oneApp)
	second, ofBare := readers.Requesting("bare", bare.Address, 16, oneApp)
	used := Processors{"edge": through.Processor, "bare": bare.Processor}
	used.Rounds(b, time.Second, first, second).Report(b, "request", first, second)
	half, most := ofEdge.Latencies()
	bareHalf, bareMost := ofBare.Latencies()
	b.ReportMetric(float64(most.Microseconds()), "edge-p99-µs")
	b.ReportMetric(float64(bareMost.Microseconds()), "bare-p99-µs")
	b.ReportMetric(float64(half)/float64(bareHalf), "p50-of-bare")
	b.ReportMetric(float64(most)/float64(bareMost), "p99-of-bare")
}

// BenchmarkEdgeRouting sends requests for one app, for 1,000 apps and for 10,000 custom domains, each of an app of its own, through the
// edge and through a bare httputil.ReverseProxy. All apps of a proxy have one process, but each has connections of its own, as in a node:
// the cost of the connections shows with the bare proxy, which looks nothing up.
func BenchmarkEdgeRouting(b *testing.B) {
	readers := NewReaders(b)
	var variants []Variant
	used := Processors{}
	for _, of := range []struct {
		name, format string
		count        int
	}{{"one", "app%d--acme.apps.test", 1}, {"apps", "app%d--acme.apps.test", 1000}, {"domains", "h%d.custom.test", 10_000}} {
		var requests [][]byte
		for i := range of.count {
			requests = append(requests, AppRequest(fmt.Sprintf(of.format, i), "/"))
		}
		// A process per proxy, because few systems allow one of them 20,000 connections.
		through, bare := Edge(b, App(b), of.count), Bare(b, App(b))
		first, _ := readers.Requesting(of.name, through.Address, 8, requests)
		second, _ := readers.Requesting("bare-"+of.name, bare.Address, 8, requests)
		variants = append(variants, first, second)
		used[first.Name], used[second.Name] = through.Processor, bare.Processor
	}
	r := used.Rounds(b, time.Second, variants...)
	for _, v := range variants {
		b.ReportMetric(r.Median(v.Name), v.Name+"-request/s")
		b.ReportMetric(r.Cost(v.Name)/1000, v.Name+"-cpu-µs")
	}
	for _, pair := range [][2]string{
		{"apps", "one"}, {"domains", "one"}, {"bare-apps", "bare-one"}, {"bare-domains", "bare-one"}, {"apps", "bare-apps"}, {"domains", "bare-domains"},
	} {
		b.ReportMetric(r.Ratio(pair[0], pair[1]), pair[0]+"-of-"+pair[1])
		b.ReportMetric(r.CostRatio(pair[0], pair[1]), pair[0]+"-cpu-of-"+pair[1])
	}
}

// BenchmarkEdgeLasting sends 64 bytes over a connection that was upgraded, and gets them back; reads server-sent events over one connection
// as fast as they come (events); and over 32 connections with a pause of tick between events (ticks). The app flushes each event. All of it
// goes through the edge and through a bare httputil.ReverseProxy.
func BenchmarkEdgeLasting(b *testing.B) {
	process, readers := App(b), NewReaders(b)
	through, bare := Edge(b, process, 1), Bare(b, process)
	used := Processors{"edge": through.Processor, "bare": bare.Processor}
	b.Run("upgrade", func(b *testing.B) {
		variants := []Variant{{"edge", echoes(b, through)}, {"bare", echoes(b, bare)}}
		used.Rounds(b, time.Second, variants...).Report(b, "message", variants...)
	})
	for _, of := range []struct {
		name, path  string
		connections int
	}{{"events", "/sse", 1}, {"ticks", "/ticks", 32}} {
		b.Run(of.name, func(b *testing.B) {
			variants := []Variant{
				readers.following("edge", of.path, through, of.connections), readers.following("bare", of.path, bare, of.connections),
			}
			used.Rounds(b, time.Second, variants...).Report(b, "message", variants...)
		})
	}
}

// echoes sends a text over an upgraded connection and waits for it to come back, again and again.
func echoes(b *testing.B, through Server) func(time.Duration) (float64, time.Duration) {
	c, err := net.Dial("tcp", through.Address)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "GET /echo HTTP/1.1\r\nHost: app0--acme.apps.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"); err != nil {
		b.Fatal(err)
	}
	reader := bufio.NewReader(c)
	response, err := http.ReadResponse(reader, nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		b.Fatal(response, err)
	}
	text := strings.Repeat("x", 64)
	back := make([]byte, len(text))
	return func(d time.Duration) (n float64, took time.Duration) {
		began := time.Now()
		for ; time.Since(began) < d; n++ {
			if _, err := io.WriteString(c, text); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(reader, back); err != nil {
				b.Fatal(err)
			}
		}
		return n, time.Since(began)
	}
}
