package egress

import (
	"io"
	"net"
	"testing"
	"time"
)

// BenchmarkDownload measures downloads of one TCP connection through the server, and over the loopback interface of the node in the
// same run. The metric ratio compares their throughput.
func BenchmarkDownload(b *testing.B) {
	const size = 256 << 20
	ns, _ := newTestComputer(b, Options{})
	content := make([]byte, 256<<10)
	server := listen(b, publicAddress, func(conn *net.TCPConn) {
		for range size / len(content) {
			if _, err := conn.Write(content); err != nil {
				return
			}
		}
	})
	download := func(conn net.Conn) time.Duration {
		defer conn.Close()
		start := time.Now()
		// Reading into one buffer keeps the cost of the client the same in both cases.
		if n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 256<<10)); n != size {
			b.Fatalf("%d bytes, %v", n, err)
		}
		return time.Since(start)
	}
	var through, loopback time.Duration
	for b.Loop() {
		conn, err := net.Dial("tcp", server)
		if err != nil {
			b.Fatal(err)
		}
		loopback += download(conn)
		through += download(ns.mustDial(b, "tcp", server))
	}
	rate := func(d time.Duration) float64 { return size / 1e6 * float64(b.N) / d.Seconds() }
	b.ReportMetric(rate(through), "MB/s")
	b.ReportMetric(rate(loopback), "loopback-MB/s")
	b.ReportMetric(loopback.Seconds()/through.Seconds(), "ratio")
}

// BenchmarkConnect measures connections that are opened and closed one after the other.
func BenchmarkConnect(b *testing.B) {
	ns, _ := newTestComputer(b, Options{Limits: Limits{FlowsPerSecond: 1e6, FlowBurst: 1e6}})
	server := listen(b, publicAddress, echo)
	for b.Loop() {
		conn, err := ns.dial(b.Context(), "tcp", server)
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}
