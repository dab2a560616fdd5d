package domains

import (
	"testing"

	"github.com/miekg/dns"
)

func TestPermitsAuthority(t *testing.T) {
	for _, test := range []struct {
		records []string
		permits bool
	}{
		{[]string{`0 issue "ca.example.org"`}, true},
		{[]string{`0 ISSUE " CA.example.org "`}, true},
		{[]string{`0 issue "other.example"`}, false},
		{[]string{`0 issue "other.example"`, `0 issue "ca.example.org"`}, true},
		{[]string{`0 issue ";"`}, false},
		{[]string{`0 issue ""`}, false},
		{[]string{`0 issue "ca.example.org.evil.example"`}, false},
		{[]string{`0 issuewild ";"`}, true},
		{[]string{`0 issuewild "ca.example.org"`, `0 issue ";"`}, false},
		{[]string{`0 iodef "mailto:a@example.com"`}, true},
		{[]string{`128 iodef "mailto:a@example.com"`}, true},
		{[]string{`128 unknown "x"`}, false},
		{[]string{`0 unknown "x"`}, true},
		{[]string{`0 issue "ca.example.org"`, `128 unknown "x"`}, false},
		{[]string{`0 issue "ca.example.org; validationmethods=dns-01"`}, false},
		{[]string{`0 issue "ca.example.org; validationmethods=dns-01,http-01"`}, true},
		{[]string{`0 issue "ca.example.org; accounturi=https://ca.example.org/1; validationmethods=tls-alpn-01"`}, true},
	} {
		var all []*dns.CAA
		for _, text := range test.records {
			rr, err := dns.NewRR("example.com. 60 IN CAA " + text)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, rr.(*dns.CAA))
		}
		if got := permitsAuthority([]string{"ca.example.org"})(all); got != test.permits {
			t.Errorf("%v: %v", test.records, got)
		}
	}
}
