package domains

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

const (
	// queryTimeout limits one query. checkTimeout limits all queries of a check together.
	queryTimeout = 3 * time.Second
	checkTimeout = 25 * time.Second
	// udpBytes is the size of UDP answers that do not fragment (https://www.dnsflagday.net/2020/). Larger answers come over TCP,
	// which limits them to 64 KiB.
	udpBytes = 1232
	// maxAnswers limits the records of an answer that are read. maxChain limits the CNAME records that are followed. maxTextBytes limits the
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

// query asks one resolver. It repeats a query without an answer once. exists reports whether the name exists; if the name has a CNAME record,
// exists reports whether the last target exists. If exists is false, the records are the CNAME records that lead to the missing name (RFC 2308,
// section 2.1).
func (r *resolvers) query(ctx context.Context, resolver, name string, kind uint16) (records []dns.RR, exists bool, err error) {
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
		return nil, false, fmt.Errorf("the resolver %s does not answer the query %s: %s", resolver, what, reasonOf(err))
	case len(answer.Question) != 1 || answer.Question[0].Qtype != kind || !strings.EqualFold(answer.Question[0].Name, dns.Fqdn(name)):
		return nil, false, fmt.Errorf("the resolver %s answers another query than %s", resolver, what)
	case answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError:
		return nil, false, fmt.Errorf("the resolver %s answers the query %s with %s", resolver, what, dns.RcodeToString[answer.Rcode])
	}
	return answer.Answer[:min(len(answer.Answer), maxAnswers)], answer.Rcode == dns.RcodeSuccess, nil
}

// reasonOf describes an error of the network without the addresses of this machine.
func reasonOf(err error) string {
	var network net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout() {
		return "no answer in time"
	}
	return "the connection failed"
}

// A view has the records of a name that one resolver has returned.
type view struct {
	resolver string
	// texts has the TXT records that prove the name. textChain has the CNAME records that lead to them.
	texts     []string
	textChain chain
	// addresses has the name's IP addresses. chain has the CNAME records that lead to them. cut is set if the name is the apex of a zone.
	addresses []netip.Addr
	chain     chain
	cut       bool
	// forbids has the CAA records that forbid the authority. forbidsName is the name that has these records.
	forbids     []string
	forbidsName string
}

// A chain has the targets of the CNAME records of a name, in order. isBroken is set if the last target does not exist.
type chain struct {
	targets  []string
	isBroken bool
}

// newChain returns the CNAME records of an answer that lead from a name to its last target.
func newChain(name string, answers []dns.RR, exists bool) chain {
	targets := map[string]string{}
	for _, rr := range answers {
		if cname, ok := rr.(*dns.CNAME); ok {
			targets[normalName(cname.Hdr.Name)] = normalName(cname.Target)
		}
	}
	c := chain{isBroken: !exists}
	for next := targets[name]; next != "" && len(c.targets) < maxChain; next = targets[next] {
		c.targets = append(c.targets, next)
	}
	return c
}

// leadsTo reports whether a record of the chain has the given name as its target, and the last target exists.
func (c chain) leadsTo(name string) bool { return !c.isBroken && slices.Contains(c.targets, name) }

// String describes the first record of the chain, and the last target if it does not exist. The chain must not be empty.
func (c chain) String() string {
	text := "a CNAME record to " + c.targets[0]
	if !c.isBroken {
		return text
	}
	if last := c.targets[len(c.targets)-1]; last != c.targets[0] {
		text += ", which leads to " + last
	}
	return text + ", which does not exist"
}

// look returns the view of a resolver.
func (r *resolvers) look(ctx context.Context, resolver, record, host string, permits func([]*dns.CAA) bool) (*view, error) {
	v := &view{resolver: resolver}
	answers, exists, err := r.query(ctx, resolver, record, dns.TypeTXT)
	if err != nil {
		return nil, err
	}
	v.textChain = newChain(record, answers, exists)
	for _, rr := range answers {
		if txt, ok := rr.(*dns.TXT); ok {
			text := strings.Join(txt.Txt, "")
			v.texts = append(v.texts, text[:min(len(text), maxTextBytes)])
		}
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		if answers, exists, err = r.query(ctx, resolver, host, kind); err != nil {
			return nil, err
		}
		v.addAddresses(answers)
		v.chain = newChain(host, answers, exists)
	}
	if len(v.addresses) > 0 { // some servers say of a name with addresses of one kind, asked for the other, that it does not exist (RFC 4074, section 4.2)
		v.chain.isBroken = false
	}
	if answers, _, err = r.query(ctx, resolver, host, dns.TypeSOA); err != nil {
		return nil, err
	}
	for _, rr := range answers {
		if _, ok := rr.(*dns.SOA); ok && strings.EqualFold(rr.Header().Name, dns.Fqdn(host)) {
			v.cut = true
		}
	}
	return v, r.lookCAA(ctx, v, host, permits)
}

// addAddresses adds the addresses of an answer.
func (v *view) addAddresses(answers []dns.RR) {
	for _, rr := range answers {
		switch rr := rr.(type) {
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
