package domainstest

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// DNS is an authoritative DNS server on a loopback address, over UDP and TCP. It answers a query with the records of the name, and
// follows CNAME records that it has itself. A name exists once Set was called for it. It is safe for concurrent use.
type DNS struct {
	// Address is host:port.
	Address string

	mu      sync.Mutex
	records map[string][]dns.RR
	rcodes  map[string]int
	denied  map[string]uint16
	queries int
}

// NewDNS starts a server, which is stopped when the test ends.
func NewDNS(t testing.TB) *DNS {
	t.Helper()
	s := &DNS{records: map[string][]dns.RR{}, rcodes: map[string]int{}, denied: map[string]uint16{}}
	packets, streams := listen(t)
	s.Address = packets.LocalAddr().String()
	for _, server := range []*dns.Server{{PacketConn: packets, Handler: s}, {Listener: streams, Handler: s}} {
		started, done := make(chan struct{}), make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go func() {
			defer close(done)
			_ = server.ActivateAndServe()
		}()
		<-started
		t.Cleanup(func() {
			_ = server.Shutdown()
			<-done
		})
	}
	return s
}

// listen opens the same port for UDP and TCP.
func listen(t testing.TB) (net.PacketConn, net.Listener) {
	t.Helper()
	for range 20 {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if streams, err := net.Listen("tcp", packets.LocalAddr().String()); err == nil {
			return packets, streams
		}
		packets.Close()
	}
	t.Fatal("no port is free for both UDP and TCP")
	return nil, nil
}

// Set replaces the records of a name. Each record is in the format of zone files without the name: "CNAME shop.example.", "A 127.0.0.1".
func (s *DNS) Set(t testing.TB, name string, records ...string) {
	t.Helper()
	var all []dns.RR
	for _, text := range records {
		rr, err := dns.NewRR(dns.Fqdn(name) + " 60 IN " + text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rr)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[canonical(name)] = all
	delete(s.rcodes, canonical(name))
}

// Fail makes the server answer queries for a name with a code, such as dns.RcodeServerFailure.
func (s *DNS) Fail(name string, rcode int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rcodes[canonical(name)] = rcode
}

// Deny makes the server say that a name does not exist in answers to queries for one type. The answers have its CNAME records.
func (s *DNS) Deny(name string, kind uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[canonical(name)] = kind
}

// Queries returns the number of queries so far.
func (s *DNS) Queries() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queries
}

func canonical(name string) string { return strings.ToLower(dns.Fqdn(name)) }

// ServeDNS implements dns.Handler.
func (s *DNS) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	answer := new(dns.Msg).SetReply(request)
	answer.Authoritative = true
	question := request.Question[0]
	s.mu.Lock()
	s.queries++
	answer.Rcode = s.rcodes[canonical(question.Name)]
	if answer.Rcode == dns.RcodeSuccess {
		var last string
		answer.Answer, last = s.answers(question.Name, question.Qtype)
		if _, exists := s.records[canonical(last)]; !exists || s.denied[canonical(question.Name)] == question.Qtype {
			answer.Rcode = dns.RcodeNameError // of the last name (RFC 6604, section 3)
		}
	}
	s.mu.Unlock()
	if _, datagram := w.RemoteAddr().(*net.UDPAddr); datagram {
		size := dns.MinMsgSize
		if options := request.IsEdns0(); options != nil {
			size = int(options.UDPSize())
		}
		answer.Truncate(size)
	}
	_ = w.WriteMsg(answer)
}

// answers returns the records of a type, with the CNAME records that lead to them, and the name that these lead to. The caller holds mu.
func (s *DNS) answers(name string, kind uint16) (all []dns.RR, last string) {
	for range 10 {
		var next string
		for _, rr := range s.records[canonical(name)] {
			if alias, ok := rr.(*dns.CNAME); ok && kind != dns.TypeCNAME {
				all, next = append(all, rr), alias.Target
			} else if rr.Header().Rrtype == kind {
				all = append(all, rr)
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	return all, name
}
