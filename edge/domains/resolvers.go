package domains

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// queryTimeout limits one query, checkTimeout all of a check.
	queryTimeout = 3 * time.Second
	checkTimeout = 25 * time.Second
	// udpBytes is the size of UDP answers that do not fragment (https://www.dnsflagday.net/2020/). Larger answers come over TCP,
	// which limits them to 64 KiB.
	udpBytes = 1232
	// maxAnswers limits the records of an answer that are read, maxChain the CNAME records that are followed, maxTextBytes the
	// text of a record that is shown.
	maxAnswers   = 128
	maxChain     = 16
	maxTextBytes = 256
)

// resolvers sends queries to several DNS resolvers.
type resolvers struct {
	addresses []string
	udp, tcp  *dns.Client
}

func newResolvers(addresses []string) *resolvers {
	return &resolvers{
		addresses: addresses,
		udp:       &dns.Client{Net: "udp", Timeout: queryTimeout, UDPSize: udpBytes},
		tcp:       &dns.Client{Net: "tcp", Timeout: queryTimeout},
	}
}

// query asks one resolver. A name that does not exist has no records. It repeats a query without an answer once.
func (r *resolvers) query(ctx context.Context, resolver, name string, kind uint16) ([]dns.RR, error) {
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind)
	question.SetEdns0(udpBytes, false)
	answer, _, err := r.udp.ExchangeContext(ctx, question, resolver)
	var network net.Error
	if errors.As(err, &network) && network.Timeout() && ctx.Err() == nil {
		answer, _, err = r.udp.ExchangeContext(ctx, question, resolver)
	}
	if err == nil && answer.Truncated {
		answer, _, err = r.tcp.ExchangeContext(ctx, question, resolver)
	}
	what := fmt.Sprintf("%s %s", dns.TypeToString[kind], name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the resolver %s does not answer the query %s: %s", resolver, what, reasonOf(err))
	case len(answer.Question) != 1 || answer.Question[0].Qtype != kind || !strings.EqualFold(answer.Question[0].Name, dns.Fqdn(name)):
		return nil, fmt.Errorf("the resolver %s answers another query than %s", resolver, what)
	case answer.Rcode == dns.RcodeNameError:
		return nil, nil
	case answer.Rcode != dns.RcodeSuccess:
		return nil, fmt.Errorf("the resolver %s answers the query %s with %s", resolver, what, dns.RcodeToString[answer.Rcode])
	}
	return answer.Answer[:min(len(answer.Answer), maxAnswers)], nil
}

// reasonOf describes an error of the network without the addresses of this machine.
func reasonOf(err error) string {
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return "no answer in time"
	}
	return "the connection failed"
}

// A view has what one resolver knows of a name.
type view struct {
	resolver string
	// texts are the TXT records that prove the name, chain the targets of its CNAME records in order, and addresses its
	// addresses. cut is set if the name is the apex of a zone.
	texts     []string
	chain     []string
	addresses []netip.Addr
	cut       bool
	// forbids are the CAA records that forbid the authority, and the name that has them.
	forbids     []string
	forbidsName string
}

// look returns the view of one resolver.
func (r *resolvers) look(ctx context.Context, resolver, record, host string, permits func([]*dns.CAA) bool) (*view, error) {
	v := &view{resolver: resolver}
	answers, err := r.query(ctx, resolver, record, dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	for _, rr := range answers {
		if txt, ok := rr.(*dns.TXT); ok {
			text := strings.Join(txt.Txt, "")
			v.texts = append(v.texts, text[:min(len(text), maxTextBytes)])
		}
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		if answers, err = r.query(ctx, resolver, host, kind); err != nil {
			return nil, err
		}
		v.addAddresses(host, answers)
	}
	if answers, err = r.query(ctx, resolver, host, dns.TypeSOA); err != nil {
		return nil, err
	}
	for _, rr := range answers {
		if _, ok := rr.(*dns.SOA); ok && strings.EqualFold(rr.Header().Name, dns.Fqdn(host)) {
			v.cut = true
		}
	}
	return v, r.lookCAA(ctx, v, host, permits)
}

// addAddresses adds the addresses of an answer, and the chain of CNAME records from the host to them.
func (v *view) addAddresses(host string, answers []dns.RR) {
	targets := map[string]string{}
	for _, rr := range answers {
		switch rr := rr.(type) {
		case *dns.CNAME:
			targets[normalName(rr.Hdr.Name)] = normalName(rr.Target)
		case *dns.A:
			if a, ok := netip.AddrFromSlice(rr.A.To4()); ok {
				v.addresses = append(v.addresses, a)
			}
		case *dns.AAAA:
			if a, ok := netip.AddrFromSlice(rr.AAAA); ok {
				v.addresses = append(v.addresses, a.Unmap())
			}
		}
	}
	v.chain = v.chain[:0]
	for next := targets[host]; next != "" && len(v.chain) < maxChain; next = targets[next] {
		v.chain = append(v.chain, next)
	}
}

func normalName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// lookAll asks all resolvers at the same time. It returns an error if not more than half of them answer.
func (r *resolvers) lookAll(ctx context.Context, record, host string, permits func([]*dns.CAA) bool) ([]*view, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	views, failures := make([]*view, len(r.addresses)), make([]error, len(r.addresses))
	var running sync.WaitGroup
	for i, resolver := range r.addresses {
		running.Go(func() { views[i], failures[i] = r.look(ctx, resolver, record, host, permits) })
	}
	running.Wait()
	var answered []*view
	var reasons []string
	for i, err := range failures {
		if err == nil {
			answered = append(answered, views[i])
		} else {
			reasons = append(reasons, err.Error())
		}
	}
	if 2*len(answered) <= len(r.addresses) {
		return nil, errors.New(strings.Join(reasons, "; "))
	}
	return answered, nil
}
